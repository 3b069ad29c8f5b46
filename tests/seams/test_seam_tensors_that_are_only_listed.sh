#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A tensor that can't be read, of 6 bits or of more than 8 dimensions, is listed and does not hide the rest of its file.
. "$(dirname "$0")/../cli/expect.sh"

head='{"six":{"dtype":"F6_E2M3","shape":[2,4],"data_offsets":[0,6]},"w":{"dtype":"U8","shape":[2],"data_offsets":[6,8]},"deep":{"dtype":"I16","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[8,12]},"four":{"dtype":"F4","shape":[2,3],"data_offsets":[12,15]}}'
st "$T/m.safetensors" "$head" '123456ab7890xyz'

t 'inspect lists it with its dtype, shape, bytes and file' inspect "$T/m.safetensors"
out <<'END'
name  dtype  shape  layout  chunks  bytes
w     uint8  [2]    whole        1    2 B

object  value
deep    <I16 [1, 1, 1, 1, 1, 1, 1, 1, 2], 4 bytes in m.safetensors>
four    <F4 [2, 3], 3 bytes in m.safetensors>
six     <F6_E2M3 [2, 4], 6 bytes in m.safetensors>

safetensors: 1 tensor in 1 chunk, 2 parameters, 2 B; 3 objects
END

t 'the rest is read' -c '"$R" cat "$T/m.safetensors" w --format raw; echo'
out <<'END'
ab
END

t 'reading it is an error' cat "$T/m.safetensors" six
code 3
err <<'END'
reshard: "six" can't be read: its dtype or number of dimensions is not supported; `reshard inspect` lists it
END

for to in n.safetensors n n.pt; do
    t "convert to $to leaves it out and says so" -c '"$R" convert -q "$T/m.safetensors" "$T/'$to'" && "$R" cat "$T/'$to'" w --format raw; echo'
    out <<'END'
ab
END
    err <<'END'
reshard: left out: six, deep, four: a dtype or number of dimensions that is not supported
END
done

t 'diff says that it did not compare it' diff "$T/m.safetensors" "$T/m.safetensors"
code 5
out <<'END'
no difference in 1 tensor, 2 B, 0 objects
not compared: deep, four, six: a dtype or number of dimensions that is not supported
END

cp "$T/m.safetensors" "$T/v.safetensors"
"$R" manifest -q "$T/v.safetensors"
printf X | dd of="$T/v.safetensors" bs=1 seek=$(($(stat -c %s "$T/v.safetensors") - 13)) conv=notrunc status=none
t 'verify checks its bytes' verify "$T/v.safetensors"
code 1
out <<'END'
damage: file "v.safetensors": checksum mismatch in bytes 254-259: object "six"
1 damage
damaged: six
3 whole, 1 damaged, 0 gone
END

head -c -6 "$T/m.safetensors" >"$T/cut.safetensors"
t 'a file that lost its end says which of them are lost' -c '"$R" inspect "$T/cut.safetensors" | tail -3'
out <<'END'
damaged: deep
gone: four
2 whole, 1 damaged, 1 gone
END

mkdir "$T/hf"
cp "$T/m.safetensors" "$T/hf"
echo '{"weight_map":{"w":"m.safetensors","six":"m.safetensors"}}' >"$T/hf/model.safetensors.index.json"
t 'an index may name it' -c '"$R" inspect "$T/hf" | tail -1'
out <<'END'
safetensors: 1 tensor in 1 chunk, 2 parameters, 2 B; 3 objects
END

mkdir "$T/two"
cp "$T/m.safetensors" "$T/two/a.safetensors"
st "$T/two/b.safetensors" '{"six":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}' 'abc'
t 'its parts in several files are not joined' -c '"$R" inspect "$T/two" 2>&1 | sed "s/.*: //"'
out <<'END'
tensor "six" is in several files, and its dtype or number of dimensions is not supported
END

finish
