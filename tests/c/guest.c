/* The library as a guest in a process that opens it with dlopen.
 * Arguments: the library; a copy of it under another name; URLs of a service; of one that never
 * answers; of one that resets every connection. With "exit" and a number after these, it is a
 * process that ends at some moment. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "experiment.h"

#include <stdio.h>
#include <string.h>

static int failures, checks;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        __sync_fetch_and_add(&checks, 1);                                                          \
        if (!(condition)) {                                                                        \
            __sync_fetch_and_add(&failures, 1);                                                    \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                         \
        }                                                                                          \
    } while (0)

#define SOON 30000

/* clang-format off */
#define FUNCTIONS(X) \
    X(config_new) \
    X(config_set_server_url) \
    X(config_set_fetch_timeout_millis) \
    X(config_set_connection_pool_max_size) \
    X(config_set_use_environment_proxy) \
    X(client_new) \
    X(client_close) \
    X(fetch_v2) \
    X(fetch_v2_async) \
    X(fetch_v2_submit) \
    X(pending_wait) \
    X(pending_cancel) \
    X(completions_new) \
    X(free)
/* clang-format on */

typedef struct {
    void *handle;
#define DECLARE(name) __typeof__(exp_##name) *name;
    FUNCTIONS(DECLARE)
} library;

static library load(const char *path) {
    library it = {.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!it.handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define LOAD(name) *(void **)&it.name = dlsym(it.handle, "exp_" #name);
    FUNCTIONS(LOAD)
    return it;
}

static exp_client *client_of(const library *exp, const char *url, uint64_t timeout_millis) {
    exp_client *client = NULL;
    exp_config *config = exp->config_new();
    exp->config_set_server_url(config, url);
    exp->config_set_use_environment_proxy(config, EXP_FALSE);
    exp->config_set_connection_pool_max_size(config, 3);
    exp->config_set_fetch_timeout_millis(config, timeout_millis);
    CHECK(exp->client_new("key", config, &client, NULL) == EXP_OK);
    exp->free(config);
    return client;
}

typedef struct {
    int times;
    exp_status status;
} told;

static void EXP_CALL tell(void *user_data, exp_status status, const exp_variants *variants,
                          const exp_error *error) {
    (void)variants, (void)error;
    told *it = user_data;
    it->status = status;
    __sync_fetch_and_add(&it->times, 1);
}

static exp_status fetch_async(const library *exp, exp_client *client) {
    told it = {0};
    exp_pending *pending = NULL;
    CHECK(exp->fetch_v2_async(client, NULL, NULL, tell, &it, &pending, NULL) == EXP_OK);
    CHECK(exp->pending_wait(pending, SOON) == EXP_OK);
    CHECK(it.times == 1);
    exp->free(pending);
    return it.status;
}

static void nap(long micros) {
    struct timespec time = {0, micros * 1000};
    nanosleep(&time, NULL);
}

/* Of each thread of the library: its name, and that it has every signal blocked that can be. */
static int our_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[200], name[32] = "";
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file)) {
            sscanf(line, "Name: %31s", name);
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (file) {
            fclose(file);
        }
        if (!strncmp(name, "exp-", 4)) {
            count++;
            CHECK(!strcmp(name, "exp-timer") || !strcmp(name, "exp-worker"));
            /* All but SIGKILL, SIGSTOP and the two that the C library keeps for itself. */
            unsigned long long all = 0xffffffffffffffffULL;
            all &= ~(1ULL << (SIGKILL - 1)) & ~(1ULL << (SIGSTOP - 1)) & ~(3ULL << 31);
            CHECK((blocked & all) == all);
        }
    }
    closedir(tasks);
    return count;
}

static size_t stack_of_callback;

static void EXP_CALL look_at_stack(void *user_data, exp_status status, const exp_variants *variants,
                                   const exp_error *error) {
    (void)status, (void)variants, (void)error, (void)user_data;
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &stack_of_callback);
    pthread_attr_destroy(&attributes);
}

static void *exits(void *unused) {
    (void)unused;
    exit(0);
}

