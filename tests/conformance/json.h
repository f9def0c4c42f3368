/* What the runner needs of JSON beside cJSON. */
#ifndef JSON_H
#define JSON_H

#include <cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void give_up(const char *why, const char *what) {
    fprintf(stderr, "%s: %s\n", why, what);
    exit(EXIT_FAILURE);
}

static const cJSON *get(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static double number_of(const cJSON *object, const char *name, double if_absent) {
    const cJSON *value = get(object, name);
    return value ? value->valuedouble : if_absent;
}

static const char *text_of(const cJSON *object, const char *name, const char *if_absent) {
    const cJSON *value = get(object, name);
    return cJSON_IsString(value) ? value->valuestring : if_absent;
}

/* The text with everything that is `what` replaced; the caller frees it. */
static char *replaced(const char *text, const char *what, const char *with) {
    char *out = calloc(strlen(text) * (strlen(with) + 1) + 1, 1), *end = out;
    while (*text) {
        if (strncmp(text, what, strlen(what))) {
            *end++ = *text++;
        } else {
            end = stpcpy(end, with);
            text += strlen(what);
        }
    }
    return out;
}

/* Whether every field is as expected; one that nobody knows never is. Names are in any case, as
 * those of headers. */
static bool is_as_expected(const cJSON *expected, const cJSON *came) {
    const cJSON *field, *part;
    cJSON_ArrayForEach(field, expected) {
        const cJSON *found = cJSON_GetObjectItem(came, field->string);
        if (cJSON_IsArray(field) && cJSON_IsString(found)) {
            cJSON_ArrayForEach(part, field) {
                if (!strstr(found->valuestring, part->valuestring))
                    return false;
            }
        } else if (!strcmp(field->string, "headers")) {
            if (!is_as_expected(field, found))
                return false;
        } else if (cJSON_IsNull(field) ? found != NULL : !cJSON_Compare(field, found, true)) {
            return false;
        }
    }
    return true;
}

static void add_text(cJSON *object, const char *name, const char *text) {
    if (text)
        cJSON_AddStringToObject(object, name, text);
}

static void add_json(cJSON *object, const char *name, const char *json) {
    if (json)
        cJSON_AddItemToObject(object, name, cJSON_Parse(json));
}

#endif
