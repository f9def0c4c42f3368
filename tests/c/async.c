/* Asynchronous fetches with callbacks.
 * Arguments: URLs of a service; of one that never answers; of one that answers 503 always; of one
 * that takes 200 ms; of one to which no connection is ever made; of one that never shakes hands; of
 * one whose body drips; of one that refuses every connection. */
#include "async.h"

#include <malloc.h>

static const char *service, *silent, *busy, *slow, *hole, *mute, *drip, *refused;

/* Every fetch is told once, with its own answer, on another thread, when *pending_out is there. */
static void each_is_told_once_with_its_own_answer(void) {
    enum { ROUNDS = 40, AT_ONCE = 50 };
    static told all[AT_ONCE];
    exp_client *client = client_of(service, 4);
    CHECK(our_threads() == 0);
    for (int round = 0; round < (valgrind() ? 4 : ROUNDS); round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            start(&all[i], client, NULL);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            good(&all[i]);
        }
    }
    CHECK(our_threads() > 1 && our_threads() <= 4 + 1);
    CHECK(metric(client, "experiment_fetches_pending") == 0);
    OK(exp_client_close(client, SOON));
    CHECK(our_threads() == 0);
    CHECK(metric(client, "experiment_connections_leased") == 0);
    exp_free(client);
}

static void never(void *told) {
    (void)told;
    CHECK_THAT(0, "a callback of a fetch that was refused");
}

static void what_is_refused_is_never_told(void) {
    told it = {.then = never};
    exp_pending *pending = (exp_pending *)&it;
    exp_error *error = NULL;
    exp_client *client = client_of(service, 1);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                 exp_fetch_v2_async(NULL, NULL, NULL, tell, &it, &pending, &error));
    CHECK_MESSAGE("client is NULL", error);
    CHECK(pending == NULL);
    exp_free(error);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                 exp_fetch_v2_async(client, NULL, NULL, NULL, &it, &pending, &error));
    CHECK_MESSAGE("callback is NULL", error);
    exp_free(error);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                 exp_fetch_v2_submit(client, NULL, NULL, NULL, &it, &pending, &error));
    CHECK_MESSAGE("completions is NULL", error);
    exp_free(error);
    exp_completions *wrong = (exp_completions *)client;
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                 exp_fetch_v2_submit(client, NULL, NULL, wrong, &it, &pending, NULL));
    CHECK(our_threads() == 0);
    OK(exp_client_close(client, 0));
    pending = (exp_pending *)&it;
    CHECK_STATUS(EXP_ERR_CLOSED,
                 exp_fetch_v2_async(client, NULL, NULL, tell, &it, &pending, &error));
    CHECK(pending == NULL && our_threads() == 0);
    CHECK_STATUS(EXP_ERR_CLOSED, exp_error_status(error));
    exp_free(error);
    CHECK_STATUS(EXP_ERR_CLOSED, exp_fetch_v2_async(client, NULL, NULL, tell, &it, NULL, NULL));
    OK(exp_pending_cancel(NULL));
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_pending_wait(NULL, 0));
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_pending_wait((exp_pending *)client, 0));
    CHECK(exp_pending_user_data(NULL) == NULL);
    exp_free(client);
}

/* The same failure of a synchronous and of an asynchronous fetch. */
static void fails_alike(exp_client *client, exp_status status, const char *message) {
    told it = {0};
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    CHECK_STATUS(status, exp_fetch_v2(client, NULL, NULL, &variants, &error));
    start(&it, client, NULL);
    await(&it);
    CHECK_STATUS(status, it.status);
    CHECK_STATUS(status, exp_error_status(it.error));
    CHECK_MESSAGE(message, error);
    CHECK_MESSAGE(message, it.error);
    CHECK(exp_error_http_status(it.error) == exp_error_http_status(error));
    CHECK(exp_error_attempts(it.error) == exp_error_attempts(error));
    CHECK(exp_error_is_retryable(it.error) == exp_error_is_retryable(error));
    CHECK(exp_error_phase(it.error) == exp_error_phase(error));
    CHECK(exp_variants_count(it.variants) == 0);
    exp_free(error);
    clear(&it);
    exp_client_close(client, SOON);
    exp_free(client);
}

