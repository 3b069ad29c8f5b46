#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A compressed chunk of 512 MiB is never in memory as a whole: each command takes at most 64 MiB and 8 bytes for each byte of the
# folder's files, which are all metadata here as far as the limit is concerned. Damage is found wherever it is in the stream.
. "$(dirname "$0")/../cli/expect.sh"

if ! "$R" --version --verbose 2>/dev/null | grep -q . || ! python3 -c 'pass' 2>/dev/null; then
    skip 'compressed chunks' 'no python3'
    finish
fi
if ldd "$R" 2>/dev/null | grep -q 'lib[at]san'; then
    skip 'compressed chunks' 'sanitizers take memory of their own'
    finish
fi

# 512 MiB of zeros in a sparse file; each 16 MiB begin with their number, so that no two are alike.
python3 - "$T/plain.safetensors" <<'END'
import struct
import sys

header = b'{"w":{"dtype":"F32","shape":[131072,1024],"data_offsets":[0,536870912]}}'
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header)
    for i in range(32):
        f.seek(8 + len(header) + (i << 24))
        f.write(struct.pack("<f", i))
    f.truncate(8 + len(header) + (512 << 20))
END
if ! "$R" convert -q --no-sync "$T/plain.safetensors" "$T/z" --compress zstd 2>/dev/null; then
    skip 'compressed chunks' 'no zstd in this build'
    finish
fi

P='cd "$T"; python3 "$OLDPWD/../seams/peak.py" "$R" z/.metadata 0'

t 'verify' -c "$P verify z"
t 'the first elements' -c "$P cat z w --slice 0:2,0:4"
t 'the last elements' -c "$P cat z w --slice 131071,1020:"
t 'diff' -c "$P diff z z"
t 'diff with what is not compressed' -c "$P diff z plain.safetensors"
t 'statistics' -c "$P inspect --stats z"
t 'manifest' -c "$P manifest z"
t 'convert to safetensors' -c "$P convert -q --no-sync z out.safetensors"
t 'convert to columns' -c "$P convert -q --no-sync -l 'mesh tp=2; * shard(1)@tp' --compress zstd z columns"

# What came out is right, and the columns are compressed chunks themselves.
t 'the values' -c '"$R" cat "$T/z" w --slice 126976,0:2 --format text && "$R" diff -q "$T/plain.safetensors" "$T/out.safetensors" && "$R" diff -q "$T/plain.safetensors" "$T/columns"'
out <<'END'
31 0
END

# ---- damage, without a checksum file, so that only the stream itself can tell ----

broken() # OFFSET FROM THE END, or "cut", or "more"
{
    rm -rf "$T/bad" && cp -r "$T/z" "$T/bad" && rm -f "$T/bad/.reshard-sums"
    python3 - "$T/bad/__0_0.distcp" "$1" <<'END'
import sys

with open(sys.argv[1], "r+b") as f:
    data = bytearray(f.read())
    if sys.argv[2] == "cut":  # the metadata still promise as many bytes
        data[-200:] = bytes(200)
    else:
        data[len(data) * int(sys.argv[2]) // 100 - 20] ^= 0x55
    f.seek(0)
    f.write(data)
END
}

for place in cut 50 100; do
    broken "$place"
    t "verify finds damage: $place" -c '"$R" verify -q "$T/bad" >/dev/null 2>&1'
    code 1
    t "convert finds damage: $place" -c 'rm -rf "$T/never"; "$R" convert -q --no-sync "$T/bad" "$T/never.safetensors" 2>&1 | grep -c "transform\|CRC32\|archive\|zip\|record"; test ! -e "$T/never.safetensors"'
    out <<'END'
1
END
done

finish
