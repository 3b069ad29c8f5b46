#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Folders of torch 2.15 and of Megatron-Core, whose metadata say more than is looked at (tests/data/make_newer.py).
. "$(dirname "$0")/../cli/expect.sh"

t "torch_2_15 is verified" verify newer/torch_2_15
out <<'END'
ok: dcp, 2 tensors, 52 B, 1 object
END

t "what is not looked at is listed" verify newer/megatron
out <<'END'
skipped: unknown attribute Metadata.all_local_plans
ok: dcp, 2 tensors, 52 B, 1 object
END

t "and left out if quiet" verify -q newer/megatron
out </dev/null

for from in torch_2_15 megatron; do
    t "tensors of $from are what was saved" cat newer/$from model.w --format text
    out <<'END'
0 1 2
3 4 5
6 7 8
9 10 11
END

    t "$from is converted" -c '"$R" convert -q newer/'$from' "$T/'$from'.pt" && "$R" diff newer/'$from' "$T/'$from'.pt" >/dev/null'
done

cp -R newer/torch_2_15 "$T/moved"
LC_ALL=C sed 's/checkpoint\.metadata/checkpoint.newhomes/g; s/checkpoint\.filesystem/checkpoint.elsewhere_/g' newer/torch_2_15/.metadata >"$T/moved/.metadata"
t "classes that a later torch moved are the same classes" -c 'grep -q newhomes "$T/moved/.metadata" && "$R" diff newer/torch_2_15 "$T/moved"'
out <<'END'
same: 2 tensors, 52 B, 1 object
END

LC_ALL=C sed 's/torch\.distributed/other.distributed/g' newer/torch_2_15/.metadata >"$T/moved/.metadata"
t "those of others are not" -c '"$R" inspect "$T/moved" 2>&1 | grep -o "would call .*"'
out <<'END'
would call "other.distributed.checkpoint.metadata.Metadata"
END

finish
