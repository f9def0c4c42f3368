/* As load.py, in C.
 *
 *     load URL RATE SECONDS [SETTING=VALUE ...]        RATE may be such as `16x5`
 */
#include "../driver.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

static exp_client *client;
static double only_sleep; /* in seconds, in place of fetches */

static void set(exp_config *config, const char *setting) {
    const char *value = strchr(setting, '=');
    uint64_t number = value ? strtoull(value + 1, NULL, 10) : 0;
#define SETTING(name, type)                                                                        \
    if (value && strlen(#name) == (size_t)(value - setting) &&                                     \
        memcmp(#name, setting, (size_t)(value - setting)) == 0) {                                  \
        exp_config_set_##name(config, (type)number);                                               \
        return;                                                                                    \
    }
    SETTING(fetch_timeout_millis, uint64_t)
    SETTING(fetch_retries, uint32_t)
    SETTING(fetch_retry_timeout_millis, uint64_t)
    SETTING(fetch_retry_backoff_min_millis, uint64_t)
    SETTING(fetch_retry_budget_percent, uint32_t)
    SETTING(fetch_deadline_millis, uint64_t)
    SETTING(connection_pool_max_size, uint32_t)
    if (value && strncmp("only_sleep=", setting, 11) == 0) {
        only_sleep = (double)number / 1e3;
        return;
    }
    fprintf(stderr, "load: no such setting: %s\n", setting);
    exit(EXIT_FAILURE);
}

static void sleep_for(double seconds) {
    if (seconds <= 0)
        return;
    time_t whole = (time_t)seconds;
    struct timespec pause = {whole, (long)((seconds - (double)whole) * 1e9)};
    nanosleep(&pause, NULL);
}

static const char *outcome(void) {
    if (only_sleep > 0) {
        sleep_for(only_sleep);
        return "ok";
    }
    exp_variants *variants;
    exp_user *user = exp_user_new();
    exp_user_set_user_id(user, "user");
    exp_status status = exp_fetch_v2(client, user, NULL, &variants, NULL);
    const char *what = status != EXP_OK ? "error" : exp_variants_count(variants) ? "ok" : "empty";
    exp_free(variants);
    exp_free(user);
    return what;
}

static void *call(void *number) {
    double start = now(CLOCK_REALTIME), began = now(CLOCK_MONOTONIC);
    const char *what = outcome();
    double elapsed = now(CLOCK_MONOTONIC) - began;
    printf("{\"call\":%d,\"start\":%.3f,\"elapsed\":%.3f,\"outcome\":\"%s\"}\n",
           (int)(intptr_t)number, start * 1e3, elapsed * 1e3, what);
    return NULL;
}

static void start(void *(*what)(void *), int number) {
    pthread_t thread;
    pthread_create(&thread, NULL, what, (void *)(intptr_t)number);
    pthread_detach(thread);
}

static void load(double rate, double seconds) {
    double begin = now(CLOCK_MONOTONIC);
    for (int i = 0; i < (int)(rate * seconds); i++) {
        sleep_for(begin + i / rate - now(CLOCK_MONOTONIC));
        start(call, i);
    }
}

static int turns;

static void *caller(void *number) {
    for (intptr_t i = 0; i < turns; i++)
        call((void *)((intptr_t)number * turns + i));
    return NULL;
}

static void in_turns(int callers, int each) {
    turns = each;
    for (int i = 0; i < callers; i++)
        start(caller, i);
}

int main(int argc, char **argv) {
    exp_config *config = exp_config_new();
    exp_config_set_server_url(config, argv[1]);
    for (int i = 4; i < argc; i++)
        set(config, argv[i]);
    client = new_client(config);
    for (int i = 0; only_sleep == 0 && i < 20; i++)
        outcome();
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");
    if (getchar() == EOF)
        return EXIT_SUCCESS; /* whoever started it is gone */
    const char *each = strchr(argv[2], 'x');
    if (each)
        in_turns(atoi(argv[2]), atoi(each + 1));
    else
        load(atof(argv[2]), atof(argv[3]));
    pthread_exit(NULL); /* the process ends with the last call */
}
