# SPDX-License-Identifier: Apache-2.0
"""The recipes that ship, against their arithmetic restated in torch: a small model of random tensors is converted by the
tool, compared, and converted back."""

import json

import torch
from safetensors.torch import load_file, save_file

H, G, D, HIDDEN, FFN, LAYERS, VOCAB, EXPERTS = 8, 2, 4, 24, 40, 3, 37, 4
R = H // G
CONFIG = {
    "num_attention_heads": H, "num_key_value_heads": G, "head_dim": D, "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS, "vocab_size": VOCAB,
}


def rand(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape).to(dtype)


def attention(tensors, i, bias=False):
    """Hugging Face's names of one layer's attention."""
    at = f"model.layers.{i}."
    for name, heads in (("q", H), ("k", G), ("v", G)):
        tensors[f"{at}self_attn.{name}_proj.weight"] = rand(heads * D, HIDDEN)
        if bias:
            tensors[f"{at}self_attn.{name}_proj.bias"] = rand(heads * D)
    tensors[f"{at}self_attn.o_proj.weight"] = rand(HIDDEN, H * D)
    tensors[f"{at}input_layernorm.weight"] = rand(HIDDEN)
    tensors[f"{at}post_attention_layernorm.weight"] = rand(HIDDEN)


def whole_model():
    return {"model.embed_tokens.weight": rand(VOCAB, HIDDEN), "lm_head.weight": rand(VOCAB, HIDDEN), "model.norm.weight": rand(HIDDEN)}


def fused_qkv(t, i, what):
    """merge_qkv_weights: the heads of each group, then its key and its value."""
    q, k, v = (t[f"model.layers.{i}.self_attn.{n}_proj.{what}"] for n in "qkv")
    rest = q.shape[1:]
    rows = [torch.cat([q.view(G, R, D, *rest)[g].reshape(R * D, *rest), k.view(G, D, *rest)[g], v.view(G, D, *rest)[g]]) for g in range(G)]
    return torch.cat(rows)


def padded(w, multiple=128):
    return torch.cat([w, torch.zeros(-len(w) % multiple, *w.shape[1:], dtype=w.dtype)])


def common_megatron(t, want, bias):
    layers = range(LAYERS)
    want["embedding.word_embeddings.weight"] = padded(t["model.embed_tokens.weight"])
    want["output_layer.weight"] = padded(t["lm_head.weight"])
    want["decoder.final_layernorm.weight"] = t["model.norm.weight"]
    at = "decoder.layers.self_attention."
    want[at + "linear_qkv.weight"] = torch.stack([fused_qkv(t, i, "weight") for i in layers])
    if bias:
        want[at + "linear_qkv.bias"] = torch.stack([fused_qkv(t, i, "bias") for i in layers])
    want[at + "linear_proj.weight"] = torch.stack([t[f"model.layers.{i}.self_attn.o_proj.weight"] for i in layers])
    want[at + "linear_qkv.layer_norm_weight"] = torch.stack([t[f"model.layers.{i}.input_layernorm.weight"] for i in layers])


def norms(t):
    return torch.stack([t[f"model.layers.{i}.post_attention_layernorm.weight"] for i in range(LAYERS)])


def dense():
    t, want = whole_model(), {}
    for i in range(LAYERS):
        attention(t, i, bias=True)
        for n in ("gate", "up"):
            t[f"model.layers.{i}.mlp.{n}_proj.weight"] = rand(FFN, HIDDEN)
        t[f"model.layers.{i}.mlp.down_proj.weight"] = rand(HIDDEN, FFN)
    common_megatron(t, want, True)
    get = lambda i, n: t[f"model.layers.{i}.mlp.{n}_proj.weight"]
    want["decoder.layers.mlp.linear_fc1.weight"] = torch.stack([torch.cat([get(i, "gate"), get(i, "up")]) for i in range(LAYERS)])
    want["decoder.layers.mlp.linear_fc2.weight"] = torch.stack([get(i, "down") for i in range(LAYERS)])
    want["decoder.layers.mlp.linear_fc1.layer_norm_weight"] = norms(t)
    return "hf-megatron", t, want, CONFIG


