# SPDX-License-Identifier: Apache-2.0
"""The comm of torch's ranks."""

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


@needs_torch
class Comms(unittest.TestCase):
    def test_ranks_of_one_machine_meet(self):
        shared(4).run(_barriers, True)

    def test_ranks_of_several_machines_meet_over_gloo(self):
        shared(4).run(_barriers, False)

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
