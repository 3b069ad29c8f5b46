# SPDX-License-Identifier: Apache-2.0
"""Tensors with known bytes, and what it means that two things are the same."""

import copyreg
import enum
import json
import math
import zlib

import torch

# Older versions of torch lack the last ones.
DTYPES = [
    getattr(torch, name)
    for name in (
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex32",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    )
    if hasattr(torch, name)
]
# What safetensors has a name for.
SAFETENSORS_DTYPES = [d for d in DTYPES if d not in (torch.complex32, torch.complex128)]


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def make(name, dtype=torch.float32, shape=()):
    """Every bit pattern, NaNs with payloads too; the same name gives the same bytes."""
    count = math.prod(shape) * dtype.itemsize
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    raw = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
    if dtype == torch.bool:
        raw &= 1
    return raw.view(dtype).reshape(shape)


def zeros(dtype, shape):
    """torch.zeros, also for dtypes that it does not know."""
    return (
        torch.zeros(math.prod(shape) * dtype.itemsize, dtype=torch.uint8).view(dtype).reshape(shape)
    )


def raw_bytes(tensor):
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def tensor_problem(got, want):
    """None if dtype, shape and every bit are the same."""
    if not isinstance(got, torch.Tensor):
        return f"is a {type(got).__name__}, not a tensor"
    if got.dtype != want.dtype:
        return f"is {got.dtype}, not {want.dtype}"
    if got.shape != want.shape:
        return f"has shape {tuple(got.shape)}, not {tuple(want.shape)}"
    if raw_bytes(got) != raw_bytes(want):
        return "has other bytes"
    return None


def problem(got, want, where="state"):
    """The first difference between two nested states; None if there is none."""
    if isinstance(want, torch.Tensor):
        wrong = tensor_problem(got, want)
        return f"{where} {wrong}" if wrong else None
    if isinstance(want, dict):
        if not isinstance(got, dict):
            return f"{where} is a {type(got).__name__}, not a dict"
        if set(got) != set(want):
            return f"{where} has keys {sorted(map(repr, got))}, not {sorted(map(repr, want))}"
        pairs = [(f"{where}[{k!r}]", got[k], want[k]) for k in want]
    elif isinstance(want, (list, tuple)):
        if isinstance(got, list) != isinstance(want, list) or not isinstance(got, (list, tuple)):
            return f"{where} is a {type(got).__name__}, not a {type(want).__name__}"
        if len(got) != len(want):
            return f"{where} has {len(got)} items, not {len(want)}"
        pairs = [(f"{where}[{i}]", got[i], want[i]) for i in range(len(want))]
    else:
        same = type(got) is type(want) and (got == want or repr(got) == repr(want))
        return None if same else f"{where} is {got!r}, not {want!r}"
    for place, a, b in pairs:
        wrong = problem(a, b, place)
        if wrong:
            return wrong
    return None


def to_json(value):
    """What rsd_value_json makes of a Python object."""
    if (value is None or isinstance(value, (bool, int, str))) and not isinstance(value, enum.Enum):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": bytes(value).hex()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return {"$set": sorted(map(to_json, value))}
    if isinstance(value, dict):
        if all(isinstance(k, str) for k in value):
            return {k: to_json(v) for k, v in value.items()}
        return {"$dict": [[to_json(k), to_json(v)] for k, v in value.items()]}
    if isinstance(value, torch.dtype):
        return {"$dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    if isinstance(value, torch.Tensor):
        return {"$tensor": {"dtype": dtype_name(value.dtype), "shape": list(value.shape)}}
    return {"$opaque": f"{type(value).__module__}.{type(value).__qualname__}", **parts(value)}


def parts(value):
    """What the pickle of an object says plainly: its fields, or the arguments of its class."""
    made = value.__reduce_ex__(2)
    call, args = made[0], made[1]
    state, items = (*made[2:], None, None)[0], (*made[2:], None, None)[1:]
    if call is copyreg.__newobj__:
        args = args[1:]
    if args or any(x is not None for x in items):
        return {} if state is not None else {"args": to_json(args)}
    return {"fields": to_json(state)} if isinstance(state, dict) and all(isinstance(k, str) for k in state) else {}


def sort_sets(value):
    """Sets have no order; JSON lists have."""
    if isinstance(value, list):
        return [sort_sets(v) for v in value]
    if isinstance(value, dict):
        if set(value) == {"$set"}:
            return {"$set": sorted(value["$set"])}
        return {k: sort_sets(v) for k, v in value.items()}
    return value


def listing(flat):
    """One line for each tensor (all bytes in hex) and each object, sorted: what test_golden.c prints."""
    lines = []
    for name, value in flat.items():
        if isinstance(value, torch.Tensor):
            fields = {
                "name": name,
                "dtype": dtype_name(value.dtype),
                "shape": list(value.shape),
                "bytes": raw_bytes(value).hex(),
            }
        else:
            fields = {"name": name, "value": to_json(value)}
        lines.append(json.dumps(fields, ensure_ascii=False))
    return "".join(text + "\n" for text in sorted(lines, key=str.encode))
