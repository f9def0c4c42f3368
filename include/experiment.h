/*
 * libexperiment: variants from Amplitude Experiment, each fetch back within the time you set.
 * Needs C99 or C++11. This file is generated from src/ffi; edit there.
 *
 * OWNERSHIP. The caller owns every object that is returned by ..._new, ..._retain or
 * exp_completions_next, or through an ..._out parameter, and releases it with exp_free(object),
 * whatever its type. Everything else that is returned is borrowed: exp_variant, every string, and
 * the `const exp_error *` of ..._error(object). It lives as long as the object it came from.
 * exp_free ignores NULL and borrowed objects; never pass it a string. Using or freeing a freed
 * object is undefined, as with free(). A live object of the wrong type is recognized: functions
 * that return a status return EXP_ERR_INVALID_ARGUMENT, getters their empty value (0, NULL, -1 or
 * the fallback). Arguments are copied or reference-counted, except user_data.
 *
 * THREADS. Every function may be called on any thread. Three words say what may run concurrently:
 *   Setter:  one thread at a time per object, with no other call on that object in progress. Does
 *            not block. A refused value leaves the object unchanged and is remembered (..._error).
 *   Getter:  any number of threads at once, while no setter runs. Does not block. Its time depends
 *            only on the size of what it returns (JSON, another set); threads that are the first to
 *            ask for the same JSON wait for each other.
 *   Anytime: any number of threads at once, whatever else is in progress on the object.
 * A function that does not block waits neither for the network nor for a fetch or a callback, only
 * for locks that are held briefly. exp_free does not block either, but may run a finalizer of
 * yours. A client, a pending fetch or completions may be freed while other threads are inside
 * exp_fetch_v2, exp_client_close or a wait on that object. Otherwise free a reference only when
 * every call made with it has returned. No call may begin with it afterwards.
 *
 * ERRORS. EXP_OK is 0. A function that ends in `exp_error **error_out`, which may be NULL, creates
 * an error when it fails; the caller owns it. Out parameters are written on every return: on
 * failure the object is NULL, on success the error is. Any status may be EXP_ERR_INTERNAL, a defect
 * caught in the library, so it is not listed below; nothing unwinds into your code. Every accessor
 * takes a NULL exp_variants as the empty set, and a NULL exp_error as no error.
 *
 * TEXT goes in as NUL-terminated UTF-8; each function that takes text has a counterpart ..._n that
 * takes pointer and length, where NULL with length 0 is NULL. Text comes out NUL-terminated; where
 * it may contain NULs, ..._length returns its length. Absent and null values come out as NULL.
 *
 * CALLBACKS receive your user_data as their first argument, unchanged, possibly on a thread of the
 * library: it must be safe to use there. A callback may call any function of the library, which
 * then holds no lock that the call would wait for; but a fetch from a log callback or an interrupt
 * hook may have to do without the connection of the fetch that it interrupts. A callback must
 * return normally: leaving it by a C++ exception or longjmp is undefined. A signal handler may call
 * only exp_cancel_fire, whatever the handler interrupts; the library's own threads block every
 * signal. A thread canceled with pthread_cancel inside a call or a callback returns from the call
 * first; never make it asynchronously cancelable. A call uses up to 96 KiB of stack: give threads
 * that fetch 128 KiB or more.
 *
 * FORK. After fork(2) a client keeps working in the parent, which is not affected, and in the
 * child, where it starts afresh without connections. Asynchronous fetches stay with the parent: in
 * the child an inherited exp_pending fails with EXP_ERR_CANCELED, inherited completions stay empty,
 * and no callback runs for them. A callback that forks must not return in the child, except an
 * interrupt hook: there its fetch ends with EXP_ERR_CANCELED. What an inherited client holds is
 * never freed in the child, so the finalizer of its log callback does not run there. Other objects
 * keep working in the child, unless another thread was inside a call on them at the fork. A name
 * lookup can hang in a child forked while another thread was in one, on a lock of the C library;
 * the fetch still ends in time.
 *
 * UNLOADING. The shared library is linked with `-z nodelete`: dlclose leaves it loaded. Link a
 * module that contains the static library in the same way.
 */

#ifndef EXPERIMENT_H
#define EXPERIMENT_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header; exp_version() and exp_version_number() return the library's. */
#define EXP_VERSION_MAJOR 0
#define EXP_VERSION_MINOR 1
#define EXP_VERSION_PATCH 0
#define EXP_VERSION_NUMBER 0x000100
#define EXP_VERSION_STRING "0.1.0"
/* For #if: nonzero if this header has that version or a later one. */
#define EXP_VERSION_AT_LEAST(major, minor, patch) \
    (EXP_VERSION_NUMBER >= (((major) << 16) | ((minor) << 8) | (patch)))

