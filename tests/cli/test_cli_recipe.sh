#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard recipe, and convert --recipe
. "$(dirname "$0")/expect.sh"

# Two layers of an attention with 2 groups of 2 heads of size 1: q [4, 1], k and v [2, 1], one byte each.
st "$T/hf.safetensors" '{"l.0.k":{"dtype":"U8","shape":[2,1],"data_offsets":[4,6]},"l.0.q":{"dtype":"U8","shape":[4,1],"data_offsets":[0,4]},"l.0.v":{"dtype":"U8","shape":[2,1],"data_offsets":[6,8]},"l.1.k":{"dtype":"U8","shape":[2,1],"data_offsets":[12,14]},"l.1.q":{"dtype":"U8","shape":[4,1],"data_offsets":[8,12]},"l.1.v":{"dtype":"U8","shape":[2,1],"data_offsets":[14,16]}}' 'abcdKLVWefghMNXY'
cat >"$T/qkv.recipe" <<'END'
let g = groups
let d = 1
l.{i}.q[(g r d) h], l.{i}.{k,v}[(g d) h] <-> qkv[i (g (r d + d + d)) h] for i in 0..layers
END

t 'a recipe shows what would become of every tensor' recipe check "$T/qkv.recipe" "$T/hf.safetensors" --set groups=2 --set layers=2
out <<'END'
target  dtype  shape      parts  line  made of
qkv     uint8  [2, 8, 1]      6     3  l.0.q .. l.1.v, 6 tensors

6 source tensors: 1 targets, 0 of them tied, 0 dropped; every element has its place
END

t 'a conversion fuses' -c '$R convert -q $T/hf.safetensors $T/fused.safetensors --recipe $T/qkv.recipe --set groups=2 --set layers=2 && $R cat $T/fused.safetensors qkv --format raw'
printf 'abKVcdLWefMXghNY' | out

t 'and the reverse splits' -c '$R convert -q $T/fused.safetensors $T/back.safetensors --recipe $T/qkv.recipe --set groups=2 --set layers=2 --reverse && $R diff $T/hf.safetensors $T/back.safetensors'
out <<'END'
same: 6 tensors, 16 B, 0 objects
END

t 'numbers come from a config' -c 'echo "{\"groups\": 2, \"text_config\": {\"layers\": 2}}" >$T/config.json && $R convert -q $T/hf.safetensors $T/again --recipe $T/qkv.recipe --config $T/config.json && $R diff -q $T/fused.safetensors $T/again'

t 'a number that asks for a target of more than 64 TiB is refused' -c 'cd $T; echo "l.{i}.{*x}[v h] -> l.{i}.{*x}[(v + p:0) h] where p = 20000000000000" >pad.recipe; $R convert -q hf.safetensors padded --to dcp --recipe pad.recipe --dry-run'
code 3
err <<'END'
reshard: checkpoint "padded": it would have more than 64 TiB, the most that a conversion writes
END

t 'a recipe with a NUL byte is refused, not read up to there' -c 'cd $T; printf "{*x} -> {*x}\n\0nonsense" >nul.recipe; $R recipe check nul.recipe hf.safetensors'
code 2
err <<'END'
reshard: recipe "nul.recipe": it is not text: it has a NUL byte
END

t 'plan shows what tensors are made of, and what each rank reads' plan "$T/hf.safetensors" --recipe "$T/qkv.recipe" --config "$T/config.json" --layout 'mesh tp=2; * shard(1)@tp'
out <<'END'
target  dtype  shape      parts  made of
qkv     uint8  [2, 8, 1]      6  l.0.q .. l.1.v, 6 tensors

rank  needs  reads  pieces  tensors
   0    8 B    8 B       6        1
   1    8 B    8 B       6        1
 all   16 B   16 B      12        2
END

cat >"$T/some.recipe" <<'END'
l.0.v -> drop
l.0.{*x} -> a.{*x}
l.1.q[q j], l.1.{k,v}[i j] -> b[j (q + i + i)] as f32 times 2
1.0 -> c[] as f32
END
some='--recipe some.recipe --layout "mesh tp=2; b shard(1)@tp; a.k shard(0)@tp; * replicate"'

