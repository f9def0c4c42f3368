// As call.c, in C++.
//
//     call URL FETCHES LOOKUPS USERS
#include <experiment.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace {

constexpr int thousand = 1000;

experiment::user new_user() {
    return experiment::user().user_id("user-1234").device_id("device-5678");
}

double processor_nanos() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
}

template <class Calls> void measure(const char *what, Calls calls, int batches, int batch) {
    using clock = std::chrono::steady_clock;
    std::vector<double> took(static_cast<std::size_t>(batches));
    const double before = processor_nanos();
    for (double &nanos : took) {
        const auto began = clock::now();
        calls(batch);
        nanos = std::chrono::duration<double, std::nano>(clock::now() - began).count() / batch;
    }
    const double processor = (processor_nanos() - before) / batches / batch;
    std::sort(took.begin(), took.end());
    std::printf("%s %f %f -\n", what, took[took.size() / 2], processor);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 5)
        return 1;
    const experiment::client client("key", experiment::config().server_url(argv[1]));
    const experiment::user user = new_user();
    const experiment::variants variants = client.fetch_v2(user);
    const char *volatile value = nullptr;

    const auto fetches = [&](int count) {
        for (int i = 0; i < count; i++)
            client.fetch_v2(user);
    };
    const auto lookups = [&](int count) {
        for (int i = 0; i < count; i++)
            value = variants["flag-one"].value()->data();
    };
    const auto users = [](int count) {
        for (int i = 0; i < count; i++)
            new_user();
    };
    fetches(20);
    measure("fetch", fetches, std::stoi(argv[2]), 1);
    measure("lookup", lookups, std::stoi(argv[3]), thousand);
    measure("user", users, std::stoi(argv[4]), thousand);
}