/* No limit, for times in milliseconds that accept it. */
#define EXP_NO_LIMIT UINT64_MAX

/* Exports or imports each function. */
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


/**
 * The result of a call. Numbers are fixed and never reused. The library retries no failure that is
 * final.
 */
typedef enum {
    EXP_OK = 0,
    /** An argument or a setting is invalid; the message names it. Final. */
    EXP_ERR_INVALID_ARGUMENT = 1,
    /** A time limit expired; the message says which, and what the call was waiting for. */
    EXP_ERR_TIMEOUT = 2,
    /**
     * The host name was not found, or the connection failed, was closed, or was refused by a proxy
     * (final if it responded with 407).
     */
    EXP_ERR_NETWORK = 3,
    /** The certificate was rejected, or TLS failed otherwise. Final. */
    EXP_ERR_TLS = 4,
    /**
     * The service responded with a status other than 200; see exp_error_http_status. Final for
     * 4xx, except 429.
     */
    EXP_ERR_HTTP_STATUS = 5,
    /** The response is truncated, too large, or not valid HTTP or JSON. */
    EXP_ERR_INVALID_RESPONSE = 6,
    /** You canceled the fetch: by exp_pending_cancel, an exp_cancel or an interrupt hook. Final. */
    EXP_ERR_CANCELED = 7,
    /** The client is closing or closed. Final. */
    EXP_ERR_CLOSED = 8,
    /** Too many asynchronous fetches are pending, or no thread can be started for them. Final. */
    EXP_ERR_QUEUE_FULL = 9,
    /** A defect in the library; please report the message. Final. */
    EXP_ERR_INTERNAL = 10,
} exp_status;

/** The severity of a log line. */
typedef enum {
    EXP_LOG_ERROR = 1,
    EXP_LOG_WARN = 2,
    EXP_LOG_INFO = 3,
    EXP_LOG_DEBUG = 4,
} exp_log_level;

/** What a fetch is doing. */
typedef enum {
    /** None: the failure was not a timeout. */
    EXP_PHASE_NONE = -1,
    /** Waiting for a connection from the pool. */
    EXP_PHASE_POOL = 0,
    /** Looking up the host name. */
    EXP_PHASE_RESOLVE = 1,
    /** Opening the TCP connection, and the tunnel through a proxy. */
    EXP_PHASE_CONNECT = 2,
    /** In the TLS handshake. */
    EXP_PHASE_TLS = 3,
    /** Sending the request. */
    EXP_PHASE_SEND = 4,
    /** Waiting for the response headers. */
    EXP_PHASE_FIRST_BYTE = 5,
    /** Reading and decoding the response body. */
    EXP_PHASE_BODY = 6,
    /** Waiting between two attempts. */
    EXP_PHASE_BACKOFF = 7,
} exp_phase;

/** The data centers of the service. */
typedef enum {
    EXP_ZONE_US = 0,
    EXP_ZONE_EU = 1,
} exp_zone;

/** The formats of exp_client_metrics. */
typedef enum {
    /** One JSON object; times are in seconds. */
    EXP_METRICS_JSON = 0,
    /** OpenMetrics text, version 1.0.0. */
    EXP_METRICS_OPENMETRICS = 1,
} exp_metrics_format;

/** A choice that may be left to the service. */
typedef enum {
    /** Not chosen: the service decides. */
    EXP_UNSET = -1,
    EXP_FALSE = 0,
    EXP_TRUE = 1,
} exp_choice;

/**
 * A cancellation token. Firing it ends every fetch that carries it, running or yet to start. See
 * exp_fetch_options_set_cancel.
 */
typedef struct exp_cancel exp_cancel;

/** Fetches variants over a bounded pool of connections. */
typedef struct exp_client exp_client;

/**
 * A queue of finished asynchronous fetches, in the order in which they finished. Any number of
 * clients and threads may share one.
 */
typedef struct exp_completions exp_completions;

/** Settings for clients. Creating a client copies them. */
typedef struct exp_config exp_config;

/** Why a call failed. */
typedef struct exp_error exp_error;

/** Options for fetches. Any number of fetches may use the same options, also concurrently. */
typedef struct exp_fetch_options exp_fetch_options;

/** One asynchronous fetch. Freeing it does not end the fetch; see exp_pending_cancel. */
typedef struct exp_pending exp_pending;

/** A string that a function created for you. */
typedef struct exp_text exp_text;

/**
 * What is known about a user. The service evaluates it; the library keeps none of it between
 * fetches.
 */
typedef struct exp_user exp_user;

/** The variant of one flag, borrowed from its set. */
typedef struct exp_variant exp_variant;

/**
 * The variants that one fetch returned, in the order of the service, and facts about that fetch.
 * Immutable; may outlive its client.
 */
