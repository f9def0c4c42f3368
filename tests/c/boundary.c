/* The boundary without a network: NULL and objects of the wrong kind wherever an object goes, bad
 * text wherever text goes, each setting at its limits and beyond, outs on every path. */
#include "check.h"

enum { CONFIG, USER, OPTIONS, CANCEL, CLIENT, VARIANTS, ERROR, BORROWED_ERROR, TEXT, KINDS };

static void *objects[KINDS];
static const char *const kinds[KINDS] = {
    "exp_config",   "exp_user",  "exp_fetch_options", "exp_cancel", "exp_client",
    "exp_variants", "exp_error", "exp_error",         "exp_text",
};

/* An out before a call: neither NULL nor an object. */
static char garbage;
#define GARBAGE ((void *)&garbage)

static exp_variants *empty_set(void) {
    exp_variants *set = GARBAGE;
    exp_error *error = GARBAGE;
    OK(exp_variants_filter_deployed(NULL, &set, &error));
    CHECK(set != NULL && error == NULL);
    return set;
}

static exp_client *client_of(const exp_config *config) {
    exp_client *client = GARBAGE;
    exp_error *error = GARBAGE;
    OK(exp_client_new("key", config, &client, &error));
    CHECK(client != NULL && error == NULL);
    return client;
}

static exp_error *some_error(void) {
    exp_client *client = GARBAGE;
    exp_error *error = GARBAGE;
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_client_new(NULL, NULL, &client, &error));
    CHECK(client == NULL && error != NULL);
    return error;
}

static exp_config *refusing;

static void make_objects(void) {
    exp_text *text = GARBAGE;
    objects[CONFIG] = exp_config_new();
    objects[USER] = exp_user_new();
    objects[OPTIONS] = exp_fetch_options_new();
    objects[CANCEL] = exp_cancel_new();
    objects[CLIENT] = client_of(NULL);
    objects[VARIANTS] = empty_set();
    objects[ERROR] = some_error();
    OK(exp_client_metrics(objects[CLIENT], EXP_METRICS_JSON, &text, NULL));
    objects[TEXT] = text;
    refusing = exp_config_new();
    exp_config_set_fetch_retries(refusing, 101);
    objects[BORROWED_ERROR] = (void *)exp_config_error(refusing);
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK_THAT(objects[kind] != NULL, kinds[kind]);
    }
}

static void free_objects(void) {
    exp_free(objects[BORROWED_ERROR]); /* borrowed: ignored */
    CHECK_MESSAGE("fetch_retries", exp_config_error(refusing));
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind != BORROWED_ERROR) {
            exp_free(objects[kind]);
        }
    }
    exp_free(refusing);
    exp_free(NULL);
}

static int is_kind(int kind, int wanted) {
    return kind >= 0 && !strcmp(kinds[kind], kinds[wanted]);
}

/* Makes a call, in which `o` is the object, with NULL and with every object of a wrong kind. */
#define WITH_WRONG(wanted, call_and_check)                                                         \
    for (int kind = -1; kind < KINDS; kind++) {                                                    \
        void *o = kind < 0 ? NULL : objects[kind];                                                 \
        if (!is_kind(kind, wanted)) {                                                              \
            call_and_check;                                                                        \
        }                                                                                          \
    }

#define REFUSES(wanted, call) WITH_WRONG(wanted, CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, call))
#define ANSWERS(wanted, value, call) WITH_WRONG(wanted, CHECK_THAT((call) == (value), #call))

/* The message says what is wrong with the argument. */
static void check_words(const char *argument, int wanted, int kind, const exp_error *error) {
    char words[128];
    if (kind < 0) {
        snprintf(words, sizeof words, "%s is NULL", argument);
    } else {
        snprintf(words, sizeof words, "%s must be an %s, but is an %s", argument, kinds[wanted],
                 kinds[kind]);
    }
    CHECK_MESSAGE(words, error);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_error_status(error));
    CHECK(exp_error_attempts(error) == 0 && !exp_error_is_retryable(error));
}

/* The same for a call with outs, `out` and `error`; NULL may be allowed. */
#define REFUSES_WITH_ERROR(wanted, argument, null_too, call)                                       \
    WITH_WRONG(                                                                                    \
        wanted, if (kind >= 0 || null_too) {                                                       \
            out = GARBAGE;                                                                         \
            error = GARBAGE;                                                                       \
            CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, call);                                          \
            CHECK_THAT(out == NULL, #call);                                                        \
            check_words(argument, wanted, kind, error);                                            \
            exp_free(error);                                                                       \
        })

