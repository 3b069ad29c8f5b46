/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are other programs: a script of bench/peers that stays alive, takes commands line by
 * line and answers with seconds. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct bench_peer {
    pid_t pid; /* 0: it is not there */
    FILE *to, *from;
} bench_peer;

/* Starts `script` with the Python of $PYTHON or of the build's venv. False, with the reason in
 * `why`: there is none that has torch. */
bool bench_peer_start(bench_peer *peer, const char *script, const char *arg1, const char *arg2,
                      char *why, size_t cap);
/* Starts any program that answers in this way. False: it could not be. */
bool bench_peer_launch(bench_peer *peer, const char *program, char *const argv[]);
/* Sends one command; the seconds that the peer says, < 0 after an error, which is printed. */
double bench_peer_ask(bench_peer *peer, const char *command, const char *path);
void   bench_peer_end(bench_peer *peer);

#endif
