/* Switches that are fired in signal handlers, wherever those interrupt what runs.
 * Arguments: URLs of a service; of one that never answers; of one that always answers 503. */
#include "async.h"

#include <errno.h>
#include <signal.h>

static const char *service, *silent, *busy;

enum { THREADS = 4 };

/* What the handlers fire. */
static exp_cancel *volatile switches[THREADS];
static volatile int handlers_running, handled;

static void fire_all(int signal) {
    (void)signal;
    __sync_fetch_and_add(&handlers_running, 1);
    int interrupted = errno, before = errno = EXDEV;
    for (int i = 0; i < THREADS; i++) {
        exp_cancel_fire(switches[i]);
    }
    if (errno != before) {
        _exit(3);
    }
    errno = interrupted;
    __sync_fetch_and_add(&handled, 1);
    __sync_fetch_and_sub(&handlers_running, 1);
}

static void handle(int signal) {
    struct sigaction action = {.sa_handler = fire_all, .sa_flags = SA_RESTART};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

/* Puts another switch in place of one, which is freed once no handler can have it any more. */
static exp_cancel *replace(int i, exp_cancel *with) {
    exp_cancel *old = __sync_lock_test_and_set(&switches[i], with);
    __sync_synchronize();
    while (handlers_running) {
        nap();
    }
    exp_free(old);
    return with;
}

static exp_fetch_options *options_of(exp_cancel *cancel) {
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_cancel(options, cancel));
    return options;
}

/* A thread in a fetch that ends by its switch alone. */
typedef struct {
    exp_client *client;
    exp_fetch_options *options;
    pthread_t thread;
} fetcher;

static void *fetch(void *argument) {
    fetcher *it = argument;
    exp_variants *variants = NULL;
    CHECK_STATUS(EXP_ERR_CANCELED, exp_fetch_v2(it->client, NULL, it->options, &variants, NULL));
    CHECK(variants == NULL);
    return NULL;
}

/* One signal, to a thread that is inside a fetch: that ends, and so do all with the same switch. */
static void ends_fetches(exp_client *client, int times) {
    unsigned seed = 1;
    for (int time = 0; time < times; time++) {
        fetcher all[THREADS];
        exp_cancel *cancel = replace(0, exp_cancel_new());
        for (int i = 0; i < THREADS; i++) {
            all[i] = (fetcher){.client = client, .options = options_of(cancel)};
            pthread_create(&all[i].thread, NULL, fetch, &all[i]);
        }
        /* Anywhere between its first step and its last sleep. */
        struct timespec moment = {0, rand_r(&seed) % 1000000};
        nanosleep(&moment, NULL);
        double began = now();
        CHECK(pthread_kill(all[time % THREADS].thread, SIGUSR1) == 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(all[i].thread, NULL);
            exp_free(all[i].options);
        }
        CHECK_BY(0, began);
    }
    replace(0, NULL);
}

static int times(int without_valgrind) { return valgrind() ? 20 : without_valgrind; }

/* One fetches, the others stand in line. */
static void a_handler_ends_a_fetch_that_it_interrupts_and_those_in_line(void) {
    exp_client *client = client_of(silent, 1);
    ends_fetches(client, times(1500));
    OK(exp_client_close(client, SOON));
    exp_free(client);
}

static void a_handler_ends_the_wait_between_two_attempts(void) {
    exp_config *config = config_of(busy, THREADS);
    OK(exp_config_set_fetch_retries(config, 1));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, SOON));
    OK(exp_config_set_fetch_retry_backoff_max_millis(config, SOON));
    exp_client *client = client_with(config);
    ends_fetches(client, times(500));
    OK(exp_client_close(client, SOON));
    exp_free(client);
}

static volatile int over;
static exp_client *shared;

