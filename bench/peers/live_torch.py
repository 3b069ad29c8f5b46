#!/usr/bin/env python3
"""PyTorch's side of the live benchmarks: a float32 matrix of N x N, from rows to columns, on gloo ranks.

live_torch.py RANKS N reads commands from stdin and answers each with one line, the seconds that the slowest rank took:
"run -" for DTensor.redistribute, "ours -" for reshard.torch.redistribute.
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
    while (order := orders.get()) is not None:
        if order == "ours":
            import reshard.torch
        dist.barrier()
        start = time.monotonic()
        columns = reshard.torch.redistribute(rows, mesh, [Shard(1)]) if order == "ours" else rows.redistribute(mesh, [Shard(1)])
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
    for line in sys.stdin:
        for queue in orders:
            queue.put(line.split()[0])
        print(answers.get(), flush=True)
    for queue in orders:
        queue.put(None)
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
