/*
 * libexperiment: variants from Amplitude Experiment, each fetch back within the time you set.
 * Needs C99 or C++11. This file is generated from src/ffi; edit there.
 *
 * OWNERSHIP. The caller owns what a function hands out as ..._new, ..._retain or through an ..._out
 * parameter, and gives it up with exp_free(object), whatever it is; exp_free(NULL) is ignored.
 * Everything else that comes back is borrowed: exp_variant, every `const char *`, and the `const
 * exp_error *` of ..._error(object). It lives as long as the object it came from, and is not freed.
 * Using or freeing what was freed is undefined, as with free(). A live object of the wrong kind is
 * recognised: a function with a status returns EXP_ERR_INVALID_ARGUMENT, a getter what stands for
 * nothing (0, NULL, -1 or the fallback), exp_free ignores it. What you pass in is copied before the
 * call returns, except user_data.
 *
 * THREADS. No call depends on the thread it is made on. The words used below:
 *   Setter:  one thread at a time per object, and no other call with that object beside it. Waits for
 *            nothing. A refused value leaves the object as it was and is remembered; see ..._error.
 *   Getter:  any number of threads at once, while nobody sets. Waits for nothing; takes time only with
 *            the size of what it makes (JSON, metrics, another set), also for others that ask for the
 *            same for the first time.
 *   Anytime: any number of threads at once, whatever else is going on with the object.
 * exp_free is for every thread and waits for nothing. Of a client, a pending or completions it may be
 * called while other threads are inside exp_fetch_v2, exp_client_close or a wait with the same object.
 * Otherwise give a reference up only when no call that was made with it can still be running. No call
 * may begin with it afterwards.
 *
 * ERRORS. EXP_OK is 0. Where a function ends in `exp_error **error_out` (may be NULL) a failure
 * comes with an error, which the caller owns. Outs are written on every return: on failure the
 * object is NULL, on success the error is. EXP_ERR_INTERNAL, a defect caught in the library, is
 * possible everywhere and not repeated below; nothing unwinds into your code. In every accessor a
 * NULL exp_variants is the empty set, and a NULL exp_error is no error.
 *
 * TEXT goes in as NUL-terminated UTF-8; each function that takes some has a twin ..._n that takes
 * pointer and length. A NULL pointer, there with length 0, is no text. It comes out NUL-terminated;
 * where it may hold NULs of its own there is a twin ..._length. What is absent or null is NULL.
 *
 * CALLBACKS get your user_data as their first argument, unchanged, possibly on a thread of the
 * library: it must be safe to use there. A callback may call any function of the library (no lock is
 * held that it could wait for) and must return normally: leaving by a C++ exception or longjmp is
 * undefined. In a signal handler only exp_cancel_fire may be called, whatever the handler
 * interrupts; the library's own threads block every signal. A thread that is canceled
 * (pthread_cancel) in a call or in a callback returns from the call first; never make it
 * asynchronously cancelable. A call takes up to 96 KiB of stack: give threads that fetch 128 KiB or
 * more.
 *
 * FORK. After fork(2) a client works on in the parent, which notices nothing, and in the child, where
 * it begins anew, without connections. Asynchronous fetches stay the parent's: in the child an
 * inherited exp_pending is EXP_ERR_CANCELED, inherited completions are empty for good, and no callback
 * runs. A callback that forks must not return in the child, but for an interrupt hook: there its
 * fetch ends with EXP_ERR_CANCELED. What an inherited client holds is never freed there, so that the
 * finalizer of its log callback does not run. Other objects work on in the child too, unless another
 * thread was inside a call with them at the fork. Looking up a name can hang in a child that was
 * forked while another thread looked one up, by a lock of the system's; the fetch still ends in time.
 *
 * UNLOADING. The shared library is linked with `-z nodelete`: dlclose leaves it in place. Link a
 * module that holds the static library in the same way.
 */

#ifndef EXPERIMENT_H
#define EXPERIMENT_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header; exp_version() and exp_version_number() tell the library's. */
#define EXP_VERSION_MAJOR 0
#define EXP_VERSION_MINOR 1
#define EXP_VERSION_PATCH 0
#define EXP_VERSION_NUMBER 0x000100
#define EXP_VERSION_STRING "0.1.0"
/* For #if: whether this header is of that version or a later one. */
#define EXP_VERSION_AT_LEAST(major, minor, patch) \
    (EXP_VERSION_NUMBER >= (((major) << 16) | ((minor) << 8) | (patch)))

/* "No limit", where a time in milliseconds may be that. */
#define EXP_NO_LIMIT UINT64_MAX

