/* The mock service: its output is descriptor 3, its input descriptor 4; tests/mock/README.md. */
#ifndef MOCK_H
#define MOCK_H

#include <pthread.h>

#include "json.h"

static FILE *orders, *answers;

static void open_mock(void) {
    answers = fdopen(3, "r"), orders = fdopen(4, "w");
    if (!answers || !orders)
        give_up("descriptors 3 and 4", "not open");
    while (getc(answers) > '\n') /* where the service is that the mock begins with */
        ;
}

/* Gives the mock service an order, and returns its answer. Any thread. */
static cJSON *ask(const char *order, const cJSON *argument) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char *line;
    static size_t size;
    char *text = cJSON_PrintUnformatted(argument);
    pthread_mutex_lock(&lock);
    fprintf(orders, "{\"%s\":%s}\n", order, text ? text : "{}");
    fflush(orders);
    cJSON *answer = getline(&line, &size, answers) > 0 ? cJSON_Parse(line) : NULL;
    if (!answer || get(answer, "error"))
        give_up("the mock service refuses", order);
    pthread_mutex_unlock(&lock);
    free(text);
    return answer;
}

static cJSON *came_as_request(const cJSON *request) {
    cJSON *came = cJSON_CreateObject(), *headers = cJSON_AddObjectToObject(came, "headers");
    const cJSON *pair;
    cJSON_ArrayForEach(pair, get(request, "headers")) {
        const char *name = pair->child->valuestring;
        add_text(headers, name, pair->child->next->valuestring);
    }
    add_text(came, "method", text_of(request, "method", NULL));
    add_text(came, "path", text_of(request, "path", NULL));
    add_json(came, "body", text_of(request, "body", NULL));
    return came;
}

#endif
