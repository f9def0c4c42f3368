/* What the header promises beyond the cases of tests/conformance, against the mock service. */
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <experiment.hpp>

#include "mock_service.hpp"

#include <atomic>
#include <condition_variable>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>
#include <pthread.h>

using namespace experiment;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

/* Far beyond what anything here takes; only a defect comes near it. */
constexpr auto soon = 5s;

mock_service &mock() {
    static mock_service service;
    return service;
}

/* Where nothing is ever answered. */
const std::string &stalled() {
    static const std::string url = mock().play(R"({"answers":[{"steps":["hold"]}]})");
    return url;
}

config settings(const std::string &url = mock().url()) {
    return config{}.server_url(url).use_environment_proxy(false).fetch_timeout(soon);
}

user somebody() { return user{}.user_id("somebody"); }

/* Whether it comes to hold within a time that is long enough for anything. */
template <class Condition> bool comes_true(Condition condition) {
    const auto end = steady_clock::now() + soon;
    while (!condition() && steady_clock::now() < end)
        std::this_thread::sleep_for(1ms);
    return condition();
}

/* The log, as text. */
struct log_text {
    std::mutex lock;
    std::string text;

    auto writer() {
        return [this](log_level, std::string_view line) {
            const std::lock_guard guard(lock);
            text.append(line).append("\n");
        };
    }
    bool has(std::string_view part) {
        const std::lock_guard guard(lock);
        return text.find(part) != std::string::npos;
    }
};

static_assert(!std::is_copy_constructible_v<client> && std::is_nothrow_move_assignable_v<client>);
static_assert(!std::is_copy_constructible_v<variants> && std::is_nothrow_move_assignable_v<config>);
static_assert(std::is_nothrow_copy_constructible_v<error>,
              "an exception is copied while another flies");
static_assert(!std::is_constructible_v<std::chrono::milliseconds, std::chrono::microseconds>,
              "what is finer than the library's unit does not compile");
static_assert(sizeof(user) == sizeof(void *), "a class costs what its object costs");
#if defined(__cpp_lib_ranges)
static_assert(std::ranges::input_range<variants> && std::ranges::sized_range<variants>);
#endif

} // namespace

TEST_CASE("variants are a range of views, found by flag, with nothing where nothing was sent") {
    const client client("key", settings(mock().play(R"({"answers":[{"json":{
        "full": {"key": "on", "value": "yes", "payload": {"a": 1}, "metadata": {"b": true}},
        "bare": {"key": "off"}}}]})")));
    const variants variants = client.fetch_v2(somebody());

    CHECK(variants.size() == 2);
    std::string keys;
    for (const auto &variant : variants)
        keys.append(*variant.flag_key()).append(" ");
    CHECK(keys == "full bare ");
    CHECK(std::vector<variant_view>(variants.begin(), variants.end()).size() == 2);
    CHECK(variants.begin()->key() == "on");

    CHECK(variants["full"].value() == "yes");
    CHECK(variants["full"].payload_json() == R"({"a":1})");
    CHECK(variants["full"].metadata_json() == R"({"b":true})");
    CHECK(variants["bare"]);
    CHECK_FALSE(variants["bare"].value());
    CHECK_FALSE(variants["absent"]);
    CHECK_FALSE(variants["absent"].key());

    CHECK(variants.value_or("full", "fallback") == "yes");
    CHECK(variants.value_or("bare", "fallback") == "fallback");
    CHECK(variants.value_or("absent", "fallback") == "fallback");
    CHECK(variants.json().find(R"("bare":{"key":"off"})") != std::string_view::npos);
    CHECK(variants.attempts() == 1);
    CHECK_FALSE(variants.connection_reused());
    CHECK(variants.phase_time(phase::first_byte) > 0us);
}

TEST_CASE("a default set is empty, and a set outlives its client and a move") {
    const variants none;
    CHECK(none.empty());
    CHECK(none.begin() == none.end());
    CHECK(none.json() == "{}");
    CHECK(none.value_or("flag", "off") == "off");

    variants first = client("key", settings()).fetch_v2(somebody());
    const std::string_view value = first["demo-checkout"].payload_json().value_or("none");
    const variants second = std::move(first);
    CHECK(second["demo-checkout"].payload_json().value_or("none").data() == value.data());
}

TEST_CASE("filter_deployed leaves out what is the default") {
    const client client("key", settings(mock().play(R"({"answers":[{"json":{
        "kept": {"key": "on", "metadata": {"deployed": true}},
        "left": {"key": "off", "metadata": {"deployed": true, "default": true}}}}]})")));
    const variants deployed = client.fetch_v2(somebody()).filter_deployed();
    CHECK(deployed.size() == 1);
    CHECK(deployed["kept"]);
}

