# SPDX-License-Identifier: Apache-2.0
"""What the trainers do: each case writes its library's own checkpoint on as many ranks as it needs.

run.py starts one process for each rank: PYTHON jobs.py CASE FOLDER, with RANK and its like in the environment. Rank 0 leaves
FOLDER/want.safetensors, the live tensors under the names that reshard is to give them; what a library can't do here ends with
code 77 and the reason.
"""

import os
import pathlib
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file

SKIP = 77


class Skip(Exception):
    pass


def rank():
    return int(os.environ["RANK"])


def whole(tensor):
    """All of a DTensor, as a copy; collective."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone().contiguous()


def wholes(state, prefix=""):
    return {prefix + name: whole(t) for name, t in state.items() if isinstance(t, torch.Tensor)}


class Net(torch.nn.Module):
    """Uneven on two ranks, with a buffer, a tie and a frozen parameter."""

    def __init__(self, ties=True):
        super().__init__()
        self.a = torch.nn.Linear(5, 7)
        self.b = torch.nn.Linear(7, 3, bias=False)
        self.frozen = torch.nn.Linear(3, 3, bias=False)
        self.frozen.weight.requires_grad = False
        self.register_buffer("buf", torch.arange(4.0))
        if ties:
            self.tied = torch.nn.Linear(7, 3, bias=False)
            self.tied.weight = self.b.weight

    def forward(self, x):
        h = self.a(x)
        return self.frozen(self.b(h)).sum() + (self.tied(h).sum() if hasattr(self, "tied") else 0)


def small_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = dict(vocab_size=65, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, **sizes))


def two_ranks():
    from torch.distributed.device_mesh import init_device_mesh

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))


def fully_sharded(net, mesh):
    from torch.distributed.fsdp import fully_shard

    fully_shard(net, mesh=mesh)
    return net


def trained(net):
    """Two steps of Adam; the optimizer too."""
    optim = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for step in range(2):
        net(torch.full((1, 5), float(rank() + step + 1))).sum().backward()
        optim.step()
        optim.zero_grad()
    return net, optim


def optimizer_state(net, optim):
    """The tensors of an optimizer by torch's names: state.<parameter>.<key>."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    state = get_optimizer_state_dict(net, optim)["state"]
    return {f"state.{name}.{key}": t for name, keys in state.items() for key, t in keys.items()}


# ---- Hugging Face -------------------------------------------------------------------------------


def transformers_safetensors(folder):
    model = small_llama()
    model.save_pretrained(folder / "ckpt", max_shard_size="20KB")
    return wholes(model.state_dict())


def transformers_bfloat16_tied(folder):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=65, n_embd=16, n_layer=2, n_head=2, n_positions=16)).bfloat16()
    model.save_pretrained(folder / "ckpt")
    kept = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight"}  # tied: written once
    return wholes(kept)


def transformers_bin(folder):
    """save_pretrained wrote these up to version 4; the function that cuts them is the hub's."""
    model = small_llama()
    (folder / "ckpt").mkdir()
    try:
        model.save_pretrained(folder / "ckpt", safe_serialization=False, max_shard_size="20KB")
        old = list((folder / "ckpt").glob("*.bin"))
    except (TypeError, ValueError):
        old = []
    if not old:
        from huggingface_hub import save_torch_state_dict

        for file in (folder / "ckpt").iterdir():
            file.unlink()
        model.config.save_pretrained(folder / "ckpt")
        save_torch_state_dict(model.state_dict(), folder / "ckpt", safe_serialization=False, max_shard_size=20000)
    return wholes(model.state_dict())


def transformers_distributed(folder):
    """Each rank writes its part of an FSDP2 model as safetensors."""
    import inspect

    from transformers import PreTrainedModel

    if "distributed_checkpoint" not in inspect.signature(PreTrainedModel.save_pretrained).parameters:
        raise Skip("this transformers has no save_pretrained(distributed_checkpoint=True)")
    from transformers.distributed import DistributedConfig

    mesh = two_ranks()
    model = fully_sharded(small_llama(), mesh)
    model._device_mesh = mesh  # as from_pretrained leaves it, which has to find a GPU first
    model.config.distributed_config = DistributedConfig(fsdp_size=2)
    model.save_pretrained(folder / "ckpt", distributed_checkpoint=True)
    return wholes(model.state_dict())


