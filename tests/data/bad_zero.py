# SPDX-License-Identifier: Apache-2.0
"""Broken folders of DeepSpeed's ZeRO: flat vectors of two ranks."""

import struct

from bad_build import Zip, call, dct, glob, ints, lst, num, pkl, records, tensor, txt


def file(body, data=struct.pack("<2f", 1, 2)):
    return Zip(records(pkl(body), data)).out()


def size(*shape):
    return call(glob("torch", "Size"), ints(*shape))


def names(*pairs):
    return dct(*((txt(name), value) for name, value in pairs))


def optim(stage=3, ranks=2, vector=None, state=None, extra=(), **more):
    vectors = lst(tensor() if vector is None else vector)
    key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
    inner = names(("exp_avg", tensor() if vector is None else vector), ("step", num(7)))
    base = "optimizer_state_dict" if stage == 3 else "base_optimizer_state"
    pairs = [(key, vectors), ("partition_count", num(ranks) if isinstance(ranks, int) else ranks), (base, names(("state", dct((num(0), state or inner)))))]
    return file(names(("optimizer_state_dict", names(*pairs, *extra))), **more)


def model(shapes=None, **parts):
    shapes = lst(names(("w", size(3)))) if shapes is None else shapes
    pairs = [("module", names()), ("param_shapes", shapes)] + [(k, v) for k, v in parts.items()]
    return file(names(*pairs), data=None)


def three(optims=None, **how):
    optims = optims or [optim(), optim()]
    files = {f"zero_pp_rank_{r}_mp_rank_00_optim_states.pt": raw for r, raw in enumerate(optims)}
    return files | {f"zero_pp_rank_{r}_mp_rank_00_model_states.pt": model(**how) for r in range(len(optims))}


def two(optims=None, **how):
    optims = optims or [optim(2), optim(2)]
    files = {f"bf16_zero_pp_rank_{r}_mp_rank_00_optim_states.pt": raw for r, raw in enumerate(optims)}
    return files | {"mp_rank_00_model_states.pt": model(**how)}


def parallel(info=None, shapes=(size(2), size(2)), **more):
    """Two tensor-parallel ranks with two elements each."""
    files = {}
    for r, shape in enumerate(shapes):
        parts = {} if info is None else {"universal_checkpoint_info": info}
        files[f"zero_pp_rank_0_mp_rank_0{r}_optim_states.pt"] = optim(2, 1)
        files[f"mp_rank_0{r}_model_states.pt"] = model(lst(names(("w", shape))), **parts, **more)
    return files


def rule(key, *patterns):
    return names((key, lst(*map(txt, patterns))))


def parts(shape, dim=0, *more):
    inner = names(("patterns", lst(txt("w"))), ("shape", shape), ("partition_dim", num(dim)))
    return names(("parameter_with_sub_params", lst(inner)), *more)


def affine(source=0, dest=0, length=2, whole=4, version=1, extra=()):
    """The same block on both ranks, which is right on none or one."""
    piece = names(("shape", lst(num(length))), ("source", lst(num(source), lst(num(1)))), ("dest", lst(num(dest), lst(num(1)))), *extra)
    ranks = dct(*((num(r), names(("shard_shape", lst(num(2))), ("pieces", lst(piece)))) for r in range(2)))
    params = names(("w", names(("logical_shape", lst(num(whole))), ("ranks", ranks))))
    return names(("affine_map", names(("version", num(version)), ("params", params))))


def layers(*pairs, groups=True):
    """Two ranks that divide experts in stage 3; both say that they are the first."""
    entry = names(("expert_key_prefix", txt("e")), *pairs)
    own = lst(names(("partition_count", num(1)), ("partition_rank", num(0))))
    extra = [("ds_zero_partition_groups", own)] if groups else []
    return three([optim(extra=extra)] * 2, shapes=lst(names(("e.w1", size(1, 2)))), ds_autoep_layers=lst(entry))


