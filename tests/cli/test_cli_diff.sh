#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard diff
. "$(dirname "$0")/expect.sh"

t 'a checkpoint is the same as itself' diff golden/dcp_rows golden/dcp_rows
out <<'END'
same: 3 tensors, 344 B, 0 objects
END

t 'one file is the same as several' diff golden/hf_index golden/plain.safetensors
out <<'END'
same: 44 tensors, 1.0 KiB, 0 objects
END

t 'what only one of them has is named, whatever the formats; the rest is the same' diff golden/dcp_blocks golden/hf_parts
code 1
out <<'END'
nested: only in A
empty_shards: only in B
middle: only in B
row: only in B
uneven: only in B
column: only in B
no_rows: only in B
hsdp: only in B
8 differences
END

t 'the same as JSON, what only one of them has' diff --json golden/dcp_blocks golden/hf_parts
code 1
out <<'END'
{
  "a": "golden/dcp_blocks",
  "b": "golden/hf_parts",
  "differences": [
    {"name": "nested", "kind": "tensor", "what": "only_a"},
    {"name": "empty_shards", "kind": "tensor", "what": "only_b"},
    {"name": "middle", "kind": "tensor", "what": "only_b"},
    {"name": "row", "kind": "tensor", "what": "only_b"},
    {"name": "uneven", "kind": "tensor", "what": "only_b"},
    {"name": "column", "kind": "tensor", "what": "only_b"},
    {"name": "no_rows", "kind": "tensor", "what": "only_b"},
    {"name": "hsdp", "kind": "tensor", "what": "only_b"}
  ],
  "not_compared": [],
  "same": false
}
END

t 'dtypes and shapes are compared' diff golden/dcp_empty_shards golden/dcp_scalars
code 1
out <<'END'
empty_shards: only in A
one_element: only in A
nested_few: only in A
no_rows: dtype float32 and int8
no_rows: shape [0, 4] and [0, 3]
scalar.bool: only in B
scalar.uint8: only in B
scalar.uint16: only in B
scalar.uint32: only in B
scalar.uint64: only in B
scalar.int8: only in B
scalar.int16: only in B
scalar.int32: only in B
scalar.int64: only in B
scalar.float16: only in B
scalar.bfloat16: only in B
scalar.float32: only in B
scalar.float64: only in B
scalar.complex32: only in B
scalar.complex64: only in B
scalar.complex128: only in B
scalar.float8_e4m3fn: only in B
scalar.float8_e5m2: only in B
scalar.float8_e4m3fnuz: only in B
scalar.float8_e5m2fnuz: only in B
scalar.float8_e8m0fnu: only in B
scalar.float4_e2m1fn_x2: only in B
none: only in B
no_columns: only in B
one: only in B
six_dims: only in B
31 differences
END

t 'dtypes and shapes as JSON' -c '"$R" diff --json golden/dcp_empty_shards golden/dcp_scalars | grep no_rows'
out <<'END'
    {"name": "no_rows", "kind": "tensor", "what": "dtype", "a": "float32", "b": "int8"},
    {"name": "no_rows", "kind": "tensor", "what": "shape", "a": "[0, 4]", "b": "[0, 3]"},
END

t 'objects are compared' -c '"$R" diff golden/training.pt golden/objects.pt | grep "^object [n-t]"'
out <<'END'
object nan: only in B
object negative: only in B
object no: only in B
object none: only in B
object numbers: only in B
object optim.param_groups.0.betas: only in A
object optim.param_groups.0.eps: only in A
object optim.param_groups.0.fused: only in A
object optim.param_groups.0.lr: only in A
object optim.param_groups.0.params: only in A
object ordered.0.a: only in B
object ordered.0.b: only in B
object pi: only in B
object same: only in B
object set: only in B
object size: only in B
object step: 1000 and 7
object tag: only in A
object text: only in B
object tiny: only in B
object tuple: only in B
END

t 'objects as JSON' -c '"$R" diff --json golden/training.pt golden/objects.pt | grep "\"step\""'
out <<'END'
    {"name": "step", "kind": "object", "what": "value", "a": "1000", "b": "7"},
END

t 'a changed scalar has no index' -c '"$R" diff golden/dcp_replicas golden/shared.pt | grep elements'
out <<'END'
scalar: 1 of 1 elements differ, first at []: -3.680855e-36 and -8.836074e+08; largest difference 8.83607e+08
END