typedef struct exp_variants exp_variants;

/**
 * Receives a log line: NUL-terminated UTF-8, `length` bytes without the NUL, borrowed for the
 * call. May run on any thread, and on several at once.
 */
typedef void (EXP_CALL *exp_log_callback)(void *user_data,
                                          exp_log_level level,
                                          const char *message,
                                          size_t length);

/** Runs when the library will not use user_data again. */
typedef void (EXP_CALL *exp_finalizer)(void *user_data);

/**
 * Decides whether the fetch on this thread goes on: 0 to continue, anything else to end it with
 * EXP_ERR_CANCELED.
 */
typedef int32_t (EXP_CALL *exp_interrupt_hook)(void *user_data);

/**
 * Receives the result of an asynchronous fetch: on EXP_OK a set; otherwise NULL, the empty set,
 * and an error. Both are borrowed for the call; keep them with exp_variants_retain and
 * exp_error_retain.
 */
typedef void (EXP_CALL *exp_fetch_callback)(void *user_data,
                                            exp_status status,
                                            const exp_variants *variants,
                                            const exp_error *error);



#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the library at run time, such as "1.2.3"; EXP_VERSION_STRING is the
 * version of this header. Static, never NULL. Anytime.
 */
EXP_API const char *exp_version(void);

/** Returns the same version as a number, 0xMMmmpp; compare with EXP_VERSION_NUMBER. Anytime. */
EXP_API uint32_t exp_version_number(void);

/**
 * Returns the name of a status, such as "EXP_ERR_TIMEOUT"; "EXP_ERR_UNKNOWN" for an unknown
 * number. Static, never NULL. Anytime.
 */
EXP_API const char *exp_status_name(int32_t status);

/**
 * Creates settings with their default values; the caller owns them. NULL only after a defect.
 * Anytime.
 */
EXP_API exp_config *exp_config_new(void);

/**
 * Returns the first refusal of a value, borrowed; NULL if no value was refused. exp_client_new
 * fails with it. Getter.
 */
EXP_API const exp_error *exp_config_error(const exp_config *config);

/**
 * Returns the longest time that a fetch can take with these settings: for each attempt, the wait
 * for a connection plus the timeout; between attempts, the largest back-off; all of it limited by
 * the deadline. EXP_NO_LIMIT if nothing bounds it. NULL means the defaults. Getter.
 */
EXP_API uint64_t exp_config_worst_case_millis(const exp_config *config);

/**
 * Sets the URL of the service: http(s)://host[:port][/base/path]. Overrides the zone. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_server_url(exp_config *config, const char *server_url);

/** The same, with an explicit length. */
EXP_API
exp_status exp_config_set_server_url_n(exp_config *config,
                                       const char *server_url,
                                       size_t length);

/**
 * Selects the data center: EXP_ZONE_US (the default) or EXP_ZONE_EU. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_server_zone(exp_config *config, int32_t zone);

/**
 * Limits the first attempt, from when the pool grants a connection until the response is decoded:
 * 1 to 86400000; 10000 by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_timeout_millis(exp_config *config, uint64_t millis);

/**
 * Limits how long each attempt waits for a connection from the pool: 0 (not at all) to 86400000,
 * or EXP_NO_LIMIT; the timeout of the attempt by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_fetch_pool_acquire_timeout_millis(exp_config *config,
                                                            uint64_t millis);

/**
 * Sets the number of attempts after the first: 0 (the default) to 100. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retries(exp_config *config, uint32_t retries);

/**
 * Limits each attempt after the first, as fetch_timeout_millis does the first: 1 to 86400000;
 * 10000 by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_timeout_millis(exp_config *config, uint64_t millis);

/**
 * Sets the wait before the second attempt: 0 to 86400000; 500 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_fetch_retry_backoff_min_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * Sets the longest wait between two attempts: 0 to 86400000; 10000 by default. If the service asks
 * for a longer one (Retry-After), the fetch ends. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_fetch_retry_backoff_max_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * Sets the factor from each wait to the next: 1 to 100; 1.5 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_backoff_scalar(exp_config *config, double scalar);

/**
 * Draws each wait uniformly between zero and the back-off: EXP_TRUE or EXP_FALSE (the default).
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_jitter(exp_config *config, int32_t on);

/**
 * Limits the retries of a client to so many for every hundred fetches; beyond them a failed
 * attempt ends its fetch: 1 to 100, or 0 for no limit (the default). Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_retry_budget_percent(exp_config *config, uint32_t percent);

/**
 * Limits every fetch as a whole, from the call to its return: 0 to 86400000, or EXP_NO_LIMIT (the
 * default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_fetch_deadline_millis(exp_config *config, uint64_t millis);

/**
 * Sets the number of connections, and so of concurrent requests: 1 to 1024; 8 by default. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_connection_pool_max_size(exp_config *config, uint32_t size);

/**
 * Limits how long an idle connection may be reused: 0 (never) to 86400000; 30000 by default. One
 * that is idle for longer is closed when the client is next used. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_connection_idle_timeout_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * Limits the age up to which a connection is reused, so that a busy client follows the service to
 * a new address: 0 to 86400000, or EXP_NO_LIMIT; 300000 by default. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_connection_max_lifetime_millis(exp_config *config,
                                                         uint64_t millis);

/**
 * Limits the asynchronous fetches that are pending at once: 1 to 1000000; 1024 by default. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_max_pending_fetches(exp_config *config, uint32_t count);

/**
 * Limits the size of a response body, after decompression: 1 to 1073741824 bytes; 8388608 by
 * default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_max_response_bytes(exp_config *config, uint64_t bytes);

/**
 * Sets a PEM file of certificates to trust in place of the built-in authorities. It is read when a
 * client is created. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_ca_file(exp_config *config, const char *ca_file);

/** The same, with an explicit length. */
EXP_API exp_status exp_config_set_ca_file_n(exp_config *config, const char *ca_file, size_t length);

