#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/setup on a machine without a compiler, for a user who is not root and has no sudo. The package manager is made up: it
# knows gcc, and unpacks a program of that name. Real systems are tried by tools/check-fresh.
. "$(dirname "$0")/../cli/expect.sh"

mkdir -p "$T/tools" "$T/bin"
cp ../../tools/setup ../../tools/with-deps "$T/tools"
for tool in cat chmod dirname env find grep head ln mkdir readlink rm sed sh tail touch tr wc; do
    ln -s "$(command -v $tool)" "$T/bin"
done
program() # FILE COMMANDS
{
    printf '#!/bin/sh\n%s\n' "$2" >"$T/bin/$1"
    chmod +x "$T/bin/$1"
}
program id 'echo 1000'
program meson :
program ninja :
program pkg-config :
program apt-get 'case "$*" in
*" -s "*) printf "Inst %s (1)\n" gcc libc6 ;;
*" download "*) : >gcc.deb ;;
esac'
program dpkg-deb 'mkdir -p "$3/usr/bin" "$3/usr/lib"
printf "GROUP ( /lib/libc.so.6 /usr/lib/libc_nonshared.a )\n" >"$3/usr/lib/libc.so"
printf "#!/bin/sh\necho the unpacked gcc\n" >"$3/usr/bin/gcc"
chmod +x "$3/usr/bin/gcc"'
unset CC
export S="env PATH=$T/bin"
cd "$T" || exit 1

t 'set-up says what it does, and leaves the system its own C library' -c '$S tools/setup build build'
out <<END
setup: no root and no sudo: getting gcc libc6-dev below $T/build/deps
setup: updating the lists of packages
setup: downloading gcc libc6-dev (packages in all: 1)
setup: unpacking them below $T/build/deps/root
END

t 'cc is the gcc that was unpacked' -c '$S tools/with-deps build cc'
out <<'END'
the unpacked gcc
END

t 'it is linked against the C library that was unpacked' -c 'cat build/deps/root/usr/lib/libc.so'
out <<END
GROUP ( /lib/libc.so.6 $T/build/deps/root/usr/lib/libc_nonshared.a )
END

t 'what is there is not got again' -c '$S tools/setup build build'

program apt-get 'echo "E: Unable to locate package $*" | sed "s/package.*install/package/" >&2; exit 100'
t 'a failure comes with its reason' -c '$S tools/setup other build >said 2>&1; code=$?; tail -n 2 said | sed "s|$T/||"; exit $code'
out <<'END'
E: Unable to locate package libc6-dev
setup: could not get: gcc libc6-dev (see other/deps/setup.log); please install them
END
code 1

finish