static void errors_are_those_of_a_synchronous_fetch(void) {
    exp_config *config = config_of(busy, 1);
    OK(exp_config_set_fetch_retries(config, 2));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, 1));
    fails_alike(client_with(config), EXP_ERR_HTTP_STATUS, "503");
    config = config_of(silent, 1);
    OK(exp_config_set_fetch_timeout_millis(config, 60));
    fails_alike(client_with(config), EXP_ERR_TIMEOUT, "60 ms");
    fails_alike(client_of(refused, 1), EXP_ERR_NETWORK, "refused");
    config = config_of(hole, 1);
    OK(exp_config_set_fetch_timeout_millis(config, 60));
    fails_alike(client_with(config), EXP_ERR_TIMEOUT, "60 ms");

    /* All connections are out. */
    told holder = {0};
    config = config_of(silent, 1);
    OK(exp_config_set_fetch_pool_acquire_timeout_millis(config, 60));
    exp_client *client = client_with(config);
    start(&holder, client, NULL);
    until_metric(client, "experiment_connections_leased", 1);
    told it = {0};
    exp_error *error = NULL;
    exp_variants *variants = NULL;
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_fetch_v2(client, NULL, NULL, &variants, &error));
    start(&it, client, NULL);
    await(&it);
    const char *words = "no connection became free within 60 ms "
                        "(fetch_pool_acquire_timeout_millis): pool of 1, 1 busy, 1 waiting, the "
                        "longest lease is ";
    CHECK_MESSAGE(words, error);
    CHECK_MESSAGE(words, it.error);
    CHECK(exp_error_phase(it.error) == EXP_PHASE_POOL && exp_error_is_retryable(it.error));
    CHECK(exp_error_attempts(it.error) == 1 && exp_variants_count(it.variants) == 0);
    exp_free(error);
    clear(&it);
    OK(exp_pending_cancel(holder.pending));
    failed(&holder, EXP_ERR_CANCELED);
    exp_free(client);
}

static void everything_may_be_called(void *user_data) {
    told *it = user_data;
    exp_variants *variants = NULL;
    exp_text *text = NULL;
    OK(exp_pending_wait(it->pending, EXP_NO_LIMIT));
    OK(exp_pending_cancel(it->pending));
    CHECK(exp_pending_user_data(it->pending) == it);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_pending_take(it->pending, &variants, NULL));
    OK(exp_fetch_v2(it->client, NULL, NULL, &variants, NULL));
    exp_free(variants);
    OK(exp_client_metrics(it->client, EXP_METRICS_JSON, &text, NULL));
    exp_free(text);
    static told next;
    memset(&next, 0, sizeof next);
    start(&next, it->client, NULL);
    await(&next);
    CHECK_STATUS(EXP_OK, next.status);
    clear(&next);
    /* Does not wait for itself. */
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(it->client, EXP_NO_LIMIT));
    CHECK_STATUS(EXP_ERR_CLOSED, exp_fetch_v2(it->client, NULL, NULL, &variants, NULL));
    exp_free(it->client);
    exp_free(it->pending);
    it->pending = NULL;
}

static void a_callback_may_call_everything(void) {
    told it = {.then = everything_may_be_called};
    start(&it, client_of(service, 2), NULL);
    good(&it);
    until_no_threads();
}

static void submits_the_next(void *user_data) {
    told *it = user_data, *next = it + 1;
    start(next, it->client, NULL);
}

