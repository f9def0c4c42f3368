/* All of it can be done by results, so without exceptions and run-time type information too. */
#include <experiment.hpp>

#include "mock_service.hpp"

#include <iostream>

using namespace experiment;
using namespace std::chrono_literals;

static int failures = 0;
static void check(bool holds, const char *what) {
    std::cout << (holds ? "ok      " : "FAILED  ") << what << "\n";
    failures += !holds;
}

int main() {
    const mock_service mock;
    int lines = 0;
    auto client = client::try_create(
        "key",
        config{}
            .server_url(mock.url())
            .debug(true)
            .log_callback([&lines](log_level, std::string_view) { lines++; }, log_level::debug));
    if (!client)
        return EXIT_FAILURE;
    const auto nobody = user::try_from_json("{}");

    check(client->try_fetch_v2(*nobody).value()["demo-checkout"].key().has_value(), "fetch");
    check(client->try_fetch_v2(*nobody)->try_filter_deployed().has_value(), "filter");
    bool told = false;
    const auto pending = client->try_fetch_v2_async(
        *nobody, {}, [&told](result<variants> fetched) { told = fetched.has_value(); });
    check(pending->wait(5s) == status::ok && told, "callback");

    const auto completions = completions::try_create();
    const auto submitted = client->try_fetch_v2_submit(*nobody, {}, *completions);
    check(completions->wait(5s) == status::ok, "completions");
    check(completions->next()->try_take().has_value(), "take");
    check(client->try_metrics(metrics_format::json).has_value(), "metrics");
    check(lines > 0, "log");

    check(client->close(5s) == status::ok, "close");
    check(client->try_fetch_v2({}).error().status() == status::closed, "an error is a value");
    check(client->try_fetch_v2({}).value_or(variants{}).empty(), "an empty set in its place");
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
