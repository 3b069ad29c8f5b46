# SPDX-License-Identifier: Apache-2.0
# One state with objects of every awkward kind, as torch.save and DCP write it. Needs PyTorch.
#
#     python tests/data/seams/make.py
import os
import types
import warnings

import torch
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore")
os.chdir(os.path.dirname(os.path.abspath(__file__)))


def state(n, first):
    return {
        "w": torch.arange(4, dtype=torch.float32),
        "thing": types.SimpleNamespace(w=torch.arange(8, dtype=torch.int16), n=n, names={"a": [1, 2]}),
        "pairs": {"of": {(0, 1): first + torch.arange(3, dtype=torch.int32), (2, 3): "seven"}},
        "both": (torch.arange(5, dtype=torch.int64), {"rate": 0.5, "text": "x"}),
        "step": 7,
    }


torch.save(state(3, 0), "objects.pt")
torch.save(state(4, 1), "others.pt")  # differs where only looking inside tells
less = state(3, 0)
del less["pairs"]  # DCP flattens keys to text, which would be another state
dcp.save(less, checkpoint_id="objects_dcp")
