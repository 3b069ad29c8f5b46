#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A folder in which each file is a model of its own is no checkpoint that overwriting replaces.
. "$(dirname "$0")/../cli/expect.sh"

mkdir "$T/models"
cp golden/plain.safetensors "$T/models/vae.safetensors"
cp golden/plain.safetensors "$T/models/unet.safetensors"
t 'a folder of models is not replaced' -c 'cd "$T"; "$R" convert "$OLDPWD/golden/dcp_rows" models --overwrite 2>&1 | sed "s/\"[a-z]*\.safe/\"..safe/"; ls models'
out <<'END'
reshard: checkpoint "models": holds "..safetensors", which is not part of a checkpoint and would be removed by overwriting it
unet.safetensors
vae.safetensors
END

cp -r golden/hf_index "$T/hf"
cp golden/plain.safetensors "$T/hf/lora.safetensors"
t 'nor is one whose index does not know a model' -c 'cd "$T"; "$R" convert -q hf hf --overwrite 2>&1 | tail -n 1; ls hf | grep -c .'
out <<'END'
reshard: checkpoint "hf": holds "lora.safetensors", which is not part of a checkpoint and would be removed by overwriting it
5
END

rm "$T/hf/lora.safetensors"
t 'without it it is' -c 'cd "$T"; "$R" convert -q hf hf --overwrite && "$R" diff hf "$OLDPWD/golden/hf_index"'
out <<'END'
same: 44 tensors, 1.0 KiB, 0 objects
END

finish