/**
 * Sets the proxy: http(s)://[user:password@]host[:port]. Overrides the environment. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_proxy_url(exp_config *config, const char *proxy_url);

/** The same, with an explicit length. */
EXP_API
exp_status exp_config_set_proxy_url_n(exp_config *config,
                                      const char *proxy_url,
                                      size_t length);

/**
 * Obeys HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, as they are when a client is created:
 * EXP_TRUE (the default) or EXP_FALSE. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_use_environment_proxy(exp_config *config, int32_t on);

/**
 * Sets the library name and version reported to the service, as name/version; libexperiment and
 * its version by default. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_library(exp_config *config, const char *library);

/** The same, with an explicit length. */
EXP_API exp_status exp_config_set_library_n(exp_config *config, const char *library, size_t length);

/**
 * Passes every line to the log callback, whatever its max_level: EXP_TRUE or EXP_FALSE (the
 * default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_config_set_debug(exp_config *config, int32_t on);

/**
 * Sets the callback for log lines up to max_level (EXP_LOG_...), replacing any earlier one; NULL,
 * with any level, removes it. Without a callback nothing is written anywhere.
 * On EXP_OK user_data belongs to the library, which calls `finalizer`, unless NULL, exactly once:
 * when no settings, no client and no call in progress use the callback any more, on the thread
 * where that happens; before this returns if `callback` is NULL. On any other status user_data
 * remains the caller's.
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_config_set_log_callback(exp_config *config,
                                       exp_log_callback callback,
                                       void *user_data,
                                       exp_finalizer finalizer,
                                       int32_t max_level);

/**
 * Creates a user about whom nothing is known; the caller owns it. NULL only after a defect.
 * Anytime.
 */
EXP_API exp_user *exp_user_new(void);

/**
 * Creates a user from a JSON object in the format of the service; the caller owns it. Keeps fields
 * that this library does not know, drops those that are null. `user_out` must not be NULL.
 * Anytime; takes time in proportion to the length. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_user_from_json(const char *json, exp_user **user_out, exp_error **error_out);

/** The same, with an explicit length. */
EXP_API
exp_status exp_user_from_json_n(const char *json,
                                size_t length,
                                exp_user **user_out,
                                exp_error **error_out);

/**
 * Returns the first refusal of a value, borrowed; NULL if no value was refused. A fetch for this
 * user fails with it. Getter.
 */
EXP_API const exp_error *exp_user_error(const exp_user *user);

/** Sets the user ID. NULL clears it, as in all of these. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_user_id(exp_user *user, const char *user_id);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_user_id_n(exp_user *user, const char *user_id, size_t length);

/** Sets the device ID. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_device_id(exp_user *user, const char *device_id);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_device_id_n(exp_user *user, const char *device_id, size_t length);

/** Sets the country. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_country(exp_user *user, const char *country);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_country_n(exp_user *user, const char *country, size_t length);

/** Sets the region within the country. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_region(exp_user *user, const char *region);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_region_n(exp_user *user, const char *region, size_t length);

/** Sets the designated market area. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_dma(exp_user *user, const char *dma);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_dma_n(exp_user *user, const char *dma, size_t length);

/** Sets the city. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_city(exp_user *user, const char *city);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_city_n(exp_user *user, const char *city, size_t length);

/** Sets the language. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_language(exp_user *user, const char *language);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_language_n(exp_user *user, const char *language, size_t length);

/** Sets the platform, such as iOS. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_platform(exp_user *user, const char *platform);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_platform_n(exp_user *user, const char *platform, size_t length);

/** Sets the version of the host application. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_version(exp_user *user, const char *version);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_version_n(exp_user *user, const char *version, size_t length);

/** Sets the operating system. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_os(exp_user *user, const char *os);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_os_n(exp_user *user, const char *os, size_t length);

/** Sets the manufacturer of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API
exp_status exp_user_set_device_manufacturer(exp_user *user,
                                            const char *device_manufacturer);

/** The same, with an explicit length. */
EXP_API
exp_status exp_user_set_device_manufacturer_n(exp_user *user,
                                              const char *device_manufacturer,
                                              size_t length);

