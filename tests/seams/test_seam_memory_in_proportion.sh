#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whatever a file says, each command takes at most 64 MiB and 8 bytes for each byte of its metadata, and little time.
. "$(dirname "$0")/../cli/expect.sh"

if ! python3 ../seams/make_bombs.py "$T" 2>/dev/null; then
    skip 'memory in proportion' 'no python3'
    finish
fi
if ldd "$R" 2>/dev/null | grep -q 'lib[at]san'; then
    skip 'memory in proportion' 'sanitizers take memory of their own'
    finish
fi

for bomb in text bytes number tuple object laughs class_without_end names; do
    t "one $bomb over and over" -c "python3 ../seams/peak.py \"\$R\" \"\$T/$bomb.pt\""
done

t 'a checksum file of 1 GiB of zeros' -c 'python3 ../seams/peak.py "$R" "$T/side.safetensors"'

t '50000 tensors' -c 'python3 ../seams/peak.py "$R" "$T/many.safetensors" 50000'

# Small tensors by the hundred thousand, as optimizers have them: what is kept for each of them counts.
t '200000 tensors become DCP' -c 'cd "$T"; python3 "$OLDPWD/../seams/peak.py" "$R" lots.safetensors 200000 convert -q --no-sync lots.safetensors lots'
t '200000 tensors stay DCP' -c 'cd "$T"; python3 "$OLDPWD/../seams/peak.py" "$R" lots/.metadata 0 convert -q --no-sync lots again'
t '200000 tensors become torch.save' -c 'cd "$T"; python3 "$OLDPWD/../seams/peak.py" "$R" lots.safetensors 200000 convert -q --no-sync lots.safetensors lots.pt'
t '200000 tensors become safetensors' -c 'cd "$T"; python3 "$OLDPWD/../seams/peak.py" "$R" lots/.metadata 0 convert -q --no-sync lots again.safetensors'

finish
