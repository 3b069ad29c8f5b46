#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line itself: misuse, help, versions, how options may be written.
. "$(dirname "$0")/expect.sh"

t 'no arguments are misuse'
code 2
err <<'END'
reshard: no command given
try: reshard help
END

t 'an unknown command is misuse' frobnicate golden/dcp_rows
code 2
err <<'END'
reshard: unknown command "frobnicate"
try: reshard help
END

t 'a command that is nearly right is named' inspekt golden/dcp_rows
code 2
err <<'END'
reshard: unknown command "inspekt"; did you mean "inspect"?
try: reshard help
END

t 'an unknown option before a command is misuse' --frobnicate
code 2
err <<'END'
reshard: unknown option "--frobnicate" before the command
try: reshard help
END

t 'an unknown option is misuse' inspect --frobnicate golden/dcp_rows
code 2
err <<'END'
reshard: inspect has no option "--frobnicate"
try: reshard help inspect
END

t 'an option that is nearly right is named' inspect --jsn golden/dcp_rows
code 2
err <<'END'
reshard: inspect has no option "--jsn"; did you mean "--json"?
try: reshard help inspect
END

t 'an unknown letter is misuse' diff -x golden/dcp_rows golden/dcp_rows
code 2
err <<'END'
reshard: diff has no option "-x"
try: reshard help diff
END

t 'a missing operand is misuse' inspect
code 2
err <<'END'
reshard: inspect needs CKPT [NAME...]
try: reshard help inspect
END

t 'a missing second operand is misuse' diff golden/dcp_rows
code 2
err <<'END'
reshard: diff needs A B
try: reshard help diff
END

t 'an operand too many is misuse' verify golden/dcp_rows golden/dcp_rows
code 2
err <<'END'
reshard: verify takes only CKPT, found "golden/dcp_rows" too
try: reshard help verify
END

t 'operands where none are taken are misuse' demo golden/dcp_rows
code 2
err <<'END'
reshard: demo takes no operands, found "golden/dcp_rows"
try: reshard help demo
END

t 'an option without its value is misuse' cat golden/dcp_rows row --slice
code 2
err <<'END'
reshard: --slice needs a value: SLICE
try: reshard help cat
END

t 'a letter without its value is misuse' diff golden/dcp_rows golden/dcp_rows -j
code 2
err <<'END'
reshard: -j needs a value: N
try: reshard help diff
END

t 'a flag with a value is misuse' inspect --json=yes golden/dcp_rows
code 2
err <<'END'
reshard: --json takes no value
try: reshard help inspect
END

t 'a value that is no choice is misuse' cat golden/dcp_rows row --format json
code 2
err <<'END'
reshard: --format takes one of raw|npy|text, not "json"
try: reshard help cat
END

t 'a value that is only the start of a choice is misuse' cat golden/dcp_rows row --format ra
code 2
err <<'END'
reshard: --format takes one of raw|npy|text, not "ra"
try: reshard help cat
END

t 'a number that is none is misuse' diff --threads many golden/dcp_rows golden/dcp_rows
code 2
err <<'END'
reshard: --threads takes a whole number, not "many"
try: reshard help diff
END

t 'a negative number is misuse' diff --threads -1 golden/dcp_rows golden/dcp_rows
code 2
err <<'END'
reshard: --threads takes a whole number, not "-1"
try: reshard help diff
END

t 'a tolerance that is no number is misuse' diff --rtol=x golden/dcp_rows golden/dcp_rows
code 2
err <<'END'
reshard: --rtol takes a number from 0 on, not "x"
try: reshard help diff
END

t 'a size that is none is misuse' bench --size 64Q
code 2
err <<'END'
reshard: --size takes a size such as 64M or 5G, not "64Q"
try: reshard help bench
END

t 'a size that does not fit is misuse' bench --size 99999999999T
code 2
err <<'END'
reshard: --size takes a size such as 64M or 5G, not "99999999999T"
try: reshard help bench
END

t 'options may stand behind the operands' verify golden/dcp_rows --quick
out <<'END'
ok: dcp, 3 tensors, 344 B, 0 objects; no data were read
END

t 'options may stand between the operands' cat golden/dcp_objects --json step
out <<'END'
7
END

t 'a value may follow an equals sign' cat golden/dcp_blocks blocks --slice=0,0 --format=text
out <<'END'
-4144143.8
END

t 'a value may follow its letter at once' diff -qj2 golden/dcp_rows golden/dcp_rows

t 'behind two dashes everything is an operand' inspect -- --json
code 3
err <<'END'
reshard: could not find "--json": No such file or directory
END

t 'a single dash is an operand' inspect -
code 3
err <<'END'
reshard: could not find "-": No such file or directory
END

t '--version prints the version to stdout' --version
out <<'END'
reshard 0.2.0
END

t 'help of a command that is not there is misuse' help frobnicate
code 2
err <<'END'
reshard: unknown command "frobnicate"
try: reshard help
END

t 'help lists the commands' -c '"$R" help | sed -n "/^  [a-z]/p" | grep -v "^  [0-9-]"'
out <<'END'
  inspect     list the tensors and objects of a checkpoint
  cat         print a tensor, a slice, an object, or everything below a name
  verify      check a checkpoint for damage
  diff        compare two checkpoints, whatever their formats and layouts
  plan        show what each rank would read, move and need when resharding
  convert     write a checkpoint with another format, layout, names or dtypes
  manifest    add checksums to a checkpoint made elsewhere
  recipe      show what a recipe would make of a checkpoint
  series      list the checkpoints of a run, remove old ones
  demo        show a tour: save, draw, reshard, compare, find damage
  bench       measure this machine: memory, saving, reading, resharding
  completion  print a shell completion script
  help        print the help of a command