t 'objects are not compared with a format that has none' -c '"$R" diff golden/training.pt golden/plain.safetensors | tail -n 2'
out <<'END'
51 differences
not compared: best, optim.param_groups.0.betas, optim.param_groups.0.eps, optim.param_groups.0.fused, optim.param_groups.0.lr and 3 more: safetensors can't hold objects
END

t 'a changed element is found, with its place and how much it differs' -c 'cp golden/plain.safetensors "$T/y"; n=$("$R" inspect --json "$T/y" t.int16 | sed -n "s/.*file_offset\": \([0-9]*\).*/\1/p"); printf "\377\177" | dd of="$T/y" bs=1 seek=$((n + 12)) conv=notrunc 2>/dev/null; "$R" diff golden/plain.safetensors "$T/y"'
code 1
out <<'END'
t.int16: 1 of 15 elements differ, first at [1, 1]: 1882 and 32767; largest difference 30885
1 difference
END

t 'a changed element as JSON' -c '"$R" diff --json golden/plain.safetensors "$T/y" | tail -n +4'
out <<'END'
  "differences": [
    {"name": "t.int16", "kind": "tensor", "what": "values", "a": "1882", "b": "32767", "elements": 15, "different": 1, "first": [1, 1], "largest": 30885}
  ],
  "not_compared": [],
  "same": false
}
END

t 'a difference within the tolerance is none' -c '"$R" diff --atol 40000 golden/plain.safetensors "$T/y"'
out <<'END'
same: 44 tensors, 1.0 KiB, 0 objects
END

t 'a difference beyond the tolerance is one' -c '"$R" diff -q --rtol 0.5 golden/plain.safetensors "$T/y"'
code 1

t '--names-only reads no values' -c '"$R" diff --names-only golden/plain.safetensors "$T/y"'
out <<'END'
same names: 44 tensors, 0 objects
END

t '-q only tells by the exit code' -c '"$R" diff -q golden/plain.safetensors "$T/y"'
code 1

t 'one thread finds the same' -c '"$R" diff --threads 1 golden/plain.safetensors "$T/y"'
code 1
out <<'END'
t.int16: 1 of 15 elements differ, first at [1, 1]: 1882 and 32767; largest difference 30885
1 difference
END

head='{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'; export head
st "$T/a" "$head" '\0\0\300\177\0\0\0\0\0\0\200\077' # nan 0 1
st "$T/b" "$head" '\0\0\300\177\0\0\0\0\0\0\200\077' # the same
st "$T/c" "$head" '\1\0\300\177\0\0\0\200\0\0\200\077' # another nan, -0 1
st "$T/d" "$head" '\0\0\200\177\0\0\200\177\0\0\200\077' # inf inf 1
st "$T/e" "$head" '\0\0\200\177\0\0\200\377\0\0\0\100' # inf -inf 2
t 'NaN is the same as the same NaN' -c '"$R" diff "$T/a" "$T/b"'
out <<'END'
same: 1 tensor, 12 B, 0 objects
END

t 'another NaN differs, and so does minus zero' -c '"$R" diff "$T/a" "$T/c"'
code 1
out <<'END'
w: 2 of 3 elements differ, first at [0]: nan and nan; largest difference nan
1 difference
END

t 'with a tolerance minus zero is zero, but another NaN still differs' -c '"$R" diff --atol 0 "$T/a" "$T/c"'
code 1
out <<'END'
w: 1 of 3 elements differ, first at [0]: nan and nan; largest difference nan
1 difference
END

t 'an infinity is the same as itself and far from the other one' -c '"$R" diff --atol 5 "$T/d" "$T/e"'
code 1
out <<'END'
w: 1 of 3 elements differ, first at [1]: inf and -inf; largest difference inf
1 difference
END

t 'a first one that is not there ends in 3' diff golden/missing golden/dcp_rows
code 3
err <<'END'
reshard: could not find "golden/missing": No such file or directory
END

t 'a second one that is broken ends in 4' diff golden/dcp_rows bad/dcp/cut_metadata
code 4
err <<'END'
reshard: checkpoint "bad/dcp/cut_metadata": file ".metadata": byte 456: the opcode needs 37 more bytes, the pickle has 12
END

finish
