# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core judges the folders that reshard makes of Hugging Face models: its GPTModel, on one and on two tensor-parallel ranks,
loads them with dist_checkpointing.load and every check on, and then holds the same bits as the model that was converted.

    python -m venv v && v/bin/pip install torch==2.13.0 safetensors megatron-core==0.16.1 && v/bin/python megatron_judge.py RESHARD

Runs on any CPU, in a minute. `make test-trainers` runs it.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

KINDS = ("dense", "experts", "tied")


def converted(kind):
    """Hugging Face's tensors, Megatron's whole tensors, the config."""
    import torch

    import recipe_checks as rc

    torch.manual_seed(3)
    _, tensors, want, config = rc.experts(False) if kind == "experts" else rc.dense()
    if kind == "tied":
        del tensors["lm_head.weight"], want["output_layer.weight"]
        config = config | {"tie_word_embeddings": True}
    return tensors, want, config


def model(kind, ranks):
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    import recipe_checks as rc

    parallel_state.initialize_model_parallel(ranks, 1)
    experts = rc.EXPERTS if kind == "experts" else None
    config = TransformerConfig(
        num_layers=rc.LAYERS, hidden_size=rc.HIDDEN, num_attention_heads=rc.H, num_query_groups=rc.G, kv_channels=rc.D,
        ffn_hidden_size=rc.FFN, tensor_model_parallel_size=ranks, add_bias_linear=False, add_qkv_bias=kind != "experts", gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", use_cpu_initialization=True, params_dtype=torch.bfloat16, bf16=True,
        num_moe_experts=experts,
    )
    spec = get_gpt_layer_local_spec(num_experts=experts, moe_grouped_gemm=False, normalization="RMSNorm")
    if experts:  # the local spec names this norm as if the layer were dense, Transformer Engine's does not
        del spec.submodules.sharded_state_dict_keys_map["pre_mlp_layernorm."]
    return GPTModel(config=config, transformer_layer_spec=spec, vocab_size=128, max_sequence_length=16, position_embedding_type="rope",
                    share_embeddings_and_output_weights=kind == "tied")


def part(name, want, me, ranks):
    """What this rank holds of a parameter of the model, from Megatron's whole tensors."""
    import torch

    words = name.split(".")
    w = want.get(name)
    if w is None:
        layer = int(words[2])
        name = ".".join(words[:2] + words[3:]).replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_")
        if "decoder.layers.pre_mlp_layernorm.weight" not in want:
            name = name.replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
        expert = int(words[6]) if "local_experts" in words else None
        w = want[name if expert is None else name.replace(f"local_experts.{expert}", "experts")][layer]
        w = w if expert is None else w[expert]
    if "linear_fc1.weight" in name:
        return torch.cat([half.chunk(ranks)[me] for half in w.chunk(2)])
    if "linear_proj" in name or "linear_fc2" in name:
        return w.chunk(ranks, 1)[me]
    return w.chunk(ranks)[me] if "qkv.weight" in name or "qkv.bias" in name or words[0] in ("embedding", "output_layer") else w


def rank(kind, folder):
    """One rank; the environment says which."""
    import torch
    import torch.distributed as dist
    from megatron.core import dist_checkpointing

    torch.cuda.synchronize = lambda: None  # it takes a GPU for granted
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me, ranks = dist.get_rank(), dist.get_world_size()
    gpt = model(kind, ranks)
    loaded = dist_checkpointing.load(gpt.sharded_state_dict(), folder)
    assert loaded["checkpoint_version"] == 3.0
    gpt.load_state_dict({n: loaded[n] for n in gpt.state_dict() if n in loaded})
    want = converted(kind)[1]
    count = 0
    for name, have in gpt.named_parameters():
        must = part(name, want, me, ranks)
        assert have.shape == must.shape and torch.equal(have, must.to(have.dtype)), name
        count += 1
    dist.barrier()
    dist.destroy_process_group()
    if me == 0:
        print(count)


def load(kind, folder, ranks):
    """Number of parameters that every rank has found equal."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    env |= {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    args = [sys.executable, __file__, "--rank", kind, str(folder)]
    jobs = [subprocess.Popen(args, env=env | {"RANK": str(r)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(ranks)]
    try:
        said = [job.communicate(timeout=180) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    for job, (_, err) in zip(jobs, said):
        if job.returncode:
            raise RuntimeError(" | ".join(err.splitlines()[-4:]))
    return int(said[0][0].split()[-1])


def judge(reshard, kind, temp):
    from safetensors.torch import save_file

    tensors, _, config = converted(kind)
    hf = temp / kind
    hf.mkdir()
    save_file(tensors, hf / "model.safetensors")
    (hf / "config.json").write_text(json.dumps(config))
    release = temp / f"{kind}-run" / "release"
    args = [reshard, "convert", "-q", hf, release, "--to", "megatron", "--recipe", "hf-megatron", "--config", hf / "config.json"]
    subprocess.run(args, check=True)
    tracker = (release.parent / "latest_checkpointed_iteration.txt").read_text()
    if tracker != "release":
        raise RuntimeError(f"the tracker says {tracker}")
    for ranks in (1, 2):
        print(f"{kind}: Megatron-Core loads {load(kind, release, ranks)} parameters on {ranks} rank{'s' * (ranks > 1)}", flush=True)


def main():
    with tempfile.TemporaryDirectory() as temp:
        for kind in KINDS:
            judge(sys.argv[1], kind, pathlib.Path(temp))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    if sys.argv[1] == "--rank":
        rank(*sys.argv[2:4])
    else:
        main()
