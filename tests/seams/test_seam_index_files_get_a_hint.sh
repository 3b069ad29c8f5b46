#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An index.json is not a checkpoint but stands beside one: the message says what to open.
. "$(dirname "$0")/../cli/expect.sh"

t 'the index of a safetensors folder' -c 'cd golden/hf_index && "$R" inspect model.safetensors.index.json'
code 4
err <<'END'
reshard: checkpoint "model.safetensors.index.json": it is the index of a checkpoint: open the folder that holds it
END

t 'the index of torch.save files, and its folder' -c 'cd "$T" && mkdir hub && echo {} >hub/pytorch_model.bin.index.json &&
    for p in hub/pytorch_model.bin.index.json hub; do "$R" inspect $p; echo $?; done'
out <<'END'
3
3
END
err <<'END'
reshard: checkpoint "hub/pytorch_model.bin.index.json": it is the index of several torch.save files: open each .bin file
reshard: checkpoint "hub": it has the index of several torch.save files: open each .bin file
END

finish
