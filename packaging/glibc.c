/* Functions of newer glibcs, for the shared library, which is to run with older ones. Each is a
 * system call, and the structures are the kernel's (stat(2), statx(2), gettid(2)). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __GLIBC__

/* 2.33; before, a macro of the headers. */
int stat64(const char *restrict path, struct stat64 *restrict status) {
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

int fstat64(int descriptor, struct stat64 *status) {
    return (int)syscall(SYS_fstat, descriptor, status);
}

/* 2.30 */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* 2.28 */
int statx(int folder, const char *restrict path, int flags, unsigned wanted,
          struct statx *restrict status) {
    return (int)syscall(SYS_statx, folder, path, flags, wanted, status);
}

#endif