/** Sets the brand of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_device_brand(exp_user *user, const char *device_brand);

/** The same, with an explicit length. */
EXP_API
exp_status exp_user_set_device_brand_n(exp_user *user,
                                       const char *device_brand,
                                       size_t length);

/** Sets the model of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_device_model(exp_user *user, const char *device_model);

/** The same, with an explicit length. */
EXP_API
exp_status exp_user_set_device_model_n(exp_user *user,
                                       const char *device_model,
                                       size_t length);

/** Sets the carrier of the device. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_carrier(exp_user *user, const char *carrier);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_carrier_n(exp_user *user, const char *carrier, size_t length);

/**
 * Sets the library name and version reported to the service; NULL for the setting of the client.
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_user_set_library(exp_user *user, const char *library);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_library_n(exp_user *user, const char *library, size_t length);

/** Sets the IP address. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT. */
EXP_API exp_status exp_user_set_ip_address(exp_user *user, const char *ip_address);

/** The same, with an explicit length. */
EXP_API exp_status exp_user_set_ip_address_n(exp_user *user, const char *ip_address, size_t length);

/**
 * Sets a member of user_properties to any JSON, null included. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_user_set_property_json(exp_user *user, const char *name, const char *json);

/** The same, with explicit lengths. */
EXP_API
exp_status exp_user_set_property_json_n(exp_user *user,
                                        const char *name,
                                        size_t name_length,
                                        const char *json,
                                        size_t json_length);

/**
 * Adds the user to a group of a type; there may be several of one type. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_user_add_group(exp_user *user,
                              const char *group_type,
                              const char *group_name);

/** The same, with explicit lengths. */
EXP_API
exp_status exp_user_add_group_n(exp_user *user,
                                const char *group_type,
                                size_t group_type_length,
                                const char *group_name,
                                size_t group_name_length);

/**
 * Sets any field of the user to JSON: user_properties, groups and fields that this library does
 * not know included. NULL, or the JSON null, clears it. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_user_set_field_json(exp_user *user, const char *name, const char *json);

/** The same, with explicit lengths. */
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
 * Returns the first refusal of a value, borrowed; NULL if no value was refused. A fetch with these
 * options fails with it. Getter.
 */
EXP_API const exp_error *exp_fetch_options_error(const exp_fetch_options *options);

/**
 * Chooses whether the service records the assignment: EXP_TRUE, EXP_FALSE or EXP_UNSET (the
 * default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_tracks_assignment(exp_fetch_options *options,
                                                   int32_t choice);

/**
 * Chooses whether the service records an exposure: EXP_TRUE, EXP_FALSE or EXP_UNSET (the default).
 * Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_tracks_exposure(exp_fetch_options *options,
                                                 int32_t choice);

/**
 * Adds a flag to evaluate; without any, all flags are evaluated. Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_fetch_options_add_flag_key(exp_fetch_options *options, const char *flag_key);

/** The same, with an explicit length. */
EXP_API
exp_status exp_fetch_options_add_flag_key_n(exp_fetch_options *options,
                                            const char *flag_key,
                                            size_t length);

/**
 * Limits the fetch as a whole, from the call to its return, in addition to the client's own
 * deadline: 0 to 86400000, or EXP_NO_LIMIT (the default). Setter. EXP_OK,
 * EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_deadline_millis(exp_fetch_options *options,
                                                 uint64_t millis);

/**
 * Sets the token that cancels the fetch; NULL removes it. The options hold a reference of their
 * own; the caller still owns `cancel`. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_fetch_options_set_cancel(exp_fetch_options *options, exp_cancel *cancel);

/**
 * Sets a hook that can interrupt a blocking fetch; NULL removes it. It runs on the thread of the
 * fetch, every 50 ms while that waits, and whenever a signal interrupts its wait for the network.
 * user_data remains the caller's, and must live as long as fetches with these options run. Setter.
 * EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_fetch_options_set_interrupt(exp_fetch_options *options,
                                           exp_interrupt_hook interrupted,
                                           void *user_data);

/** Creates a token that has not fired; the caller owns it. NULL only after a defect. Anytime. */
EXP_API exp_cancel *exp_cancel_new(void);