static void a_full_queue_refuses_at_once_and_who_is_told_is_out_of_it(void) {
    static told all[4];
    exp_config *config = config_of(silent, 1);
    OK(exp_config_set_max_pending_fetches(config, 3));
    exp_client *client = client_with(config);
    for (int i = 0; i < 3; i++) {
        start(&all[i], client, NULL);
    }
    exp_pending *pending = NULL;
    exp_error *error = NULL;
    double began = now();
    CHECK_STATUS(EXP_ERR_QUEUE_FULL,
                 exp_fetch_v2_async(client, NULL, NULL, tell, &all[3], &pending, &error));
    CHECK_BY(0, began);
    CHECK_MESSAGE("max_pending_fetches", error);
    CHECK(!exp_error_is_retryable(error) && pending == NULL);
    exp_free(error);
    CHECK(metric(client, "experiment_fetches_pending") == 3);
    for (int i = 0; i < 3; i++) {
        OK(exp_pending_cancel(all[i].pending));
        failed(&all[i], EXP_ERR_CANCELED);
    }
    exp_free(client);

    config = config_of(service, 1);
    OK(exp_config_set_max_pending_fetches(config, 1));
    client = client_with(config);
    all[0].then = all[1].then = submits_the_next;
    start(&all[0], client, NULL);
    for (int i = 0; i < 3; i++) {
        good(&all[i]);
    }
    for (int i = 0; i < 100; i++) {
        start(&all[0], client, NULL);
        OK(exp_pending_wait(all[0].pending, SOON));
        good(&all[0]);
    }
    exp_free(client);
}

/* All workers are busy, and yet those in line are told in time. */
static void a_wait_that_is_over_is_told_in_time_while_all_workers_are_busy(void) {
    enum { WAITING = 200 };
    static told holders[2], waiting[WAITING];
    double due[WAITING], worst = 0;
    exp_config *config = config_of(silent, 2);
    OK(exp_config_set_fetch_pool_acquire_timeout_millis(config, 300));
    exp_client *client = client_with(config);
    for (int i = 0; i < 2; i++) {
        start(&holders[i], client, NULL);
    }
    until_metric(client, "experiment_connections_leased", 2);
    for (int i = 0; i < WAITING; i++) {
        uint64_t millis = i % 2 ? 300 : 50 + (uint64_t)(i * 7 % 200);
        exp_fetch_options *options = exp_fetch_options_new();
        if (i % 2 == 0) {
            OK(exp_fetch_options_set_deadline_millis(options, millis));
        }
        due[i] = now() + (double)millis;
        start(&waiting[i], client, options);
        exp_free(options);
    }
    for (int i = 0; i < WAITING; i++) {
        await(&waiting[i]);
        CHECK_STATUS(EXP_ERR_TIMEOUT, waiting[i].status);
        CHECK(exp_error_phase(waiting[i].error) == EXP_PHASE_POOL);
        double late = waiting[i].at - due[i];
        /* A millisecond for the two clocks that are read. */
        CHECK(late >= -1);
        worst = late > worst ? late : worst;
        clear(&waiting[i]);
    }
    char text[60];
    snprintf(text, sizeof text, "the latest of %d was %.1f ms late", WAITING, worst);
    CHECK_THAT(worst <= PROMISE + (double)slack(), text);
    printf("%s\n", text);
    OK(exp_pending_cancel(holders[0].pending));
    OK(exp_pending_cancel(holders[1].pending));
    failed(&holders[0], EXP_ERR_CANCELED);
    failed(&holders[1], EXP_ERR_CANCELED);
    exp_free(client);
}

static int open_now;

static void set(int *flag, int value) { __sync_val_compare_and_swap(flag, !value, value); }

static void blocks(void *user_data) {
    (void)user_data;
    while (!__sync_fetch_and_add(&open_now, 0)) {
        nap();
    }
}

/* The thread that keeps the time sits in a callback, and a pause ends all the same. */
static void a_callback_that_blocks_delays_nobodys_retry(void) {
    told blocker = {.then = blocks}, it = {0};
    set(&open_now, 0);
    exp_config *config = config_of(busy, 2);
    OK(exp_config_set_fetch_retries(config, 1));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, 200));
    exp_client *client = client_with(config);
    start(&it, client, NULL);
    start(&blocker, client, NULL);
    /* Canceled in its pause: by the timer's hand. */
    until_metric(client, "experiment_attempts_total", 2);
    until_metric(client, "experiment_connections_leased", 0);
    OK(exp_pending_cancel(blocker.pending));
    await(&it);
    CHECK_STATUS(EXP_ERR_HTTP_STATUS, it.status);
    CHECK(exp_error_attempts(it.error) == 2);
    CHECK(blocker.times == 0);
    set(&open_now, 1);
    await(&blocker);
    clear(&blocker);
    clear(&it);
    exp_free(client);
}

