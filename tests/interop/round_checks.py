# SPDX-License-Identifier: Apache-2.0
"""What torch wrote goes through `reshard convert` into another format and back; torch loads it again:
every bit of every tensor is what it was."""

import torch

import copy_cases
import copy_checks
import states
from tool import ToolError

NO_COMPLEX = ["--exclude", "*complex32", "--exclude", "*complex128"]  # safetensors lack them

# (name, source, its tensors, options on the way there, options on the way back)
THROUGH_SAFETENSORS = [
    ("rows", "one_dim", copy_cases.ONE, [], []),
    ("blocks", "two_dims", copy_cases.TWO, [], ["--layout", "mesh a=3; * shard(0)@a"]),
    ("dtypes", "dtypes", copy_cases.SAFE, NO_COMPLEX, ["--layout", "mesh a=2; * shard(1)@a"]),
    ("files", "one_dim", copy_cases.ONE, ["--shard-size", "200"], ["--compress", "zstd"]),
    ("parts", "two_dims", copy_cases.TWO, ["--layout", "mesh a=3; * shard(0)@a"], []),
    ("from_zstd", "zstd", copy_cases.ONE, [], []),
    ("trainer", "training", copy_cases.FLAT, [], []),
]

# (name, source, what it holds, options on the way there)
THROUGH_DCP = [
    ("trainer", "training.pt", states.training(), ["--layout", "mesh a=3; * shard(0)@a"]),
    ("dtypes", "dtypes.pt", states.every_dtype(), []),
    ("odd", "noncontiguous.pt", states.noncontiguous(), ["--compress", "zstd"]),
    ("objects", "objects.pt", states.objects(), []),  # and an empty dict, which DCP can't have
    ("inside", "inside.pt", states.tensors_in_objects(key=str), []),
]


def round_trip(reshard, source, between, back, there, home):
    reshard.convert(source, between, *there)
    reshard.convert(between, back, *home)


def loads_into_zeros(path, want):
    """dcp.load of the tensors that torch itself can load."""
    known = {k: v for k, v in want.items() if copy_checks.can_copy(v.dtype)}
    return copy_checks.template_problem(path, known)


def through_safetensors(report, reshard, folder, made):
    for name, source, want, there, home in THROUGH_SAFETENSORS:
        label = f"{source} -> safetensors -> DCP {name}"
        one_file = "--shard-size" not in there and "--layout" not in there
        between = made / (f"{name}.safetensors" if one_file else f"{name}_files")
        there = there if one_file else ["--to", "safetensors", *there]
        try:
            round_trip(reshard, folder / source, between, made / name, there, home)
        except ToolError as e:
            report.check(f"{label}: can be converted", str(e))
            continue
        nested = states.as_dcp_keeps_it(want)
        report.run(f"{label}: torch reads it", copy_checks.dcp_problem, made / name, nested, want)
        report.run(f"{label}: dcp.load is bit-equal", loads_into_zeros, made / name, want)


def through_dcp(report, reshard, folder, made):
    for name, source, want, there in THROUGH_DCP:
        label = f"{source} -> DCP -> torch.save {name}"
        back = made / f"{name}.pt"
        try:
            round_trip(reshard, folder / source, made / f"{name}_dcp", back, there, [])
        except ToolError as e:
            report.check(f"{label}: can be converted", str(e))
            continue
        wanted = states.nested_as_we_do(want)
        report.run(f"{label}: torch.load is bit-equal", copy_checks.torch_problem, back, wanted)
        report.run(f"{label}: and loads on the way", loads_between, made / f"{name}_dcp", want)


def loads_between(path, want):
    flat = states.flatten_as_we_do(want)
    return loads_into_zeros(path, {k: v for k, v in flat.items() if isinstance(v, torch.Tensor)})


def rounds(report, reshard, folder):
    made = folder / "rounds"
    made.mkdir(exist_ok=True)
    through_safetensors(report, reshard, folder, made)
    through_dcp(report, reshard, folder, made)