/**
 * Ends every fetch that carries the token, with EXP_ERR_CANCELED; it stays fired. NULL is ignored.
 * Anytime; does not wait for the fetches to end. The only function that may be called in a signal
 * handler, even in one that interrupts a call of this library: it is async-signal-safe and
 * preserves errno.
 */
EXP_API void exp_cancel_fire(exp_cancel *cancel);

/**
 * Creates a client for a server deployment key; the caller owns it. `config` may be NULL for the
 * defaults; if it refused a value before, this fails. `client_out` must not be NULL. Reads the
 * environment and the ca_file if needed; opens no connection and starts no thread. Anytime; reads
 * `config` like a Getter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_client_new(const char *api_key,
                          const exp_config *config,
                          exp_client **client_out,
                          exp_error **error_out);

/** The same, with an explicit length. */
EXP_API
exp_status exp_client_new_n(const char *api_key,
                            size_t length,
                            const exp_config *config,
                            exp_client **client_out,
                            exp_error **error_out);

/**
 * Fetches the variants of a user, on this thread.
 * `user` may be NULL for one about whom nothing is known, and so may `options`; if either refused
 * a value before, this fails. On EXP_OK the caller owns the set in *variants_out, which may be
 * empty. `variants_out` must not be NULL. A request may be sent, and so evaluated, twice if the
 * server closed the kept-alive connection meanwhile; with tracks_exposure only if none of it had
 * been sent.
 * Anytime; reads `user` and `options` like a Getter. Blocks no longer than
 * exp_config_worst_case_millis of the client's settings and the deadline of the options, not
 * counting the time spent in your callbacks. EXP_OK and every status except EXP_ERR_QUEUE_FULL.
 */
EXP_API
exp_status exp_fetch_v2(exp_client *client,
                        const exp_user *user,
                        const exp_fetch_options *options,
                        exp_variants **variants_out,
                        exp_error **error_out);

/**
 * Closes the client: refuses new fetches and ends those that wait, for a connection or for their
 * next attempt, both with EXP_ERR_CLOSED; waits for the others. Those that still run after
 * timeout_millis (0 to 86400000, or EXP_NO_LIMIT) are cut off with EXP_ERR_CLOSED, and this
 * returns EXP_ERR_TIMEOUT; call it again to wait for them.
 * On EXP_OK the client's threads are gone, except for name lookups that hang in getaddrinfo(3),
 * which never call you. Once no fetch runs, the threads get at least 100 ms to end, even beyond
 * the timeout; EXP_ERR_TIMEOUT if a destructor of a thread-local of yours takes longer. The caller
 * still owns the client. Called from a callback of a fetch with this client, it begins to close,
 * does not wait, and returns EXP_ERR_TIMEOUT.
 * Anytime. EXP_OK, EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_client_close(exp_client *client, uint64_t timeout_millis);

/**
 * Creates a text with the counters of the client in this process, as EXP_METRICS_JSON or
 * EXP_METRICS_OPENMETRICS; the caller owns it. `text_out` must not be NULL. Anytime; does not
 * block. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_client_metrics(exp_client *client,
                              int32_t format,
                              exp_text **text_out,
                              exp_error **error_out);

/**
 * Starts to fetch the variants of a user, and does not wait for them. If this returns EXP_OK,
 * `callback` runs exactly once, with the status, message and detail that exp_fetch_v2 would have;
 * otherwise never.
 * It runs on a thread of the library, never on this one, except that a fetch started in a callback
 * may get its own on the same thread, after that callback has returned. It may run before this
 * returns, but only after *pending_out is written. At most one callback more than the pool has
 * connections runs at once. One that blocks delays others; it changes their status only while as
 * many block as the pool has connections.
 * `user` and `options` as for exp_fetch_v2, but the interrupt hook is not used. `callback` must
 * not be NULL. `pending_out` may be NULL; otherwise the caller owns *pending_out, to cancel the
 * fetch or to wait for it. Anytime; reads `user` and `options` like a Getter. EXP_OK,
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
 * Starts to fetch the variants of a user, and does not wait for them. When the fetch has finished,
 * it appears in `completions`, which must not be NULL; no callback is called for it. Otherwise as
 * exp_fetch_v2_async. exp_pending_user_data returns `user_data`.
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
 * Ends the fetch with EXP_ERR_CANCELED, whether it waits for a connection, runs, or waits for its
 * next attempt. It is still delivered, once. Does nothing if the fetch has its result already.
 * NULL is ignored. Anytime; does not wait for the end. Not in a signal handler; use
 * exp_cancel_fire there. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API exp_status exp_pending_cancel(exp_pending *pending);

/**
 * Waits until the fetch has finished and its callback, if it has one, has returned; within that
 * callback, returns EXP_OK. timeout_millis is 0 to 86400000, or EXP_NO_LIMIT. Anytime. EXP_OK,
 * EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT; EXP_ERR_CANCELED in a process forked after the fetch
 * was started.
 */