/* In front of every function. */
#ifndef EXP_API
#if defined(_WIN32) && !defined(EXP_STATIC)
#define EXP_API __declspec(dllimport)
#elif defined(__GNUC__) && !defined(_WIN32)
#define EXP_API __attribute__((visibility("default")))
#else
#define EXP_API
#endif
#endif

/* The calling convention of callbacks. */
#if defined(_WIN32)
#define EXP_CALL __cdecl
#else
#define EXP_CALL
#endif


/** What came of a call. The numbers are fixed and never used again for something else. */
typedef enum {
    EXP_OK = 0,
    /** An argument or a setting is not what it must be; the message names it. Final. */
    EXP_ERR_INVALID_ARGUMENT = 1,
    /** A time limit expired: waiting for a connection or for the answer. The message tells which. */
    EXP_ERR_TIMEOUT = 2,
    /** The connection could not be made, or ended. */
    EXP_ERR_NETWORK = 3,
    /** The certificate or the protocol was refused. Final. */
    EXP_ERR_TLS = 4,
    /** The service answered with another status than 200: exp_error_http_status. */
    EXP_ERR_HTTP_STATUS = 5,
    /** The answer is not valid HTTP or JSON. */
    EXP_ERR_INVALID_RESPONSE = 6,
    /** You ended it, by an exp_cancel or an interrupt hook. Final. */
    EXP_ERR_CANCELED = 7,
    /** The client is closing. Final. */
    EXP_ERR_CLOSED = 8,
    /** Too many fetches are pending. Final. */
    EXP_ERR_QUEUE_FULL = 9,
    /** A defect in the library was caught; the message is worth a report. Final. */
    EXP_ERR_INTERNAL = 10,
} exp_status;

/** How loud a log line is. */
typedef enum {
    EXP_LOG_ERROR = 1,
    EXP_LOG_WARN = 2,
    EXP_LOG_INFO = 3,
    EXP_LOG_DEBUG = 4,
} exp_log_level;

/** What a fetch is doing. */
typedef enum {
    /** No phase: the failure was no timeout. */
    EXP_PHASE_NONE = -1,
    /** Waiting in line for a connection of the pool. */
    EXP_PHASE_POOL = 0,
    /** Looking up the host's name. */
    EXP_PHASE_RESOLVE = 1,
    /** Opening the TCP connection, and a proxy's tunnel. */
    EXP_PHASE_CONNECT = 2,
    /** Shaking hands. */
    EXP_PHASE_TLS = 3,
    /** Sending the request. */
    EXP_PHASE_SEND = 4,
    /** Waiting for the head of the answer. */
    EXP_PHASE_FIRST_BYTE = 5,
    /** Reading and decoding the body. */
    EXP_PHASE_BODY = 6,
    /** Waiting between two attempts. */
    EXP_PHASE_BACKOFF = 7,
} exp_phase;

/** Which of the service's data centres is asked. */
typedef enum {
    EXP_ZONE_US = 0,
    EXP_ZONE_EU = 1,
} exp_zone;

/** In which form exp_client_metrics writes. */
typedef enum {
    /** One JSON object; times in seconds. */
    EXP_METRICS_JSON = 0,
    /** OpenMetrics text, version 1.0.0. */
    EXP_METRICS_OPENMETRICS = 1,
} exp_metrics_format;

/** A choice that need not be made. */
typedef enum {
    /** Not chosen: the service decides. */
    EXP_UNSET = -1,
    EXP_FALSE = 0,
    EXP_TRUE = 1,
} exp_choice;

/**
 * A switch that ends the fetches that carry it, now and from now on. See
 * exp_fetch_options_set_cancel.
 */
typedef struct exp_cancel exp_cancel;

/** Fetches variants over a bounded pool of connections. */
typedef struct exp_client exp_client;

/**
 * A queue of asynchronous fetches that are over, in the order in which they ended. Used by any
 * number of clients and threads.
 */
typedef struct exp_completions exp_completions;

/** Settings of clients. A client copies them when it is created. */
typedef struct exp_config exp_config;

/** Why a call failed. */
typedef struct exp_error exp_error;

/** Options of a fetch. Used by any number of them, also at once. */
typedef struct exp_fetch_options exp_fetch_options;

/** One asynchronous fetch. Freeing it does not end the fetch; see exp_pending_cancel. */
typedef struct exp_pending exp_pending;

/** A text that a function made for you. */
typedef struct exp_text exp_text;

/** What is known of a user. The service decides by it; nothing of it is kept between fetches. */
typedef struct exp_user exp_user;

/** The variant of one flag, borrowed from its set. */
typedef struct exp_variant exp_variant;

/**
 * The variants of one fetch, in the service's order, and what is known of that fetch. It never
 * changes, and outlives its client if it has to.
 */
typedef struct exp_variants exp_variants;