static void setters_refuse_null_and_other_objects(void) {
    REFUSES(CONFIG, exp_config_set_server_url(o, "http://host"));
    REFUSES(CONFIG, exp_config_set_server_url_n(o, "http://host", 11));
    REFUSES(CONFIG, exp_config_set_server_zone(o, EXP_ZONE_EU));
    REFUSES(CONFIG, exp_config_set_fetch_timeout_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_fetch_pool_acquire_timeout_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_fetch_retries(o, 1));
    REFUSES(CONFIG, exp_config_set_fetch_retry_timeout_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_fetch_retry_backoff_min_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_fetch_retry_backoff_max_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_fetch_retry_backoff_scalar(o, 1.0));
    REFUSES(CONFIG, exp_config_set_fetch_retry_jitter(o, EXP_TRUE));
    REFUSES(CONFIG, exp_config_set_fetch_retry_budget_percent(o, 1));
    REFUSES(CONFIG, exp_config_set_fetch_deadline_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_connection_pool_max_size(o, 1));
    REFUSES(CONFIG, exp_config_set_connection_idle_timeout_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_connection_max_lifetime_millis(o, 1));
    REFUSES(CONFIG, exp_config_set_max_pending_fetches(o, 1));
    REFUSES(CONFIG, exp_config_set_max_response_bytes(o, 1));
    REFUSES(CONFIG, exp_config_set_ca_file(o, "file"));
    REFUSES(CONFIG, exp_config_set_ca_file_n(o, "file", 4));
    REFUSES(CONFIG, exp_config_set_proxy_url(o, "http://host"));
    REFUSES(CONFIG, exp_config_set_proxy_url_n(o, "http://host", 11));
    REFUSES(CONFIG, exp_config_set_use_environment_proxy(o, EXP_TRUE));
    REFUSES(CONFIG, exp_config_set_library(o, "lib"));
    REFUSES(CONFIG, exp_config_set_library_n(o, "lib", 3));
    REFUSES(CONFIG, exp_config_set_debug(o, EXP_TRUE));
    REFUSES(CONFIG, exp_config_set_log_callback(o, NULL, NULL, NULL, EXP_LOG_INFO));
#define TEXT_FIELD(field)                                                                          \
    REFUSES(USER, exp_user_set_##field(o, "text"));                                                \
    REFUSES(USER, exp_user_set_##field##_n(o, "text", 4));
#include "user_fields.h"
#undef TEXT_FIELD
    REFUSES(USER, exp_user_set_property_json(o, "n", "1"));
    REFUSES(USER, exp_user_set_property_json_n(o, "n", 1, "1", 1));
    REFUSES(USER, exp_user_add_group(o, "t", "g"));
    REFUSES(USER, exp_user_add_group_n(o, "t", 1, "g", 1));
    REFUSES(USER, exp_user_set_field_json(o, "n", "1"));
    REFUSES(USER, exp_user_set_field_json_n(o, "n", 1, "1", 1));
    REFUSES(OPTIONS, exp_fetch_options_set_tracks_assignment(o, EXP_TRUE));
    REFUSES(OPTIONS, exp_fetch_options_set_tracks_exposure(o, EXP_TRUE));
    REFUSES(OPTIONS, exp_fetch_options_add_flag_key(o, "flag"));
    REFUSES(OPTIONS, exp_fetch_options_add_flag_key_n(o, "flag", 4));
    REFUSES(OPTIONS, exp_fetch_options_set_deadline_millis(o, 1));
    REFUSES(OPTIONS, exp_fetch_options_set_cancel(o, NULL));
    REFUSES(OPTIONS, exp_fetch_options_set_interrupt(o, NULL, NULL));
}

static void getters_answer_nothing_for_null_and_other_objects(void) {
    ANSWERS(CONFIG, NULL, exp_config_error(o));
    ANSWERS(USER, NULL, exp_user_error(o));
    ANSWERS(OPTIONS, NULL, exp_fetch_options_error(o));
    ANSWERS(CONFIG, kind < 0 ? 20000u : 0u, exp_config_worst_case_millis(o));
    ANSWERS(VARIANTS, 0u, exp_variants_count(o));
    ANSWERS(VARIANTS, NULL, exp_variants_get(o, "flag"));
    ANSWERS(VARIANTS, NULL, exp_variants_get_n(o, "flag", 4));
    ANSWERS(VARIANTS, NULL, exp_variants_at(o, 0));
    ANSWERS(VARIANTS, &garbage, exp_variants_value(o, "flag", &garbage));
    ANSWERS(VARIANTS, &garbage, exp_variants_value_n(o, "flag", 4, &garbage));
    ANSWERS(VARIANTS, kind < 0 ? 2u : 0u, exp_variants_json_length(o));
    WITH_WRONG(VARIANTS, CHECK_TEXT(kind < 0 ? "{}" : NULL, exp_variants_json(o)));
    ANSWERS(VARIANTS, NULL, exp_variants_retain(o));
    ANSWERS(VARIANTS, 0u, exp_variants_attempts(o));
    ANSWERS(VARIANTS, 0, exp_variants_connection_reused(o));
    ANSWERS(VARIANTS, 0u, exp_variants_phase_micros(o, EXP_PHASE_POOL));
    ANSWERS(VARIANTS, UINT64_MAX, exp_variants_micros_left(o));
    for (int kind = -1; kind < KINDS; kind++) {
        const exp_variant *variant = kind < 0 ? NULL : objects[kind];
        CHECK(exp_variant_flag_key(variant) == NULL && exp_variant_flag_key_length(variant) == 0);
        CHECK(exp_variant_key(variant) == NULL && exp_variant_key_length(variant) == 0);
        CHECK(exp_variant_value(variant) == NULL && exp_variant_value_length(variant) == 0);
        CHECK(exp_variant_payload_json(variant) == NULL);
        CHECK(exp_variant_payload_json_length(variant) == 0);
        CHECK(exp_variant_metadata_json(variant) == NULL);
        CHECK(exp_variant_metadata_json_length(variant) == 0);
    }
    ANSWERS(ERROR, kind < 0 ? EXP_OK : EXP_ERR_INVALID_ARGUMENT, exp_error_status(o));
    ANSWERS(ERROR, NULL, exp_error_message(o));
    ANSWERS(ERROR, 0u, exp_error_message_length(o));
    ANSWERS(ERROR, 0, exp_error_http_status(o));
    ANSWERS(ERROR, 0u, exp_error_attempts(o));
    ANSWERS(ERROR, 0, exp_error_is_retryable(o));
    ANSWERS(ERROR, 0u, exp_error_retry_after_millis(o));
    ANSWERS(ERROR, EXP_PHASE_NONE, exp_error_phase(o));
    ANSWERS(ERROR, 0u, exp_error_phase_micros(o, EXP_PHASE_POOL));
    ANSWERS(ERROR, 0, exp_error_connection_reused(o));
    ANSWERS(ERROR, NULL, exp_error_retain(o));
    ANSWERS(TEXT, NULL, exp_text_value(o));
    ANSWERS(TEXT, 0u, exp_text_length(o));
    WITH_WRONG(CANCEL, exp_cancel_fire(o));
}

static void calls_refuse_null_and_other_objects_and_name_them(void) {
    void *out;
    exp_error *error;
    REFUSES(CLIENT, exp_client_close(o, 0));
    REFUSES_WITH_ERROR(CLIENT, "client", 1,
                       exp_client_metrics(o, EXP_METRICS_JSON, (exp_text **)&out, &error));
    REFUSES_WITH_ERROR(CLIENT, "client", 1,
                       exp_fetch_v2(o, NULL, NULL, (exp_variants **)&out, &error));
    REFUSES_WITH_ERROR(USER, "user", 0,
                       exp_fetch_v2(objects[CLIENT], o, NULL, (exp_variants **)&out, &error));
    REFUSES_WITH_ERROR(OPTIONS, "options", 0,
                       exp_fetch_v2(objects[CLIENT], NULL, o, (exp_variants **)&out, &error));
    REFUSES_WITH_ERROR(CONFIG, "config", 0, exp_client_new("key", o, (exp_client **)&out, &error));
    REFUSES_WITH_ERROR(CONFIG, "config", 0,
                       exp_client_new_n("key", 3, o, (exp_client **)&out, &error));
    REFUSES_WITH_ERROR(VARIANTS, "variants", 0,
                       exp_variants_filter_deployed(o, (exp_variants **)&out, &error));
    /* Where an object goes into another one, the refusal is remembered. */
    WITH_WRONG(CANCEL, {
        exp_fetch_options *options = exp_fetch_options_new();
        if (kind < 0) {
            OK(exp_fetch_options_set_cancel(options, o));
            CHECK(exp_fetch_options_error(options) == NULL);
        } else {
            CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_fetch_options_set_cancel(options, o));
            check_words("cancel", CANCEL, kind, exp_fetch_options_error(options));
        }
        exp_free(options);
    })
}

/* A NULL where an out has to be is named, and the error's own out may be NULL too. */
#define OUT_IS_NULL(argument, call, call_without_error)                                            \
    do {                                                                                           \
        exp_error *error = GARBAGE;                                                                \
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, call);                                              \
        CHECK_MESSAGE(argument " is NULL", error);                                                 \
        exp_free(error);                                                                           \
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, call_without_error);                                \
    } while (0)