TEST_CASE("each setter of a user sets the field of its name") {
    const std::string url = mock().play("{}");
    user user = experiment::user{}.user_id("user_id").device_id("device_id").country("country");
    user.region("region").dma("dma").city("city").language("language").platform("platform");
    user.version("version").os("os").device_manufacturer("device_manufacturer");
    user.device_brand("device_brand").device_model("device_model").carrier("carrier");
    user.library("library").ip_address("ip_address").property_json("plan", R"("pro")");
    user.add_group("team", "blue").field_json("cohort_ids", R"(["c"])");
    user.city(std::string_view()); // no text: unknown again
    client("key", settings(url)).fetch_v2(user);

    const std::string seen = mock().seen();
    for (const std::string field :
         {"user_id", "device_id", "country", "region", "dma", "language", "platform", "version",
          "os", "device_manufacturer", "device_brand", "device_model", "carrier", "library",
          "ip_address"})
        CHECK(seen.find(R"(\")" + field + R"(\":\")" + field + R"(\")") != std::string::npos);
    for (const char *part : {R"(\"user_properties\":{\"plan\":\"pro\"})",
                             R"(\"groups\":{\"team\":[\"blue\"]})", R"(\"cohort_ids\":[\"c\"])"})
        CHECK(seen.find(part) != std::string::npos);
    CHECK(seen.find("city") == std::string::npos);
}

TEST_CASE("the service is told that C++ asks") {
    client("key", settings(mock().play("{}"))).fetch_v2(somebody());
    CHECK(mock().seen().find(R"(\"library\":\"libexperiment-cpp/0.1.0\")") != std::string::npos);
}

TEST_CASE("a user is read from JSON, or the error says why not") {
    CHECK_NOTHROW(client("key", settings()).fetch_v2(user::from_json(R"({"user_id": "u"})")));
    CHECK(user::try_from_json("[]").error().status() == status::invalid_argument);
    CHECK_THROWS_AS(user::from_json("{"), error);
}

TEST_CASE("a refused value is remembered, and named by whoever would use it") {
    config refused = settings().fetch_timeout(0ms).fetch_retries(1);
    REQUIRE(refused.error());
    CHECK(refused.error()->status() == status::invalid_argument);
    const auto made = client::try_create("key", refused);
    REQUIRE_FALSE(made);
    CHECK(std::string_view(made.error().what()).find("fetch_timeout") != std::string_view::npos);
    CHECK_THROWS_AS(client("key", refused), error);
    CHECK_FALSE(settings().error());

    const client client("key", settings());
    CHECK(client.try_fetch_v2(user{}.property_json("a", "{")).error().status() ==
          status::invalid_argument);
    CHECK(client.try_fetch_v2(user{}, fetch_options{}.deadline(25h)).error().status() ==
          status::invalid_argument);
}

TEST_CASE("a negative time is refused and never stands for no limit") {
    CHECK(config{}.fetch_deadline(-1ms).error());
    CHECK(config{}.fetch_deadline(std::chrono::milliseconds::min()).error());
    CHECK_FALSE(config{}.fetch_deadline(no_limit).error());
    CHECK(fetch_options{}.deadline(-1ms).error());
    CHECK(client("key", settings()).close(-1ms) == status::invalid_argument);
}

TEST_CASE("worst_case adds the times up, whatever their units were") {
    config config = experiment::config{}.fetch_timeout(1s).fetch_pool_acquire_timeout(50ms);
    CHECK(config.worst_case() == 1050ms);
    config.fetch_retries(1).fetch_retry_timeout(2s).fetch_retry_backoff_max(100ms);
    CHECK(config.worst_case() == 3200ms);
    config.fetch_retry_backoff_min(1ms).fetch_pool_acquire_timeout(no_limit);
    CHECK(config.worst_case() == no_limit);
    CHECK(config.fetch_deadline(3min).worst_case() == 3min);
}

TEST_CASE("what was moved from is refused, not taken for a default") {
    config moved_config = settings().fetch_timeout(100ms);
    const config kept_config = std::move(moved_config);
    CHECK(client::try_create("key", moved_config).error().status() == status::invalid_argument);

    client moved_client("key", kept_config);
    const client client = std::move(moved_client);
    CHECK(moved_client.try_fetch_v2({}).error().status() == status::invalid_argument);
    user moved_user;
    const user kept_user = std::move(moved_user);
    CHECK(client.try_fetch_v2(moved_user).error().status() == status::invalid_argument);
    fetch_options moved_options;
    const fetch_options kept_options = std::move(moved_options);
    CHECK(client.try_fetch_v2({}, moved_options).error().status() == status::invalid_argument);
    CHECK(client.fetch_v2(kept_user, kept_options).size() > 0);
}

