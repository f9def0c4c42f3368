/* Numbers of descriptors: those that were the library's and are the host's by now, and those that
 * are the host's even while they are closed. Arguments: URLs of a service; of one that never
 * answers. */
#include "async.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static const char *service, *silent;

static int is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static int fetch_own(exp_client *client, const char *name) {
    exp_user *user = exp_user_new();
    exp_user_set_user_id(user, name);
    exp_variants *variants = NULL;
    exp_status status = exp_fetch_v2(client, user, NULL, &variants, NULL);
    if (status == EXP_OK) {
        check_variants(variants, name);
    }
    exp_free(user);
    exp_free(variants);
    return status;
}

static void *warm(void *client) {
    OK(fetch_own(client, "warm"));
    return NULL;
}

/* Opens as many connections as the pool has, and keeps them. */
static void warm_up(exp_client *client, int connections) {
    pthread_t threads[8];
    while (metric(client, "experiment_connections_idle") < connections) {
        for (int i = 0; i < connections; i++) {
            pthread_create(&threads[i], NULL, warm, client);
        }
        for (int i = 0; i < connections; i++) {
            pthread_join(threads[i], NULL);
        }
    }
}

/* Each number from 3 on is the host's: a file, an eventfd or a socket. */
enum { FIRST = 3, LAST = 100, COUNT = 7 };

static void take_all_numbers(void) {
    for (int fd = FIRST; fd < 1024; fd++) {
        close(fd);
    }
    for (int fd = FIRST; fd <= LAST; fd++) {
        int made = -1, pair[2];
        switch (fd % 3) {
        case 0: {
            char path[] = "/tmp/experiment-XXXXXX";
            made = mkstemp(path);
            CHECK(made < 0 || (unlink(path) == 0 && write(made, "mine", 4) == 4));
            break;
        }
        case 1:
            made = eventfd(COUNT, EFD_NONBLOCK);
            break;
        default:
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0) {
                /* The other end stands further up, out of the way. */
                CHECK(dup2(pair[1], 200 + fd) == 200 + fd && close(pair[1]) == 0);
                CHECK(write(200 + fd, "mine", 4) == 4);
                made = pair[0];
            }
        }
        CHECK(made == fd);
    }
}

static void check_all_numbers(void) {
    for (int fd = FIRST; fd <= LAST; fd++) {
        char what[8] = "", where[24];
        uint64_t count = 0;
        snprintf(where, sizeof where, "descriptor %d", fd);
        switch (fd % 3) {
        case 0:
            CHECK_THAT(write(fd, "!", 1) == 1 && pread(fd, what, 8, 0) == 5, where);
            CHECK_THAT(!strcmp(what, "mine!"), where);
            break;
        case 1:
            CHECK_THAT(read(fd, &count, 8) == 8 && count == COUNT, where);
            break;
        default:
            CHECK_THAT(read(fd, what, 8) == 4 && !strcmp(what, "mine"), where);
            CHECK_THAT(write(fd, "!", 1) == 1 && read(200 + fd, what, 8) == 1, where);
        }
    }
}

static void in_child(void (*run)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SOON / 1000);
        failures = 0;
        run();
        fflush(stdout);
        _exit(failures != 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK(child_is_good(status));
}

static exp_client *client, *stuck;
static exp_completions *completions, *unused;
static exp_cancel *cancel;
static exp_pending *pending[4];

static void free_all(void) {
    exp_cancel_fire(cancel);
    for (int i = 0; i < 4; i++) {
        OK(exp_pending_cancel(pending[i]));
        exp_free(pending[i]);
    }
    CHECK(exp_completions_next(completions) == NULL);
    exp_free(completions);
    exp_free(unused);
    exp_free(cancel);
    exp_free(stuck);
    exp_free(client);
}

static void fetches_and_frees(void) {
    take_all_numbers();
    OK(fetch_own(client, "child"));
    OK(fetch_own(client, "child"));
    OK(exp_client_close(stuck, 0));
    free_all();
    check_all_numbers();
}

static void frees_only(void) {
    take_all_numbers();
    free_all();
    check_all_numbers();
}

