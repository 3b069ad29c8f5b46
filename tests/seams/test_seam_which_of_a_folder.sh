#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Which of the files in a folder are the checkpoint: a model never becomes one with an adapter or another model, nothing
# that lies beside stays unnamed, and what is missing is told.
. "$(dirname "$0")/../cli/expect.sh"

head() { printf '{"%s":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' "$1"; }
# What the tool says about each of these folders, without the names of these.
said=$W/said
export said
cat >"$said" <<'END'
cd "$T" || exit
for dir; do
    "$R" inspect "$dir" 2>&1 | tail -n 1 | sed 's/^reshard: checkpoint "[^"]*": //; s/ in [0-9]* chunk.*//'
done
END
# A folder of safetensors files, each with a tensor of its own: of FOLDER NAME...
of()
{
    dir=$T/$1
    mkdir "$dir"
    shift
    for file; do
        st "$dir/$file" "$(head "$file")" xy
    done
}

# ---- adapters ----
for kind in bins zero3 rank_families; do
    cp -r "golden/folders/$kind" "$T/$kind"
    st "$T/$kind/adapter_model.safetensors" "$(head lora)" xy
done
mkdir "$T/bin"
cp golden/model.bin "$T/bin/pytorch_model.bin"
echo '{"model_type":"tiny"}' >"$T/bin/config.json"
cp -r "$T/bin" "$T/bin_adapter"
cp golden/model.bin "$T/bin_adapter/adapter_model.bin"
of lora diffusion_pytorch_model.safetensors pytorch_lora_weights.safetensors
of only adapter_model.safetensors
touch "$T/only/optimizer.pt" "$T/only/rng_state_0.pth"
t 'an adapter is never the checkpoint beside another' -c 'sh "$said" bins zero3 rank_families bin_adapter lora only'
out <<'END'
torch (Hugging Face folder, without the adapter beside it): 4 tensors
zero (DeepSpeed 0.19.8 ZeRO stage 3 on 2 ranks, without the adapter beside it): 15 tensors
ranks (torch.save of DTensors on 2 ranks, without the adapter beside it): 4 tensors
torch (Hugging Face folder, without the adapter beside it): 3 tensors
safetensors (without the adapter beside it): 1 tensor
safetensors: 1 tensor
END

# ---- a model beside the state of a training ----
cp -r "$T/zero3" "$T/zero3_model"
cp -r "$T/rank_families" "$T/ranks_model"
st "$T/zero3_model/model.safetensors" "$(head a)" xy
st "$T/ranks_model/model.safetensors" "$(head a)" xy
cp -r golden/folders/zero3 "$T/zero3_bin"
cp golden/model.bin "$T/zero3_bin/pytorch_model.bin"
cp -r golden/dcp_rows "$T/dcp"
st "$T/dcp/model.safetensors" "$(head a)" xy
t 'a second checkpoint is named' -c 'sh "$said" zero3_model ranks_model zero3_bin dcp'
out <<'END'
safetensors (without the adapter and the DeepSpeed checkpoint beside it): 1 tensor
safetensors (without the adapter and the rank files beside it): 1 tensor
torch (Hugging Face folder, without the DeepSpeed checkpoint beside it): 3 tensors
dcp (without model.safetensors beside it): 3 tensors
END

# ---- models beside each other ----
of accelerate model.safetensors model_1.safetensors
of mistral consolidated.safetensors model.safetensors
of mistral_set consolidated.safetensors model-00001-of-00002.safetensors model-00002-of-00002.safetensors
of many model.safetensors a.safetensors b.safetensors c.safetensors d.safetensors
of sets a-00001-of-00001.safetensors b-00001-of-00001.safetensors
of unpadded w-1-of-10.safetensors w-2-of-10.safetensors w-3-of-10.safetensors w-4-of-10.safetensors w-5-of-10.safetensors \
    w-6-of-10.safetensors w-7-of-10.safetensors w-8-of-10.safetensors w-9-of-10.safetensors w-10-of-10.safetensors
