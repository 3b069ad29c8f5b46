/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call of the file store, in one table, so that tests can make the nth one fail or
 * return short. Each means the same as the call of that name: -1 and errno. */
#ifndef RSI_SYS_H
#define RSI_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct statx;
struct statfs;
struct io_uring;

typedef struct rsi_sys {
    int (*openat)(int dir, const char *name, int flags, mode_t mode);
    int (*close)(int fd);
    int (*setfl)(int fd, int flags); /* fcntl with F_SETFL */
    int (*statx)(int dir, const char *name, int flags, unsigned mask, struct statx *out);
    int (*fstatfs)(int fd, struct statfs *out);
    ssize_t (*getdents)(int fd, void *buf, size_t cap);
    off_t (*lseek)(int fd, off_t off, int whence);

    ssize_t (*pread)(int fd, void *buf, size_t len, off_t off);
    ssize_t (*pwrite)(int fd, const void *buf, size_t len, off_t off);
    int (*fallocate)(int fd, int mode, off_t off, off_t len);
    int (*fsync)(int fd);

    int (*mkdirat)(int dir, const char *name, mode_t mode);
    int (*fchmod)(int fd, mode_t mode);
    int (*unlinkat)(int dir, const char *name, int flags);
    int (*linkat)(int dir, const char *name, int new_dir, const char *new_name, int flags);
    int (*renameat2)(int dir, const char *name, int new_dir, const char *new_name, unsigned flags);
    int (*flock)(int fd, int how);
    ssize_t (*getrandom)(void *buf, size_t len, unsigned flags);

    /* io_uring, if built in: results are negative errno values, as in liburing. */
    int (*ring_init)(unsigned depth, struct io_uring *ring);
    int (*ring_submit)(struct io_uring *ring, unsigned wait); /* io_uring_submit_and_wait */
    int (*ring_result)(int res); /* a completion's result, on its way to the queue */
} rsi_sys;

extern const rsi_sys rsi_sys_real;

#endif
