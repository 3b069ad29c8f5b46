#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A reader of the output that leaves early (`| head`) is no error for any command, whatever happens to SIGPIPE.
. "$(dirname "$0")/../cli/expect.sh"

# More than a pipe holds, as numbers and as names.
st "$T/large.safetensors" '{"w":{"dtype":"U8","shape":[100000],"data_offsets":[0,100000]}}' "$(printf '%0100000d' 0)"
st "$T/other.safetensors" '{"w":{"dtype":"U8","shape":[100000],"data_offsets":[0,100000]}}' "$(printf '%0100000d' 7)"
names=$(seq 1 600 | sed 's/.*/"a.rather.long.name.so.that.six.hundred.fill.pipe.&":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}/' | paste -sd,)
st "$T/many.safetensors" "{$names}" ''

printf 'mesh a=900; * replicate' >"$T/rules"
early='(cd "$T"; "$R" $c; echo $? >&2) | true'

t 'what a command ends with is not changed by a reader that has left' -c 'while read -r c; do '"$early"'; done <<END
cat large.safetensors w --format text
cat large.safetensors w --format raw
cat large.safetensors w --json
inspect many.safetensors
inspect many.safetensors --json
inspect many.safetensors --picture a.*
inspect many.safetensors --html -
plan many.safetensors --layout x --json
plan many.safetensors --layout rules --html -
diff many.safetensors large.safetensors
help
END'
err <<'END'
0
0
0
0
0
0
0
reshard: layout "x" is neither a file nor a mesh with rules
2
0
1
0
END

t 'nor where SIGPIPE is ignored' -c 'trap "" PIPE; c="cat large.safetensors w --format text"; '"$early"'; c="inspect many.safetensors --json"; '"$early"
err <<'END'
0
0
END

t 'what a command prints to a closed stderr does not end it' -c '("$R" inspect "$T/missing" 2>&1; echo $? >"$T/code") | true; cat "$T/code"'
out <<'END'
3
END

t 'a full disk is still an error' -c '"$R" cat "$T/large.safetensors" w --format text >/dev/full'
code 3
err <<'END'
reshard: could not write to stdout: No space left on device
END

finish