/* Fetches, each time with a switch that is new or was fired meanwhile. */
static void *keep_fetching(void *argument) {
    int i = (int)(intptr_t)argument;
    long *good = calloc(1, sizeof *good);
    while (!over) {
        exp_fetch_options *options = options_of(replace(i, exp_cancel_new()));
        exp_status status = EXP_OK;
        while (status == EXP_OK && !over) {
            exp_variants *variants = NULL;
            exp_error *error = NULL;
            status = exp_fetch_v2(shared, NULL, options, &variants, &error);
            CHECK_THAT(status == EXP_OK || status == EXP_ERR_CANCELED, exp_error_message(error));
            *good += status == EXP_OK;
            exp_free(variants);
            exp_free(error);
        }
        exp_free(options);
    }
    return good;
}

/* Signals to whichever thread: while it comes or goes, allocates, or fires itself. */
static void handlers_fire_at_any_moment(void) {
    pthread_t threads[THREADS];
    shared = client_of(service, 2);
    over = 0;
    long good = 0;
    int before = handled;
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, keep_fetching, (void *)(intptr_t)i);
    }
    unsigned seed = 2;
    double began = now();
    for (int i = 0; i < times(20000) && now() - began < SOON; i++) {
        pthread_kill(threads[i % THREADS], SIGUSR1);
        struct timespec moment = {0, rand_r(&seed) % 200000};
        nanosleep(&moment, NULL);
    }
    over = 1;
    for (int i = 0; i < THREADS; i++) {
        long *own = NULL;
        pthread_join(threads[i], (void **)&own);
        good += *own;
        free(own);
        replace(i, NULL);
    }
    printf("%d handlers beside %ld good fetches\n", handled - before, good);
    CHECK(handled > before);
    OK(exp_client_close(shared, SOON));
    exp_free(shared);
}

enum { PENDING = 40 };

/* More than the library notes one by one, in line, running or between two attempts. */
static void ends_pending(const char *url, exp_completions *completions) {
    exp_config *config = config_of(url, 2);
    OK(exp_config_set_fetch_retries(config, 1));
    OK(exp_config_set_fetch_retry_backoff_min_millis(config, SOON));
    OK(exp_config_set_fetch_retry_backoff_max_millis(config, SOON));
    exp_client *client = client_with(config);
    for (int time = 0; time < times(100); time++) {
        static told all[PENDING];
        for (int i = 0; i < THREADS; i++) {
            replace(i, exp_cancel_new());
        }
        for (int i = 0; i < PENDING; i++) {
            exp_fetch_options *options = options_of(switches[i % THREADS]);
            all[i].completions = completions;
            start(&all[i], client, options);
            exp_free(options);
        }
        double began = now();
        raise(SIGUSR1);
        for (int i = 0; i < PENDING; i++) {
            OK(exp_pending_wait(all[i].pending, SOON));
            if (completions) {
                exp_variants *none = NULL;
                CHECK_STATUS(EXP_ERR_CANCELED, exp_pending_take(all[i].pending, &none, NULL));
                exp_free(exp_completions_next(completions));
            } else {
                CHECK_STATUS(EXP_ERR_CANCELED, all[i].status);
            }
            clear(&all[i]);
        }
        CHECK_BY(0, began);
    }
    for (int i = 0; i < THREADS; i++) {
        replace(i, NULL);
    }
    OK(exp_client_close(client, SOON));
    exp_free(client);
}

static void a_handler_ends_asynchronous_fetches(void) {
    ends_pending(silent, NULL);
    ends_pending(busy, NULL);
    exp_completions *completions = exp_completions_new();
    ends_pending(silent, completions);
    ends_pending(busy, completions);
    exp_free(completions);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: signals SERVICE SILENT BUSY\n");
        return 2;
    }
    service = argv[1], silent = argv[2], busy = argv[3];
    /* What would hang fails. */
    alarm(300);
    handle(SIGUSR1);
    a_handler_ends_a_fetch_that_it_interrupts_and_those_in_line();
    a_handler_ends_the_wait_between_two_attempts();
    handlers_fire_at_any_moment();
    a_handler_ends_asynchronous_fetches();
    return report("signals");
}
