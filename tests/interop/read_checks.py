# SPDX-License-Identifier: Apache-2.0
"""torch writes, ckpt_copy dumps: every bit, every chunk, every path and object must be there."""

import json

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
import torch.utils.serialization
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

import layouts
import ranks
import states
import torch_io
import values

# ---- comparing ----------------------------------------------------------------------------------


def entry_problem(entry, want):
    if entry is None:
        return "is not listed"
    if entry.dtype != values.dtype_name(want.dtype):
        return f"is {entry.dtype}, not {want.dtype}"
    if entry.shape != tuple(want.shape):
        return f"has shape {entry.shape}, not {tuple(want.shape)}"
    return None if entry.bytes == values.raw_bytes(want) else "has other bytes"


def check_tensors(report, label, listing, want):
    for name, tensor in want.items():
        report.check(f"{label}: {name}", entry_problem(listing.tensors.get(name), tensor))
    extra = set(listing.tensors) - set(want)
    report.check(
        f"{label}: no other tensors, nothing damaged",
        (
            f"also {sorted(extra)}"
            if extra
            else f"{listing.damages} damages" if listing.damages else None
        ),
    )


def check_objects(report, label, listing, want):
    for name, value in want.items():
        got = values.sort_sets(listing.objects.get(name, "missing"))
        wanted = values.sort_sets(values.to_json(value))
        report.check(
            f"{label}: object {name}",
            (
                None
                if json.dumps(got) == json.dumps(wanted)
                else f"is {str(got)[:200]}, not {str(wanted)[:200]}"
            ),
        )
    extra = set(listing.objects) - set(want)
    report.check(f"{label}: no other objects", f"also {sorted(extra)}" if extra else None)


def check_metadata(report, label, listing, path):
    """Chunks and paths against what torch reads from the same metadata."""
    want = torch_io.boxes(path)
    wrong = [n for n, t in listing.tensors.items() if t.boxes() != want.get(n)]
    report.check(f"{label}: chunks", f"differ for {wrong}" if wrong else None)
    paths = torch_io.metadata(path).planner_data
    wrong = [n for n in paths if listing.paths.get(n) != tuple(paths[n])]
    report.check(f"{label}: paths", f"differ for {wrong}" if wrong else None)


def dump(report, tool, label, path):
    try:
        return tool.dump(path)
    except Exception as e:
        report.check(f"{label}: can be read", str(e))
        return None


def check_dcp(report, tool, label, path, want, metadata=True):
    """`want` is the state as one process has it."""
    listing = dump(report, tool, label, path)
    if listing is None:
        return
    flat, _ = flatten_state_dict(want)
    check_tensors(
        report, label, listing, {k: v for k, v in flat.items() if isinstance(v, torch.Tensor)}
    )
    check_objects(
        report, label, listing, {k: v for k, v in flat.items() if not isinstance(v, torch.Tensor)}
    )
    if metadata:
        check_metadata(report, label, listing, path)


# ---- one process --------------------------------------------------------------------------------


def single(report, tool, folder):
    save_dcp(report, tool, folder)
    save_hf(report, tool, folder)
    save_torch(report, tool, folder)


def save_dcp(report, tool, folder):
    for name, state, options in [
        ("single_dtypes", states.every_dtype(), {}),
        ("single_scalars", states.scalars_and_empty(), {}),
        ("single_noncontiguous", states.noncontiguous(), {}),
        ("single_objects", states.objects(), {}),
        ("single_inside", states.tensors_in_objects(), {}),
        ("single_unknown", states.unknown_objects(), {}),
        ("single_training", states.training(), {}),
        (
            "single_zstd",
            states.scalars_and_empty() | states.objects(),
            {"_extensions": [ZStandard()]},
        ),
        (
            "single_rot13",
            states.scalars_and_empty() | states.objects(),
            {"_extensions": [torch_io.Rot13()]},
        ),
        (
            "single_zstd_rot13",
            states.objects() | states.noncontiguous(),
            {"_extensions": [ZStandard(), torch_io.Rot13()]},
        ),
        (
            "single_rot13_zstd",
            states.objects() | states.noncontiguous(),
            {"_extensions": [torch_io.Rot13(), ZStandard()]},
        ),
        ("single_per_item", states.training(), {"single_file_per_rank": False}),
        ("single_threads", states.training(), {"thread_count": 2}),
        ("single_nothing", {}, {}),
    ]:
        path = folder / name
        dcp.save(state, storage_writer=dcp.FileSystemWriter(path, **options), no_dist=True)
        check_dcp(report, tool, name, path, state)


def save_hf(report, tool, folder):
    state = states.safetensors()
    index = {name: 1 + i % 3 for i, name in enumerate(state)}
    for label, options in [("hf_one", {}), ("hf_index", {"fqn_to_index_mapping": index})]:
        dcp.save(
            state,
            storage_writer=HuggingFaceStorageWriter(str(folder / label), **options),
            no_dist=True,
        )
        listing = dump(report, tool, label, folder / label)
        if listing:
            check_tensors(report, label, listing, state)
    path = folder / "plain.safetensors"
    safetensors.torch.save_file(state, path, metadata={"format": "pt"})
    listing = dump(report, tool, "safetensors file", path)
    if listing:
        check_tensors(report, "safetensors file", listing, state)


