/*
 * A process ends at once and cleanly, whatever is under way: its client, pending fetches and
 * futures are static, and are destroyed while fetches of every kind run.
 */
#include <experiment.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace experiment;
using namespace std::chrono_literals;

namespace {

constexpr int fetches = 4;
constexpr int processes = 20;

/* Accepts connections, and never answers. */
int listening(sockaddr_in &address) {
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), length) != 0 ||
        listen(listener, 64) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length) != 0)
        std::perror("no socket to listen at");
    return listener;
}

void fetch_and_exit(const std::string &url) {
    static client client("key",
                         config{}
                             .server_url(url)
                             .use_environment_proxy(false)
                             .connection_pool_max_size(4 * fetches)
                             .log_callback([](log_level, std::string_view) {}, log_level::debug));
    static std::vector<pending> told;
    static std::vector<std::future<variants>> futures;
    static completions completions;
    for (int i = 0; i < fetches; i++) {
        told.push_back(client.fetch_v2_async({}, {}, [text = std::string(100, 'x')](auto) {}));
        told.push_back(client.fetch_v2_submit({}, {}, completions));
        futures.push_back(client.fetch_v2_future({}));
        std::thread([] { static_cast<void>(client.try_fetch_v2({})); }).detach();
    }
    const auto sent = [] {
        return client.metrics(metrics_format::json).find("\"connections_leased\":16") !=
               std::string::npos;
    };
    while (!sent())
        std::this_thread::sleep_for(1ms);
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 1) {
        fetch_and_exit(argv[1]);
        return 0;
    }
    sockaddr_in address{};
    const int listener = listening(address);
    const std::string url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    for (int i = 0; i < processes; i++) {
        const auto began = std::chrono::steady_clock::now();
        const pid_t child = fork();
        if (child == 0)
            execl(argv[0], argv[0], url.c_str(), nullptr);
        int ended = -1;
        waitpid(child, &ended, 0);
        /* A fetch would take 10 s. */
        if (ended != 0 || std::chrono::steady_clock::now() - began > 5s) {
            std::fprintf(stderr, "process %d ended with %d, or late\n", i, ended);
            return 1;
        }
    }
    close(listener);
    return 0;
}