/**
 * Takes a log line: NUL-terminated UTF-8, `length` bytes without the NUL, borrowed for the call.
 * On any thread, several at once.
 */
typedef void (EXP_CALL *exp_log_callback)(void *user_data,
                                          exp_log_level level,
                                          const char *message,
                                          size_t length);

/** Told that the library will not use user_data any more. */
typedef void (EXP_CALL *exp_finalizer)(void *user_data);

/**
 * Asked whether the thread inside a call is to come back: 0 to go on, anything else to end the
 * fetch with EXP_ERR_CANCELED.
 */
typedef int32_t (EXP_CALL *exp_interrupt_hook)(void *user_data);

/**
 * Told what an asynchronous fetch came to: on EXP_OK a set, else NULL, the empty set, and an
 * error. Both are borrowed for the call; keep them with exp_variants_retain, exp_error_retain.
 */
typedef void (EXP_CALL *exp_fetch_callback)(void *user_data,
                                            exp_status status,
                                            const exp_variants *variants,
                                            const exp_error *error);



#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library that runs, like "1.2.3"; EXP_VERSION_STRING is that of this header.
 * Static, never NULL. Anytime.
 */
EXP_API const char *exp_version(void);

/** The same as a number, 0xMMmmpp; EXP_VERSION_NUMBER is that of this header. Anytime. */
EXP_API uint32_t exp_version_number(void);

/**
 * The name of a status, like "EXP_ERR_TIMEOUT"; "EXP_ERR_UNKNOWN" for an unknown number.
 * Static, never NULL. Anytime.
 */
EXP_API const char *exp_status_name(int32_t status);

/**
 * Creates settings with their default values; the caller owns them. NULL only after a defect.
 * Anytime.
 */
EXP_API exp_config *exp_config_new(void);

/**
 * The first value that was refused, borrowed; NULL if there was none. exp_client_new fails with
 * it. Getter.
 */
EXP_API const exp_error *exp_config_error(const exp_config *config);

/**
 * The longest that a fetch can take with these settings, by the table of the documentation: for
 * each attempt the wait for a connection and the timeout, between two of them the largest
 * back-off, and no more than the deadline. EXP_NO_LIMIT if nothing bounds it; NULL stands for the
 * defaults. Getter.
 */
EXP_API uint64_t exp_config_worst_case_millis(const exp_config *config);

/**
 * Where the service is: http(s)://host[:port][/base/path]. Wins over the zone. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_server_url(exp_config *config, const char *server_url);

/** The same, with the text's length. */
EXP_API
exp_status exp_config_set_server_url_n(exp_config *config,
                                       const char *server_url,
                                       size_t length);

/**
 * Whose data centre is asked: EXP_ZONE_US (the default) or EXP_ZONE_EU. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_server_zone(exp_config *config, int32_t zone);

/**
 * What the first attempt may take from its connection to the last byte of the answer: 1 to
 * 86400000; 10000 by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_timeout_millis(exp_config *config, uint64_t millis);

/**
 * What each attempt may wait for a connection of the pool: 0 (not at all) to 86400000, or
 * EXP_NO_LIMIT; by default the attempt's own timeout. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_fetch_pool_acquire_timeout_millis(exp_config *config,
                                                            uint64_t millis);

/** Attempts after the first: 0 (the default) to 100. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_config_set_fetch_retries(exp_config *config, uint32_t retries);

/**
 * What each attempt after the first may take: 1 to 86400000; 10000 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_timeout_millis(exp_config *config, uint64_t millis);

/**
 * The wait before the second attempt: 0 to 86400000; 500 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_fetch_retry_backoff_min_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * The longest wait between two attempts: 0 to 86400000; 10000 by default. A service that asks for
 * more ends the fetch. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_fetch_retry_backoff_max_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * What each wait is multiplied by for the next: 1 to 100; 1.5 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_backoff_scalar(exp_config *config, double scalar);

/**
 * Whether each wait is drawn evenly between zero and the back-off: EXP_TRUE or EXP_FALSE (the
 * default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_jitter(exp_config *config, int32_t on);

/**
 * Retries allowed for each hundred fetches of the client, beyond which the last error is reported
 * at once: 1 to 100, or 0 for no such budget (the default). Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_budget_percent(exp_config *config, uint32_t percent);

/**
 * A bound on every whole fetch, from the call to its return: 0 to 86400000, or EXP_NO_LIMIT (the
 * default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_deadline_millis(exp_config *config, uint64_t millis);

/**
 * Connections, and so exchanges at the same time: 1 to 1024; 8 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_connection_pool_max_size(exp_config *config, uint32_t size);

/**
 * How long an unused connection may be used again: 0 (never) to 86400000; 30000 by default. One
 * that is older is closed when the client is next used.
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_connection_idle_timeout_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * How long a connection is used, so that a busy client follows the service to a new address: 0 to
 * 86400000, or EXP_NO_LIMIT; 300000 by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_connection_max_lifetime_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * Asynchronous fetches that may be pending at once: 1 to 1000000; 1024 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_max_pending_fetches(exp_config *config, uint32_t count);

/**
 * The largest body that is read, after decompression: 1 to 1073741824; 8388608 by default. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_max_response_bytes(exp_config *config, uint64_t bytes);

/**
 * A PEM file with the authorities to trust in place of the built-in ones; read when a client is
 * created. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_ca_file(exp_config *config, const char *ca_file);

/** The same, with the text's length. */
EXP_API exp_status exp_config_set_ca_file_n(exp_config *config, const char *ca_file, size_t length);

