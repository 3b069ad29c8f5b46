# SPDX-License-Identifier: Apache-2.0
"""Joins ranks of several machines by a gloo group that nothing else uses. The comm writes to and reads from sockets; two
threads per rank carry the bytes between those and gloo, whose receives can't be polled. A piece is sent as its length and
first bytes, in a message of one size, and the rest, if any, in a second one; a length of 0 is the end."""

import ctypes
import datetime
import socket
import threading

import torch
import torch.distributed as dist

_PIECE = 4 << 20  # bytes sent at a time; far below gloo's limits
_HEAD = 8  # bytes of a length
_FIRST = 4096  # bytes of the first message
_FOREVER = datetime.timedelta(days=1000)  # a rank may be silent as long as it likes: the comm's timeout decides
_JOIN = 5.0  # seconds for what is on its way to leave


class Link:
    """The connections to the ranks `far` of a comm; ranks[r] is the global rank of rank r."""

    def __init__(self, ranks, far, timeout):
        limit = datetime.timedelta(seconds=timeout)
        self._group = dist.new_group(list(ranks), timeout=limit, backend="gloo", use_local_synchronization=True)
        places = sorted(ranks)  # as the group numbers them
        self._pipes = [_Pipe(self._group, places.index(ranks[r])) for r in far]

    def sockets(self):
        """Descriptors for the comm, one for each of the far ranks."""
        return [pipe.start() for pipe in self._pipes]

    def close(self):
        """Ends the threads, once the comm has closed its sockets. Where a rank is gone, they are left waiting for it: they
        hold no lock and end with the process."""
        pipes, self._pipes = self._pipes, []
        group, self._group = self._group, None
        ended = [pipe.join() for pipe in pipes]
        if group is not None and all(ended) and group in dist.distributed_c10d._world.pg_map:
            dist.destroy_process_group(group)


class _Pipe:
    def __init__(self, group, peer):
        self._group, self._peer = group, peer
        self._ours, self._theirs = socket.socketpair()
        self._threads = [threading.Thread(target=run, name=f"reshard-{run.__name__}-{peer}", daemon=True) for run in (self._send, self._receive)]

    def start(self):
        for thread in self._threads:
            thread.start()
        return self._theirs.detach()

    def join(self):
        for thread in self._threads:
            thread.join(_JOIN)
        return not any(thread.is_alive() for thread in self._threads)

    def _send(self):
        """From the comm to the other rank."""
        piece, room = _buffer()
        n = 1
        try:
            while n:
                n = self._ours.recv_into(room[_HEAD:])
                room[:_HEAD] = n.to_bytes(_HEAD, "little")
                self._group.send([piece[:_FIRST]], self._peer, 0).wait(_FOREVER)
                if n + _HEAD > _FIRST:
                    self._group.send([piece[_FIRST : n + _HEAD]], self._peer, 0).wait(_FOREVER)
        except (OSError, RuntimeError):
            _shut(self._ours, socket.SHUT_RDWR)

    def _receive(self):
        """From the other rank to the comm."""
        piece, room = _buffer()
        n = 1
        try:
            while n:
                self._group.recv([piece[:_FIRST]], self._peer, 0).wait(_FOREVER)
                n = int.from_bytes(room[:_HEAD], "little")
                if n + _HEAD > _FIRST:
                    self._group.recv([piece[_FIRST : n + _HEAD]], self._peer, 0).wait(_FOREVER)
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
