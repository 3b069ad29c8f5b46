# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the middle of a call, by handshake: the library works in a thread of its own, or the tool in a process, so a call
is under way once there is one more."""

import os
import signal
import threading
import time


def _workers():
    """Threads and children of this process."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
        return len(os.listdir("/proc/self/task")) + len(f.read().split())


def interrupted(call, started=None):
    """Whether `call` is ended by a SIGINT that comes while it is under way: once started() is true, by default once it has
    a thread or process of its own."""
    known, over = _workers() + 1, threading.Event()

    def watch():
        while not (started() if started else _workers() > known):
            if over.wait(0.001):
                return
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    watcher = threading.Thread(target=watch, daemon=True)
    try:
        watcher.start()
        call()
        over.set()
        watcher.join()
        time.sleep(0)  # a signal that came too late is raised here
    except KeyboardInterrupt:
        return True
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
    return False
