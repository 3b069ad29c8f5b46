# SPDX-License-Identifier: Apache-2.0
"""Broken folders of nanotron: one safetensors file for each parameter, or each part of it."""

import json
import struct

FULL = "None,None,None"


def file(shape, data, slices=None, whole=None, name="data"):
    header = {"__metadata__": {}}
    if slices is not None:
        header["__metadata__"] = {"version": "1.5", "local_global_slices_pairs": slices}
    if whole is not None:
        header["__metadata__"]["unsharded_shape"] = whole
    header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [0, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def part(name, pp=None, tp=None):
    *folders, last = name.split(".")
    cut = "" if tp is None else f"_pp-rank-{pp}-of-2_tp-rank-{tp}-of-2"
    return "/".join(["model", *folders, f"model_{last}{cut}.safetensors"])


def half(r, slices=None, whole="(4,)", shape=(2,), data=None):
    slices = f"{FULL}#{2 * r},{2 * r + 2},None" if slices is None else slices
    return file(shape, struct.pack("<2f", r, r) if data is None else data, slices, whole)


def two(second=None, first=None, name="a.w"):
    files = {"checkpoint_metadata.json": b"{}", part(name, 0, 0): first or half(0)}
    if second is not False:
        files[part(name, 0, 1)] = second or half(1)
    return files


def cases():
    plain = file((2,), struct.pack("<2f", 1, 2))
    return [
        ("nanotron/empty", {"checkpoint_metadata.json": b"{}", "model/a/readme": b"no tensors"}),
        ("nanotron/missing_rank", two(False)),
        ("nanotron/overlap", two(half(0))),
        ("nanotron/past_the_end", two(half(1, f"{FULL}#3,5,None"))),
        ("nanotron/lengths", two(half(1, f"{FULL}#2,3,None"))),
        ("nanotron/step", two(half(1, f"{FULL}#2,4,2"))),
        ("nanotron/slices", two(half(1, "x"))),
        ("nanotron/no_shape", two(half(1, whole=None))),
        ("nanotron/other_shape", two(half(1, whole="(4, 2)"))),
        ("nanotron/huge_shape", two(half(1, whole="(9223372036854775806,)"))),
        ("nanotron/columns_in_pieces", two(file((1, 2), b"\0" * 8, f"{FULL}|0,1,None#{FULL}|0,1,None;{FULL}|1,2,None#{FULL}|3,4,None", "(1, 4)"))),
        ("nanotron/other_tensor", two(file((2,), b"\0" * 8, name="weight"))),
        ("nanotron/whole_and_part", two() | {part("a.w"): plain}),
        ("nanotron/other_name", {"checkpoint_metadata.json": b"{}", "model/a/w.safetensors": plain}),
        ("nanotron/no_parameter", {"checkpoint_metadata.json": b"{}", "model/a/model_.safetensors": plain}),
        ("nanotron/cut", two(half(1)[:-3])),
    ]
