#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Folders of Megatron-Core (tests/data/make_megatron.py): inspect names the form of the optimizer's state, verify reads
# integrity.json, a copy has the files that Megatron needs to open it again.
. "$(dirname "$0")/../cli/expect.sh"

M=golden/megatron
export M

t "the form of the optimizer's state is told" -c '"$R" inspect --json $M/dp_reshardable | grep -o "Megatron-Core[^\"]*"'
out <<'END'
Megatron-Core torch_dist, iteration 7; optimizer state dp_reshardable: flat buckets that lack the parameters' names, left as stored
END

t "flat ranges have their true shape" -c '"$R" inspect $M/torch_dist | grep -c "exp_avg.*\[4, 6\]"'
out <<'END'
2
END

t "a copy has the files beside, but no list of checksums of other bytes" -c \
    '"$R" convert -q $M/fully_reshardable "$T/copy" --to dcp 2>/dev/null; ls "$T/copy" | grep -v distcp'
out <<'END'
common.pt
metadata.json
END

t "a copy of flat ranges has the same tensors" -c \
    '"$R" convert -q $M/torch_dist "$T/flat" --to dcp && "$R" diff -q $M/torch_dist "$T/flat"'

cp -r $M/fully_reshardable "$T/bad"
printf x >>"$T/bad/common.pt"
rm "$T/bad/metadata.json"
t "changed and missing files are found" -c '"$R" verify "$T/bad" | grep -o "file \"[a-z.]*\": its SHA.*\|metadata.json\|[0-9]* damages"'
out <<'END'
file "common.pt": its SHA-256 is not that of "integrity.json"
metadata.json
2 damages
END

printf '{"algorithm": "md5", "files": {}}' >"$T/bad/integrity.json"
t "another algorithm is refused" -c '"$R" verify "$T/bad" | head -1'
out <<'END'
damage: file "integrity.json": its algorithm is not "sha256"
END

for list in '' '{' '[]' '{}' '{"files": []}' '{"files": {"a": 1}}' '{"files": {"a": "00"}}' '{"files": {}} x' \
    '{"files": {"../a": "0000000000000000000000000000000000000000000000000000000000000000"}}' \
    '{"files": {"nothing": "0000000000000000000000000000000000000000000000000000000000000000"}}'; do
    printf '%s' "$list" >"$T/bad/integrity.json"
    t "a list that can't be used is a damage: $list" -c '"$R" verify "$T/bad" | tail -1'
    out <<'END'
1 damage
END
done

mkdir "$T/run"
cp -r $M/torch_dist "$T/run/iter_0000042"
printf 42 >"$T/run/latest_checkpointed_iteration.txt"
t "the last iteration of a run is opened" verify -q "$T/run"

printf ../x >"$T/run/latest_checkpointed_iteration.txt"
t "a file that names no iteration is refused" -c '"$R" verify "$T/run" 2>&1 | grep -o "holds no iteration"'
out <<'END'
holds no iteration
END

mkdir "$T/zarr"
cp $M/torch_dist/common.pt $M/torch_dist/metadata.json "$T/zarr"
t "other formats of Megatron are refused" -c '"$R" verify "$T/zarr" 2>&1 | grep -o "only its format torch_dist is supported, not zarr"'
out <<'END'
only its format torch_dist is supported, not zarr
END

finish
