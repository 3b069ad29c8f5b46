#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard manifest, and what verify makes of the checksum file
. "$(dirname "$0")/expect.sh"

cp -r golden/dcp_rows golden/plain.safetensors "$T"
if "$R" manifest "$T/plain.safetensors" 2>&1 | grep -q xxHash; then
    t 'a build without xxHash says so' -c '"$R" manifest "$T/plain.safetensors" 2>&1 | grep -c xxHash'
    out <<'END'
1
END
    finish
fi
rm "$T/plain.safetensors.reshard-sums"
t 'a checkpoint gets its checksum file, and that is said' -c 'cd "$T"; "$R" manifest dcp_rows && ls -A dcp_rows'
err <<'END'
reshard: wrote dcp_rows/.reshard-sums: checksums of 20.5 KiB
END
out <<'END'
.metadata
.reshard-sums
__0_0.distcp
__1_0.distcp
__2_0.distcp
__3_0.distcp
END

t 'a good checkpoint with a checksum file is ok' -c 'cd "$T"; "$R" verify dcp_rows'
out <<'END'
ok: dcp, 3 tensors, 344 B, 0 objects
END

t 'a checksum file that is there is not replaced unasked' -c 'cd "$T"; "$R" manifest dcp_rows'
code 3
err <<'END'
reshard: checkpoint "dcp_rows" has a checksum file already; --overwrite replaces it
END

t '--overwrite replaces it' -c 'cd "$T"; "$R" manifest -q --overwrite dcp_rows'

t 'what --overwrite does not replace is not said to need it' -c 'cd "$T"; cp -r dcp_rows linked; mv linked/.reshard-sums sums; ln -s ../sums linked/.reshard-sums; "$R" manifest --overwrite linked'
code 3
err <<'END'
reshard: "linked/.reshard-sums" is neither a file nor a folder and is not replaced
END

t 'a changed byte is named by file, range and tensor' -c 'cd "$T"; printf X | dd of=dcp_rows/__1_0.distcp bs=1 seek=700 conv=notrunc 2>"$T/dd"; "$R" verify dcp_rows'
code 1
out <<'END'
damage: file "__1_0.distcp": checksum mismatch in bytes 0-1576: tensor "row" [2:4, 0:6]
1 damage
damaged: row
2 whole, 1 damaged, 0 gone
END

t '--quick reads no data and does not see it' -c 'cd "$T"; "$R" verify --quick dcp_rows'
out <<'END'
ok: dcp, 3 tensors, 344 B, 0 objects; no data were read
END

t '--quick sees a file that became longer' -c 'cd "$T"; printf X >>dcp_rows/__2_0.distcp; "$R" verify --quick dcp_rows'
code 1
out <<'END'
damage: file "__2_0.distcp" has 4732 bytes, its checksum file says 4731
1 damage
END

t 'a file gets its checksum file beside it' -c 'cd "$T"; "$R" manifest plain.safetensors && ls plain*; "$R" verify plain.safetensors'
err <<'END'
reshard: wrote plain.safetensors.reshard-sums: checksums of 4.1 KiB
END
out <<'END'
plain.safetensors
plain.safetensors.reshard-sums
ok: safetensors, 44 tensors, 1.0 KiB, 0 objects
END

t 'a broken checkpoint gets none and ends in 4' manifest bad/dcp/cut_metadata
code 4
err <<'END'
reshard: checkpoint "bad/dcp/cut_metadata": file ".metadata": byte 456: the opcode needs 37 more bytes, the pickle has 12
END

t 'a path that is not there ends in 3' manifest golden/missing
code 3
err <<'END'
reshard: could not find "golden/missing": No such file or directory
END

t 'a missing operand is misuse' manifest
code 2
err <<'END'
reshard: manifest needs CKPT
try: reshard help manifest
END

finish
