# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed judges the universal form that reshard writes: a training of two ranks, saved after five steps, goes on with one and with
four ranks, from our conversion and from DeepSpeed's own. Their files hold the same tensors, and their losses are the same. So do
the experts of a Mixtral, which two ranks divide (AutoEP): after resuming four ranks divide them, and then one has all.

    python -m venv v && v/bin/pip install torch==2.13.0 safetensors transformers deepspeed==0.19.8
    v/bin/python universal.py RESHARD [CASE]...

Runs on any CPU, some minutes; needs no compiler. Run by hand.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

CASES = {
    "stage 3": (3, "fp32"),
    "stage 2": (2, "bf16"),
    "BF16_Optimizer": (1, "fp32_gradients"),
    "experts, stage 1": (1, "experts"),
    "experts, stage 3": (3, "experts"),
}


def dense(torch):
    """One group of parameters, of which every rank has a part."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16, bias=False), torch.nn.Linear(16, 1))
    net[2].weight.requires_grad = False
    net.register_buffer("buf", torch.arange(4.0))
    net.__dict__["universal_checkpoint_info"] = {"universal_checkpoint_version": 0.2}  # ds_to_universal wants it
    return net


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = dict(vocab_size=65, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_local_experts=4)
    return MixtralForCausalLM(MixtralConfig(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, **sizes))


def rank(stage, kind, mode, folder, steps):
    """One rank; the environment says which."""
    import deepspeed
    import torch

    deepspeed.ops.__compatible_ops__.clear()
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world, me = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    net = mixtral() if kind == "experts" else dense(torch)
    config = {
        "train_batch_size": 4,
        "train_micro_batch_size_per_gpu": 4 // world,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 6, "warmup_max_lr": 0.01}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "checkpoint": {"load_universal": mode == "resume"},
    }
    if kind == "experts":
        config["expert_parallel"] = {"enabled": True, "autoep_size": world, "preset_model": "mixtral", "use_grouped_mm": False}
    elif kind != "fp32":
        config["bf16"] = {"enabled": True}
    if kind == "fp32_gradients":
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    trained = [p for p in net.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(model=net, model_parameters=trained, config=config)
    if mode == "resume":
        engine.load_checkpoint(folder)
    draw = torch.Generator().manual_seed(1)
    xs, ys = torch.randn(20, 4, 8, generator=draw), torch.randn(20, 4, 1, generator=draw)
    mine, losses = slice(me * 4 // world, (me + 1) * 4 // world), []
    for i in range(engine.global_steps, engine.global_steps + steps):
        if kind == "experts":
            ids = (torch.arange(8) * (i + 1) % 65).repeat(4 // world, 1)
            loss = engine(input_ids=ids, labels=ids).loss
        else:
            x = xs[i, mine] if kind == "fp32" else xs[i, mine].bfloat16()
            loss = ((engine(x).float() - ys[i, mine]) ** 2).mean()
        engine.backward(loss)
        engine.step()
        loss = loss.detach().clone()
        torch.distributed.all_reduce(loss)
        losses.append(float(loss / world))
        if mode == "save" and i == 4:
            engine.save_checkpoint(folder)
    if me == 0:
        print("LOSSES", json.dumps(losses), flush=True)


def run(world, *args):
    env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(random.randint(20000, 40000)), "WORLD_SIZE": str(world)}
    env |= {"DS_ACCELERATOR": "cpu", "LOCAL_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--rank", *map(str, args)]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [subprocess.Popen(command, env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}, **pipe) for r in range(world)]
    outs = [r.communicate(timeout=300)[0] for r in ranks]
    line = [line for line in outs[0].splitlines() if line.startswith("LOSSES")]
    assert line, outs[0][-2000:]
    return json.loads(line[0].split(" ", 1)[1])


def compare(ours, theirs):
    """All that DeepSpeed's tool wrote is in ours; frozen parameters and steps may be there in addition."""
    import torch

    files = sorted(theirs.glob("zero/*/*.pt"))
    assert files
    for file in files:
        a = torch.load(file, weights_only=False)
        b = torch.load(ours / file.relative_to(theirs), weights_only=True)
        if file.name == "step.pt":
            assert a == b, file
            continue
        x, y = a["param"] if isinstance(a, dict) else a, b["param"]
        assert torch.equal(x.flatten(), y.flatten().to(x.dtype)), file
        assert not isinstance(a, dict) or x.shape == y.shape, file
        about = {k: v for k, v in a.items() if k != "param"} if isinstance(a, dict) else {}
        assert {"cat_dim": 0} | about == {k: v for k, v in b.items() if k != "param"}, file
    return len(files)


def judge(reshard, name, stage, kind, temp):
    saved, ours, theirs = temp / "saved", temp / "ours", temp / "theirs"
    whole = run(2, stage, kind, "save", saved, 8)
    subprocess.run([reshard, "convert", "-q", saved, ours, "--to", "universal"], check=True, stderr=subprocess.DEVNULL)
    tool = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", saved / "global_step5"]
    tool += ["--output_folder", theirs / "step5", "--num_extract_workers", "1", "--num_merge_workers", "1"]
    env = os.environ | {"DS_ACCELERATOR": "cpu"}
    subprocess.run(tool, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    files = compare(ours, theirs / "step5")
    for world in (1, 4):
        got, want = (run(world, stage, kind, "resume", folder, 3) for folder in (ours, theirs))
        assert got == want, (world, got, want)
        assert all(abs(a - b) < 1e-3 for a, b in zip(got, whole[5:])), (world, got, whole)
    print(f"{name}: {files} files with the same tensors, the same losses on 1 and on 4 ranks", flush=True)


def main():
    for name in sys.argv[2:] or CASES:
        stage, kind = CASES[name]
        with tempfile.TemporaryDirectory() as temp:
            judge(sys.argv[1], name, stage, kind, pathlib.Path(temp))


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank(int(sys.argv[2]), *sys.argv[3:6], int(sys.argv[6]))
    else:
        main()
