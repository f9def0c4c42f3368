/* Fetches against a mock of the service, and who outlives whom.
 * Arguments: URLs of a service; of one that never answers; of one that answers 429 with
 * Retry-After: 7, then 503 always; of one that answers 404; of one with odd variants. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static const char *service, *silent, *busy, *missing, *odd;

static char garbage;
#define GARBAGE ((void *)&garbage)

static exp_config *config_of(const char *url) {
    exp_config *config = exp_config_new();
    OK(exp_config_set_server_url(config, url));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, 1));
    OK(exp_config_set_use_environment_proxy(config, EXP_FALSE));
    return config;
}

static exp_client *client_with(exp_config *config) {
    exp_client *client = GARBAGE;
    exp_error *error = GARBAGE;
    OK(exp_client_new("secret-key", config, &client, &error));
    CHECK_THAT(error == NULL, exp_error_message(error));
    exp_free(config);
    return client;
}

static exp_client *client_of(const char *url) { return client_with(config_of(url)); }

static exp_variants *fetch(exp_client *client, const exp_user *user,
                           const exp_fetch_options *options) {
    exp_variants *variants = GARBAGE;
    exp_error *error = GARBAGE;
    OK(exp_fetch_v2(client, user, options, &variants, &error));
    CHECK_THAT(error == NULL, exp_error_message(error));
    CHECK(variants != NULL);
    return variants;
}

static exp_error *fail(exp_status expected, exp_client *client, const exp_fetch_options *options) {
    exp_variants *variants = GARBAGE;
    exp_error *error = GARBAGE;
    CHECK_STATUS(expected, exp_fetch_v2(client, NULL, options, &variants, &error));
    CHECK(variants == NULL && error != NULL);
    CHECK_STATUS(expected, exp_error_status(error));
    CHECK_THAT(!strstr(exp_error_message(error), "secret"), exp_error_message(error));
    return error;
}

static uint64_t now_millis(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void sleep_millis(long millis) {
    struct timespec time = {millis / 1000, millis % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void variants_outlive_everything_they_came_from(void) {
    exp_client *client = client_of(service);
    exp_user *user = exp_user_new();
    OK(exp_user_set_user_id(user, "user"));
    OK(exp_user_set_property_json(user, "nonce", "\"drawn\""));
    exp_variants *first = fetch(client, user, NULL);
    exp_variants *variants = exp_variants_retain(first);
    exp_free(first);
    exp_free(user);
    exp_free(client);
    CHECK(exp_variants_count(variants) == 4);
    CHECK(exp_variants_attempts(variants) == 1);
    CHECK(exp_variants_micros_left(variants) > 0 && exp_variants_micros_left(NULL) == UINT64_MAX);
    CHECK(exp_variants_connection_reused(variants) == 0);
    CHECK(exp_variants_phase_micros(variants, EXP_PHASE_FIRST_BYTE) > 0);
    CHECK(exp_variants_micros_left(variants) <= 86400000000u);
    CHECK(exp_variants_micros_left(NULL) == UINT64_MAX);
    CHECK(exp_variants_phase_micros(variants, EXP_PHASE_BACKOFF) == 0);
    CHECK(exp_variants_phase_micros(variants, EXP_PHASE_NONE) == 0);
    CHECK(exp_variants_phase_micros(variants, 8) == 0);
    const exp_variant *nonce = exp_variants_get(variants, "demo-nonce");
    CHECK_TEXT("demo-nonce", exp_variant_flag_key(nonce));
    CHECK_TEXT("on", exp_variant_key(nonce));
    CHECK_TEXT("on", exp_variants_value(variants, "demo-nonce", "no"));
    CHECK_TEXT("\"drawn\"", exp_variant_payload_json(nonce));
    CHECK(exp_variant_payload_json_length(nonce) == 7);
    CHECK(exp_variants_get_n(variants, "demo-nonce and more", 10) == nonce);
    CHECK_TEXT("no", exp_variants_value(variants, "none", "no"));
    CHECK_TEXT("no", exp_variants_value(variants, NULL, "no"));
    CHECK(exp_variants_value_n(variants, "demo-nonce", 9, NULL) == NULL);
    CHECK(exp_variants_get(variants, NULL) == NULL && exp_variants_get(variants, "\xff") == NULL);
    size_t found = 0;
    while (exp_variants_at(variants, found) != NULL) {
        found++;
    }
    CHECK(found == 4 && exp_variants_at(variants, SIZE_MAX) == NULL);
    CHECK(strlen(exp_variants_json(variants)) == exp_variants_json_length(variants));
    CHECK(exp_variants_json(variants) == exp_variants_json(variants));
    exp_free(variants);
}

static void texts_may_hold_nuls_and_fields_may_be_absent(void) {
    exp_client *client = client_of(odd);
    exp_variants *variants = fetch(client, NULL, NULL);
    CHECK(exp_variants_count(variants) == 3);
    const exp_variant *nul = exp_variants_get_n(variants, "a\0b", 3);
    CHECK(nul != NULL && nul == exp_variants_at(variants, 0));
    CHECK(exp_variants_get(variants, "a") == NULL);
    CHECK(exp_variant_flag_key_length(nul) == 3);
    CHECK(!memcmp("a\0b", exp_variant_flag_key(nul), 4));
    CHECK(exp_variant_value_length(nul) == 3 && !memcmp("c\0d", exp_variant_value(nul), 4));
    CHECK(exp_variants_value_n(variants, "a\0b", 3, NULL) == exp_variant_value(nul));
    const exp_variant *bare = exp_variants_get(variants, "bare");
    CHECK(bare != NULL && exp_variant_key(bare) == NULL && exp_variant_key_length(bare) == 0);
    CHECK(exp_variant_value(bare) == NULL && exp_variant_payload_json(bare) == NULL);
    CHECK(exp_variant_metadata_json(bare) == NULL && exp_variant_value_length(bare) == 0);
    CHECK_TEXT("no", exp_variants_value(variants, "bare", "no"));
    const exp_variant *off = exp_variants_get(variants, "off");
    CHECK_TEXT("off", exp_variant_key(off));
    CHECK(exp_variant_key_length(off) == 3);
    CHECK_TEXT("{\"default\":true}", exp_variant_metadata_json(off));
    CHECK(exp_variant_metadata_json_length(off) == 16);

    /* The filtered set shares what it needs, whoever goes first. */
    exp_variants *deployed = GARBAGE;
    exp_error *error = GARBAGE;
    OK(exp_variants_filter_deployed(variants, &deployed, &error));
    CHECK(error == NULL && exp_variants_count(deployed) == 2);
    CHECK(exp_variants_get(deployed, "off") == NULL && exp_variants_attempts(deployed) == 1);
    exp_free(variants);
    CHECK(exp_variant_flag_key_length(exp_variants_at(deployed, 0)) == 3);
    exp_variants *again = GARBAGE;
    OK(exp_variants_filter_deployed(deployed, &again, NULL));
    CHECK(exp_variants_count(again) == 2);
    exp_free(deployed);
    exp_free(again);
    exp_free(client);
}

