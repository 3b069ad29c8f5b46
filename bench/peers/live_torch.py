#!/usr/bin/env python3
"""PyTorch's side of the live benchmarks: a float32 matrix of N x N, from rows to columns, on gloo ranks.

live_torch.py RANKS N reads commands from stdin and answers each with one line. Command: "run -", the seconds that
DTensor.redistribute took the slowest rank.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


def rank_main(rank, ranks, n, port, orders, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    rows = DTensor.from_local(torch.ones(n // ranks, n), mesh, [Shard(0)], run_check=False)
    while orders.get() is not None:
        dist.barrier()
        start = time.monotonic()
        columns = rows.redistribute(mesh, [Shard(1)])
        taken = torch.tensor(time.monotonic() - start)
        dist.all_reduce(taken, op=dist.ReduceOp.MAX)
        if rank == 0:
            answers.put(f"{taken.item():.6f}")
        del columns
    dist.destroy_process_group()


def main():
    ranks, n = int(sys.argv[1]), int(sys.argv[2])
    context = mp.get_context("spawn")
    orders = [context.Queue() for _ in range(ranks)]
    answers = context.Queue()
    port = 20000 + os.getpid() % 20000
    processes = [context.Process(target=rank_main, args=(r, ranks, n, port, orders[r], answers)) for r in range(ranks)]
    for process in processes:
        process.start()
    for _ in sys.stdin:
        for queue in orders:
            queue.put("run")
        print(answers.get(), flush=True)
    for queue in orders:
        queue.put(None)
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
