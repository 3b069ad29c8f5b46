#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# convert warns of patterns that do nothing, refuses names that say nothing, tries before it writes, and says what it did.
. "$(dirname "$0")/../cli/expect.sh"

t 'patterns that match nothing are warned of, with the nearest name' convert -q golden/dcp_blocks "$T/a" --exclude 'nestd' --rename 's/^blocs$/x/' --dtype 'stridd=f32'
err <<'END'
reshard: warning: --exclude "nestd" matches nothing; the closest name is "nested"
reshard: warning: --rename "s/^blocs$/x/" matches nothing; the closest name is "blocks"
reshard: warning: --dtype "stridd" matches nothing; the closest name is "strided"
END

t 'what matches is not warned of; --dtype sees the new names' convert -q golden/dcp_blocks "$T/b" --exclude nested --rename 's/^bl/x/' --dtype 'xocks=bf16'

t 'an end that says nothing is refused, with the choices' convert golden/dcp_blocks "$T/out.st"
code 2
err <<END
reshard: unknown format of "$T/out.st": name a file .safetensors, .pt, .pth or .bin; for a folder use --to dcp or --to safetensors
try: reshard help convert
END

t 'with --to it is a folder; dots in names of folders are fine' -c 'cd "$T"; "$R" convert -q "$OLDPWD/golden/dcp_blocks" out.st --to dcp && "$R" convert -q "$OLDPWD/golden/dcp_blocks" llama-3.1-8b && "$R" convert -q "$OLDPWD/golden/dcp_blocks" step.1000; ls -d out.st llama* step*'
out <<'END'
llama-3.1-8b
out.st
step.1000
END

t '--dry-run says what would be written and writes nothing' -c 'cd "$T"; mkdir dry; "$R" convert --dry-run "$OLDPWD/golden/dcp_blocks" dry/x --dtype bf16; ls -A dry'
err <<'END'
reshard: would write dry/x: dcp, 3 tensors, 0 objects, 18.7 KiB in 5 files
END

t '--dry-run sees what is in the way' -c 'cd "$T"; "$R" convert --dry-run "$OLDPWD/golden/dcp_blocks" b'
code 3
err <<'END'
reshard: checkpoint "b": it exists already, and overwrite was not asked for
END

t '--dry-run sees what can not be' -c 'cd "$T"; "$R" convert --dry-run "$OLDPWD/golden/dcp_scalars" c.safetensors 2>&1 | cut -c 1-60'
out <<'END'
reshard: checkpoint "c.safetensors": safetensors can't hold 
END

t 'a compressed conversion that fails says what is left of it' -c 'cd "$T"; "$R" convert "$OLDPWD/bad/dcp/item_bit_flipped" z --compress zstd 2>&1 | sed -n "/kept/p"; ls -d z*'
code 2
out <<'END'
reshard: nothing was kept: compressed output can't be resumed
END
err <<'END'
ls: cannot access 'z*': No such file or directory
END

t 'the last line says what was written, unless quiet' -c 'cd "$T"; "$R" convert "$OLDPWD/golden/dcp_rows" said.safetensors 2>&1 | sed "s/[0-9.]* s$/TIME/"; "$R" convert -q said.safetensors said.pt; "$R" manifest --overwrite said.pt'
out <<'END'
reshard: wrote said.safetensors: safetensors, 3 tensors, 0 objects, 600 B in 1 file, TIME
END
err <<'END'
reshard: wrote said.pt.reshard-sums: checksums of 2.4 KiB
END

finish