static void a_second_fetch_uses_the_connection_again(void) {
    exp_client *client = client_of(service);
    exp_free(fetch(client, NULL, NULL));
    exp_variants *second = fetch(client, NULL, NULL);
    CHECK(exp_variants_connection_reused(second) == 1);
    exp_free(second);
    exp_text *text = GARBAGE;
    OK(exp_client_metrics(client, EXP_METRICS_JSON, &text, NULL));
    CHECK_THAT(strstr(exp_text_value(text), "\"fetches_ok\":2"), exp_text_value(text));
    exp_free(client);
    CHECK(strlen(exp_text_value(text)) == exp_text_length(text));
    exp_free(text);
}

static void options_restrict_the_flags(void) {
    exp_client *client = client_of(service);
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_add_flag_key(options, "demo-color"));
    OK(exp_fetch_options_add_flag_key_n(options, "demo-nonce!", 10));
    exp_variants *variants = fetch(client, NULL, options);
    CHECK(exp_variants_count(variants) == 2);
    exp_free(variants);
    exp_free(options);
    exp_free(client);
}

static void errors_tell_what_is_known_and_outlive_their_client(void) {
    exp_config *config = config_of(busy);
    OK(exp_config_set_fetch_retries(config, 1));
    exp_client *client = client_with(config);
    /* 429 with a Retry-After above the largest back-off: final. */
    exp_error *error = fail(EXP_ERR_HTTP_STATUS, client, NULL);
    CHECK(exp_error_http_status(error) == 429 && exp_error_retry_after_millis(error) == 7000000);
    CHECK(exp_error_attempts(error) == 1 && exp_error_is_retryable(error) == 1);
    CHECK(exp_error_phase(error) == EXP_PHASE_NONE);
    exp_error *second = fail(EXP_ERR_HTTP_STATUS, client, NULL);
    exp_free(client);
    CHECK(exp_error_http_status(second) == 503 && exp_error_attempts(second) == 2);
    CHECK(exp_error_retry_after_millis(second) == 0 && exp_error_connection_reused(second) == 1);
    CHECK(exp_error_phase_micros(second, EXP_PHASE_FIRST_BYTE) > 0);
    CHECK(exp_error_phase_micros(second, EXP_PHASE_BACKOFF) >= 1000);
    exp_error *kept = exp_error_retain(second);
    exp_free(second);
    CHECK_MESSAGE("503", kept);
    exp_free(kept);
    exp_free(error);
    client = client_of(missing);
    error = fail(EXP_ERR_HTTP_STATUS, client, NULL);
    CHECK(exp_error_http_status(error) == 404 && exp_error_is_retryable(error) == 0);
    exp_free(error);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_fetch_v2(client, NULL, NULL, NULL, NULL));
    exp_free(client);
}

