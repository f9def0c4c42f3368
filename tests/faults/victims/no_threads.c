/*
 * Preloaded into a victim: while the file at FAULTS_NO_THREADS exists, the library gets no threads.
 * A limit of the system would meet the threads of the victim's language, too, and root has none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *),
                   void *data) {
    Dl_info caller;
    const char *file = getenv("FAULTS_NO_THREADS");
    int is_librarys = dladdr(__builtin_return_address(0), &caller) && caller.dli_fname &&
                      strstr(caller.dli_fname, "libexperiment");
    if (is_librarys && file && !access(file, F_OK))
        return EAGAIN;
    create *real;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, begin, data);
}
