/* Asynchronous fetches without callbacks: the queue of those that are over.
 * Arguments: URLs of a service; of one that never answers. */
#include "async.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static const char *service, *silent;

static int readable(exp_completions *completions, int timeout_millis) {
    struct pollfd poll_for = {.fd = exp_completions_fd(completions), .events = POLLIN};
    return poll(&poll_for, 1, timeout_millis) == 1 && (poll_for.revents & POLLIN);
}

/* Takes what a fetch that is over came to, which must be an answer of its own. */
static void take_good(exp_pending *pending) {
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    told *it = exp_pending_user_data(pending);
    OK(exp_pending_take(pending, &variants, &error));
    CHECK(error == NULL && variants != NULL);
    check_variants(variants, it->user);
    __sync_fetch_and_add(&it->times, 1);
    exp_free(variants);
    exp_free(error);
    exp_free(pending);
}

static void a_fetch_is_found_when_it_is_over_and_taken_once(void) {
    told it = {.completions = exp_completions_new()};
    exp_client *client = client_of(silent, 1);
    CHECK(exp_completions_next(it.completions) == NULL && !readable(it.completions, 0));
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_completions_wait(it.completions, 0));
    double began = now();
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_completions_wait(it.completions, 30));
    CHECK(now() - began >= 30);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_completions_wait(it.completions, 86400001));

    start(&it, client, NULL);
    exp_variants *variants = (exp_variants *)&it;
    exp_error *error = NULL;
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_pending_take(it.pending, &variants, &error));
    CHECK_MESSAGE("not finished", error);
    CHECK(variants == NULL);
    exp_free(error);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_pending_take(it.pending, NULL, NULL));
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_pending_wait(it.pending, 0));
    CHECK(!readable(it.completions, 0));
    until_metric(client, "experiment_connections_leased", 1);
    began = now();
    OK(exp_pending_cancel(it.pending));
    OK(exp_pending_wait(it.pending, SOON));
    OK(exp_completions_wait(it.completions, SOON));
    CHECK(readable(it.completions, 0));
    CHECK_BY(0, began);
    /* Level: it stays so until the queue is empty. */
    CHECK(readable(it.completions, 0));
    exp_pending *found = exp_completions_next(it.completions);
    CHECK(found != NULL && exp_pending_user_data(found) == &it);
    CHECK(!readable(it.completions, 0) && exp_completions_next(it.completions) == NULL);
    CHECK_STATUS(EXP_ERR_CANCELED, exp_pending_take(found, &variants, &error));
    CHECK_STATUS(EXP_ERR_CANCELED, exp_error_status(error));
    CHECK(variants == NULL);
    exp_free(error);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_pending_take(it.pending, &variants, &error));
    CHECK_MESSAGE("taken before", error);
    exp_free(error);
    exp_free(found);
    exp_free(it.completions);
    clear(&it);
    exp_free(client);
    until_no_threads();
}

static void they_are_found_in_the_order_in_which_they_ended_by_epoll_too(void) {
    enum { COUNT = 50 };
    static told all[COUNT];
    exp_completions *completions = exp_completions_new();
    exp_client *client = client_of(service, 1);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, exp_completions_fd(completions), &event) == 0);
    for (int i = 0; i < COUNT; i++) {
        all[i].completions = completions;
        start(&all[i], client, NULL);
        /* The queue has a reference of its own. */
        exp_free(all[i].pending);
    }
    for (int i = 0; i < COUNT;) {
        CHECK(epoll_wait(epoll, &event, 1, SOON) == 1);
        for (exp_pending *done; (done = exp_completions_next(completions)) != NULL; i++) {
            CHECK(exp_pending_user_data(done) == &all[i]);
            take_good(done);
        }
    }
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
    close(epoll);
    exp_free(completions);
    exp_free(client);
}

enum { DRAINED = 2000 };
static told drained[DRAINED];
static int left;

static void *drain(void *completions) {
    while (__sync_fetch_and_add(&left, 0) > 0) {
        exp_pending *done = exp_completions_next(completions);
        if (done) {
            take_good(done);
            __sync_fetch_and_sub(&left, 1);
        } else {
            exp_completions_wait(completions, 50);
        }
    }
    return NULL;
}