of parts a.safetensors b.safetensors
of variants model.fp16.safetensors model.fp32.safetensors
st "$T/variants/model.fp16.safetensors" "$(head model.fp32.safetensors)" xy
t 'models of their own are not merged, parts are' -c 'sh "$said" accelerate mistral mistral_set many sets unpadded parts variants'
out <<'END'
safetensors (without model_1.safetensors beside it): 1 tensor
safetensors (without consolidated.safetensors beside it): 1 tensor
safetensors (without consolidated.safetensors beside it): 2 tensors
safetensors (without a.safetensors, b.safetensors, c.safetensors and 1 more beside it): 1 tensor
"a-00001-of-00001.safetensors" and "b-00001-of-00001.safetensors" are parts of two models: put the files of one into a folder
safetensors: 10 tensors
safetensors: 2 tensors
tensor "model.fp32.safetensors" in "model.fp16.safetensors" and "model.fp32.safetensors": they are two models, or variants of one: open one of them
END

cp -r golden/hf_index "$T/index"
st "$T/index/vision.safetensors" "$(head a)" xy
t 'what the index does not list is named too' -c 'sh "$said" index'
out <<'END'
safetensors (without vision.safetensors beside it): 44 tensors
END

# ---- pytorch_model.bin ----
t 'pytorch_model.bin opens as its folder, and the config goes along' -c 'cd "$T"; "$R" diff bin bin/pytorch_model.bin; "$R" convert -q --to safetensors bin out; ls out'
out <<'END'
same: 3 tensors, 384 B, 0 objects
config.json
model.safetensors
END

rm "$T/bins/pytorch_model.bin.index.json"
t 'numbered files need no index, if none is missing' -c 'cd "$T"; "$R" diff bins "$OLDPWD/golden/folders/bins"; rm bins/*-00001-*; "$R" inspect bins; echo $?'
out <<'END'
same: 4 tensors, 48 B, 0 objects
4
END
err <<'END'
reshard: checkpoint "bins": file "pytorch_model-00001-of-00002.bin" is missing
END

of lost model-00001-of-00003.safetensors model-00003-of-00003.safetensors
t 'of numbered files one is missing' -c 'cd "$T"; "$R" inspect lost | tail -n 1; "$R" verify lost; "$R" convert -q lost out2 2>&1 | grep -c "could not open .*-00002-of"; "$R" convert -q --salvage lost out2; ls out2 | grep -c distcp'
out <<'END'
safetensors (1 of 3 files missing): 2 tensors in 2 chunks, 4 parameters, 4 B; 0 objects
damage: file "model-00002-of-00003.safetensors" is missing
1 damage
1
1
END
err <<'END'
reshard: damage: file "model-00002-of-00003.safetensors" is missing
END

of claims model-00001-of-99999.safetensors
t 'a name can claim any number' -c 'sh "$said" claims'
out <<'END'
it has 1 of the 99999 files that "model-00001-of-99999.safetensors" is one of
END

# ---- where else to look ----
mkdir -p "$T/run/global_step_10/actor" "$T/steps/global_step2" "$T/diffusers/unet" "$T/diffusers/vae"
printf 10 >"$T/run/latest_checkpointed_iteration.txt"
cp golden/folders/rank_families/* "$T/run/global_step_10/actor"
cp golden/folders/zero3/global_step2/* "$T/steps/global_step2"
cp "$T/lora/diff"* "$T/diffusers/unet"
cp "$T/bin/pyt"* "$T/diffusers/vae/diffusion_pytorch_model.bin"
mkdir -p "$T/hub/models--org--tiny/blobs" "$T/hub/models--org--tiny/snapshots/0a1b" "$T/hub/.locks/x"
cp "$T/bin/pyt"* "$T/hub/models--org--tiny/snapshots/0a1b"
cp "$T/bin/pyt"* "$T/hub/.locks/x"
t 'folders below with a checkpoint are named' -c 'sh "$said" run run/global_step_10 steps diffusers hub hub/models--org--tiny hub/models--org--tiny/snapshots | sed "s/.*iter/iter/; s/^no .*; //"'
out <<'END'
iter_0000010", which is missing; subfolders with a checkpoint: "global_step_10/actor"
subfolders with a checkpoint: "actor"
subfolders with a checkpoint: "global_step2"
subfolders with a checkpoint: "unet", "vae"
subfolders with a checkpoint: "models--org--tiny/snapshots/0a1b"
subfolders with a checkpoint: "snapshots/0a1b"
subfolders with a checkpoint: "0a1b"
END

finish
