# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in the middle of a call, by handshake: the library works in a thread of its own, or the tool in a process, so a call
is under way once there is one that was not there before."""

import os
import signal
import sys
import threading
import time


def workers():
    """The ids of the threads and children of this process."""
    ids = {int(name) for name in os.listdir("/proc/self/task")}
    for task in list(ids):  # a child belongs to the thread that started it
        try:
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as f:
                ids.update(map(int, f.read().split()))
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            pass
    return ids


def ended_children():
    """The signals that ended the children of this process, 0 for one that ended by itself; waits for all."""
    while True:
        try:
            yield os.WTERMSIG(os.waitpid(-1, 0)[1])
        except ChildProcessError:
            return


def inside(function):
    """A condition for interrupted(): the main thread is in `function`, or in what the core does for it."""
    main = threading.main_thread().ident

    def reached():
        frame = sys._current_frames().get(main)
        return frame is not None and frame.f_code is function.__code__

    return reached


def interrupted(call, started=None):
    """Whether `call` is ended by a SIGINT that comes while it is under way: once started() is true, by default once it has
    a thread or process of its own. Others may end meanwhile, so they are told apart, not counted."""
    known, over = workers(), threading.Event()

    def watch():
        own = known | {threading.get_native_id()}
        while not (started() if started else workers() - own):
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