/**
 * The proxy to go through: http(s)://[user:password@]host[:port]. Wins over the environment.
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_proxy_url(exp_config *config, const char *proxy_url);

/** The same, with the text's length. */
EXP_API
exp_status exp_config_set_proxy_url_n(exp_config *config,
                                      const char *proxy_url,
                                      size_t length);

/**
 * Whether HTTPS_PROXY and its kin are obeyed, as found when a client is created: EXP_TRUE (the
 * default) or EXP_FALSE. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_use_environment_proxy(exp_config *config, int32_t on);

/**
 * The library name and version reported to the service, as name/version; libexperiment/ and its
 * version by default. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_library(exp_config *config, const char *library);

/** The same, with the text's length. */
EXP_API exp_status exp_config_set_library_n(exp_config *config, const char *library, size_t length);

/**
 * Whether the log callback gets everything, whatever its level: EXP_TRUE or EXP_FALSE (the
 * default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_debug(exp_config *config, int32_t on);

/**
 * Sets the callback for log lines up to max_level (EXP_LOG_...), replacing any earlier one; NULL,
 * with any level, for none.
 * Without a callback nothing is written anywhere.
 * On EXP_OK user_data belongs to the library, which calls `finalizer`, if there is one, exactly
 * once: when the settings, all clients created from them and the calls inside those are gone, or
 * the callback was replaced in all of them; at once if `callback` is NULL. It is called on the
 * thread on which that happens. On any other status user_data remains the caller's.
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_log_callback(exp_config *config,
                                       exp_log_callback callback,
                                       void *user_data,
                                       exp_finalizer finalizer,
                                       int32_t max_level);

/** Creates a user of whom nothing is known; the caller owns it. NULL only after a defect. Anytime. */
EXP_API exp_user *exp_user_new(void);

/**
 * Creates a user from a JSON object, as the service reads it; the caller owns it. Fields that this
 * library does not know are kept, null ones left out. `user_out` must not be NULL. Anytime; takes
 * time with the length. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_user_from_json(const char *json, exp_user **user_out, exp_error **error_out);

/** The same, with the text's length. */
EXP_API
exp_status exp_user_from_json_n(const char *json,
                                size_t length,
                                exp_user **user_out,
                                exp_error **error_out);

/**
 * The first value that was refused, borrowed; NULL if there was none. A fetch for this user fails
 * with it. Getter.
 */
EXP_API const exp_error *exp_user_error(const exp_user *user);

/** Who the user is. NULL for unknown, as in all of these. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_user_id(exp_user *user, const char *user_id);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_user_id_n(exp_user *user, const char *user_id, size_t length);

/** On which device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_device_id(exp_user *user, const char *device_id);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_device_id_n(exp_user *user, const char *device_id, size_t length);

/** The country. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_country(exp_user *user, const char *country);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_country_n(exp_user *user, const char *country, size_t length);

/** The region in the country. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_region(exp_user *user, const char *region);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_region_n(exp_user *user, const char *region, size_t length);

/** The designated market area. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_dma(exp_user *user, const char *dma);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_dma_n(exp_user *user, const char *dma, size_t length);

/** The city. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_city(exp_user *user, const char *city);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_city_n(exp_user *user, const char *city, size_t length);

/** The language. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_language(exp_user *user, const char *language);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_language_n(exp_user *user, const char *language, size_t length);

/** The platform, like iOS. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_platform(exp_user *user, const char *platform);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_platform_n(exp_user *user, const char *platform, size_t length);

/** The version of the host's application. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_version(exp_user *user, const char *version);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_version_n(exp_user *user, const char *version, size_t length);

/** The operating system. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_os(exp_user *user, const char *os);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_os_n(exp_user *user, const char *os, size_t length);

/** Who made the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API
exp_status exp_user_set_device_manufacturer(exp_user *user,
                                            const char *device_manufacturer);

/** The same, with the text's length. */
EXP_API
exp_status exp_user_set_device_manufacturer_n(exp_user *user,
                                              const char *device_manufacturer,
                                              size_t length);

