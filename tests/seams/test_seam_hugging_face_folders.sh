#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hugging Face folders as they are: variants, adapters, an index into a sub-folder, links into the cache, tensors beside the index.
. "$(dirname "$0")/../cli/expect.sh"

head() { printf '{"%s":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' "$1"; }

mkdir "$T/variants"
st "$T/variants/model.safetensors" "$(head a)" xy
st "$T/variants/model.fp16.safetensors" "$(head a)" xy
t 'two variants: one has to be named' -c 'cd "$T" && "$R" inspect variants'
code 3
err <<'END'
reshard: checkpoint "variants": "model.safetensors" and "model.fp16.safetensors" are two variants of one model: open one of them
END

mkdir "$T/adapter"
st "$T/adapter/model.safetensors" "$(head a)" xy
st "$T/adapter/adapter_model.safetensors" "$(head b)" xy
t 'an adapter beside the model is not merged' -c '"$R" inspect "$T/adapter" | tail -n 1'
out <<'END'
safetensors (without the adapter beside it): 1 tensor in 1 chunk, 2 parameters, 2 B; 0 objects
END

mkdir -p "$T/index/sub" "$T/blobs"
st "$T/index/sub/one.safetensors" "$(head a)" xy
st "$T/blobs/1234" "$(head b)" xy
ln -s ../blobs/1234 "$T/index/two.safetensors"
echo '{"metadata":{},"weight_map":{"a":"sub/one.safetensors","b":"two.safetensors"}}' >"$T/index/diffusion.safetensors.index.json"
t 'an index of another name, into a sub-folder and over a link' -c '"$R" inspect "$T/index"'
out <<'END'
name  dtype  shape  layout  chunks  bytes  file
a     uint8  [2]    whole        1    2 B  sub/one.safetensors
b     uint8  [2]    whole        1    2 B  two.safetensors

safetensors: 2 tensors in 2 chunks, 4 parameters, 4 B; 0 objects
END

finish
