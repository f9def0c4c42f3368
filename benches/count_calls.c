/* Preloaded into a process, counts what it asks of the kernel and of malloc, and prints the totals
 * when it ends. Counting inside the process leaves its timing alone, as tracing it would not.
 * What goes around the C library's functions (futex, by syscall(2)) is seen as `syscall`.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long kernel_calls, allocations, threads;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define COUNTED(result, name, parameters, arguments)                                               \
    result name parameters {                                                                       \
        static __typeof__(&name) next;                                                             \
        if (!next)                                                                                 \
            next = NEXT(name);                                                                     \
        atomic_fetch_add(&kernel_calls, 1);                                                        \
        return next arguments;                                                                     \
    }

COUNTED(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
COUNTED(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
COUNTED(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
COUNTED(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
COUNTED(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
COUNTED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
COUNTED(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
COUNTED(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))
COUNTED(int, ppoll,
        (struct pollfd * fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask),
        (fds, count, timeout, mask))
COUNTED(int, close, (int fd), (fd))
COUNTED(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
COUNTED(int, connect, (int fd, const struct sockaddr *address, socklen_t size), (fd, address, size))
COUNTED(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size),
        (fd, level, name, value, size))
COUNTED(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),
        (fd, level, name, value, size))

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
    atomic_fetch_add(&threads, 1);
    return NEXT(pthread_create)(thread, attributes, start, argument);
}

long syscall(long number, ...) {
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    atomic_fetch_add(&kernel_calls, 1);
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

void *malloc(size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size) {
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(memory, size);
}

__attribute__((destructor)) static void print_totals(void) {
    dprintf(2, "calls %ld %ld %ld\n", kernel_calls, allocations, threads);
}
