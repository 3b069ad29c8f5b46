# SPDX-License-Identifier: Apache-2.0
"""Makes golden/folders/zero*: what DeepSpeed saves of a small model on two or four ranks, with listings from DeepSpeed's own tools.

    python -m venv v && v/bin/pip install torch==2.13.0 safetensors deepspeed==0.19.8 && v/bin/python make_zero.py [CASE]...

Runs on any CPU; deepspeed builds nothing. Run by hand, never in CI.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = HERE / "golden" / "folders"
CASES = {
    "zero1_bf16": (1, "bf16"),
    "zero1_bf16_optimizer": (1, "fp32_gradients"),
    "zero2": (2, "fp32"),
    "zero3": (3, "fp32"),
    "zero2_experts": (2, "experts"),
    "zero1_parallel": (1, "parallel"),
    "zero3_parallel": (3, "parallel"),
    "zero1_pipeline": (1, "pipeline"),
}
RANKS = {"experts": 4, "parallel": 4, "pipeline": 4}  # of which pairs divide the experts, or the parameters, or are a stage
SHAPES = {"embed": (10, 3), "column": (6, 3), "row": (3, 6), "norm": (3,), "average": (5,), "halves": (8, 3), "qkv": (8, 3), "frozen": (4, 3)}
CUTS = {
    "universal_checkpoint_version": 0.2,
    "tp_replicated_parameter_patterns": [r"norm\.weight"],
    "parameter_to_average_patterns": [r".*rage.weight$"],
    "parameter_with_row_parallelism_patterns": [r"r\w+\.weight"],
    "vocabulary_parameter_patterns": [r"^embed\.weight$"],
    "parameter_with_2_sub_params_cat_dim_0": [r"[a-h]+alves.weight"],
    "parameter_with_sub_params": [{"patterns": [r"qkv.weight"], "shape": ((4, 2, 2), 3), "partition_dim": 0}],
    "original_vocab_size": 9,
}
SHARDED = ("base_optimizer_state", "optimizer_state_dict", "single_partition_of_fp32_groups", "fp32_flat_groups", "param_slice_mappings")


def train(stage, kind, out):
    """One rank; the environment says which."""
    import deepspeed
    import torch

    deepspeed.ops.__compatible_ops__.clear()
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(5, 7)
            self.b = torch.nn.Linear(7, 3, bias=False)
            self.frozen = torch.nn.Linear(3, 2, bias=False)
            self.frozen.weight.requires_grad = False
            self.tied = torch.nn.Linear(7, 3, bias=False)
            self.tied.weight = self.b.weight
            self.register_buffer("buf", torch.arange(4.0))

        def forward(self, x):
            h = self.a(x)
            return self.frozen(self.b(h)).sum() + self.tied(h).sum()

    class Scaled(torch.nn.Module):
        def __init__(self, weight, trained):
            super().__init__()
            self.weight = torch.nn.Parameter(weight.clone().contiguous(), requires_grad=trained)

        def forward(self, x):
            return (self.weight * x).sum()

    class Parallel(torch.nn.ModuleDict):
        """Parameters of which this tensor-parallel rank has a slice."""

        def __init__(self):
            super().__init__({k: Scaled(slice_of(k, torch.rand(shape)), k != "frozen") for k, shape in SHAPES.items()})
            self.register_buffer("buf", torch.arange(4.0))

        def forward(self, x):
            return sum(part((i + 1) * x) for i, part in enumerate(self.values()))

    def slice_of(name, whole):
        r = int(os.environ["RANK"]) % 2
        if name in ("norm", "average"):
            return whole
        if name == "row":
            return whole.chunk(2, 1)[r]
        parts = whole.chunk(2) if name == "halves" else whole.split([4, 2, 2]) if name == "qkv" else [whole]
        return torch.cat([part.chunk(2)[r] for part in parts])

    class Groups:
        """What Megatron's mpu has: ranks 0 and 1 cut parameters, and so do 2 and 3."""

        def __init__(self):
            me = int(os.environ["RANK"])
            model = [torch.distributed.new_group([0, 1]), torch.distributed.new_group([2, 3])][me // 2]
            data = [torch.distributed.new_group([0, 2]), torch.distributed.new_group([1, 3])][me % 2]
            for prefix in ("model_parallel", "tensor_model_parallel", "data_parallel"):
                group, rank = (data, me // 2) if prefix == "data_parallel" else (model, me % 2)
                setattr(self, f"get_{prefix}_group", lambda group=group: group)
                setattr(self, f"get_{prefix}_rank", lambda rank=rank: rank)
                setattr(self, f"get_{prefix}_world_size", lambda: 2)

    class WithExperts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(5, 3)
            self.moe = deepspeed.moe.layer.MoE(3, torch.nn.Linear(3, 3, bias=False), num_experts=4, ep_size=2, k=1, min_capacity=0)

        def forward(self, x):
            return self.moe(self.a(x))[0].sum()

    class Layer(torch.nn.Module):
        """Of a pipeline; the first has a frozen parameter."""

        def __init__(self, width, height):
            super().__init__()
            self.linear = torch.nn.Linear(width, height)
            self.frozen = torch.nn.Linear(height, height, bias=False) if width == 5 else None
            if self.frozen:
                self.frozen.weight.requires_grad = False
            self.register_buffer("buf", torch.arange(3.0) + width)

        def forward(self, x):
            x = self.linear(x) + self.buf.sum()
            return self.frozen(x) if self.frozen else x

    def pipeline():
        """Layers 0 and 4 are tied, layer 2 has no parameters."""
        from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec

        tied = TiedLayerSpec("embed", torch.nn.Linear, 5, 5, bias=False)
        layers = [tied, LayerSpec(Layer, 5, 7), torch.nn.functional.relu, LayerSpec(Layer, 7, 5), tied]
        return PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss, partition_method="uniform")

    if kind in RANKS:
        deepspeed.init_distributed("gloo")
    groups = None
    if kind == "parallel":
        net, groups = Parallel(), Groups()
        net.__dict__["universal_checkpoint_info"] = CUTS
    else:
        net = WithExperts() if kind == "experts" else pipeline() if kind == "pipeline" else Net()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
    }
    bf16 = kind not in ("fp32", *RANKS)
    if bf16:
        config["bf16"] = {"enabled": True}
    if kind == "fp32_gradients":  # which BF16_Optimizer does
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    some = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    parameters = [{"params": [p for n, p in some if n[0] == "a"]}, {"params": [p for n, p in some if n[0] != "a"]}]
    if kind == "experts":
        split = deepspeed.moe.utils.split_params_into_different_moe_groups_for_optimizer
        parameters = split({"params": [p for _, p in some], "name": "all"})
    elif kind in RANKS:
        parameters = [p for _, p in some]
    engine, *_ = deepspeed.initialize(model=net, model_parameters=parameters, config=config, mpu=groups)
    if kind == "pipeline":
        for _ in range(2):
            engine.train_batch(data_iter=iter([(torch.full((1, 5), 1.0 + i), torch.ones(1, 5)) for i in range(2)]))
        return engine.save_checkpoint(out)
    for _ in range(2):
        x = torch.full((1, 5), float(os.environ["RANK"]) + 1, dtype=torch.bfloat16 if bf16 else torch.float32)
        x = (x[0, 0] + 1) // 2 if kind == "parallel" else x  # the same on ranks that cut parameters
        engine.backward(engine(x))
        engine.step()
    engine.save_checkpoint(out)


