/*
 * Fetches one user's variants and prints them as a table.
 *
 *     cc fetch.c -lexperiment -o fetch
 *     EXPERIMENT_API_KEY=… ./fetch USER_ID [TIMEOUT_MILLIS]
 *
 * EXPERIMENT_SERVER_URL is another service than Amplitude's, if there is one.
 */
#include <experiment.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_millis(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Prints what went wrong, and gives the error up. */
static void complain(const char *what, exp_status status, exp_error *error) {
    fprintf(stderr, "%s: %s: %s\n", what, exp_status_name(status), exp_error_message(error));
    exp_free(error);
}

/* One client for the whole program: every thread may fetch with it. NULL if it cannot be made. */
static exp_client *open_client(const char *timeout_millis) {
    const char *api_key = getenv("EXPERIMENT_API_KEY");
    const char *server_url = getenv("EXPERIMENT_SERVER_URL");
    exp_client *client = NULL;
    exp_error *error = NULL;

    /* A setter that refuses its value is remembered: exp_client_new fails with its message. */
    exp_config *config = exp_config_new();
    if (server_url)
        exp_config_set_server_url(config, server_url);
    if (timeout_millis)
        exp_config_set_fetch_timeout_millis(config, strtoull(timeout_millis, NULL, 10));

    exp_status status = exp_client_new(api_key ? api_key : "", config, &client, &error);
    if (status != EXP_OK)
        complain("no client", status, error);
    exp_free(config);
    return client;
}

/* What is absent comes as NULL. */
static const char *or_dash(const char *text) { return text ? text : "-"; }

static void print_variants(const exp_variants *variants) {
    printf("%-16s %-8s %-8s %s\n", "FLAG", "KEY", "VALUE", "PAYLOAD");
    for (size_t i = 0; i < exp_variants_count(variants); i++) {
        const exp_variant *variant = exp_variants_at(variants, i);
        printf("%-16s %-8s %-8s %s\n", exp_variant_flag_key(variant),
               or_dash(exp_variant_key(variant)), or_dash(exp_variant_value(variant)),
               or_dash(exp_variant_payload_json(variant)));
    }
}

static int fetch_and_print(exp_client *client, const char *user_id) {
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    exp_user *user = exp_user_new();
    exp_user_set_user_id(user, user_id);

    double began = now_millis();
    exp_status status = exp_fetch_v2(client, user, NULL, &variants, &error);
    double elapsed = now_millis() - began;

    if (status == EXP_OK)
        print_variants(variants);
    else
        complain(user_id, status, error);
    printf("came back after %.1f ms\n", elapsed);

    exp_free(variants);
    exp_free(user);
    return status == EXP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s USER_ID [TIMEOUT_MILLIS]\n", argv[0]);
        return EXIT_FAILURE;
    }
    exp_client *client = open_client(argc > 2 ? argv[2] : NULL);
    if (!client)
        return EXIT_FAILURE;

    int result = fetch_and_print(client, argv[1]);

    exp_client_close(client, 1000);
    exp_free(client);
    return result;
}
