/*
 * Runs the cases of tests/conformance in C: `runner FILE…`. README.md has their format; calls.h
 * makes the calls of the library, mock.h those of the mock service. What comes of them is JSON, and
 * is compared with what the case expects.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdatomic.h>

#include "calls.h"
#include "mock.h"

/* Cases wait more than they work. */
enum { THREADS = 4 };

static const char *const WAY_NAMES[] = {"blocking", "callback", "completions"};
static const char *const LEVELS[] = {"", "error", "warn", "info", "debug"};
static const char CASE_FIELDS[] =
    " name why client server creation steps requests connections logs except ";
static const char STEP_FIELDS[] = " user options fetch begins_after_millis cancel_after_millis "
                                  "gets within_millis not_before_millis close sleep ";

/* One case, one way. */
typedef struct {
    const cJSON *test;
    way way;
    exp_client *client;
    cJSON *log;
    atomic_bool failed;
} run;

/* One step of it, or one of those made at once. */
typedef struct {
    run *run;
    const cJSON *act;
    pthread_t thread;
} step;

static cJSON *cases; /* those that are run */
static int excepted;
static atomic_int next_case, failures;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void expect(run *run, bool holds, const char *expected, const cJSON *came) {
    if (holds)
        return;
    char *text = cJSON_PrintUnformatted(came);
    printf("FAILED: %s: %s: expected %s, came %s\n", text_of(run->test, "name", "?"),
           WAY_NAMES[run->way], expected, text ? text : "nothing");
    free(text);
    run->failed = true;
}

static void check(run *run, const cJSON *expected, const cJSON *came) {
    char *text = cJSON_PrintUnformatted(expected);
    expect(run, is_as_expected(expected, came), text ? text : "anything", came);
    expect(run, !strstr(text_of(came, "message", ""), API_KEY), "no API key", came);
    free(text);
}

static void check_fields(run *run, const cJSON *object, const char *known) {
    const cJSON *field;
    char name[64];
    cJSON_ArrayForEach(field, object) {
        snprintf(name, sizeof name, " %s ", field->string);
        expect(run, strstr(known, name), known, object);
    }
}

static void note(void *user_data, exp_log_level level, const char *message, size_t length) {
    cJSON *line = cJSON_CreateObject();
    (void)length;
    add_text(line, "level", LEVELS[level]);
    add_text(line, "message", message);
    pthread_mutex_lock(&log_lock);
    cJSON_AddItemToArray(((run *)user_data)->log, line);
    pthread_mutex_unlock(&log_lock);
}

static void fetch(run *run, const cJSON *act) {
    cJSON *came = fetch_by(run->way, run->client, act);
    double took = number_of(came, "millis", -1);
    expect(run, took <= number_of(act, "within_millis", 5000), "it sooner", came);
    expect(run, took >= number_of(act, "not_before_millis", 0), "it later", came);
    check(run, get(act, "gets"), came);
    cJSON_Delete(came);
}

static void *take(void *data) {
    run *run = ((step *)data)->run;
    const cJSON *act = ((step *)data)->act;
    check_fields(run, act, STEP_FIELDS);
    sleep_millis(number_of(act, "begins_after_millis", 0) + number_of(act, "sleep", 0));
    if (get(act, "close"))
        exp_client_close(run->client, millis_of(get(act, "close")));
    else if (!get(act, "sleep"))
        fetch(run, act);
    return NULL;
}

/* A step, or several at once. */
static void take_all(run *run, const cJSON *acts) {
    int count = cJSON_IsArray(acts) ? cJSON_GetArraySize(acts) : 1;
    step *steps = calloc((size_t)count, sizeof *steps);
    for (int i = 0; i < count; i++) {
        steps[i] = (step){run, cJSON_IsArray(acts) ? cJSON_GetArrayItem(acts, i) : acts, 0};
        pthread_create(&steps[i].thread, NULL, take, &steps[i]);
    }
    for (int i = 0; i < count; i++)
        pthread_join(steps[i].thread, NULL);
    free(steps);
}

static void check_received(run *run, const cJSON *id) {
    cJSON *seen = ask("seen", id);
    const cJSON *came = get(seen, "requests")->child, *expected = get(run->test, "requests");
    double arrived = number_of(seen, "requests_total", 0), count = cJSON_GetArraySize(expected);
    double accepted = number_of(seen, "connections_accepted", 0);
    expect(run, !expected || arrived == count, "another number of requests", seen);
    expect(run, number_of(run->test, "connections", accepted) == accepted, "as many", seen);
    for (expected = expected ? expected->child : NULL; expected && came; came = came->next) {
        cJSON *request = came_as_request(came);
        check(run, expected, request);
        cJSON_Delete(request);
        expected = expected->next;
    }
    cJSON_Delete(seen);
}

static void check_log(run *run) {
    const cJSON *expected, *line;
    cJSON_ArrayForEach(expected, get(run->test, "logs")) {
        bool logged = false;
        cJSON_ArrayForEach(line, run->log) logged = logged || is_as_expected(expected, line);
        expect(run, logged, "a line in the log", expected);
    }
    cJSON_ArrayForEach(line, run->log) check(run, NULL, line);
}

static void play(run *run) {
    const cJSON *server = get(run->test, "server"), *creation = get(run->test, "creation"), *step;
    bool is_script = !cJSON_IsString(server);
    cJSON *played = ask(is_script ? "play" : server->valuestring, is_script ? server : NULL);
    cJSON *settings = settings_of(run->test, text_of(played, "url", "")), *error = NULL;
    run->client = make_client(settings, note, run, &error);
    expect(run, !run->client == !!creation, "a client, or none", error);
    check(run, creation, error);
    cJSON_ArrayForEach(step, get(run->test, "steps")) take_all(run, step);
    if (is_script)
        check_received(run, get(played, "id"));
    if (get(played, "id"))
        cJSON_Delete(ask("stop", get(played, "id")));
    exp_client_close(run->client, 5000), exp_free(run->client);
    check_log(run);
    cJSON_Delete(error), cJSON_Delete(settings), cJSON_Delete(played);
}

static void *work(void *unused) {
    const cJSON *test;
    while ((test = cJSON_GetArrayItem(cases, next_case++))) {
        bool failed = false;
        for (way way = BLOCKING; way < WAYS; way++) {
            run run = {test, way, NULL, cJSON_CreateArray(), false};
            check_fields(&run, run.test, CASE_FIELDS);
            play(&run);
            failed = failed || run.failed;
            cJSON_Delete(run.log);
        }
        failures += failed;
    }
    return unused;
}

/* Those of a file that are asked for and not excepted. */
static void add_cases(const char *path) {
    const char *only = getenv("CONFORMANCE_ONLY"), *reason;
    cJSON *test;
    cJSON_ArrayForEach(test, read_cases(path)) {
        if (only && !strstr(text_of(test, "name", ""), only))
            continue;
        if ((reason = text_of(get(test, "except"), "c", NULL)))
            excepted++, printf("excepted: %s: %s\n", text_of(test, "name", ""), reason);
        else
            cJSON_AddItemReferenceToArray(cases, test);
    }
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    open_mock();
    cases = cJSON_CreateArray();
    while (--argc)
        add_cases(*++argv);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int passed = cJSON_GetArraySize(cases) - failures;
    printf("conformance c: %d passed, %d failed, %d excepted\n", passed, failures, excepted);
    return failures || !passed;
}
