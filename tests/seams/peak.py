# SPDX-License-Identifier: Apache-2.0
"""peak.py TOOL FILE [DATA_BYTES [COMMAND...]]: runs each command that reads a checkpoint, or this one, on FILE, all but DATA_BYTES of
which are metadata. Says which one takes more than 64 MiB and 8 bytes for each byte of metadata, or more than 20 seconds of
processor time (this one: 300)."""
import os
import resource
import signal
import subprocess
import sys

tool, file = sys.argv[1:3]
metadata = os.path.getsize(file) - int(sys.argv[3] if len(sys.argv) > 3 else 0)
COMMANDS = [["inspect", file], ["inspect", "--json", file], ["cat", file, "k"], ["verify", file],
            ["plan", file, "-l", "mesh dp=8; * shard(0)@dp"], ["manifest", file], ["verify", file],
            ["convert", "-q", "--overwrite", file, file + ".out.pt"], ["diff", file, file]]
SECONDS = 20
if len(sys.argv) > 4:
    COMMANDS, SECONDS = [sys.argv[4:]], 300

for command in COMMANDS:
    most = (64 << 20) + 8 * metadata * (2 if command[0] == "diff" else 1)
    done = subprocess.run([tool, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5)))
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        print(" ".join(command), f"takes more than {SECONDS} seconds")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024  # of all so far
    if peak > most:
        sys.exit(f"{' '.join(command)} takes {peak} bytes of memory, {most} are allowed")
