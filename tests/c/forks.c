/* Forks under load: threads that fetch and wait, asynchronous fetches under way, kept connections.
 * Arguments: URLs of a service; of one that never answers; how many forks. */
#include "async.h"

#include <sys/wait.h>

static const char *service, *silent;
static exp_client *client, *stuck;
static volatile int over;
static pid_t parent;
static long fetched;

/* Draws a name that no other process has, fetches, and sees to it that the answer is its own. */
static int fetch_own(const exp_fetch_options *options) {
    static unsigned drawn;
    char name[48];
    snprintf(name, sizeof name, "%ld-%u", (long)getpid(), __sync_add_and_fetch(&drawn, 1));
    exp_user *user = exp_user_new();
    exp_user_set_user_id(user, name);
    exp_variants *variants = NULL;
    exp_status status = exp_fetch_v2(client, user, options, &variants, NULL);
    exp_free(user);
    if (status == EXP_OK) {
        const exp_variant *nonce = exp_variants_get(variants, "demo-nonce");
        const char *payload = exp_variant_payload_json(nonce);
        if (!payload || strncmp(payload + 1, name, strlen(name)) != 0) {
            status = EXP_ERR_INTERNAL;
        }
    }
    exp_free(variants);
    return status == EXP_OK;
}

/* A callback runs in the process that submitted its fetch, and there alone. */
typedef struct {
    pid_t process;
    int times, good;
} once;

static void EXP_CALL note(void *user_data, exp_status status, const exp_variants *variants,
                          const exp_error *error) {
    (void)variants, (void)error;
    once *it = user_data;
    if (it->process != getpid()) {
        _exit(77);
    }
    __sync_fetch_and_add(&it->good, status == EXP_OK);
    __sync_fetch_and_add(&it->times, 1);
}

static void *load(void *asynchronous) {
    while (!over) {
        if (asynchronous) {
            once it = {.process = getpid()};
            exp_pending *pending = NULL;
            OK(exp_fetch_v2_async(client, NULL, NULL, note, &it, &pending, NULL));
            OK(exp_pending_wait(pending, SOON));
            CHECK(it.times == 1 && it.good == 1);
            exp_free(pending);
        } else {
            CHECK(fetch_own(NULL));
        }
        __sync_fetch_and_add(&fetched, 1);
    }
    return NULL;
}

static void *contend(void *bad) {
    once it = {.process = getpid()};
    exp_pending *pending = NULL;
    int good = fetch_own(NULL);
    good &= exp_fetch_v2_async(client, NULL, NULL, note, &it, &pending, NULL) == EXP_OK;
    good &= exp_pending_wait(pending, SOON) == EXP_OK && it.times == 1 && it.good == 1;
    exp_free(pending);
    if (!good) {
        __sync_fetch_and_add((int *)bad, 1);
    }
    return NULL;
}

static void child(int contended) {
    int bad = 0;
    alarm(SOON / 1000);
    if (contended) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++) {
            pthread_create(&threads[i], NULL, contend, &bad);
        }
        for (int i = 0; i < 8; i++) {
            pthread_join(threads[i], NULL);
        }
    } else {
        contend(&bad);
    }
    if (exp_client_close(client, SOON) != EXP_OK) {
        bad++;
    }
    exp_free(client);
    exp_free(stuck);
    _exit(bad != 0);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: forks SERVICE SILENT COUNT\n");
        return 2;
    }
    service = argv[1], silent = argv[2];
    int count = atoi(argv[3]), hung = 0, failed_children = 0, crossed = 0;
    parent = getpid();
    client = client_of(service, 2);
    stuck = client_of(silent, 1);
    once never = {.process = parent};
    exp_pending *waiting[2];
    for (int i = 0; i < 2; i++) {
        OK(exp_fetch_v2_async(stuck, NULL, NULL, note, &never, &waiting[i], NULL));
    }
    until_metric(stuck, "experiment_connections_leased", 1);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, load, i % 2 ? client : NULL);
    }
    double began = now();
    int done = 0;
    /* As many as a minute holds, where the machine is slow. */
    for (; done < count && now() - began < 60000; done++) {
        pid_t pid = fork();
        if (pid == 0) {
            child(done % 4 == 0);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
        crossed += WIFEXITED(status) && WEXITSTATUS(status) == 77;
        failed_children += !child_is_good(status);
    }
    over = 1;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    printf(
        "%d forks in %.0f s beside %ld fetches: %d hung, %d called back in the child, %d failed\n",
        done, (now() - began) / 1e3, fetched, hung, crossed, failed_children);
    CHECK(failed_children == 0 && done > 0);
    CHECK(never.times == 0);
    CHECK(exp_client_close(stuck, 0) == EXP_ERR_TIMEOUT);
    OK(exp_client_close(stuck, SOON));
    CHECK(never.times == 2);
    exp_free(waiting[0]);
    exp_free(waiting[1]);
    OK(exp_client_close(client, SOON));
    exp_free(client);
    exp_free(stuck);
    return report("forks");
}
