/* The library as the cases speak of it: what goes in and what comes out is JSON. */
#ifndef CALLS_H
#define CALLS_H

#include <experiment.h>
#include <pthread.h>
#include <time.h>

#include "json.h"

#define API_KEY "conformance-key"
enum { MOST_BYTES = 1 << 20 };

static uint64_t millis_of(const cJSON *value) {
    return cJSON_IsString(value) ? EXP_NO_LIMIT : (uint64_t)value->valuedouble;
}

/* A value that the library refuses fails exp_client_new. */
static void set(exp_config *config, const cJSON *value) {
#define SETTING(name, argument)                                                                    \
    if (!strcmp(value->string, #name) && !cJSON_IsNull(value)) {                                   \
        exp_config_set_##name(config, argument);                                                   \
        return;                                                                                    \
    }
    SETTING(server_url, value->valuestring)
    SETTING(server_zone, strcmp(value->valuestring, "EU") ? EXP_ZONE_US : EXP_ZONE_EU)
    SETTING(fetch_timeout_millis, millis_of(value))
    SETTING(fetch_pool_acquire_timeout_millis, millis_of(value))
    SETTING(fetch_retries, (uint32_t)value->valuedouble)
    SETTING(fetch_retry_timeout_millis, millis_of(value))
    SETTING(fetch_retry_backoff_min_millis, millis_of(value))
    SETTING(fetch_retry_backoff_max_millis, millis_of(value))
    SETTING(fetch_retry_backoff_scalar, value->valuedouble)
    SETTING(fetch_retry_jitter, cJSON_IsTrue(value))
    SETTING(fetch_retry_budget_percent, (uint32_t)value->valuedouble)
    SETTING(fetch_deadline_millis, millis_of(value))
    SETTING(connection_pool_max_size, (uint32_t)value->valuedouble)
    SETTING(connection_idle_timeout_millis, millis_of(value))
    SETTING(connection_max_lifetime_millis, millis_of(value))
    SETTING(max_pending_fetches, (uint32_t)value->valuedouble)
    SETTING(max_response_bytes, (uint64_t)value->valuedouble)
    SETTING(ca_file, value->valuestring)
    SETTING(proxy_url, value->valuestring)
    SETTING(use_environment_proxy, cJSON_IsTrue(value))
    SETTING(library, value->valuestring)
#undef SETTING
    if (strcmp(value->string, "api_key") && !cJSON_IsNull(value))
        give_up("an unknown setting", value->string);
}

static void choose(exp_fetch_options *options, const cJSON *value) {
    const cJSON *key;
    if (!strcmp(value->string, "tracks_assignment"))
        exp_fetch_options_set_tracks_assignment(options, cJSON_IsTrue(value));
    else if (!strcmp(value->string, "tracks_exposure"))
        exp_fetch_options_set_tracks_exposure(options, cJSON_IsTrue(value));
    else if (!strcmp(value->string, "deadline_millis"))
        exp_fetch_options_set_deadline_millis(options, millis_of(value));
    else if (!strcmp(value->string, "flag_keys"))
        cJSON_ArrayForEach(key, value) exp_fetch_options_add_flag_key(options, key->valuestring);
    else
        give_up("an unknown option", value->string);
}

static cJSON *came_as_variants(const exp_variants *variants) {
    cJSON *came = cJSON_CreateObject(), *flags = cJSON_AddObjectToObject(came, "variants");
    for (size_t i = 0; i < exp_variants_count(variants); i++) {
        const exp_variant *variant = exp_variants_at(variants, i);
        cJSON *flag = cJSON_AddObjectToObject(flags, exp_variant_flag_key(variant));
        add_text(flag, "key", exp_variant_key(variant));
        add_text(flag, "value", exp_variant_value(variant));
        add_json(flag, "payload", exp_variant_payload_json(variant));
        add_json(flag, "metadata", exp_variant_metadata_json(variant));
    }
    cJSON_AddNumberToObject(came, "attempts", exp_variants_attempts(variants));
    return came;
}

static cJSON *came_as_error(const exp_error *error) {
    static const char *const phases[] = {"none", "pool",       "resolve", "connect", "tls",
                                         "send", "first_byte", "body",    "backoff"};
    cJSON *came = cJSON_CreateObject();
    add_text(came, "error", exp_status_name(exp_error_status(error)));
    cJSON_AddBoolToObject(came, "retryable", exp_error_is_retryable(error));
    cJSON_AddNumberToObject(came, "attempts", exp_error_attempts(error));
    cJSON_AddNumberToObject(came, "http_status", exp_error_http_status(error));
    cJSON_AddNumberToObject(came, "retry_after_millis",
                            (double)exp_error_retry_after_millis(error));
    add_text(came, "phase", phases[exp_error_phase(error) + 1]);
    add_text(came, "message", exp_error_message(error));
    return came;
}

/* All cases of a file, for good. */
static cJSON *read_cases(const char *path) {
    char library[64], *text = calloc(MOST_BYTES + 1, 1), *with_library;
    FILE *file = fopen(path, "rb");
    size_t length = file ? fread(text, 1, MOST_BYTES, file) : 0;
    snprintf(library, sizeof library, "libexperiment/%s", exp_version());
    with_library = replaced(text, "{library}", library);
    cJSON *cases = cJSON_Parse(with_library);
    if (!length || !cases)
        give_up("no cases in", path);
    free(text), free(with_library), fclose(file);
    return cases;
}

/* The settings of a case, for a server at this URL; the caller deletes them. */
static cJSON *settings_of(const cJSON *test, const char *url) {
    const char *host = url + strlen("http://"), *port = strrchr(url, ':') + 1;
    char *given = cJSON_PrintUnformatted(get(test, "client"));
    char *with_url = replaced(given ? given : "{}", "{url}", url);
    char *with_host = replaced(with_url, "{host}", host);
    char *with_port = replaced(with_host, "{port}", port);
    cJSON *settings = cJSON_Parse(with_port);
    if (!get(settings, "server_url"))
        cJSON_AddStringToObject(settings, "server_url", url);
    free(given), free(with_url), free(with_host), free(with_port);
    return settings;
}

/* A client with these settings, which logs to `log`; NULL and what came instead if it is refused.
 */
static exp_client *make_client(const cJSON *settings, exp_log_callback log, void *log_data,
                               cJSON **came) {
    exp_client *client = NULL;
    exp_error *error = NULL;
    const cJSON *setting;
    exp_config *config = exp_config_new();
    exp_config_set_use_environment_proxy(config, EXP_FALSE);
    exp_config_set_log_callback(config, log, log_data, NULL, EXP_LOG_DEBUG);
    cJSON_ArrayForEach(setting, settings) set(config, setting);
    if (exp_client_new(text_of(settings, "api_key", API_KEY), config, &client, &error) != EXP_OK)
        *came = came_as_error(error);
    exp_free(error), exp_free(config);
    return client;
}

typedef enum { BLOCKING, CALLBACK, COMPLETIONS, WAYS } way;

typedef struct {
    exp_status status;
    exp_variants *variants;
    exp_error *error;
} outcome;

static void told(void *user_data, exp_status status, const exp_variants *variants,
                 const exp_error *error) {
    *(outcome *)user_data =
        (outcome){status, exp_variants_retain(variants), exp_error_retain(error)};
}

static outcome outcome_of(way way, exp_client *client, const exp_user *user,
                          const exp_fetch_options *options) {
    outcome out = {EXP_OK, NULL, NULL}, started = out;
    exp_pending *pending = NULL;
    exp_completions *queue = exp_completions_new();
    if (way == BLOCKING) {
        out.status = exp_fetch_v2(client, user, options, &out.variants, &out.error);
    } else if (way == CALLBACK) {
        started.status =
            exp_fetch_v2_async(client, user, options, told, &out, &pending, &started.error);
        if (started.status == EXP_OK)
            exp_pending_wait(pending, EXP_NO_LIMIT);
    } else {
        started.status =
            exp_fetch_v2_submit(client, user, options, queue, NULL, &pending, &started.error);
        if (started.status == EXP_OK) {
            exp_completions_wait(queue, EXP_NO_LIMIT);
            exp_free(exp_completions_next(queue));
            out.status = exp_pending_take(pending, &out.variants, &out.error);
        }
    }
    exp_free(pending), exp_free(queue);
    return started.status == EXP_OK ? out : started;
}

static void sleep_millis(double millis) {
    struct timespec time = {(time_t)(millis / 1e3), (long)millis % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static double now_millis(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

typedef struct {
    exp_cancel *cancel;
    double after_millis;
} cancellation;

static void *cancel_later(void *data) {
    cancellation *later = data;
    sleep_millis(later->after_millis);
    exp_cancel_fire(later->cancel);
    return NULL;
}

/* What the fetch of a step came to, and after how long. */
static cJSON *fetch_by(way way, exp_client *client, const cJSON *act) {
    char *json = cJSON_PrintUnformatted(get(act, "user"));
    exp_user *user = NULL;
    exp_fetch_options *options = exp_fetch_options_new();
    exp_variants *deployed = NULL;
    cancellation later = {exp_cancel_new(), number_of(act, "cancel_after_millis", -1)};
    pthread_t canceler;
    const cJSON *option;
    if (json)
        exp_user_from_json(json, &user, NULL);
    cJSON_ArrayForEach(option, get(act, "options")) choose(options, option);
    exp_fetch_options_set_cancel(options, later.cancel);
    if (later.after_millis >= 0)
        pthread_create(&canceler, NULL, cancel_later, &later);

    double began = now_millis();
    outcome out = outcome_of(way, client, user, options);
    double took = now_millis() - began;
    if (!strcmp(text_of(act, "fetch", "v2"), "deployed"))
        exp_variants_filter_deployed(out.variants, &deployed, NULL);
    cJSON *came = out.status != EXP_OK ? came_as_error(out.error)
                                       : came_as_variants(deployed ? deployed : out.variants);
    cJSON_AddNumberToObject(came, "millis", took);
    if (later.after_millis >= 0)
        pthread_join(canceler, NULL);
    exp_free(deployed), exp_free(out.variants), exp_free(out.error), exp_free(later.cancel);
    exp_free(user), exp_free(options), free(json);
    return came;
}

#endif