t 'the plan as JSON: what each target is made of, and what each rank reads of that' -c "cd \$T && \$R plan hf.safetensors $some --json"
out <<'END'
{
  "path": "hf.safetensors",
  "recipe": "some.recipe",
  "made": [
    {"name": "a.k", "dtype": "uint8", "shape": [2, 1], "from": ["l.0.k"], "line": 2, "parts": 1, "tied": false, "reordered": false, "scaled": false, "ranks": [{"rank": 0, "needs": 1, "reads": 1, "pieces": 1}, {"rank": 1, "needs": 1, "reads": 1, "pieces": 1}]},
    {"name": "a.q", "dtype": "uint8", "shape": [4, 1], "from": ["l.0.q"], "line": 2, "parts": 1, "tied": false, "reordered": false, "scaled": false, "ranks": [{"rank": 0, "needs": 4, "reads": 4, "pieces": 1}, {"rank": 1, "needs": 4, "reads": 4, "pieces": 1}]},
    {"name": "b", "dtype": "float32", "shape": [1, 8], "from": ["l.1.q", "l.1.k", "l.1.v"], "line": 3, "parts": 3, "tied": false, "reordered": false, "scaled": true, "ranks": [{"rank": 0, "needs": 16, "reads": 4, "pieces": 1}, {"rank": 1, "needs": 16, "reads": 4, "pieces": 2}]},
    {"name": "c", "dtype": "float32", "shape": [], "from": [], "line": 4, "parts": 1, "tied": false, "reordered": false, "scaled": false, "ranks": [{"rank": 0, "needs": 4, "reads": 0, "pieces": 0}, {"rank": 1, "needs": 4, "reads": 0, "pieces": 0}]}
  ],
  "dropped": [
    {"name": "l.0.v", "line": 1}
  ],
  "tensors": 4,
  "ranks": [
    {"rank": 0, "needs": 25, "reads": 9, "pieces": 3, "tensors": 4},
    {"rank": 1, "needs": 25, "reads": 9, "pieces": 4, "tensors": 4}
  ],
  "total": {
    "needs": 50,
    "reads": 18,
    "pieces": 7
  }
}
END

t 'the plan as a page: of a target that is one source as it is, the tiles before too' -c "cd \$T && \$R plan hf.safetensors $some --html - | sed -n '/\"recipe\"/,/\"objects\"/p; /\"files\"/,/^ *}/p' | sed '/^}/,\$d'"
out <<'END'
  "recipe": "some.recipe",
  "tensors": [
    ["a.k", "uint8", [2, 1], 2, 1, 1, 2, {"from": [["l.0.k", "uint8", [2, 1]]], "line": 2, "parts": 1, "tied": false, "reordered": false, "scaled": false, "reads": 0}],
    ["a.q", "uint8", [4, 1], 4, 1, 4, 5, {"from": [["l.0.q", "uint8", [4, 1]]], "line": 2, "parts": 1, "tied": false, "reordered": false, "scaled": false, "reads": 3}],
    ["b", "float32", [1, 8], 32, 4, -1, 7, {"from": [["l.1.q", "uint8", [4, 1]], ["l.1.k", "uint8", [2, 1]], ["l.1.v", "uint8", [2, 1]]], "line": 3, "parts": 3, "tied": false, "reordered": false, "scaled": true, "reads": 6}],
    ["c", "float32", [], 4, 4, -1, 9, {"from": [], "line": 4, "parts": 1, "tied": false, "reordered": false, "scaled": false, "reads": 8}]
  ],
  "dropped": [
    ["l.0.v", 1]
  ],
  "objects": [],
  "files": [
    ["hf.safetensors", -1, 16]
  ],
  "ranks": [
    [25, 9, -1, -1, -1],
    [25, 9, -1, -1, -1]
  ]
END

echo 'l.0.q[(2 a) b] -> l.0.q[(a 2) b]; l.1.q[(p:_ + c) b] -> l.1.q[(*2 c) b] where p = 2; {*x}.v -> {*x}.v times 2; {*x}.k -> {*x}.k as i8' >"$T/alter.recipe"

