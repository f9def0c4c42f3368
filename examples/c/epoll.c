/*
 * Fetches the variants of many users in an event loop: one thread, no callback, no lock.
 *
 *     cc epoll.c -lexperiment -o epoll
 *     EXPERIMENT_API_KEY=… ./epoll USER_ID…
 *
 * EXPERIMENT_SERVER_URL is another service than Amplitude's, if there is one.
 */
#include <errno.h>
#include <experiment.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Prints what went wrong, and gives the error up. */
static void complain(const char *what, exp_status status, exp_error *error) {
    fprintf(stderr, "%s: %s: %s\n", what, exp_status_name(status), exp_error_message(error));
    exp_free(error);
}

static exp_client *open_client(void) {
    const char *api_key = getenv("EXPERIMENT_API_KEY");
    const char *server_url = getenv("EXPERIMENT_SERVER_URL");
    exp_client *client = NULL;
    exp_error *error = NULL;
    exp_config *config = exp_config_new();
    if (server_url)
        exp_config_set_server_url(config, server_url);
    exp_config_set_fetch_deadline_millis(config, 2000);
    exp_status status = exp_client_new(api_key ? api_key : "", config, &client, &error);
    if (status != EXP_OK)
        complain("no client", status, error);
    exp_free(config);
    return client;
}

/* Starts a fetch. What the completions will hand back is known by its user_data: the user's id. */
static int submit(exp_client *client, exp_completions *completions, char *user_id) {
    exp_error *error = NULL;
    exp_user *user = exp_user_new();
    exp_user_set_user_id(user, user_id);
    exp_status status = exp_fetch_v2_submit(client, user, NULL, completions, user_id, NULL, &error);
    exp_free(user);
    if (status != EXP_OK)
        complain(user_id, status, error);
    return status == EXP_OK;
}

/* A fetch is over: prints what it came to, and gives it up. */
static int finish(exp_pending *done) {
    const char *user_id = exp_pending_user_data(done);
    exp_variants *variants = NULL;
    exp_error *error = NULL;
    exp_status status = exp_pending_take(done, &variants, &error);
    if (status == EXP_OK)
        printf("%s %s\n", user_id, exp_variants_json(variants));
    else
        complain(user_id, status, error);
    exp_free(variants);
    exp_free(done);
    return status == EXP_OK;
}

int main(int argc, char **argv) {
    exp_client *client = open_client();
    exp_completions *completions = exp_completions_new();
    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = completions};
    if (!client || !completions || loop < 0)
        return EXIT_FAILURE;

    /* Its descriptor stands among all the others of the loop: readable while a fetch is over. */
    epoll_ctl(loop, EPOLL_CTL_ADD, exp_completions_fd(completions), &event);

    int running = 0, good = 0;
    for (int i = 1; i < argc; i++)
        running += submit(client, completions, argv[i]);

    while (running > 0) {
        exp_pending *done;
        if (epoll_wait(loop, &event, 1, -1) < 0 && errno != EINTR)
            return EXIT_FAILURE;
        while ((done = exp_completions_next(completions)) != NULL) {
            good += finish(done);
            running--;
        }
    }

    exp_client_close(client, 1000);
    exp_free(client);
    exp_free(completions);
    close(loop);
    return good == argc - 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
