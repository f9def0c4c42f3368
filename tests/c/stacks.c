/* How much stack a fetch takes on the thread that makes it.
 * Arguments: URLs of a service; of one whose answers are packed; of both over TLS; the file of
 * their authority. */
#include "async.h"

#include <sys/mman.h>

/* What the header asks for. */
enum { ENOUGH = 128 << 10, PAINT = 0xa5 };

static exp_client *client;

static void *fetch(void *argument) {
    (void)argument;
    exp_user *user = exp_user_new();
    OK(exp_user_set_user_id(user, "somebody"));
    for (int i = 0; i < 3; i++) {
        exp_variants *variants = NULL;
        exp_error *error = NULL;
        exp_status status = exp_fetch_v2(client, user, NULL, &variants, &error);
        CHECK_THAT(status == EXP_OK, exp_error_message(error));
        CHECK(exp_variants_json(variants) != NULL);
        exp_free(variants);
        exp_free(error);
    }
    exp_free(user);
    return NULL;
}

static void is_enough(const char *what, const char *url, const char *ca_file) {
    exp_config *config = config_of(url, 1);
    if (ca_file) {
        OK(exp_config_set_ca_file(config, ca_file));
    }
    client = client_with(config);
    size_t size = ENOUGH, untouched = 0;
    unsigned char *stack =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    memset(stack, PAINT, size);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, stack, size) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, fetch, NULL) == 0);
    pthread_join(thread, NULL);
    while (untouched < size && stack[untouched] == PAINT) {
        untouched++;
    }
    printf("%s: %zu KiB of stack\n", what, (size - untouched) >> 10);
    CHECK_THAT(untouched >= size / 4, what);
    munmap(stack, size);
    pthread_attr_destroy(&attributes);
    exp_free(client);
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: stacks SERVICE PACKED TLS PACKED_TLS CA_FILE\n");
        return 2;
    }
    is_enough("http", argv[1], NULL);
    is_enough("gzip", argv[2], NULL);
    is_enough("https", argv[3], argv[5]);
    is_enough("gzip over https", argv[4], argv[5]);
    return report("stacks");
}
