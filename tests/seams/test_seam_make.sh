#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Makefile under -j and inside another make, with made-up tools that only say how they were called.
. "$(dirname "$0")/../cli/expect.sh"
unset BUILD MESON_ARGS PREFIX CASES MAKEFLAGS MFLAGS MAKELEVEL # of the make that runs the tests

mkdir -p "$T/tools" "$T/bin" "$T/build/meson-logs"
cp ../../Makefile "$T"
cp ../../tools/with-deps "$T/tools"
program() # FILE COMMANDS
{
    printf '#!/bin/sh\n%s\n' "$2" >"$T/$1"
    chmod +x "$T/$1"
}
says='echo "${0##*/} $*${MAKEFLAGS:+ with $MAKEFLAGS}"'
program tools/setup "$says"
program tools/configure :
program tools/carry-libs :
program tools/run-tests "$says"
program build/reshard "$says"
program bin/ninja "$says"
program bin/meson 'case $1 in
introspect)
    echo "{\"$PWD/build/reshard\": \"/usr/bin/reshard\", \"$PWD/src/a.h\": \"/usr/include/a.h\"," \
        "\"$PWD/build/meson-private/a.pc\": \"/usr/lib/pkgconfig/a.pc\", \"$PWD/build/aConfig.cmake\": \"/usr/lib/cmake/a.cmake\"}" ;;
configure) echo "meson $*" ;;
esac'
unset MAKEFLAGS MFLAGS MAKELEVEL
PATH=$T/bin:$PATH
cd "$T" || exit 1

t 'make -j2 tells Ninja the number, and keeps the jobserver to itself' -c 'make -j2 | tail -n 1'
out <<'END'
ninja -C build --quiet -j2
END

t 'make -j leaves the number to Ninja' -c 'make -j | tail -n 1'
out <<'END'
ninja -C build --quiet
END

t 'targets that use one build folder wait for each other' -c 'make -j4 test demo | cut -d " " -f 1'
out <<'END'
setup
meson
building
ninja
run-tests
setup
building
ninja
reshard
END

printf 'all:\n\t+@$(MAKE) -s -f Makefile all\n' >outer.mk
t 'it runs inside another make' -c 'make -s -j3 -f outer.mk --no-print-directory | tail -n 1'
out <<'END'
ninja -C build --quiet -j3
END

t 'make install builds what is installed and nothing else' -c 'make install PREFIX=there | tail -n 1'
out <<'END'
ninja -C build --quiet reshard
END

t 'make install goes to PREFIX, or /usr/local' -c 'make install PREFIX=there | grep Dprefix && make -n install | grep -o Dprefix.*'
out <<END
meson configure build -Dprefix=$PWD/there
Dprefix=/usr/local
END

t 'make install says where it can not write' -c 'echo >file; make install PREFIX=file 2>&1 | head -n 1 | sed "s|$PWD|.|"'
out <<'END'
install: ./file can't be written: be root, or take PREFIX=$HOME/.local
END

t 'make uninstall removes what was installed' -c 'touch build/meson-logs/install-log.txt && make uninstall'
out <<'END'
ninja -C build --quiet uninstall
END

t 'make uninstall says that nothing was installed' -c 'make uninstall 2>&1 | head -n 1'
out <<'END'
uninstall: nothing was installed from build
END

finish
