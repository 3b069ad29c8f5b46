# SPDX-License-Identifier: Apache-2.0
"""Builds valid pickles, zip archives, safetensors files and DCP checkpoints byte by byte, with a
handle on every part, so that make_bad.py can break them one rule at a time. Standard library only:
nothing here needs torch, and no library stands between the script and the bytes."""

import json
import struct
import zlib

# ---- pickles: each function gives the opcodes of one value ----


def num(n):
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if 0 <= n < 65536:
        return b"M" + struct.pack("<H", n)
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def txt(s):
    raw = s if isinstance(s, bytes) else s.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def tup(*items):
    if not items:
        return b")"
    if len(items) <= 3:
        return b"".join(items) + bytes([0x84 + len(items)])
    return b"(" + b"".join(items) + b"t"


def ints(*numbers):
    return tup(*map(num, numbers))


def lst(*items):
    return b"](" + b"".join(items) + b"e"


def dct(*pairs):
    return b"}(" + b"".join(key + value for key, value in pairs) + b"u"


def glob(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def stack_glob(module, name):
    return txt(module) + txt(name) + b"\x93"


def call(callee, *args):
    return callee + tup(*args) + b"R"


def pkl(body, proto=2):
    return b"\x80" + bytes([proto]) + body + b"."


NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"
ORDERED_DICT = call(glob("collections", "OrderedDict"))


def storage(cls="FloatStorage", key="0", numel=2, kind="storage", location="cpu"):
    name = glob("torch.storage" if cls == "UntypedStorage" else "torch", cls)
    return b"(" + txt(kind) + name + txt(key) + txt(location) + num(numel) + b"tQ"


def tensor(numel=2, size=(2,), stride=(1,), offset=0, cls="FloatStorage", key="0", **more):
    """_rebuild_tensor_v2 of a storage, as torch writes it but for the memo."""
    return (
        glob("torch._utils", "_rebuild_tensor_v2")
        + b"("
        + storage(cls, key, numel, **more)
        + num(offset)
        + ints(*size)
        + ints(*stride)
        + FALSE
        + ORDERED_DICT
        + b"tR"
    )


# ---- zip archives ----


class Zip:
    """An archive as torch.save writes it, without padding. `at` tells where the parts are:
    at["local", name], at["data", name], at["behind", name] (the descriptor), at["central", name],
    at["dir"], at["end64"], at["locator"], at["end"]."""

    def __init__(self, records, folder="archive", crc=True, prefix=b"", plain_end=False):
        self.bytes, self.at = bytearray(prefix), {}
        entries = b""
        for name, data in records:
            raw = (folder + "/" + name).encode()
            flags = 0x0808 if data else 0x0800
            check = zlib.crc32(data) if crc else 0
            self.at["local", name] = len(self.bytes)
            self.bytes += struct.pack("<IHHHHHIIIHH", 0x04034B50, 0, flags, 0, 0, 0, 0, 0, 0, len(raw), 0)
            self.bytes += raw
            self.at["data", name] = len(self.bytes)
            self.bytes += data
            self.at["behind", name] = len(self.bytes)
            if data:
                self.bytes += struct.pack("<IIII", 0x08074B50, check, len(data), len(data))
            self.at["central", name] = len(entries)
            entries += struct.pack(
                "<IHHHHHHIIIHHHHHII", 0x02014B50, 0, 0, flags, 0, 0, 0, check, len(data), len(data),
                len(raw), 0, 0, 0, 0, 0, self.at["local", name],
            )
            entries += raw
        self.at["dir"] = len(self.bytes)
        for name, _ in records:
            self.at["central", name] += self.at["dir"]
        self.bytes += entries
        n, size, start = len(records), len(entries), self.at["dir"]
        if not plain_end:
            self.at["end64"] = len(self.bytes)
            self.bytes += struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 0x31E, 45, 0, 0, n, n, size, start)
            self.at["locator"] = len(self.bytes)
            self.bytes += struct.pack("<IIQI", 0x07064B50, 0, self.at["end64"], 1)
        self.at["end"] = len(self.bytes)
        self.bytes += struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, n, n, size, start, 0)

    def put(self, where, off, form, *values):
        """Overwrites the field at `off` of a part."""
        struct.pack_into("<" + form, self.bytes, self.at[where] + off, *values)
        return self

    def rename(self, name, new, local=True, central=True):
        """Another name of the same length."""
        raw = new.encode() if isinstance(new, str) else new
        for part, size, wanted in (("local", 30, local), ("central", 46, central)):
            if wanted:
                at = self.at[part, name] + size + len("archive/")
                self.bytes[at : at + len(raw)] = raw
        return self

    def out(self):
        return bytes(self.bytes)


FLOATS = struct.pack("<2f", 1, 2)