static void closes_only(void) {
    take_all_numbers();
    OK(exp_client_close(client, SOON));
    OK(exp_client_close(stuck, SOON));
    free_all();
    check_all_numbers();
}

static int open_numbers(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += is_open(fd);
    }
    return count;
}

static void leaves_no_socket_of_its_parent_open(void) {
    int sockets = 0, kind;
    OK(exp_client_close(stuck, SOON));
    OK(fetch_own(client, "child"));
    for (int fd = 0; fd < 1024; fd++) {
        socklen_t length = sizeof kind;
        sockets += getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &length) == 0;
    }
    CHECK(sockets == 1 || valgrind());
    int before = open_numbers();
    OK(exp_client_close(client, SOON));
    CHECK(open_numbers() == before - 2);
}

static void a_child_leaves_alone_what_got_our_numbers(void) {
    client = client_of(service, 4);
    stuck = client_of(silent, 2);
    completions = exp_completions_new();
    unused = exp_completions_new();
    cancel = exp_cancel_new();
    exp_fetch_options *options = exp_fetch_options_new();
    OK(exp_fetch_options_set_cancel(options, cancel));
    warm_up(client, 4);
    for (int i = 0; i < 4; i++) {
        OK(exp_fetch_v2_submit(stuck, NULL, options, completions, NULL, &pending[i], NULL));
    }
    exp_free(options);
    until_metric(stuck, "experiment_connections_leased", 2);
    in_child(fetches_and_frees);
    in_child(frees_only);
    in_child(closes_only);
    in_child(leaves_no_socket_of_its_parent_open);
    /* The parent has noticed nothing. */
    OK(fetch_own(client, "parent"));
    CHECK(metric(client, "experiment_connections_idle") == 4);
    CHECK(exp_completions_next(completions) == NULL);
    exp_cancel_fire(cancel);
    for (int i = 0; i < 4; i++) {
        exp_variants *none = NULL;
        OK(exp_pending_wait(pending[i], SOON));
        CHECK_STATUS(EXP_ERR_CANCELED, exp_pending_take(pending[i], &none, NULL));
    }
    for (exp_pending *next; (next = exp_completions_next(completions)) != NULL;) {
        exp_free(next);
    }
    free_all();
}

/* A child polls no descriptor of its parent's. */
static void inherited_completions_have_no_descriptor(void) {
    CHECK(exp_completions_fd(completions) == -1);
    CHECK_STATUS(EXP_ERR_CANCELED, exp_completions_wait(completions, 0));
}

static void a_child_is_given_no_descriptor_of_its_parents(void) {
    completions = exp_completions_new();
    CHECK(exp_completions_fd(completions) > 2);
    in_child(inherited_completions_have_no_descriptor);
    exp_free(completions);
}

static void uses_everything_without_standard_streams(void) {
    exp_completions *own = exp_completions_new();
    CHECK(exp_completions_fd(own) > 2);
    client = client_of(service, 4);
    warm_up(client, 4);
    exp_pending *done = NULL;
    OK(exp_fetch_v2_submit(client, NULL, NULL, own, NULL, NULL, NULL));
    OK(exp_completions_wait(own, SOON));
    exp_free(done = exp_completions_next(own));
    CHECK(done != NULL);
    for (int fd = 0; fd <= 2; fd++) {
        CHECK(!is_open(fd));
    }
    OK(exp_client_close(client, SOON));
    exp_free(client);
    exp_free(own);
}

static int report_to;

static void with_standard_streams_closed(void) {
    report_to = fcntl(1, F_DUPFD, 10);
    for (int fd = 0; fd <= 2; fd++) {
        close(fd);
    }
    uses_everything_without_standard_streams();
    dup2(report_to, 1);
}

static void nothing_of_ours_is_standard_input_output_or_error(void) {
    in_child(with_standard_streams_closed);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: numbers SERVICE SILENT\n");
        return 2;
    }
    service = argv[1], silent = argv[2];
    a_child_leaves_alone_what_got_our_numbers();
    a_child_is_given_no_descriptor_of_its_parents();
    nothing_of_ours_is_standard_input_output_or_error();
    return report("numbers");
}
