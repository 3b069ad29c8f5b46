#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# reshard convert under mpirun: what it makes is what one process makes, to the byte, and one rank speaks.
. "$(dirname "$0")/expect.sh"

build=$(dirname "$R")
export LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" UCX_LOG_LEVEL=error

# $M MPI ARGUMENTS: the tool on 3 ranks; what mpirun itself has to say is left out.
M=$T/ranks
export M
cat >"$M" <<'END'
#!/bin/sh
case $1 in
openmpi) run='mpirun.openmpi --allow-run-as-root --oversubscribe' ;;
mpich) run=mpirun.mpich ;;
esac
shift
timeout 600 $run -n 3 "$R" "$@" 2>"$T/said"
code=$?
grep '^reshard: ' "$T/said" >&2
exit $code
END
chmod +x "$M"

columns="--layout 'mesh tp=4; row shard(1)@tp; * shard(0)@tp'"
parts='--to safetensors --shard-size 200'

# A recipe that joins, transposes and pads.
cat >"$T/ranks.recipe" <<'END'
a[(i 2) j], b[(i 2) j] -> c[(2 (i + i)) j]
s[i] -> s[(i + p:7)] where p = 5
t[i j] -> t[j i]
layout mesh tp=2
layout c shard(0)@tp
layout * replicate
END
st "$T/source.safetensors" '{"a":{"dtype":"U8","shape":[64,512],"data_offsets":[0,32768]},"b":{"dtype":"U8","shape":[64,512],"data_offsets":[32768,65536]},"s":{"dtype":"U8","shape":[16],"data_offsets":[65536,65552]},"t":{"dtype":"U8","shape":[300,100],"data_offsets":[65552,95552]}}' ''
awk 'BEGIN { for (i = 0; i < 95552; i++) printf "%c", 33 + (i * 7 + int(i / 512)) % 90 }' >>"$T/source.safetensors"
made="--recipe $T/ranks.recipe"

mkdir "$T/one"
t 'one process converts' -c "
    \$R convert -q golden/dcp_rows \$T/one/columns $columns &&
    \$R convert -q golden/dcp_blocks \$T/one/blocks.safetensors &&
    \$R convert -q golden/dcp_items \$T/one/parts $parts 2>/dev/null &&
    \$R convert -q golden/dcp_items \$T/one/items.pt &&
    \$R convert -q \$T/source.safetensors \$T/one/made $made &&
    \$R convert -q \$T/source.safetensors \$T/one/made.safetensors $made &&
    \$R convert -q \$T/source.safetensors \$T/one/states $made --to sharded_state &&
    \$R convert -q \$T/source.safetensors \$T/one/run/release $made --to megatron"

for mpi in openmpi mpich; do
    if ! [ -e "$build/libreshard_mpi_$mpi.so" ] || ! "$M" $mpi --version >/dev/null 2>&1; then
        skip "convert under $mpi" 'not built, or its mpirun does not start here'
        continue
    fi
    mkdir "$T/$mpi"

    t "$mpi: a DCP in another layout" -c "
        \$M $mpi convert -q golden/dcp_rows \$T/$mpi/columns $columns &&
        diff -r \$T/one/columns \$T/$mpi/columns"

    t "$mpi: one file" -c "
        \$M $mpi convert -q golden/dcp_blocks \$T/$mpi/blocks.safetensors &&
        cmp \$T/one/blocks.safetensors \$T/$mpi/blocks.safetensors"

    t "$mpi: several files, and one rank says what is left out" -c "
        \$M $mpi convert -q golden/dcp_items \$T/$mpi/parts $parts &&
        diff -r \$T/one/parts \$T/$mpi/parts"
    err <<'END'
reshard: left out: optim.param_groups.0.lr, optim.param_groups.0.betas, optim.param_groups.0.eps, optim.param_groups.0.fused, optim.param_groups.0.params and 3 more: safetensors hold no objects
END

    t "$mpi: tensors made by a recipe, in a layout, a file, files of ranks, a Megatron folder" -c "
        \$M $mpi convert -q \$T/source.safetensors \$T/$mpi/made $made &&
        \$M $mpi convert -q \$T/source.safetensors \$T/$mpi/made.safetensors $made &&
        \$M $mpi convert -q \$T/source.safetensors \$T/$mpi/states $made --to sharded_state &&
        \$M $mpi convert -q \$T/source.safetensors \$T/$mpi/run/release $made --to megatron &&
        diff -r \$T/one/made \$T/$mpi/made && cmp \$T/one/made.safetensors \$T/$mpi/made.safetensors &&
        diff -r \$T/one/states \$T/$mpi/states && diff -r \$T/one/run \$T/$mpi/run && ls \$T/$mpi/states"
    out <<'END'
model-rank-0-part-0.safetensors
model-rank-1-part-0.safetensors
END

    t "$mpi: a torch.save file, and nothing else is made than by one process" -c "
        \$M $mpi convert -q golden/dcp_items \$T/$mpi/items.pt && diff -r \$T/one \$T/$mpi"

    t "$mpi: a target that exists is refused with 3, by one rank" -c "
        cd \$T/$mpi && \$M $mpi convert \$OLDPWD/golden/dcp_rows columns"
    code 3
    err <<'END'
reshard: checkpoint "columns": rank 0: it exists already, and overwrite was not asked for
END
done

finish
