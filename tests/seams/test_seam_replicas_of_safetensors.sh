#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch's distributed safetensors on a mesh with replicas: several files have the same part of a tensor.
. "$(dirname "$0")/../cli/expect.sh"

part() # FOLDER NUMBER OFFSET BYTES: half of tensor w, [4] of U8
{
    st "$T/$1/shard-0000$2-model-00001-of-00001.safetensors" '{"__metadata__":{"DCP_SHARDING_INFO":"{\"w\": {\"saved_offsets\": ['$3']}}","DCP_VERSION":"1.0","format":"pt"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' "$4"
}
mkdir "$T/same" "$T/differ"
part same 1 0 ab
part same 2 2 cd
part same 3 0 ab
part same 4 2 cd
part differ 1 0 ab
part differ 2 2 cd
part differ 3 0 ab
part differ 4 2 cX

t 'the parts of the first files are loaded' -c '"$R" cat "$T/same" w --format raw; "$R" cat "$T/differ" w --format raw; echo'
out <<'END'
abcdabcd
END

t 'inspect counts each part once' -c '"$R" inspect "$T/same" | grep "^w "'
out <<'END'
w     uint8  [4]    shard(0)/2       2    4 B  2 files
END

t 'verify compares the replicas' -c '"$R" verify "$T/same"'
out <<'END'
ok: safetensors, 1 tensor, 4 B, 0 objects; no checksums: changes can't be detected; `reshard manifest` adds checksums
END

t 'and names those that differ' -c '"$R" verify "$T/differ" 2>&1 | grep -o "replicas of .*"; true'
out <<'END'
replicas of "w" differ: that of file "shard-00002-model-00001-of-00001.safetensors" is loaded, file "shard-00004-model-00001-of-00001.safetensors" has another
END

finish