def accelerate_fsdp2(folder, dcp):
    """By the functions that Accelerator.save_state calls for SHARDED_STATE_DICT; Accelerator itself wants a GPU for FSDP."""
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin, merge_fsdp_weights, save_fsdp_model, save_fsdp_optimizer

    accelerator = Accelerator(cpu=True)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="SHARDED_STATE_DICT")
    net, optim = trained(fully_sharded(Net(ties=False), two_ranks()))
    save_fsdp_model(plugin, accelerator, net, folder / "ckpt", use_dcp=dcp)
    save_fsdp_optimizer(plugin, accelerator, optim, net, folder / "ckpt", use_dcp=dcp)
    if not dcp:
        moments = wholes(optimizer_state(net, optim), "optimizer_0.")
        return wholes(net.state_dict(), "pytorch_model_fsdp_0.") | moments
    want = wholes(net.state_dict(), "model.")
    dist.barrier()
    if rank() == 0:
        (folder / "ckpt").rename(folder / "state")
        (folder / "state" / "pytorch_model_fsdp_0").rename(folder / "ckpt")
    dist.barrier()
    merge_fsdp_weights(str(folder / "ckpt"), str(folder / "oracle"))
    return want


# ---- Lightning ----------------------------------------------------------------------------------


def lightning_model_parallel(folder):
    import lightning
    from lightning.fabric.strategies import ModelParallelStrategy

    strategy = ModelParallelStrategy(parallelize_fn=fully_sharded_by_lightning, data_parallel_size=2, tensor_parallel_size=1)
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy=strategy)
    fabric.launch()
    net = fabric.setup_module(Net(ties=False))
    optim = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.1)
    optim = fabric.setup_optimizers(optim)
    for step in range(2):
        fabric.backward(net(torch.full((1, 5), float(rank() + step + 1))))
        optim.step()
        optim.zero_grad()
    fabric.save(folder / "ckpt", {"model": net, "optimizer": optim, "step": 3})
    moments = optimizer_state(net.module, optim.optimizer)
    return wholes(net.module.state_dict(), "model.") | wholes(moments, "optimizer.")


def fully_sharded_by_lightning(module, mesh):
    return fully_sharded(module, mesh["data_parallel"])


def lightning_trainer(folder):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch):
            return self.net(batch)

        def configure_optimizers(self):
            return torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=0.1)

    module = Module()
    data = torch.utils.data.DataLoader(torch.rand(4, 5))
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=2, default_root_dir=folder, **quiet)
    trainer.fit(module, data)
    trainer.save_checkpoint(folder / "ckpt")
    state = trainer.optimizers[0].state_dict()["state"]
    moments = {f"optimizer_states.0.state.{i}.{k}": whole(v) for i, s in state.items() for k, v in s.items()}
    return wholes(module.state_dict(), "state_dict.") | moments


# ---- DeepSpeed ----------------------------------------------------------------------------------


def deepspeed_stage(folder, stage, bf16=False):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    deepspeed.ops.__compatible_ops__.clear()
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # nothing is compiled
    torch.manual_seed(0)
    net = Net()
    frozen = wholes({"frozen.weight": net.frozen.weight})
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
    }
    if bf16:
        config["bf16"] = {"enabled": True}
        frozen = {k: v.bfloat16() for k, v in frozen.items()}  # they have no fp32 copy
    engine, *_ = deepspeed.initialize(model=net, model_parameters=[p for p in net.parameters() if p.requires_grad], config=config)
    for step in range(2):
        engine.backward(engine(torch.full((1, 5), rank() + 1.0, dtype=torch.bfloat16 if bf16 else torch.float32)))
        engine.step()
    engine.save_checkpoint(folder / "ckpt")
    dist.barrier()
    want = {"buf": whole(net.buf)} | frozen
    for name, p in engine.module.named_parameters():
        if p.requires_grad:
            want[name] = safe_get_full_fp32_param(p).detach().clone()
            for key in ("exp_avg", "exp_avg_sq"):
                want[f"optim.state.{name}.{key}"] = safe_get_full_optimizer_state(p, key).clone()
    want["tied.weight"] = want["b.weight"].clone()
    if rank() == 0:
        oracle = get_fp32_state_dict_from_zero_checkpoint(str(folder / "ckpt"))
        (folder / "oracle").mkdir()
        save_file({k: v.clone().contiguous() for k, v in oracle.items()}, folder / "oracle" / "model.safetensors")
    return want


