#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# verify compares the CRC32 of every record of every archive, whatever is in it.
. "$(dirname "$0")/../cli/expect.sh"

# flip FILE PATTERN BEFORE: changes the last bit of the byte that is as far from the pattern's first place as BEFORE is
# long.
flip()
{
    at=$(grep -obUaP "$2" "$1" | ${4:-head} -n 1 | cut -d: -f1)
    at=$((at + $(printf "$3" | wc -c)))
    byte=$(dd if="$1" bs=1 skip="$at" count=1 2>/dev/null | od -An -tu1)
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$at" conv=notrunc 2>/dev/null
}

t 'a good file with objects of unknown classes is ok' verify seams/objects.pt
out <<'END'
ok: torch, 3 tensors, 68 B, 5 objects
END

# The int16 0 1 2 .. 7 belong to a tensor inside an object that is not opened.
cp seams/objects.pt "$T/opaque.pt"
flip "$T/opaque.pt" '\x00\x00\x01\x00\x02\x00\x03\x00\x04\x00' '\0\0\1\0'
t 'a tensor inside an object of an unknown class is compared' verify "$T/opaque.pt"
code 1
out <<'END'
damage: object "thing": record "data/1" at byte 1280 has the CRC 53b09582, not c815d9ed
1 damage
damaged: thing
7 whole, 1 damaged, 0 gone
END

cp seams/objects.pt "$T/pairs.pt"
flip "$T/pairs.pt" '\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00' '\0\0\0\0'
t 'and so is one in a dict with tuples for keys, which is opened' verify "$T/pairs.pt"
code 1
out <<'END'
damage: tensor "pairs.of.(0, 1)": file "pairs.pt": the data from byte 1408 on have the CRC32 d1dc0ee4, the file says 1d760e7a
1 damage
damaged: pairs.of.(0, 1)
7 whole, 1 damaged, 0 gone
END

cp seams/objects.pt "$T/other.pt"
flip "$T/other.pt" '[0-9]{40}' ''
t 'a record that nothing is made of is compared too' -c '"$R" verify "$T/other.pt" | sed "s/byte.*//"'
out <<'END'
damage: file "other.pt": record ".data/serialization_id" at 
1 damage
END

cp -r seams/objects_dcp "$T/dcp"
flip "$T/dcp/__0_0.distcp" '\x00\x00\x01\x00\x02\x00\x03\x00\x04\x00' '\0\0\1\0'
t 'in DCP every item is an archive: objects' -c '"$R" verify "$T/dcp" | sed "s/at byte.*//"'
out <<'END'
damage: object "thing": record "data/0" 
1 damage
damaged: thing
3 whole, 1 damaged, 0 gone
END

cp -r seams/objects_dcp "$T/item"
# Items stand in the order of their planning; the tensor's is the last.
flip "$T/item/__0_0.distcp" '[0-9]{40}' '' tail
t 'in DCP every item is an archive: what stands beside a tensor' -c '"$R" verify "$T/item" | sed "s/at byte.*//"'
out <<'END'
damage: tensor "w": file "__0_0.distcp": item 
1 damage
damaged: w
3 whole, 1 damaged, 0 gone
END

finish