/* One that pauses holds no connection and no worker. */
static void a_pause_holds_nothing(void) {
    told it = {0};
    exp_config *config = config_of(busy, 1);
    OK(exp_config_set_fetch_retries(config, 1));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, 5000));
    exp_client *client = client_with(config);
    start(&it, client, NULL);
    until_metric(client, "experiment_fetches_waiting", 0);
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_deadline_millis(options, 3000));
    told other = {0};
    double began = now();
    start(&other, client, options);
    failed(&other, EXP_ERR_HTTP_STATUS);
    exp_variants *variants = NULL;
    CHECK_STATUS(EXP_ERR_HTTP_STATUS, exp_fetch_v2(client, NULL, options, &variants, NULL));
    CHECK_BY(0, began);
    OK(exp_pending_cancel(it.pending));
    failed(&it, EXP_ERR_CANCELED);
    exp_free(options);
    exp_free(client);
}

static void canceled_at(const char *url, const char *gauge, int by_switch) {
    told it = {0};
    exp_config *config = config_of(url, 1);
    OK(exp_config_set_fetch_retries(config, 1));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, 9000));
    exp_client *client = client_with(config);
    exp_cancel *cancel = exp_cancel_new();
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_cancel(options, cancel));
    start(&it, client, options);
    exp_free(options);
    until_metric(client, gauge, 1);
    double began = now();
    if (by_switch) {
        exp_cancel_fire(cancel);
    } else {
        OK(exp_pending_cancel(it.pending));
    }
    await(&it);
    CHECK_BY(0, began);
    failed(&it, EXP_ERR_CANCELED);
    exp_free(cancel);
    CHECK(metric(client, "experiment_connections_leased") == 0);
    CHECK(metric(client, "experiment_fetches_pending") == 0);
    OK(exp_client_close(client, SOON));
    exp_free(client);
}

static void cancels_itself(void *user_data) {
    told *it = user_data;
    OK(exp_pending_cancel(it->pending));
}

static void a_cancel_ends_it_in_whatever_it_does(void) {
    for (int by_switch = 0; by_switch < 2; by_switch++) {
        const char *leased = "experiment_connections_leased";
        canceled_at(hole, leased, by_switch);
        canceled_at(mute, leased, by_switch);
        canceled_at(silent, leased, by_switch);
        canceled_at(drip, leased, by_switch);
        canceled_at(busy, "experiment_connections_idle", by_switch);
    }
}

static void a_cancel_that_comes_too_late_changes_nothing(void) {
    told it = {.then = cancels_itself};
    exp_client *client = client_of(service, 1);
    start(&it, client, NULL);
    await(&it);
    OK(exp_pending_cancel(it.pending));
    CHECK_STATUS(EXP_OK, it.status);
    clear(&it);
    /* A switch that was fired before. */
    exp_cancel *cancel = exp_cancel_new();
    exp_cancel_fire(cancel);
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_cancel(options, cancel));
    start(&it, client, options);
    failed(&it, EXP_ERR_CANCELED);
    exp_free(options);
    exp_free(cancel);
    start(&it, client, NULL);
    good(&it);
    exp_free(client);
}