def deepspeed_universal(folder):
    """What DeepSpeed's converter makes of stage 3; frozen parameters don't go along."""
    import subprocess

    want = deepspeed_stage(folder, 3)
    if rank() == 0:
        (folder / "ckpt").rename(folder / "zero")
        (folder / "oracle").rename(folder / "whole")
        step = (folder / "zero" / "latest").read_text()
        args = ["--input_folder", folder / "zero" / step, "--output_folder", folder / "ckpt" / f"{step}_universal"]
        subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", *map(str, args)], check=True)
    return {k: v for k, v in want.items() if k.startswith(("a.", "b.", "optim.state.a", "optim.state.b"))}


def small_mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    sizes = dict(vocab_size=65, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_local_experts=4)
    return MixtralForCausalLM(MixtralConfig(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, **sizes))


def deepspeed_automatic(folder, stage, experts):
    """A Llama that DeepSpeed itself cuts over two ranks, or a Mixtral whose experts it divides; joined by its own converter."""
    import subprocess

    import deepspeed

    deepspeed.ops.__compatible_ops__.clear()
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    model = small_mixtral() if experts else small_llama()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
    }
    if experts:
        config["expert_parallel"] = {"enabled": True, "autoep_size": 2, "preset_model": "mixtral", "use_grouped_mm": False}
    else:
        config["tensor_parallel"] = {"autotp_size": 2}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=config)
    shapes = {name: getattr(p, "ds_shape", p.shape) for name, p in engine.module.named_parameters()}
    ids = torch.arange(8).view(1, 8)
    for _ in range(2):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    engine.save_checkpoint(folder / "ckpt")
    dist.barrier()
    want = {}
    if rank() == 0:
        step = (folder / "ckpt" / "latest").read_text()
        args = ["--input_folder", folder / "ckpt" / step, "--output_folder", folder / "universal"]
        subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", *map(str, args)], check=True)
        for file in (folder / "universal" / "zero").glob("*/*.pt"):
            name, key = file.parent.name, file.stem
            if key in ("fp32", "exp_avg", "exp_avg_sq"):
                tensor = torch.load(file, weights_only=False)
                tensor = tensor["param"] if isinstance(tensor, dict) else tensor.view(shapes[name])
                want[name if key == "fp32" else f"optim.state.{name}.{key}"] = tensor
    return want


