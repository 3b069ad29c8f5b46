# SPDX-License-Identifier: Apache-2.0
"""Broken files in the legacy form of torch.save: five pickles, then the storages."""

import struct

from bad_build import FALSE, NONE, ORDERED_DICT, TRUE, call, dct, glob, ints, lst, num, pkl, tensor, tup, txt

MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
FLOATS = struct.pack("<2f", 1.5, -2.0)


def storage(key="0", numel=2, view=NONE, cls="FloatStorage"):
    return b"(" + txt("storage") + glob("torch", cls) + txt(key) + txt("cpu") + num(numel) + view + b"tQ"


def legacy_tensor(key="0", numel=2, view=NONE, cls="FloatStorage"):
    return (
        glob("torch._utils", "_rebuild_tensor_v2")
        + b"("
        + storage(key, numel, view, cls)
        + num(0)
        + ints(numel)
        + ints(1)
        + FALSE
        + ORDERED_DICT
        + b"tR"
    )


def legacy(value=None, version=1001, keys=("0",), data=None, magic=MAGIC):
    body = legacy_tensor() if value is None else value
    system = pkl(dct((txt("little_endian"), TRUE)))
    data = struct.pack("<q", 2) + FLOATS if data is None else data
    return magic + pkl(num(version)) + system + pkl(body) + pkl(lst(*map(txt, keys))) + data


def cases():
    whole = legacy()
    yield "legacy/whole.pt", whole
    linear = b"(" + txt("module") + glob("torch.nn.modules.linear", "Linear") + txt("linear.py") + txt("class Linear") + b"tQ"
    module = linear + b")\x81" + dct((txt("weight"), legacy_tensor("1"))) + b"b"
    both = legacy(dct((txt("w"), legacy_tensor()), (txt("model"), module)), keys=("0", "1"), data=2 * (struct.pack("<q", 2) + FLOATS))
    yield "legacy/module_beside_a_tensor.pt", both
    yield "legacy/five_parts_of_a_storage.pt", legacy(tensor())
    yield "legacy/protocol_4.pt", legacy(magic=b"\x80\x04\x95" + struct.pack("<Q", 13) + MAGIC[2:])
    yield "legacy/a_view_of_a_storage.pt", legacy(legacy_tensor(view=tup(txt("9"), num(0), num(1))))
    yield "legacy/other_magic.pt", legacy(magic=MAGIC.replace(b"\x6c", b"\x6d"))
    yield "legacy/other_version.pt", legacy(version=1002)
    yield "legacy/cut_in_data.pt", whole[:-1]
    yield "legacy/cut_in_count.pt", whole[:-10]
    yield "legacy/cut_in_keys.pt", whole[:-20]
    yield "legacy/cut_behind_system.pt", whole[: len(MAGIC) + 20]
    yield "legacy/bytes_behind.pt", whole + b"x"
    yield "legacy/key_missing.pt", legacy(keys=(), data=b"")
    yield "legacy/key_twice.pt", legacy(keys=("0", "0"), data=2 * (struct.pack("<q", 2) + FLOATS))
    yield "legacy/other_key.pt", legacy(keys=("1",))
    yield "legacy/keys_are_numbers.pt", MAGIC + pkl(num(1001)) + pkl(NONE) + pkl(legacy_tensor()) + pkl(lst(num(0)))
    yield "legacy/negative_count.pt", legacy(data=struct.pack("<q", -2) + FLOATS)
    yield "legacy/other_count.pt", legacy(data=struct.pack("<q", 3) + FLOATS + bytes(4))
    yield "legacy/count_of_zero.pt", legacy(data=struct.pack("<q", 0))
    yield "legacy/huge_count.pt", legacy(legacy_tensor(numel=1 << 61), data=struct.pack("<q", 1 << 61))
    yield "legacy/unknown_class.pt", legacy(call(glob("os", "system"), txt("true")), keys=(), data=b"")
