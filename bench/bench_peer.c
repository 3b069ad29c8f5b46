/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_peer.h"

#include "bench_data.h"

#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* $PYTHON, or the interpreter that tools/venv made beside this program's folder. */
static const char *interpreter(char *buf, size_t cap)
{
    const char *given = getenv("PYTHON");
    char        self[PATH_MAX] = "";
    ssize_t     len = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (given && *given)
        return given;
    if (len < 0)
        return "python3";
    snprintf(buf, cap, "%s/venv/bin/python3", dirname(dirname(self)));
    return access(buf, X_OK) == 0 ? buf : "python3";
}

static bool has_torch(const char *python)
{
    int   status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        execlp(python, python, "-c", "import torch.distributed.checkpoint", (char *)NULL);
        _exit(1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

bool bench_peer_launch(bench_peer *peer, const char *program, char *const argv[])
{
    int to[2], from[2];

    *peer = (bench_peer){ 0 };
    if (pipe(to) != 0 || pipe(from) != 0)
        return false;
    signal(SIGPIPE, SIG_IGN);
    peer->pid = fork();
    if (peer->pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        if (!getenv("BENCH_VERBOSE") && !freopen("/dev/null", "w", stderr))
            _exit(1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execvp(program, argv);
        _exit(1);
    }
    close(to[0]);
    close(from[1]);
    peer->to = fdopen(to[1], "w");
    peer->from = fdopen(from[0], "r");
    return peer->pid > 0 && peer->to && peer->from;
}

static char *word(const char *text)
{
    return (char *)(uintptr_t)text; /* execvp's arguments are not const, and not changed */
}

bool bench_peer_start(bench_peer *peer, const char *script, const char *arg1, const char *arg2,
                      char *why, size_t cap)
{
    char        buf[PATH_MAX], path[PATH_MAX];
    const char *python = interpreter(buf, sizeof(buf));
    char *const argv[] = { word(python), path, word(arg1), word(arg2), NULL };

    *peer = (bench_peer){ 0 };
    if (!has_torch(python)) {
        snprintf(why, cap, "no peer: %.60s has no torch", python);
        return false;
    }
    snprintf(path, sizeof(path), "%s/%s", BENCH_PEERS, script);
    return bench_peer_launch(peer, python, argv);
}

double bench_peer_ask(bench_peer *peer, const char *command, const char *path)
{
    char   line[512] = "";
    char  *end;
    double seconds;

    fprintf(peer->to, "%s %s\n", command, path);
    if (fflush(peer->to) != 0 || !fgets(line, sizeof(line), peer->from)) {
        fprintf(stderr, "bench: the peer ended at \"%s\"\n", command);
        return -1;
    }
    seconds = strtod(line, &end);
    if (end == line) {
        fprintf(stderr, "bench: %s: %s", command, line);
        return -1;
    }
    return seconds;
}

void bench_peer_end(bench_peer *peer)
{
    if (peer->pid <= 0)
        return;
    fclose(peer->to);
    waitpid(peer->pid, NULL, 0);
    fclose(peer->from);
    peer->pid = 0;
}
