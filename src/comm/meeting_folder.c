/* SPDX-License-Identifier: Apache-2.0 */
/* A meeting place in a folder: each key is a file, which gets its name when it is complete. Rank 0
 * puts results for all under keys that end in ".all" (rounds.c). */
#include "base/bytes.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/opts.h"
#include "comm/clock.h"

#include <reshard/reshard_plugin.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS  5000000
#define LEAVE_MS 3000 /* for others to read the result of a meeting that failed */

typedef struct place {
    char     *path;
    rsi_bytes mine; /* paths of what this rank put, each with its NUL */
} place;

static bool join(const place *p, const char *name, char out[PATH_MAX])
{
    int len = snprintf(out, PATH_MAX, "%s/%s", p->path, name);

    return len > 0 && len < PATH_MAX;
}

static bool write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);

        if (n < 0 && errno != EINTR)
            return false;
        data += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* A name that exists is another meeting's: reading that one's keys would mix the two. */
static rsd_err put(void *arg, const char *key, const void *data, size_t bytes, rsd_error *err)
{
    place  *p = arg;
    char    temp[PATH_MAX], path[PATH_MAX];
    bool    written;
    int     fd, why = 0;
    rsd_err rc = RSD_OK;

    if (!join(p, ".put-XXXXXX", temp) || !join(p, key, path))
        return rsi_fail(err, RSD_E_INVALID, "the path \"%s\" is too long", p->path);
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return rsi_fail_errno(err, RSD_E_IO, errno, "could not create \"%s\"", temp);
    written = fchmod(fd, 0600) == 0 && write_all(fd, data, bytes);
    why = written ? 0 : errno;
    if (close(fd) != 0 && !why)
        why = errno;
    if (!why && link(temp, path) != 0)
        why = errno;
    unlink(temp);
    if (why == EEXIST)
        rc =
            rsi_fail(err, RSD_E_EXISTS,
                     "\"%s\" exists: the folder was used for another meeting; use a new one", path);
    else if (why)
        rc = rsi_fail_errno(err, RSD_E_IO, why, "could not write \"%s\"", path);
    else if (!rsi_bytes_add(&p->mine, path, strlen(path) + 1))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to meet other ranks");
    return rc;
}

static rsd_err read_all(int fd, const char *path, rsi_bytes *out, rsd_error *err)
{
    struct stat st;
    char       *at;

    if (fstat(fd, &st) != 0)
        return rsi_fail_errno(err, RSD_E_IO, errno, "could not read \"%s\"", path);
    if (!S_ISREG(st.st_mode)) /* a pipe would keep this rank waiting */
        return rsi_fail(err, RSD_E_IO, "\"%s\" is not a file", path);
    at = rsi_bytes_more(out, (size_t)st.st_size + 1);
    if (!at)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %lld bytes", (long long)st.st_size);
    out->len = 0;
    while (out->len < (size_t)st.st_size) {
        ssize_t n = read(fd, at + out->len, (size_t)st.st_size - out->len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return rsi_fail_errno(err, RSD_E_IO, n < 0 ? errno : EIO, "could not read \"%s\"",
                                  path);
        out->len += (size_t)n;
    }
    return RSD_OK;
}

static bool is_result(const char *path)
{
    const size_t len = strlen(path);

    return len > 4 && strcmp(path + len - 4, ".all") == 0;
}

static void remove_mine(const place *p, bool results)
{
    rsi_reader in = { p->mine.at, p->mine.at + p->mine.len, false };

    while (in.at < in.end) {
        const char *path = rsi_read_text(&in);

        if (results || !is_result(path))
            unlink(path);
    }
}

/* Rank 0 keeps its keys: who meets here while they exist is refused. */
static bool has_result(const place *p)
{
    rsi_reader in = { p->mine.at, p->mine.at + p->mine.len, false };
    bool       found = false;

    while (in.at < in.end)
        found = is_result(rsi_read_text(&in)) || found;
    return found;
}

static rsd_err get(void *arg, const char *key, int64_t timeout_ms,
                   void (*take)(void *to, const void *data, size_t bytes), void *to, rsd_error *err)
{
    place        *p = arg;
    const int64_t until = rsi_clock_ms() + timeout_ms;
    rsi_bytes     got = { 0 };
    char          path[PATH_MAX];
    int           fd;
    rsd_err       rc;

    if (!join(p, key, path))
        return rsi_fail(err, RSD_E_INVALID, "the path of \"%s\" is too long", key);
    while ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) < 0) {
        if (errno != ENOENT && errno != ESTALE && errno != EINTR)
            return rsi_fail_errno(err, RSD_E_IO, errno, "could not open \"%s\"", path);
        if (rsi_clock_ms() >= until)
            return rsi_fail(err, RSD_E_TIMEOUT, "\"%s\" did not appear within %lld ms", path,
                            (long long)timeout_ms);
        nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
    }
    rc = read_all(fd, path, &got, err);
    close(fd);
    if (!rc)
        take(to, got.at, got.len);
    if (is_result(key) && !has_result(p)) { /* rank 0 has got this rank's keys */
        remove_mine(p, false);
        p->mine.len = 0;
    }
    rsi_free(got.at);
    return rc;
}

/* Whether there are keys of ranks that have not read a result yet. */
static bool others_are_here(const place *p)
{
    DIR           *dir = opendir(p->path);
    struct dirent *entry;
    bool           found = false;

    while (dir && !found && (entry = readdir(dir)))
        found = entry->d_name[0] != '.' && !is_result(entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* The last rank finds the folder empty. If the ranks failed to meet, the others may still have to
 * read why. */
static void hang_up(void *arg, bool broken)
{
    place        *p = arg;
    const int64_t until = rsi_clock_ms() + LEAVE_MS;

    remove_mine(p, false);
    while (broken && has_result(p) && others_are_here(p) && rsi_clock_ms() < until)
        nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
    remove_mine(p, true);
    rmdir(p->path);
    rsi_free(p->mine.at);
    rsi_free(p->path);
    rsi_free(p);
}

rsd_err rsd_meeting_in_folder(const char *path, rsd_meeting *out, rsd_error *err)
{
    rsd_meeting made = { .put = put, .get = get, .hangup = hang_up };
    place      *p;
    rsd_err     rc = rsi_result_check(out, "rsd_meeting", err);

    if (rc)
        return rc;
    if (!path || !path[0])
        return rsi_fail(err, RSD_E_INVALID, "missing argument: the folder to meet in");
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return rsi_fail_errno(err, RSD_E_IO, errno, "could not create the folder \"%s\"", path);
    p = rsi_calloc(1, sizeof(*p));
    if (p)
        p->path = rsi_strdup(path);
    if (!p || !p->path) {
        rsi_free(p);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a meeting");
    }
    made.arg = p;
    rsi_result_give(out, &made, sizeof(made));
    return RSD_OK;
}
