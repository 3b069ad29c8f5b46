# SPDX-License-Identifier: Apache-2.0
"""The comm of torch's ranks."""

import ctypes
import os
import shutil
import signal
import sys
import tempfile
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


def _interrupted(rank, what, folder):
    """Rank 1 is interrupted in a call that waits for the others, which come later."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    import reshard
    import reshard.torch
    from interrupts import interrupted

    store = dist.distributed_c10d._get_default_store()
    mesh = init_device_mesh("cpu", (3,))
    state = {"w": DTensor.from_local(torch.ones(2, 3), mesh, [Shard(0)])}
    comm, series = reshard.torch.comm_of(timeout=60.0), reshard.torch.Series(folder)
    reshard.torch.save(state, folder + "/old")
    module = reshard.torch.input_reshard(torch.nn.Linear(3, 3), mesh, 0)
    kept = module(torch.ones(6, 3)) if what == "backward" else None
    calls = {
        "barrier": comm.barrier,
        "save": lambda: reshard.torch.save(state, folder + "/new"),
        "async_save": lambda: reshard.torch.async_save(state, folder + "/new").result(),
        "load": lambda: reshard.torch.load(state, folder + "/old"),
        "latest": series.latest,
        "prune": series.prune,
        "redistribute": lambda: reshard.torch.redistribute(state["w"], mesh, [Replicate()]),
        "forward": lambda: module(torch.ones(6, 3)),
        "backward": lambda: kept.sum().backward(),
    }
    if rank != 1:
        store.wait(["interrupted"])
    try:
        if rank == 1:
            return "interrupted" if interrupted(calls[what]) else "passed"
        calls[what]()
    except reshard.CommError as e:
        return str(e)
    finally:
        store.set("interrupted", b"yes")
    return "passed"


def _nobody_comes(rank):
    """Rank 0 is interrupted while it waits for the others to make a comm."""
    import torch.distributed as dist

    import reshard.torch
    from interrupts import interrupted
    from reshard.torch import _comm

    store = dist.distributed_c10d._get_default_store()
    if rank > 0:
        store.wait(["interrupted"])
        return True
    waits, get = [], _comm._get
    _comm._get = lambda *args: waits.append(args) or get(*args)
    result = interrupted(reshard.torch.comm_of, lambda: waits)
    store.set("interrupted", b"yes")
    return result


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


def _suite(rank, size, ucx):
    """The C suite of all comms, over gloo or UCX, each case with a new comm. Says which failed, and how many there were."""
    import torch.distributed as dist

    suite = ctypes.CDLL(os.environ["RESHARD_COMM_SUITE"])
    suite.comm_suite_name.restype = ctypes.c_char_p
    suite.comm_suite_name.argtypes = [ctypes.c_size_t, ctypes.c_int32]
    suite.comm_suite_meet.argtypes = [
        ctypes.c_size_t, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(_Meeting), ctypes.c_bool, ctypes.c_char_p, ctypes.c_size_t
    ]
    failed, count = [], 0
    while (name := suite.comm_suite_name(count, size)) is not None:
        if name:
            links, message = [], ctypes.create_string_buffer(1024)
            store = dist.PrefixStore(f"suite/{count}", dist.distributed_c10d._get_default_store())
            if suite.comm_suite_meet(count, rank, size, _meeting(store, rank, size, links), ucx, message, len(message)):
                failed.append(f"{name.decode()}: {message.value.decode()}")
            for link in links:
                link.close()
        count += 1
    return failed, count


def _over_ucx(rank):
    """A save and a load of ranks that take each other for far away; says whether a gloo link was made."""
    import tempfile

    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    import reshard.torch

    comm = reshard.torch.comm_of(near=False, timeout=60.0)
    mesh = init_device_mesh("cpu", (4,))
    whole = torch.arange(8 * 64 * 12.0).reshape(8 * 64, 12)
    folder = [tempfile.mkdtemp(prefix="reshard-") if rank == 0 else None]
    dist.broadcast_object_list(folder)
    state = {"w": DTensor.from_local(whole.chunk(4)[rank], mesh, [Shard(0)]), "step": 7}
    reshard.torch.save(state, folder[0] + "/one")
    reshard.torch.async_save(state, folder[0] + "/two").result()
    for name in ("one", "two"):
        state = {"w": DTensor.from_local(torch.zeros(8 * 64, 3), mesh, [Shard(1)]), "step": 0}
        reshard.torch.load(state, f"{folder[0]}/{name}")
        assert torch.equal(state["w"].to_local(), whole.chunk(4, 1)[rank]) and state["step"] == 7
    comm.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])
    return comm._link is not None


def _over_gloo(rank):
    import reshard.torch

    comm = reshard.torch.comm_of(near=False, timeout=60.0)
    comm.barrier()
    return comm._link is not None


def _wants_ucx(rank, without):
    """What a comm says if rank `without` must not use UCX."""
    import reshard
    import reshard.torch

    os.environ["RESHARD_COMM"] = "gloo" if rank == without else "ucx"
    try:
        reshard.torch.comm_of(near=False, timeout=60.0)
    except reshard.Error as e:
        return str(e)
    return ""


def _silent(rank):
    """Rank 1 does not come; the others say so after their timeout."""
    import torch.distributed as dist

    import reshard
    import reshard.torch

    store = dist.distributed_c10d._get_default_store()
    comm = reshard.torch.comm_of(near=False, timeout=60.0)
    comm.barrier()
    comm.set_timeout(5.0)  # more than a loaded machine keeps the other rank waiting
    if rank == 1:
        store.wait(["said 0", "said 2"])
        return None
    try:
        comm.barrier()
    except reshard.Error as e:
        store.set(f"said {rank}", b"")
        return e.rank, str(e)
    raise AssertionError("nothing was raised")


_SUITE = os.environ.get("RESHARD_COMM_SUITE", "")
_BUILD = os.path.dirname(os.path.dirname(_SUITE))
_UCX = {"RESHARD_COMM": "ucx", "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (_BUILD, os.environ.get("LD_LIBRARY_PATH"))))}
_needs_suite = unittest.skipUnless(os.path.exists(_SUITE), "needs RESHARD_COMM_SUITE, a build's tests/libcomm_suite.so")
_needs_ucx = unittest.skipUnless(_BUILD and os.path.exists(_BUILD + "/libreshard_ucx.so.1"), "needs RESHARD_COMM_SUITE of a build with UCX")


@needs_torch
class Comms(unittest.TestCase):
    def test_ranks_of_one_machine_meet(self):
        shared(4).run(_barriers, True)

    def test_ranks_of_several_machines_meet_over_gloo(self):
        shared(4).run(_barriers, False)

    @_needs_suite
    def test_the_suite_of_all_comms_passes_over_gloo(self):
        for failed, count in ranks.run(3, _suite, 3, False, timeout=600):
            self.assertEqual(failed, [])
            self.assertGreater(count, 30)

    @_needs_ucx
    def test_the_suite_of_all_comms_passes_over_ucx(self):
        for failed, count in ranks.run(3, _suite, 3, True, timeout=600, env=_UCX):
            self.assertEqual(failed, [])
            self.assertGreater(count, 30)

    @_needs_ucx
    def test_ranks_of_several_machines_save_and_load_over_ucx(self):
        for choice in ("ucx", "auto"):
            with self.subTest(choice=choice):
                self.assertEqual(ranks.run(4, _over_ucx, env={**_UCX, "RESHARD_COMM": choice}), [False] * 4)

    @_needs_ucx
    def test_ranks_of_several_machines_meet_over_ucx(self):
        ranks.run(4, _barriers, False, env=_UCX)

    @_needs_ucx
    def test_a_rank_killed_or_silent_is_named_over_ucx(self):
        results = ranks.run(3, _killed, False, may_die=(1,), env=_UCX)
        for rank in (0, 2):
            self.assertEqual(results[rank][0], 1)
            self.assertIn("rank 1 is gone", results[rank][1])
        results = ranks.run(3, _silent, env=_UCX)
        for rank in (0, 2):
            self.assertEqual(results[rank][0], 1)
            self.assertIn("rank 1 did not come", results[rank][1])

    @_needs_ucx
    def test_all_ranks_or_none_use_ucx(self):
        self.assertEqual(ranks.run(2, _over_gloo, env={**_UCX, "RESHARD_COMM": "gloo"}), [True, True])
        for text in ranks.run(3, _wants_ucx, 1, env=_UCX):
            self.assertIn("rank 1: RESHARD_COMM=gloo", text)

    def test_long_messages_cross_the_link(self):
        shared(4).run(_moved)

    def test_an_interrupted_call_fails_on_all_ranks(self):
        for what in ("barrier", "save", "async_save", "load", "latest", "prune", "redistribute", "forward", "backward"):
            with self.subTest(what=what), tempfile.TemporaryDirectory(prefix="reshard-") as folder:
                results = ranks.run(3, _interrupted, what, folder)
                self.assertEqual(results[1], "interrupted")
                for rank in (0, 2):
                    self.assertIn("rank 1 gave up", results[rank])
                self.assertEqual(os.listdir(folder), ["old"])

    def test_a_rank_that_waits_for_others_is_interrupted(self):
        self.assertEqual(ranks.run(2, _nobody_comes), [True, True])

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
