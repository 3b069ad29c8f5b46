# SPDX-License-Identifier: Apache-2.0
"""Makes golden/ with PyTorch: small checkpoints, each with NAME.json that says what is in it.

Run it where torch, safetensors and zstandard are installed. A listing has one line for each tensor
(all bytes in hex) and each object (as rsd_value_json prints it), sorted; test_golden.c prints the
same lines from what the library reads. Everything but the order of safetensors' metadata is the
same every time.
"""

import datetime
import pathlib
import pickle
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.distributed.checkpoint import metadata as md  # noqa: E402
from torch.distributed.checkpoint._extension import ZStandard  # noqa: E402
from torch.distributed.checkpoint._nested_dict import flatten_state_dict  # noqa: E402
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter  # noqa: E402

import layouts  # noqa: E402
import ranks  # noqa: E402
import states  # noqa: E402
import torch_io  # noqa: E402
import values  # noqa: E402

GOLDEN = HERE / "golden"
MOST_BYTES, MOST_IN_ALL = 30_000, 400_000


# ---- listings -----------------------------------------------------------------------------------


def expect(name, flat):
    (GOLDEN / f"{name}.json").write_text(values.listing(flat))


def expect_dcp(name, state):
    """Also takes out of the metadata what changes from run to run."""
    expect(name, flatten_state_dict(state)[0])
    for file in (GOLDEN / name).glob("*metadata"):
        meta = pickle.loads(file.read_bytes())
        meta.storage_meta = md.StorageMeta(name, "00000000-0000-4000-8000-000000000000")
        file.write_bytes(pickle.dumps(meta, protocol=4))


# ---- one process --------------------------------------------------------------------------------


def pick(state, *names):
    return {name: state[name] for name in names}


def small_training():
    state = states.training("small")
    del state["optim"]["state"][1], state["optim"]["state"][2], state["model"]["layers.1.weight"]
    state["optim"]["param_groups"][0]["params"] = [0]
    return state


def single():
    everything, scalars, plain = states.every_dtype(), states.scalars_and_empty(), states.objects()
    del scalars["big"]
    del plain["many"], plain["long_text"]
    names = list(everything)
    listed = ["ordered", "int_keys", "deep", "numbers", "same"]
    for name, state, options in [
        ("dcp_dtypes", pick(everything, *names[:13]), {}),
        ("dcp_more_dtypes", pick(everything, *names[13:]), {}),
        ("dcp_scalars", scalars, {"_extensions": [ZStandard()]}),
        ("dcp_noncontiguous", states.noncontiguous(), {}),
        (
            "dcp_objects",
            {k: v for k, v in plain.items() if k not in listed},
            {"_extensions": [ZStandard()]},
        ),
        ("dcp_nested_objects", pick(plain, *listed), {}),
        ("dcp_unknown_objects", states.unknown_objects(), {}),
        ("dcp_items", small_training(), {"single_file_per_rank": False}),
        (
            "dcp_rot13",
            pick(scalars, "six_dims", "one", "none"),
            {"_extensions": [torch_io.Rot13()]},
        ),
    ]:
        dcp.save(state, storage_writer=dcp.FileSystemWriter(GOLDEN / name, **options), no_dist=True)
        expect_dcp(name, state)
    single_files(everything, plain)


def single_files(everything, plain):
    safe = states.safetensors()
    del safe["big"]
    index = {name: 1 + i % 3 for i, name in enumerate(safe)}
    writer = HuggingFaceStorageWriter(str(GOLDEN / "hf_index"), fqn_to_index_mapping=index)
    dcp.save(safe, storage_writer=writer, no_dist=True)
    expect("hf_index", safe)
    safetensors.torch.save_file(safe, GOLDEN / "plain.safetensors", metadata={"format": "pt"})
    expect("plain.safetensors", safe)
    for name, state in [
        ("dtypes.pt", everything),
        ("shared.pt", states.shared_storages()),
        ("overlapping.pt", pick(states.overlapping(), "expanded", "outer", "windows")),
        ("objects.pt", plain),
        ("training.pt", small_training()),
        ("model.bin", states.training()["model"]),
    ]:
        torch.save(state, GOLDEN / name)
        expect(name, states.flatten_as_we_do(state))


# ---- four ranks ---------------------------------------------------------------------------------


def specs(*names):
    known = {s.name: s for s in layouts.ONE_DIM + layouts.TWO_DIMS}
    return [known[name] for name in names]


SHARDED = {
    "dcp_rows": (specs("row", "uneven", "column"), {}),
    "dcp_blocks": (specs("blocks", "nested", "strided"), {}),
    "dcp_replicas": (specs("hsdp", "even_sharded", "even_replicated", "replicated", "scalar"), {}),
    "dcp_empty_shards": (specs("empty_shards", "one_element", "no_rows", "nested_few"), {}),
    "dcp_zstd": (specs("row", "middle", "empty_shards"), {"_extensions": [ZStandard()]}),
    "dcp_threads": (specs("uneven_column", "everywhere"), {"thread_count": 2}),
    "dcp_own_metadata": (specs("row", "nested"), {}),
}
PARTS = specs(
    "row", "column", "uneven", "middle", "blocks", "strided", "hsdp", "empty_shards", "no_rows"
)
BOXES = {"wrapped.boxes_several": torch.float32, "sharded.boxes_uneven": torch.int32}
WHOLE = specs("row", "column", "uneven", "blocks")  # consolidation knows no integers


def worker(rank, meeting):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=ranks.WORLD,
        timeout=datetime.timedelta(seconds=120),
    )
    meshes = ranks.Meshes()
    for name, (tensors, options) in SHARDED.items():
        dcp.save(
            ranks.sharded_state(meshes, tensors),
            use_collectives=name != "dcp_own_metadata",
            storage_writer=dcp.FileSystemWriter(GOLDEN / name, **options),
        )
    dcp.save(
        pick(ranks.box_state(rank, meshes), *BOXES),
        storage_writer=dcp.FileSystemWriter(GOLDEN / "dcp_boxes"),
    )
    for name, tensors, options in [
        ("hf_parts", PARTS, {}),
        ("hf_consolidated", WHOLE, {"enable_consolidation": True}),
    ]:
        writer = HuggingFaceStorageWriter(str(GOLDEN / name), save_distributed=True, **options)
        dcp.save(ranks.sharded_state(meshes, tensors), storage_writer=writer)
    dist.destroy_process_group()


def sharded():
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(worker, args=(f"{folder}/meeting",), nprocs=ranks.WORLD)
    for name, (tensors, _) in SHARDED.items():
        expect_dcp(name, {s.name: s.full() for s in tensors})
    expect_dcp(
        "dcp_boxes",
        {
            name: values.make(name, dtype, layouts.BOXES[name.split(".")[1]][0])
            for name, dtype in BOXES.items()
        },
    )
    expect("hf_parts", {s.name: s.full() for s in PARTS})
    expect("hf_consolidated", {s.name: s.full() for s in WHOLE})
    shutil.rmtree(GOLDEN / "hf_consolidated" / "sharded")


def check_sizes():
    total = 0
    for entry in sorted(GOLDEN.iterdir()):
        size = (
            sum(f.stat().st_size for f in entry.rglob("*"))
            if entry.is_dir()
            else entry.stat().st_size
        )
        total += size
        assert size < MOST_BYTES, (entry.name, size)
        print(f"{size:6} {entry.name}")
    assert total < MOST_IN_ALL, total
    print(f"{total:6} in all")


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir()
    single()
    sharded()
    check_sizes()
