/*
 * Fetches one user's variants and prints them as a table.
 *
 *     c++ -std=c++17 fetch.cpp -lexperiment -o fetch
 *     EXPERIMENT_API_KEY=… ./fetch USER_ID [TIMEOUT_MILLIS]
 *
 * EXPERIMENT_SERVER_URL is another service than Amplitude's, if there is one.
 */
#include <experiment.hpp>

#include <cstdlib>
#include <iomanip>
#include <iostream>

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

std::string environment(const char *name) {
    const char *value = std::getenv(name);
    return value ? value : "";
}

/* A value that is refused is remembered: making the client throws what was wrong. */
experiment::config settings(const char *timeout_millis) {
    experiment::config config;
    if (const std::string url = environment("EXPERIMENT_SERVER_URL"); !url.empty())
        config.server_url(url);
    if (timeout_millis)
        config.fetch_timeout(milliseconds(std::strtoll(timeout_millis, nullptr, 10)));
    return config;
}

void print_row(std::string_view flag, std::string_view key, std::string_view value,
               std::string_view payload) {
    std::cout << std::left << std::setw(16) << flag << ' ' << std::setw(8) << key << ' '
              << std::setw(8) << value << ' ' << payload << '\n';
}

void print_variants(const experiment::variants &variants) {
    print_row("FLAG", "KEY", "VALUE", "PAYLOAD");
    for (const auto &variant : variants)
        print_row(variant.flag_key().value_or("-"), variant.key().value_or("-"),
                  variant.value().value_or("-"), variant.payload_json().value_or("-"));
}

void complain(std::string_view what, const experiment::error &error) {
    std::cerr << what << ": " << experiment::status_name(error.status()) << ": " << error.what()
              << '\n';
}

/* By result here, to tell the time either way; client.fetch_v2(user) returns the variants or
 * throws. */
bool fetch_and_print(const experiment::client &client, const char *user_id) {
    const auto begin = steady_clock::now();
    const auto fetched = client.try_fetch_v2(experiment::user{}.user_id(user_id));
    const std::chrono::duration<double, std::milli> elapsed = steady_clock::now() - begin;

    if (fetched)
        print_variants(*fetched);
    else
        complain(user_id, fetched.error());
    std::cout << "came back after " << std::fixed << std::setprecision(1) << elapsed.count()
              << " ms\n";
    return fetched.has_value();
}

} // namespace

int main(int count, char **arguments) try {
    if (count < 2 || count > 3) {
        std::cerr << "usage: " << arguments[0] << " USER_ID [TIMEOUT_MILLIS]\n";
        return EXIT_FAILURE;
    }
    // One client for the whole program: every thread may fetch with it.
    experiment::client client(environment("EXPERIMENT_API_KEY"),
                              settings(count > 2 ? arguments[2] : nullptr));
    return fetch_and_print(client, arguments[1]) ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const experiment::error &error) {
    complain("no client", error);
    return EXIT_FAILURE;
}
