/*
 * libexperiment for C++17 and later: variants from Amplitude Experiment, each fetch back within the
 * time you set. A thin, header-only skin over <experiment.h>; link with -lexperiment.
 *
 * ERRORS. Whatever can fail comes in two forms: `x` returns its value or throws `error`; `try_x`
 * returns a `result`, which holds the value or the error. Without exceptions (-fno-exceptions) only
 * the second form is declared. Memory that runs out in this header is std::bad_alloc in both.
 *
 * OWNERSHIP. Every class but the views owns one object of the library and is move-only. What was
 * moved from may be assigned to or destroyed; to fetch with it is status::invalid_argument.
 *
 * TEXT goes in as std::string_view, is UTF-8, and is copied before the call returns; one that is
 * default-constructed stands for no text. It comes out as a view into the object that it was asked
 * of, and lives as long as that, wherever it is moved to; what is absent is std::nullopt.
 *
 * TIMES are std::chrono::milliseconds, so whatever is coarser converts and what is finer does not
 * compile. `no_limit` is allowed where the comment says so; a negative time is refused.
 *
 * THREADS. `const` member functions are for any number of threads at once. Others want the object
 * for themselves, but for client::close, which may be called beside fetches.
 */
#ifndef EXPERIMENT_HPP
#define EXPERIMENT_HPP

#include <experiment.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

/** 1 where the throwing forms are declared, else 0. */
#if defined(__cpp_exceptions)
#define EXPERIMENT_HAS_EXCEPTIONS 1
#include <exception>
#include <future>
#else
#define EXPERIMENT_HAS_EXCEPTIONS 0
#endif

/* So that what is compiled with other exceptions, or with the header of another series, has code of
 * its own in a program that holds both. */
#define EXPERIMENT_JOIN(exceptions, major, minor) exceptions##_##major##_##minor
#define EXPERIMENT_JOINED(exceptions, major, minor) EXPERIMENT_JOIN(exceptions, major, minor)
#if EXPERIMENT_HAS_EXCEPTIONS
#define EXPERIMENT_NAMESPACE EXPERIMENT_JOINED(throwing, EXP_VERSION_MAJOR, EXP_VERSION_MINOR)
#else
#define EXPERIMENT_NAMESPACE EXPERIMENT_JOINED(nonthrowing, EXP_VERSION_MAJOR, EXP_VERSION_MINOR)
#endif

/* Lets the compiler warn of a view that outlives what it looks into. */
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::lifetimebound)
#define EXPERIMENT_LIFETIMEBOUND [[clang::lifetimebound]]
#endif
#endif
#ifndef EXPERIMENT_LIFETIMEBOUND
#define EXPERIMENT_LIFETIMEBOUND
#endif

/* What is thrown in one shared object must be caught in another, whatever their default is. */
#if defined(__GNUC__) && !defined(_WIN32)
#define EXPERIMENT_VISIBLE __attribute__((visibility("default")))
#else
#define EXPERIMENT_VISIBLE
#endif

