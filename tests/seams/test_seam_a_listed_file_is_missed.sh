#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file of safetensors that the checksum file lists and the folder lacks is missed: without it tensors would end early or not be there
# at all, and nothing else tells.
. "$(dirname "$0")/../cli/expect.sh"

"$R" convert -q golden/dcp_rows "$T/parts" --to safetensors --layout 'mesh tp=4; * shard(0)@tp'
rm "$T/parts/shard-00004-model-00001-of-00001.safetensors"
t 'convert does not take what is left for all of it' -c 'cd "$T"; "$R" convert parts out; echo $?; "$R" cat parts row --format text >/dev/null; echo $?; ls -d out*'
out <<'END'
4
4
END
code 2
err <<'END'
reshard: checkpoint "out": file "shard-00004-model-00001-of-00001.safetensors" is missing, but listed in the checksum file
reshard: `reshard verify` lists the damage, --salvage converts the rest
reshard: file "shard-00004-model-00001-of-00001.safetensors" is missing, but listed in the checksum file
ls: cannot access 'out*': No such file or directory
END

t 'verify and --salvage call no tensor whole that may have been larger' -c 'cd "$T"; "$R" verify parts; "$R" convert -q --salvage parts out 2>&1 | tail -n 1; ls -d out* 2>/dev/null'
code 2
out <<'END'
damage: file "shard-00004-model-00001-of-00001.safetensors" is missing, but listed in the checksum file
1 damage
damaged: row
damaged: uneven
damaged: column
0 whole, 3 damaged, 0 gone
reshard: checkpoint "out": nothing of the source is left to write
END

one='{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  '
two='{"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  '
mkdir "$T/plain"
st "$T/plain/a.safetensors" "$one" '\0\0\0\0'
st "$T/plain/b.safetensors" "$two" '\0\0\0\0'
"$R" manifest -q "$T/plain" 2>/dev/null
rm "$T/plain/b.safetensors"
t 'a folder without an index misses its files too' -c 'cd "$T"; "$R" convert plain out; echo $?; "$R" convert -q --salvage plain out 2>/dev/null; echo $?; "$R" inspect out | sed -n "s/^\([a-z]\) .*/\1/p"'
out <<'END'
4
1
a
END
err <<'END'
reshard: checkpoint "out": file "b.safetensors" is missing, but listed in the checksum file
reshard: `reshard verify` lists the damage, --salvage converts the rest
END

finish
