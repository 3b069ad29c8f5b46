# SPDX-License-Identifier: Apache-2.0
"""What is converted into what: (name of the copy, source, what it holds, options of ckpt_copy)."""

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

import layouts
import states
import values

ONE = {s.name: s.full() for s in layouts.ONE_DIM}
TWO = {s.name: s.full() for s in layouts.TWO_DIMS}
ALL_DTYPES = {s.name: s.full() for s in layouts.DTYPES}
SAFE = {k: v for k, v in ALL_DTYPES.items() if v.dtype in values.SAFETENSORS_DTYPES}
FLAT = {
    k: v for k, v in flatten_state_dict(states.training())[0].items() if isinstance(v, torch.Tensor)
}

TO_DCP = [
    ("same_1d", "one_dim", ONE, {"layout": layouts.rules(layouts.ONE_DIM, "4")}),
    ("same_2d", "two_dims", TWO, {"layout": layouts.rules(layouts.TWO_DIMS, "2x2")}),
    ("same_dtypes", "dtypes", ALL_DTYPES, {"layout": layouts.rules(layouts.DTYPES, "4")}),
    ("1d_to_2d", "one_dim", ONE, {"layout": "mesh a=2 b=2; * shard(0)@a shard(0)@b"}),
    ("2d_to_3", "two_dims", TWO, {"layout": "mesh a=3; * shard(0)@a", "slices": True}),
    ("2d_to_hsdp", "two_dims", TWO, {"layout": "mesh a=2 b=3; * shard(-1)@b", "slices": True}),
    ("dtypes_columns", "dtypes", ALL_DTYPES, {"layout": "mesh a=5; * shard(1)@a", "slices": True}),
    (
        "dtypes_strided",
        "dtypes",
        ALL_DTYPES,
        {"layout": "mesh a=3 b=2; * strided(0,2)@a shard(0)@b"},
    ),
    ("boxes_to_rows", "boxes", None, {"layout": "mesh a=3; * shard(0)@a", "slices": True}),
    ("to_zstd", "one_dim", ONE, {"layout": "mesh a=4; * shard(0)@a", "transform": "stream.zstd"}),
    (
        "to_rot13",
        "two_dims",
        TWO,
        {"layout": "mesh a=2; * shard(0)@a", "transform": "stream.rot13"},
    ),
    ("from_zstd", "zstd", ONE, {"slices": True}),
    (
        "zstd_to_zstd",
        "zstd",
        ONE,
        {"layout": "mesh a=2; * replicate", "transform": "stream.zstd", "slices": True},
    ),
    ("own_metadata", "own_metadata", ONE, {"layout": "mesh a=2; * shard(0)@a"}),
    (
        "training",
        "training",
        states.training(),
        {"layout": "mesh a=2 b=2; *exp* shard(0)@a; * shard(0)@b"},
    ),
    ("training_zstd", "single_training", states.training(), {"transform": "stream.zstd"}),
    ("objects", "single_objects", states.objects(), {}),
    ("tensors_in_objects", "single_inside", states.tensors_in_objects(), {}),
    ("from_torch_inside", "inside.pt", states.tensors_in_objects(key=str), {}),
    (
        "scalars",
        "single_scalars",
        states.scalars_and_empty(),
        {"layout": "mesh a=3; * shard(0)@a", "slices": True},
    ),
    ("noncontiguous", "single_noncontiguous", states.noncontiguous(), {"slices": True}),
    ("nothing", "single_nothing", {}, {}),
    (
        "from_torch",
        "training.pt",
        states.training(),
        {"layout": "mesh a=3; * shard(0)@a", "slices": True},
    ),
    ("from_torch_dtypes", "dtypes.pt", states.every_dtype(), {"layout": "mesh a=2; * shard(1)@a"}),
    ("from_torch_odd", "noncontiguous.pt", states.noncontiguous(), {"slices": True}),
    ("from_torch_overlap", "overlapping.pt", states.overlapping(), {"slices": True}),
    ("from_torch_model", "model.pth", states.training()["model"], {"transform": "stream.zstd"}),
    ("from_torch_objects", "objects.pt", states.objects() | {"empty": {}}, {}),
    (
        "from_file",
        "plain.safetensors",
        states.safetensors(),
        {"layout": "mesh a=2; * shard(0)@a", "slices": True},
    ),
    ("from_index", "hf_index", states.safetensors(), {}),
    ("from_parts", "hf_parts", ONE | TWO, {"layout": "mesh a=3; * shard(0)@a"}),
    ("from_parts_dtypes", "hf_parts_dtypes", SAFE, {"slices": True}),
]

TO_FILE = [
    ("one.safetensors", "one_dim", ONE, {"slices": True}),
    ("two.safetensors", "two_dims", TWO, {}),
    ("dtypes.safetensors", "hf_parts_dtypes", SAFE, {"slices": True}),
    ("training.safetensors", "training", FLAT, {}),
    ("from_torch.safetensors", "training.pt", FLAT, {}),
    ("from_file.safetensors", "plain.safetensors", states.safetensors(), {"slices": True}),
]

TO_FOLDER = [
    ("folder", "two_dims", TWO, {}),
    ("split", "one_dim", ONE, {"shard_size": 200}),
    ("split_training", "training", FLAT, {"shard_size": 500, "slices": True}),
]

TO_PARTS = [
    ("parts_rows", "one_dim", ONE, {"layout": "mesh a=4; * shard(0)@a"}),
    (
        "parts_blocks",
        "two_dims",
        TWO,
        {"layout": layouts.rules(layouts.TWO_DIMS, "2x2"), "slices": True},
    ),
    ("parts_dtypes", "hf_parts_dtypes", SAFE, {"layout": "mesh a=3; * shard(1)@a"}),
]

TO_TORCH = [
    ("one.pt", "one_dim", ONE, {"slices": True}),
    ("two.pt", "two_dims", TWO, {}),
    ("dtypes.pt", "dtypes", ALL_DTYPES, {"slices": True}),
    ("scalars.pt", "single_scalars", states.scalars_and_empty(), {}),
    ("training.pt", "training", states.training(), {"slices": True}),
    ("zstd.pt", "single_zstd", states.scalars_and_empty() | states.objects(), {}),
    ("objects.pt", "single_objects", states.objects(), {}),
    ("inside.pt", "single_inside", states.tensors_in_objects(), {}),
    ("inside.bin", "inside.pt", states.tensors_in_objects(), {}),
    ("again.pth", "training.pt", states.training(), {}),
    ("objects.bin", "objects.pt", states.objects() | {"empty": {}}, {}),
    ("from_file.pt", "plain.safetensors", states.safetensors(), {}),
]