static void many_threads_drain_one_queue(void) {
    pthread_t threads[8];
    int count = left = valgrind() ? 200 : DRAINED;
    exp_completions *completions = exp_completions_new();
    exp_config *config = config_of(service, 4);
    OK(exp_config_set_max_pending_fetches(config, DRAINED));
    exp_client *client = client_with(config);
    for (int i = 0; i < 8; i++) {
        pthread_create(&threads[i], NULL, drain, completions);
    }
    for (int i = 0; i < count; i++) {
        drained[i].completions = completions;
        start(&drained[i], client, NULL);
        exp_free(drained[i].pending);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < count; i++) {
        CHECK(drained[i].times == 1);
    }
    CHECK(exp_completions_next(completions) == NULL && !readable(completions, 0));
    OK(exp_client_close(client, SOON));
    CHECK(our_threads() == 0);
    exp_free(client);
    exp_free(completions);
}

static void *wait_for_any(void *completions) {
    OK(exp_completions_wait(completions, SOON));
    return NULL;
}

/* Whoever waits sees that the queue is not empty, whoever then takes what is in it. */
static void all_who_wait_are_woken(void) {
    pthread_t threads[4];
    told it = {.completions = exp_completions_new()};
    exp_client *client = client_of(silent, 1);
    start(&it, client, NULL);
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, wait_for_any, it.completions);
    }
    nap();
    exp_free(client);
    OK(exp_pending_cancel(it.pending));
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    /* What is never taken goes with its queue. */
    exp_free(it.completions);
    clear(&it);
    until_no_threads();
}

static void who_is_freed_first_does_not_matter(void) {
    static told all[10];
    exp_completions *completions = exp_completions_new();
    exp_client *client = client_of(silent, 1);
    for (int i = 0; i < 10; i++) {
        all[i].completions = completions;
        start(&all[i], client, NULL);
    }
    until_metric(client, "experiment_connections_leased", 1);
    exp_free(client);
    for (int i = 1; i < 10; i++) {
        OK(exp_pending_wait(all[i].pending, SOON));
        exp_variants *variants = NULL;
        CHECK_STATUS(EXP_ERR_CLOSED, exp_pending_take(all[i].pending, &variants, NULL));
    }
    exp_free(completions);
    OK(exp_pending_cancel(all[0].pending));
    OK(exp_pending_wait(all[0].pending, SOON));
    for (int i = 0; i < 10; i++) {
        exp_free(all[i].pending);
    }
    until_no_threads();
}

static void in_a_forked_child_they_are_dead(void) {
    told over = {.completions = exp_completions_new()}, it = {.completions = over.completions};
    exp_client *client = client_of(silent, 1);
    start(&over, client, NULL);
    OK(exp_pending_cancel(over.pending));
    OK(exp_pending_wait(over.pending, SOON));
    start(&it, client, NULL);
    until_metric(client, "experiment_connections_leased", 1);
    pid_t child = fork();
    if (child == 0) {
        alarm(SOON / 1000);
        exp_variants *variants = NULL;
        CHECK(exp_completions_next(it.completions) == NULL);
        CHECK_STATUS(EXP_ERR_CANCELED, exp_completions_wait(it.completions, EXP_NO_LIMIT));
        CHECK_STATUS(EXP_ERR_CANCELED, exp_pending_wait(it.pending, EXP_NO_LIMIT));
        CHECK_STATUS(EXP_ERR_CANCELED, exp_pending_take(it.pending, &variants, NULL));
        CHECK_STATUS(EXP_ERR_CANCELED, exp_pending_take(over.pending, &variants, NULL));
        OK(exp_pending_cancel(it.pending));
        CHECK(exp_pending_user_data(it.pending) == &it);
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                     exp_fetch_v2_submit(client, NULL, NULL, it.completions, NULL, NULL, NULL));
        exp_free(it.pending);
        exp_free(over.pending);
        exp_free(it.completions);
        OK(exp_client_close(client, EXP_NO_LIMIT));
        exp_free(client);
        _exit(failures != 0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && child_is_good(status));
    /* The parent has noticed nothing. */
    CHECK_STATUS(EXP_ERR_TIMEOUT, exp_pending_wait(it.pending, 0));
    exp_free(exp_completions_next(it.completions));
    OK(exp_pending_cancel(it.pending));
    OK(exp_pending_wait(it.pending, SOON));
    exp_free(it.completions);
    clear(&it);
    clear(&over);
    OK(exp_client_close(client, SOON));
    exp_free(client);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: completions SERVICE SILENT\n");
        return 2;
    }
    service = argv[1], silent = argv[2];
    CHECK(exp_completions_next(NULL) == NULL && exp_completions_fd(NULL) == -1);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_completions_wait(NULL, 0));
    a_fetch_is_found_when_it_is_over_and_taken_once();
    they_are_found_in_the_order_in_which_they_ended_by_epoll_too();
    many_threads_drain_one_queue();
    all_who_wait_are_woken();
    who_is_freed_first_does_not_matter();
    in_a_forked_child_they_are_dead();
    return report("completions");
}