TEST_CASE("a timeout is a timeout_error, an error and a runtime_error, with its detail") {
    const client client("key", settings(stalled()).fetch_timeout(300ms));
    CHECK_THROWS_AS(client.fetch_v2(somebody()), timeout_error);
    CHECK_THROWS_AS(client.fetch_v2(somebody()), std::runtime_error);
    try {
        client.fetch_v2(somebody());
        FAIL("it must throw");
    } catch (const error &caught) {
        CHECK(caught.status() == status::timeout);
        CHECK(status_name(caught.status()) == "EXP_ERR_TIMEOUT");
        CHECK(caught.phase() == phase::first_byte);
        CHECK(caught.phase_time(phase::first_byte) > 0us);
        CHECK(caught.retryable());
        CHECK(caught.attempts() == 1);
        CHECK_FALSE(caught.http_status());
        CHECK_FALSE(caught.retry_after());
        CHECK(std::string_view(caught.what()).find("300 ms") != std::string_view::npos);
    }
}

TEST_CASE("an answer that is an error has its HTTP status and what it asked for") {
    const client client(
        "key", settings(mock().play(
                   R"({"answers":[{"status": 429, "headers": [["Retry-After", "7"]]}]})")));
    const auto fetched = client.try_fetch_v2(somebody());
    REQUIRE_FALSE(fetched);
    CHECK(fetched.error().status() == status::http_status);
    CHECK(fetched.error().http_status() == 429);
    CHECK(fetched.error().retry_after() == 7s);
    CHECK_FALSE(fetched.error().phase());
}

TEST_CASE("a result has the value or the error, and throws the error when asked for the value") {
    auto good = result<std::string>("text");
    CHECK(good.has_value());
    CHECK(*good == "text");
    CHECK(good->size() == 4);
    CHECK(good.value() == "text");
    CHECK(std::move(good).value_or("other") == "text");

    auto bad = result<std::string>(error(status::canceled, "enough"));
    CHECK_FALSE(bad);
    CHECK_THROWS_AS(bad.value(), canceled_error);
    CHECK_THROWS_WITH(bad.value(), "enough");
    CHECK(std::move(bad).value_or("other") == "other");

    auto moved = result<std::unique_ptr<int>>(std::make_unique<int>(1));
    CHECK(*std::move(moved).value() == 1);

    const client client("key", settings());
    int count = 0;
    for (const auto &variant : *client.try_fetch_v2(somebody())) // lives on in the loop
        count += variant.flag_key().has_value();
    CHECK(count > 0);
}

TEST_CASE("many threads fetch with one client, each its own answer") {
    const client client("key", settings());
    std::atomic<int> good = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([&, name = "user-" + std::to_string(i)] {
            const variants variants = client.fetch_v2(user{}.user_id(name));
            good += variants["demo-nonce"].payload_json() == "\"" + name + "\"";
        });
    for (auto &thread : threads)
        thread.join();
    CHECK(good == 8);
}

TEST_CASE(
    "a callback is called once, on another thread, with the variants, and is then destroyed") {
    const client client("key", settings());
    auto guard = std::make_shared<int>(0);
    std::thread::id thread;
    const pending pending =
        client.fetch_v2_async(somebody(), {}, [&, guard](result<variants> fetched) {
            ++*guard;
            thread = std::this_thread::get_id();
            CHECK(fetched.value()["demo-checkout"]);
        });
    REQUIRE(pending.wait(soon) == status::ok);
    CHECK(*guard == 1);
    CHECK(guard.use_count() == 1);
    CHECK(thread != std::this_thread::get_id());
}

TEST_CASE("a callback may be move-only, and keeps what it was told") {
    const client client("key", settings());
    auto promise = std::make_unique<std::promise<variants>>();
    auto future = promise->get_future();
    client.fetch_v2_async(somebody(), {}, [promise = std::move(promise)](auto fetched) {
        promise->set_value(std::move(fetched).value());
    });
    CHECK(future.get()["demo-checkout"]);
}

TEST_CASE("what a callback throws is logged, and harms nobody") {
    log_text log;
    const client client("key", settings().log_callback(log.writer(), log_level::error));
    client.fetch_v2_async(somebody(), {}, [](auto) { throw std::runtime_error("my fault"); })
        .wait(soon);
    CHECK(log.has("a callback threw: my fault"));
    client.fetch_v2_async(somebody(), {}, [](auto) { throw 1; }).wait(soon);
    CHECK(log.has("no std::exception"));
    CHECK(client.fetch_v2(somebody()).size() > 0);
}

