/* Defects of a host, to see that they are found: packaging/check-sanitizer. Argument: which. */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "experiment.h"

static exp_user *volatile user;

/* The library reads what was freed. */
static void use_after_free(void) {
    exp_free(user);
    exp_user_set_user_id(user, "user");
}

/* The library reads more than there is. */
static void overflow(void) {
    char *text = malloc(20);
    memset(text, 'x', 20);
    exp_user_set_user_id_n(user, text, 40);
    free(text);
}

static void leak(void) { user = NULL; }

static void undefined(void) {
    volatile int most = INT_MAX;
    most = most + 1;
}

static void *set(void *unused) {
    for (int i = 0; i < 1000; i++) {
        exp_user_set_user_id(user, i % 2 ? "user" : "another user");
    }
    return unused;
}

/* Two threads in a setter of one object. */
static void race(void) {
    pthread_t other;
    pthread_create(&other, NULL, set, NULL);
    set(NULL);
    pthread_join(other, NULL);
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    user = exp_user_new();
    if (!strcmp(which, "use-after-free")) {
        use_after_free();
        return 0;
    } else if (!strcmp(which, "overflow")) {
        overflow();
    } else if (!strcmp(which, "leak")) {
        leak();
    } else if (!strcmp(which, "undefined")) {
        undefined();
    } else if (!strcmp(which, "race")) {
        race();
    }
    exp_free(user);
    return 0;
}
