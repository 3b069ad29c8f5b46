#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files beside a checkpoint go along as they were written, one that can't be read keeps nothing else back, and a trial run
# leaves no trace.
. "$(dirname "$0")/../cli/expect.sh"

cp -r golden/dcp_rows "$T/src"
echo 'layers 16' >"$T/src/config.json"
t 'a trial run makes no folder' -c 'cd "$T"; "$R" convert --dry-run src new/deep/out; "$R" convert --dry-run --resume src new/deep/out.safetensors; ls'
out <<'END'
src
END
err <<'END'
reshard: would write new/deep/out: dcp, 3 tensors, 0 objects, 18.7 KiB in 6 files, 1 of them copied along
reshard: left out: config.json: a single file holds no others
reshard: would write new/deep/out.safetensors: safetensors, 3 tensors, 0 objects, 600 B in 1 file
END

"$R" convert -q "$T/src" "$T/sealed"
echo 'layers 32' >"$T/sealed/config.json"
t 'one that is not what its checksum says is damage' -c 'cd "$T"; "$R" convert sealed out; echo $?; ls -d out*; "$R" convert -q --no-verify sealed out; cat out/config.json'
out <<'END'
4
layers 32
END
err <<'END'
reshard: checkpoint "out": file "config.json": checksum mismatch in bytes 0-9
reshard: `reshard verify` lists the damage, --salvage converts the rest
ls: cannot access 'out*': No such file or directory
END

rm "$T/sealed/config.json"
t 'one that is gone although the checksums list it is told' -c 'cd "$T"; rm -rf out; "$R" convert -q sealed out; echo $?; "$R" convert -q sealed out.pt; echo $?; "$R" convert -q --no-carry sealed out2; ls out'
out <<'END'
0
0
__0_0.distcp
__1_0.distcp
__2_0.distcp
__3_0.distcp
END
err <<'END'
reshard: left out: config.json: the checksum file lists it, but it is missing
reshard: left out: config.json: the checksum file lists it, but it is missing
END

cp -r "$T/src" "$T/modes"
for mode in 600 640 444 755 777 0; do
    echo $mode >"$T/modes/file$mode" && chmod $mode "$T/modes/file$mode"
done
t 'nobody may do more with it than before, and the umask counts' -c 'cd "$T/modes"; umask 027; "$R" convert -q . ../kept; "$R" convert -q --no-keep --no-sync . ../free; cd ..; stat -c "%a %n" kept/file* free/file6*'
if [ "$(id -u)" = 0 ]; then
    out <<'END'
0 kept/file0
440 kept/file444
600 kept/file600
640 kept/file640
750 kept/file755
750 kept/file777
600 free/file600
640 free/file640
END
else
    out <<'END'
440 kept/file444
600 kept/file600
640 kept/file640
750 kept/file755
750 kept/file777
600 free/file600
640 free/file640
END
    err <<'END'
reshard: left out: file0: it can't be read
reshard: left out: file0: it can't be read
END
fi

# Lists of tensors grow by steps: at these lengths the files beside them make the list move.
t 'shapes stay what they are behind any number of tensors' -c 'cd "$T"; mkdir many; echo {} >many/config.json
    for n in 16 40 76; do
        header= i=0
        while [ $i -lt $n ]; do
            header="$header,\"w$i\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[$i,$((i + 1))]}" i=$((i + 1))
        done
        header="{${header#,}}"
        { printf "\\$(printf %o $((${#header} % 256)))\\$(printf %o $((${#header} / 256)))\0\0\0\0\0\0%s" "$header"
          head -c $n /dev/zero; } >many/model.safetensors
        MALLOC_PERTURB_=165 "$R" convert -q --no-sync many "many-$n" && "$R" diff many "many-$n"
    done'
out <<'END'
same: 16 tensors, 16 B, 0 objects
same: 40 tensors, 40 B, 0 objects
same: 76 tensors, 76 B, 0 objects
END

if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups "$R" help >/dev/null 2>&1; then
    user='setpriv --reuid 65534 --regid 65534 --clear-groups'
elif [ "$(id -u)" != 0 ]; then
    user=
else
    user=none
fi
export user
chmod 755 "$T"
chmod 000 "$T/src/config.json"
mkdir -m 777 "$T/open"
if [ "$user" = none ]; then
    skip 'one that can not be read is left out' 'root reads every file, and there is no way to be another user'
else
    t 'one that can not be read is left out' -c 'cd "$T"; $user "$R" convert -q src open/out; echo $?; ls open/out'
    out <<'END'
0
__0_0.distcp
__1_0.distcp
__2_0.distcp
__3_0.distcp
END
    err <<'END'
reshard: left out: config.json: it can't be read
END
fi

finish
