/* More callers than connections, each of which calls again as soon as it is back:
 *
 *   contention POOL CALLERS FETCHES URL
 *
 * prints: fetches_per_second cpu_us voluntary_switches involuntary_switches (all three for a fetch)
 *         median_ms longest_ms (of a call) fewest median most (fetches of a caller)
 *         kib (resident for each caller, with what all of them share)
 *
 * What is measured are FETCHES from the middle: it begins when every caller has been served once,
 * and ends while all of them still call, so that neither starting nor ending a thread is in it.
 */
#include "driver.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

struct caller {
    pthread_t thread;
    double fetches;
};

struct usage {
    double at, cpu, voluntary, involuntary, kib;
};

enum { WARMING, MEASURED, OVER };

static exp_client *client;
static exp_user *user;
static long callers, fetches;
static atomic_int phase = WARMING;
static atomic_long warm, counted;
static double *took;
static struct usage ended;
static sem_t all_warm, all_counted;

static double resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        fail("the system does not tell what is resident");
    fclose(file);
    return (double)(pages * sysconf(_SC_PAGESIZE)) / 1024;
}

static struct usage usage(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (struct usage){
        .at = now(CLOCK_MONOTONIC),
        .cpu = now(CLOCK_PROCESS_CPUTIME_ID),
        .voluntary = (double)used.ru_nvcsw,
        .involuntary = (double)used.ru_nivcsw,
        .kib = resident_kib(),
    };
}

static void open_client(uint32_t pool, const char *url) {
    exp_config *config = exp_config_new();
    exp_config_set_server_url(config, url);
    exp_config_set_connection_pool_max_size(config, pool);
    exp_config_set_fetch_pool_acquire_timeout_millis(config, 60000);
    client = new_client(config);
    user = new_user();
}

static void fetch(void) { exp_free(fetch_for(client, user)); }

static void count(struct caller *caller, double seconds) {
    long number = atomic_fetch_add(&counted, 1);
    if (number >= fetches)
        return;
    took[number] = seconds;
    caller->fetches++;
    if (number == fetches - 1) {
        CALLGRIND_STOP_INSTRUMENTATION;
        ended = usage();
        phase = OVER;
        sem_post(&all_counted);
    }
}

static void *call(void *argument) {
    fetch();
    if (atomic_fetch_add(&warm, 1) == callers - 1)
        sem_post(&all_warm);
    while (phase != OVER) {
        double began = now(CLOCK_MONOTONIC);
        fetch();
        if (phase == MEASURED)
            count(argument, now(CLOCK_MONOTONIC) - began);
    }
    return NULL;
}

static void print(double kib, struct usage began, const struct caller *of) {
    double *each = malloc((size_t)callers * sizeof *each);
    for (long i = 0; i < callers; i++)
        each[i] = of[i].fetches;
    qsort(each, (size_t)callers, sizeof *each, ascending);
    qsort(took, (size_t)fetches, sizeof *took, ascending);
    double all = (double)fetches;
    printf("%.1f %.2f %.3f %.3f ", all / (ended.at - began.at), (ended.cpu - began.cpu) * 1e6 / all,
           (ended.voluntary - began.voluntary) / all,
           (ended.involuntary - began.involuntary) / all);
    printf("%.4f %.4f ", took[fetches / 2] * 1e3, took[fetches - 1] * 1e3);
    printf("%.0f %.0f %.0f ", each[0], each[callers / 2], each[callers - 1]);
    printf("%.1f\n", (ended.kib - kib) / (double)callers);
    free(each);
}

int main(int argc, char **argv) {
    if (argc != 5)
        fail("usage: contention POOL CALLERS FETCHES URL");
    callers = atol(argv[2]);
    fetches = atol(argv[3]);
    /* Resident before anything is measured. */
    size_t bytes = (size_t)fetches * sizeof *took, of_all = (size_t)callers * sizeof(struct caller);
    took = memset(malloc(bytes), 1, bytes);
    struct caller *all = memset(malloc(of_all), 0, of_all);
    sem_init(&all_warm, 0, 0);
    sem_init(&all_counted, 0, 0);
    open_client((uint32_t)atol(argv[1]), argv[4]);
    double kib = resident_kib();
    for (long i = 0; i < callers; i++)
        if (pthread_create(&all[i].thread, NULL, call, &all[i]) != 0)
            fail("no thread can be started");
    sem_wait(&all_warm);
    CALLGRIND_START_INSTRUMENTATION;
    struct usage began = usage();
    phase = MEASURED;
    sem_wait(&all_counted);
    for (long i = 0; i < callers; i++)
        pthread_join(all[i].thread, NULL);
    print(kib, began, all);
    exp_free(user);
    exp_free(client);
    free(all);
    free(took);
    return 0;
}
