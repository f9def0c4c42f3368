/* The mock of the evaluation service (tests/mock), as a process that is told what to play. */
#ifndef MOCK_SERVICE_HPP
#define MOCK_SERVICE_HPP

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

class mock_service {
  public:
    /** Starts the program that the environment names; it ends with this object. */
    mock_service() {
        const char *program = std::getenv("MOCK_SERVICE");
        int orders[2];
        int answers[2];
        if (!program || pipe2(orders, O_CLOEXEC) != 0 || pipe2(answers, O_CLOEXEC) != 0)
            fail("MOCK_SERVICE must name the mock service");
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, orders[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, answers[1], STDOUT_FILENO);
        char *const arguments[] = {const_cast<char *>(program), nullptr};
        const int failed = posix_spawn(&process_, program, &actions, nullptr, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(orders[0]);
        close(answers[1]);
        if (failed)
            fail("MOCK_SERVICE cannot be started: " + std::string(program));
        orders_ = fdopen(orders[1], "w");
        answers_ = fdopen(answers[0], "r");
        url_ = url_in(read_line());
    }
    mock_service(const mock_service &) = delete;
    mock_service &operator=(const mock_service &) = delete;
    ~mock_service() {
        std::fclose(orders_);
        std::fclose(answers_);
        waitpid(process_, nullptr, 0);
    }

    /** Where it answers as the service does. */
    const std::string &url() const { return url_; }

    /** Gives an order, and returns the answer; for any thread. */
    std::string order(std::string json) {
        std::replace(json.begin(), json.end(), '\n', ' '); // an order is one line
        const std::lock_guard guard(lock_);
        std::fprintf(orders_, "%s\n", json.c_str());
        std::fflush(orders_);
        return read_line();
    }

    /** Where it plays a script. */
    std::string play(const std::string &script) {
        played_++;
        return url_in(order("{\"play\":" + script + "}"));
    }

    /** What the script that was played last has seen; the scripts are numbered from 1. */
    std::string seen() { return order("{\"seen\":" + std::to_string(played_) + "}"); }

  private:
    /* No exception: a test without them uses this too. */
    [[noreturn]] static void fail(const std::string &why) {
        std::fprintf(stderr, "%s\n", why.c_str());
        std::abort();
    }

    std::string read_line() {
        std::string line;
        for (int c = std::fgetc(answers_); c != '\n'; c = std::fgetc(answers_)) {
            if (c == EOF)
                fail("the mock service has ended");
            line.push_back(static_cast<char>(c));
        }
        return line;
    }

    static std::string url_in(std::string_view answer) {
        const std::string_view before = "\"url\":\"";
        const std::size_t begin = answer.find(before);
        if (begin == std::string_view::npos)
            fail("the mock service says " + std::string(answer));
        answer.remove_prefix(begin + before.size());
        return std::string(answer.substr(0, answer.find('"')));
    }

    pid_t process_ = -1;
    std::FILE *orders_ = nullptr;
    std::FILE *answers_ = nullptr;
    std::string url_;
    int played_ = 0;
    std::mutex lock_; // one order at a time
};

#endif