static void a_timeout_says_where_it_struck(void) {
    exp_config *config = config_of(silent);
    OK(exp_config_set_fetch_timeout_millis(config, 50));
    exp_client *client = client_with(config);
    exp_error *error = fail(EXP_ERR_TIMEOUT, client, NULL);
    CHECK(exp_error_phase(error) == EXP_PHASE_FIRST_BYTE);
    CHECK(exp_error_phase_micros(error, EXP_PHASE_FIRST_BYTE) >= 40000);
    CHECK(exp_error_is_retryable(error) == 1 && exp_error_http_status(error) == 0);
    exp_free(error);
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_deadline_millis(options, 0));
    exp_free(fail(EXP_ERR_TIMEOUT, client, options));
    exp_free(options);
    exp_free(client);
}

/* A thread inside a fetch. */
struct job {
    exp_client *client;
    const exp_fetch_options *options;
    exp_status status;
    exp_error *error;
    pthread_t thread;
};

static void *run(void *of) {
    struct job *job = of;
    exp_variants *variants = GARBAGE;
    job->status = exp_fetch_v2(job->client, NULL, job->options, &variants, &job->error);
    exp_free(variants);
    return NULL;
}

static void start(struct job *job, exp_client *client, const exp_fetch_options *options) {
    job->client = client;
    job->options = options;
    job->error = GARBAGE;
    CHECK(pthread_create(&job->thread, NULL, run, job) == 0);
    sleep_millis(100); /* let it enter */
}

static void end(struct job *job, exp_status expected) {
    pthread_join(job->thread, NULL);
    CHECK_STATUS(expected, job->status);
    CHECK_STATUS(expected, exp_error_status(job->error));
    exp_free(job->error);
}

static void a_switch_ends_what_carries_it_also_when_freed(void) {
    exp_client *client = client_of(silent);
    exp_cancel *cancel = exp_cancel_new();
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_cancel(options, cancel));
    struct job job;
    start(&job, client, options);
    uint64_t before = now_millis();
    exp_cancel_fire(cancel);
    exp_free(cancel);
    end(&job, EXP_ERR_CANCELED);
    CHECK(now_millis() - before < 5000);
    exp_free(fail(EXP_ERR_CANCELED, client, options)); /* stays fired */
    OK(exp_fetch_options_set_cancel(options, NULL));
    OK(exp_fetch_options_set_deadline_millis(options, 20));
    exp_free(fail(EXP_ERR_TIMEOUT, client, options));
    exp_free(options);
    exp_free(client);
}

struct hook {
    int asked, yes_after;
    pthread_t thread;
    exp_client *client;
    exp_fetch_options *options;
    exp_status closed;
};

static int32_t EXP_CALL on_interrupt(void *user_data) {
    struct hook *hook = user_data;
    CHECK(pthread_equal(hook->thread, pthread_self()));
    return ++hook->asked >= hook->yes_after;
}