t 'targets of the shape of their source, but with other elements or of another dtype, have no tiles before' -c 'cd $T && $R plan hf.safetensors --recipe alter.recipe --layout "mesh a=1; * replicate" --html - | sed -n "s/^ *\[\"\(l[^\"]*\).*, \([-0-9]*\), [0-9]*, {.*/\1 \2/p"'
out <<'END'
l.0.k -1
l.0.q -1
l.0.v -1
l.1.k -1
l.1.q -1
l.1.v -1
END

t 'a target without a rule of the layout is misuse' -c 'cd $T && $R plan hf.safetensors --recipe some.recipe --layout "mesh tp=2; b shard(1)@tp" --html x.html; code=$?; ls x.html* 2>/dev/null; exit $code'
code 2
err <<'END'
reshard: no rule matches the tensor "a.k"; a last rule "* replicate" would
END

t 'to any layout and back' -c '$R convert -q $T/hf.safetensors $T/tp --recipe $T/qkv.recipe --config $T/config.json --layout "mesh tp=2; * shard(1)@tp" && $R diff -q $T/fused.safetensors $T/tp && $R convert -q $T/tp $T/tp.safetensors --recipe $T/qkv.recipe --config $T/config.json --reverse && $R diff -q $T/hf.safetensors $T/tp.safetensors'

t 'filters see the old names, --rename and --dtype the new ones' -c 'cd $T && $R convert -q hf.safetensors one.safetensors --include "l.0.*" --recipe qkv.recipe --set groups=2 --set layers=1 --rename "s/^/x./" --dtype "x.qkv=i8" && $R inspect one.safetensors x.qkv'
out <<'END'
name   dtype  shape      layout  chunks  bytes
x.qkv  int8   [1, 8, 1]  whole        1    8 B

safetensors: 1 tensor in 1 chunk, 8 parameters, 8 B; 0 objects
END

# 9 MB, of which neither rows nor blocks are a multiple of anything.
st "$T/big.safetensors" '{"w":{"dtype":"U16","shape":[1103,4099],"data_offsets":[0,9042394]}}' ''
seq 1 2000000 | head -c 9042394 >>"$T/big.safetensors"
echo 'w[a b] -> w[b a]' >"$T/turn.recipe"

t 'a transposed matrix has the columns as rows' -c 'cd $T && $R convert -q big.safetensors turned.safetensors --recipe turn.recipe && $R cat big.safetensors w --slice :,777 --format raw >column && $R cat turned.safetensors w --slice 777,: --format raw | cmp - column && $R verify -q turned.safetensors'

for to in dcp torch safetensors; do
    t "transposed twice, by way of $to, it is the same" -c "cd \$T && rm -rf once twice && \$R convert -q big.safetensors once --to $to --recipe turn.recipe && \$R verify -q once && \$R convert -q once twice --to safetensors --recipe turn.recipe --threads 1 --max-memory 1M && \$R diff -q big.safetensors twice"
done

t 'a number that nobody set is named' -c 'cd $T && grep -v "^let d" qkv.recipe >nod.recipe && $R convert -q hf.safetensors unset --recipe nod.recipe --set layers=2; code=$?; ls | grep unset; exit $code'
code 2
err <<'END'
reshard: checkpoint "unset": recipe: tensor "l.0.q": line 2, column 12: the sizes of "g" and "r" are not known: use --set r=N
END

t 'a layer that is missing is named' -c 'cd $T && $R convert -q hf.safetensors missing --recipe qkv.recipe --set groups=2 --set layers=3'
code 2
err <<'END'
reshard: checkpoint "missing": recipe: line 3: the source has no "l.2.q", which belongs to "l.0.q"
END

t 'an error in a recipe has line and column' -c 'echo "a -> b c" >$T/bad.recipe; cd $T && $R recipe check bad.recipe hf.safetensors'
code 2
err <<'END'
reshard: recipe "bad.recipe": line 1, column 8: expected as, times, plus, where, for, if, required or the end of the rule, found "c"
END

t 'numbers without a recipe are misuse' convert "$T/hf.safetensors" "$T/x" --set a=1
code 2
err <<'END'
reshard: --set, --config and --reverse need --recipe
try: reshard help convert
END

t 'a recipe that does not exist' -c 'cd $T && $R recipe show none'
code 3
err <<'END'
reshard: recipe "none": no file has that name, and none of `reshard recipe list`
END