TEST_CASE("what a log callback throws is dropped") {
    const client client("key", settings().debug(true).log_callback(
                                   [](log_level, std::string_view) { throw 1; }, log_level::debug));
    CHECK(client.fetch_v2(somebody()).size() > 0);
    CHECK(client.fetch_v2_async(somebody(), {}, [](auto) { throw 1; }).wait(soon) == status::ok);
}

TEST_CASE("a callback whose fetch did not start is destroyed and never called") {
    client client("key", settings(stalled()).max_pending_fetches(1));
    const cancel cancel;
    const auto options = fetch_options{}.cancel(cancel);
    const pending first = client.fetch_v2_async(somebody(), options, [](auto) {});
    auto guard = std::make_shared<int>(0);
    auto never = [guard](result<variants>) { ++*guard; };
    CHECK(client.try_fetch_v2_async(somebody(), {}, never).error().status() == status::queue_full);
    cancel.fire();
    CHECK(first.wait(soon) == status::ok);
    CHECK(client.close(soon) == status::ok);
    CHECK(client.try_fetch_v2_async(somebody(), {}, never).error().status() == status::closed);
    CHECK_THROWS_AS(client.fetch_v2_async(somebody(), {}, std::move(never)), error);
    CHECK(*guard == 0);
    CHECK(guard.use_count() == 1);
}

TEST_CASE("a future holds the variants or the error, that of the start included") {
    CHECK(client("key", settings()).fetch_v2_future(somebody()).get().size() > 0);

    client client("key", settings(stalled()).fetch_timeout(100ms));
    auto future = client.fetch_v2_future(somebody());
    CHECK(future.wait_for(soon) == std::future_status::ready);
    CHECK_THROWS_AS(future.get(), timeout_error);
    client.close(soon);
    auto refused = client.fetch_v2_future(somebody());
    CHECK_THROWS_AS(refused.get(), error);
}

TEST_CASE("a future that is dropped does not wait for its fetch") {
    client client("key", settings(stalled()));
    const auto begin = steady_clock::now();
    static_cast<void>(client.fetch_v2_future(somebody()));
    CHECK(steady_clock::now() - begin < soon / 2); // the fetch takes all of it
    client.close(0ms);
}

TEST_CASE("a switch ends the fetches that carry it, then and ever after") {
    const client client("key", settings(stalled()));
    fetch_options options;
    auto cancel = std::make_unique<experiment::cancel>();
    options.cancel(*cancel);
    auto future = client.fetch_v2_future(somebody(), options);
    cancel->fire();
    CHECK_THROWS_AS(future.get(), canceled_error);
    cancel.reset(); // the options hold the switch
    CHECK_THROWS_AS(client.fetch_v2(somebody(), options), canceled_error);
}

TEST_CASE("a pending fetch is canceled by itself") {
    const client client("key", settings(stalled()));
    std::atomic<bool> canceled = false;
    const pending pending = client.fetch_v2_async(somebody(), {}, [&](result<variants> fetched) {
        canceled = fetched.error().status() == status::canceled;
    });
    CHECK(pending.wait(0ms) == status::timeout);
    pending.cancel();
    CHECK(pending.wait(soon) == status::ok);
    CHECK(canceled);
}

TEST_CASE("an interrupt hook ends a blocking fetch, by true or by what it throws") {
    const client client("key", settings(stalled()));
    fetch_options options;
    int asked = 0;
    options.interrupt([&asked, once = std::make_unique<int>(2)] { return ++asked == *once; });
    CHECK_THROWS_AS(client.fetch_v2(somebody(), options), canceled_error);
    CHECK(asked == 2);
    options.interrupt([]() -> bool { throw std::runtime_error("signal"); });
    const fetch_options moved = std::move(options);
    CHECK_THROWS_AS(client.fetch_v2(somebody(), moved), canceled_error);
}

