/* Functions of newer glibcs, for the shared library, which is to run with older ones. Each is a
 * system call, and the structures are the kernel's (stat(2), statx(2), gettid(2)). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

/* 2.33; before, every program had its own, from libc_nonshared.a. */
int stat64(const char *restrict path, struct stat64 *restrict status) {
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

int fstat64(int descriptor, struct stat64 *status) {
    return (int)syscall(SYS_fstat, descriptor, status);
}

/* 2.30 */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* 2.28 */
struct statx;
int statx(int folder, const char *restrict path, int flags, unsigned wanted,
          struct statx *restrict status) {
    return (int)syscall(SYS_statx, folder, path, flags, wanted, status);
}

#endif
