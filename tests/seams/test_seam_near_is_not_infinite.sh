#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# With a tolerance nothing but an infinity is near an infinity, and integers of 64 bits are told apart.
. "$(dirname "$0")/../cli/expect.sh"

one='{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  '
st "$T/zero.safetensors" "$one" '\0\0\0\0'
st "$T/inf.safetensors" "$one" '\0\0\200\177'
st "$T/minus.safetensors" "$one" '\0\0\200\377'
t 'a number is not near an infinity' diff --rtol 1 "$T/zero.safetensors" "$T/inf.safetensors"
code 1
out <<'END'
a: 1 of 1 elements differ, first at [0]: 0 and inf; largest difference inf
1 difference
END

t 'the two infinities are not near each other' diff --rtol 1 --atol 1 "$T/inf.safetensors" "$T/minus.safetensors"
code 1
out <<'END'
a: 1 of 1 elements differ, first at [0]: inf and -inf; largest difference inf
1 difference
END

big='{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}  '
st "$T/even.safetensors" "$big" '\0\0\0\0\0\0 \0'
st "$T/odd.safetensors" "$big" '\1\0\0\0\0\0 \0'
t 'integers that are one double are told apart' diff --atol 0.5 "$T/even.safetensors" "$T/odd.safetensors"
code 1
out <<'END'
a: 1 of 1 elements differ, first at [0]: 9007199254740992 and 9007199254740993; largest difference 1
1 difference
END

t 'and are near if that is asked for' diff --atol 1 "$T/even.safetensors" "$T/odd.safetensors"
out <<'END'
same: 1 tensor, 8 B, 0 objects
END

complex='{"a":{"dtype":"C64","shape":[2],"data_offsets":[0,16]}}  '
st "$T/a.safetensors" "$complex" '\0\0\200\177\0\0\0\100\0\0\0\100\0\0\200\177'
st "$T/b.safetensors" "$complex" '\0\0\200\177\1\0\0\100\1\0\0\100\0\0\200\177'
t 'of complex numbers with an equal infinite part the other one counts' diff --rtol 1e-6 "$T/a.safetensors" "$T/b.safetensors"
out <<'END'
same: 1 tensor, 16 B, 0 objects
END

st "$T/c.safetensors" "$complex" '\0\0\200\177\0\0\200\100\0\0\0\100\0\0\200\377'
t 'which may differ too much' diff --rtol 1e-6 "$T/a.safetensors" "$T/c.safetensors"
code 1
out <<'END'
a: 2 of 2 elements differ, first at [0]: inf+2j and inf+4j; largest difference inf
1 difference
END

finish
