#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard convert
. "$(dirname "$0")/expect.sh"

for from in golden/dcp_rows golden/training.pt golden/hf_parts; do
    for to in dcp one.safetensors one.pt; do
        t "$from becomes $to" -c "\$R convert -q $from \$T/$to --overwrite 2>/dev/null && { \$R diff -q $from \$T/$to --names-only || [ \$? = 5 ]; }"
    done
done

t 'a conversion says nothing when all went along and -q is given' convert -q golden/dcp_rows "$T/quiet"

t 'a conversion ends with one line' -c 'cd "$T"; "$R" convert "$OLDPWD/golden/dcp_rows" told 2>&1 | sed "s/[0-9.]* s$/N s/"'
out <<'END'
reshard: wrote told: dcp, 3 tensors, 0 objects, 20.4 KiB in 5 files, N s
END

t 'rows become columns and stay the same' -c '$R convert -q golden/dcp_rows $T/l --layout "mesh tp=2; * replicate" && $R diff -q golden/dcp_rows $T/l'

t 'objects that safetensors lack are listed in one line, also when quiet' -c '$R convert -q golden/training.pt $T/objects.safetensors 2>&1'
out <<'END'
reshard: left out: optim.param_groups.0.lr, optim.param_groups.0.betas, optim.param_groups.0.eps, optim.param_groups.0.fused, optim.param_groups.0.params and 3 more: safetensors hold no objects
END

t 'a key that becomes text in DCP is named, and none if the target keeps it' -c '$R convert -q bad/pickle/tuple_key.pt $T/keys 2>&1; $R convert -q bad/pickle/tuple_key.pt $T/keys.pt 2>&1'
out <<'END'
reshard: left out: (1, 2): the type of a key on its path: DCP has text instead
END

t 'the universal form of tensor-parallel ranks says that there is one' -c '$R convert -q golden/folders/zero1_parallel $T/universal --to universal 2>/dev/null && $R inspect $T/universal | grep -E "mp_world_size|parallel_dim|^qkv"'
out <<'END'
qkv.weight                             float32  [8, 3]  whole        1   96 B  zero/qkv.weight/fp32.pt
deepspeed.checkpoint_parallel_dimensions.pp_degree                             1
deepspeed.checkpoint_parallel_dimensions.tp_degree                             1
deepspeed.mp_world_size                                                        1
END

t 'a target that exists is refused with 3' -c 'cd $T && mkdir there && $R convert -q $OLDPWD/golden/dcp_rows there'
code 3
err <<'END'
reshard: checkpoint "there": it exists already, and overwrite was not asked for
END

t 'with --salvage it is refused before anything is verified' -c 'cd $T && $R convert $OLDPWD/bad/dcp/item_bit_flipped there --salvage'
code 3
err <<'END'
reshard: checkpoint "there": it exists already, and overwrite was not asked for
END

t 'a folder without a checkpoint ends in 4' -c 'mkdir $T/empty && $R convert $T/empty $T/none 2>/dev/null'
code 4

t 'a damaged source ends in 4 and leaves nothing' -c 'mkdir $T/damaged && $R convert -q bad/dcp/item_bit_flipped $T/damaged/out.pt 2>/dev/null; code=$?; ls $T/damaged; exit $code'
code 4

t 'and it is called the source' -c '$R convert -q bad/dcp/item_bit_flipped $T/damaged/out.pt 2>&1 | grep -c ": the source: tensor"'
out <<'END'
1
END

t '--no-verify takes a damaged source as it is' convert -q --no-verify bad/dcp/item_bit_flipped "$T/as-it-is"

t 'a rename that is none is misuse' convert golden/dcp_rows "$T/x" --rename foo
code 2
err <<'END'
reshard: --rename "foo": expected s/RE/TO/
try: reshard help convert
END

t 'a dtype that is none is misuse' convert golden/dcp_rows "$T/x" --dtype 'w=float99'
code 2
err <<'END'
reshard: --dtype: "float99" is not the name of a dtype
try: reshard help convert
END

t 'a layout that is none is misuse' convert golden/dcp_rows "$T/x" --layout 'mash dp=2'
code 2
err <<'END'
reshard: layout "mash dp=2": line 1, column 1: expected "mesh" and its axes, found "mash"
END

t 'a layout that looks like a file and is none is misuse' convert golden/dcp_rows "$T/x" -l rules.txt
code 2
err <<'END'
reshard: layout "rules.txt" is neither a file nor a mesh with rules
END

t 'a size of files is only for folders of safetensors' -c 'cd "$T"; for to in x x.pt x.safetensors; do "$R" convert "$OLDPWD/golden/dcp_rows" $to --shard-size 1K; echo $?; done 2>&1'
out <<'END'
reshard: checkpoint "x": only safetensors can be split by file size
2
reshard: checkpoint "x.pt": only safetensors can be split by file size
2
reshard: checkpoint "x.safetensors": a single file can't be split by size: write a folder
2
END

t '--overwrite replaces no folder that holds other things' -c 'cd "$T"; src=$OLDPWD/golden/dcp_rows; mkdir mine && echo much work >mine/thesis.txt; "$R" convert "$src" mine --overwrite; echo $?; cat mine/thesis.txt; rm mine/thesis.txt; "$R" convert -q "$src" mine --overwrite && "$R" convert -q "$src" mine --overwrite --to safetensors && "$R" diff "$src" mine; ls -A mine'
out <<'END'
3
much work
same: 3 tensors, 344 B, 0 objects
.reshard-sums
model.safetensors
END
err <<'END'
reshard: checkpoint "mine": holds "thesis.txt", which is not part of a checkpoint and would be removed by overwriting it
END

t 'other compressions than zstd are misuse' convert golden/dcp_rows "$T/x" --compress gzip
code 2
err <<'END'
reshard: --compress "gzip": only zstd and zstd:N are supported
try: reshard help convert
END

t 'a pattern that nothing matches costs no checkpoint' -c '"$R" convert -q golden/dcp_rows "$T/kept.pt" && "$R" convert -q golden/dcp_rows "$T/kept.pt" --overwrite --include "rwo*" 2>&1 | sed "s|$T|T|"; "$R" diff golden/dcp_rows "$T/kept.pt"'
out <<'END'
reshard: warning: --include "rwo*" matches nothing; the closest name is "row"
reshard: checkpoint "T/kept.pt": nothing in the source matches "rwo*"
same: 3 tensors, 344 B, 0 objects
END

t 'nothing to go on with: from the start' convert -q golden/dcp_rows "$T/resumed" --resume

t 'no target is misuse' convert golden/dcp_rows
code 2
err <<'END'
reshard: convert needs SRC DST
try: reshard help convert
END

finish
