/* What the programs in C have in common that measure: a client, a user, the clock, and how they
 * give up. To be included first. */
#ifndef DRIVER_H
#define DRIVER_H

#define _GNU_SOURCE
#include <errno.h>
#include <experiment.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(EXIT_FAILURE);
}

/* In seconds. */
static inline double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* For qsort. */
static inline int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Frees the settings. */
static inline exp_client *new_client(exp_config *config) {
    exp_client *client = NULL;
    exp_error *error = NULL;
    if (exp_client_new("key", config, &client, &error) != EXP_OK)
        fail(exp_error_message(error));
    exp_free(config);
    return client;
}

static inline exp_user *new_user(void) {
    exp_user *user = exp_user_new();
    exp_user_set_user_id(user, "user-1234");
    exp_user_set_device_id(user, "device-5678");
    return user;
}

static inline exp_variants *fetch_for(exp_client *client, const exp_user *user) {
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    if (exp_fetch_v2(client, user, NULL, &variants, &error) != EXP_OK)
        fail(exp_error_message(error));
    return variants;
}

#endif