static void a_hook_is_asked_on_the_calling_thread_and_ends_the_fetch(void) {
    exp_client *client = client_of(silent);
    struct hook hook = {0, 3, pthread_self(), client, NULL, EXP_OK};
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_interrupt(options, on_interrupt, &hook));
    exp_free(fail(EXP_ERR_CANCELED, client, options));
    CHECK(hook.asked == 3);
    OK(exp_fetch_options_set_interrupt(options, NULL, NULL));
    OK(exp_fetch_options_set_deadline_millis(options, 120));
    exp_free(fail(EXP_ERR_TIMEOUT, client, options));
    CHECK(hook.asked == 3);
    exp_free(options);
    exp_free(client);
}

static int32_t EXP_CALL closes_and_frees(void *user_data) {
    struct hook *hook = user_data;
    if (hook->asked++ == 0) {
        hook->closed = exp_client_close(hook->client, EXP_NO_LIMIT);
        exp_free(hook->client);
        OK(exp_fetch_options_set_deadline_millis(hook->options, 7)); /* not this fetch's any more */
        exp_free(hook->options);
    }
    return hook->asked > 2;
}

static void a_callback_may_close_and_free_what_it_is_called_from(void) {
    exp_client *client = client_of(silent);
    exp_fetch_options *options = exp_fetch_options_new();
    struct hook hook = {0, 0, pthread_self(), client, options, EXP_OK};
    OK(exp_fetch_options_set_interrupt(options, closes_and_frees, &hook));
    exp_free(fail(EXP_ERR_CANCELED, client, options));
    CHECK_STATUS(EXP_ERR_TIMEOUT, hook.closed);
    CHECK(hook.asked == 3);
}

static void close_cuts_what_runs_too_long_and_can_be_called_again(void) {
    exp_client *client = client_of(silent);
    struct job job;
    start(&job, client, NULL);
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(client, 20));
    OK(exp_client_close(client, EXP_NO_LIMIT));
    end(&job, EXP_ERR_CLOSED);
    exp_free(client);
}

static void a_client_may_be_freed_under_a_running_fetch(void) {
    exp_config *config = config_of(silent);
    OK(exp_config_set_fetch_timeout_millis(config, 500));
    exp_client *client = client_with(config);
    struct job job;
    start(&job, client, NULL);
    uint64_t before = now_millis();
    exp_free(client);
    CHECK(now_millis() - before < 200); /* does not wait */
    end(&job, EXP_ERR_TIMEOUT);
}

struct log {
    pthread_mutex_t lock;
    int lines, finalized;
    char last[512];
};

static void EXP_CALL on_log(void *user_data, exp_log_level level, const char *message,
                            size_t length) {
    struct log *log = user_data;
    pthread_mutex_lock(&log->lock);
    CHECK(level >= EXP_LOG_ERROR && level <= EXP_LOG_DEBUG);
    CHECK(strlen(message) == length && !strstr(message, "secret") && log->finalized == 0);
    log->lines++;
    snprintf(log->last, sizeof log->last, "%s", message);
    pthread_mutex_unlock(&log->lock);
}

static void EXP_CALL on_final(void *user_data) { ((struct log *)user_data)->finalized++; }

static void a_freed_variant_is_logged_while_its_client_lives_and_the_data_goes_with_that(void) {
    struct log log = {PTHREAD_MUTEX_INITIALIZER, 0, 0, ""};
    exp_config *config = config_of(service);
    OK(exp_config_set_log_callback(config, on_log, &log, on_final, EXP_LOG_DEBUG));
    exp_client *client = client_with(config);
    CHECK(log.finalized == 0);
    exp_variants *variants = fetch(client, NULL, NULL);
    CHECK(log.lines > 0);
    int lines = log.lines;
    exp_free((void *)exp_variants_at(variants, 0));
    CHECK(log.lines == lines + 1);
    CHECK_THAT(strstr(log.last, "exp_free was called with an exp_variant"), log.last);
    exp_free(client);
    CHECK(log.finalized == 1);
    lines = log.lines;
    exp_free((void *)exp_variants_at(variants, 0)); /* nobody to tell any more */
    CHECK(log.lines == lines && exp_variants_count(variants) == 4);
    exp_free(variants);
    CHECK(log.finalized == 1);
}

