/*
 * Each step of a fetch in one call: a call from Go into C costs as much as a dozen calls within C.
 * What is filled in here is Go's memory, and holds no pointer but to what the library lends.
 */
#ifndef EXPERIMENT_GO_BRIDGE_H
#define EXPERIMENT_GO_BRIDGE_H

#include <experiment.h>
#include <fcntl.h>
#include <unistd.h>

#define GO_PHASES 8

typedef struct {
    const char *bytes; /* NULL: absent */
    size_t length;
} go_text;

typedef struct {
    go_text flag_key, key, value, payload, metadata;
} go_variant;

/* The options of one fetch. The flag keys come beside it, one after the other in one text: memory
 * of Go's that is passed must not point to more of it. */
typedef struct {
    int32_t tracks_assignment, tracks_exposure;
    uint64_t deadline_millis;
} go_options;

/* A fetch that is over. */
typedef struct {
    uintptr_t token;
    exp_status status;
    exp_variants *variants;
    exp_error *error;
    size_t count; /* of the variants */
} go_outcome;

typedef struct {
    go_text message;
    int32_t http_status, retryable, phase;
    uint64_t retry_after_millis;
} go_failure;

typedef struct {
    uint32_t attempts;
    int32_t connection_reused;
    uint64_t phase_micros[GO_PHASES];
} go_report;

static inline exp_fetch_options *go_make_options(const go_options *chosen, const char *flag_keys,
                                                 const size_t *lengths, size_t count) {
    exp_fetch_options *options = exp_fetch_options_new();
    exp_fetch_options_set_tracks_assignment(options, chosen->tracks_assignment);
    exp_fetch_options_set_tracks_exposure(options, chosen->tracks_exposure);
    exp_fetch_options_set_deadline_millis(options, chosen->deadline_millis);
    for (size_t i = 0; i < count; flag_keys += lengths[i++])
        exp_fetch_options_add_flag_key_n(options, flag_keys, lengths[i]);
    return options;
}

/* How many calls of go_submit this thread is inside: more than one if a logger fetches too. */
static _Thread_local int go_submitting;

static inline int go_is_submitting(void) { return go_submitting > 0; }

/* The token is a number of Go's, no pointer: nothing of Go's memory stays in the library. */
static inline exp_status go_submit(exp_client *client, exp_completions *completions,
                                   uintptr_t token, const char *user_json, size_t user_length,
                                   const go_options *chosen, const char *flag_keys,
                                   const size_t *lengths, size_t count, exp_pending **pending_out,
                                   exp_error **error_out) {
    exp_user *user = NULL;
    exp_status status = EXP_OK;
    if (user_length > 0)
        status = exp_user_from_json_n(user_json, user_length, &user, error_out);
    if (status != EXP_OK)
        return status;
    exp_fetch_options *options = go_make_options(chosen, flag_keys, lengths, count);
    go_submitting++;
    status = exp_fetch_v2_submit(client, user, options, completions, (void *)token, pending_out,
                                 error_out);
    go_submitting--;
    exp_free(options);
    exp_free(user);
    return status;
}

/* The fetch that ended first; 0 if none is there. */
static inline int go_next(exp_completions *completions, go_outcome *outcome) {
    exp_pending *pending = exp_completions_next(completions);
    if (!pending)
        return 0;
    outcome->token = (uintptr_t)exp_pending_user_data(pending);
    outcome->status = exp_pending_take(pending, &outcome->variants, &outcome->error);
    outcome->count = exp_variants_count(outcome->variants);
    exp_free(pending);
    return 1;
}

static inline size_t go_size(const go_variant *variant) {
    return variant->flag_key.length + variant->key.length + variant->value.length +
           variant->payload.length + variant->metadata.length;
}

/* Reads variants from number `first` on: `count` of them, or fewer if those have more than `bytes`
 * bytes, but one at least. Tells how many, and what was left of the fetch's time before. */
static inline size_t go_read_variants(const exp_variants *variants, size_t first, go_variant *out,
                                      size_t count, size_t bytes, uint64_t *micros_left) {
    *micros_left = exp_variants_micros_left(variants);
    size_t read = 0, size = 0;
    for (; read < count; read++) {
        const exp_variant *variant = exp_variants_at(variants, first + read);
        go_variant *one = &out[read];
        one->flag_key.bytes = exp_variant_flag_key(variant);
        one->flag_key.length = exp_variant_flag_key_length(variant);
        one->key.bytes = exp_variant_key(variant);
        one->key.length = exp_variant_key_length(variant);
        one->value.bytes = exp_variant_value(variant);
        one->value.length = exp_variant_value_length(variant);
        one->payload.bytes = exp_variant_payload_json(variant);
        one->payload.length = exp_variant_payload_json_length(variant);
        one->metadata.bytes = exp_variant_metadata_json(variant);
        one->metadata.length = exp_variant_metadata_json_length(variant);
        size += go_size(one);
        if (read > 0 && size > bytes)
            break;
    }
    return read;
}

static inline void go_read_error(const exp_error *error, go_failure *out) {
    out->message.bytes = exp_error_message(error);
    out->message.length = exp_error_message_length(error);
    out->http_status = exp_error_http_status(error);
    out->retryable = exp_error_is_retryable(error);
    out->retry_after_millis = exp_error_retry_after_millis(error);
    out->phase = exp_error_phase(error);
}

/* Of whichever of the two there is. */
static inline void go_read_report(const exp_variants *variants, const exp_error *error,
                                  go_report *out) {
    out->attempts = variants ? exp_variants_attempts(variants) : exp_error_attempts(error);
    out->connection_reused =
        variants ? exp_variants_connection_reused(variants) : exp_error_connection_reused(error);
    for (int32_t phase = 0; phase < GO_PHASES; phase++)
        out->phase_micros[phase] = variants ? exp_variants_phase_micros(variants, phase)
                                            : exp_error_phase_micros(error, phase);
}

/* A descriptor of Go's own for the queue's: Go's poller closes what it watches. None of those that
 * printf and its kin write to, though they be closed. -1 if there is none left. */
static inline int go_watched(exp_completions *completions) {
    return fcntl(exp_completions_fd(completions), F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* In log.go. */
extern void experimentGoLog(uintptr_t sink, int32_t level, char *message, size_t length);
extern void experimentGoLogDone(uintptr_t sink);

static void go_log(void *sink, exp_log_level level, const char *message, size_t length) {
    experimentGoLog((uintptr_t)sink, (int32_t)level, (char *)message, length);
}

static void go_log_done(void *sink) { experimentGoLogDone((uintptr_t)sink); }

static inline exp_status go_set_log(exp_config *config, uintptr_t sink, int32_t max_level) {
    return exp_config_set_log_callback(config, go_log, (void *)sink, go_log_done, max_level);
}

#endif
