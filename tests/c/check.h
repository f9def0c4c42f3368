/* What the C tests share. Failures are printed and counted; the exit status is 1 if there are any.
 */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "experiment.h"

static int failures;
static int checks;

/* `what` is what was found, for the message. */
#define CHECK_THAT(condition, what)                                                                \
    do {                                                                                           \
        __sync_fetch_and_add(&checks, 1);                                                          \
        if (!(condition)) {                                                                        \
            __sync_fetch_and_add(&failures, 1);                                                    \
            printf("%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, what);              \
        }                                                                                          \
    } while (0)

#define CHECK(condition) CHECK_THAT(condition, "")

#define OK(call) CHECK_STATUS(EXP_OK, call)

#define CHECK_STATUS(expected, call)                                                               \
    do {                                                                                           \
        int32_t found_ = (int32_t)(call);                                                          \
        __sync_fetch_and_add(&checks, 1);                                                          \
        if (found_ != (int32_t)(expected)) {                                                       \
            __sync_fetch_and_add(&failures, 1);                                                    \
            printf("%s:%d: %s is %s, not %s\n", __FILE__, __LINE__, #call,                         \
                   exp_status_name(found_), exp_status_name(expected));                            \
        }                                                                                          \
    } while (0)

#define CHECK_TEXT(expected, call)                                                                 \
    do {                                                                                           \
        const char *wanted = (expected), *found = (call);                                          \
        CHECK_THAT((wanted) && found ? !strcmp(wanted, found) : wanted == found,                   \
                   found ? found : "NULL");                                                        \
    } while (0)

/* The message of an error contains these words. */
#define CHECK_MESSAGE(words, error)                                                                \
    do {                                                                                           \
        const char *message_ = exp_error_message(error);                                           \
        CHECK_THAT((message_) && strstr(message_, words), message_ ? message_ : "NULL");           \
        CHECK(!message_ || strlen(message_) == exp_error_message_length(error));                   \
    } while (0)

static int report(const char *name) {
    printf("%s: %d checks, %d failures\n", name, checks, failures);
    return failures != 0;
}

#endif
