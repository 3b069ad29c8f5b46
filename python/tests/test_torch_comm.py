# SPDX-License-Identifier: Apache-2.0
"""The comm of torch's ranks."""

import ctypes
import os
import signal
import sys
import unittest

import ranks
from rank_pool import shared
from support import needs_torch


def _barriers(rank, near):
    import torch.distributed as dist

    import reshard.torch

    group = dist.new_group(list(range(4)))
    comm = reshard.torch.comm_of(group, near=near, timeout=60.0)
    assert (comm.rank, comm.size) == (rank, 4), comm
    assert reshard.torch.comm_of(group) is comm
    for _ in range(20):
        comm.barrier()
    half = comm.split([r for r in range(4) if r % 2 == rank % 2])
    assert (half.rank, half.size) == (rank // 2, 2), half
    half.barrier()
    half.close()
    assert comm.split([0] if rank == 0 else []) is None or rank == 0
    comm.barrier()
    comm.close()
    dist.destroy_process_group(group)


def _moved(rank):
    """Bytes that are longer than what one message of the link takes."""
    import torch
    import torch.distributed as dist

    import reshard.torch
    from reshard import _arrays, _core

    group = dist.new_group(list(range(4)))
    comm = reshard.torch.comm_of(group, near=False, timeout=60.0)
    mesh, shape = ((4,), (0, 1, 2, 3)), (8, 1 << 20)
    rows, columns = (_core.Layout.of_mesh(*mesh, ((2, dim, 0),), "int64", shape, rank) for dim in (0, 1))
    whole = torch.arange(8 << 20).reshape(shape)
    out = torch.zeros(8, 1 << 18, dtype=torch.int64)
    plan = _core.plan(rank, rows, columns)
    plan.run(comm._core, _arrays.view(whole[rank * 2 : rank * 2 + 2].contiguous(), False), _arrays.view(out, True), False)
    assert torch.equal(out, whole[:, rank << 18 : (rank + 1) << 18])
    comm.close()
    dist.destroy_process_group(group)


def _killed(rank, near):
    import reshard
    import reshard.torch

    comm = reshard.torch.comm_of(near=near, timeout=60.0)
    comm.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(100):
            comm.barrier()
    except reshard.CommError as e:
        return e.rank, str(e)
    raise AssertionError("nothing was raised")


def _again(rank):
    import torch.distributed as dist

    import reshard.torch

    first = reshard.torch.comm_of()
    first.barrier()
    group = dist.new_group([0, 1])
    if rank < 2:
        comm = reshard.torch.comm_of(group)
        comm.barrier()
        assert comm is not first and comm.size == 2
        dist.destroy_process_group(group)
        del group
        assert comm.closed
    first.barrier()


def _forked(rank):
    import reshard
    import reshard.torch

    comm = reshard.torch.comm_of()
    child = os.fork()
    if child == 0:
        os._exit(0 if comm.closed and not reshard.torch._comm._comms else 1)
    assert os.waitpid(child, 0)[1] == 0
    comm.barrier()


def _interrupted(rank):
    import torch.distributed as dist

    import reshard
    import reshard.torch

    store = dist.distributed_c10d._get_default_store()
    comm = reshard.torch.comm_of(timeout=60.0)
    if rank == 0:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
    else:
        store.wait(["interrupted"])  # until then rank 0 waits for this one
    try:
        comm.barrier()
    except KeyboardInterrupt:
        store.set("interrupted", b"yes")
        return "interrupted"
    except reshard.CommError as e:
        return str(e)
    return "passed"


class _Meeting(ctypes.Structure):
    """rsd_meeting of reshard_plugin.h, with the functions of reshard.torch."""

    _take = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    _put = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    _get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, _take, ctypes.c_void_p, ctypes.c_void_p)
    _dial = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
    )
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("arg", ctypes.c_void_p),
        ("put", _put),
        ("get", _get),
        ("dial", _dial),
        ("hangup", ctypes.c_void_p),
        ("timeout_ms", ctypes.c_int64),
        ("near", ctypes.c_int),
    ]


def _meeting(store, rank, size, links):
    from reshard.torch import _comm, _link

    def put(_, key, data, n, err):
        store.set(key.decode(), ctypes.string_at(data, n))
        return 0

    def get(_, key, limit, take, to, err):
        data = _comm._get(store, key.decode(), limit / 1000)
        take(to, data, len(data))
        return 0

    def dial(_, n, far, fd, err):
        links.append(_link.Link(store, rank, size, [far[i] for i in range(n)], 60.0))
        for i, one in enumerate(links[-1].sockets()):
            fd[i] = one
        return 0

    never = 2  # rsd_choice
    return _Meeting(ctypes.sizeof(_Meeting), None, _Meeting._put(put), _Meeting._get(get), _Meeting._dial(dial), None, 60000, never)


def _suite(rank, size):
    """The C suite of all comms, over gloo, each case with a new comm. Says which failed, and how many there were."""
    import torch.distributed as dist

    suite = ctypes.CDLL(os.environ["RESHARD_COMM_SUITE"])
    suite.comm_suite_name.restype = ctypes.c_char_p
    suite.comm_suite_name.argtypes = [ctypes.c_size_t, ctypes.c_int32]
    suite.comm_suite_meet.argtypes = [
        ctypes.c_size_t, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(_Meeting), ctypes.c_char_p, ctypes.c_size_t
    ]
    failed, count = [], 0
    while (name := suite.comm_suite_name(count, size)) is not None:
        if name:
            links, message = [], ctypes.create_string_buffer(1024)
            store = dist.PrefixStore(f"suite/{count}", dist.distributed_c10d._get_default_store())
            if suite.comm_suite_meet(count, rank, size, _meeting(store, rank, size, links), message, len(message)):
                failed.append(f"{name.decode()}: {message.value.decode()}")
            for link in links:
                link.close()
        count += 1
    return failed, count


@needs_torch
class Comms(unittest.TestCase):
    def test_ranks_of_one_machine_meet(self):
        shared(4).run(_barriers, True)

    def test_ranks_of_several_machines_meet_over_gloo(self):
        shared(4).run(_barriers, False)

    @unittest.skipUnless(os.path.exists(os.environ.get("RESHARD_COMM_SUITE", "")), "needs RESHARD_COMM_SUITE, a build's tests/libcomm_suite.so")
    def test_the_suite_of_all_comms_passes_over_gloo(self):
        for failed, count in ranks.run(3, _suite, 3, timeout=600):
            self.assertEqual(failed, [])
            self.assertGreater(count, 30)

    def test_long_messages_cross_the_link(self):
        shared(4).run(_moved)

    def test_an_interrupted_call_fails_on_all_ranks(self):
        results = ranks.run(3, _interrupted)
        self.assertEqual(results[0], "interrupted")
        for text in results[1:]:
            self.assertIn("rank 0 gave up", text)

    def test_a_killed_rank_is_named(self):
        for near in (True, False):
            with self.subTest(near=near):
                results = ranks.run(3, _killed, near, may_die=(1,))
                for rank in (0, 2):
                    self.assertEqual(results[rank][0], 1)
                    self.assertIn("rank 1 is gone", results[rank][1])

    def test_a_group_has_its_own_comm_that_ends_with_it(self):
        shared(4).run(_again)

    def test_a_forked_child_has_none(self):
        shared(4).run(_forked)

    def test_without_a_process_group_it_says_so(self):
        import reshard
        import reshard.torch

        with self.assertRaisesRegex(reshard.InvalidError, "not initialized"):
            reshard.torch.comm_of()


if __name__ == "__main__":
    sys.exit(unittest.main())
