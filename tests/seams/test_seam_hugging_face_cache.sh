#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Hugging Face cache: snapshots of links to blobs, with the files that save_pretrained writes.
. "$(dirname "$0")/../cli/expect.sh"

repo=$T/models--org--tiny
snap=$repo/snapshots/0a1b
export snap
mkdir -p "$repo/blobs" "$repo/refs" "$snap"
printf 0a1b >"$repo/refs/main"
# cached NAME BLOB: what is in the blob, under its name in the snapshot.
cached() { ln -s "../../blobs/$2" "$snap/$1"; }
st "$repo/blobs/11" '{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' xy
st "$repo/blobs/22" '{"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' zw
echo '{"metadata":{"total_parameters":4,"total_size":4},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}' \
    >"$repo/blobs/33"
echo '{"model_type":"tiny"}' >"$repo/blobs/44"
cached model-00001-of-00002.safetensors 11
cached model-00002-of-00002.safetensors 22
cached model.safetensors.index.json 33
cached config.json 44

t 'a snapshot is a checkpoint' -c '"$R" inspect "$snap"'
out <<'END'
name  dtype  shape  layout  chunks  bytes  file
a     uint8  [2]    whole        1    2 B  model-00001-of-00002.safetensors
b     uint8  [2]    whole        1    2 B  model-00002-of-00002.safetensors

safetensors: 2 tensors in 2 chunks, 4 parameters, 4 B; 0 objects
END

t 'and a link of it a file' -c '"$R" cat "$snap/model-00002-of-00002.safetensors" b && echo'
out <<'END'
zw
END

t 'conversion makes files of the links, the config too' -c '
"$R" convert -q --no-checksum --shard-size 2 --to safetensors "$snap" "$T/out" && cd "$T/out" &&
find . -type f | LC_ALL=C sort && cat config.json && "$R" diff -q "$snap" .'
out <<'END'
./config.json
./model-00001-of-00002.safetensors
./model-00002-of-00002.safetensors
./model.safetensors.index.json
{"model_type":"tiny"}
END

t 'of a download that was cut short the rest is shown' -c '
rm "$snap/../../blobs/22" && "$R" inspect "$snap" | tail -n 1; "$R" verify "$snap" >/dev/null 2>&1'
code 1
out <<'END'
1 whole, 0 damaged, 1 gone
END

finish
