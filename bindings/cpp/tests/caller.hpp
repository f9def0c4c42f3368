/* What the JSON of a case means here: how it is fetched, what can be set, what comes of it. */
#ifndef CALLER_HPP
#define CALLER_HPP

#include <experiment.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>
#include <strings.h>

namespace caller {

using namespace experiment;
using nlohmann::json;
using std::chrono::milliseconds;
using fetched = result<variants>;

inline const std::string library = "libexperiment-cpp/" EXP_VERSION_STRING;

inline fetched caught(const std::function<variants()> &fetch) {
    try {
        return fetch();
    } catch (const error &thrown) {
        return thrown;
    }
}

inline fetched told(const client &client, const user &user, const fetch_options &options) {
    std::promise<fetched> told;
    auto tell = [&](fetched outcome) { told.set_value(std::move(outcome)); };
    auto started = client.try_fetch_v2_async(user, options, tell);
    if (!started)
        return started.error();
    started->wait(no_limit); // until the callback has let go of `told`
    return told.get_future().get();
}

using way = fetched (*)(const client &, const user &, const fetch_options &);
inline const std::map<std::string, way> ways = {
    {"fetch_v2",
     [](auto &client, auto &user, auto &options) {
         return caught([&] { return client.fetch_v2(user, options); });
     }},
    {"try_fetch_v2",
     [](auto &client, auto &user, auto &options) { return client.try_fetch_v2(user, options); }},
    {"fetch_v2_async", told},
    {"fetch_v2_future",
     [](auto &client, auto &user, auto &options) {
         return caught([&] { return client.fetch_v2_future(user, options).get(); });
     }},
};

inline std::string text_of(const json &value) { return value; }
inline zone zone_of(const json &value) { return value == "EU" ? zone::eu : zone::us; }
inline milliseconds time_of(const json &value) {
    return value == "EXP_NO_LIMIT" ? no_limit : milliseconds(value.get<std::int64_t>());
}

/* A field of an object; null if it is absent. */
inline const json &field(const json &object, const char *name) {
    static const json none;
    return object.contains(name) ? object[name] : none;
}

inline json replaced(const json &value, const std::string &what, const std::string &by) {
    std::string text = value.dump();
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
        text.replace(at, what.size(), by);
    return json::parse(text);
}

inline bool has_all(const std::string &text, const json &parts) {
    return std::all_of(parts.begin(), parts.end(),
                       [&](auto &part) { return text.find(text_of(part)) != std::string::npos; });
}

/* The settings of a client, with what they are unless given, and `{url}` and its parts filled in.
 */
inline json with_defaults(const json &given, const std::string &url) {
    json values = {{"server_url", "{url}"}, {"use_environment_proxy", false}};
    values.update(given);
    const std::string host = url.substr(url.find("//") + 2);
    values = replaced(replaced(values, "{url}", url), "{host}", host);
    return replaced(values, "{port}", host.substr(host.find(':') + 1));
}

// clang-format off
#define SETTING(name, convert) {#name, [](config &c, const json &v) { c.name(convert(v)); }}
#define TIME(name) {#name "_millis", [](config &c, const json &v) { c.name(time_of(v)); }}
// clang-format on

/* By the names of the header, exp_config_set_NAME. */
inline const std::map<std::string, void (*)(config &, const json &)> settings = {
    SETTING(server_url, text_of),
    SETTING(server_zone, zone_of),
    TIME(fetch_timeout),
    TIME(fetch_pool_acquire_timeout),
    SETTING(fetch_retries, ),
    TIME(fetch_retry_timeout),
    TIME(fetch_retry_backoff_min),
    TIME(fetch_retry_backoff_max),
    SETTING(fetch_retry_backoff_scalar, ),
    SETTING(fetch_retry_jitter, ),
    SETTING(fetch_retry_budget_percent, ),
    TIME(fetch_deadline),
    SETTING(connection_pool_max_size, ),
    TIME(connection_idle_timeout),
    TIME(connection_max_lifetime),
    SETTING(max_pending_fetches, ),
    SETTING(max_response_bytes, ),
    SETTING(ca_file, text_of),
    SETTING(proxy_url, text_of),
    SETTING(use_environment_proxy, ),
    SETTING(library, text_of),
    SETTING(debug, ),
};
#undef SETTING
#undef TIME

inline const std::map<std::string, void (*)(fetch_options &, const json &)> options = {
    {"tracks_assignment", [](auto &o, auto &v) { o.tracks_assignment(v.template get<bool>()); }},
    {"tracks_exposure", [](auto &o, auto &v) { o.tracks_exposure(v.template get<bool>()); }},
    {"deadline_millis", [](auto &o, auto &v) { o.deadline(time_of(v)); }},
    {"flag_keys",
     [](auto &o, auto &v) {
         for (auto &key : v)
             o.add_flag_key(text_of(key));
     }},
};

/* Whether a line that was logged is what a case wants. */
inline auto is_like(const json &wanted) {
    return [&wanted](const json &line) {
        return line["level"] == wanted["level"] && has_all(line["message"], wanted["message"]);
    };
}

/* The header of a request, its name in any case; null if there is none. */
inline json header(const json &headers, const std::string &name) {
    for (const json &header : headers)
        if (strcasecmp(text_of(header[0]).c_str(), name.c_str()) == 0)
            return header[1];
    return nullptr;
}

inline const char *name_of(log_level level) {
    constexpr std::array names = {"none", "error", "warn", "info", "debug"};
    return names.at(static_cast<std::size_t>(level));
}

/* What came, as the cases put it. */
inline json as_json(const error &error) {
    constexpr std::array phases = {"pool", "resolve",    "connect", "tls",
                                   "send", "first_byte", "body",    "backoff"};
    const auto phase = error.phase();
    return {
        {"error", status_name(error.status())},
        {"retryable", error.retryable()},
        {"attempts", error.attempts()},
        {"http_status", error.http_status().value_or(0)},
        {"retry_after_millis", error.retry_after().value_or(milliseconds(0)).count()},
        {"phase", phase ? phases.at(static_cast<std::size_t>(*phase)) : "none"},
        {"message", error.what()},
    };
}

inline json as_json(const variants &variants) {
    json all = json::object();
    for (const auto &variant : variants) {
        json &one = all[std::string(*variant.flag_key())] = json::object();
        if (const auto key = variant.key())
            one["key"] = *key;
        if (const auto value = variant.value())
            one["value"] = *value;
        if (const auto payload = variant.payload_json())
            one["payload"] = json::parse(*payload);
        if (const auto metadata = variant.metadata_json())
            one["metadata"] = json::parse(*metadata);
    }
    return {{"variants", all}, {"attempts", variants.attempts()}};
}

} // namespace caller

#endif