/* A process that ends in the middle of its fetches, by its first thread or by another. */
static void end(const library *exp, const char *service, const char *silent, int number) {
    exp_client *client = client_of(exp, service, SOON), *stuck = client_of(exp, silent, SOON);
    static told all[40];
    for (int i = 0; i < 40; i++) {
        exp->fetch_v2_async(i % 4 ? client : stuck, NULL, NULL, tell, &all[i], NULL, NULL);
    }
    nap(number * 211 % 6000);
    if (number % 2) {
        pthread_t thread;
        pthread_create(&thread, NULL, exits, NULL);
        pthread_join(thread, NULL);
    }
    exit(0);
}

int main(int argc, char **argv) {
    if (argc != 6 && argc != 8) {
        fprintf(stderr, "usage: guest LIBRARY COPY SERVICE SILENT RESETS [exit NUMBER]\n");
        return 2;
    }
    const char *service = argv[3], *silent = argv[4], *resets = argv[5];
    library first = load(argv[1]);
    if (argc == 8) {
        end(&first, service, silent, atoi(argv[7]));
    }
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);

    /* Two builds at once, and two clients of each with different settings. */
    library second = load(argv[2]);
    CHECK(first.fetch_v2 != second.fetch_v2);
    const library *both[] = {&first, &second};
    exp_client *clients[4];
    for (int i = 0; i < 4; i++) {
        clients[i] = client_of(both[i / 2], i % 2 ? silent : service, i % 2 ? 40 : SOON);
    }
    CHECK(our_threads() == 0);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4; i++) {
            if (i % 2 == 0 || round == 0) {
                exp_status status = fetch_async(both[i / 2], clients[i]);
                CHECK(status == (i % 2 ? EXP_ERR_TIMEOUT : EXP_OK));
            }
        }
    }
    int threads = our_threads();
    CHECK(threads >= 4 * 2 && threads <= 4 * (3 + 1));

    /* An object of one build is none of the other's making, but its own knows it again. */
    told stack = {0};
    exp_pending *pending = NULL;
    CHECK(first.fetch_v2_async(clients[0], NULL, NULL, look_at_stack, &stack, &pending, NULL) == 0);
    CHECK(first.pending_wait(pending, SOON) == EXP_OK);
    first.free(pending);
    CHECK(stack_of_callback >= 2 << 20);

    /* Whoever writes to a connection that was reset gets no SIGPIPE, which would end this. */
    signal(SIGPIPE, SIG_DFL);
    exp_client *reset = client_of(&first, resets, SOON);
    for (int i = 0; i < 50; i++) {
        exp_status status = fetch_async(&first, reset);
        CHECK(status == EXP_ERR_NETWORK || status == EXP_OK);
    }
    first.client_close(reset, SOON);
    first.free(reset);

    /* Unloading with threads alive and fetches under way leaves them running. */
    told late = {0};
    exp_pending *running = NULL;
    CHECK(second.fetch_v2_async(clients[3], NULL, NULL, tell, &late, &running, NULL) == EXP_OK);
    dlclose(second.handle);
    CHECK(second.pending_wait(running, SOON) == EXP_OK && late.times == 1);
    second.free(running);
    CHECK(fetch_async(&second, clients[2]) == EXP_OK);

    for (int i = 0; i < 4; i++) {
        CHECK(both[i / 2]->client_close(clients[i], SOON) == EXP_OK);
        both[i / 2]->free(clients[i]);
    }
    CHECK(our_threads() == 0);
    dlclose(first.handle);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number <= SIGRTMAX; number++) {
        CHECK(sigismember(&before, number) == sigismember(&after, number));
    }

    /* Processes that end at any moment: none crashes, none hangs. */
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) {
            char number[12];
            snprintf(number, sizeof number, "%d", i);
            alarm(SOON / 1000);
            execl("/proc/self/exe", argv[0], argv[1], argv[2], service, silent, resets, "exit",
                  number, (char *)NULL);
            _exit(3);
        }
        int status = -1;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    printf("guest: %d checks, %d failures\n", checks, failures);
    return failures != 0;
}
