#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A conversion that finds damage, by checksums or by what the formats demand, ends with 4 and keeps nothing: --resume would meet the
# same damage again.
. "$(dirname "$0")/../cli/expect.sh"

damage() # SRC FILE BYTE
{
    cp -r "golden/$1" "$T/src"
    printf '\377\377\377\377' | dd of="$T/src/$2" bs=1 seek="$3" conv=notrunc status=none
}

keeps_nothing()
{
    t "$1" -c 'cd "$T"; "$R" convert src out >said 2>&1; echo $?; grep -c resume said; grep -c "salvage converts" said; ls -d out*; rm -r src'
    out <<'END'
4
0
1
END
    err <<'END'
ls: cannot access 'out*': No such file or directory
END
}

damage dcp_rows __0_0.distcp 0
keeps_nothing 'the header of a record'

damage dcp_zstd __0_0.distcp 0
keeps_nothing 'a stream that can not be decoded'

damage dcp_rows __0_0.distcp 704
keeps_nothing 'a record with another CRC32'

finish