static void outs_that_have_to_be_there_are_asked_for(void) {
    exp_client *client = objects[CLIENT];
    OUT_IS_NULL("client_out", exp_client_new("key", NULL, NULL, &error),
                exp_client_new("key", NULL, NULL, NULL));
    OUT_IS_NULL("client_out", exp_client_new_n("key", 3, NULL, NULL, &error),
                exp_client_new_n("key", 3, NULL, NULL, NULL));
    OUT_IS_NULL("user_out", exp_user_from_json("{}", NULL, &error),
                exp_user_from_json("{}", NULL, NULL));
    OUT_IS_NULL("user_out", exp_user_from_json_n("{}", 2, NULL, &error),
                exp_user_from_json_n("{}", 2, NULL, NULL));
    OUT_IS_NULL("variants_out", exp_fetch_v2(client, NULL, NULL, NULL, &error),
                exp_fetch_v2(client, NULL, NULL, NULL, NULL));
    OUT_IS_NULL("variants_out", exp_variants_filter_deployed(NULL, NULL, &error),
                exp_variants_filter_deployed(NULL, NULL, NULL));
    OUT_IS_NULL("text_out", exp_client_metrics(client, EXP_METRICS_JSON, NULL, &error),
                exp_client_metrics(client, EXP_METRICS_JSON, NULL, NULL));
}