EXP_API exp_status exp_pending_wait(exp_pending *pending, uint64_t timeout_millis);

/**
 * Takes the result of a fetch that was found in its completions: its status, and on EXP_OK a set,
 * which the caller owns. It can be taken once. `variants_out` must not be NULL. Anytime. The
 * status of the fetch; EXP_ERR_INVALID_ARGUMENT if the fetch has not finished, or its result was
 * taken or passed to a callback; EXP_ERR_CANCELED in a process forked after the fetch was started.
 */
EXP_API
exp_status exp_pending_take(exp_pending *pending,
                            exp_variants **variants_out,
                            exp_error **error_out);

/** Returns the user_data that the fetch was started with; NULL for NULL. Anytime. */
EXP_API void *exp_pending_user_data(const exp_pending *pending);

/** Creates an empty queue; the caller owns it. NULL if no file descriptor is left. Anytime. */
EXP_API exp_completions *exp_completions_new(void);

/**
 * Returns a file descriptor for poll(2), epoll(7) and the like: readable while the queue is not
 * empty. It belongs to the queue: do not read, write or close it. -1 for NULL, and in a process
 * forked after the queue was created. Getter.
 */
EXP_API int exp_completions_fd(exp_completions *completions);

/**
 * Removes the first fetch from the queue and returns it; NULL if the queue is empty. The caller
 * owns this reference, in addition to the one that it may have from the start, whose address
 * differs; compare exp_pending_user_data to tell fetches apart. Anytime; does not block.
 */
EXP_API exp_pending *exp_completions_next(exp_completions *completions);

/**
 * Waits until the queue is not empty. timeout_millis is 0 to 86400000, or EXP_NO_LIMIT. Anytime.
 * EXP_OK, EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT; EXP_ERR_CANCELED in a process forked after
 * the queue was created.
 */
EXP_API exp_status exp_completions_wait(exp_completions *completions, uint64_t timeout_millis);

/** Returns the number of variants. Getter. */
EXP_API size_t exp_variants_count(const exp_variants *variants);

/** Returns the variant of a flag, borrowed from the set; NULL if the flag has none. Getter. */
EXP_API const exp_variant *exp_variants_get(const exp_variants *variants, const char *flag_key);

/** The same, with an explicit length. Getter. */
EXP_API
const exp_variant *exp_variants_get_n(const exp_variants *variants,
                                      const char *flag_key,
                                      size_t length);

/** Returns the variant at a position, from 0, borrowed from the set; NULL past the end. Getter. */
EXP_API const exp_variant *exp_variants_at(const exp_variants *variants, size_t index);

/**
 * Returns the value of a flag's variant, borrowed from the set; `fallback` itself if there is no
 * such variant or it has no value. For its length use exp_variants_get and
 * exp_variant_value_length. Getter.
 */
EXP_API
const char *exp_variants_value(const exp_variants *variants,
                               const char *flag_key,
                               const char *fallback);

/** The same, with an explicit length. Getter. */
EXP_API
const char *exp_variants_value_n(const exp_variants *variants,
                                 const char *flag_key,
                                 size_t length,
                                 const char *fallback);

/**
 * Returns the set as one JSON object, borrowed from the set: each variant under its flag key, as
 * the service sent it (in the keys, characters may be escaped differently). Created on the first
 * call. Getter.
 */
EXP_API const char *exp_variants_json(const exp_variants *variants);

/** Returns the length of that JSON in bytes. Getter. */
EXP_API size_t exp_variants_json_length(const exp_variants *variants);

/**
 * Creates a set of the variants that are deployed and not the default of their flag, which is what
 * the deprecated `fetch` of the official SDKs returns; the caller owns it. `variants_out` must not
 * be NULL. Getter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
 */
EXP_API
exp_status exp_variants_filter_deployed(const exp_variants *variants,
                                        exp_variants **variants_out,
                                        exp_error **error_out);

/**
 * Returns a new reference to the same set, not necessarily at the same address; the caller owns
 * it. NULL for NULL. Getter.
 */
EXP_API exp_variants *exp_variants_retain(const exp_variants *variants);

/** Returns the number of attempts of the fetch, the first included; 0 for NULL. Getter. */
EXP_API uint32_t exp_variants_attempts(const exp_variants *variants);

/** Returns 1 if the last attempt used a kept-alive connection, otherwise 0. Getter. */
EXP_API int32_t exp_variants_connection_reused(const exp_variants *variants);

/**
 * Returns the microseconds that the fetch spent in a phase (EXP_PHASE_...), over all attempts; 0
 * for any other number. Getter.
 */
