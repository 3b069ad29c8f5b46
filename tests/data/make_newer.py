# SPDX-License-Identifier: Apache-2.0
"""Makes newer/: DCP folders whose metadata say more than the reader looks at.

torch_2_15 was made by torch 2.15.0 as it is, megatron by the same with the attributes that Megatron-Core adds.
tests/seams/test_seam_newer_metadata.sh reads them.
"""
import pathlib
import pickle
import shutil

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import create_default_local_save_plan

HERE = pathlib.Path(__file__).parent / "newer"
STATE = {"model": {"w": torch.arange(12.0).reshape(4, 3), "s": torch.tensor(1.5)}, "step": 7}


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    for name in ["torch_2_15", "megatron"]:
        dcp.save(STATE, checkpoint_id=HERE / name, no_dist=True)
    file = HERE / "megatron" / ".metadata"
    meta = pickle.loads(file.read_bytes())
    meta.all_local_plans = [create_default_local_save_plan({"model.w": STATE["model"]["w"], "step": 7}, True)]
    meta.mcore_data = {"model.w": {"nd_reformulated_orig_global_shape": (4, 3)}}
    file.write_bytes(pickle.dumps(meta))


if __name__ == "__main__":
    main()
