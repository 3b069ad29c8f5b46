#!/usr/bin/env python3
"""Both sides of the benchmarks of reshard.torch: torch_ckpt.py's ranks and commands, and ours beside them.

torch_reshard.py FOLDER {large|small}, with the commands of torch_ckpt.py and

  our_save PATH    as save
  our_same PATH    as same
  our_stall PATH   async_save, staged by fork: from the call until it returns; then waits, not measured
  our_copy PATH    the same, staged by copying
"""

import time

import reshard.torch
import torch.distributed as dist
import torch_ckpt

theirs = torch_ckpt.run


def run(what, path, states, asynchronous):
    if not what.startswith("our_"):
        return theirs(what, path, states, asynchronous)
    dist.barrier()
    start = time.perf_counter()
    if what == "our_save":
        reshard.torch.save(states[0], path)
    elif what == "our_same":
        reshard.torch.load(states[0], path)
    elif what in ("our_stall", "our_copy"):
        saving = reshard.torch.async_save(states[0], path, stage="copy" if what == "our_copy" else "fork")
        taken = time.perf_counter() - start
        saving.result()
        return taken
    else:
        raise ValueError(f"there is no command {what}")
    return time.perf_counter() - start


torch_ckpt.run = run  # in the spawned ranks too, which import this file
torch_ckpt.READ_ONLY |= {"our_same"}

if __name__ == "__main__":
    torch_ckpt.main()
