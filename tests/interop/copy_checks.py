# SPDX-License-Identifier: Apache-2.0
"""We convert what torch wrote, torch reads it: in this process, and on two and four ranks."""

import io
import json
import zipfile

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

import copy_cases
import layouts
import ranks
import states
import torch_io
import torch_safetensors
import values
from copy_cases import ALL_DTYPES, ONE, TWO
from tool import ToolError


def can_copy(dtype):
    """torch's loads end in copy_, which not every dtype has."""
    try:
        values.zeros(dtype, (2,)).copy_(values.zeros(dtype, (2,)))
        return True
    except (RuntimeError, NotImplementedError):
        return False


# ---- problems with a copy -----------------------------------------------------------------------


def dcp_problem(path, nested, flat):
    """torch loads all of it; then each item for itself, with weights_only=True."""
    if all(can_copy(v.dtype) for v in flat.values() if isinstance(v, torch.Tensor)):
        wrong = values.problem(torch_io.load_all(path), nested)
        if wrong:
            return wrong
    tensors, objects = torch_io.load_items(path)
    return values.problem(tensors | objects, flat, "items")


def template_problem(path, want):
    """dcp.load into a state of the same form with other values, as a trainer does it."""

    def blank(value):
        if isinstance(value, torch.Tensor):
            return values.zeros(value.dtype, value.shape)
        if isinstance(value, dict):
            return {k: blank(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(blank, value))
        return type(value)() if value is not None else None

    state = blank(want)
    dcp.load(state, storage_reader=torch_io.reader(path), no_dist=True)
    return values.problem(states.as_dcp_keeps_it(state), states.as_dcp_keeps_it(want))


def same_layout_problem(path, original):
    got, want = torch_io.boxes(path), torch_io.boxes(original)
    wrong = [f"{n}: {got.get(n)}, not {want[n]}" for n in want if got.get(n) != want[n]]
    return "chunks differ: " + "; ".join(wrong) if wrong else None


def records(data):
    """What is in an archive; only the padding between is up to who writes it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(i.filename, i.CRC, archive.read(i)) for i in archive.infolist()]


def same_items_problem(path, original):
    """Record for record what torch wrote for the same chunk."""

    def by_place(folder):
        return {(i.fqn, tuple(i.offset or ())): records(data) for i, data in torch_io.items(folder)}

    got, want = by_place(path), by_place(original)
    wrong = sorted(map(str, (k for k in want if got.get(k) != want[k])))
    return f"{len(wrong)} of {len(want)} items differ: {wrong[:5]}" if wrong else None


def torch_problem(path, want):
    return values.problem(torch.load(path, weights_only=True), want)


def safetensors_problem(path, want, read=torch_safetensors.read_file):
    return values.problem(read(path), want)


def library_problem(path, want):
    """The safetensors library reads it, as far as it knows the dtypes."""
    want = {
        k: v
        for k, v in want.items()
        if v.dtype not in (torch.float8_e8m0fnu, torch.float4_e2m1fn_x2)
    }
    with safetensors.safe_open(path, framework="pt") as f:
        return values.problem({k: f.get_tensor(k) for k in want}, want)


def own_problem(tool, path, want):
    """What we read of it ourselves."""
    listing = tool.dump(path)
    got = {name: entry.tensor() for name, entry in listing.tensors.items()}
    return f"{listing.damages} damages" if listing.damages else values.problem(got, want)


def unknown_problem(tool, folder, made):
    """Only torch runs the pickle here."""
    tool.copy(folder / "single_unknown", made / "unknown_copied")
    return values.problem(torch_io.load_all(made / "unknown_copied"), states.unknown_objects())


def refusal_problem(words, function, *args, **options):
    try:
        function(*args, **options)
    except ToolError as e:
        missing = [w for w in words if w not in str(e)]
        return f"the message {str(e)!r} lacks {missing}" if missing else None
    return "was not refused"


# ---- copies -------------------------------------------------------------------------------------


def copies(report, tool, folder):
    """Makes and checks all copies; returns what the ranks shall load."""
    made = folder / "copies"
    made.mkdir(exist_ok=True)
    loads = []
    try:
        to_dcp(report, tool, folder, made, loads)
        to_safetensors(report, tool, folder, made, loads)
        to_torch(report, tool, folder, made)
        refusals(report, tool, folder, made)
    finally:
        (folder / "loads.json").write_text(json.dumps(loads))
    return loads


def copied(report, tool, label, src, dst, **options):
    try:
        return tool.copy(src, dst, **options)
    except ToolError as e:
        report.check(f"{label}: can be written", str(e))
        return None


def forms(src, state, key=str):
    """A state as it is nested and as it is flat after it was a DCP checkpoint or a file."""
    if src.endswith((".pt", ".pth", ".bin")):
        return states.nested_as_we_do(state, key), states.flatten_as_we_do(state)
    return states.as_dcp_keeps_it(state), flatten_state_dict(state)[0]


def to_dcp(report, tool, folder, made, loads):
    for name, src, want, options in copy_cases.TO_DCP:
        label = f"{src} -> DCP {name}"
        path = copied(report, tool, label, folder / src, made / name, **options)
        if not path:
            continue
        if src == "boxes":
            want = {n: e.tensor() for n, e in tool.dump(folder / src).tensors.items()}
        report.run(f"{label}: torch reads it", dcp_problem, path, *forms(src, want))
        if "training" in src:
            report.run(
                f"{label}: torch loads it into a trainer's state", template_problem, path, want
            )
        if name.startswith("same_"):
            report.run(f"{label}: has torch's chunks", same_layout_problem, path, folder / src)
            report.run(f"{label}: items are torch's", same_items_problem, path, folder / src)
    rank_loads(made, loads)
    for name, options in [
        ("fsdp_rows", {"layout": "mesh a=3; * shard(0)@a", "slices": True}),
        ("fsdp_whole", {}),
        ("fsdp_zstd", {"layout": "mesh a=2 b=2; * shard(0)@b", "transform": "stream.zstd"}),
    ]:
        path = copied(report, tool, f"fsdp -> DCP {name}", folder / "fsdp", made / name, **options)
        if path:
            loads.append(
                {
                    "name": f"{name} into a trainer with FSDP2 and TP",
                    "format": "fsdp",
                    "path": str(path),
                    "ranks": ranks.WORLD,
                }
            )


def to_safetensors(report, tool, folder, made, loads):
    for name, src, want, options in copy_cases.TO_FILE:
        label = f"{src} -> file {name}"
        path = copied(report, tool, label, folder / src, made / name, **options)
        if path:
            report.run(f"{label}: every byte is right", safetensors_problem, path, want)
            report.run(f"{label}: safetensors reads it", library_problem, path, want)
    for name, src, want, options in copy_cases.TO_FOLDER:
        label = f"{src} -> safetensors folder {name}"
        path = copied(
            report, tool, label, folder / src, made / name, format="safetensors", **options
        )
        if path:
            read = (
                torch_safetensors.read_folder
                if (path / "model.safetensors.index.json").exists()
                else lambda p: torch_safetensors.read_file(next(p.glob("*.safetensors")))
            )
            report.run(f"{label}: every byte is right", safetensors_problem, path, want, read)
            report.run(
                f"{label}: dcp.load reads it",
                lambda: values.problem(torch_io.load_safetensors(path, want), want),
            )
            if options.get("shard_size"):
                report.check(
                    f"{label}: has several files",
                    None if len(list(path.glob("*.safetensors"))) > 1 else "there is only one",
                )
    parts_of_ranks(report, tool, folder, made, loads)


def parts_of_ranks(report, tool, folder, made, loads):
    for name, src, want, options in copy_cases.TO_PARTS:
        label = f"{src} -> parts of safetensors {name}"
        path = copied(
            report,
            tool,
            label,
            folder / src,
            made / name,
            format="safetensors",
            distributed=True,
            **options,
        )
        if not path:
            continue
        report.run(f"{label}: we read it", own_problem, tool, path, want)
        if name == "parts_dtypes":
            report.skip(
                f"{label}: dcp.load of F8_E8M0 and F4", "the safetensors library can't read them"
            )
            continue
        report.run(
            f"{label}: dcp.load reads it",
            lambda: values.problem(torch_io.load_safetensors(path, want), want),
        )
        loads.append(load("4", "S0", 0, path, want, "safetensors"))
        loads.append(load("2", "S0", 0, path, want, "safetensors"))


def to_torch(report, tool, folder, made):
    for name, src, want, options in copy_cases.TO_TORCH:
        label = f"{src} -> torch.save {name}"
        path = copied(report, tool, label, folder / src, made / name, **options)
        if path:
            want = forms(src, want, key=lambda k: k)[0]
            report.run(f"{label}: torch.load reads it", torch_problem, path, want)
    path = copied(
        report,
        tool,
        "shared.pt -> torch.save",
        folder / "shared.pt",
        made / "shared.pt",
        slices=True,
    )
    if path:
        want = {k: v.tensor() for k, v in tool.dump(folder / "shared.pt").tensors.items()}
        report.run("shared.pt -> torch.save: has the same tensors", own_problem, tool, path, want)
        report.run(
            "shared.pt -> torch.save: torch.load reads it",
            lambda: None if "base" in torch.load(path, weights_only=True) else "base is missing",
        )


def refusals(report, tool, folder, made):
    report.run(
        "complex32 is refused for safetensors by name",
        refusal_problem,
        ["w.complex32", "UNSUPPORTED"],
        tool.copy,
        folder / "dtypes",
        made / "refused.safetensors",
    )
    report.run("objects of unknown classes are copied as they are", unknown_problem, tool, folder, made)
    report.run(
        "what exists is not replaced",
        refusal_problem,
        ["EXISTS"],
        tool.copy,
        folder / "one_dim",
        made / "same_1d",
    )
    report.check(
        "nothing is left of what was refused",
        ", ".join(p.name for p in made.iterdir() if "refused" in p.name or p.name.startswith(".")),
    )


# ---- loads by ranks -----------------------------------------------------------------------------


def load(mesh, place, dim, path, want, format="dcp"):
    """A template on a mesh; tensors without dimension `dim` are replicated."""
    count = len(layouts.MESHES[mesh][2])
    tensors = {
        k: (values.dtype_name(v.dtype), list(v.shape), k)
        for k, v in want.items()
        if can_copy(v.dtype)
    }
    return {
        "name": f"{path.name} into {place} on {mesh}",
        "mesh": mesh,
        "place": place,
        "dim": dim,
        "ranks": count,
        "path": str(path),
        "tensors": tensors,
        "format": format,
    }


def rank_loads(made, loads):
    for name, want in [
        ("same_1d", ONE),
        ("1d_to_2d", ONE),
        ("2d_to_3", TWO),
        ("2d_to_hsdp", TWO),
        ("to_zstd", ONE),
        ("to_rot13", TWO),
        ("dtypes_columns", ALL_DTYPES),
        ("dtypes_strided", ALL_DTYPES),
    ]:
        if not (made / name).exists():
            continue
        for mesh, place, dim in [
            ("4", "S0", 0),
            ("2x2", "S0 S0", 0),
            ("2x2", "R S0", 0),
            ("2", "S0", 0),
            ("4", "S1", 1),
        ]:
            if place == "S1":  # leaves a rank without a column
                want = {k: v for k, v in want.items() if v.dtype != torch.float4_e2m1fn_x2}
            loads.append(load(mesh, place, dim, made / name, want))


def loaded(report, folder, loads):
    results = []
    for rank in range(ranks.WORLD):
        file = folder / f"loaded.{rank}.json"
        results.append(json.loads(file.read_text()) if file.exists() else {})
    for one in loads:
        wrong = [
            f"rank {r}: {results[r].get(one['name'], 'did not load')}"
            for r in range(one["ranks"])
            if results[r].get(one["name"], "did not load")
        ]
        report.check(f"ranks load {one['name']}", "; ".join(wrong))
    report.skip(
        "ranks load float4_e2m1fn_x2 into S1 on 4",
        "torch has no fill_ for it, which an empty shard needs",
    )
    for dtype in values.DTYPES:
        if not can_copy(dtype):
            report.skip(f"ranks load {values.dtype_name(dtype)}", "torch has no copy_ for it")