def deepspeed_experts(folder):
    """Four experts, which pairs of four ranks divide."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    deepspeed.ops.__compatible_ops__.clear()
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)

    class WithExperts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(5, 3)
            self.moe = deepspeed.moe.layer.MoE(3, torch.nn.Linear(3, 3), num_experts=4, ep_size=2, k=1, min_capacity=0)

        def forward(self, x):
            return self.moe(self.a(x))[0].sum()

    net = WithExperts()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    }
    split = deepspeed.moe.utils.split_params_into_different_moe_groups_for_optimizer
    groups = split({"params": list(net.parameters()), "name": "all"})
    engine, *_ = deepspeed.initialize(model=net, model_parameters=groups, config=config)
    for step in range(2):
        engine.backward(engine(torch.full((1, 5), rank() + step + 1.0)))
        engine.step()
    engine.save_checkpoint(folder / "ckpt")
    mine = {}
    for name, p in engine.module.named_parameters():
        for i in range(2) if "deepspeed_experts" in name else ():  # each rank counts its own from 0
            name = name.replace(f"experts.{i}.", f"experts.+{i + 2 * (rank() % 2)}.")
        name = name.replace("+", "")
        mine[name] = safe_get_full_fp32_param(p).detach().clone()
    all_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, mine)
    return {k: v for part in all_ranks for k, v in part.items()}


class Layer(torch.nn.Module):
    """Of a pipeline: with a buffer and a frozen parameter."""

    def __init__(self, width, height):
        super().__init__()
        self.linear = torch.nn.Linear(width, height)
        self.frozen = torch.nn.Linear(height, height, bias=False)
        self.frozen.weight.requires_grad = False
        self.register_buffer("buf", torch.arange(3.0) + width)

    def forward(self, x):
        return self.frozen(self.linear(x)) + self.buf.sum()


def deepspeed_pipeline(folder, bf16=False):
    """Two stages of two ranks; the first and the last layer are tied, the one in the middle has no parameters."""
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    deepspeed.ops.__compatible_ops__.clear()
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    tied = TiedLayerSpec("embed", torch.nn.Linear, 5, 5, bias=False)
    layers = [tied, LayerSpec(Layer, 5, 7), torch.nn.functional.relu, LayerSpec(Layer, 7, 5), tied]
    net = PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss, partition_method="uniform")
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": bf16},
    }
    engine, *_ = deepspeed.initialize(model=net, model_parameters=[p for p in net.parameters() if p.requires_grad], config=config)
    dtype = torch.bfloat16 if bf16 else torch.float32
    for step in range(2):
        batch = [(torch.full((1, 5), i + step + 1.0, dtype=dtype), torch.ones(1, 5, dtype=dtype)) for i in range(2)]
        engine.train_batch(data_iter=iter(batch))
    engine.save_checkpoint(folder / "ckpt")
    mine = wholes(dict(engine.module.named_buffers()))
    for name, p in engine.module.named_parameters():
        if not p.requires_grad:
            mine[name] = whole(p)
            continue
        mine[name] = safe_get_full_fp32_param(p).detach().clone()
        for key in ("exp_avg", "exp_avg_sq"):
            mine[f"optim.state.{name}.{key}"] = safe_get_full_optimizer_state(p, key).clone()
    all_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(all_ranks, mine)
    return {k: v for part in all_ranks for k, v in part.items()}


# ---- Megatron -----------------------------------------------------------------------------------


def megatron_torch_dist(folder):
    """Weights cut by columns, rows and layers, as its tensor-parallel layers declare them."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor

    two_ranks()
    torch.cuda.synchronize = lambda: None  # its writer takes a GPU for granted in two places
    torch.cuda.current_device = lambda: torch.device("cpu")
    r = rank()
    (folder / "ckpt").mkdir(exist_ok=True)
    torch.manual_seed(0)
    column, row, layers, norm = torch.rand(6, 5), torch.rand(4, 8), torch.rand(4, 3, 5), torch.rand(5)
    part = ShardedTensor.from_rank_offsets
    state = {
        "column": part("decoder.linear_fc1.weight", column.chunk(2)[r].clone(), (0, r, 2)),
        "row": part("decoder.linear_fc2.weight", row.chunk(2, 1)[r].clone(), (1, r, 2)),
        "norm": part("decoder.norm.weight", norm.clone(), replica_id=r),
        "extra": ShardedObject("rng_state", {"seed": 7 + r}, (2,), (r,)),
        "iteration": 12,
    }
    for i in range(2):  # two layers on each of two pipeline stages, prepended axis
        state[f"layer{i}"] = part("decoder.layers.weight", layers[2 * r + i].clone(), (0, 2 * r + i, 4), prepend_axis_num=1)
    dist_checkpointing.save(state, str(folder / "ckpt"))
    whole_ones = {"decoder.linear_fc1.weight": column, "decoder.linear_fc2.weight": row}
    return whole_ones | {"decoder.norm.weight": norm, "decoder.layers.weight": layers}


def megatron_fsdp_dtensor(folder):
    """Rows that ranks have unequal numbers of, and SwiGLU's halves apart, by the functions that Megatron-FSDP calls to save; its
    buffers take a GPU for granted."""
    import argparse
    import types

    import torch.distributed.checkpoint as dcp
    from megatron.core import parallel_state
    from megatron.core.distributed.fsdp.src.megatron_fsdp import param_and_grad_buffer, uneven_dtensor, utils
    from megatron.core.transformer import fsdp_dtensor_checkpoint
    from torch.distributed.device_mesh import init_device_mesh

    two_ranks()
    parallel_state.initialize_model_parallel()
    torch.Tensor.cuda = lambda tensor: tensor  # a check moves two numbers to the GPU
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    index = utils.FSDPDistributedIndex(mesh, dp_shard_dim="dp", tp_dim="tp")
    torch.manual_seed(0)
    fc1, norm = "decoder.layers.0.mlp.linear_fc1.weight", "decoder.norm.weight"
    wholes = {name: [torch.rand(shape) for _ in range(3)] for name, shape in ((fc1, (6, 5)), (norm, (7,)))}
    rows = {fc1: (slice(0, 4), slice(4, 6)), norm: (slice(0, 7), slice(7, 7))}  # of both ranks

    def shard(name, k):
        part = wholes[name][k][rows[name][rank()]].clone()
        more = {"run_check": True, "update_uneven_dtensor_chunk_meta": True}
        return param_and_grad_buffer.make_fsdp_dtensor(part, torch.empty_like(wholes[name][k]), index, **more)

    def parameter(name):
        width = wholes[fc1][0][0].numel()
        mine = rows[fc1][rank()]
        flat = slice(mine.start * width, mine.stop * width)
        return types.SimpleNamespace(megatron_fsdp_slice=flat, megatron_fsdp_dist_index=index)

    model = {name: shard(name, 0) for name in wholes}
    state = {f"module.{name}": {"exp_avg": shard(name, 1), "exp_avg_sq": shard(name, 2)} for name in wholes}
    stub = types.SimpleNamespace(get_parameter=parameter)
    model, optim = fsdp_dtensor_checkpoint.handle_swiglu_in_state_dict(stub, model, {"state": state, "param_groups": []})
    whole_state = {"model": model, "optimizer": optim, "args": argparse.Namespace(lr=0.1), "checkpoint_version": 3.0, "iteration": 7}
    uneven_dtensor.preprocess_state_dict_for_uneven_dtensor(whole_state)
    dcp.save(whole_state, checkpoint_id=folder / "ckpt")
    want = {}
    for k, key in enumerate(("", "exp_avg", "exp_avg_sq")):
        halves = dict(zip((f"{fc1}_w", f"{fc1}_v"), wholes[fc1][k].chunk(2))) | {norm: wholes[norm][k]}
        want |= {f"optimizer.state.module.{n}.{key}" if key else f"model.{n}": t for n, t in halves.items()}
    return want