namespace experiment {
inline namespace EXPERIMENT_NAMESPACE {

/** No limit, where a time may be that. */
inline constexpr std::chrono::milliseconds no_limit = std::chrono::milliseconds::max();

/** What came of a call. */
enum class status {
    ok = EXP_OK,
    /** An argument or a setting is not what it must be; the message names it. Final. */
    invalid_argument = EXP_ERR_INVALID_ARGUMENT,
    /** Time was over: waiting for a connection or for the answer. The message tells which. */
    timeout = EXP_ERR_TIMEOUT,
    /** The connection could not be made, or ended. */
    network = EXP_ERR_NETWORK,
    /** The certificate or the protocol was refused. Final. */
    tls = EXP_ERR_TLS,
    /** The service responded with a status other than 200: error::http_status. */
    http_status = EXP_ERR_HTTP_STATUS,
    /** The answer is no usable HTTP or JSON. */
    invalid_response = EXP_ERR_INVALID_RESPONSE,
    /** You ended it: by a cancel, by pending::cancel or by an interrupt hook. Final. */
    canceled = EXP_ERR_CANCELED,
    /** The client is closing. Final. */
    closed = EXP_ERR_CLOSED,
    /** Too many fetches are pending. Final. */
    queue_full = EXP_ERR_QUEUE_FULL,
    /** A defect in the library, or header and library do not fit together. Final. */
    internal = EXP_ERR_INTERNAL,
};

/** What a fetch is doing. */
enum class phase {
    /** Waiting in line for a connection of the pool. */
    pool = EXP_PHASE_POOL,
    /** Looking up the host's name. */
    resolve = EXP_PHASE_RESOLVE,
    /** Opening the TCP connection, and a proxy's tunnel. */
    connect = EXP_PHASE_CONNECT,
    /** Shaking hands. */
    tls = EXP_PHASE_TLS,
    /** Sending the request. */
    send = EXP_PHASE_SEND,
    /** Waiting for the head of the answer. */
    first_byte = EXP_PHASE_FIRST_BYTE,
    /** Reading and decoding the body. */
    body = EXP_PHASE_BODY,
    /** Waiting between two attempts. */
    backoff = EXP_PHASE_BACKOFF,
};

/** How loud a log line is. */
enum class log_level {
    error = EXP_LOG_ERROR,
    warn = EXP_LOG_WARN,
    info = EXP_LOG_INFO,
    debug = EXP_LOG_DEBUG,
};

/** Which of the service's data centres is asked. */
enum class zone { us = EXP_ZONE_US, eu = EXP_ZONE_EU };

/** In which form client::metrics writes: one JSON object, or OpenMetrics text 1.0.0. */
enum class metrics_format { json = EXP_METRICS_JSON, openmetrics = EXP_METRICS_OPENMETRICS };

/** The name of a status as all languages have it, like "EXP_ERR_TIMEOUT". Static. */
inline std::string_view status_name(status status) noexcept {
    return exp_status_name(static_cast<std::int32_t>(status));
}

/** The version of the library that runs, like "1.2.3"; EXP_VERSION_STRING is the header's. */
inline std::string_view version() noexcept { return exp_version(); }

/** Why a call failed. All of it is copied: an error depends on no other object. */
class EXPERIMENT_VISIBLE error : public std::runtime_error {
  public:
    /** One that the library did not make. */
    error(experiment::status status, const std::string &message)
        : std::runtime_error(message), status_(status) {}

    /** A copy of one that the library made; what() is its message. */
    explicit error(const exp_error *source)
        : std::runtime_error(exp_error_message(source)),
          status_(static_cast<experiment::status>(exp_error_status(source))),
          http_status_(exp_error_http_status(source)), attempts_(exp_error_attempts(source)),
          retryable_(exp_error_is_retryable(source) != 0),
          connection_reused_(exp_error_connection_reused(source) != 0),
          retry_after_millis_(exp_error_retry_after_millis(source)),
          phase_(exp_error_phase(source)) {
        for (std::size_t i = 0; i < phase_micros_.size(); i++)
            phase_micros_[i] = exp_error_phase_micros(source, static_cast<std::int32_t>(i));
    }

    /** What went wrong; never `ok`. */
    experiment::status status() const noexcept { return status_; }

    /** The HTTP status of the last answer, if there was one. */
    std::optional<int> http_status() const noexcept {
        return http_status_ == 0 ? std::nullopt : std::optional<int>(http_status_);
    }

    /** Attempts made, the first included; 0 when the call failed before the first. */
    std::uint32_t attempts() const noexcept { return attempts_; }

    /** Whether the same call may succeed when made again; see exp_error_is_retryable. */
    bool retryable() const noexcept { return retryable_; }

    /** How long the service asked to be left alone, if it did. */
    std::optional<std::chrono::milliseconds> retry_after() const noexcept {
        if (retry_after_millis_ == 0)
            return std::nullopt;
        return std::chrono::milliseconds(retry_after_millis_);
    }

    /** What the fetch was doing when its time was over; nothing if it failed otherwise. */
    std::optional<experiment::phase> phase() const noexcept {
        if (phase_ == EXP_PHASE_NONE)
            return std::nullopt;
        return static_cast<experiment::phase>(phase_);
    }

    /** What the fetch spent in a phase, all attempts together. */
    std::chrono::microseconds phase_time(experiment::phase phase) const noexcept {
        return std::chrono::microseconds(phase_micros_[static_cast<std::size_t>(phase)]);
    }

    /** Whether the last attempt went over a connection that had served before. */
    bool connection_reused() const noexcept { return connection_reused_; }

    /** Throws this as the class of its status; without exceptions it aborts. */
    [[noreturn]] void raise() const;

  private:
    experiment::status status_;
    std::int32_t http_status_ = 0;
    std::uint32_t attempts_ = 0;
    bool retryable_ = false;
    bool connection_reused_ = false;
    std::uint64_t retry_after_millis_ = 0;
    exp_phase phase_ = EXP_PHASE_NONE;
    std::array<std::uint64_t, EXP_PHASE_BACKOFF + 1> phase_micros_{};
};

/** An error with status::timeout. */
class EXPERIMENT_VISIBLE timeout_error : public error {
  public:
    explicit timeout_error(const error &cause) : error(cause) {}
};

/** An error with status::canceled: the caller's own doing, and seldom worth a log line. */
class EXPERIMENT_VISIBLE canceled_error : public error {
  public:
    explicit canceled_error(const error &cause) : error(cause) {}
};

inline void error::raise() const {
#if EXPERIMENT_HAS_EXCEPTIONS
    if (status_ == status::timeout)
        throw timeout_error(*this);
    if (status_ == status::canceled)
        throw canceled_error(*this);
    throw *this;
#else
    std::abort();
#endif
}

/**
 * A value or the error that came in its place, in the manner of std::expected. Move-only if the
 * value is.
 */
template <class T> class [[nodiscard]] result {
  public:
    /** What either of the two is. */
    using value_type = T;
    using error_type = experiment::error;

    /** One with a value, or with an error; so that a function may return either. */
    result(T value) : outcome_(std::in_place_index<0>, std::move(value)) {}
    result(experiment::error error) : outcome_(std::in_place_index<1>, std::move(error)) {}

    /** Whether there is a value, and no error. */
    bool has_value() const noexcept { return outcome_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    /**
     * The value; has_value() must be true. A temporary gives its value away, so that
     * `for (const auto &variant : *client.try_fetch_v2(user))` is sound.
     */
    T &operator*() &noexcept { return *std::get_if<0>(&outcome_); }
    const T &operator*() const &noexcept { return *std::get_if<0>(&outcome_); }
    T operator*() &&noexcept { return std::move(*std::get_if<0>(&outcome_)); }
    T *operator->() noexcept EXPERIMENT_LIFETIMEBOUND { return std::get_if<0>(&outcome_); }
    const T *operator->() const noexcept EXPERIMENT_LIFETIMEBOUND {
        return std::get_if<0>(&outcome_);
    }

    /** The value; throws the error if there is none, and aborts where nothing can be thrown. */
    T &value() & { return checked(), **this; }
    const T &value() const & { return checked(), **this; }
    T value() && { return checked(), *std::move(*this); }

    /** The value, or what is given in its place. */
    T value_or(T fallback) && { return has_value() ? std::move(**this) : std::move(fallback); }

    /** The error; has_value() must be false. */
    const experiment::error &error() const &noexcept { return *std::get_if<1>(&outcome_); }
    experiment::error error() &&noexcept { return *std::get_if<1>(&outcome_); }

  private:
    void checked() const {
        if (!has_value())
            error().raise();
    }

    std::variant<T, experiment::error> outcome_;
};

/** What all owning classes are: they own one object of the C library, and give it up once. */
template <class Object> class owner {
  public:
    /** The object, to be used with <experiment.h>; it stays owned. NULL after a move. */
    Object *get() const noexcept { return object_.get(); }

  protected:
    explicit owner(Object *object) noexcept : object_(object) {}

  private:
    struct deleter {
        void operator()(Object *object) const noexcept { exp_free(object); }
    };
    std::unique_ptr<Object, deleter> object_;
};

/** Not part of the interface. */
namespace detail {

/* A negative time is made one that the library refuses, and never by accident "no limit". */
constexpr std::uint64_t millis(std::chrono::milliseconds time) noexcept {
    if (time == no_limit)
        return EXP_NO_LIMIT;
    return time.count() < 0 ? EXP_NO_LIMIT - 1 : static_cast<std::uint64_t>(time.count());
}

constexpr std::chrono::milliseconds time(std::uint64_t millis) noexcept {
    return millis == EXP_NO_LIMIT ? no_limit : std::chrono::milliseconds(millis);
}

inline std::optional<std::string_view> text(const char *text, std::size_t length) noexcept {
    return text ? std::optional(std::string_view(text, length)) : std::nullopt;
}

inline std::optional<error> copy(const exp_error *source) {
    return source ? std::optional<error>(source) : std::nullopt;
}

template <class Object> class owned : public owner<Object> {
  public:
    explicit owned(Object *object) noexcept : owner<Object>(object) {}
};

/* The error of a call that failed, given up. */
inline error failure(exp_status status, exp_error *error_out) {
    owned<exp_error> source(error_out);
    if (!source.get())
        return error(static_cast<experiment::status>(status), exp_status_name(status));
    return error(source.get());
}

/* The library takes NULL for defaults, for nobody, for no options: all wrong after a move. */
inline error moved_from(const char *what) {
    return error(status::invalid_argument, std::string(what) + " has been moved from");
}

/* One setter of the library, for whatever type the value has here. Its refusal is remembered. */
template <class Object>
void set(exp_status (*setter)(Object *, const char *, std::size_t), Object *object,
         std::string_view value) noexcept {
    setter(object, value.data(), value.size());
}
template <class Object>
void set(exp_status (*setter)(Object *, std::uint64_t), Object *object,
         std::chrono::milliseconds value) noexcept {
    setter(object, millis(value));
}
template <class Object, class Number>
void set(exp_status (*setter)(Object *, Number), Object *object, Number value) noexcept {
    setter(object, value);
}
template <class Object>
void set(exp_status (*setter)(Object *, std::int32_t), Object *object, bool value) noexcept {
    setter(object, value ? EXP_TRUE : EXP_FALSE);
}
template <class Object>
void set(exp_status (*setter)(Object *, std::int32_t), Object *object,
         std::optional<bool> value) noexcept {
    setter(object, value ? (*value ? EXP_TRUE : EXP_FALSE) : EXP_UNSET);
}
template <class Object>
void set(exp_status (*setter)(Object *, std::int32_t), Object *object, zone value) noexcept {
    setter(object, static_cast<std::int32_t>(value));
}

/* Where log lines go. Shared by the library, which writes them, and by the clients here, which
 * report to it what a callback threw. */
class log_sink {
  public:
    log_sink() = default;
    log_sink(const log_sink &) = delete;
    log_sink &operator=(const log_sink &) = delete;
    virtual ~log_sink() = default;
    virtual void write(log_level level, std::string_view message) = 0;
};

template <class Callback> class log_sink_of final : public log_sink {
  public:
    explicit log_sink_of(Callback callback) : callback_(std::move(callback)) {}
    void write(log_level level, std::string_view message) override { callback_(level, message); }

  private:
    Callback callback_;
};

/* contained() runs what is the caller's and lets nothing out, for above it is C; false if it threw.
 */
#if EXPERIMENT_HAS_EXCEPTIONS
inline void report(log_sink *log, const char *what) noexcept {
    try {
        if (log)
            log->write(log_level::error, std::string("a callback threw: ") + what);
    } catch (...) { // there is nobody left to tell
    }
}

template <class Call> bool contained(log_sink *log, Call &&call) noexcept {
    try {
        call();
        return true;
    } catch (const std::exception &thrown) {
        report(log, thrown.what());
    } catch (...) {
        report(log, "something that is no std::exception");
    }
    return false;
}

inline std::exception_ptr exception_of(const error &error) {
    try {
        error.raise();
    } catch (...) {
        return std::current_exception();
    }
}
#else
template <class Call> bool contained(log_sink *, Call &&call) noexcept {
    call();
    return true;
}
#endif

/* What the library calls. A template cannot be extern "C"; no compiler tells the two apart. */

inline void EXP_CALL write_log(void *sink, exp_log_level level, const char *message,
                               std::size_t length) noexcept {
    contained(nullptr, [&] {
        (*static_cast<std::shared_ptr<log_sink> *>(sink))
            ->write(static_cast<log_level>(level), std::string_view(message, length));
    });
}

inline void EXP_CALL release_log(void *sink) noexcept {
    delete static_cast<std::shared_ptr<log_sink> *>(sink);
}

template <class Hook> std::int32_t EXP_CALL ask(void *hook) noexcept {
    bool interrupted = false;
    const bool answered = contained(nullptr, [&] { interrupted = (*static_cast<Hook *>(hook))(); });
    return interrupted || !answered;
}

} // namespace detail

/*
 * Defines a setter twice, so that a chain of them can be kept in a variable or moved on:
 *     config settings = config{}.fetch_timeout(500ms).fetch_retries(1);
 */
#define EXPERIMENT_SETTER(self, name, type, setter)                                                \
    self &name(type value) &noexcept {                                                             \
        detail::set(setter, get(), value);                                                         \
        return *this;                                                                              \
    }                                                                                              \
    self &&name(type value) &&noexcept { return std::move(this->name(value)); }

#define EXPERIMENT_SETTER_OF_TWO(self, name, first, second, setter)                                \
    self &name(std::string_view first, std::string_view second) &noexcept {                        \
        setter(get(), first.data(), first.size(), second.data(), second.size());                   \
        return *this;                                                                              \
    }                                                                                              \
    self &&name(std::string_view first, std::string_view second) &&noexcept {                      \
        return std::move(this->name(first, second));                                               \
    }

/**
 * Settings of clients. A client copies them when it is made. A value that is out of range leaves
 * the setting as it was and is remembered: no client can be made of it, and the error says why.
 */
class config : public owner<exp_config> {
  public:
    /** All at their defaults. */
    config() noexcept : owner(exp_config_new()) {
        library("libexperiment-cpp/" EXP_VERSION_STRING);
    }

    /** The first value that was refused, if there was one. */
    std::optional<experiment::error> error() const { return detail::copy(exp_config_error(get())); }

    /** The longest that a fetch can take with these settings; `no_limit` if nothing bounds it. */
    std::chrono::milliseconds worst_case() const noexcept {
        return detail::time(exp_config_worst_case_millis(get()));
    }

    /** Where the service is: http(s)://host[:port][/base/path]. Wins over the zone. */
    EXPERIMENT_SETTER(config, server_url, std::string_view, exp_config_set_server_url_n)

    /** Whose data centre is asked: zone::us by default. */
    EXPERIMENT_SETTER(config, server_zone, zone, exp_config_set_server_zone)

    /** The first attempt, from its connection to the last byte: 1 ms to 24 h; 10 s by default. */
    EXPERIMENT_SETTER(config, fetch_timeout, std::chrono::milliseconds,
                      exp_config_set_fetch_timeout_millis)

    /**
     * What each attempt may wait for a connection of the pool: 0 (not at all) to 24 h, or
     * `no_limit`; by default the attempt's own timeout.
     */
    EXPERIMENT_SETTER(config, fetch_pool_acquire_timeout, std::chrono::milliseconds,
                      exp_config_set_fetch_pool_acquire_timeout_millis)

    /** Attempts after the first: 0 (the default) to 100. */
    EXPERIMENT_SETTER(config, fetch_retries, std::uint32_t, exp_config_set_fetch_retries)

    /** What each attempt after the first may take: 1 ms to 24 h; 10 s by default. */
    EXPERIMENT_SETTER(config, fetch_retry_timeout, std::chrono::milliseconds,
                      exp_config_set_fetch_retry_timeout_millis)

    /** The wait before the second attempt: 0 to 24 h; 500 ms by default. */
    EXPERIMENT_SETTER(config, fetch_retry_backoff_min, std::chrono::milliseconds,
                      exp_config_set_fetch_retry_backoff_min_millis)

    /**
     * The longest wait between two attempts: 0 to 24 h; 10 s by default. A service that asks for
     * more ends the fetch.
     */
    EXPERIMENT_SETTER(config, fetch_retry_backoff_max, std::chrono::milliseconds,
                      exp_config_set_fetch_retry_backoff_max_millis)

    /** What each wait is multiplied by for the next: 1 to 100; 1.5 by default. */
    EXPERIMENT_SETTER(config, fetch_retry_backoff_scalar, double,
                      exp_config_set_fetch_retry_backoff_scalar)

    /** Whether each wait is drawn evenly between zero and the back-off; off by default. */
    EXPERIMENT_SETTER(config, fetch_retry_jitter, bool, exp_config_set_fetch_retry_jitter)

    /** Retries allowed for each hundred fetches: 1 to 100, or 0 (the default) for any number. */
    EXPERIMENT_SETTER(config, fetch_retry_budget_percent, std::uint32_t,
                      exp_config_set_fetch_retry_budget_percent)

    /** A bound on every whole fetch: 0 to 24 h, or `no_limit` (the default). */
    EXPERIMENT_SETTER(config, fetch_deadline, std::chrono::milliseconds,
                      exp_config_set_fetch_deadline_millis)

    /** Connections, and so exchanges at the same time: 1 to 1024; 8 by default. */
    EXPERIMENT_SETTER(config, connection_pool_max_size, std::uint32_t,
                      exp_config_set_connection_pool_max_size)

    /** How long an unused connection may be used again: 0 (never) to 24 h; 30 s by default. */
    EXPERIMENT_SETTER(config, connection_idle_timeout, std::chrono::milliseconds,
                      exp_config_set_connection_idle_timeout_millis)

    /** How long a connection is used: 0 to 24 h, or `no_limit`; 5 min by default. */
    EXPERIMENT_SETTER(config, connection_max_lifetime, std::chrono::milliseconds,
                      exp_config_set_connection_max_lifetime_millis)

    /** Asynchronous fetches that may be pending at once: 1 to 1000000; 1024 by default. */
    EXPERIMENT_SETTER(config, max_pending_fetches, std::uint32_t,
                      exp_config_set_max_pending_fetches)

    /** The largest body that is read, decompressed: 1 byte to 1 GiB; 8 MiB by default. */
    EXPERIMENT_SETTER(config, max_response_bytes, std::uint64_t, exp_config_set_max_response_bytes)

    /** A PEM file with the authorities to trust in place of the built-in ones. */
    EXPERIMENT_SETTER(config, ca_file, std::string_view, exp_config_set_ca_file_n)

    /** The proxy: http(s)://[user:password@]host[:port]. Wins over the environment. */
    EXPERIMENT_SETTER(config, proxy_url, std::string_view, exp_config_set_proxy_url_n)

    /** Whether HTTPS_PROXY and its kin are obeyed; on by default. */
    EXPERIMENT_SETTER(config, use_environment_proxy, bool, exp_config_set_use_environment_proxy)

    /** What the service is told to be asked by; libexperiment-cpp/ and the version by default. */
    EXPERIMENT_SETTER(config, library, std::string_view, exp_config_set_library_n)

    /** Whether the log callback gets everything, whatever its level; off by default. */
    EXPERIMENT_SETTER(config, debug, bool, exp_config_set_debug)

    /**
     * Who takes log lines up to a level, as `callback(log_level, std::string_view)`, in place of
     * who did before; without one nothing is written anywhere. On any thread, several at once. The
     * line is borrowed for the call. What it throws is dropped. It is destroyed, on the thread
     * where that happens, when the settings and all clients made of them are gone; so it must not
     * own such a client.
     */
    template <class Callback> config &log_callback(Callback callback, log_level max_level) & {
        static_assert(std::is_invocable_v<Callback &, log_level, std::string_view>);
        std::shared_ptr<detail::log_sink> log =
            std::make_shared<detail::log_sink_of<Callback>>(std::move(callback));
        auto sink = std::make_unique<std::shared_ptr<detail::log_sink>>(log);
        const exp_status status =
            exp_config_set_log_callback(get(), detail::write_log, sink.get(), detail::release_log,
                                        static_cast<std::int32_t>(max_level));
        if (status == EXP_OK) {
            static_cast<void>(sink.release());
            log_ = std::move(log);
        }
        return *this;
    }
    template <class Callback> config &&log_callback(Callback callback, log_level max_level) && {
        return std::move(this->log_callback(std::move(callback), max_level));
    }

  private:
    friend class client;
    std::shared_ptr<detail::log_sink> log_;
};

/**
 * What is known of a user. The service decides by it; nothing of it is kept between fetches. A
 * value that is refused is remembered: a fetch for this user fails with it.
 */
class user : public owner<exp_user> {
  public:
    /** One of whom nothing is known. */
    user() noexcept : owner(exp_user_new()) {}

    /** From a JSON object, as the service reads it; fields that are unknown here are kept. */
    static result<user> try_from_json(std::string_view json) {
        exp_user *user_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status =
            exp_user_from_json_n(json.data(), json.size(), &user_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        return user(user_out);
    }
#if EXPERIMENT_HAS_EXCEPTIONS
    /** As try_from_json. */
    static user from_json(std::string_view json) { return try_from_json(json).value(); }
#endif

    /** The first value that was refused, if there was one. */
    std::optional<experiment::error> error() const { return detail::copy(exp_user_error(get())); }

    /** Who the user is; as all of these, a field of the same name on the wire. */
    EXPERIMENT_SETTER(user, user_id, std::string_view, exp_user_set_user_id_n)
    /** On which device. */
    EXPERIMENT_SETTER(user, device_id, std::string_view, exp_user_set_device_id_n)
    /** The country. */
    EXPERIMENT_SETTER(user, country, std::string_view, exp_user_set_country_n)
    /** The region in the country. */
    EXPERIMENT_SETTER(user, region, std::string_view, exp_user_set_region_n)
    /** The designated market area. */
    EXPERIMENT_SETTER(user, dma, std::string_view, exp_user_set_dma_n)
    /** The city. */
    EXPERIMENT_SETTER(user, city, std::string_view, exp_user_set_city_n)
    /** The language. */
    EXPERIMENT_SETTER(user, language, std::string_view, exp_user_set_language_n)
    /** The platform, like iOS. */
    EXPERIMENT_SETTER(user, platform, std::string_view, exp_user_set_platform_n)
    /** The version of the host's application. */
    EXPERIMENT_SETTER(user, version, std::string_view, exp_user_set_version_n)
    /** The operating system. */
    EXPERIMENT_SETTER(user, os, std::string_view, exp_user_set_os_n)
    /** Who made the device. */
    EXPERIMENT_SETTER(user, device_manufacturer, std::string_view,
                      exp_user_set_device_manufacturer_n)
    /** The brand of the device. */
    EXPERIMENT_SETTER(user, device_brand, std::string_view, exp_user_set_device_brand_n)
    /** The model of the device. */
    EXPERIMENT_SETTER(user, device_model, std::string_view, exp_user_set_device_model_n)
    /** The carrier of the device. */
    EXPERIMENT_SETTER(user, carrier, std::string_view, exp_user_set_carrier_n)
    /** The IP address. */
    EXPERIMENT_SETTER(user, ip_address, std::string_view, exp_user_set_ip_address_n)
    /** What the service is told to be asked by, in place of the client's own setting. */
    EXPERIMENT_SETTER(user, library, std::string_view, exp_user_set_library_n)

    /** A member of user_properties: any JSON, null included; a text in its quotes. */
    EXPERIMENT_SETTER_OF_TWO(user, property_json, name, json, exp_user_set_property_json_n)

    /** Puts the user into one more group of a type. */
    EXPERIMENT_SETTER_OF_TWO(user, add_group, group_type, group_name, exp_user_add_group_n)

    /** Any field as JSON, those that are unknown here included; null for absent. */
    EXPERIMENT_SETTER_OF_TWO(user, field_json, name, json, exp_user_set_field_json_n)

  private:
    explicit user(exp_user *object) noexcept : owner(object) {}
};

/** A cancellation token: firing it ends every fetch that carries it, running or yet to start. */
class cancel : public owner<exp_cancel> {
  public:
    /** Not fired. */
    cancel() noexcept : owner(exp_cancel_new()) {}

    /** Ends every fetch that carries the token; it stays fired. Does not wait for them to end. */
    void fire() const noexcept { exp_cancel_fire(get()); }
};

/**
 * Options of a fetch. Used by any number of them, also at once. A value that is refused is
 * remembered: a fetch with these options fails with it.
 */
class fetch_options : public owner<exp_fetch_options> {
  public:
    /** Nothing is chosen. */
    fetch_options() noexcept : owner(exp_fetch_options_new()) {}

    /** The first value that was refused, if there was one. */
    std::optional<experiment::error> error() const {
        return detail::copy(exp_fetch_options_error(get()));
    }

    /** Whether the service records the assignment; by default it decides. */
    EXPERIMENT_SETTER(fetch_options, tracks_assignment, std::optional<bool>,
                      exp_fetch_options_set_tracks_assignment)

    /** Whether the service records an exposure; by default it decides. */
    EXPERIMENT_SETTER(fetch_options, tracks_exposure, std::optional<bool>,
                      exp_fetch_options_set_tracks_exposure)

    /** Adds a flag to those that are evaluated; none added: all are. */
    EXPERIMENT_SETTER(fetch_options, add_flag_key, std::string_view,
                      exp_fetch_options_add_flag_key_n)

    /** A bound on the whole fetch beside the client's own: 0 to 24 h, or `no_limit`. */
    EXPERIMENT_SETTER(fetch_options, deadline, std::chrono::milliseconds,
                      exp_fetch_options_set_deadline_millis)

    /**
     * The token that cancels the fetch, replacing any earlier one. It may be destroyed before the
     * options are; one that was moved from is none.
     */
    fetch_options &cancel(const experiment::cancel &value) &noexcept {
        exp_fetch_options_set_cancel(get(), value.get());
        return *this;
    }
    fetch_options &&cancel(const experiment::cancel &value) &&noexcept {
        return std::move(this->cancel(value));
    }

    /**
     * A hook, as `bool hook()`, that is asked on the thread inside a blocking fetch every 50 ms and
     * whenever a signal interrupts it; true, or whatever it throws, ends the fetch with
     * status::canceled. Fetches at once ask it at once. Asynchronous ones do not.
     */
    template <class Hook> fetch_options &interrupt(Hook hook) & {
        static_assert(std::is_invocable_r_v<bool, Hook &>);
        auto kept = std::make_shared<Hook>(std::move(hook));
        exp_fetch_options_set_interrupt(get(), detail::ask<Hook>, kept.get());
        hook_ = std::move(kept);
        return *this;
    }
    template <class Hook> fetch_options &&interrupt(Hook hook) && {
        return std::move(this->interrupt(std::move(hook)));
    }

  private:
    std::shared_ptr<void> hook_;
};

#undef EXPERIMENT_SETTER
#undef EXPERIMENT_SETTER_OF_TWO

/** The variant of one flag: a pointer into its `variants`, and good as long as they live. */
class variant_view {
  public:
    /** No variant: false, and all of it absent. */
    variant_view() = default;
    explicit variant_view(const exp_variant *variant) noexcept : variant_(variant) {}

    /** Whether there is one. */
    explicit operator bool() const noexcept { return variant_ != nullptr; }

    /** The key of the flag. */
    std::optional<std::string_view> flag_key() const noexcept {
        return detail::text(exp_variant_flag_key(variant_), exp_variant_flag_key_length(variant_));
    }
    /** The key of the variant. */
    std::optional<std::string_view> key() const noexcept {
        return detail::text(exp_variant_key(variant_), exp_variant_key_length(variant_));
    }
    /** The value of the variant; JSON if the service sent no string. */
    std::optional<std::string_view> value() const noexcept {
        return detail::text(exp_variant_value(variant_), exp_variant_value_length(variant_));
    }
    /** The payload of the variant, as JSON. */
    std::optional<std::string_view> payload_json() const noexcept {
        return detail::text(exp_variant_payload_json(variant_),
                            exp_variant_payload_json_length(variant_));
    }
    /** The metadata of the variant, as JSON. */
    std::optional<std::string_view> metadata_json() const noexcept {
        return detail::text(exp_variant_metadata_json(variant_),
                            exp_variant_metadata_json_length(variant_));
    }

  private:
    const exp_variant *variant_ = nullptr;
};

/**
 * The variants of one fetch, in the service's order, and what is known of that fetch. It never
 * changes, and outlives its client if it has to. A range of `variant_view`.
 */
class variants : public owner<exp_variants> {
  public:
    class iterator;
    using const_iterator = iterator;
    using value_type = variant_view;

    /** The empty set. */
    variants() noexcept : owner(nullptr) {}

    /** Takes over a set that the C library handed out. */
    explicit variants(exp_variants *object) noexcept : owner(object) {}

    /** How many variants there are. */
    std::size_t size() const noexcept { return exp_variants_count(get()); }
    /** Whether there is none. */
    bool empty() const noexcept { return size() == 0; }
    /** The range of them, each a `variant_view`. */
    iterator begin() const noexcept EXPERIMENT_LIFETIMEBOUND;
    iterator end() const noexcept EXPERIMENT_LIFETIMEBOUND;

    /** The variant of a flag; one that is false if there is none. */
    variant_view operator[](std::string_view flag_key) const noexcept EXPERIMENT_LIFETIMEBOUND {
        return variant_view(exp_variants_get_n(get(), flag_key.data(), flag_key.size()));
    }

    /** The value of a flag's variant; `fallback` if there is no such variant or it has no value. */
    std::string_view value_or(std::string_view flag_key,
                              std::string_view fallback) const noexcept EXPERIMENT_LIFETIMEBOUND {
        return (*this)[flag_key].value().value_or(fallback);
    }

    /** All of it as one JSON object, each variant under its flag's key as the service sent it. */
    std::string_view json() const noexcept EXPERIMENT_LIFETIMEBOUND {
        return {exp_variants_json(get()), exp_variants_json_length(get())};
    }

    /** Those that are deployed and not the default: what the official SDKs' `fetch` returns. */
    result<variants> try_filter_deployed() const {
        exp_variants *variants_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status = exp_variants_filter_deployed(get(), &variants_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        return variants(variants_out);
    }
#if EXPERIMENT_HAS_EXCEPTIONS
    /** As try_filter_deployed. */
    variants filter_deployed() const { return try_filter_deployed().value(); }
#endif

    /** Attempts that the fetch took, the first included. */
    std::uint32_t attempts() const noexcept { return exp_variants_attempts(get()); }

    /** Whether the last attempt went over a connection that had served before. */
    bool connection_reused() const noexcept { return exp_variants_connection_reused(get()) != 0; }

    /** What the fetch spent in a phase, all attempts together. */
    std::chrono::microseconds phase_time(phase phase) const noexcept {
        return std::chrono::microseconds(
            exp_variants_phase_micros(get(), static_cast<std::int32_t>(phase)));
    }
};

/** Goes through a set once or more; what `*` refers to changes with the iterator. */
class variants::iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = variant_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const variant_view *;
    using reference = const variant_view &;

    iterator() = default;
    iterator(const exp_variants *set, std::size_t index) noexcept
        : set_(set), index_(index), current_(exp_variants_at(set, index)) {}

    reference operator*() const noexcept { return current_; }
    pointer operator->() const noexcept { return &current_; }
    iterator &operator++() noexcept { return *this = iterator(set_, index_ + 1); }
    iterator operator++(int) noexcept { return std::exchange(*this, iterator(set_, index_ + 1)); }

    friend bool operator==(const iterator &one, const iterator &other) noexcept {
        return one.index_ == other.index_;
    }
    friend bool operator!=(const iterator &one, const iterator &other) noexcept {
        return !(one == other);
    }

  private:
    const exp_variants *set_ = nullptr;
    std::size_t index_ = 0;
    variant_view current_;
};

inline variants::iterator variants::begin() const noexcept { return {get(), 0}; }
inline variants::iterator variants::end() const noexcept { return {get(), size()}; }

/** One asynchronous fetch. Destroying this does not end the fetch. */
class pending : public owner<exp_pending> {
  public:
    /** Takes over one that the C library handed out. */
    explicit pending(exp_pending *object) noexcept : owner(object) {}

    /** Ends the fetch with status::canceled, wherever it is. It is still told, once. */
    void cancel() const noexcept { exp_pending_cancel(get()); }

    /**
     * Waits until the fetch is over and its callback, if it has one, has returned (or is where this
     * is called): 0 to 24 h, or `no_limit`. Returns ok, timeout, invalid_argument, or canceled in a
     * process forked since.
     */
    status wait(std::chrono::milliseconds timeout) const noexcept {
        return static_cast<status>(exp_pending_wait(get(), detail::millis(timeout)));
    }

    /**
     * What the fetch came to, once it was found in its completions. Can be taken once: else, and
     * for one that has a callback, it is status::invalid_argument.
     */
    result<variants> try_take() {
        exp_variants *variants_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status = exp_pending_take(get(), &variants_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        return variants(variants_out);
    }
#if EXPERIMENT_HAS_EXCEPTIONS
    /** As try_take. */
    variants take() { return try_take().value(); }
#endif

    /** What it was submitted with. */
    void *user_data() const noexcept { return exp_pending_user_data(get()); }
};

/**
 * A queue of asynchronous fetches that are over, in the order in which they ended, for event loops.
 * Used by any number of clients and threads.
 */
class completions : public owner<exp_completions> {
  public:
    /** With nothing in it. Fails when the process has no descriptor left. */
    static result<completions> try_create() {
        completions made(exp_completions_new());
        if (!made.get())
            return experiment::error(status::internal, "no descriptor is left for completions");
        return made;
    }
#if EXPERIMENT_HAS_EXCEPTIONS
    /** As try_create. */
    completions() : completions(try_create().value()) {}
#endif

    /** A descriptor for poll and its kin, readable while the queue is not empty. Only to poll. */
    int fd() const noexcept { return exp_completions_fd(get()); }

    /** Takes out the fetch that ended first; nothing if none is there. Returns at once. */
    std::optional<pending> next() const noexcept {
        pending first(exp_completions_next(get()));
        return first.get() ? std::optional(std::move(first)) : std::nullopt;
    }

    /** Waits until the queue is not empty; times and returns as pending::wait. */
    status wait(std::chrono::milliseconds timeout) const noexcept {
        return static_cast<status>(exp_completions_wait(get(), detail::millis(timeout)));
    }

  private:
    explicit completions(exp_completions *object) noexcept : owner(object) {}
};

namespace detail {

/* A callback and who hears of what it throws; the library carries it until it calls, once. */
template <class Callback> struct told {
    Callback callback;
    std::shared_ptr<log_sink> log;

    static void EXP_CALL tell(void *user_data, exp_status status, const exp_variants *variants,
                              const exp_error *error) noexcept {
        const std::unique_ptr<told> self(static_cast<told *>(user_data));
        contained(self->log.get(), [&] {
            if (status == EXP_OK)
                std::move(self->callback)(result<experiment::variants>(
                    experiment::variants(exp_variants_retain(variants))));
            else
                std::move(self->callback)(result<experiment::variants>(experiment::error(error)));
        });
    }
};

} // namespace detail

/**
 * Fetches variants over a bounded pool of connections. One for the whole program: every thread may
 * fetch with it. Destroying it begins to close it and does not wait; see close.
 */
class client : public owner<exp_client> {
  public:
    /**
     * A client for a server deployment key. Opens no connection and starts no thread. Fails with a
     * setting that was refused before, and when this header and the library that runs are of
     * different versions (major.minor).
     */
    static result<client> try_create(std::string_view api_key, const config &config = {}) {
        if (auto mismatch = version_mismatch())
            return *std::move(mismatch);
        if (!config.get())
            return detail::moved_from("the config");
        exp_client *client_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status =
            exp_client_new_n(api_key.data(), api_key.size(), config.get(), &client_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        return client(client_out, config.log_);
    }

    /**
     * Fetches the variants of a user, on this thread. Returns the true status, whatever the
     * retries. Blocks no longer than config::worst_case tells or the deadline of the options, but
     * for decoding an answer that came in time.
     */
    result<variants> try_fetch_v2(const user &user, const fetch_options &options = {}) const {
        if (auto unusable = moved_from(user, options))
            return *std::move(unusable);
        exp_variants *variants_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status =
            exp_fetch_v2(get(), user.get(), options.get(), &variants_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        return variants(variants_out);
    }

    /**
     * Starts a fetch, and returns at once. What it came to is told as
     * `callback(result<variants>)`, with the error that try_fetch_v2 would return: exactly once if
     * this succeeds, else never; on a thread of the library, never on this one, maybe before this
     * returns. It must return; what it throws is caught, told to the log callback, and dropped. It
     * may be move-only, and is destroyed after the call. At most one more runs at once than the
     * pool has connections; one that blocks delays others, never their outcome.
     */
    template <class Callback>
    result<pending> try_fetch_v2_async(const user &user, const fetch_options &options,
                                       Callback callback) const {
        static_assert(std::is_invocable_v<Callback &&, result<variants>>);
        if (auto unusable = moved_from(user, options))
            return *std::move(unusable);
        using told = detail::told<Callback>;
        std::unique_ptr<told> state(new told{std::move(callback), log_});
        exp_pending *pending_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status = exp_fetch_v2_async(get(), user.get(), options.get(), told::tell,
                                                     state.get(), &pending_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        static_cast<void>(state.release()); // it may be gone already
        return pending(pending_out);
    }

    /**
     * Starts a fetch, and returns at once. When it is over it is found in `completions`, known by
     * its user_data, which stays yours; no thread of the library ever calls you.
     */
    result<pending> try_fetch_v2_submit(const user &user, const fetch_options &options,
                                        const completions &completions,
                                        void *user_data = nullptr) const {
        if (auto unusable = moved_from(user, options))
            return *std::move(unusable);
        exp_pending *pending_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status =
            exp_fetch_v2_submit(get(), user.get(), options.get(), completions.get(), user_data,
                                &pending_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        return pending(pending_out);
    }

    /** What the client has counted so far. Returns at once. */
    result<std::string> try_metrics(metrics_format format) const {
        exp_text *text_out = nullptr;
        exp_error *error_out = nullptr;
        const exp_status status =
            exp_client_metrics(get(), static_cast<std::int32_t>(format), &text_out, &error_out);
        if (status != EXP_OK)
            return detail::failure(status, error_out);
        const detail::owned<exp_text> text(text_out);
        return std::string(exp_text_value(text.get()), exp_text_length(text.get()));
    }

    /**
     * Refuses new fetches and ends those in line, both with status::closed; waits for those that
     * run, and cuts them off when the time is over: 0 to 24 h, or `no_limit`. Returns ok; timeout,
     * after which another call waits for the last to return; or invalid_argument. From a callback
     * it does not wait.
     */
    status close(std::chrono::milliseconds timeout) noexcept {
        return static_cast<status>(exp_client_close(get(), detail::millis(timeout)));
    }

#if EXPERIMENT_HAS_EXCEPTIONS
    /** As try_create. */
    explicit client(std::string_view api_key, const config &config = {})
        : client(try_create(api_key, config).value()) {}

    /** As try_fetch_v2. */
    variants fetch_v2(const user &user, const fetch_options &options = {}) const {
        return try_fetch_v2(user, options).value();
    }

    /** As try_fetch_v2_async. */
    template <class Callback>
    pending fetch_v2_async(const user &user, const fetch_options &options,
                           Callback callback) const {
        return try_fetch_v2_async(user, options, std::move(callback)).value();
    }

    /** As try_fetch_v2_submit. */
    pending fetch_v2_submit(const user &user, const fetch_options &options,
                            const completions &completions, void *user_data = nullptr) const {
        return try_fetch_v2_submit(user, options, completions, user_data).value();
    }

    /**
     * Starts a fetch, and returns at once; whatever fails, the start included, is thrown by get().
     * Destroying the future neither waits nor ends the fetch: that is what a `cancel` is for. In a
     * process forked since, it is never ready.
     */
    std::future<variants> fetch_v2_future(const user &user,
                                          const fetch_options &options = {}) const {
        std::promise<variants> promise;
        std::future<variants> future = promise.get_future();
        auto started = try_fetch_v2_async(
            user, options, [promise = std::move(promise)](result<variants> fetched) mutable {
                if (fetched)
                    promise.set_value(*std::move(fetched));
                else
                    promise.set_exception(detail::exception_of(fetched.error()));
            });
        return started ? std::move(future) : failed(started.error());
    }

    /** As try_metrics. */
    std::string metrics(metrics_format format) const { return try_metrics(format).value(); }
#endif

  private:
    client(exp_client *object, std::shared_ptr<detail::log_sink> log) noexcept
        : owner(object), log_(std::move(log)) {}

    static std::optional<error> version_mismatch() {
        constexpr unsigned patch_bits = 8;
        if (exp_version_number() >> patch_bits == EXP_VERSION_NUMBER >> patch_bits)
            return std::nullopt;
        return error(status::internal, std::string("this program was compiled for libexperiment ") +
                                           EXP_VERSION_STRING + " and runs with " + exp_version() +
                                           ": compile it anew, or install the other library");
    }

    static std::optional<error> moved_from(const user &user, const fetch_options &options) {
        if (!user.get())
            return detail::moved_from("the user");
        if (!options.get())
            return detail::moved_from("the fetch_options");
        return std::nullopt;
    }

#if EXPERIMENT_HAS_EXCEPTIONS
    static std::future<variants> failed(const error &error) {
        std::promise<variants> promise;
        promise.set_exception(detail::exception_of(error));
        return promise.get_future();
    }
#endif

    std::shared_ptr<detail::log_sink> log_;
};

} // namespace EXPERIMENT_NAMESPACE
} // namespace experiment

#undef EXPERIMENT_NAMESPACE
#undef EXPERIMENT_JOINED
#undef EXPERIMENT_JOIN
#undef EXPERIMENT_LIFETIMEBOUND
#undef EXPERIMENT_VISIBLE

#endif