/* Makes a call that sets something on a fresh object `o`. */
#define TAKES(new, error_of, call)                                                                 \
    do {                                                                                           \
        void *o = new ();                                                                          \
        OK(call);                                                                                  \
        CHECK_THAT(error_of(o) == NULL, exp_error_message(error_of(o)));                           \
        exp_free(o);                                                                               \
    } while (0)

#define LEAVES(new, error_of, words, call)                                                         \
    do {                                                                                           \
        void *o = new ();                                                                          \
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, call);                                              \
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_error_status(error_of(o)));                     \
        CHECK_MESSAGE(words, error_of(o));                                                         \
        users_of_refused_fail(o, error_of(o));                                                     \
        exp_free(o);                                                                               \
    } while (0)

static void users_of_refused_fail(void *object, const exp_error *refusal) {
    exp_error *error = GARBAGE;
    exp_variants *variants = GARBAGE;
    exp_client *client = GARBAGE;
    if (exp_config_error(object)) {
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_client_new("key", object, &client, &error));
        CHECK(client == NULL);
    } else {
        const exp_user *user = exp_user_error(object) ? object : NULL;
        const exp_fetch_options *options = user ? NULL : object;
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                     exp_fetch_v2(objects[CLIENT], user, options, &variants, &error));
        CHECK(variants == NULL);
    }
    CHECK_TEXT(exp_error_message(refusal), exp_error_message(error));
    CHECK(refusal != error);
    exp_free(error);
}

#define SET(call) TAKES(exp_config_new, exp_config_error, call)
#define REFUSE(words, call) LEAVES(exp_config_new, exp_config_error, words, call)
#define OPTION(call) TAKES(exp_fetch_options_new, exp_fetch_options_error, call)
#define REFUSE_OPTION(words, call)                                                                 \
    LEAVES(exp_fetch_options_new, exp_fetch_options_error, words, call)
#define FIELD(call) TAKES(exp_user_new, exp_user_error, call)
#define REFUSE_FIELD(words, call) LEAVES(exp_user_new, exp_user_error, words, call)