def read(folder):
    """The optimizer files and the first model file."""
    import torch

    optims = [torch.load(f, weights_only=False)["optimizer_state_dict"] for f in sorted(folder.glob("*optim_states.pt"))]
    model = torch.load(sorted(f for f in folder.glob("*model_states.pt") if "_expert_" not in f.name)[0], weights_only=False)
    return optims, model


def moments(folder, stage):
    """Joined by hand: DeepSpeed has no tool that gives them without a model."""
    import torch

    optims, model = read(folder)
    bases = [o["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]["state"] for o in optims]
    flat, at = {}, 0
    for g, shapes in enumerate(model["param_shapes"]):
        at = at if stage == 3 else 0
        for name, shape in shapes.items():
            n = math.prod(shape)
            part = math.ceil(n / len(optims))
            for key, value in bases[0][0].items():
                if value.dim() == 0:
                    flat[f"optim.state.{name}.{key}"] = bases[0][0 if stage == 3 else g][key]
                    continue
                if stage == 3:
                    whole = torch.cat([torch.cat([b[i][key] for i in sorted(b)])[at : at + part] for b in bases])[:n]
                else:
                    whole = torch.cat([b[g][key] for b in bases])[at : at + n]
                flat[f"optim.state.{name}.{key}"] = whole.view(shape)
            at += part if stage == 3 else n
    return flat, model


def experts(folder):
    """Ranks 0 and 2 have the experts 0 and 1, under the names that they have on each rank; ranks 1 and 3 the others."""
    import torch

    optims, model = read(folder)
    flat = {}
    for g, shapes in enumerate(model["param_shapes"]):
        divided = optims[0]["partition_count"][g] != len(optims)
        for owner, ranks in enumerate([optims[0::2], optims[1::2]] if divided else [optims]):
            states = [o["base_optimizer_state"]["state"][g] for o in ranks]
            vectors = {k: torch.cat([s[k] for s in states]) for k in ("exp_avg", "exp_avg_sq")}
            vectors["fp32"] = torch.cat([o["single_partition_of_fp32_groups"][g] for o in ranks])
            at = 0
            for name, shape in shapes.items():
                for i in range(2) if divided else []:
                    name = name.replace(f"experts.{i}.", f"experts.+{i + 2 * owner}.")
                name = name.replace("+", "")
                for key, vector in vectors.items():
                    tensor = vector[at : at + math.prod(shape)].view(shape)
                    flat[name if key == "fp32" else f"optim.state.{name}.{key}"] = tensor
                flat[f"optim.state.{name}.step"] = states[0]["step"]
                at += math.prod(shape)
    for file in folder.glob("*_expert_*"):  # which have the same
        assert all(torch.equal(flat[k], v) for k, v in torch.load(file, weights_only=False).items())
    return flat, model


def pipeline(folder):
    """Each stage has vectors of its own; layers' files have what is not trained, and copies of what is tied."""
    import torch

    flat = {}
    for stage in range(2):
        model = torch.load(folder / f"mp_rank_0{stage}_model_states.pt", weights_only=False)
        files = [folder / f"zero_pp_rank_{r}_mp_rank_0{stage}_optim_states.pt" for r in range(2)]
        optims = [torch.load(f, weights_only=False)["optimizer_state_dict"] for f in files]
        states = [o["base_optimizer_state"]["state"][0] for o in optims]
        vectors = {k: torch.cat([s[k] for s in states]) for k in ("exp_avg", "exp_avg_sq")}
        vectors["fp32"] = torch.cat([o["single_partition_of_fp32_groups"][0] for o in optims])
        at = 0
        for name, shape in model["param_shapes"][0].items():
            for key, vector in vectors.items():
                flat[name if key == "fp32" else f"optim.state.{name}.{key}"] = vector[at : at + math.prod(shape)].view(shape)
            flat[f"optim.state.{name}.step"] = states[0]["step"]
            at += math.prod(shape)
    for file in sorted(folder.glob("layer_*")):
        layer = int(file.name.split("-")[0].removeprefix("layer_"))
        for key, tensor in torch.load(file, weights_only=False).items():
            same = flat.setdefault(f"{layer}.{key}", tensor)
            assert torch.equal(same, tensor)
    return flat, torch.load(folder / "mp_rank_00_model_states.pt", weights_only=False)


def parallel(folder, stage):
    """By DeepSpeed's converter; what is frozen it takes from the first rank alone."""
    import torch

    files = sorted(folder.glob("*model_states.pt"))
    models = [torch.load(f, weights_only=False) for f in files]
    flat = {"buf": models[0]["module"]["buf"]}
    if stage == 3:
        parts = {f.name: m["frozen_param_fragments"]["frozen.weight"] for f, m in zip(files, models)}
        flat["frozen.weight"] = torch.cat([parts[f"zero_pp_rank_{d}_mp_rank_0{r}_model_states.pt"] for r in range(2) for d in range(2)]).view(4, 3)
    else:
        flat["frozen.weight"] = torch.cat([m["module"]["frozen.weight"] for m in models])
    states = read(folder)[0][0]["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]["state"]
    for name, keys in universal_files(folder).items():
        for key, tensor in keys.items() if "exp_avg" in keys else []:
            flat[name if key == "fp32" else f"optim.state.{name}.{key}"] = tensor
            flat[f"optim.state.{name}.step"] = states[0]["step"]
    return flat, models[0]


def listing(name, stage):
    sys.path.insert(0, str(HERE.parent / "interop"))
    import states
    import values
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    import torch

    target = FOLDERS / name
    weights = {}
    if name.endswith("parallel"):
        flat, model = parallel(target / "global_step2", stage)
    elif name == "zero2_experts":
        flat, model = experts(target / "global_step2")
    elif name == "zero1_pipeline":
        flat, model = pipeline(target / "global_step2")
        model["module"] = {}
    else:
        flat, model = moments(target / "global_step2", stage)
        weights = get_fp32_state_dict_from_zero_checkpoint(str(target)) if name != "zero1_bf16_optimizer" else {}
    if name == "zero1_bf16_optimizer":  # which that function refuses
        weights = model["module"] | by_universal(target / "global_step2")
        weights |= {k: weights[v] for k, v in model["shared_params"].items()}
    flat |= weights
    flat |= {k: v for k, v in model["module"].items() if k not in flat}
    used = ("module", "param_shapes", "buffer_names", "frozen_param_shapes", "frozen_param_fragments", "shared_params")
    rest = {k: v for k, v in model.items() if k not in (*used, "optimizer")}
    flat |= states.flatten_as_we_do({"deepspeed": rest})
    optim = torch.load(sorted((target / "global_step2").glob("*optim_states.pt"))[0], weights_only=False)["optimizer_state_dict"]
    groups = optim["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]["param_groups"]
    flat |= states.flatten_as_we_do({"optim": {k: v for k, v in optim.items() if k not in SHARDED} | {"param_groups": groups}})
    (FOLDERS / f"{name}.json").write_text(values.listing(flat))


def to_universal(folder, out):
    args = ["--input_folder", str(folder), "--output_folder", str(out), "--inject_missing_state"]
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", *args], check=True)


def universal_files(folder):
    """{parameter: {key: tensor}} as DeepSpeed's own converter joins them."""
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as temp:
        to_universal(folder, pathlib.Path(temp) / "out")
        found = {}
        for file in (pathlib.Path(temp) / "out" / "zero").glob("*/*.pt"):
            value = torch.load(file, weights_only=False)
            if file.stem in ("fp32", "exp_avg", "exp_avg_sq"):
                found.setdefault(file.parent.name, {})[file.stem] = value["param"] if isinstance(value, dict) else value
        return found


def by_universal(folder):
    """The weights of trained parameters."""
    return {name: keys["fp32"] for name, keys in universal_files(folder).items() if "exp_avg" in keys}


def universal():
    """By DeepSpeed's own converter; frozen parameters don't go along."""
    target = FOLDERS / "zero_universal"
    shutil.rmtree(target, ignore_errors=True)
    to_universal(FOLDERS / "zero3" / "global_step2", target / "global_step2_universal")
    lines = (FOLDERS / "zero3.json").read_text().splitlines()
    names = [json.loads(line)["name"] for line in lines]
    kept = [line for name, line in zip(names, lines) if not name.startswith("frozen.")]
    (FOLDERS / "zero_universal.json").write_text("".join(line + "\n" for line in kept))


def main():
    for port, (name, (stage, kind)) in enumerate(CASES.items(), 29500):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        shutil.rmtree(FOLDERS / name, ignore_errors=True)
        count = RANKS.get(kind, 2)
        env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "LOCAL_SIZE": str(count)}
        env["DS_ACCELERATOR"] = "cpu"
        args = [sys.executable, __file__, str(stage), kind, str(FOLDERS / name)]
        ranks = [subprocess.Popen(args, env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(count)]
        assert not any(r.wait(timeout=300) for r in ranks)
        for script in (FOLDERS / name).glob("*.py"):
            script.unlink()
        listing(name, stage)
    if not sys.argv[1:]:
        universal()


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].isdigit():
        train(int(sys.argv[1]), sys.argv[2], sys.argv[3])
    else:
        main()
