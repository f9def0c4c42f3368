/* Memory that is not there (RLIMIT_AS): large answers and large users end in an error, and the next
 * fetch is as good as any. Where no error can be told, as there is no memory for it, the process
 * aborts; it never goes on with something else than what was asked for.
 * Arguments: URLs of a service; of one whose body has 900 MB; of one whose gzip unpacks to as much;
 * of one with a value of 100 MB; of one with many flags. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static const char *service, *flags;

/* What the process has mapped, by the kernel's books. */
static size_t mapped(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void allow(size_t more) {
    struct rlimit limit = {0, RLIM_INFINITY};
    limit.rlim_cur = mapped() + more;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void allow_everything(void) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static exp_client *client_of(const char *url) {
    exp_config *config = exp_config_new();
    exp_client *client = NULL;
    OK(exp_config_set_server_url(config, url));
    OK(exp_config_set_use_environment_proxy(config, EXP_FALSE));
    OK(exp_config_set_fetch_timeout_millis(config, 60000));
    OK(exp_config_set_max_response_bytes(config, 1 << 30));
    OK(exp_client_new("key", config, &client, NULL));
    exp_free(config);
    return client;
}

static void good(exp_client *client) {
    exp_variants *variants = NULL;
    OK(exp_fetch_v2(client, NULL, NULL, &variants, NULL));
    CHECK(exp_variants_count(variants) == 4);
    exp_free(variants);
}

/* An answer that is allowed, and larger than what the process may have. */
static void an_answer_without_memory_is_invalid(const char *url, size_t more, const char *words) {
    exp_client *client = client_of(url), *other = client_of(service);
    allow(more);
    for (int i = 0; i < 2; i++) {
        exp_variants *variants = NULL;
        exp_error *error = NULL;
        CHECK_STATUS(EXP_ERR_INVALID_RESPONSE, exp_fetch_v2(client, NULL, NULL, &variants, &error));
        CHECK(variants == NULL);
        CHECK_MESSAGE(words, error);
        exp_free(error);
        good(other);
    }
    allow_everything();
    exp_free(client);
    exp_free(other);
}

static void a_user_without_memory_is_refused(void) {
    enum { LENGTH = 7 << 20 };
    char *json = malloc(LENGTH);
    memset(json, 'x', LENGTH);
    memcpy(json, "{\"a\":\"", 6);
    memcpy(json + LENGTH - 2, "\"}", 2);
    exp_client *client = client_of(service);
    exp_user *user = NULL, *large = NULL, *other = exp_user_new();
    exp_error *error = NULL;
    OK(exp_user_from_json_n(json, LENGTH, &large, NULL));
    allow(MIB);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_user_from_json_n(json, LENGTH, &user, &error));
    CHECK(user == NULL);
    CHECK_MESSAGE("memory", error);
    exp_free(error);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                 exp_user_set_property_json_n(other, "a", 1, json + 5, LENGTH - 6));
    CHECK_MESSAGE("memory", exp_user_error(other));
    exp_variants *variants = NULL;
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_fetch_v2(client, large, NULL, &variants, &error));
    CHECK_MESSAGE("memory", error);
    exp_free(error);
    good(client);
    allow_everything();
    OK(exp_fetch_v2(client, large, NULL, &variants, NULL));
    exp_free(variants);
    exp_free(large);
    exp_free(other);
    exp_free(client);
    free(json);
}

/* In a process that may have so much more: 0 for the right answer, 1 for an error that fits. */
static int fetch_with(size_t more) {
    exp_client *client = client_of(flags);
    close(2); /* that the allocation failed */
    allow(more);
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    exp_status status = exp_fetch_v2(client, NULL, NULL, &variants, &error);
    if (status != EXP_OK) {
        return status == exp_error_status(error) &&
                       (status == EXP_ERR_INVALID_RESPONSE || status == EXP_ERR_NETWORK)
                   ? 1
                   : 2;
    }
    const exp_variant *last = exp_variants_at(variants, exp_variants_count(variants) - 1);
    return exp_variants_count(variants) == 40000 &&
                   exp_variants_get(variants, exp_variant_flag_key(last)) == last
               ? 0
               : 3;
}

/* Wherever it is that there is no memory left. */
static void no_lack_of_memory_makes_a_wrong_answer(void) {
    int good = 0, failed = 0, aborted = 0;
    for (size_t more = 0; more < 24 * MIB; more += MIB / 4) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            _exit(fetch_with(more));
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        char text[60];
        snprintf(text, sizeof text, "status %#x with %zu KiB", (unsigned)status, more >> 10);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        failed += WIFEXITED(status) && WEXITSTATUS(status) == 1;
        aborted += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        CHECK_THAT((WIFEXITED(status) && WEXITSTATUS(status) < 2) ||
                       (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT),
                   text);
    }
    printf("memory runs out: %d right answers, %d errors, %d aborts\n", good, failed, aborted);
    CHECK(good > 0 && failed > 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 6);
    service = argv[1];
    flags = argv[5];
    /* First, as long as the heap has nothing left over. */
    no_lack_of_memory_makes_a_wrong_answer();
    an_answer_without_memory_is_invalid(argv[2], 256 * MIB, "no memory");
    an_answer_without_memory_is_invalid(argv[3], 256 * MIB, "no memory");
    /* Enough for its bytes, not for what is made of them. */
    an_answer_without_memory_is_invalid(argv[4], 180 * MIB, "fit into memory");
    a_user_without_memory_is_refused();
    return report("limits");
}
