/* Many fetches at once: submitted, to a callback or to completions, or made by some threads.
 *
 *   async drain HOW FETCHES URL     prints: milliseconds p50_ms p99_ms cpu_us switches threads
 *   async memory HOW FETCHES URL    prints: bytes
 *
 * HOW is callback, completions, or a number of threads that share the fetches.
 *
 * `drain`: until the last is over; p50 and p99 from the start of a fetch until its outcome is
 * known, where all that threads make count as started when the threads are let go; CPU and context
 * switches of the process for each fetch; the threads that it had, the one that starts them all
 * included.
 *
 * `memory`, with a service that never answers: how much more is resident for each fetch that is
 * pending; where threads wait for them, as many threads as fetches.
 */
#include "driver.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* As many as all connections and workers take to be there. */
#define WARM 64

static exp_client *client;
static exp_user *user;
static exp_completions *completions;
static long most_threads;

/* One burst of fetches. */
static long fetches;
static atomic_long begun, ended;
static double *started, *took;
static sem_t all_ended;

/* A figure of /proc/self/status. */
static long status_of(const char *name) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            value = atol(line + strlen(name));
    if (file)
        fclose(file);
    return value;
}

static void open_client(const char *url, long most_pending) {
    exp_config *config = exp_config_new();
    exp_config_set_server_url(config, url);
    exp_config_set_max_pending_fetches(config, (uint32_t)most_pending);
    exp_config_set_fetch_timeout_millis(config, 60000);
    client = new_client(config);
    user = new_user();
    completions = exp_completions_new();
}

static void start(intptr_t number) { started[number] = now(CLOCK_MONOTONIC); }

static void end(intptr_t number, exp_status status) {
    if (status != EXP_OK)
        fail(exp_status_name(status));
    took[number] = now(CLOCK_MONOTONIC) - started[number];
    if (atomic_fetch_add(&ended, 1) == fetches - 1)
        sem_post(&all_ended);
}

/* to a callback */

static void EXP_CALL called(void *number, exp_status status, const exp_variants *variants,
                            const exp_error *error) {
    (void)variants, (void)error;
    end((intptr_t)number, status);
}

static void submit_to_callback(void) {
    for (intptr_t number = 0; number < fetches; number++) {
        exp_error *error;
        start(number);
        if (exp_fetch_v2_async(client, user, NULL, called, (void *)number, NULL, &error) != EXP_OK)
            fail(exp_error_message(error));
    }
}

static void by_callback(void) {
    submit_to_callback();
    sem_wait(&all_ended);
    most_threads = status_of("Threads:");
}

/* to completions: what an event loop does, on this one thread */

static void submit_to_completions(void) {
    for (intptr_t number = 0; number < fetches; number++) {
        exp_error *error;
        void *data = (void *)number;
        start(number);
        if (exp_fetch_v2_submit(client, user, NULL, completions, data, NULL, &error) != EXP_OK)
            fail(exp_error_message(error));
    }
}

static void take(exp_pending *pending) {
    exp_variants *variants;
    exp_status status = exp_pending_take(pending, &variants, NULL);
    end((intptr_t)exp_pending_user_data(pending), status);
    exp_free(variants);
    exp_free(pending);
}

static void by_completions(void) {
    struct pollfd ready = {.fd = exp_completions_fd(completions), .events = POLLIN};
    submit_to_completions();
    while (atomic_load(&ended) < fetches) {
        exp_pending *pending;
        poll(&ready, 1, -1);
        while ((pending = exp_completions_next(completions)) != NULL)
            take(pending);
    }
    most_threads = status_of("Threads:");
}

/* by threads, which are there before the first fetch begins */

static pthread_barrier_t gate;

static void *fetch_in_turn(void *unused) {
    long number;
    pthread_barrier_wait(&gate);
    while ((number = atomic_fetch_add(&begun, 1)) < fetches) {
        exp_variants *variants;
        end(number, exp_fetch_v2(client, user, NULL, &variants, NULL));
        exp_free(variants);
    }
    return unused;
}

static pthread_t *start_threads(long count) {
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_barrier_init(&gate, NULL, (unsigned)count + 1);
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, fetch_in_turn, NULL) != 0)
            fail("no thread can be started");
    return threads;
}

static long threads_wanted;

static void by_threads(void) {
    pthread_t *threads = start_threads(threads_wanted);
    most_threads = status_of("Threads:");
    for (intptr_t number = 0; number < fetches; number++)
        start(number);
    pthread_barrier_wait(&gate);
    sem_wait(&all_ended);
    for (long i = 0; i < threads_wanted; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

/* measuring */

static void (*by)(void);

static void burst(long count) {
    fetches = count;
    begun = ended = 0;
    by();
}

static double switches(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_nvcsw + used.ru_nivcsw);
}

static void drain(long count) {
    burst(WARM);
    double switched = switches(), cpu = now(CLOCK_PROCESS_CPUTIME_ID), at = now(CLOCK_MONOTONIC);
    burst(count);
    at = now(CLOCK_MONOTONIC) - at;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    switched = switches() - switched;
    qsort(took, (size_t)count, sizeof *took, ascending);
    printf("%.2f %.2f %.2f ", at * 1e3, took[count / 2] * 1e3, took[count * 99 / 100] * 1e3);
    printf("%.2f %.3f %ld\n", cpu * 1e6 / (double)count, switched / (double)count, most_threads);
}

/* The first ones fill the pool, and have workers started; those after them only wait in line. Ends
 * the process with all of them pending. */
static void memory(long count) {
    burst(WARM);
    long before = status_of("VmRSS:");
    burst(count);
    printf("%.0f\n", (double)(status_of("VmRSS:") - before) * 1024 / (double)count);
    fflush(stdout);
    _exit(0);
}

static void wait_on_threads(void) {
    start_threads(fetches);
    pthread_barrier_wait(&gate);
    usleep(200000); /* by then, all of them are where they wait */
}

int main(int argc, char **argv) {
    if (argc != 5)
        fail("usage: async drain|memory callback|completions|THREADS FETCHES URL");
    int drains = strcmp(argv[1], "drain") == 0;
    long count = atol(argv[3]);
    size_t bytes = (size_t)(count > WARM ? count : WARM) * sizeof *started;
    started = memset(malloc(bytes), 1, bytes); /* resident from here on */
    took = malloc(bytes);
    sem_init(&all_ended, 0, 0);
    open_client(argv[4], count + WARM);
    threads_wanted = atol(argv[2]);
    if (strcmp(argv[2], "callback") == 0)
        by = drains ? by_callback : submit_to_callback;
    else if (strcmp(argv[2], "completions") == 0)
        by = drains ? by_completions : submit_to_completions;
    else
        by = drains ? by_threads : wait_on_threads;
    (drains ? drain : memory)(count);
    exp_free(user);
    exp_free(client);
    exp_free(completions);
    return 0;
}
