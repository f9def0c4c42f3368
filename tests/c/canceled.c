/* Threads that are canceled (pthread_cancel) while they are inside a call: it goes on, returns, and
 * the cancellation acts at the host's next cancellation point. Arguments: URLs of a service; of one
 * that never answers; of one that always answers 503. */
#include "async.h"

static const char *service, *silent, *busy;

typedef struct {
    void (*call)(void);
    int before;
    volatile int begun, canceled, returned;
} victim;

/* A thread that is to be canceled while it is in a call, and whatever it does there. */
static void *run(void *argument) {
    victim *it = argument;
    int state = -1;
    it->begun = 1;
    while (it->before && !it->canceled) {
    }
    it->call();
    it->returned = 1;
    while (!it->canceled) {
    }
    /* It was on before the call, so it is on again. */
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    CHECK(state == PTHREAD_CANCEL_ENABLE);
    pthread_testcancel();
    CHECK_THAT(0, "the cancellation was lost");
    return NULL;
}

/* Cancels it after so many milliseconds, or before it begins. */
enum { BEFORE = -1 };

static void is_contained(void (*call)(void), int after) {
    victim it = {.call = call, .before = after == BEFORE};
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, run, &it);
    while (!it.begun) {
        nap();
    }
    for (int i = 0; i < after; i++) {
        nap();
    }
    CHECK(pthread_cancel(thread) == 0);
    it.canceled = 1;
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(it.returned && result == PTHREAD_CANCELED);
}

static exp_client *client;
static exp_completions *completions;
static exp_pending *pending;
static exp_fetch_options *options;

static void fetch(void) {
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    double began = now();
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_fetch_v2(client, NULL, options, &variants, &error));
    CHECK_BY(200, began);
    CHECK(exp_error_message(error) != NULL);
    exp_free(error);
}

static exp_client *bounded(const char *url) {
    exp_config *config = config_of(url, 1);
    OK(exp_config_set_fetch_deadline_millis(config, 200));
    return client_with(config);
}

static void a_fetch_comes_back_with_its_status(void) {
    client = bounded(silent);
    is_contained(fetch, 50);
    is_contained(fetch, BEFORE);
    OK(exp_client_close(client, SOON));
    exp_free(client);
}

static void wait_for_completions(void) {
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_completions_wait(completions, 100));
}

static void wait_for_pending(void) {
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_pending_wait(pending, 100));
}

static void close_client(void) { CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(client, 100)); }

static void waits_come_back_with_their_status(void) {
    client = client_of(silent, 1);
    completions = exp_completions_new();
    OK(exp_fetch_v2_submit(client, NULL, NULL, completions, NULL, &pending, NULL));
    is_contained(wait_for_completions, 30);
    is_contained(wait_for_pending, 30);
    is_contained(close_client, 30);
    OK(exp_client_close(client, SOON));
    exp_free(pending);
    exp_free(completions);
    exp_free(client);
}

/* Each closes descriptors or opens them, and close(2) is a cancellation point. */
static void live_and_die(void) {
    exp_completions *own = exp_completions_new();
    CHECK(own != NULL);
    exp_client *fresh = client_of(service, 1);
    exp_variants *variants = NULL;
    OK(exp_fetch_v2(fresh, NULL, NULL, &variants, NULL));
    exp_free(variants);
    OK(exp_fetch_v2_submit(fresh, NULL, NULL, own, NULL, NULL, NULL));
    OK(exp_completions_wait(own, SOON));
    exp_free(exp_completions_next(own));
    exp_free(fresh);
    exp_free(own);
}

static void whole_lives_come_to_their_end(void) {
    is_contained(live_and_die, BEFORE);
    is_contained(live_and_die, 1);
}

static int hooks;

static int32_t EXP_CALL is_canceled_in_here(void *user_data) {
    (void)user_data;
    hooks++;
    pthread_testcancel();
    /* What a callback does to the state ends with it. */
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    return 0;
}

static void callbacks_run_to_their_end(void) {
    client = bounded(silent);
    options = exp_fetch_options_new();
    OK(exp_fetch_options_set_interrupt(options, is_canceled_in_here, NULL));
    is_contained(fetch, 20);
    CHECK(hooks > 1);
    exp_free(options);
    options = NULL;
    exp_free(client);
}

/* One holds the connection, and the other waits for it. */
static void *hold(void *switched) {
    exp_fetch_options *own = exp_fetch_options_new();
    exp_variants *variants = NULL;
    OK(exp_fetch_options_set_cancel(own, switched));
    CHECK_STATUS(EXP_ERR_CANCELED, exp_fetch_v2(client, NULL, own, &variants, NULL));
    exp_free(own);
    return NULL;
}

static void in_line(void) {
    OK(exp_fetch_options_set_deadline_millis(options, 200));
    fetch();
}

static void a_thread_in_line_comes_back(void) {
    client = client_of(silent, 1);
    options = exp_fetch_options_new();
    exp_cancel *cancel = exp_cancel_new();
    pthread_t holder;
    pthread_create(&holder, NULL, hold, cancel);
    until_metric(client, "experiment_connections_leased", 1);
    is_contained(in_line, 50);
    exp_cancel_fire(cancel);
    pthread_join(holder, NULL);
    exp_free(cancel);
    exp_free(options);
    options = NULL;
    exp_free(client);
}

static void fail_between_attempts(void) {
    exp_variants *variants = NULL;
    CHECK_STATUS(EXP_ERR_HTTP_STATUS, exp_fetch_v2(client, NULL, NULL, &variants, NULL));
}

static void a_thread_between_two_attempts_comes_back(void) {
    exp_config *config = config_of(busy, 1);
    OK(exp_config_set_fetch_retries(config, 1));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, 100));
    client = client_with(config);
    is_contained(fail_between_attempts, 50);
    exp_free(client);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: canceled SERVICE SILENT BUSY\n");
        return 2;
    }
    service = argv[1], silent = argv[2], busy = argv[3];
    alarm(120);
    a_fetch_comes_back_with_its_status();
    waits_come_back_with_their_status();
    whole_lives_come_to_their_end();
    callbacks_run_to_their_end();
    a_thread_in_line_comes_back();
    a_thread_between_two_attempts_comes_back();
    return report("canceled");
}