def records(pickle, data=FLOATS, version=b"3\n", byteorder=b"little", more=()):
    """The usual records; None leaves one out."""
    given = [("data.pkl", pickle), ("byteorder", byteorder), ("data/0", data), ("version", version)]
    return [(name, raw) for name, raw in given if raw is not None] + list(more)


def item(pickle=None, data=FLOATS, **style):
    """A tensor, or whatever the pickle is, as torch.save makes it."""
    return Zip(records(pickle or pkl(tensor()), data), **style).out()


def value(body):
    """torch.save of an object without tensors."""
    return Zip(records(pkl(body), None)).out()


# ---- safetensors ----


def st(header, data=b"", length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def st_tensor(begin=0, end=8, dtype="F32", shape=(2,)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


# ---- DCP metadata ----

META = "torch.distributed.checkpoint.metadata"
FILES = "torch.distributed.checkpoint.filesystem"


def obj(module, name, state):
    return stack_glob(module, name) + b")\x81" + state + b"b"


def size(*n):
    return call(stack_glob("torch", "Size"), ints(*n))


def properties(dtype="float32"):
    layout = call(stack_glob("torch.serialization", "_get_layout"), txt("torch.strided"))
    memory = call(stack_glob(META, "_MEM_FORMAT_ENCODING"), num(0))
    dtype = stack_glob("torch", dtype) if isinstance(dtype, str) else dtype
    return obj(META, "TensorProperties", tup(dtype, layout, FALSE, memory, FALSE))


def chunk(offsets, sizes):
    return obj(META, "ChunkStorageMetadata", dct((txt("offsets"), size(*offsets)), (txt("sizes"), size(*sizes))))


def tensor_meta(shape=(2,), chunks=None, dtype="float32"):
    chunks = [chunk((0,) * len(shape), shape)] if chunks is None else chunks
    pairs = (txt("properties"), properties(dtype)), (txt("size"), size(*shape)), (txt("chunks"), lst(*chunks))
    return obj(META, "TensorStorageMetadata", dct(*pairs))


BYTES_META = stack_glob(META, "BytesStorageMetadata") + b")\x81"


def index(fqn, offset=None):
    more = [] if offset is None else [(txt("offset"), size(*offset))]
    return obj(META, "MetadataIndex", dct((txt("fqn"), txt(fqn)), (txt("index"), num(0)), *more))


def info(path="__0_0.distcp", offset=0, length=0, transforms=None):
    more = [] if transforms is None else [(txt("transform_descriptors"), lst(*map(txt, transforms)))]
    pairs = (txt("relative_path"), txt(path)), (txt("offset"), num(offset)), (txt("length"), num(length))
    return obj(FILES, "_StorageInfo", dct(*pairs, *more))


def metadata(things, rows, planner=None, **other):
    """`things`: name and its metadata; `rows`: pairs of index and info; `planner`: name and path;
    `other` replaces or adds attributes, None leaves one out."""
    state = {
        "state_dict_metadata": dct(*[(txt(name), meta) for name, meta in things]),
        "planner_data": dct(*[(txt(n), p) for n, p in planner]) if planner is not None else NONE,
        "storage_data": dct(*rows),
        "storage_meta": NONE,
        "version": txt("1.0.0"),
    }
    state.update(other)
    pairs = [(txt(name), raw) for name, raw in state.items() if raw is not None]
    return pkl(obj(META, "Metadata", dct(*pairs)), 4)


def dcp(things=None, rows=None, data=None, planner=None, **other):
    """A folder: by default one tensor "w" of two floats in one file."""
    data = item() if data is None else data
    things = [("w", tensor_meta())] if things is None else things
    rows = [(index("w", (0,)), info(length=len(data)))] if rows is None else rows
    return {".metadata": metadata(things, rows, planner, **other), "__0_0.distcp": data}


def dcp_item(data, declared=None, **row):
    """The same with another item, of `declared` bytes."""
    length = len(data) if declared is None else declared
    return dcp(rows=[(index("w", (0,)), info(length=length, **row))], data=data)


def dcp_object(pickle_body, name="step"):
    """One object, no tensor."""
    raw = value(pickle_body)
    return dcp([(name, BYTES_META)], [(index(name), info(length=len(raw)))], raw)


# ---- zstd: frames of raw and run-length blocks need no compressor ----


def zstd_block(kind, length, raw, last):
    return struct.pack("<I", last | kind << 1 | length << 3)[:3] + raw


def zstd(data):
    return b"\x28\xb5\x2f\xfd\x00\x58" + zstd_block(0, len(data), data, 1)


def zstd_bomb(blocks):
    """128 KiB of zeros for each 4 bytes."""
    run = [zstd_block(1, 1 << 17, b"\0", i == blocks - 1) for i in range(blocks)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(run)