def save_torch(report, tool, folder):
    for name, state in [
        ("dtypes.pt", states.every_dtype()),
        ("scalars.pt", states.scalars_and_empty()),
        ("noncontiguous.pt", states.noncontiguous()),
        ("overlapping.pt", states.overlapping()),
        ("shared.pt", states.shared_storages()),
        ("objects.pt", states.objects() | {"empty": {}}),
        ("inside.pt", states.tensors_in_objects()),
        ("unknown.pt", states.unknown_objects()),
        ("training.pt", states.training()),
        ("model.pth", states.training()["model"]),
        (
            "int_keys.bin",
            {
                0: values.make("zero", shape=(2,)),
                1: {2: values.make("two", shape=(3,))},
                "x": {7: "y"},
            },
        ),
    ]:
        path = folder / name
        torch.save(state, path)
        listing = dump(report, tool, name, path)
        if listing is None:
            continue
        flat = states.flatten_as_we_do(state)
        check_tensors(
            report, name, listing, {k: v for k, v in flat.items() if isinstance(v, torch.Tensor)}
        )
        check_objects(
            report,
            name,
            listing,
            {k: v for k, v in flat.items() if not isinstance(v, torch.Tensor)},
        )
    odd_archives(report, tool, folder)


def odd_archives(report, tool, folder):
    """Other ways to write a file, other things at its top."""
    state = states.training()
    torch.serialization.set_crc32_options(False)
    torch.save(state, folder / "no_crc.pt")
    torch.serialization.set_crc32_options(True)
    with torch.utils.serialization.config.patch({"save.storage_alignment": 4096}):
        torch.save(state, folder / "aligned.pt")
    for name in ("no_crc.pt", "aligned.pt"):
        listing = dump(report, tool, name, folder / name)
        if listing:
            flat = states.flatten_as_we_do(state)
            check_tensors(
                report,
                name,
                listing,
                {k: v for k, v in flat.items() if isinstance(v, torch.Tensor)},
            )
    torch.save(values.make("bare", shape=(3, 2)), folder / "bare.pt")
    listing = dump(report, tool, "bare.pt", folder / "bare.pt")
    if listing:
        check_tensors(report, "bare.pt", listing, {"tensor": values.make("bare", shape=(3, 2))})
    torch.save([values.make("item", shape=(3, 2)), 5], folder / "list.pt")
    listing = dump(report, tool, "list.pt", folder / "list.pt")
    if listing:
        check_tensors(report, "list.pt", listing, {"0": values.make("item", shape=(3, 2))})


# ---- four ranks ---------------------------------------------------------------------------------


def sharded(report, tool, folder):
    failed = json.loads((folder / "written.json").read_text())
    one, two = ({s.name: s.full() for s in specs} for specs in (layouts.ONE_DIM, layouts.TWO_DIMS))
    boxes = {
        f"{kind}.{n}": values.make(f"{kind}.{n}", dtype, shape)
        for n, (shape, _) in layouts.BOXES.items()
        for kind, dtype in (("wrapped", torch.float32), ("sharded", torch.int32))
    }
    floats = {s.name: s.full() for s in ranks.FLOATS}
    safe = {s.name: s.full() for s in layouts.DTYPES if s.dtype in values.SAFETENSORS_DTYPES}
    for name, state in [
        ("dtypes", {s.name: s.full() for s in layouts.DTYPES}),
        ("one_dim", one),
        ("two_dims", two),
        ("boxes", boxes),
        ("training", states.training()),
        ("zstd", one),
        ("rot13", one),
        ("per_item", one),
        ("threads", two),
        ("own_metadata", one),
    ]:
        if name in failed:
            report.skip(name, failed[name])
        else:
            check_dcp(report, tool, name, folder / name, state, metadata=name != "own_metadata")
    if "fsdp" in failed:
        report.skip("fsdp", failed["fsdp"])
    else:
        listing = dump(report, tool, "fsdp", folder / "fsdp")
        if listing:
            check_tensors(
                report, "fsdp", listing, torch.load(folder / "fsdp.whole.pt", weights_only=True)
            )
            check_metadata(report, "fsdp", listing, folder / "fsdp")
    for name, state in [
        ("hf_parts", one | two),
        ("hf_parts_dtypes", safe),
        ("hf_parts_files", floats),
        ("hf_consolidated", floats),
        ("hf_consolidated/sharded", floats),
    ]:
        if name.split("/")[0] in failed:
            report.skip(name, failed[name.split("/")[0]])
            continue
        listing = dump(report, tool, name, folder / name)
        if listing:
            check_tensors(report, name, listing, state)
