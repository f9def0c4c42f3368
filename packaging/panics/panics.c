#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#if defined(OPENED)
/* POSIX lets dlsym's result be a function; ISO C has no cast for it. */
static int call(void *library, const char *name) {
    int (*function)(void);
    void *symbol = dlsym(library, name);
    memcpy(&function, &symbol, sizeof function);
    return function();
}
#else
int exp_caught(void);
int exp_caught_on_thread(void);
#endif

#if defined(BESIDE)
int other_caught(void);
#endif

int main(int argc, char **argv) {
    int caught, on_thread, other = 1;
    (void)argc, (void)argv;
#if defined(OPENED)
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fputs(dlerror(), stderr);
        return 1;
    }
    caught = call(library, "exp_caught");
    /* Closing it leaves it loaded. */
    dlclose(library);
    on_thread = call(library, "exp_caught_on_thread");
#else
    caught = exp_caught();
    on_thread = exp_caught_on_thread();
#endif
#if defined(BESIDE)
    other = other_caught();
#endif
    printf("caught after %d destructors, on a thread after %d\n", caught, on_thread);
    return !(caught == 8 && on_thread == 8 && other == 1);
}