END

t '--help is the same as help' -c '"$R" --help >"$T/a"; "$R" help | cmp - "$T/a"'

t 'help CMD is the same as CMD --help, whatever else is missing' -c '"$R" cat --help >"$T/a"; "$R" help cat | cmp - "$T/a"'

t 'help of cat' help cat
out <<'END'
usage: reshard cat [OPTIONS] CKPT NAME

Writes the tensor NAME to stdout, whatever chunks and files it is cut into,
reading only the bytes that the slice needs. An object is printed as Python
would print it. A NAME that is a prefix of others, such as optim.state, prints
everything below it.

On a terminal a tensor of more than 1,000 elements is shortened to the first
and the last three of each dimension.

Types that numpy lacks (bfloat16, float8) become raw items of as many bytes in
npy files.

options:
  --slice SLICE           only this part, as in Python: 0:128,: or 3 or
                          -1,:,0:4
  --format raw|npy|text   raw bytes (little-endian, row-major), a numpy file,
                          or numbers with one line per row; default: raw, text
                          on a terminal
  --full                  print large tensors in full on a terminal too
  --json                  print one JSON document to stdout
  -h, --help              print this text

examples:
  # the first 128 rows as a numpy file
  reshard cat step-1000 model.embed.weight --slice 0:128 --format npy >rows.npy
  # one row, to look at
  reshard cat step-1000 model.norm.weight --format text | head
END

t 'every command has help and a man page' -c 'for c in $("$R" help | sed -n "/^commands/,/^$/s/^  \([a-z]*\) .*/\1/p"); do "$R" help $c >/dev/null && "$R" help --man $c >/dev/null && echo $c; done'
out <<'END'
inspect
cat
verify
diff
plan
convert
manifest
recipe
series
demo
bench
completion
help
END

t 'the completion for bash is valid and completes options' -c '"$R" completion bash >"$T/b" && bash -c ". $T/b; COMP_WORDS=(reshard cat --f); COMP_CWORD=2; _reshard; echo \${COMPREPLY[@]}; COMP_WORDS=(reshard cat --format = r); COMP_CWORD=4; _reshard; echo \${COMPREPLY[@]}; COMP_WORDS=(reshard in); COMP_CWORD=1; _reshard; echo \${COMPREPLY[@]}"'
out <<'END'
--format --full
raw
inspect
END

if command -v zsh >/dev/null; then
    for how in '' yes; do
        t_terminal "zsh completes, read in: ${how:-no}" -c '"$R" completion zsh >"$T/_reshard"; SOURCED='$how' timeout 600 zsh -f ../cli/zsh_types.zsh "reshard ver" "reshard verify --thr" "reshard convert --to saf" "reshard help manif" "reshard cat --format=n"'
        out <<'END'
reshard verify 
reshard verify --threads=
reshard convert --to safetensors 
reshard help manifest 
reshard cat --format=npy 
END
    done
else
    skip 'zsh completes' 'there is no zsh here'
fi

if command -v fish >/dev/null; then
    t 'fish completes commands, options, their values and the topics of help' -c '"$R" completion fish >"$T/r.fish"; HOME=$T fish --no-config -c "source $T/r.fish; for line in ver \"verify --thr\" \"convert --to saf\" \"help manif\" \"verify --hel\"; complete -C \"reshard \$line\"; end" | cut -f 1'
    out <<'END'
verify
--threads
safetensors
manifest
--help
END
else
    skip 'fish completes' 'there is no fish here'
fi

t 'completion for an unknown shell is misuse' completion csh
code 2
err <<'END'
reshard: SHELL is bash, zsh or fish, not "csh"
try: reshard help completion
END

t 'output that can not be written ends in 3' -c '"$R" inspect golden/dcp_rows >/dev/full'
code 3
err <<'END'
reshard: could not write to stdout: No space left on device
END

t 'a reader that leaves early is no error' -c '"$R" inspect --json golden/hf_parts | head -n 1'
out <<'END'
{
END

t 'a reader that leaves early is no error where SIGPIPE is ignored' -c 'trap "" PIPE; ("$R" cat golden/hf_parts row --format text; echo $? >"$T/code") | true; cat "$T/code"'
out <<'END'
0
END

t 'under mpirun without the library for that MPI, the reason names it once' -c '
    cp "$R" "$T/reshard" && : >"$T/libreshard_mpi_openmpi.so.1"
    OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$T/reshard" convert golden/dcp_rows "$T/never"'
code 3
err <<END
reshard: mpirun of Open MPI started this program, but reshard's library for it can't be loaded: $T/libreshard_mpi_openmpi.so.1: file too short; a build with that MPI has it, RESHARD_MPI=none makes each process work alone
END

t 'no command has two options of one name or letter' -c '
    for command in $("$R" help | sed -n "s/^  \([a-z]*\) .*/\1/p"); do
        echo "$command" >>"$T/commands"
        "$R" help "$command" | grep -E "^ +-" | grep -oE "^ +(-[A-Za-z]|--[a-z-]+)(, --[a-z-]+)?" | tr "," "\n" | tr -d " " |
            sort | uniq -d | sed "s/^/$command /"
    done
    grep -cx "inspect\|convert" "$T/commands"'
out <<'END'
2
END

t 'every option stands in the documents' -c '
    for command in $("$R" help | sed -n "s/^  \([a-z]*\) .*/\1/p"); do
        for option in $("$R" help "$command" | grep -E "^ +-" | grep -oE "^ +(-[A-Za-z], )?--[a-z-]+" | grep -oE -e "--[a-z-]+"); do
            grep -qrE -e "$option([^a-z-]|\$)" ../../docs || echo "$command $option"
        done
    done'

finish
