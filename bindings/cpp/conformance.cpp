/*
 * Runs the cases of tests/conformance, each once for every way of fetching that C++ has:
 *
 *     MOCK_SERVICE=… conformance FILE…
 *
 * tests/conformance/README.md describes the cases and what a runner does.
 */
#include "tests/caller.hpp"
#include "tests/mock_service.hpp"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>

using namespace caller;
using std::chrono::steady_clock;

/* One case, one way of fetching. */
struct run {
    const json &played;
    way fetch;
    mock_service &mock;
    json lines = json::array();        // what was logged, and the messages of errors
    std::vector<std::string> faults{}; // what is wrong
    std::mutex lock{};                 // of both

    void expect(bool holds, const std::string &what, const json &expected, const json &came) {
        const std::lock_guard guard(lock);
        if (!holds)
            faults.push_back(what + ": expected " + expected.dump() + ", came " + came.dump());
    }
    void know(const json &object, const std::set<std::string> &fields) {
        for (const auto &[name, value] : object.items())
            expect(fields.count(name) == 1, "known fields", fields, name);
    }
    void keep(const json &line) {
        const std::lock_guard guard(lock);
        lines.push_back(line);
    }

    void play() {
        know(played, {"name", "why", "client", "server", "creation", "steps", "requests",
                      "connections", "logs", "except"});
        const json server = played.value("server", json::object());
        const json order =
            server.is_string() ? json{{text_of(server), true}} : json{{"play", server}};
        const json playing = json::parse(mock.order(order.dump()));
        const json &own_key = field(field(played, "client"), "api_key");
        const std::string api_key = own_key.is_null() ? "conformance-key" : own_key;
        auto made = client::try_create(api_key, config_of(playing["url"]));
        if (!made)
            check(field(played, "creation"), as_json(made.error()));
        else
            for (const json &step : field(played, "steps"))
                take(step, *made);
        expect(!made == played.contains("creation"), "refusal", played, made.has_value());
        if (!server.is_string())
            check_received(json::parse(mock.order(json{{"seen", playing["id"]}}.dump())));
        if (playing.contains("id"))
            mock.order(json{{"stop", playing["id"]}}.dump());
        check_lines(api_key);
    }

    config config_of(const std::string &url) {
        config config;
        config.log_callback(
            [this](log_level level, auto line) {
                keep({{"level", name_of(level)}, {"message", line}});
            },
            log_level::debug);
        const json values = with_defaults(played.value("client", json::object()), url);
        for (const auto &[name, value] : values.items())
            if (name != "api_key" && !value.is_null())
                settings.at(name)(config, value);
        return config;
    }

    void take(const json &step, client &client) {
        if (step.is_array()) {
            std::vector<std::future<void>> acts;
            for (const json &act : step)
                acts.push_back(std::async(std::launch::async, [&] { take(act, client); }));
            for (auto &act : acts)
                act.get();
            return;
        }
        know(step, {"user", "options", "fetch", "begins_after_millis", "cancel_after_millis",
                    "gets", "within_millis", "not_before_millis", "close", "sleep"});
        std::this_thread::sleep_for(
            milliseconds(step.value("sleep", 0) + step.value("begins_after_millis", 0)));
        if (step.contains("close"))
            client.close(time_of(step["close"]));
        else if (step.contains("gets"))
            take_fetch(step, client);
    }