/** The brand of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_device_brand(exp_user *user, const char *device_brand);

/** The same, with the text's length. */
EXP_API
exp_status exp_user_set_device_brand_n(exp_user *user,
                                       const char *device_brand,
                                       size_t length);

/** The model of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_device_model(exp_user *user, const char *device_model);

/** The same, with the text's length. */
EXP_API
exp_status exp_user_set_device_model_n(exp_user *user,
                                       const char *device_model,
                                       size_t length);

/** The carrier of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_carrier(exp_user *user, const char *carrier);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_carrier_n(exp_user *user, const char *carrier, size_t length);

/**
 * The library name and version reported to the service; NULL for the client's own setting. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_user_set_library(exp_user *user, const char *library);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_library_n(exp_user *user, const char *library, size_t length);

/** The IP address. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_ip_address(exp_user *user, const char *ip_address);

/** The same, with the text's length. */
EXP_API exp_status exp_user_set_ip_address_n(exp_user *user, const char *ip_address, size_t length);

/** A member of user_properties: any JSON, null included. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_property_json(exp_user *user, const char *name, const char *json);

/** The same, with the texts' lengths. */
EXP_API
exp_status exp_user_set_property_json_n(exp_user *user,
                                        const char *name,
                                        size_t name_length,
                                        const char *json,
                                        size_t json_length);

/** Puts the user into one more group of a type. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API
exp_status exp_user_add_group(exp_user *user,
                              const char *group_type,
                              const char *group_name);

/** The same, with the texts' lengths. */
EXP_API
exp_status exp_user_add_group_n(exp_user *user,
                                const char *group_type,
                                size_t group_type_length,
                                const char *group_name,
                                size_t group_name_length);

/**
 * Any field of the user as JSON, user_properties, groups and those that this library does not know
 * included; NULL or the JSON null for absent. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_user_set_field_json(exp_user *user, const char *name, const char *json);

/** The same, with the texts' lengths. */
EXP_API
exp_status exp_user_set_field_json_n(exp_user *user,
                                     const char *name,
                                     size_t name_length,
                                     const char *json,
                                     size_t json_length);

/**
 * Creates options in which nothing is chosen; the caller owns them. NULL only after a defect.
 * Anytime.
 */
EXP_API exp_fetch_options *exp_fetch_options_new(void);

/**
 * The first value that was refused, borrowed; NULL if there was none. A fetch with these options
 * fails with it. Getter.
 */
EXP_API const exp_error *exp_fetch_options_error(const exp_fetch_options *options);

/**
 * Whether the service records the assignment: EXP_TRUE, EXP_FALSE or EXP_UNSET (the default).
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_tracks_assignment(exp_fetch_options *options,
                                                   int32_t choice);

/**
 * Whether the service records an exposure: EXP_TRUE, EXP_FALSE or EXP_UNSET (the default).
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_tracks_exposure(exp_fetch_options *options,
                                                 int32_t choice);

/**
 * Adds a flag to those that are evaluated; none added: all are. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_fetch_options_add_flag_key(exp_fetch_options *options, const char *flag_key);

/** The same, with the key's length. */
EXP_API
exp_status exp_fetch_options_add_flag_key_n(exp_fetch_options *options,
                                            const char *flag_key,
                                            size_t length);

/**
 * A bound on the whole fetch, from the call to its return; the client's own holds beside it. 0 to
 * 86400000, or EXP_NO_LIMIT (the default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_deadline_millis(exp_fetch_options *options,
                                                 uint64_t millis);

/**
 * A switch that ends the fetch; NULL takes it off again. The options hold a reference of their
 * own: the caller still owns `cancel`. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_fetch_options_set_cancel(exp_fetch_options *options, exp_cancel *cancel);

/**
 * A hook for hosts whose thread sits inside the call; NULL takes it off again. It is asked on
 * that thread, every 50 ms while the fetch waits, and whenever a signal interrupts its wait for the
 * network. user_data
 * remains the caller's, and must live as long as fetches with these options run. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_interrupt(exp_fetch_options *options,
                                           exp_interrupt_hook interrupted,
                                           void *user_data);

/** Creates a switch that has not fired; the caller owns it. NULL only after a defect. Anytime. */
EXP_API exp_cancel *exp_cancel_new(void);

/**
 * Ends every fetch that carries the switch, with EXP_ERR_CANCELED; it stays fired. NULL is
 * ignored. Anytime; does not wait for the fetches to end. The only function that may be called in
 * a signal handler, also one that interrupts a call of this library: it is async-signal-safe, and
 * leaves errno as it was.
 */