t 'the recipes that come with the tool' -c '$R recipe list | cut -d" " -f1'
out <<'END'
recipe
deepseek-fp8
deepseek-megatron
gpt-oss-megatron
hf-megatron
hf-sharded-state
lora-merge
meta-hf
stack-layers
END

t 'a run with another recipe does not resume' -c 'cd $T && sed "s/(g r d)/(r g d)/" qkv.recipe >other.recipe && $R convert -q hf.safetensors res --recipe qkv.recipe --config config.json --dry-run && $R convert -q hf.safetensors res --recipe other.recipe --config config.json --resume && $R cat res qkv --format raw'
printf 'acKVbdLWegMXfhNY' | out

# Faults in a source or a recipe, each of which a conversion by hand has let through.
cat >"$T/moe.recipe" <<'END'
e.{e}.w[i j] <-> e[e i j] for e in 0..n
s[i j] <-> s[j i]
emb <-> emb = head
END
moe()
{
    st "$T/$1" "$2" 'aabbccddssssEEEE'
}
e='"e.0.w":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]},"e.1.w":{"dtype":"U8","shape":[2,1],"data_offsets":[2,4]},"e.2.w":{"dtype":"U8","shape":[2,1],"data_offsets":[4,6]}'
l=',"e.3.w":{"dtype":"U8","shape":[2,1],"data_offsets":[6,8]}'
s=',"emb":{"dtype":"U8","shape":[4],"data_offsets":[12,16]},"s":{"dtype":"U8","shape":[2,2],"data_offsets":[8,12]}'
moe whole.safetensors "{$e$l$s}"
t 'a transposed square matrix and a tie are shown' -c '$R recipe check $T/moe.recipe $T/whole.safetensors --set n=4'
out <<'END'
target  dtype  shape      parts  line  made of
e       uint8  [4, 2, 1]      4     1  e.0.w .. e.3.w, 4 tensors
emb     uint8  [4]            1     3  emb
head    uint8  [4]            1     3  emb (tied)
s       uint8  [2, 2]         1     2  s (reordered)

6 source tensors: 4 targets, 1 of them tied, 0 dropped; every element has its place
END
moe dropped.safetensors "{$e,\"x\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[6,8]}$s}"
t 'an expert under another name is caught' recipe check "$T/moe.recipe" "$T/dropped.safetensors" --set n=4
code 2
err <<'END'
reshard: recipe: no rule of the recipe matches tensor "x": add one, or drop it
END
t 'an expert that was dropped is caught' -c 'cat $T/moe.recipe >$T/moe2.recipe; echo "x -> drop" >>$T/moe2.recipe; $R recipe check $T/moe2.recipe $T/dropped.safetensors --set n=4'
code 2
err <<'END'
reshard: recipe: line 1: the source has no "e.3.w", which belongs to "e.0.w"
END
t 'a doubled layer is caught' recipe check "$T/moe.recipe" "$T/whole.safetensors" --set n=3
code 2
err <<'END'
reshard: recipe: no rule of the recipe matches tensor "e.3.w": add one, or drop it
END

# ---- files of ranks, folders of Megatron ----

t 'sharded_state: each rank has its part of every tensor in a file of its own' -c 'cd $T && $R convert -q hf.safetensors ss --to sharded_state --layout "mesh tp=2; *.q shard(0)@tp; * replicate" && ls ss && $R inspect ss/model-rank-1-part-0.safetensors l.0.q && $R cat ss/model-rank-1-part-0.safetensors l.0.q --format raw && $R cat ss/model-rank-0-part-0.safetensors l.1.v --format raw'
printf 'model-rank-0-part-0.safetensors\nmodel-rank-1-part-0.safetensors\nname   dtype  shape   layout  chunks  bytes\nl.0.q  uint8  [2, 1]  whole        1    2 B\n\nsafetensors: 1 tensor in 1 chunk, 2 parameters, 2 B; 0 objects\ncdXY' | out

t 'sharded_state needs equal parts' -c 'cd $T && $R convert -q hf.safetensors uneven --to sharded_state --layout "mesh tp=3; * shard(0)@tp"; code=$?; ls | grep uneven; exit $code'
code 2
err <<'END'
reshard: checkpoint "uneven": tensor "l.0.k": rank 2 has no part; a sharded_state needs one of the same shape on every rank
END