/* In line, at random moments: each ends once, as one or the other, and the next is clean. */
static void cancels_at_any_moment(void) {
    static told all[400];
    exp_client *client = client_of(service, 3);
    exp_cancel *cancel = exp_cancel_new();
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_cancel(options, cancel));
    for (int i = 0; i < 400; i++) {
        start(&all[i], client, i % 3 ? options : NULL);
        if (i % 2) {
            OK(exp_pending_cancel(all[i / 2].pending));
        }
    }
    exp_cancel_fire(cancel);
    for (int i = 0; i < 400; i++) {
        await(&all[i]);
        CHECK(all[i].status == EXP_OK || all[i].status == EXP_ERR_CANCELED);
        if (all[i].status == EXP_OK) {
            check_variants(all[i].variants, all[i].user);
        }
        clear(&all[i]);
    }
    told it = {0};
    start(&it, client, NULL);
    good(&it);
    exp_free(options);
    exp_free(cancel);
    exp_free(client);
}

/* One runs and the others are in line. */
static void start_many(told *all, int count, exp_client *client) {
    for (int i = 0; i < count; i++) {
        start(&all[i], client, NULL);
    }
    until_metric(client, "experiment_connections_leased", 1);
}

static void *closes(void *client) {
    OK(exp_client_close(client, SOON));
    return NULL;
}

static void closes_inside(void *user_data) {
    told *it = user_data;
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(it->client, EXP_NO_LIMIT));
}

static void closing_tells_all_once(void) {
    static told all[20];
    pthread_t threads[2];

    /* Two at once, on other threads: what runs is waited for. */
    exp_client *client = client_of(slow, 1);
    start_many(all, 20, client);
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, closes, client);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(our_threads() == 0);
    good(&all[0]);
    for (int i = 1; i < 20; i++) {
        CHECK(all[i].times == 1);
        failed(&all[i], EXP_ERR_CLOSED);
    }
    exp_free(client);

    /* What runs too long is cut off. */
    client = client_of(silent, 1);
    start_many(all, 20, client);
    double began = now();
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(client, 50));
    OK(exp_client_close(client, SOON));
    CHECK_BY(50, began);
    CHECK(our_threads() == 0);
    for (int i = 0; i < 20; i++) {
        failed(&all[i], EXP_ERR_CLOSED);
    }
    exp_free(client);

    /* By a callback, for the others. */
    client = client_of(slow, 1);
    all[0].then = closes_inside;
    start_many(all, 20, client);
    good(&all[0]);
    for (int i = 1; i < 20; i++) {
        failed(&all[i], EXP_ERR_CLOSED);
    }
    OK(exp_client_close(client, SOON));
    CHECK(our_threads() == 0);
    exp_free(client);

    /* A callback that still runs. */
    client = client_of(service, 1);
    set(&open_now, 0);
    all[0].then = blocks;
    start(&all[0], client, NULL);
    until_metric(client, "experiment_fetches_pending", 0);
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(client, 20));
    set(&open_now, 1);
    OK(exp_client_close(client, SOON));
    CHECK(all[0].times == 1);
    good(&all[0]);
    exp_free(client);
}

static pthread_key_t slow_to_end;
static int may_end;

static void end_late(void *value) {
    (void)value;
    while (!__atomic_load_n(&may_end, __ATOMIC_ACQUIRE)) {
        nap();
    }
}

static void keep_the_thread(void *argument) {
    (void)argument;
    CHECK(pthread_setspecific(slow_to_end, &slow_to_end) == 0);
}

static void *close_soon(void *client) {
    double began = now();
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(client, 50));
    CHECK_BY(150, began);
    return NULL;
}

/* A thread of the library is not gone before what the host has left on it is. */
static void closing_waits_for_the_threads_no_longer_than_it_is_told(void) {
    CHECK(pthread_key_create(&slow_to_end, end_late) == 0);
    exp_client *client = client_of(service, 1);
    told it = {.then = keep_the_thread};
    start(&it, client, NULL);
    good(&it);
    pthread_t second;
    pthread_create(&second, NULL, close_soon, client);
    close_soon(client);
    pthread_join(second, NULL);
    __atomic_store_n(&may_end, 1, __ATOMIC_RELEASE);
    OK(exp_client_close(client, SOON));
    CHECK(our_threads() == 0);
    exp_free(client);
    pthread_key_delete(slow_to_end);
}