EXP_API void exp_cancel_fire(exp_cancel *cancel);

/**
 * Creates a client for a server deployment key; the caller owns it. `config` may be NULL for the
 * defaults, and is copied; a value that it refused before fails the call. `client_out` must not be
 * NULL. Reads the environment and the ca_file if they are wanted; opens no connection and starts
 * no thread. Anytime, with the settings read like a Getter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_client_new(const char *api_key,
                          const exp_config *config,
                          exp_client **client_out,
                          exp_error **error_out);

/** The same, with the key's length. */
EXP_API
exp_status exp_client_new_n(const char *api_key,
                            size_t length,
                            const exp_config *config,
                            exp_client **client_out,
                            exp_error **error_out);

/**
 * Fetches the variants of a user, on this thread.
 * `user` may be NULL for one of whom nothing is known, `options` for none; a value that one of
 * them refused before fails the call. On EXP_OK *variants_out is a set, maybe an empty one,
 * which the caller owns. `variants_out` must not be NULL. A request whose kept connection had
 * ended may be sent, and so evaluated, twice; with tracks_exposure only if nothing of it had been
 * sent before. Anytime, with user and options read like a Getter. Blocks no longer than
 * exp_config_worst_case_millis tells for the client's settings, or than the deadline of the
 * options. EXP_OK and every status but EXP_ERR_QUEUE_FULL.
 */
EXP_API
exp_status exp_fetch_v2(exp_client *client,
                        const exp_user *user,
                        const exp_fetch_options *options,
                        exp_variants **variants_out,
                        exp_error **error_out);

/**
 * Closes the client: new fetches are refused and those in line end, both with EXP_ERR_CLOSED;
 * those that run are waited for. When the time is over they are cut off, also with EXP_ERR_CLOSED,
 * and this returns EXP_ERR_TIMEOUT: call it again to wait until they are back. On EXP_OK the
 * client's threads are gone; when nothing runs any more they have 100 ms beyond the time for it,
 * which a destructor of a thread-local of yours may exceed (EXP_ERR_TIMEOUT). 0 to 86400000, or
 * EXP_NO_LIMIT. You still own the client.
 * Called from a callback of a fetch with this client, it begins to close, does not wait, and
 * returns EXP_ERR_TIMEOUT. Anytime. EXP_OK, EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_client_close(exp_client *client, uint64_t timeout_millis);

/**
 * Writes what the client has counted so far, as EXP_METRICS_JSON or EXP_METRICS_OPENMETRICS; the
 * caller owns the text. `text_out` must not be NULL. Anytime; waits for nothing. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_client_metrics(exp_client *client,
                              int32_t format,
                              exp_text **text_out,
                              exp_error **error_out);

/**
 * Starts to fetch the variants of a user, and returns at once. What it came to is told to
 * `callback`, with the same status, message and detail as exp_fetch_v2 has: exactly once if this
 * returns EXP_OK, else never; on a thread of the library, never on this one (started in a
 * callback: not before that has returned, then maybe on its thread); never before *pending_out is
 * written, maybe before this returns to your code. At most one more callback runs at once than the
 * pool has connections. One that blocks delays others; their status changes only where as many block
 * at once as the pool has connections.
 * `user`, `options` and NULL as for exp_fetch_v2; an interrupt hook is not asked. `callback` must
 * not be NULL. `pending_out` may be NULL; else the caller owns *pending_out, to cancel the fetch
 * or to wait for it. Anytime, with user and options read like a Getter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT, EXP_ERR_CLOSED, EXP_ERR_QUEUE_FULL.
 */
EXP_API
exp_status exp_fetch_v2_async(exp_client *client,
                              const exp_user *user,
                              const exp_fetch_options *options,
                              exp_fetch_callback callback,
                              void *user_data,
                              exp_pending **pending_out,
                              exp_error **error_out);

/**
 * Starts to fetch the variants of a user, and returns at once. When it is over, it is found in
 * `completions`, which must not be NULL; no thread of the library ever calls you. Else as
 * exp_fetch_v2_async; `user_data` is what exp_pending_user_data tells.
 */
EXP_API
exp_status exp_fetch_v2_submit(exp_client *client,
                               const exp_user *user,
                               const exp_fetch_options *options,
                               exp_completions *completions,
                               void *user_data,
                               exp_pending **pending_out,
                               exp_error **error_out);

