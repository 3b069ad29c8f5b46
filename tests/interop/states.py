# SPDX-License-Identifier: Apache-2.0
"""States of one process: nesting, objects, tensors that lie in memory in odd ways."""

import collections
import fractions

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict

from values import DTYPES, SAFETENSORS_DTYPES, dtype_name, make


def every_dtype(dtypes=DTYPES):
    return {f"t.{dtype_name(d)}": make(f"t.{dtype_name(d)}", d, (3, 5)) for d in dtypes}


def scalars_and_empty(dtypes=DTYPES):
    state = {f"scalar.{dtype_name(d)}": make(f"scalar.{dtype_name(d)}", d) for d in dtypes}
    state |= {
        "none": make("none", shape=(0,)),
        "no_rows": make("no_rows", torch.int8, (0, 3)),
        "no_columns": make("no_columns", torch.bfloat16, (3, 0, 2)),
        "one": make("one", shape=(1, 1, 1)),
        "six_dims": make("six_dims", torch.int16, (2, 1, 3, 2, 1, 2)),
        "big": make("big", torch.uint8, (300, 701)),
    }
    return state


def safetensors():
    """What a safetensors file can hold; its F4 has no scalars."""
    state = every_dtype(SAFETENSORS_DTYPES) | scalars_and_empty(SAFETENSORS_DTYPES)
    del state["scalar.float4_e2m1fn_x2"]
    return state


def noncontiguous():
    base = make("base", shape=(6, 8))
    return {
        "transposed": make("transposed", shape=(4, 3)).t(),
        "channels_last": make("cl", torch.bfloat16, (2, 3, 4, 5)).contiguous(
            memory_format=torch.channels_last
        ),
        "permuted": make("permuted", torch.int16, (2, 3, 4)).permute(2, 0, 1),
        "sliced": base[1:5, 2:7],
        "stepped": base[::2, 1::3],
        "diagonal": base.diagonal(),
    }


def overlapping():
    """Elements that lie at the same place: a small file that makes big tensors."""
    return {
        "expanded": make("expanded", torch.int32, (3, 1)).expand(3, 4),
        "outer": make("outer", shape=(3,)).expand(5, 3),
        "windows": make("windows", shape=(9,)).unfold(0, 4, 1),
        "many_windows": make("many_windows", shape=(4000,)).as_strided((1500, 1500), (1, 1)),
        "one_for_all": make("one_for_all", torch.int16, (1,)).expand(3000, 1000),
    }


def objects():
    """Everything that is decoded without running anything."""
    return {
        "step": 7,
        "negative": -300,
        "large": 1 << 40,
        "huge": 1 << 70,
        "huge_negative": -(1 << 65),
        "pi": 3.141592653589793,
        "tiny": 5e-324,
        "nan": float("nan"),
        "inf": float("-inf"),
        "yes": True,
        "no": False,
        "none": None,
        "text": 'h\u00e9llo "quoted" \\ \n \U0001f600',
        "long_text": "x" * 1000,
        "bytes": b"\x00\xff\x80abc",
        "tuple": (1, "a", (2.5, None), ()),
        "set": {3, 1, 2},
        "numbers": [1, 2.5, "x", [True, None]],
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda:0"),
        "ordered": [collections.OrderedDict(b=1, a=2)],
        "int_keys": [{1: "a", "b": 2, None: 3}],
        "deep": {"a": {"b": {"c": [1, {"d": (1, [2])}]}}},
        "empty_list": [],
        "many": list(range(3000)),
        "same": [["twice"]] * 2,
    }


def tensors_in_objects(key=lambda k: k):
    """Tensors that are part of an object: a dict with keys that are tuples, a tuple. torch.save files of the first are taken
    apart, and DCP has its keys as text then: key=str."""
    one, two = make("one_in", shape=(2, 3)), make("two_in", torch.int16, (4,))
    return {
        "weight": make("weight", shape=(3,)),
        "by_pair": {key((0, 1)): one, key((1, 0)): [two, two]},
        "pair": (make("pair", shape=(2,)), 1),
        "bias": make("bias", shape=(2,)),
    }


