/* What one call costs, in C. The programs in the other languages do the same.
 *
 *     call URL FETCHES LOOKUPS USERS
 *
 * One thread makes so many fetches, and so many thousands of the rest: a lookup is the value of a
 * variant by its flag's key, a user is made with two texts. For each it prints the nanoseconds of a
 * call (the median), those of the processor, and the objects of the language that came to be.
 */
#include <experiment.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THOUSAND = 1000 };

static exp_client *client;
static exp_user *user;
static exp_variants *variants;
static const char *volatile value;

static exp_user *new_user(void) {
    exp_user *made = exp_user_new();
    exp_user_set_user_id(made, "user-1234");
    exp_user_set_device_id(made, "device-5678");
    return made;
}

static exp_variants *fetch(void) {
    exp_variants *fetched;
    exp_error *error;
    if (exp_fetch_v2(client, user, NULL, &fetched, &error) != EXP_OK) {
        fprintf(stderr, "call: %s\n", exp_error_message(error));
        exit(EXIT_FAILURE);
    }
    return fetched;
}

static void fetches(int count) {
    for (int i = 0; i < count; i++)
        exp_free(fetch());
}

static void lookups(int count) {
    for (int i = 0; i < count; i++)
        value = exp_variant_value(exp_variants_get(variants, "flag-one"));
}

static void users(int count) {
    for (int i = 0; i < count; i++)
        exp_free(new_user());
}

static double now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *what, void (*calls)(int), int batches, int batch) {
    double *took = malloc((size_t)batches * sizeof *took);
    double processor = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < batches; i++) {
        double began = now(CLOCK_MONOTONIC);
        calls(batch);
        took[i] = (now(CLOCK_MONOTONIC) - began) / batch;
    }
    processor = (now(CLOCK_PROCESS_CPUTIME_ID) - processor) / batches / batch;
    qsort(took, (size_t)batches, sizeof *took, ascending);
    printf("%s %f %f -\n", what, took[batches / 2], processor);
    free(took);
}

int main(int argc, char **argv) {
    if (argc != 5)
        return EXIT_FAILURE;
    exp_config *config = exp_config_new();
    exp_config_set_server_url(config, argv[1]);
    if (exp_client_new("key", config, &client, NULL) != EXP_OK)
        return EXIT_FAILURE;
    user = new_user();
    variants = fetch();
    fetches(20);
    measure("fetch", fetches, atoi(argv[2]), 1);
    measure("lookup", lookups, atoi(argv[3]), THOUSAND);
    measure("user", users, atoi(argv[4]), THOUSAND);
    exp_free(variants), exp_free(user), exp_free(client), exp_free(config);
}
