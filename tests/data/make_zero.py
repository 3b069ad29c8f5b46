# SPDX-License-Identifier: Apache-2.0
"""Makes golden/folders/zero*: what DeepSpeed saves of a small model on two ranks, with listings from DeepSpeed's own tools.

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
CASES = {"zero1_bf16": (1, "bf16"), "zero1_bf16_optimizer": (1, "fp32_gradients"), "zero2": (2, "fp32"), "zero3": (3, "fp32"), "zero2_experts": (2, "experts")}
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

    class WithExperts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(5, 3)
            self.moe = deepspeed.moe.layer.MoE(3, torch.nn.Linear(3, 3, bias=False), num_experts=4, ep_size=2, k=1, min_capacity=0)

        def forward(self, x):
            return self.moe(self.a(x))[0].sum()

    if kind == "experts":
        deepspeed.init_distributed("gloo")
    net = WithExperts() if kind == "experts" else Net()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
    }
    bf16 = kind not in ("fp32", "experts")
    if bf16:
        config["bf16"] = {"enabled": True}
    if kind == "fp32_gradients":  # which BF16_Optimizer does
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    some = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    groups = [{"params": [p for n, p in some if n[0] == "a"]}, {"params": [p for n, p in some if n[0] != "a"]}]
    if kind == "experts":
        groups = deepspeed.moe.utils.split_params_into_different_moe_groups_for_optimizer({"params": [p for _, p in some], "name": "all"})
    engine, *_ = deepspeed.initialize(model=net, model_parameters=groups, config=config)
    for _ in range(2):
        x = torch.full((1, 5), float(os.environ["RANK"]) + 1, dtype=torch.bfloat16 if bf16 else torch.float32)
        engine.backward(engine(x))
        engine.step()
    engine.save_checkpoint(out)


def moments(folder, stage):
    """Joined by hand: DeepSpeed has no tool that gives them without a model."""
    import torch

    optims = [torch.load(f, weights_only=False)["optimizer_state_dict"] for f in sorted(folder.glob("*optim_states.pt"))]
    model = torch.load(sorted(f for f in folder.glob("*model_states.pt") if "_expert_" not in f.name)[0], weights_only=False)
    bases = [o["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]["state"] for o in optims]
    flat, at = {}, 0
    for g, shapes in enumerate(model["param_shapes"]):
        at = at if stage == 3 else 0
        if isinstance(optims[0]["partition_count"], list) and optims[0]["partition_count"][g] != len(optims):
            continue  # experts, which the ranks divide
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


def experts(folder, model):
    """The fp32 weights of what all ranks share, and the experts as they stand in their files."""
    import torch

    optims = [torch.load(f, weights_only=False)["optimizer_state_dict"] for f in sorted(folder.glob("*optim_states.pt"))]
    weights = {}
    for g, shapes in enumerate(model["param_shapes"]):
        if optims[0]["partition_count"][g] != len(optims):
            continue
        whole, at = torch.cat([o["single_partition_of_fp32_groups"][g] for o in optims]), 0
        for name, shape in shapes.items():
            weights[name] = whole[at : at + math.prod(shape)].view(shape)
            at += math.prod(shape)
    for file in folder.glob("*_expert_*"):
        weights |= torch.load(file, weights_only=False)
    return weights


def listing(name, stage):
    sys.path.insert(0, str(HERE.parent / "interop"))
    import states
    import values
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    import torch

    target = FOLDERS / name
    flat, model = moments(target / "global_step2", stage)
    if name == "zero2_experts":
        weights = experts(target / "global_step2", model)
    elif name == "zero1_bf16_optimizer":  # which that function refuses
        weights = model["module"] | by_universal(target / "global_step2")
        weights |= {k: weights[v] for k, v in model["shared_params"].items()}
    else:
        weights = get_fp32_state_dict_from_zero_checkpoint(str(target))
    flat |= {k: v for k, v in model["module"].items() if k not in weights} | weights
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


def by_universal(folder):
    """The weights of trained parameters, as DeepSpeed's own converter joins them."""
    import tempfile

    import torch

    with tempfile.TemporaryDirectory() as temp:
        to_universal(folder, pathlib.Path(temp) / "out")
        files = (pathlib.Path(temp) / "out" / "zero").glob("*/exp_avg.pt")
        return {f.parent.name: torch.load(f.with_name("fp32.pt"), weights_only=False)["param"] for f in files}


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
        env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
        env["DS_ACCELERATOR"] = "cpu"
        args = [sys.executable, __file__, str(stage), kind, str(FOLDERS / name)]
        ranks = [subprocess.Popen(args, env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(2)]
        assert not any(r.wait(timeout=300) for r in ranks)
        for script in (FOLDERS / name).glob("*.py"):
            script.unlink()
        listing(name, stage)
    if not sys.argv[1:]:
        universal()


if __name__ == "__main__":
    if len(sys.argv) > 3:
        train(int(sys.argv[1]), sys.argv[2], sys.argv[3])
    else:
        main()