/* A setting that takes what is in [least, most], and EXP_NO_LIMIT if it is a limit. */
#define RANGE(name, type, least, most)                                                             \
    do {                                                                                           \
        SET(exp_config_set_##name(o, least));                                                      \
        SET(exp_config_set_##name(o, most));                                                       \
        REFUSE(#name " must be", exp_config_set_##name(o, (type)(most) + 1));                      \
        if ((type)(least) > 0) {                                                                   \
            REFUSE(#name " must be", exp_config_set_##name(o, (type)(least)-1));                   \
        }                                                                                          \
    } while (0)

#define DAY 86400000u

static void settings_take_their_range_and_refuse_what_lies_beside_it(void) {
    RANGE(fetch_timeout_millis, uint64_t, 1, DAY);
    RANGE(fetch_retry_timeout_millis, uint64_t, 1, DAY);
    RANGE(fetch_pool_acquire_timeout_millis, uint64_t, 0, DAY);
    RANGE(fetch_deadline_millis, uint64_t, 0, DAY);
    RANGE(connection_max_lifetime_millis, uint64_t, 0, DAY);
    RANGE(fetch_retry_backoff_min_millis, uint64_t, 0, DAY);
    RANGE(fetch_retry_backoff_max_millis, uint64_t, 0, DAY);
    RANGE(connection_idle_timeout_millis, uint64_t, 0, DAY);
    RANGE(fetch_retries, uint32_t, 0, 100);
    RANGE(fetch_retry_budget_percent, uint32_t, 0, 100);
    RANGE(connection_pool_max_size, uint32_t, 1, 1024);
    RANGE(max_pending_fetches, uint32_t, 1, 1000000);
    RANGE(max_response_bytes, uint64_t, 1, 1u << 30);
    SET(exp_config_set_fetch_pool_acquire_timeout_millis(o, EXP_NO_LIMIT));
    SET(exp_config_set_fetch_deadline_millis(o, EXP_NO_LIMIT));
    SET(exp_config_set_connection_max_lifetime_millis(o, EXP_NO_LIMIT));
    REFUSE("fetch_timeout_millis", exp_config_set_fetch_timeout_millis(o, EXP_NO_LIMIT));
    REFUSE("connection_idle_timeout_millis",
           exp_config_set_connection_idle_timeout_millis(o, EXP_NO_LIMIT));
    REFUSE("fetch_deadline_millis", exp_config_set_fetch_deadline_millis(o, EXP_NO_LIMIT - 1));
    SET(exp_config_set_fetch_retry_backoff_scalar(o, 1.0));
    SET(exp_config_set_fetch_retry_backoff_scalar(o, 100.0));
    REFUSE("fetch_retry_backoff_scalar", exp_config_set_fetch_retry_backoff_scalar(o, 0.99));
    REFUSE("fetch_retry_backoff_scalar", exp_config_set_fetch_retry_backoff_scalar(o, 100.01));
    SET(exp_config_set_server_zone(o, EXP_ZONE_US));
    SET(exp_config_set_server_zone(o, EXP_ZONE_EU));
    REFUSE("server_zone must be", exp_config_set_server_zone(o, -1));
    REFUSE("server_zone must be", exp_config_set_server_zone(o, 2));
    for (int32_t on = EXP_FALSE; on <= EXP_TRUE; on++) {
        SET(exp_config_set_fetch_retry_jitter(o, on));
        SET(exp_config_set_use_environment_proxy(o, on));
        SET(exp_config_set_debug(o, on));
    }
    REFUSE("fetch_retry_jitter must be", exp_config_set_fetch_retry_jitter(o, EXP_UNSET));
    REFUSE("use_environment_proxy must be", exp_config_set_use_environment_proxy(o, 2));
    REFUSE("debug must be", exp_config_set_debug(o, INT32_MIN));
    for (int32_t choice = EXP_UNSET; choice <= EXP_TRUE; choice++) {
        OPTION(exp_fetch_options_set_tracks_assignment(o, choice));
        OPTION(exp_fetch_options_set_tracks_exposure(o, choice));
    }
    REFUSE_OPTION("tracks_assignment must", exp_fetch_options_set_tracks_assignment(o, 2));
    REFUSE_OPTION("tracks_exposure must be", exp_fetch_options_set_tracks_exposure(o, -2));
    OPTION(exp_fetch_options_set_deadline_millis(o, 0));
    OPTION(exp_fetch_options_set_deadline_millis(o, DAY));
    OPTION(exp_fetch_options_set_deadline_millis(o, EXP_NO_LIMIT));
    REFUSE_OPTION("deadline_millis must be", exp_fetch_options_set_deadline_millis(o, DAY + 1));
    REFUSE_OPTION("deadline_millis must be",
                  exp_fetch_options_set_deadline_millis(o, EXP_NO_LIMIT - 1));
    OPTION(exp_fetch_options_set_interrupt(o, NULL, NULL));
    OPTION(exp_fetch_options_set_cancel(o, objects[CANCEL]));
}

#define BAD "a\xff"

/* A setter of text and its twin, with bad UTF-8 and without a text. */
#define TEXTS(refuse, words, setter)                                                               \
    do {                                                                                           \
        refuse(words " is not UTF-8 after byte 1", setter(o, BAD));                                \
        refuse(words " is not UTF-8 after byte 1", setter##_n(o, BAD, 2));                         \
        refuse(words " is NULL, but", setter##_n(o, NULL, 2));                                     \
        refuse(words " has an impossible length", setter##_n(o, "a", SIZE_MAX));                   \
    } while (0)

#define TEXTS_WITHOUT_NULL(refuse, words, setter)                                                  \
    do {                                                                                           \
        TEXTS(refuse, words, setter);                                                              \
        refuse(words " is NULL", setter(o, NULL));                                                 \
        refuse(words " is NULL", setter##_n(o, NULL, 0));                                          \
    } while (0)

/* A setter of two texts and its twin. */
#define TWO_TEXTS(first, second, setter)                                                           \
    do {                                                                                           \
        REFUSE_FIELD(first " is not UTF-8", setter(o, BAD, "1"));                                  \
        REFUSE_FIELD(first " is NULL", setter(o, NULL, "1"));                                      \
        REFUSE_FIELD(first " is not UTF-8", setter##_n(o, BAD, 2, "1", 1));                        \
        REFUSE_FIELD(first " is NULL", setter##_n(o, NULL, 0, "1", 1));                            \
        REFUSE_FIELD(second " is not UTF-8", setter(o, "n", BAD));                                 \
        REFUSE_FIELD(second " is not UTF-8", setter##_n(o, "n", 1, BAD, 2));                       \
        REFUSE_FIELD(second " is NULL, but", setter##_n(o, "n", 1, NULL, 2));                      \
        FIELD(setter(o, "n", "1"));                                                                \
        FIELD(setter##_n(o, "n\0n", 3, "1", 1));                                                   \
    } while (0)

static void text_must_be_there_and_utf8_and_a_twin_takes_the_length(void) {
    TEXTS_WITHOUT_NULL(REFUSE, "server_url", exp_config_set_server_url);
    TEXTS_WITHOUT_NULL(REFUSE, "ca_file", exp_config_set_ca_file);
    TEXTS_WITHOUT_NULL(REFUSE, "proxy_url", exp_config_set_proxy_url);
    TEXTS_WITHOUT_NULL(REFUSE, "library", exp_config_set_library);
    SET(exp_config_set_server_url_n(o, "http://host and more", 11));
    SET(exp_config_set_ca_file_n(o, "file and more", 4));
    SET(exp_config_set_proxy_url_n(o, "http://host and more", 11));
    SET(exp_config_set_library_n(o, "lib\n", 3));
    REFUSE("library", exp_config_set_library_n(o, "lib\n", 4));
    REFUSE("server_url must be", exp_config_set_server_url(o, "host"));
    TEXTS_WITHOUT_NULL(REFUSE_OPTION, "flag_key", exp_fetch_options_add_flag_key);
    OPTION(exp_fetch_options_add_flag_key(o, "flag"));
    OPTION(exp_fetch_options_add_flag_key_n(o, "a\0b", 3));
#define TEXT_FIELD(field)                                                                          \
    TEXTS(REFUSE_FIELD, #field, exp_user_set_##field);                                             \
    FIELD(exp_user_set_##field(o, "text"));                                                        \
    FIELD(exp_user_set_##field##_n(o, "a\0b", 3));                                                 \
    FIELD(exp_user_set_##field(o, NULL));                                                          \
    FIELD(exp_user_set_##field##_n(o, NULL, 0));
#include "user_fields.h"
#undef TEXT_FIELD
    TWO_TEXTS("name (of a property)", "json (of a property)", exp_user_set_property_json);
    TWO_TEXTS("name (of a field)", "json (of a field)", exp_user_set_field_json);
    TWO_TEXTS("group_type", "group_name", exp_user_add_group);
    REFUSE_FIELD("json (of a property) is NULL", exp_user_set_property_json(o, "n", NULL));
    REFUSE_FIELD("group_name is NULL", exp_user_add_group(o, "t", NULL));
    FIELD(exp_user_set_field_json(o, "n", NULL));
    FIELD(exp_user_set_field_json_n(o, "n", 1, NULL, 0));
    REFUSE_FIELD("not valid JSON", exp_user_set_field_json(o, "n", "nope!"));
    REFUSE_FIELD("not valid JSON", exp_user_set_property_json(o, "n", "nope!"));
}

#define FROM_JSON_FAILS(words, call)                                                               \
    do {                                                                                           \
        exp_user *user = GARBAGE;                                                                  \
        exp_error *error = GARBAGE;                                                                \
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, call);                                              \
        CHECK(user == NULL);                                                                       \
        CHECK_MESSAGE(words, error);                                                               \
        exp_free(error);                                                                           \
    } while (0)

static void users_come_from_json_or_not_at_all(void) {
    exp_user *user = GARBAGE;
    exp_error *error = GARBAGE;
    FROM_JSON_FAILS("json is NULL", exp_user_from_json(NULL, &user, &error));
    FROM_JSON_FAILS("json is NULL", exp_user_from_json_n(NULL, 0, &user, &error));
    FROM_JSON_FAILS("json is NULL, but", exp_user_from_json_n(NULL, 1, &user, &error));
    FROM_JSON_FAILS("json is not UTF-8 after byte 1", exp_user_from_json(BAD, &user, &error));
    FROM_JSON_FAILS("json is not UTF-8", exp_user_from_json_n(BAD, 2, &user, &error));
    FROM_JSON_FAILS("not a JSON object", exp_user_from_json("[]", &user, &error));
    FROM_JSON_FAILS("truncated", exp_user_from_json_n("{}", 1, &user, &error));
    OK(exp_user_from_json("{\"user_id\":\"u\"}", &user, &error));
    CHECK(user != NULL && error == NULL && exp_user_error(user) == NULL);
    exp_free(user);
    OK(exp_user_from_json_n("{} and more", 2, &user, NULL));
    exp_free(user);
}

static void clients_need_a_key(void) {
    static const struct {
        const char *key;
        size_t length;
        const char *words;
    } cases[] = {
        {NULL, 0, "api_key is NULL"},
        {"", 0, "api_key is empty"},
        {"two words", 9, "api_key must"},
        {BAD, 2, "api_key is not UTF-8 after byte 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int twin = 0; twin < 2; twin++) {
            exp_client *client = GARBAGE;
            exp_error *error = GARBAGE;
            const char *key = cases[i].key;
            CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                         twin ? exp_client_new_n(key, cases[i].length, NULL, &client, &error)
                              : exp_client_new(key, NULL, &client, &error));
            CHECK(client == NULL);
            CHECK_MESSAGE(cases[i].words, error);
            exp_free(error);
        }
    }
    exp_client *client = GARBAGE;
    OK(exp_client_new_n("key\0more", 3, NULL, &client, NULL));
    exp_free(client);
}

static void a_missing_authority_file_is_reported_by_the_client(void) {
    exp_config *config = exp_config_new();
    exp_client *client = GARBAGE;
    exp_error *error = GARBAGE;
    OK(exp_config_set_ca_file(config, "/nonexistent.pem"));
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_client_new("key", config, &client, &error));
    CHECK(client == NULL);
    CHECK_MESSAGE("ca_file /nonexistent.pem", error);
    exp_free(error);
    exp_free(config);
}

static void the_first_refusal_is_kept_and_later_values_are_taken(void) {
    exp_config *config = exp_config_new();
    exp_config_set_fetch_retries(config, 101);
    const exp_error *first = exp_config_error(config);
    exp_config_set_debug(config, 7);
    OK(exp_config_set_fetch_retries(config, 3));
    CHECK(exp_config_error(config) == first);
    CHECK_MESSAGE("fetch_retries must be 0 to 100, but is 101", first);
    exp_error *kept = exp_error_retain(first);
    CHECK(kept != NULL && kept != first);
    exp_free(config);
    CHECK_MESSAGE("fetch_retries must be 0 to 100, but is 101", kept);
    exp_error *again = exp_error_retain(kept);
    CHECK(again == kept);
    exp_free(kept);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_error_status(again));
    exp_free(again);
}

static void the_worst_case_is_told(void) {
    exp_config *config = exp_config_new();
    CHECK(exp_config_worst_case_millis(config) == 20000);
    exp_config_set_fetch_timeout_millis(config, 500);
    exp_config_set_fetch_retries(config, 2);
    exp_config_set_fetch_retry_timeout_millis(config, 100);
    exp_config_set_fetch_retry_backoff_max_millis(config, 50);
    CHECK(exp_config_worst_case_millis(config) == 2 * 500 + 2 * 2 * 100 + 2 * 50);
    exp_config_set_fetch_pool_acquire_timeout_millis(config, EXP_NO_LIMIT);
    CHECK(exp_config_worst_case_millis(config) == EXP_NO_LIMIT);
    exp_config_set_fetch_deadline_millis(config, 700);
    CHECK(exp_config_worst_case_millis(config) == 700);
    exp_config_set_debug(config, 7); /* a refusal elsewhere does not matter */
    CHECK(exp_config_worst_case_millis(config) == 700);
    exp_free(config);
}

struct log {
    int lines, finalized;
};

static void EXP_CALL on_log(void *user_data, exp_log_level level, const char *message,
                            size_t length) {
    CHECK(level >= EXP_LOG_ERROR && level <= EXP_LOG_DEBUG && strlen(message) == length);
    ((struct log *)user_data)->lines++;
}

static void EXP_CALL on_final(void *user_data) { ((struct log *)user_data)->finalized++; }

static void a_finalizer_runs_once_when_the_last_user_is_gone(void) {
    struct log a = {0, 0}, b = {0, 0}, c = {0, 0};
    exp_config *config = exp_config_new();
    OK(exp_config_set_log_callback(config, on_log, &a, on_final, EXP_LOG_DEBUG));
    exp_client *first = client_of(config), *second = client_of(config);
    /* Replaced in the settings, but two clients still use it. */
    OK(exp_config_set_log_callback(config, on_log, &b, on_final, EXP_LOG_DEBUG));
    CHECK(a.finalized == 0 && b.finalized == 0);
    exp_free(first);
    CHECK(a.finalized == 0);
    exp_free(second);
    CHECK(a.finalized == 1);
    /* Replaced, and nobody uses it. */
    OK(exp_config_set_log_callback(config, on_log, &c, on_final, EXP_LOG_ERROR));
    CHECK(b.finalized == 1 && c.finalized == 0);
    /* Taken off; and without a callback the data is done with at once. */
    OK(exp_config_set_log_callback(config, NULL, &b, on_final, 0));
    CHECK(c.finalized == 1 && b.finalized == 2);
    OK(exp_config_set_log_callback(config, NULL, NULL, NULL, 0));
    OK(exp_config_set_log_callback(config, on_log, &c, NULL, EXP_LOG_INFO));
    exp_free(config);
    CHECK(a.finalized == 1 && b.finalized == 2 && c.finalized == 1);
}

static void a_refused_callback_stays_with_its_owner(void) {
    struct log log = {0, 0}, kept = {0, 0};
    static const int32_t levels[] = {-1, 0, 5, INT32_MAX};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        exp_config *config = exp_config_new();
        OK(exp_config_set_log_callback(config, on_log, &kept, on_final, EXP_LOG_WARN));
        CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                     exp_config_set_log_callback(config, on_log, &log, on_final, levels[i]));
        CHECK_MESSAGE("max_level must be", exp_config_error(config));
        CHECK(log.finalized == 0 && kept.finalized == 0);
        exp_free(config);
        CHECK(log.finalized == 0 && kept.finalized == 1);
        kept.finalized = 0;
    }
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                 exp_config_set_log_callback(NULL, on_log, &log, on_final, EXP_LOG_WARN));
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT,
                 exp_config_set_log_callback(objects[USER], on_log, &log, on_final, EXP_LOG_WARN));
    CHECK(log.finalized == 0);
}

static void metrics_come_in_two_forms_and_no_other(void) {
    for (int32_t format = -1; format <= 2; format++) {
        exp_text *text = GARBAGE;
        exp_error *error = GARBAGE;
        exp_status status = exp_client_metrics(objects[CLIENT], format, &text, &error);
        if (format == EXP_METRICS_JSON || format == EXP_METRICS_OPENMETRICS) {
            OK(status);
            CHECK(error == NULL && strlen(exp_text_value(text)) == exp_text_length(text));
            CHECK(exp_text_value(text)[0] == (format == EXP_METRICS_JSON ? '{' : '#'));
            exp_free(text);
        } else {
            CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, status);
            CHECK(text == NULL);
            CHECK_MESSAGE("format must be", error);
            exp_free(error);
        }
    }
}

static void names_and_numbers_belong_together(void) {
    CHECK_TEXT("EXP_OK", exp_status_name(EXP_OK));
    CHECK_TEXT("EXP_ERR_INVALID_ARGUMENT", exp_status_name(EXP_ERR_INVALID_ARGUMENT));
    CHECK_TEXT("EXP_ERR_TIMEOUT", exp_status_name(EXP_ERR_TIMEOUT));
    CHECK_TEXT("EXP_ERR_NETWORK", exp_status_name(EXP_ERR_NETWORK));
    CHECK_TEXT("EXP_ERR_TLS", exp_status_name(EXP_ERR_TLS));
    CHECK_TEXT("EXP_ERR_HTTP_STATUS", exp_status_name(EXP_ERR_HTTP_STATUS));
    CHECK_TEXT("EXP_ERR_INVALID_RESPONSE", exp_status_name(EXP_ERR_INVALID_RESPONSE));
    CHECK_TEXT("EXP_ERR_CANCELED", exp_status_name(EXP_ERR_CANCELED));
    CHECK_TEXT("EXP_ERR_CLOSED", exp_status_name(EXP_ERR_CLOSED));
    CHECK_TEXT("EXP_ERR_QUEUE_FULL", exp_status_name(EXP_ERR_QUEUE_FULL));
    CHECK_TEXT("EXP_ERR_INTERNAL", exp_status_name(EXP_ERR_INTERNAL));
    CHECK_TEXT("EXP_ERR_UNKNOWN", exp_status_name(11));
    CHECK_TEXT("EXP_ERR_UNKNOWN", exp_status_name(-1));
    CHECK(EXP_OK == 0 && EXP_ERR_INVALID_ARGUMENT == 1 && EXP_ERR_TIMEOUT == 2);
    CHECK(EXP_ERR_NETWORK == 3 && EXP_ERR_TLS == 4 && EXP_ERR_HTTP_STATUS == 5);
    CHECK(EXP_ERR_INVALID_RESPONSE == 6 && EXP_ERR_CANCELED == 7 && EXP_ERR_CLOSED == 8);
    CHECK(EXP_ERR_QUEUE_FULL == 9 && EXP_ERR_INTERNAL == 10);
    CHECK_TEXT(EXP_VERSION_STRING, exp_version());
    CHECK(exp_version_number() == EXP_VERSION_NUMBER);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", EXP_VERSION_MAJOR, EXP_VERSION_MINOR,
             EXP_VERSION_PATCH);
    CHECK_TEXT(version, exp_version());
    CHECK(EXP_VERSION_AT_LEAST(EXP_VERSION_MAJOR, EXP_VERSION_MINOR, EXP_VERSION_PATCH));
    CHECK(!EXP_VERSION_AT_LEAST(EXP_VERSION_MAJOR, EXP_VERSION_MINOR, EXP_VERSION_PATCH + 1));
    CHECK(!EXP_VERSION_AT_LEAST(EXP_VERSION_MAJOR + 1, 0, 0));
}

static void what_is_no_object_is_not_freed(void) {
    uint64_t memory[4] = {1, 2, 3, 4};
    exp_free(memory);
    exp_free((char *)memory + 1);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_client_close((exp_client *)memory, 0));
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_client_close((exp_client *)((char *)memory + 1), 0));
}

static void a_client_closes_within_a_range_of_times(void) {
    exp_client *client = client_of(NULL);
    CHECK_STATUS(EXP_ERR_INVALID_ARGUMENT, exp_client_close(client, DAY + 1));
    OK(exp_client_close(client, DAY));
    OK(exp_client_close(client, EXP_NO_LIMIT));
    OK(exp_client_close(client, 0));
    exp_variants *variants = GARBAGE;
    exp_error *error = GARBAGE;
    CHECK_STATUS(EXP_ERR_CLOSED, exp_fetch_v2(client, NULL, NULL, &variants, &error));
    CHECK(variants == NULL && exp_error_status(error) == EXP_ERR_CLOSED);
    exp_free(error);
    exp_free(client);
}

int main(void) {
    make_objects();
    setters_refuse_null_and_other_objects();
    getters_answer_nothing_for_null_and_other_objects();
    calls_refuse_null_and_other_objects_and_name_them();
    outs_that_have_to_be_there_are_asked_for();
    settings_take_their_range_and_refuse_what_lies_beside_it();
    text_must_be_there_and_utf8_and_a_twin_takes_the_length();
    users_come_from_json_or_not_at_all();
    clients_need_a_key();
    a_missing_authority_file_is_reported_by_the_client();
    the_first_refusal_is_kept_and_later_values_are_taken();
    the_worst_case_is_told();
    a_finalizer_runs_once_when_the_last_user_is_gone();
    a_refused_callback_stays_with_its_owner();
    metrics_come_in_two_forms_and_no_other();
    names_and_numbers_belong_together();
    what_is_no_object_is_not_freed();
    a_client_closes_within_a_range_of_times();
    free_objects();
    return report("boundary");
}