NONE = b"N"


def stages(files, buffers=("1.b",), tp=1, **more):
    """Two pipeline stages, with files of layers."""
    degrees = names(("pp_degree", num(2)), ("tp_degree", num(tp)))
    both = {}
    for r in range(2):
        own = {"module": NONE, "buffer_names": lst(*map(txt, buffers if r else ()))}
        pairs = [*own.items(), ("param_shapes", lst(names((f"{r}.w", size(2))))), ("checkpoint_parallel_dimensions", degrees), *more.items()]
        both[f"zero_pp_rank_0_mp_rank_0{r}_optim_states.pt"] = optim(2, 1)
        both[f"mp_rank_0{r}_model_states.pt"] = file(names(*pairs), data=None)
    return both | files


def cases():
    layer = file(names(("w", tensor()), ("b", tensor())))
    yield "zero/layers", stages({"layer_00-model_states.pt": layer, "layer_01-model_00-model_states.pt": layer})
    yield "zero/layer_is_missing", stages({"layer_00-model_states.pt": layer})
    yield "zero/layer_is_cut", stages({"layer_01-model_states.pt": layer[:-40]})
    yield "zero/layer_is_text", stages({"layer_01-model_states.pt": b"text"})
    yield "zero/layer_is_a_list", stages({"layer_01-model_states.pt": file(lst(tensor()))})
    yield "zero/layer_without_its_buffer", stages({"layer_01-model_states.pt": file(names(("w", tensor())))})
    yield "zero/layer_has_objects", stages({"layer_01-model_states.pt": file(names(("b", tensor()), ("o", num(1)), ("w", txt("x"))))})
    yield "zero/layer_with_a_huge_number", stages({"layer_99999999999999999999-model_states.pt": layer, "layer_01-model_states.pt": layer})
    yield "zero/layer_of_a_slice_too_many", stages({"layer_01-model_states.pt": layer, "layer_01-model_01-model_states.pt": layer})
    yield "zero/layer_twice", stages({"layer_01-model_states.pt": layer, "layer_1-model_states.pt": layer})
    first, second = "layer_00-model_00-model_states.pt", "layer_00-model_01-model_states.pt"
    degrees = names(("pp_degree", num(1)), ("tp_degree", num(2)))
    slices = parallel(names(), buffer_names=lst(txt("0.b")), checkpoint_parallel_dimensions=degrees)
    yield "zero/layer_of_two_slices", slices | {first: layer, second: layer}
    yield "zero/layer_of_a_missing_slice", slices | {first: layer}
    yield "zero/layer_that_slices_cut_otherwise", slices | {first: layer, second: file(names(("b", tensor()), ("w", tensor(size=(1, 2), stride=(2, 1)))))}
    yield "zero/layer_that_one_slice_has", slices | {first: layer, second: file(names(("b", tensor())))}
    yield "zero/layer_buffer_of_one_slice", slices | {first: layer, second: file(names(("w", tensor())))}
    yield "zero/parallel", parallel(names())
    yield "zero/parallel_without_cuts", parallel()
    yield "zero/parallel_cuts_are_text", parallel(txt("none"))
    yield "zero/parallel_replicated", parallel(rule("tp_replicated_parameter_patterns", "^w$"))
    yield "zero/parallel_replicas_of_other_shape", parallel(rule("tp_replicated_parameter_patterns", "w"), (size(2), size(1)))
    yield "zero/parallel_columns_of_a_vector", parallel(rule("parameter_with_row_parallelism_patterns", "w"))
    yield "zero/parallel_columns", parallel(rule("parameter_with_row_parallelism_patterns", "w"), (size(2, 1), size(2, 1)))
    yield "zero/parallel_other_rows", parallel(rule("parameter_with_row_parallelism_patterns", "w"), (size(2, 1), size(1, 2)))
    yield "zero/parallel_other_dimensions", parallel(names(), (size(2), size(2, 1)))
    yield "zero/parallel_groups_in_a_pattern", parallel(rule("tp_replicated_parameter_patterns", "(w|v)"))
    yield "zero/parallel_open_class", parallel(rule("tp_replicated_parameter_patterns", "[w"))
    yield "zero/parallel_halves", parallel(rule("parameter_with_2_sub_params_cat_dim_0", "w"))
    yield "zero/parallel_odd_halves", parallel(rule("parameter_with_2_sub_params_cat_dim_0", "w"), (size(1), size(1)))
    yield "zero/parallel_vocabulary_without_size", parallel(rule("vocabulary_parameter_patterns", "w"))
    padded = names(("vocabulary_parameter_patterns", lst(txt("w"))), ("original_vocab_size", num(3)))
    yield "zero/parallel_vocabulary", parallel(padded)
    yield "zero/parallel_huge", parallel(names(), (size(1 << 60), size(1 << 60)))
    yield "zero/parallel_parts", parallel(parts(lst(lst(num(2), num(2)))))
    yield "zero/parallel_number_of_parts", parallel(parts(lst(num(2))))
    yield "zero/parallel_no_parts", parallel(parts(lst(num(0))))
    yield "zero/parallel_other_parts", parallel(parts(lst(lst(num(2), num(4)))))
    yield "zero/parallel_parts_of_another_dimension", parallel(parts(lst(num(2)), 7))
    yield "zero/parallel_parts_without_widths", parallel(parts(lst(num(2)), 0, ("universal_checkpoint_version", num(1))))
    widths = names(("w", lst(lst(num(1), num(1)), lst(num(1), num(-1)))))
    yield "zero/parallel_negative_width", parallel(parts(lst(num(2)), 0, ("sub_param_shard_widths", widths)))
    yield "zero/parallel_map_overlaps", parallel(affine())
    yield "zero/parallel_map_leaves_the_tensor", parallel(affine(source=3))
    yield "zero/parallel_map_leaves_the_slice", parallel(affine(dest=1))
    yield "zero/parallel_map_of_nothing", parallel(affine(length=0))
    yield "zero/parallel_map_of_another_size", parallel(affine(whole=-4))
    yield "zero/parallel_map_is_newer", parallel(affine(version=2))
    yield "zero/parallel_map_scales", parallel(affine(extra=[("scale", num(2))]))
    why = names(("autotp_unsupported_parameter_patterns", names(("w", txt("heads are interleaved")))))
    yield "zero/parallel_unsupported", parallel(why)
    degrees = names(("pp_degree", num(2)), ("tp_degree", num(1)))
    yield "zero/parallel_stages_share", parallel(checkpoint_parallel_dimensions=degrees)
    yield "zero/parallel_other_degrees", parallel(checkpoint_parallel_dimensions=names(("pp_degree", num(3)), ("tp_degree", num(1 << 62))))
    yield "zero/parallel_slice_is_missing", {k: v for k, v in parallel(names()).items() if k != "zero_pp_rank_0_mp_rank_01_optim_states.pt"}
    yield "zero/experts_of_one_rank_twice", layers(("ep_rank", num(0)), ("num_experts", num(2)), ("num_local_experts", num(1)))
    ranks = [layers(("ep_rank", num(r)), ("num_experts", num(2)), ("num_local_experts", num(1))) for r in range(2)]
    yield "zero/experts_of_autoep", ranks[0] | {k: v for k, v in ranks[1].items() if "rank_1" in k}
    yield "zero/experts_without_numbers", layers(groups=False)
    groups = lst(num(1), num(2))
    moe = "deepspeed_experts.0.weight"
    yield "zero/experts_of_two_ranks", two([optim(2, groups)] * 2, shapes=lst(names((moe, size(2))), names()))
    yield "zero/experts_of_too_few_vectors", two([optim(2, groups)] * 2, shapes=lst(names((moe, size(9))), names()))
    yield "zero/experts_in_no_parts", two([optim(2, lst(num(0), num(2)))] * 2, shapes=lst(names((moe, size(2))), names()))
    yield "zero/stage_3", three()
    yield "zero/stage_2", two()
    yield "zero/partition_count_is_a_list", two([optim(2, lst(num(2), num(1)))] * 2)
    yield "zero/rank_is_missing", three([optim()])
    yield "zero/other_count", three([optim(), optim(ranks=3)])
    yield "zero/vectors_too_short", three(shapes=lst(names(("w", size(5)))))
    yield "zero/vectors_too_short_2", two(shapes=lst(names(("w", size(5)))))
    yield "zero/no_such_group", two(shapes=lst(names(("v", size(1))), names(("w", size(1)))))
    yield "zero/vector_of_two_dimensions", three([optim(vector=tensor(size=(2, 1), stride=(1, 1)))] * 2)
    yield "zero/vector_is_a_number", three([optim(vector=num(1))] * 2)
    yield "zero/negative_shape", three(shapes=lst(names(("w", size(-3)))))
    yield "zero/huge_shape", three(shapes=lst(names(("w", size(1 << 40, 1 << 40)))))
    yield "zero/many_huge", three(shapes=lst(names(("v", size(1 << 60)), ("w", size(1 << 60)))))
    yield "zero/shape_is_text", three(shapes=lst(names(("w", txt("3")))))
    yield "zero/shapes_are_a_dict", three(shapes=names(("w", size(3))))
    yield "zero/the_same_name_twice", three(shapes=lst(names(("w", size(1))), names(("w", size(1)))))
    yield "zero/empty_parameter", three(shapes=lst(names(("e", size(0, 4)), ("w", size(3)))))
    yield "zero/shared", three(shared_params=names(("tied", txt("w")), ("lost", txt("x"))))
    yield "zero/frozen_is_missing", three(frozen_param_shapes=names(("f", size(2))))
    yield "zero/model_parallel", two() | {"mp_rank_01_model_states.pt": model()}
    yield "zero/no_model", {k: v for k, v in two().items() if "optim" in k}
    yield "zero/no_vectors", three([file(names(("optimizer_state_dict", names())), data=None)] * 2)
    yield "zero/no_state", three([file(lst(num(1)), data=None)] * 2)
    yield "zero/latest_is_gone", {"latest": b"global_step2"}
    yield "zero/latest_leads_out", {"latest": b"../stage_3"}
    yield "zero/latest_is_empty", {"latest": b""}
    yield "zero/other_state", three([optim(state=names(("exp_avg", tensor(size=(1,)))))] * 2)
    yield "zero/experts", two() | {"layer_0_expert_1_mp_rank_00_model_states.pt": model()}
    yield "zero/experts_are_missing", two([optim(2, lst(num(2), num(1)))] * 2, shapes=lst(names(("w", size(3))), names(("e", size(2)))))
    yield "zero/expert_is_text", two() | {"layer_0_expert_1_mp_rank_00_model_states.pt": b"text"}
    yield "zero/expert_is_a_list", two() | {"layer_0_expert_1_mp_rank_00_model_states.pt": file(lst(tensor(), num(1)))}
    yield "zero/expert_of_another_model_rank", two() | {"layer_0_expert_1_mp_rank_01_model_states.pt": model()}
    yield "zero/expert_ranks", two() | {"expp_rank_0_mp_rank_00_optim_states.pt": model()}
    groups = lst(names(("partition_count", num(2))), names(("partition_count", num(1))))
    yield "zero/groups_cut_otherwise", three([optim(extra=[("ds_zero_partition_groups", groups)])] * 2)
    yield "zero/groups_are_numbers", three([optim(extra=[("ds_zero_partition_groups", lst(num(7)))])] * 2)
    yield "zero/optimizer_value_has_a_name_twice", three([optim(extra=[("state.w.step", num(1))])] * 2)
    inside = {"zero/w/fp32.pt": file(names(("param", tensor()), ("cat_dim", num(0)))), "zero/w/exp_avg.pt": file(tensor())}
    yield "universal/whole", inside
    yield "universal/with_shapes", inside | {"mp_rank_00_model_states.pt": model(lst(names(("w", size(2, 1)))))}
    yield "universal/other_shapes", inside | {"mp_rank_00_model_states.pt": model(lst(names(("w", size(5)))))}
    yield "universal/negative_shape", inside | {"mp_rank_00_model_states.pt": model(lst(names(("w", size(-2, -1)))))}
    yield "universal/shapes_are_text", inside | {"mp_rank_00_model_states.pt": model(txt("none"))}
    yield "universal/object_instead", inside | {"zero/w/fp32.pt": file(num(3), data=None)}
    yield "universal/cut", inside | {"zero/w/fp32.pt": inside["zero/w/fp32.pt"][:-4]}
    yield "universal/no_torch_file", inside | {"zero/w/exp_avg.pt": b"hello"}
    yield "universal/storage_is_missing", inside | {"zero/w/exp_avg.pt": file(tensor(), data=None)}
    yield "universal/the_same_name_twice", inside | {"zero/optim.state.w.exp_avg/fp32.pt": file(tensor())}
    yield "universal/latest_leads_out", {"latest_universal": b"/tmp"}
    common = "zero/optimizer_state.pt"
    inner = names(("state", dct((num(0), names(("step", num(7)))))))
    yield "universal/optimizer", inside | {common: file(names(("param_groups", lst(names(("lr", num(1))))), ("optimizer_state_dict", inner)), data=None)}
    yield "universal/optimizer_is_a_number", inside | {common: file(num(3), data=None)}
    yield "universal/optimizer_is_cut", inside | {common: file(names(), data=None)[:-4]}
    yield "universal/optimizer_is_empty", inside | {common: file(names(("optimizer_state_dict", names(("state", dct())))), data=None)}
    yield "universal/optimizer_state_is_a_list", inside | {common: file(names(("optimizer_state_dict", names(("state", lst(num(1)))))), data=None)}
    yield "universal/optimizer_has_a_name_twice", inside | {common: file(names(("state.w.exp_avg", num(1))), data=None)}
    yield "universal/step_has_no_storage", inside | {common: file(names(("optimizer_state_dict", names(("state", dct((num(0), names(("step", tensor())))))))), data=None)}
    yield "universal/model_has_a_name_twice", inside | {"zero/deepspeed.x/fp32.pt": file(tensor()), "mp_rank_00_model_states.pt": model(x=num(1))}
    yield "universal/model_is_text", inside | {"mp_rank_00_model_states.pt": file(txt("none"), data=None)}
    yield "universal/parameter_is_a_file", inside | {"zero/v": b"hello"}
    yield "universal/latest_is_gone", {"latest_universal": b"global_step2_universal"}
    yield "universal/model_is_cut", inside | {"mp_rank_00_model_states.pt": model()[:-4]}
    yield "universal/tensor_leaves_its_storage", inside | {"zero/w/exp_avg.pt": file(tensor(size=(9,)))}
    flipped = inside["zero/w/fp32.pt"].replace(struct.pack("<2f", 1, 2), struct.pack("<2f", 1, 3))
    yield "universal/bit_flipped", inside | {"zero/w/fp32.pt": flipped}
    yield "universal/huge_shape", inside | {"mp_rank_00_model_states.pt": model(lst(names(("w", size(1 << 40, 1 << 40)))))}
    yield "universal/file_is_empty", inside | {"zero/w/fp32.pt": b""}
    yield "universal/calls_os_system", inside | {"zero/w/step.pt": file(call(glob("os", "system"), txt("touch pwned")), data=None)}
    yield "universal/negative_offset", inside | {"zero/w/exp_avg.pt": file(tensor(offset=-1))}