static void freeing_the_client_never_blocks_and_all_are_told(void) {
    static told all[20];
    exp_client *client = client_of(slow, 1);
    start_many(all, 20, client);
    double began = now();
    exp_free(client);
    CHECK_BY(0, began);
    good(&all[0]);
    for (int i = 1; i < 20; i++) {
        failed(&all[i], EXP_ERR_CLOSED);
    }
    until_no_threads();

    /* Freeing a pending fetch leaves it alone; it is told without one too. */
    client = client_of(slow, 1);
    start(&all[0], client, NULL);
    OK(exp_fetch_v2_async(client, NULL, NULL, tell, &all[1], NULL, NULL));
    all[1].pending = (exp_pending *)client; /* for the look at it */
    exp_pending *pending = all[0].pending;
    exp_free(pending);
    await(&all[0]);
    await(&all[1]);
    CHECK_STATUS(EXP_OK, all[0].status);
    CHECK_STATUS(EXP_OK, all[1].status);
    all[0].pending = all[1].pending = NULL;
    clear(&all[0]);
    clear(&all[1]);
    exp_free(client);
    until_no_threads();
}

static void EXP_CALL count(void *user_data, exp_status status, const exp_variants *variants,
                           const exp_error *error) {
    (void)variants, (void)error;
    __sync_fetch_and_add((int *)user_data, status == EXP_ERR_CLOSED || status == EXP_OK);
}

/* Bytes that malloc has given out. */
static size_t allocated(void) {
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return (size_t)mallinfo().uordblks;
#endif
}

static void ten_thousand_in_line_are_cheap(void) {
    enum { COUNT = 10000 };
    static exp_pending *pending[COUNT];
    int told = 0, count_of = valgrind() ? 500 : COUNT;
    exp_config *config = config_of(silent, 1);
    OK(exp_config_set_max_pending_fetches(config, COUNT));
    exp_client *client = client_with(config);
    exp_user *user = exp_user_new();
    OK(exp_user_set_user_id(user, "user"));
    OK(exp_fetch_v2_async(client, user, NULL, count, &told, &pending[0], NULL));
    until_metric(client, "experiment_connections_leased", 1);
    size_t before = allocated();
    for (int i = 1; i < count_of; i++) {
        OK(exp_fetch_v2_async(client, user, NULL, count, &told, &pending[i], NULL));
    }
    size_t each = (allocated() - before) / (size_t)(count_of - 1);
    printf("a fetch in line takes %zu bytes\n", each);
    /* Valgrind has an allocator of its own, which counts nothing. */
    CHECK(each <= 2048 || valgrind());
    double began = now();
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_client_close(client, 0));
    OK(exp_client_close(client, SOON));
    printf("%d fetches were told of the close in %.1f ms\n", count_of, now() - began);
    CHECK(told == count_of);
    for (int i = 0; i < count_of; i++) {
        exp_free(pending[i]);
    }
    exp_free(user);
    exp_free(client);
}

int main(int argc, char **argv) {
    if (argc != 9) {
        fprintf(stderr, "usage: async SERVICE SILENT BUSY SLOW HOLE MUTE DRIP REFUSED\n");
        return 2;
    }
    service = argv[1], silent = argv[2], busy = argv[3], slow = argv[4], hole = argv[5];
    mute = argv[6], drip = argv[7], refused = argv[8];
    each_is_told_once_with_its_own_answer();
    what_is_refused_is_never_told();
    errors_are_those_of_a_synchronous_fetch();
    a_callback_may_call_everything();
    a_full_queue_refuses_at_once_and_who_is_told_is_out_of_it();
    a_wait_that_is_over_is_told_in_time_while_all_workers_are_busy();
    a_callback_that_blocks_delays_nobodys_retry();
    a_pause_holds_nothing();
    a_cancel_ends_it_in_whatever_it_does();
    a_cancel_that_comes_too_late_changes_nothing();
    cancels_at_any_moment();
    closing_tells_all_once();
    closing_waits_for_the_threads_no_longer_than_it_is_told();
    freeing_the_client_never_blocks_and_all_are_told();
    ten_thousand_in_line_are_cheap();
    return report("async");
}