def experts(mixtral):
    t, want = whole_model(), {}
    top, names = ("block_sparse_moe", ("w1", "w3", "w2")) if mixtral else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    for i in range(LAYERS):
        attention(t, i)
        t[f"model.layers.{i}.{top}.gate.weight"] = rand(EXPERTS, HIDDEN)
        for e in range(EXPERTS):
            for n in names[:2]:
                t[f"model.layers.{i}.{top}.experts.{e}.{n}.weight"] = rand(FFN, HIDDEN)
            t[f"model.layers.{i}.{top}.experts.{e}.{names[2]}.weight"] = rand(HIDDEN, FFN)
    common_megatron(t, want, False)
    get = lambda i, e, n: t[f"model.layers.{i}.{top}.experts.{e}.{n}.weight"]
    each = lambda one: torch.stack([torch.stack([one(i, e) for e in range(EXPERTS)]) for i in range(LAYERS)])
    want["decoder.layers.pre_mlp_layernorm.weight"] = norms(t)
    want["decoder.layers.mlp.router.weight"] = torch.stack([t[f"model.layers.{i}.{top}.gate.weight"] for i in range(LAYERS)])
    want["decoder.layers.mlp.experts.experts.linear_fc1.weight"] = each(lambda i, e: torch.cat([get(i, e, names[0]), get(i, e, names[1])]))
    want["decoder.layers.mlp.experts.experts.linear_fc2.weight"] = each(lambda i, e: get(i, e, names[2]))
    return "hf-megatron", t, want, CONFIG | {"num_local_experts" if mixtral else "num_experts": EXPERTS}


def qwen3():
    """Tied embeddings, norms of queries and keys, no biases."""
    _, t, want, config = dense()
    for n in [n for n in t if n.endswith(".bias")] + ["lm_head.weight"]:
        del t[n]
    del want["decoder.layers.self_attention.linear_qkv.bias"], want["output_layer.weight"]
    for n in "qk":
        for i in range(LAYERS):
            t[f"model.layers.{i}.self_attn.{n}_norm.weight"] = rand(D)
        want[f"decoder.layers.self_attention.{n}_layernorm.weight"] = torch.stack([t[f"model.layers.{i}.self_attn.{n}_norm.weight"] for i in range(LAYERS)])
    return "hf-megatron", t, want, config | {"tie_word_embeddings": True}


def qwen2_moe():
    """With a shared expert and its gate."""
    _, t, want, config = experts(False)
    at, one, two, gate = "decoder.layers.mlp.shared_experts.", [], [], []
    for i in range(LAYERS):
        hf = f"model.layers.{i}.mlp.shared_expert"
        t |= {f"{hf}.gate_proj.weight": rand(FFN, HIDDEN), f"{hf}.up_proj.weight": rand(FFN, HIDDEN), f"{hf}.down_proj.weight": rand(HIDDEN, FFN)}
        t[f"{hf}_gate.weight"] = rand(1, HIDDEN)
        one.append(torch.cat([t[f"{hf}.gate_proj.weight"], t[f"{hf}.up_proj.weight"]]))
        two.append(t[f"{hf}.down_proj.weight"])
        gate.append(t[f"{hf}_gate.weight"])
    want |= {at + "linear_fc1.weight": torch.stack(one), at + "linear_fc2.weight": torch.stack(two), at + "gate_weight": torch.stack(gate)}
    return "hf-megatron", t, want, config


