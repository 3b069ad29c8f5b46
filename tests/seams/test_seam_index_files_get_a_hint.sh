#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An index.json is not a checkpoint but stands beside one: the message says what to open.
. "$(dirname "$0")/../cli/expect.sh"

t 'the index of a safetensors folder' -c 'cd golden/hf_index && "$R" inspect model.safetensors.index.json'
code 4
err <<'END'
reshard: checkpoint "model.safetensors.index.json": it is the index of a checkpoint: open the folder that holds it
END

t 'the index of torch.save files' -c 'cd golden/folders/bins && "$R" inspect pytorch_model.bin.index.json'
code 4
err <<'END'
reshard: checkpoint "pytorch_model.bin.index.json": it is the index of a checkpoint: open the folder that holds it
END

finish
