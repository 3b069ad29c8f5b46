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


def cases():
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
