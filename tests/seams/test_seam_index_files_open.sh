#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An index.json stands for the folder that holds it: so each of two variants can be opened.
. "$(dirname "$0")/../cli/expect.sh"

head() { printf '{"%s":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' "$1"; }

t 'the index of a safetensors folder' -c 'cd golden/hf_index && "$R" diff model.safetensors.index.json .'
out <<'END'
same: 44 tensors, 1.0 KiB, 0 objects
END

t 'the index of torch.save files' -c '"$R" diff golden/folders/bins/pytorch_model.bin.index.json golden/folders/bins'
out <<'END'
same: 4 tensors, 48 B, 0 objects
END

mkdir "$T/two"
st "$T/two/model-00001-of-00002.safetensors" "$(head a)" xy
st "$T/two/model-00002-of-00002.safetensors" "$(head b)" zw
st "$T/two/model.fp16-00001-of-00002.safetensors" "$(head a)" XY
st "$T/two/model.fp16-00002-of-00002.safetensors" "$(head b)" ZW
for v in '' fp16; do
    stem=model${v:+.$v}
    printf '{"weight_map":{"a":"%s-00001-of-00002.safetensors","b":"%s-00002-of-00002.safetensors"}}' "$stem" "$stem" \
        >"$T/two/model.safetensors.index${v:+.$v}.json"
done
t 'the folder opens the usual one and names the other' -c 'cd "$T"; "$R" cat two a; echo; "$R" inspect two | tail -n 1'
out <<'END'
xy
safetensors (without model.safetensors.index.fp16.json beside it): 2 tensors in 2 chunks, 4 parameters, 4 B; 0 objects
END

t 'the index opens the other' -c 'cd "$T/two"; i=model.safetensors.index.fp16.json; "$R" cat $i b; echo; "$R" inspect "$T/two/$i"'
out <<'END'
ZW
name  dtype  shape  layout  chunks  bytes  file
a     uint8  [2]    whole        1    2 B  model.fp16-00001-of-00002.safetensors
b     uint8  [2]    whole        1    2 B  model.fp16-00002-of-00002.safetensors

safetensors (without model.safetensors.index.json beside it): 2 tensors in 2 chunks, 4 parameters, 4 B; 0 objects
END

t 'checksums are of the folder and not held against the other' -c 'cd "$T"; "$R" manifest -q two/model.safetensors.index.fp16.json
"$R" manifest -q two; "$R" verify two/model.safetensors.index.fp16.json | cut -d, -f 1-3; "$R" verify two'
out <<'END'
ok: safetensors, 2 tensors, 4 B
ok: safetensors, 2 tensors, 4 B, 0 objects
END
err <<'END'
reshard: checkpoint "two/model.safetensors.index.fp16.json": a checksum file is of a whole folder: open that
END

t 'files beside it go along' -c 'cd "$T"; echo {} >two/config.json; "$R" convert -q --to safetensors two/model.safetensors.index.fp16.json out; ls out; "$R" cat out a; echo'
out <<'END'
config.json
model.safetensors
XY
END
err <<'END'
reshard: left out: model-00001-of-00002.safetensors, model-00002-of-00002.safetensors, model.safetensors.index.json: not part of this checkpoint
END

t 'without a usual one an index has to be named' -c 'cd "$T"; cp -r two neither; mv neither/model.safetensors.index.json neither/model.safetensors.index.fp32.json; "$R" inspect neither
"$R" cat neither/model.safetensors.index.fp32.json a; echo; "$R" inspect neither/model.safetensors.index.json'
code 3
out <<'END'
xy
END
err <<'END'
reshard: checkpoint "neither": "model.safetensors.index.fp16.json" and "model.safetensors.index.fp32.json" are the indexes of two models: open one of them
reshard: checkpoint "neither/model.safetensors.index.json": the folder has no file "model.safetensors.index.json"
END

cp -r golden/folders/bins "$T/bins"
cp "$T/bins/pytorch_model.bin.index.json" "$T/bins/pytorch_model.bin.index.fp16.json"
t 'torch.save files the same' -c '"$R" inspect "$T/bins" | tail -n 1; "$R" inspect "$T/bins/pytorch_model.bin.index.fp16.json" | tail -n 1'
out <<'END'
torch (Hugging Face folder, without pytorch_model.bin.index.fp16.json beside it): 4 tensors in 4 chunks, 13 parameters, 48 B; 0 objects
torch (Hugging Face folder, without pytorch_model.bin.index.json beside it): 4 tensors in 4 chunks, 13 parameters, 48 B; 0 objects
END

finish