EXP_API uint64_t exp_variants_phase_micros(const exp_variants *variants, int32_t phase);

/**
 * Returns the microseconds left of the fetch: until the timeout of its last attempt, or until its
 * deadline if that is earlier. 0 once that has passed; UINT64_MAX for NULL. A binding that creates
 * objects from many variants checks this in between, to stay within the bound of the fetch.
 * Getter.
 */
EXP_API uint64_t exp_variants_micros_left(const exp_variants *variants);

/** Returns the key of the flag. NULL for NULL, as in all of these. Getter. */
EXP_API const char *exp_variant_flag_key(const exp_variant *variant);

/** Returns its length in bytes; 0 for NULL, as in all of these. Getter. */
EXP_API size_t exp_variant_flag_key_length(const exp_variant *variant);

/** Returns the key of the variant; NULL if the service sent none. Getter. */
EXP_API const char *exp_variant_key(const exp_variant *variant);

/** Returns its length in bytes. Getter. */
EXP_API size_t exp_variant_key_length(const exp_variant *variant);

/**
 * Returns the value of the variant; as JSON if it is not a string, NULL if the service sent none.
 * Getter.
 */
EXP_API const char *exp_variant_value(const exp_variant *variant);

/** Returns its length in bytes. Getter. */
EXP_API size_t exp_variant_value_length(const exp_variant *variant);

/** Returns the payload of the variant as JSON; NULL if the service sent none. Getter. */
EXP_API const char *exp_variant_payload_json(const exp_variant *variant);

/** Returns its length in bytes. Getter. */
EXP_API size_t exp_variant_payload_json_length(const exp_variant *variant);

/** Returns the metadata of the variant as JSON; NULL if the service sent none. Getter. */
EXP_API const char *exp_variant_metadata_json(const exp_variant *variant);

/** Returns its length in bytes. Getter. */
EXP_API size_t exp_variant_metadata_json_length(const exp_variant *variant);

/** Returns the status that the call returned; EXP_OK for NULL. Getter. */
EXP_API exp_status exp_error_status(const exp_error *error);

/**
 * Returns one line that says what happened and what to do, without the API key and without any
 * data of the user; NULL for NULL. Getter.
 */
EXP_API const char *exp_error_message(const exp_error *error);

/** Returns the length of the message in bytes. Getter. */
EXP_API size_t exp_error_message_length(const exp_error *error);

/** Returns the HTTP status of the last response; 0 if there was none. Getter. */
EXP_API int32_t exp_error_http_status(const exp_error *error);

/**
 * Returns the number of attempts, the first included, even if it got no connection; 0 if the call
 * failed before the first. Getter.
 */
EXP_API uint32_t exp_error_attempts(const exp_error *error);

/**
 * Returns 1 if the same call may succeed later: after timeouts, network failures (except when a
 * proxy responded with 407), unusable responses, and every HTTP status but 4xx, from which 429 is
 * excepted. Otherwise 0. Getter.
 */
EXP_API int32_t exp_error_is_retryable(const exp_error *error);

/**
 * Returns how long the service asked to wait before the next request (Retry-After); 0 if it did
 * not. Getter.
 */
EXP_API uint64_t exp_error_retry_after_millis(const exp_error *error);

/**
 * Returns what the fetch was doing when its time ran out; EXP_PHASE_NONE if it failed otherwise.
 * Getter.
 */
EXP_API exp_phase exp_error_phase(const exp_error *error);

/**
 * Returns the microseconds spent in a phase (EXP_PHASE_...), over all attempts; 0 for any other
 * number. Getter.
 */
EXP_API uint64_t exp_error_phase_micros(const exp_error *error, int32_t phase);

/** Returns 1 if the last attempt used a kept-alive connection, otherwise 0. Getter. */
EXP_API int32_t exp_error_connection_reused(const exp_error *error);

/**
 * Returns a new reference to the same error, not necessarily at the same address; the caller owns
 * it. NULL for NULL. Getter.
 */
EXP_API exp_error *exp_error_retain(const exp_error *error);

/** Returns the string, borrowed; NULL for NULL. Getter. */
EXP_API const char *exp_text_value(const exp_text *text);

/** Returns its length in bytes; 0 for NULL. Getter. */
EXP_API size_t exp_text_length(const exp_text *text);

/**
 * Releases one reference to an object of any type. NULL and borrowed objects are ignored; freeing
 * an exp_variant is also logged if its client still exists and has a log callback.
 * When a client is freed, it begins to close: new fetches are refused, those that wait end with
 * EXP_ERR_CLOSED, those that run go on; its memory is released with the last of them. A finalizer
 * of yours may run inside. Any thread; does not block.
 */
EXP_API void exp_free(void *object);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EXPERIMENT_H */
