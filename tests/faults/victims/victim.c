/*
 * Fetches as it is told, in C: `victim blocking` or `victim callback`. Orders are read from
 * standard input, JSON by the line, and each is answered by a line; see ../README.md.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <signal.h>

#include "../../conformance/calls.h"

static void shrug(int number) { (void)number; }

/* Has SIGALRM do nothing but interrupt whatever the thread waits in. */
static void expect_alarms(bool restart) {
    struct sigaction action = {0};
    action.sa_handler = shrug;
    action.sa_flags = restart ? SA_RESTART : 0;
    sigaction(SIGALRM, &action, NULL);
}

static exp_client *client;

/* One of several fetches at once: what it came to. */
static void *fetch_user(void *act) { return fetch_by(BLOCKING, client, act); }

/* Fetches for all of these users at once; how many came to variants. */
static cJSON *fetch_at_once(const cJSON *users) {
    enum { MOST = 16 };
    pthread_t threads[MOST];
    cJSON *acts[MOST], *came = cJSON_CreateObject();
    int count = cJSON_GetArraySize(users), well = 0;
    if (count > MOST)
        give_up("too many at once", "users");
    for (int i = 0; i < count; i++) {
        acts[i] = cJSON_CreateObject();
        cJSON_AddItemToObject(acts[i], "user", cJSON_Duplicate(cJSON_GetArrayItem(users, i), true));
        pthread_create(&threads[i], NULL, fetch_user, acts[i]);
    }
    for (int i = 0; i < count; i++) {
        void *one;
        pthread_join(threads[i], &one);
        well += get(one, "variants") != NULL;
        cJSON_Delete(one), cJSON_Delete(acts[i]);
    }
    cJSON_AddNumberToObject(came, "well", well);
    return came;
}

static cJSON *obey(way way, const cJSON *order) {
    const cJSON *settings = get(order, "client");
    cJSON *came = NULL;
    if (settings)
        client = make_client(settings, NULL, NULL, &came);
    else if (get(order, "user"))
        came = fetch_by(way, client, order);
    else if (get(order, "users"))
        came = fetch_at_once(get(order, "users"));
    else if (get(order, "close"))
        exp_client_close(client, 10000), exp_free(client);
    else
        give_up("an order that is none", text_of(order, "order", "?"));
    return came ? came : cJSON_CreateObject();
}

int main(int argc, char **argv) {
    way way = argc > 1 && !strcmp(argv[1], "callback") ? CALLBACK : BLOCKING;
    const char *alarms = getenv("FAULTS_ALARMS");
    char *line = NULL;
    size_t size = 0;
    if (alarms)
        expect_alarms(!strcmp(alarms, "restart"));
    for (;;) {
        if (getline(&line, &size, stdin) <= 0) {
            if (feof(stdin) || errno != EINTR)
                return 0;
            clearerr(stdin); /* an alarm */
            continue;
        }
        cJSON *order = cJSON_Parse(line), *came = obey(way, order);
        char *answer = cJSON_PrintUnformatted(came);
        puts(answer);
        fflush(stdout);
        free(answer), cJSON_Delete(came), cJSON_Delete(order);
    }
}
