# SPDX-License-Identifier: Apache-2.0
"""Broken folders of nanotron: one safetensors file for each parameter, or each part of it."""

import json
import struct

from bad_build import Zip, dct, lst, num, pkl, records, tensor, txt

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


def saved(body, data):
    return Zip(records(pkl(body), data)).out()


def state(moments, weights, names=None):
    """A rank's state: {parameter: (elements, their value)} for the moments, {parameter: (shape, value)} for the weights."""
    data, inner, fp32 = b"", [], []

    def take(shape, value):
        nonlocal data
        count = 1
        for size in shape:
            count *= size
        offset = len(data) // 4
        data += struct.pack(f"<{count}f", *(value + i for i in range(count)))
        strides = [1] * len(shape)
        for d in range(len(shape) - 1, 0, -1):
            strides[d - 1] = strides[d] * shape[d]
        return lambda all: tensor(all, tuple(shape), tuple(strides), offset)

    later = []
    for count, value in moments.values():
        later.append([take((count,), value), take((count,), value + 1000)])
    for name, (shape, value) in weights.items():
        fp32.append((name, take(shape, value)))
    total = len(data) // 4
    for i, (first, second) in enumerate(later):
        inner.append((num(i), dct((txt("step"), num(7)), (txt("exp_avg"), first(total)), (txt("exp_avg_sq"), second(total)))))
    listed = dct(*((num(i), txt(n)) for i, n in enumerate(moments))) if names is None else names
    groups = lst(dct((txt("lr"), num(1))))
    body = dct((txt("state"), dct(*inner)), (txt("param_groups"), groups), (txt("names"), listed), (txt("gradient_accumulator"), dct(*((txt(n), t(total)) for n, t in fp32))))
    return saved(body, data)


def optimizer(*ranks, tp=1, pp=1, name="optimizer_pp-{p}-of-{pp}_dp-{r}-of-{n}_tp-0-of-{tp}_exp-0-of-1.pt"):
    files = {"optimizer_config.json": b'{"type": "ZeroDistributedOptimizer"}'}
    n = len(ranks) // pp
    return files | {name.format(p=i // n, pp=pp, r=i % n, n=n, tp=tp): raw for i, raw in enumerate(ranks)}


def halves(first=3, second=3, shape=(2, 3), **more):
    weights = {"a.w": (shape, 50)}
    return state({"a.w": (first, 0)}, weights), state({"a.w": (second, first)}, weights, **more)


def optimizer_cases():
    one, two = halves()
    return [
        ("nanotron/optimizer", optimizer(one, two)),
        ("nanotron/optimizer_rank_is_missing", {k: v for k, v in optimizer(one, two).items() if "dp-1" not in k}),
        ("nanotron/optimizer_tensor_parallel", optimizer(one, tp=2)),
        ("nanotron/optimizer_no_ranks", optimizer(one, name="optimizer_pp-x.pt")),
        ("nanotron/optimizer_rank_outside", optimizer(one, name="optimizer_pp-2-of-1.pt")),
        ("nanotron/optimizer_other_size", optimizer(*halves(second=2))),
        ("nanotron/optimizer_no_names", optimizer(*halves()[:1], state({"a.w": (3, 0)}, {}, names=num(1)))),
        ("nanotron/optimizer_names_are_a_number", optimizer(state({"a.w": (3, 0)}, {}, names=num(1)))),
        ("nanotron/optimizer_names_of_nothing", optimizer(state({"a.w": (3, 0)}, {}, names=dct((num(9), txt("b")))))),
        ("nanotron/optimizer_is_text", optimizer(one, b"text")),
        ("nanotron/optimizer_is_cut", optimizer(one, two[:-9])),
        ("nanotron/optimizer_is_a_list", optimizer(one, saved(lst(num(1)), None))),
        ("nanotron/optimizer_stages_share", optimizer(one, two, pp=2)),
        ("nanotron/optimizer_without_zero", optimizer(state({"a.w": (6, 0)}, {"a.w": ((2, 3), 50)}), name="optimizer_pp-0-of-1_tp-0-of-1_exp-0-of-1.pt")),
    ]


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
        *optimizer_cases(),
    ]