/**
 * Ends the fetch with EXP_ERR_CANCELED, wherever it is: in line, connecting, reading, between two
 * attempts. It is still told, once. Does nothing if it is over or its answer is there already.
 * NULL is ignored. Anytime; does not wait for the end. Not in a signal handler: fire a switch
 * there (exp_cancel_fire). EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_pending_cancel(exp_pending *pending);

/**
 * Waits until the fetch is over, and its callback, if it has one, has returned (or is where this
 * is called). 0 to 86400000, or EXP_NO_LIMIT. Anytime. EXP_OK, EXP_ERR_TIMEOUT,
 * EXP_ERR_INVALID_ARGUMENT; EXP_ERR_CANCELED in a process forked after the fetch was
 * started.
 */
EXP_API exp_status exp_pending_wait(exp_pending *pending, uint64_t timeout_millis);

/**
 * Takes what a fetch came to, once it was found in its completions: the status, and on EXP_OK a
 * set, which the caller owns. Can be taken once. `variants_out` must not be NULL. Anytime. The
 * fetch's own status; EXP_ERR_INVALID_ARGUMENT if it is not over, or was taken or told already;
 * EXP_ERR_CANCELED in a process forked after the fetch was started.
 */
EXP_API
exp_status exp_pending_take(exp_pending *pending,
                            exp_variants **variants_out,
                            exp_error **error_out);

/** What the fetch was started with; NULL for NULL. Anytime. */
EXP_API void *exp_pending_user_data(const exp_pending *pending);

/** Creates an empty queue; the caller owns it. NULL if the process has no descriptor left. Anytime. */
EXP_API exp_completions *exp_completions_new(void);

/**
 * A descriptor for poll(2), epoll(7) and their kin: readable while the queue is not empty. It
 * belongs to the queue: do not read, write or close it. -1 for NULL, and in a process forked after
 * the queue was created, where it is the parent's. Getter.
 */
EXP_API int exp_completions_fd(exp_completions *completions);

/**
 * Takes the fetch that ended first out of the queue. The caller owns the reference, whether it
 * kept the one from the start or not; it is not at the same address, so tell fetches apart by
 * exp_pending_user_data. NULL if the queue is empty. Anytime; waits for nothing.
 */
EXP_API exp_pending *exp_completions_next(exp_completions *completions);

/**
 * Waits until the queue is not empty. 0 to 86400000, or EXP_NO_LIMIT. Anytime. EXP_OK,
 * EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT; EXP_ERR_CANCELED in a process
 * forked after the queue was created.
 */
EXP_API exp_status exp_completions_wait(exp_completions *completions, uint64_t timeout_millis);

/** How many variants there are. Getter. */
EXP_API size_t exp_variants_count(const exp_variants *variants);

/** The variant of a flag, borrowed from the set; NULL if it has none. Getter. */
EXP_API const exp_variant *exp_variants_get(const exp_variants *variants, const char *flag_key);

/** The same, with the key's length. Getter. */
EXP_API
const exp_variant *exp_variants_get_n(const exp_variants *variants,
                                      const char *flag_key,
                                      size_t length);

/** The variant at a position from 0, borrowed from the set; NULL past the end. Getter. */
EXP_API const exp_variant *exp_variants_at(const exp_variants *variants, size_t index);

/**
 * The value of a flag's variant, borrowed from the set; `fallback`, untouched, if there is no
 * such variant or it has no value. For its length: exp_variants_get, exp_variant_value_length.
 * Getter.
 */
EXP_API
const char *exp_variants_value(const exp_variants *variants,
                               const char *flag_key,
                               const char *fallback);

/** The same, with the key's length. Getter. */
EXP_API
const char *exp_variants_value_n(const exp_variants *variants,
                                 const char *flag_key,
                                 size_t length,
                                 const char *fallback);

/**
 * The whole set as one JSON object, each variant under its flag's key as the service sent it,
 * though characters of that key may be escaped or not; borrowed from the set, which makes it when
 * first asked. Getter.
 */
EXP_API const char *exp_variants_json(const exp_variants *variants);

/** The length of that JSON in bytes. Getter. */
EXP_API size_t exp_variants_json_length(const exp_variants *variants);

/**
 * Creates a set of those variants that are deployed and not the default of their flag, which the
 * caller owns: what the deprecated `fetch` of the official SDKs returns. `variants_out` must not
 * be NULL. Getter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_variants_filter_deployed(const exp_variants *variants,
                                        exp_variants **variants_out,
                                        exp_error **error_out);

/**
 * Another reference to the same set, from within a callback not at the same address; the caller
 * owns it. NULL for NULL. Getter.
 */
EXP_API exp_variants *exp_variants_retain(const exp_variants *variants);

/** Attempts that the fetch took, the first included; 0 for NULL. Getter. */
EXP_API uint32_t exp_variants_attempts(const exp_variants *variants);

/** 1 if the last attempt went over a connection that had served before, else 0. Getter. */
EXP_API int32_t exp_variants_connection_reused(const exp_variants *variants);

