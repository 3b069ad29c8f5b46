# SPDX-License-Identifier: Apache-2.0
"""Joins ranks of several machines by a gloo group that nothing else uses. The comm writes to and reads from sockets; two
threads per rank carry the bytes between those and gloo, whose receives can't be polled. A piece is sent as its length and
first bytes, in a message of one size, and the rest, if any, in a second one; a length of 0 is the end."""

import ctypes
import datetime
import socket
import threading
import time

import torch
import torch.distributed as dist

_PIECE = 4 << 20  # bytes sent at a time; far below gloo's limits
_HEAD = 8  # bytes of a length
_FIRST = 4096  # bytes of the first message
_FOREVER = datetime.timedelta(days=1000)  # a rank may be silent as long as it likes: the comm's timeout decides
_JOIN = 5.0  # seconds for what is on its way to leave
_WAKE = 60.0  # seconds for threads to notice that the group is broken: they do at once, unless the machine is overloaded
_NOBODY = 1  # a tag that nobody sends with


class Link:
    """The connections of a comm's rank to the ranks `far`. The store has keys of this comm alone: dist.new_group would take
    the name, and with it the addresses, of an earlier group of the same ranks."""

    def __init__(self, store, rank, size, far, timeout):
        limit = datetime.timedelta(seconds=timeout)
        self._group = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, limit)
        self._pipes = [_Pipe(self._group, peer) for peer in far]

    def sockets(self):
        """Descriptors for the comm, one for each of the far ranks."""
        return [pipe.start() for pipe in self._pipes]

    def close(self):
        """Ends the threads, once the comm has closed its sockets. Those that wait for a rank that is gone are woken by
        breaking the group: a thread that came back from gloo while Python ends would end the process with an error."""
        pipes, self._pipes = self._pipes, []
        group, self._group = self._group, None
        if pipes and not _joined(pipes, _JOIN):
            try:
                group.recv([torch.zeros(1)], pipes[0].peer, _NOBODY).wait(datetime.timedelta(milliseconds=1))
            except RuntimeError:  # a timeout, which is what breaks it
                pass
            _joined(pipes, _WAKE)


def _joined(pipes, seconds):
    """Whether all threads have ended by then."""
    end = time.monotonic() + seconds
    return all([pipe.join(end) for pipe in pipes])


class _Pipe:
    def __init__(self, group, peer):
        self._group, self.peer = group, peer
        self._ours, self._theirs = socket.socketpair()
        self._threads = [threading.Thread(target=run, name=f"reshard-{run.__name__}-{peer}", daemon=True) for run in (self._send, self._receive)]

    def start(self):
        for thread in self._threads:
            thread.start()
        return self._theirs.detach()

    def join(self, end):
        """False if a thread still runs at that time."""
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _send(self):
        """From the comm to the other rank."""
        piece, room = _buffer()
        n = 1
        try:
            while n:
                n = self._ours.recv_into(room[_HEAD:])
                room[:_HEAD] = n.to_bytes(_HEAD, "little")
                self._group.send([piece[:_FIRST]], self.peer, 0).wait(_FOREVER)
                if n + _HEAD > _FIRST:
                    self._group.send([piece[_FIRST : n + _HEAD]], self.peer, 0).wait(_FOREVER)
        except (OSError, RuntimeError):
            _shut(self._ours, socket.SHUT_RDWR)

    def _receive(self):
        """From the other rank to the comm."""
        piece, room = _buffer()
        n = 1
        try:
            while n:
                self._group.recv([piece[:_FIRST]], self.peer, 0).wait(_FOREVER)
                n = int.from_bytes(room[:_HEAD], "little")
                if n + _HEAD > _FIRST:
                    self._group.recv([piece[_FIRST : n + _HEAD]], self.peer, 0).wait(_FOREVER)
                self._deliver(room[_HEAD : n + _HEAD])
        except RuntimeError:
            pass
        _shut(self._ours, socket.SHUT_WR)

    def _deliver(self, data):
        """What the comm does not want any more is dropped: the other rank goes on until its end."""
        try:
            self._ours.sendall(data)
        except OSError:
            pass


def _buffer():
    """Memory for one piece, as torch and as Python see it."""
    piece = torch.zeros(_HEAD + _PIECE, dtype=torch.uint8)
    return piece, memoryview((ctypes.c_ubyte * (_HEAD + _PIECE)).from_address(piece.data_ptr())).cast("B")


def _shut(sock, how):
    try:
        sock.shutdown(how)
    except OSError:
        pass