def permuted(w, heads):
    """Meta -> Hugging Face, as in the conversion script of transformers."""
    return w.view(heads, w.shape[0] // heads // 2, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


def meta():
    t = {"tok_embeddings.weight": rand(VOCAB, HIDDEN), "output.weight": rand(VOCAB, HIDDEN), "norm.weight": rand(HIDDEN)}
    want = {"model.embed_tokens.weight": t["tok_embeddings.weight"], "lm_head.weight": t["output.weight"], "model.norm.weight": t["norm.weight"]}
    pairs = {"attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
             "feed_forward.w3": "mlp.up_proj", "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    for i in range(LAYERS):
        for old, new in pairs.items():
            t[f"layers.{i}.{old}.weight"] = want[f"model.layers.{i}.{new}.weight"] = rand(12, HIDDEN) if "norm" not in old else rand(HIDDEN)
        for n, heads in (("q", H), ("k", G)):
            w = t[f"layers.{i}.attention.w{n}.weight"] = rand(heads * D, HIDDEN)
            want[f"model.layers.{i}.self_attn.{n}_proj.weight"] = permuted(w, heads)
    return "meta-hf", t, want, CONFIG


def stacked():
    _, t, _, config = dense()
    kinds = {n.split(".", 3)[3] for n in t if n.startswith("model.layers.")}
    want = {n: x for n, x in t.items() if not n.startswith("model.layers.")}
    for kind in kinds:
        want[f"model.layers.{kind}"] = torch.stack([t[f"model.layers.{i}.{kind}"] for i in range(LAYERS)])
    return "stack-layers", t, want, config


def deepseek():
    """MLA, one dense layer, layers of experts, one layer of MTP."""
    t, want = whole_model(), {}
    want["embedding.word_embeddings.weight"] = padded(t["model.embed_tokens.weight"])
    want["output_layer.weight"] = padded(t["lm_head.weight"])
    want["decoder.final_layernorm.weight"] = t["model.norm.weight"]
    mla = {"q_a_proj": "linear_q_down_proj", "q_b_proj": "linear_q_up_proj", "kv_a_proj_with_mqa": "linear_kv_down_proj",
           "kv_b_proj": "linear_kv_up_proj", "o_proj": "linear_proj"}
    for i in range(LAYERS + 1):
        hf, mtp = f"model.layers.{i}.", i >= LAYERS
        to = f"mtp.layers.{i - LAYERS}.transformer_layer." if mtp else f"decoder.layers.{i}."
        for old, new in mla.items():
            t[f"{hf}self_attn.{old}.weight"] = want[f"{to}self_attention.{new}.weight"] = rand(10, 12)
        for old in ("q", "kv"):
            t[f"{hf}self_attn.{old}_a_layernorm.weight"] = want[f"{to}self_attention.linear_{old}_up_proj.layer_norm_weight"] = rand(10)
        t[hf + "input_layernorm.weight"] = want[to + "input_layernorm.weight"] = rand(HIDDEN)
        norm = t[hf + "post_attention_layernorm.weight"] = rand(HIDDEN)
        want[to + ("mlp.linear_fc1.layer_norm_weight" if i == 0 else "pre_mlp_layernorm.weight")] = norm
        mlps = [("mlp.", "mlp.")] if i == 0 else [("mlp.shared_experts.", "mlp.shared_experts.")]
        for old, new in mlps:
            g, u, d = rand(FFN, HIDDEN), rand(FFN, HIDDEN), rand(HIDDEN, FFN)
            t |= {f"{hf}{old}gate_proj.weight": g, f"{hf}{old}up_proj.weight": u, f"{hf}{old}down_proj.weight": d}
            want |= {f"{to}{new}linear_fc1.weight": torch.cat([g, u]), f"{to}{new}linear_fc2.weight": d}
        if i > 0:
            t[hf + "mlp.gate.weight"] = want[to + "mlp.router.weight"] = rand(EXPERTS, HIDDEN)
            t[hf + "mlp.gate.e_score_correction_bias"] = want[to + "mlp.router.expert_bias"] = rand(EXPERTS, dtype=torch.float32)
            one, two = [], []
            for e in range(EXPERTS):
                g, u, d = rand(FFN, HIDDEN), rand(FFN, HIDDEN), rand(HIDDEN, FFN)
                at = f"{hf}mlp.experts.{e}."
                t |= {at + "gate_proj.weight": g, at + "up_proj.weight": u, at + "down_proj.weight": d}
                one.append(torch.cat([g, u]))
                two.append(d)
            want |= {to + "mlp.experts.experts.linear_fc1.weight": torch.stack(one), to + "mlp.experts.experts.linear_fc2.weight": torch.stack(two)}
        if mtp:
            top = f"mtp.layers.{i - LAYERS}."
            for n in ("enorm", "hnorm"):
                t[f"{hf}{n}.weight"] = want[f"{top}{n}.weight"] = rand(HIDDEN)
            t[hf + "eh_proj.weight"] = want[top + "eh_proj.weight"] = rand(HIDDEN, 2 * HIDDEN)
            t[hf + "shared_head.norm.weight"] = want[top + "final_layernorm.weight"] = rand(HIDDEN)
    return "deepseek-megatron", t, want, CONFIG | {"n_routed_experts": EXPERTS, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def from_mxfp4(blocks, scales):
    halves = torch.stack([FP4[(blocks & 15).long()], FP4[(blocks >> 4).long()]], -1).flatten(-2)
    return torch.ldexp(halves, (scales.int() - 127)[..., None]).flatten(-2).to(torch.bfloat16)


def gpt_oss(mxfp4):
    t, want = whole_model(), {}
    hidden, ffn = 64, 32  # whole groups of 32
    rows = {"fc1": [], "fc1b": [], "fc2": [], "fc2b": []}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        attention(t, i, bias=True)
        t[at + "self_attn.o_proj.bias"], t[at + "self_attn.sinks"] = rand(HIDDEN), rand(H)
        t[at + "mlp.router.weight"], t[at + "mlp.router.bias"] = rand(EXPERTS, HIDDEN), rand(EXPERTS)
        t[at + "mlp.experts.gate_up_proj_bias"], t[at + "mlp.experts.down_proj_bias"] = rand(EXPERTS, 2 * ffn), rand(EXPERTS, hidden)
        for n, out, inp in (("gate_up_proj", 2 * ffn, hidden), ("down_proj", hidden, ffn)):
            if mxfp4:
                blocks = torch.randint(0, 256, (EXPERTS, out, inp // 32, 16), dtype=torch.uint8)
                scales = torch.randint(100, 140, (EXPERTS, out, inp // 32), dtype=torch.uint8)
                t[f"{at}mlp.experts.{n}_blocks"], t[f"{at}mlp.experts.{n}_scales"] = blocks, scales
                w = from_mxfp4(blocks, scales)
            else:
                w = rand(EXPERTS, out, inp)
                t[f"{at}mlp.experts.{n}"] = w.transpose(1, 2).contiguous()
            rows["fc1" if n == "gate_up_proj" else "fc2"].append(torch.cat([w[:, 0::2], w[:, 1::2]], 1) if n == "gate_up_proj" else w)
        b = t[at + "mlp.experts.gate_up_proj_bias"]
        rows["fc1b"].append(torch.cat([b[:, 0::2], b[:, 1::2]], 1))
        rows["fc2b"].append(t[at + "mlp.experts.down_proj_bias"])
    common_megatron(t, want, True)
    every = lambda n: torch.stack([t[f"model.layers.{i}.{n}"] for i in range(LAYERS)])
    at = "decoder.layers."
    want |= {at + "self_attention.linear_proj.bias": every("self_attn.o_proj.bias"), at + "self_attention.core_attention.softmax_offset": every("self_attn.sinks"),
             at + "pre_mlp_layernorm.weight": norms(t), at + "mlp.router.weight": every("mlp.router.weight"), at + "mlp.router.bias": every("mlp.router.bias")}
    at += "mlp.experts.experts.linear_"
    want |= {at + "fc1.weight": torch.stack(rows["fc1"]), at + "fc1.bias": torch.stack(rows["fc1b"]),
             at + "fc2.weight": torch.stack(rows["fc2"]), at + "fc2.bias": torch.stack(rows["fc2b"])}
    return "gpt-oss-megatron", t, want, CONFIG | {"num_local_experts": EXPERTS}


def to_fp8(w):
    """Blocks of 128 x 128, scaled so that the largest magnitude is 448."""
    a, b = w.shape
    whole = torch.zeros(-(-a // 128) * 128, -(-b // 128) * 128)
    whole[:a, :b] = w
    tiles = whole.view(whole.shape[0] // 128, 128, whole.shape[1] // 128, 128)
    scale = tiles.abs().amax((1, 3)) / 448
    return (tiles / scale[:, None, :, None]).view(whole.shape)[:a, :b].to(torch.float8_e4m3fn).contiguous(), scale


def fp8():
    t, want = {"model.norm.weight": rand(16)}, {}
    want["model.norm.weight"] = t["model.norm.weight"]
    for n in ("mlp.down_proj", "self_attn.kv_a_proj_with_mqa"):
        q, scale = to_fp8(torch.randn(300, 200))
        t[f"model.layers.0.{n}.weight"], t[f"model.layers.0.{n}.weight_scale_inv"] = q, scale
        wide = scale.repeat_interleave(128, 0)[:300].repeat_interleave(128, 1)[:, :200]
        want[f"model.layers.0.{n}.weight"] = (q.float() * wide).to(torch.bfloat16)
    return "deepseek-fp8", t, want, CONFIG


def bits(t):
    return t.contiguous().view(torch.uint8) if t.ndim else t.reshape(1).view(torch.uint8)


def differences(have, want):
    """Names of tensors that are missing, too many or not equal bit for bit."""
    names = set(have) ^ set(want)
    for n in set(have) & set(want):
        if have[n].dtype != want[n].dtype or have[n].shape != want[n].shape or not torch.equal(bits(have[n]), bits(want[n])):
            names.add(n)
    return sorted(names)


CASES = {
    "dense, with biases": (dense, True), "tied, with norms of queries and keys": (qwen3, True), "a shared expert": (qwen2_moe, True), "Mixtral": (lambda: experts(True), True), "Qwen-MoE": (lambda: experts(False), True),
    "Meta's Llama": (meta, True), "stacked layers": (stacked, True), "DeepSeek with MTP": (deepseek, True),
    "GPT-OSS in bfloat16": (lambda: gpt_oss(False), True), "GPT-OSS in MXFP4": (lambda: gpt_oss(True), False), "DeepSeek's FP8": (fp8, False),
}


def recipes(report, reshard, folder):
    torch.manual_seed(5)
    for name, (case, back) in CASES.items():
        recipe, tensors, want, config = case()
        top = folder / "recipes" / name.replace(" ", "-").replace("'", "")
        top.mkdir(parents=True)
        (top / "config.json").write_text(json.dumps(config))
        save_file(tensors, top / "from.safetensors")
        options = ["--recipe", recipe, "--config", str(top / "config.json")]
        reshard.convert(top / "from.safetensors", top / "to.safetensors", *options)
        wrong = differences(load_file(top / "to.safetensors"), want)
        report.check(f"{recipe}: {name}", wrong and f"these differ: {wrong[:5]}")
        if back:
            reshard.convert(top / "to.safetensors", top / "back.safetensors", *options, "--reverse")
            wrong = differences(load_file(top / "back.safetensors"), tensors)
            report.check(f"{recipe}: {name}, and back", wrong and f"these differ: {wrong[:5]}")
    quantised(report, reshard, folder)
    lora(report, reshard, folder)


def to_mxfp4(w):
    """OCP's microscaling: the exponent of the largest of 32, less 2; halves to even."""
    groups = w.float().unflatten(-1, (-1, 32))
    most = groups.abs().amax(-1)
    scales = ((most.view(torch.int32) >> 23 & 255) - 2).clamp(min=0)
    x = torch.ldexp(groups, 127 - scales[..., None])
    steps = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    far = (x.abs()[..., None] - steps).abs()
    near = far.argmin(-1)
    for a in range(7):  # exactly between two: the even code
        near[x.abs() == (steps[a] + steps[a + 1]) / 2] = a + a % 2
    codes = (near + 8 * torch.signbit(x)).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, scales.to(torch.uint8)


def quantised(report, reshard, folder):
    top = folder / "recipes" / "quantised"
    top.mkdir()
    (top / "config.json").write_text('{"hidden_size": 200, "quantization_config": {"old": [1, "}"]}, "vocab_size": 7}\n')
    w = torch.randn(300, 200)
    save_file({"model.layers.0.mlp.up_proj.weight": w}, top / "model.safetensors")
    reshard.convert(top, top / "fp8", "--to", "safetensors", "--recipe", "deepseek-fp8", "--reverse")
    q, scale = to_fp8(w)
    want = {"model.layers.0.mlp.up_proj.weight": q, "model.layers.0.mlp.up_proj.weight_scale_inv": scale}
    wrong = differences(load_file(top / "fp8" / "model.safetensors"), want)
    report.check("deepseek-fp8: float32 to FP8", wrong and f"these differ: {wrong}")
    config = json.loads((top / "fp8" / "config.json").read_text())
    said = {"hidden_size": 200, "vocab_size": 7, "quantization_config": {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}}
    report.check("deepseek-fp8: the config says so", config != said and f"it says {config}")
    reshard.convert(top / "fp8", top / "plain", "--to", "safetensors", "--recipe", "deepseek-fp8")
    config = json.loads((top / "plain" / "config.json").read_text())
    report.check("deepseek-fp8: back, the config does not say it", config != {"hidden_size": 200, "vocab_size": 7} and f"it says {config}")
    _, tensors, want, config = gpt_oss(True)
    mxfp4 = folder / "recipes" / "GPT-OSS-in-MXFP4"
    reshard.convert(mxfp4 / "to.safetensors", mxfp4 / "back.safetensors", "--recipe", "gpt-oss-megatron", "--reverse", "--set", "mxfp4=1",
                    "--config", mxfp4 / "config.json")
    have, made = load_file(mxfp4 / "back.safetensors"), load_file(mxfp4 / "to.safetensors")
    was = load_file(mxfp4 / "from.safetensors")
    values = lambda t, n: from_mxfp4(t[n + "_blocks"], t[n + "_scales"]).float()
    names = [n.removesuffix("_blocks") for n in was if n.endswith("_blocks")]
    wrong = [n for n in names if not torch.equal(values(have, n), values(was, n))]
    report.check("gpt-oss-megatron: back to MXFP4, the same values", wrong and f"these differ: {wrong[:3]}")
    wrong = []
    for i in range(LAYERS):
        blocks, scales = to_mxfp4(made["decoder.layers.mlp.experts.experts.linear_fc2.weight"][i])
        at = f"model.layers.{i}.mlp.experts.down_proj"
        wrong += differences({"b": have[at + "_blocks"], "s": have[at + "_scales"]}, {"b": blocks, "s": scales})
    report.check("gpt-oss-megatron: back to MXFP4, the same bytes as from torch", wrong)
    x = torch.cat([torch.randn(5, 64), torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -5.0] * 8)[None], torch.zeros(1, 64), torch.full((1, 64), 1e-40)])
    save_file({"w": x}, top / "x.safetensors")
    (top / "x.recipe").write_text("w[i j] -> mxfp4(b, s)[i j]\n")
    reshard.convert(top / "x.safetensors", top / "y.safetensors", "--recipe", top / "x.recipe")
    wrong = differences(load_file(top / "y.safetensors"), dict(zip("bs", to_mxfp4(x))))
    report.check("mxfp4: halves, zeros and subnormal numbers", wrong)


def lora(report, reshard, folder):
    top = folder / "recipes" / "lora"
    top.mkdir()
    (top / "config.json").write_text('{"lora_alpha": 24, "r": 16, "peft_type": "LORA"}')
    for kind, dtype, names in (("PEFT's model", torch.float32, ("base_model.model.{}.base_layer.weight", "lora_A.default", "lora_B.default")),
                               ("adapter beside it", torch.bfloat16, ("{}.weight", "lora_A", "lora_B"))):
        t, want = {"norm.weight": rand(8, dtype=dtype)}, {}
        want["norm.weight"] = t["norm.weight"]
        for i in range(2):
            x = f"model.layers.{i}.q_proj"
            w, a, b = rand(300, 700, dtype=dtype), rand(16, 700, dtype=dtype), rand(300, 16, dtype=dtype)
            t |= {names[0].format(x): w, f"base_model.model.{x}.{names[1]}.weight": a, f"base_model.model.{x}.{names[2]}.weight": b}
            want[f"{x}.weight"] = (w.double() + 1.5 * (b.double() @ a.double())).float().to(dtype)
        save_file(t, top / "from.safetensors")
        (top / "to.safetensors").unlink(missing_ok=True)
        reshard.convert(top / "from.safetensors", top / "to.safetensors", "--recipe", "lora-merge", "--config", top / "config.json")
        have = load_file(top / "to.safetensors")
        wrong = sorted(set(have) ^ set(want)) or [n for n in want if not torch.allclose(have[n].double(), want[n].double(), rtol=1e-6, atol=0)]
        report.check(f"lora-merge: {kind}", wrong and f"these differ: {wrong}")
