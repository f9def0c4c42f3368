/* What one call costs, in C. The programs in the other languages do the same.
 *
 *     call URL FETCHES LOOKUPS USERS
 *
 * One thread makes so many fetches, and so many thousands of the rest: a lookup is the value of a
 * variant by its flag's key, a user is made with two texts. For each it prints the nanoseconds of a
 * call (the median), those of the processor, and the objects of the language that came to be.
 */
#include "../driver.h"

enum { THOUSAND = 1000 };

static exp_client *client;
static exp_user *user;
static exp_variants *variants;
static const char *volatile value;

static void fetches(int count) {
    for (int i = 0; i < count; i++)
        exp_free(fetch_for(client, user));
}

static void lookups(int count) {
    for (int i = 0; i < count; i++)
        value = exp_variant_value(exp_variants_get(variants, "flag-one"));
}

static void users(int count) {
    for (int i = 0; i < count; i++)
        exp_free(new_user());
}

static void measure(const char *what, void (*calls)(int), int batches, int batch) {
    double *took = malloc((size_t)batches * sizeof *took);
    double processor = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < batches; i++) {
        double began = now(CLOCK_MONOTONIC);
        calls(batch);
        took[i] = (now(CLOCK_MONOTONIC) - began) * 1e9 / batch;
    }
    processor = (now(CLOCK_PROCESS_CPUTIME_ID) - processor) * 1e9 / batches / batch;
    qsort(took, (size_t)batches, sizeof *took, ascending);
    printf("%s %f %f -\n", what, took[batches / 2], processor);
    free(took);
}

int main(int argc, char **argv) {
    if (argc != 5)
        return EXIT_FAILURE;
    exp_config *config = exp_config_new();
    exp_config_set_server_url(config, argv[1]);
    client = new_client(config);
    user = new_user();
    variants = fetch_for(client, user);
    fetches(20);
    measure("fetch", fetches, atoi(argv[2]), 1);
    measure("lookup", lookups, atoi(argv[3]), THOUSAND);
    measure("user", users, atoi(argv[4]), THOUSAND);
    exp_free(variants), exp_free(user), exp_free(client);
}
