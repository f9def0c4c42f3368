/* Where madvise(2) answers 0 and does nothing, as it does under old qemu-user and in some
 * sandboxes, the kernel wipes no page in a child. Argument: the URL of a service. */
#include "async.h"

#include <sys/mman.h>

int madvise(void *address, size_t length, int advice) {
    (void)address, (void)length, (void)advice;
    return 0;
}

/* How many answers are somebody else's. */
static int fetch_own(exp_client *client) {
    int bad = 0;
    for (int i = 0; i < 50; i++) {
        char name[48];
        snprintf(name, sizeof name, "%ld-%d", (long)getpid(), i);
        exp_user *user = exp_user_new();
        exp_user_set_user_id(user, name);
        exp_variants *variants = NULL;
        bad += exp_fetch_v2(client, user, NULL, &variants, NULL) != EXP_OK;
        const char *nonce = exp_variant_payload_json(exp_variants_get(variants, "demo-nonce"));
        bad += !nonce || strncmp(nonce + 1, name, strlen(name)) != 0;
        exp_free(user);
        exp_free(variants);
    }
    return bad;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: unwiped SERVICE\n");
        return 2;
    }
    exp_client *client = client_of(argv[1], 1);
    CHECK(fetch_own(client) == 0);
    exp_completions *completions = exp_completions_new();
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SOON / 1000);
        _exit(fetch_own(client) != 0 || exp_completions_fd(completions) != -1);
    }
    CHECK(fetch_own(client) == 0);
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(child_is_good(status));
    CHECK(metric(client, "experiment_connections_opened_total") == 1);
    exp_free(completions);
    exp_free(client);
    return report("unwiped");
}
