#!/usr/bin/env python3
"""PyTorch's side of the checkpoint benchmarks: four gloo ranks that save and load one model.

torch_ckpt.py FOLDER {large|small} reads commands from stdin and answers each with one line, the seconds that the
slowest rank took, or "error: ...". Commands:

  make PATH      save by rows, shard(0); not measured
  save PATH      the same, measured; what is there is removed first, not measured
  same PATH      load into shard(0)
  reshard PATH   load into shard(1)
  stall PATH     async_save as it comes: from the call until it returns; then waits, not measured
  stage PATH     async_save with the staging in a thread: from the call until it is staged
  package -      fails if reshard.torch can't be imported
  writer.save PATH, reader.same PATH, reader.reshard PATH
                 the same with the storage classes of reshard.torch
"""

import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

RANKS = 4
READ_ONLY = {"same", "reshard", "package"}
MODELS = {"large": (16, (8192, 8192)), "small": (20000, (64, 32))}  # bfloat16: 2 GiB, 20,000 times 4 KiB


def model(mesh, name, dim):
    count, shape = MODELS[name]
    local = list(shape)
    local[dim] //= RANKS
    out = {}
    for i in range(count):
        part = torch.full(local, float(i % 64), dtype=torch.bfloat16)
        out[f"model.t{i}"] = DTensor.from_local(part, mesh, [Shard(dim)], run_check=False)
    return out


def run(what, path, states, asynchronous):
    by, _, work = what.rpartition(".")
    storage = None
    if by or what == "package":
        import reshard.torch

        storage = {"writer": reshard.torch.StorageWriter, "reader": reshard.torch.StorageReader}.get(by)
    dist.barrier()
    start = time.perf_counter()
    if what == "package":
        pass
    elif work in ("make", "save"):
        dcp.save(states[0], checkpoint_id=path, storage_writer=storage and storage(path))
    elif work in ("same", "reshard"):
        dcp.load(states[work == "reshard"], checkpoint_id=path, storage_reader=storage and storage(path))
    elif what == "stall":
        future = dcp.async_save(states[0], checkpoint_id=path, process_group=asynchronous)
        taken = time.perf_counter() - start
        future.result()
        return taken
    elif what == "stage":
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        stager = run.stager = getattr(run, "stager", None) or DefaultStager(
            StagingOptions(use_pinned_memory=False, use_shared_memory=True, use_async_staging=True,
                           use_non_blocking_copy=False))
        answer = dcp.async_save(states[0], checkpoint_id=path, process_group=asynchronous, async_stager=stager)
        answer.staging_completion.result()
        taken = time.perf_counter() - start
        answer.upload_completion.result()
        return taken
    else:
        raise ValueError(f"there is no command {what}")
    return time.perf_counter() - start


def rank(r, folder, name, orders, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", RANK=str(r), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/.peer-{os.getppid()}", rank=r, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    asynchronous = dist.new_group(backend="gloo")
    states = [model(mesh, name, 0), None]
    while True:
        order = orders[r].get()
        if order is None:
            break
        try:
            if order[0].endswith("reshard") and states[1] is None:
                states[1] = model(mesh, name, 1)
            taken = torch.tensor(run(*order, states, asynchronous))
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            if r == 0:
                answers.put(f"{taken.item():.6f}")
        except Exception as problem:  # the bench shows it
            answers.put(f"error: {type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}")
    dist.destroy_process_group()


def main():
    folder, name = sys.argv[1], sys.argv[2]
    context = mp.get_context("spawn")
    orders = [context.Queue() for _ in range(RANKS)]
    answers = context.Queue()
    ranks = [context.Process(target=rank, args=(r, folder, name, orders, answers)) for r in range(RANKS)]
    for process in ranks:
        process.start()
    for line in sys.stdin:
        what, path = line.split()
        if what.rpartition(".")[2] not in READ_ONLY:
            shutil.rmtree(path, ignore_errors=True)
            os.sync()  # nor is what the disk has to do for that
        for queue in orders:
            queue.put((what, path))
        print(answers.get(), flush=True)
    for queue in orders:
        queue.put(None)
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main()
