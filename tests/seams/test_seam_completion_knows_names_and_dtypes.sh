#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shells complete names of tensors and objects and dtypes; names from a file are never run.
. "$(dirname "$0")/../cli/expect.sh"

cp golden/training.pt "$T/run.pt"
# shellcheck disable=SC2016 # a name that a shell would run
st "$T/odd.st" '{"a b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"$(touch ran)":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"line\nend":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"turned\u202e":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"it;`touch ran`":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' ''

t 'the tool offers the next part of a name, as far as it is the only one' -c 'cd "$T"; "$R" __complete cat run.pt o; "$R" __complete inspect --tree run.pt model; "$R" __complete inspect run.pt --picture=opti'
out <<'END'
optim.param_groups.
optim.state.
model.layers.0.bias
model.layers.0.weight
--picture=optim.param_groups.
--picture=optim.state.
END

t 'dtypes too, behind a pattern' -c '"$R" __complete convert a b --dtype "*norm*=bf"; "$R" __complete convert --dtype=float6'
out <<'END'
*norm*=bfloat16
--dtype=float64
END

t 'nothing is said where nothing is known' -c 'cd "$T"; "$R" __complete cat missing x; "$R" __complete cat run; "$R" __complete; "$R" __complete cat; "$R" __complete nothing x y; "$R" __complete cat --slice run.pt'

t 'names that a terminal would not show as they are, are left out' -c '"$R" __complete cat "$T/odd.st" ""'
out <<'END'
$(touch ran)
a b
it;`touch ran`
END

t 'bash' -c '"$R" completion bash >"$T/b"; cat >"$T/script" <<"END"
. "$T/b"
cd "$T" || exit 1
try()
{
    COMP_WORDS=("$R" "$@") COMP_CWORD=$#
    _reshard
    printf "%s|" "${COMPREPLY[@]}"
    echo
}
try cat run.pt opti
try cat "ru\\n.pt" optim.st
try convert a b --dtype "*" = bf
try convert a b --dtype = float6
try cat odd.st ""
try cat run
test ! -e ran
END
bash "$T/script"'
out <<'END'
optim.param_groups.|optim.state.|
optim.state.0.exp_avg|optim.state.0.exp_avg_sq|optim.state.0.step|
bfloat16|
float64|
\$\(touch\ ran\)|a\ b|it\;\`touch\ ran\`|
|
END

if command -v zsh >/dev/null; then
    t 'zsh' -c '"$R" completion zsh >"$T/_reshard"; cd "$T"; PATH=$(dirname "$R"):$PATH timeout 600 zsh -f "$OLDPWD/../cli/zsh_types.zsh" "reshard cat run.pt mod" "reshard cat run.pt best" "reshard cat odd.st it" "reshard convert a b --dtype float6" "reshard convert a b --dtype=bf" "reshard inspect run.pt --picture=buffers.1"; test ! -e ran'
    out <<'END'
reshard cat run.pt model.layers.0.
reshard cat run.pt best 
reshard cat odd.st it\;\`touch\ ran\` 
reshard convert a b --dtype float64 
reshard convert a b --dtype=bfloat16 
reshard inspect run.pt --picture=buffers.1.ema 
END
else
    skip 'zsh' 'there is no zsh'
fi

if command -v fish >/dev/null; then
    t 'fish' -c '"$R" completion fish >"$T/r.fish"; cd "$T"; PATH=$(dirname "$R"):$PATH HOME=$T fish --no-config -c "source r.fish; for line in \"cat run.pt opti\" \"cat odd.st it\" \"convert a b --dtype float6\" \"convert a b --dtype=bf\"; complete -C \"reshard \$line\"; end" | cut -f 1; test ! -e ran'
    out <<'END'
optim.param_groups.
optim.state.
it;`touch ran`
float64
--dtype=bfloat16
END
else
    skip 'fish' 'there is no fish'
fi

finish