# ---- torch.save of each rank --------------------------------------------------------------------


def verl_rank_files(folder):
    """As verl's FSDPCheckpointManager does it."""
    mesh = two_ranks()
    torch.manual_seed(0)
    net, optim = trained(fully_sharded(Net(ties=False), mesh))
    (folder / "ckpt").mkdir(exist_ok=True)
    end = f"_world_size_2_rank_{rank()}.pt"
    torch.save(net.state_dict(), folder / "ckpt" / ("model" + end))
    torch.save(optim.state_dict(), folder / "ckpt" / ("optim" + end))
    torch.save({"lr_scheduler": None, "rng": {"cpu": torch.get_rng_state()}}, folder / "ckpt" / ("extra_state" + end))
    state = optim.state_dict()["state"]
    moments = {f"optim.state.{i}.{k}": whole(v) for i, s in state.items() for k, v in s.items()}
    return wholes(net.state_dict(), "model.") | moments


# name -> ranks, function, options
CASES = {
    "transformers_safetensors": (1, transformers_safetensors, {}),
    "transformers_bfloat16_tied": (1, transformers_bfloat16_tied, {}),
    "transformers_bin": (1, transformers_bin, {}),
    "transformers_distributed": (2, transformers_distributed, {}),
    "accelerate_fsdp2": (2, accelerate_fsdp2, {"dcp": True}),
    "accelerate_rank_files": (2, accelerate_fsdp2, {"dcp": False}),
    "lightning_model_parallel": (2, lightning_model_parallel, {}),
    "lightning_trainer": (1, lightning_trainer, {}),
    "deepspeed_zero1": (2, deepspeed_stage, {"stage": 1}),
    "deepspeed_zero1_bf16": (2, deepspeed_stage, {"stage": 1, "bf16": True}),
    "deepspeed_zero2": (2, deepspeed_stage, {"stage": 2}),
    "deepspeed_zero3": (2, deepspeed_stage, {"stage": 3}),
    "deepspeed_autotp_zero1": (2, deepspeed_automatic, {"stage": 1, "experts": False}),
    "deepspeed_autotp_zero3": (2, deepspeed_automatic, {"stage": 3, "experts": False}),
    "deepspeed_autoep_zero1": (2, deepspeed_automatic, {"stage": 1, "experts": True}),
    "deepspeed_autoep_zero3": (2, deepspeed_automatic, {"stage": 3, "experts": True}),
    "deepspeed_experts": (4, deepspeed_experts, {}),
    "deepspeed_pipeline": (4, deepspeed_pipeline, {}),
    "deepspeed_pipeline_bf16": (4, deepspeed_pipeline, {"bf16": True}),
    "deepspeed_universal": (2, deepspeed_universal, {}),
    "megatron_torch_dist": (2, megatron_torch_dist, {}),
    "megatron_fsdp_dtensor": (2, megatron_fsdp_dtensor, {}),
    "verl_rank_files": (2, verl_rank_files, {}),
}


def main():
    case, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    _, make, options = CASES[case]
    try:
        want = make(folder, **options)
    except (Skip, ModuleNotFoundError) as e:
        if isinstance(e, ModuleNotFoundError) and e.name.split(".")[0] not in case:
            raise
        print(e, file=sys.stderr)
        sys.exit(SKIP)
    if rank() == 0:
        save_file({k: v.detach().clone().contiguous() for k, v in want.items()}, folder / "want.safetensors")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
