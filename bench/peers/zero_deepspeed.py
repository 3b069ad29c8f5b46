#!/usr/bin/env python3
"""DeepSpeed's side of zero.hf: `make PATH` writes what eight ranks of ZeRO-3 with Adam save, 4.1 GiB (plain torch.save, no training);
`convert PATH` makes one Hugging Face folder of SOURCE with its zero_to_fp32, lazily and with safe serialization.

zero_deepspeed.py SOURCE answers each line with the seconds that it took, or "error: ...".
"""

import contextlib
import os
import sys
import time

import torch

RANKS, LAYERS, N = 8, 22, 4096


def make(path):
    shapes = {f"model.layers.{i}.weight": torch.Size((N, N)) for i in range(LAYERS)}
    shapes |= {f"model.layers.{i}.bias": torch.Size((N + 1,)) for i in range(LAYERS)}
    flat = sum((s.numel() + RANKS - 1) // RANKS for s in shapes.values())
    folder = os.path.join(path, "global_step1")
    os.makedirs(folder)
    common = {"buffer_names": [], "frozen_param_shapes": None, "frozen_param_fragments": None, "shared_params": {}}
    for r in range(RANKS):
        torch.manual_seed(r)
        moments = {"step": torch.tensor(1.0), "exp_avg": torch.rand(flat), "exp_avg_sq": torch.rand(flat)}
        optim = {"zero_stage": 3, "partition_count": RANKS, "fp32_flat_groups": [torch.rand(flat)]}
        optim["optimizer_state_dict"] = {"state": {0: moments}, "param_groups": [{"lr": 0.1, "params": [0]}]}
        name = os.path.join(folder, f"zero_pp_rank_{r}_mp_rank_00_")
        torch.save({"optimizer_state_dict": optim, "ds_version": "0.19.8"}, name + "optim_states.pt")
        torch.save({"module": {}, "param_shapes": [shapes], "ds_version": "0.19.8"} | common, name + "model_states.pt")
    with open(os.path.join(path, "latest"), "w") as f:  # last: it says that all is there
        f.write("global_step1")


def convert(path):
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict

    start = time.monotonic()
    convert_zero_checkpoint_to_fp32_state_dict(sys.argv[1], path, max_shard_size=None, safe_serialization=True)
    return time.monotonic() - start


def main():
    for line in sys.stdin:
        command, path = line.rstrip("\n").split(" ", 1)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                seconds = convert(path) if command == "convert" else make(path) or 0.0
            print(seconds, flush=True)
        except Exception as e:  # the harness prints it
            print("error:", " ".join(str(e).split()), flush=True)


main()