TEST_CASE("a thread that is canceled in a fetch comes back from it, and is unwound after it") {
    struct fetcher {
        const client held{"key", settings(stalled()).fetch_timeout(100ms)};
        std::atomic<bool> fetches = false, timed_out = false, unwound = false;
    } state;
    pthread_t thread;
    const auto run = [](void *argument) -> void * {
        auto &mine = *static_cast<fetcher *>(argument);
        // What glibc throws through the frames to unwind them calls this.
        const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool> *)> guard(
            &mine.unwound, [](std::atomic<bool> *unwound) { *unwound = true; });
        fetch_options options;
        options.interrupt([&mine] { return !(mine.fetches = true); });
        mine.timed_out =
            mine.held.try_fetch_v2(somebody(), options).error().status() == status::timeout;
        for (;;)
            pthread_testcancel();
    };
    REQUIRE(pthread_create(&thread, nullptr, run, &state) == 0);
    CHECK(comes_true([&] { return state.fetches.load(); }));
    CHECK(pthread_cancel(thread) == 0);
    void *result = nullptr;
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK(state.timed_out);
    CHECK(state.unwound);
}

TEST_CASE("a log callback gets lines, and is destroyed with the last that could log") {
    auto guard = std::make_shared<std::atomic<int>>(0);
    {
        config config = settings();
        config.log_callback([guard](log_level, std::string_view line) { *guard += !line.empty(); },
                            log_level::debug);
        const client client("key", config.debug(true));
        config.log_callback([](log_level, std::string_view) {}, log_level::error);
        client.fetch_v2(somebody());
        CHECK(*guard > 0);
    }
    CHECK(comes_true([&] { return guard.use_count() == 1; }));
}

TEST_CASE("a log callback that is refused is destroyed, and leaves the one before") {
    log_text log;
    auto guard = std::make_shared<int>(0);
    config config = settings().debug(true).log_callback(log.writer(), log_level::debug);
    config.log_callback([guard](log_level, std::string_view) {}, static_cast<log_level>(99));
    CHECK(config.error());
    CHECK(guard.use_count() == 1);
}

TEST_CASE("completions are polled, and their fetches known by their user_data") {
    const client client("key", settings());
    const completions completions;
    int tag = 0;
    CHECK_FALSE(completions.next());
    CHECK(completions.wait(0ms) == status::timeout);
    client.fetch_v2_submit(somebody(), {}, completions, &tag);

    pollfd readable = {completions.fd(), POLLIN, 0};
    REQUIRE(poll(&readable, 1, 5000) == 1);
    auto done = completions.next();
    REQUIRE(done);
    CHECK(done->user_data() == &tag);
    CHECK(done->take()["demo-checkout"]);
    CHECK(done->try_take().error().status() == status::invalid_argument);
    CHECK_FALSE(completions.next());
}

TEST_CASE("a failed fetch is taken from completions as its error") {
    const client client("key", settings(stalled()).fetch_timeout(100ms));
    const completions completions;
    client.fetch_v2_submit(somebody(), {}, completions);
    REQUIRE(completions.wait(soon) == status::ok);
    CHECK_THROWS_AS(completions.next()->take(), timeout_error);
}

TEST_CASE("metrics are text") {
    const client client("key", settings());
    client.fetch_v2(somebody());
    CHECK(client.metrics(metrics_format::json).front() == '{');
    CHECK(client.metrics(metrics_format::openmetrics).find("# EOF") != std::string::npos);
}

TEST_CASE("close waits for what runs and cuts it off in time") {
    client client("key", settings(mock().play(R"({"answers":[{"steps":["hold"]}]})")));
    auto future = client.fetch_v2_future(somebody());
    CHECK(comes_true(
        [] { return mock().seen().find(R"("requests_total":1)") != std::string::npos; }));
    CHECK(client.close(100ms) == status::timeout);
    CHECK(client.close(soon) == status::ok);
    CHECK_THROWS_AS(future.get(), error);
    CHECK(client.try_fetch_v2(somebody()).error().status() == status::closed);
}

TEST_CASE("after a fork the client works in the child, and what was pending is canceled there") {
    const client client("key", settings());
    experiment::client waiting("key", settings(stalled()));
    const cancel cancel;
    const pending pending =
        waiting.fetch_v2_async(somebody(), fetch_options{}.cancel(cancel), [](auto) {});
    const auto future = waiting.fetch_v2_future(somebody(), fetch_options{}.cancel(cancel));
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const bool good = client.try_fetch_v2(somebody()).has_value() &&
                          pending.wait(soon) == status::canceled &&
                          future.wait_for(0s) == std::future_status::timeout;
        // By exec, for valgrind would count what a child leaves behind.
        execl("/bin/sh", "sh", "-c", good ? "exit 0" : "exit 1", nullptr);
    }
    int ended = -1;
    CHECK(waitpid(child, &ended, 0) == child);
    CHECK(ended == 0);
    cancel.fire();
    CHECK(pending.wait(soon) == status::ok);
    // Nothing of it runs any more when the process ends, and valgrind looks.
    CHECK(waiting.close(soon) == status::ok);
}
