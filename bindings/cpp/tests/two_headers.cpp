/* Compiled twice into one program, with this header and, as OTHER, with one of another minor
 * version. Each half must be told what its own header is worth. */
#include <experiment.hpp>

bool other_makes_a_client();

#if defined(OTHER)
bool other_makes_a_client()
#else
static bool makes_a_client()
#endif
{
    return experiment::client::try_create("key").has_value();
}

#if !defined(OTHER)
int main() { return makes_a_client() && !other_makes_a_client() ? EXIT_SUCCESS : EXIT_FAILURE; }
#endif