t 'sharded_state needs a layout' -c 'cd $T && $R convert -q hf.safetensors uneven --to sharded_state'
code 2
err <<'END'
reshard: checkpoint "uneven": a sharded_state needs a layout: which rank has what
END

t 'a recipe brings the layout of its targets' -c 'cd $T && printf "layout mesh tp={tp}\nlayout *.q shard(0)@tp\nlayout * replicate\n{*x} -> {*x}\n" >lay.recipe && $R convert -q hf.safetensors lay --to sharded_state --recipe lay.recipe --set tp=2 && cmp ss/model-rank-1-part-0.safetensors lay/model-rank-1-part-0.safetensors'

t 'a number of the layout that nobody set is named' -c 'cd $T && $R convert -q hf.safetensors lay2 --to sharded_state --recipe lay.recipe'
code 2
err <<'END'
reshard: checkpoint "lay2": the layout of the recipe: "tp" is not set: use --set tp=N or --config
END

t 'megatron: the folder, its objects, the tracker beside it' -c 'cd $T && printf "{*x} -> decoder.layers.{*x}.linear_fc1.weight\n" >fc1.recipe && $R convert -q hf.safetensors run/iter_0000012 --to megatron --include "l.0.q" --recipe fc1.recipe && cat run/latest_checkpointed_iteration.txt && echo && ls -A run/iter_0000012 && cat run/iter_0000012/metadata.json && echo && $R inspect run'
out <<'END'
12
.metadata
.reshard-sums
__0_0.distcp
common.pt
metadata.json
{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}
name                                    dtype  shape   layout  chunks  bytes  file
decoder.layers.l.0.q.linear_fc1.weight  uint8  [4, 1]  whole        1    4 B  __0_0.distcp

object                                                  value
decoder.layers.l.0.q.linear_fc1._extra_state/shard_0_1  [None]

dcp (Megatron-Core torch_dist, iteration 12): 1 tensor in 1 chunk, 4 parameters, 4 B; 1 object
END

t 'megatron: a folder that it would not find is refused' -c 'cd $T && $R convert -q hf.safetensors elsewhere --to megatron'
code 2
err <<'END'
reshard: checkpoint "elsewhere": Megatron-Core looks for a folder named "release" or "iter_0000001": write to "elsewhere/release"
END

# ---- interruption ----

# a and b of [64, 512] bytes, s of 16; the target's large file does not fit into 8 KiB.
st "$T/long.safetensors" '{"a":{"dtype":"U8","shape":[64,512],"data_offsets":[0,32768]},"b":{"dtype":"U8","shape":[64,512],"data_offsets":[32768,65536]},"s":{"dtype":"U8","shape":[16],"data_offsets":[65536,65552]}}' ''
awk 'BEGIN { for (i = 0; i < 65552; i++) printf "%c", 33 + (i * 7 + int(i / 512)) % 90 }' >>"$T/long.safetensors"
cat >"$T/long.recipe" <<'END'
a[(i 2) j], b[(i 2) j] -> c[(2 (i + i)) j]
s[i] -> s[i]
END
t 'an interrupted run with a recipe resumes' -c 'cd $T && o="--recipe long.recipe --to safetensors --shard-size 20K" &&
    $R convert -q long.safetensors whole $o && (ulimit -f 8; $R convert -q long.safetensors cut $o >/dev/null 2>&1); ls -d cut* | sed "s/-.*//" &&
    $R convert -q long.safetensors cut $o --resume && $R verify -q cut && diff -r whole cut && ls -d cut*'
out <<'END'
cut.partial
cut
END

t 'with other numbers it starts over' -c 'cd $T && o="--recipe long.recipe --to safetensors --shard-size 20K" && (ulimit -f 8; $R convert -q long.safetensors num $o >/dev/null 2>&1)
    $R convert -q long.safetensors num $o --set unused=1 --resume 2>&1 | sed "s/partial-[0-9a-f]*/partial/" && diff -r whole num'
out <<'END'
reshard: left out: num.partial: it belongs to another source or other options, so this run starts over
END

finish