static void a_running_fetch_keeps_the_log_callback(void) {
    struct log log = {PTHREAD_MUTEX_INITIALIZER, 0, 0, ""};
    exp_config *config = config_of(silent);
    OK(exp_config_set_fetch_timeout_millis(config, 400));
    OK(exp_config_set_log_callback(config, on_log, &log, on_final, EXP_LOG_WARN));
    exp_client *client = client_with(config);
    struct job job;
    start(&job, client, NULL);
    exp_free(client);
    CHECK(log.finalized == 0);
    end(&job, EXP_ERR_TIMEOUT);
    CHECK(log.finalized == 1 && log.lines > 0);
}

/* Many threads share a client, a user, options and a set. */
struct shared {
    exp_client *client;
    const exp_user *user;
    const exp_variants *variants;
};

static void *use(void *of) {
    const struct shared *shared = of;
    for (int i = 0; i < 20; i++) {
        exp_variants *variants = GARBAGE;
        if (exp_fetch_v2(shared->client, shared->user, NULL, &variants, NULL) != EXP_OK ||
            exp_variants_count(variants) != 4) {
            return of;
        }
        exp_variants *kept = exp_variants_retain(shared->variants);
        size_t length = strlen(exp_variants_json(kept));
        exp_free(kept);
        exp_free(variants);
        if (length != exp_variants_json_length(shared->variants)) {
            return of;
        }
    }
    return NULL;
}

static void objects_are_shared_between_threads(void) {
    pthread_t threads[8];
    exp_user *user = exp_user_new();
    OK(exp_user_set_user_id(user, "shared"));
    exp_client *client = client_of(service);
    exp_variants *variants = fetch(client, user, NULL);
    struct shared shared = {client, user, variants};
    for (int i = 0; i < 8; i++) {
        CHECK(pthread_create(&threads[i], NULL, use, &shared) == 0);
    }
    for (int i = 0; i < 8; i++) {
        void *failed = GARBAGE;
        pthread_join(threads[i], &failed);
        CHECK(failed == NULL);
    }
    exp_free(variants);
    exp_free(user);
    exp_free(client);
}

static void parent_and_child_of_a_fork_go_on_with_their_objects(void) {
    exp_client *client = client_of(service);
    exp_user *user = exp_user_new();
    exp_variants *variants = fetch(client, user, NULL);
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int before = failures;
        OK(exp_user_set_user_id(user, "child"));
        exp_variants *own = fetch(client, user, NULL);
        CHECK(exp_variants_count(own) == 4 && exp_variants_connection_reused(own) == 0);
        CHECK(exp_variants_count(variants) == 4);
        OK(exp_client_close(client, 1000));
        exp_free(own);
        exp_free(variants);
        exp_free(user);
        exp_free(client);
        fflush(stdout);
        /* Not by the exit status: what the child leaks on purpose is an error to valgrind. */
        _exit(write(ends[1], failures == before ? "y" : "n", 1) != 1);
    }
    close(ends[1]);
    char answer = 0;
    CHECK(read(ends[0], &answer, 1) == 1 && answer == 'y');
    close(ends[0]);
    waitpid(child, NULL, 0);
    exp_variants *after = fetch(client, user, NULL);
    CHECK(exp_variants_connection_reused(after) == 1);
    exp_free(after);
    exp_free(variants);
    exp_free(user);
    exp_free(client);
}

int main(int count, char **arguments) {
    if (count != 6) {
        return 2;
    }
    service = arguments[1];
    silent = arguments[2];
    busy = arguments[3];
    missing = arguments[4];
    odd = arguments[5];
    variants_outlive_everything_they_came_from();
    texts_may_hold_nuls_and_fields_may_be_absent();
    a_second_fetch_uses_the_connection_again();
    options_restrict_the_flags();
    errors_tell_what_is_known_and_outlive_their_client();
    a_timeout_says_where_it_struck();
    a_switch_ends_what_carries_it_also_when_freed();
    a_hook_is_asked_on_the_calling_thread_and_ends_the_fetch();
    a_callback_may_close_and_free_what_it_is_called_from();
    close_cuts_what_runs_too_long_and_can_be_called_again();
    a_client_may_be_freed_under_a_running_fetch();
    a_freed_variant_is_logged_while_its_client_lives_and_the_data_goes_with_that();
    a_running_fetch_keeps_the_log_callback();
    objects_are_shared_between_threads();
    parent_and_child_of_a_fork_go_on_with_their_objects();
    return report("lifecycle");
}
