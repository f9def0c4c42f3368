/* A program that runs with another version of the library than it was compiled for is told so. */
#include <experiment.hpp>

#include <iostream>

// In place of the library's own.
extern "C" const char *exp_version(void) { return "0.2.0"; }
extern "C" std::uint32_t exp_version_number(void) { return 0x000200; }

int main() {
    const auto made = experiment::client::try_create("key");
    const std::string message = made ? "a client was made" : made.error().what();
    std::cout << message << "\n";
    for (const char *version : {EXP_VERSION_STRING, "0.2.0"})
        if (message.find(version) == std::string::npos)
            return EXIT_FAILURE;
    return made.error().status() == experiment::status::internal ? EXIT_SUCCESS : EXIT_FAILURE;
}
