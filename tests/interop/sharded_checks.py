# SPDX-License-Identifier: Apache-2.0
"""Hugging Face -> sharded_state: the files of every rank against what vLLM's layers hold there, restated in torch: each
part of a fused tensor is cut by itself, key heads are repeated if there are fewer than ranks, the vocabulary is padded."""

import json

import torch
from safetensors.torch import load_file, save_file

from recipe_checks import CONFIG, D, EXPERTS, G, HIDDEN, LAYERS, VOCAB, attention, differences, rand, whole_model

FFN = 48


def cut(w, rank, tp, dim=0):
    size = w.shape[dim] // tp
    return w.narrow(dim, rank * size, size).contiguous()


def key_heads(w, rank, tp):
    """Whole heads of a key or value matrix; ranks that share a head have equal copies."""
    if tp <= G:
        return cut(w, rank, tp)
    return w.narrow(0, rank // (tp // G) * D, D).contiguous()


def fused_attention(t, at, what, rank, tp):
    q, k, v = (t[f"{at}self_attn.{n}_proj.{what}"] for n in "qkv")
    return torch.cat([cut(q, rank, tp), key_heads(k, rank, tp), key_heads(v, rank, tp)])


def padded(w, rank, tp):
    return cut(torch.cat([w, torch.zeros(-len(w) % 64, w.shape[1], dtype=w.dtype)]), rank, tp)


def model(kind, tied):
    t = whole_model()
    if tied:
        del t["lm_head.weight"]
    top, names = ("block_sparse_moe", ("w1", "w3", "w2")) if kind == "mixtral" else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        attention(t, i, bias=kind == "dense")
        if kind == "qwen":
            t |= {f"{at}self_attn.{n}_norm.weight": rand(D) for n in "qk"}
        if kind != "dense":
            t[f"{at}{top}.gate.weight"] = rand(EXPERTS, HIDDEN)
        for e in [""] if kind == "dense" else [f"experts.{e}." for e in range(EXPERTS)]:
            t |= {f"{at}{top}.{e}{n}.weight": rand(FFN, HIDDEN) for n in names[:2]}
            t[f"{at}{top}.{e}{names[2]}.weight"] = rand(HIDDEN, FFN)
    return t, top, names


def rank_state(t, top, names, rank, tp, tied):
    want = {"model.norm.weight": t["model.norm.weight"]}
    if tied:
        want["lm_head.weight"] = padded(t["model.embed_tokens.weight"], rank, tp)
    else:
        want |= {n: padded(t[n], rank, tp) for n in ("model.embed_tokens.weight", "lm_head.weight")}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for what in ("weight", "bias"):
            if f"{at}self_attn.q_proj.{what}" in t:
                want[f"{at}self_attn.qkv_proj.{what}"] = fused_attention(t, at, what, rank, tp)
        want[f"{at}self_attn.o_proj.weight"] = cut(t[f"{at}self_attn.o_proj.weight"], rank, tp, 1)
        for n in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm", f"{top}.gate"):
            if f"{at}{n}.weight" in t:
                want[f"{at}{n}.weight"] = t[f"{at}{n}.weight"]
        want |= {f"{at}self_attn.attn.{n}_scale": torch.tensor(1.0) for n in ("_q", "_k", "_v", "_prob")}
        both = lambda e: torch.cat([cut(t[f"{at}{top}.{e}{n}.weight"], rank, tp) for n in names[:2]])
        down = lambda e: cut(t[f"{at}{top}.{e}{names[2]}.weight"], rank, tp, 1)
        if f"{at}{top}.gate.weight" in t:
            each = [f"experts.{e}." for e in range(EXPERTS)]
            want[f"{at}{top}.experts.w13_weight"] = torch.stack([both(e) for e in each])
            want[f"{at}{top}.experts.w2_weight"] = torch.stack([down(e) for e in each])
        else:
            want[f"{at}{top}.gate_up_proj.weight"], want[f"{at}{top}.down_proj.weight"] = both(""), down("")
    return want


def rank_files(folder, rank):
    have = {}
    for part in sorted(folder.glob(f"model-rank-{rank}-part-*.safetensors")):
        have |= load_file(part)
    return have


def sharded_states(report, reshard, folder):
    torch.manual_seed(7)
    for kind, tp, tied in (("dense", 1, True), ("dense", 2, False), ("dense", 8, True), ("mixtral", 2, False), ("qwen", 4, False)):
        name = f"{kind}, {tp} ranks" + (", tied embeddings" if tied else "")
        top = folder / f"sharded-{kind}-{tp}"
        top.mkdir()
        t, where, names = model(kind, tied)
        config = CONFIG | {"tie_word_embeddings": tied} | ({"num_local_experts": EXPERTS} if kind == "mixtral" else {"num_experts": EXPERTS})
        (top / "config.json").write_text(json.dumps(config))
        save_file(t, top / "model.safetensors")
        reshard.convert(top, top / "out", "--to", "sharded_state", "--recipe", "hf-sharded-state", "--config", top / "config.json",
                        "--set", f"tp={tp}", *(["--shard-size", "4000"] if tp == 2 else []))
        wrong = [f"rank {r}: {n}" for r in range(tp) for n in differences(rank_files(top / "out", r), rank_state(t, where, names, r, tp, tied))]
        report.check(f"hf-sharded-state: {name}", wrong and f"these differ: {wrong[:5]}")
        extra = sorted(p.name for p in (top / "out").glob("*.safetensors") if int(p.name.split("-")[2]) >= tp)
        report.check(f"hf-sharded-state: {name}, no other rank's files", extra)