def unknown_objects():
    """Classes that we name but don't run."""
    return {"fraction": fractions.Fraction(1, 3), "inside": [1, fractions.Fraction(2, 3)]}


def training(name="run"):
    """As a trainer has it: a model, its optimizer, and the rest."""
    shapes = {"layers.0.weight": (8, 6), "layers.0.bias": (8,), "layers.1.weight": (5, 8)}
    model = collections.OrderedDict((k, make(f"{name}.{k}", shape=s)) for k, s in shapes.items())
    moments = {
        i: {
            "step": torch.tensor(float(i)),
            "exp_avg": make(f"{name}.m{i}", torch.bfloat16, s),
            "exp_avg_sq": make(f"{name}.v{i}", shape=s),
        }
        for i, s in enumerate(shapes.values())
    }
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "fused": None, "params": [0, 1, 2]}]
    return {
        "model": model,
        "optim": {"state": moments, "param_groups": groups},
        "buffers": [
            make(f"{name}.b0", torch.int64, (3,)),
            {"ema": make(f"{name}.b1", shape=(2, 2))},
        ],
        "step": 1000,
        "best": 0.125,
        "tag": "run",
    }


def shared_storages():
    """For torch.save: views of one storage, parameters, conjugates."""
    base = make("shared", shape=(4, 10))
    weight = torch.nn.Parameter(make("param", shape=(3, 3)).nan_to_num())
    return {
        "base": base,
        "rows": base[1:3],
        "columns": base[:, 2:5],
        "transposed": base.t(),
        "tied": weight,
        "tied_again": weight,
        "frozen": torch.nn.Parameter(make("frozen", shape=(2,)), requires_grad=False),
        "conjugate": make("conjugate", torch.complex64, (3, 2)).conj(),
        "negative": make("negative", torch.complex64, (3, 2)).conj().imag,
        "list": [base[0], (base[1], [base[2, 3]], 5)],
        "scalar": base[3, 9],
    }


def as_dcp_keeps_it(state):
    """torch's own flattening there and back: keys of dicts become text, empty dicts vanish."""
    return unflatten_state_dict(*flatten_state_dict(state))


def flatten_as_we_do(state, path=()):
    """Names in a torch.save file: dicts are taken apart, and what opens() says."""
    if has_names(state):
        pairs = [(str(k), v) for k, v in state.items()]
    elif opens(state):
        pairs = [(str(i), v) for i, v in enumerate(state)]
    else:
        return {".".join(path): state}
    return {k: v for key, value in pairs for k, v in flatten_as_we_do(value, path + (key,)).items()}


def nested_as_we_do(state, key=str):
    """A copy of a torch.save file: where it was taken apart, tuples are lists and keys text.
    With key=lambda k: k, numbers stay numbers, as they do in another such file."""
    if has_names(state):
        return {key(k): nested_as_we_do(v, key) for k, v in state.items()}
    if opens(state):
        return [nested_as_we_do(v, key) for v in state]
    return state


def opens(value):
    """Lists are taken apart for tensors and dicts in them, tuples for tensors."""
    if isinstance(value, list) and has_dict(value):
        return True
    return isinstance(value, (list, tuple)) and has_tensor(value)


def has_names(value):
    """Other keys than text and numbers are names only where tensors would hide otherwise."""
    return isinstance(value, dict) and value and (all(type(k) in (str, int) for k in value) or has_tensor(value))


def has_dict(value):
    return has_names(value) or isinstance(value, list) and any(map(has_dict, value))


def has_tensor(value):
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, dict):
        return any(map(has_tensor, value.values()))
    return isinstance(value, (list, tuple)) and any(map(has_tensor, value))
