/* What the tests of asynchronous fetches share. */
#ifndef ASYNC_H
#define ASYNC_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* The library promises 20 ms; the rest is what a busy machine of two cores takes from a test, and
 * valgrind, which runs one thread at a time. */
#define PROMISE 20
static int valgrind(void) { return getenv("EXPERIMENT_VALGRIND") != NULL; }

/* What became of a forked child. Valgrind looks for leaks at its end too, and finds what the
 * threads that it does not have held on their stacks: that is 9 (tests/library.rs). */
__attribute__((unused)) static int child_is_good(int status) {
    return status == 0 || (valgrind() && WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

__attribute__((unused)) static uint64_t slack(void) { return valgrind() ? 5000 : 200; }

/* For what happens by itself, and soon: so that a test fails where it would hang. */
#define SOON 30000

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void nap(void) {
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

/* Not after `bound`, and what is promised, and what the machine takes. */
#define CHECK_BY(bound, began)                                                                     \
    do {                                                                                           \
        double took = now() - (began);                                                             \
        char text[40];                                                                             \
        snprintf(text, sizeof text, "%.1f ms", took);                                              \
        CHECK_THAT(took <= (double)(bound) + PROMISE + (double)slack(), text);                     \
    } while (0)

static exp_config *config_of(const char *url, uint32_t pool) {
    exp_config *config = exp_config_new();
    OK(exp_config_set_server_url(config, url));
    OK(exp_config_set_use_environment_proxy(config, EXP_FALSE));
    OK(exp_config_set_connection_pool_max_size(config, pool));
    /* Nothing runs into it that does not set its own. */
    OK(exp_config_set_fetch_timeout_millis(config, 60000));
    return config;
}

static exp_client *client_with(exp_config *config) {
    exp_client *client = NULL;
    exp_error *error = NULL;
    OK(exp_client_new("secret-key", config, &client, &error));
    CHECK_THAT(error == NULL, exp_error_message(error));
    exp_free(config);
    return client;
}

__attribute__((unused)) static exp_client *client_of(const char *url, uint32_t pool) {
    return client_with(config_of(url, pool));
}

/* One fetch, and what its callback was told. */
typedef struct {
    char user[24];
    pthread_t submitter;
    int by_callback;
    exp_pending *pending;
    volatile int times;
    exp_status status;
    exp_variants *variants;
    exp_error *error;
    double at;
    void (*then)(void *told);
    exp_client *client;
    exp_completions *completions;
} told;

/* How many callbacks this thread is inside of. */
static __thread int depth;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void EXP_CALL tell(void *user_data, exp_status status, const exp_variants *variants,
                          const exp_error *error) {
    told *it = user_data;
    pthread_mutex_lock(&lock);
    /* On another thread; or, if it was started in a callback, after that has returned. */
    CHECK(!pthread_equal(pthread_self(), it->submitter) || it->by_callback);
    CHECK(depth == 0);
    CHECK(it->times == 0);
    CHECK(it->pending != NULL);
    CHECK((status == EXP_OK) == (variants != NULL) && (status == EXP_OK) == (error == NULL));
    it->status = status;
    it->variants = exp_variants_retain(variants);
    it->error = exp_error_retain(error);
    it->at = now();
    pthread_mutex_unlock(&lock);
    if (it->then) {
        depth++;
        it->then(it);
        depth--;
    }
    pthread_mutex_lock(&lock);
    it->times++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

__attribute__((unused)) static void start(told *it, exp_client *client,
                                          const exp_fetch_options *options) {
    static unsigned drawn;
    exp_user *user = exp_user_new();
    exp_error *error = NULL;
    snprintf(it->user, sizeof it->user, "user-%u", __sync_add_and_fetch(&drawn, 1));
    OK(exp_user_set_user_id(user, it->user));
    it->submitter = pthread_self();
    it->by_callback = depth > 0;
    it->client = client;
    if (it->completions) {
        OK(exp_fetch_v2_submit(client, user, options, it->completions, it, &it->pending, &error));
    } else {
        OK(exp_fetch_v2_async(client, user, options, tell, it, &it->pending, &error));
    }
    CHECK_THAT(error == NULL, exp_error_message(error));
    /* It was copied. */
    exp_user_set_user_id(user, "somebody else");
    exp_free(user);
}

__attribute__((unused)) static void await(told *it) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SOON / 1000;
    pthread_mutex_lock(&lock);
    while (it->times == 0 && pthread_cond_timedwait(&changed, &lock, &until) == 0) {
    }
    CHECK_THAT(it->times == 1, it->user);
    pthread_mutex_unlock(&lock);
}

/* Gives up what was told, for the next. */
__attribute__((unused)) static void clear(told *it) {
    exp_free(it->pending);
    exp_free(it->variants);
    exp_free(it->error);
    memset(it, 0, sizeof *it);
}

static void check_variants(const exp_variants *variants, const char *user) {
    char own[32];
    snprintf(own, sizeof own, "\"%s\"", user);
    const exp_variant *nonce = exp_variants_get(variants, "demo-nonce");
    CHECK_TEXT(own, exp_variant_payload_json(nonce));
}

/* Awaits an answer, which must be this fetch's own. */
__attribute__((unused)) static void good(told *it) {
    await(it);
    CHECK_STATUS(EXP_OK, it->status);
    check_variants(it->variants, it->user);
    clear(it);
}

__attribute__((unused)) static void failed(told *it, exp_status status) {
    await(it);
    CHECK_STATUS(status, it->status);
    CHECK_STATUS(status, exp_error_status(it->error));
    clear(it);
}

/* A number out of the client's metrics. */
static long metric(exp_client *client, const char *name) {
    exp_text *text = NULL;
    OK(exp_client_metrics(client, EXP_METRICS_OPENMETRICS, &text, NULL));
    const char *line = exp_text_value(text);
    long value = -1;
    while ((line = strstr(line, name)) != NULL) {
        if (line[strlen(name)] == ' ' && line[-1] == '\n') {
            value = strtol(line + strlen(name), NULL, 10);
            break;
        }
        line++;
    }
    exp_free(text);
    CHECK_THAT(value >= 0, name);
    return value;
}

/* Seen once is enough: it may be gone when looked at again. */
__attribute__((unused)) static void until_metric(exp_client *client, const char *name,
                                                 long wanted) {
    double began = now();
    bool seen;
    while (!(seen = metric(client, name) == wanted) && now() - began < SOON) {
        nap();
    }
    CHECK_THAT(seen, name);
}

/* The threads of the library, of all clients. */
__attribute__((unused)) static int our_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file)) {
            count += !strncmp(name, "exp-timer", 9) || !strncmp(name, "exp-worker", 10);
        }
        if (file) {
            fclose(file);
        }
    }
    closedir(tasks);
    return count;
}

/* One look at a time: a thread that was started last of all may not have its name yet when the
 * others are gone, and be seen for the moment in which it finds that there is nothing to do. */
__attribute__((unused)) static void until_no_threads(void) {
    double began = now();
    bool gone;
    while (!(gone = our_threads() == 0) && now() - began < SOON) {
        nap();
    }
    CHECK(gone);
}

#endif