/**
 * Microseconds that the fetch spent in a phase (EXP_PHASE_...), all attempts together; 0 for any
 * other number. Getter.
 */
EXP_API uint64_t exp_variants_phase_micros(const exp_variants *variants, int32_t phase);

/**
 * Microseconds left of the fetch that brought the set: until its last attempt's timeout, or until
 * its deadline if that is earlier. 0 when that time has passed; UINT64_MAX for NULL. A binding
 * that makes objects of many variants looks at this between them, so that they are made within the
 * same bound as the fetch. Getter.
 */
EXP_API uint64_t exp_variants_micros_left(const exp_variants *variants);

/** The key of the flag. NULL for NULL, as in all of these. Getter. */
EXP_API const char *exp_variant_flag_key(const exp_variant *variant);

/** Its length in bytes; 0 for NULL, as in all of these. Getter. */
EXP_API size_t exp_variant_flag_key_length(const exp_variant *variant);

/** The key of the variant; NULL if the service sent none. Getter. */
EXP_API const char *exp_variant_key(const exp_variant *variant);

/** Its length in bytes. Getter. */
EXP_API size_t exp_variant_key_length(const exp_variant *variant);

/** The value of the variant; JSON if the service sent no string, NULL if it sent none. Getter. */
EXP_API const char *exp_variant_value(const exp_variant *variant);

/** Its length in bytes. Getter. */
EXP_API size_t exp_variant_value_length(const exp_variant *variant);

/** The payload of the variant as JSON; NULL if the service sent none. Getter. */
EXP_API const char *exp_variant_payload_json(const exp_variant *variant);

/** Its length in bytes. Getter. */
EXP_API size_t exp_variant_payload_json_length(const exp_variant *variant);

/** The metadata of the variant as JSON; NULL if the service sent none. Getter. */
EXP_API const char *exp_variant_metadata_json(const exp_variant *variant);

/** Its length in bytes. Getter. */
EXP_API size_t exp_variant_metadata_json_length(const exp_variant *variant);

/** The status that the call returned; EXP_OK for NULL. Getter. */
EXP_API exp_status exp_error_status(const exp_error *error);

/**
 * One line that says what happened and what to do, without the API key and without anything of
 * the user; NULL for NULL. Getter.
 */
EXP_API const char *exp_error_message(const exp_error *error);

/** The message's length in bytes. Getter. */
EXP_API size_t exp_error_message_length(const exp_error *error);

/** The HTTP status of the last answer; 0 when there was none. Getter. */
EXP_API int32_t exp_error_http_status(const exp_error *error);

/**
 * Attempts made, the first included, though it found no connection or the client closed; 0 when
 * the call was refused before. Getter.
 */
EXP_API uint32_t exp_error_attempts(const exp_error *error);

/**
 * 1 if the same call may succeed when made again: timeouts, network failures (but a proxy that
 * wants other credentials), unreadable answers, and every HTTP status but the 4xx, of which 429
 * counts. Else 0. Getter.
 */
EXP_API int32_t exp_error_is_retryable(const exp_error *error);

/** How long the service asked to be left alone; 0 if it did not. Getter. */
EXP_API uint64_t exp_error_retry_after_millis(const exp_error *error);

/** What a fetch was doing when its time was over; EXP_PHASE_NONE if it failed otherwise. Getter. */
EXP_API exp_phase exp_error_phase(const exp_error *error);

/**
 * Microseconds spent in a phase (EXP_PHASE_...), all attempts together; 0 for any other number.
 * Getter.
 */
EXP_API uint64_t exp_error_phase_micros(const exp_error *error, int32_t phase);

/** 1 if the last attempt went over a connection that had served before, else 0. Getter. */
EXP_API int32_t exp_error_connection_reused(const exp_error *error);

/**
 * Another reference to the same error, not necessarily at the same address; the caller owns it.
 * NULL for NULL. Getter.
 */
EXP_API exp_error *exp_error_retain(const exp_error *error);

/** The text itself, borrowed; NULL for NULL. Getter. */
EXP_API const char *exp_text_value(const exp_text *text);

/** Its length in bytes; 0 for NULL. Getter. */
EXP_API size_t exp_text_length(const exp_text *text);

/**
 * Gives up one reference to an object of any kind. NULL and borrowed objects are ignored; for an
 * exp_variant that is logged, if the client that it came from has a log callback.
 * A client begins to close: new fetches are refused, those in line end with EXP_ERR_CLOSED, those
 * that run go on; its memory goes with the last of them. A finalizer that you gave may run inside.
 * Any thread; waits for nothing.
 */
EXP_API void exp_free(void *object);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EXPERIMENT_H */