    void take_fetch(const json &step, const client &client) {
        user user;
        for (const auto &[name, value] : field(step, "user").items())
            user.field_json(name, value.dump());
        cancel cancel;
        fetch_options chosen = fetch_options{}.cancel(cancel);
        for (const auto &[name, value] : field(step, "options").items())
            options.at(name)(chosen, value);

        const auto begin = steady_clock::now();
        std::future<void> canceling;
        if (step.contains("cancel_after_millis"))
            canceling = std::async(std::launch::async, [&] {
                std::this_thread::sleep_until(begin + time_of(step["cancel_after_millis"]));
                cancel.fire();
            });
        auto outcome = fetch(client, user, chosen);
        const std::chrono::duration<double, std::milli> took = steady_clock::now() - begin;
        if (outcome && step.value("fetch", "v2") == "deployed")
            outcome = outcome->try_filter_deployed();
        check(step["gets"], outcome ? as_json(*outcome) : as_json(outcome.error()));
        expect(took >= time_of(step.value("not_before_millis", json(0))) &&
                   took <= time_of(step.value("within_millis", json(5000))),
               "milliseconds", step, took.count());
    }

    void check(const json &expected, const json &came) {
        expect(expected.contains("error") == came.contains("error"), "outcome", expected, came);
        for (const auto &[name, value] : expected.items())
            expect(name == "message" ? has_all(came.value(name, ""), value)
                                     : field(came, name.c_str()) == value,
                   name, expected, came);
        keep({{"level", "none"}, {"message", came.value("message", "")}});
    }

    void check_received(const json &seen) {
        const json &expected = field(played, "requests"), &received = seen["requests"];
        for (std::size_t i = 0; i < std::min(expected.size(), received.size()); i++)
            check_request(expected[i], received[i]);
        expect(expected.is_null() || expected.size() == received.size(), "requests", expected,
               received);
        if (played.contains("connections"))
            expect(seen["connections_accepted"] == played["connections"], "connections",
                   played["connections"], seen);
    }

    void check_request(const json &expected, const json &received) {
        know(expected, {"method", "path", "headers", "body"});
        for (const char *name : {"method", "path"})
            if (expected.contains(name))
                expect(received[name] == expected[name], name, expected, received);
        for (const auto &[name, value] : field(expected, "headers").items()) {
            const json came = header(received["headers"], name);
            expect(value.is_array() ? came.is_string() && has_all(came, value) : came == value,
                   name, value, came);
        }
        const json body = replaced(field(expected, "body"), "{library}", library);
        expect(body.is_null() || json::parse(text_of(received["body"]), nullptr, false) == body,
               "body", body, received["body"]);
    }

    void check_lines(const std::string &api_key) {
        const json kept = (std::lock_guard(lock), lines);
        for (const json &line : kept)
            expect(api_key.empty() || !has_all(line["message"], {api_key}), "key", nullptr, line);
        for (const json &wanted : field(played, "logs"))
            expect(std::any_of(kept.begin(), kept.end(), is_like(wanted)), "logs", wanted, kept);
    }
};

/* All ways at once: they wait more than they work. */
static bool passes(const json &played, mock_service &mock) {
    std::vector<std::future<bool>> runs;
    for (const auto &[name, fetch] : ways)
        runs.push_back(std::async(std::launch::async, [&, &name = name, &fetch = fetch] {
            run run{played, fetch, mock};
            run.play();
            for (const auto &fault : run.faults)
                std::cout << text_of(played["name"]) + ": " + name + ": " + fault + "\n";
            return run.faults.empty();
        }));
    return std::count_if(runs.begin(), runs.end(), [](auto &run) { return !run.get(); }) == 0;
}

int main(int count, char **files) {
    const char *only = std::getenv("CONFORMANCE_ONLY");
    int passed = 0, failed = 0, excepted = 0;
    mock_service mock;
    for (const std::string file : std::vector(files + 1, files + count))
        for (const json &played : json::parse(std::ifstream(file))) {
            if (only && text_of(played["name"]).find(only) == std::string::npos)
                continue;
            const json &reason = field(field(played, "except"), "cpp");
            if (!reason.is_null())
                std::cout << "excepted: " << played["name"] << ": " << reason << "\n";
            (!reason.is_null() ? excepted : passes(played, mock) ? passed : failed)++;
        }
    std::cout << "conformance cpp: " << passed << " passed, " << failed << " failed, " << excepted
              << " excepted\n";
    return failed == 0 && passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
