# The short front of the build: Meson and Ninja do the work. `make help` lists what there is.
BUILD ?= build
MESON_ARGS ?=
CASES ?= *
PREFIX ?= /usr/local
RUN = tools/with-deps $(BUILD)
# Ninja gets make's -jN as its own; on a terminal it shows how far it is.
NINJA = [ -t 1 ] || { quiet=--quiet; echo 'building into $(BUILD), which may take minutes'; }; $(RUN) ninja -C $(BUILD) $$quiet $(filter-out -j,$(filter -j%,$(MAKEFLAGS)))

all: setup-build
	@$(NINJA)

help:
	@echo 'make          build the library, the tool ($(BUILD)/reshard) and the examples'
	@echo 'make demo     the same, then a short tour in the terminal'
	@echo 'make test     build and run every test that needs no Python package'
	@echo 'make test-long  100,000 random layout pairs instead of 2,000'
	@echo 'make test-faults  saves that are disturbed, killed and cut off in every way; a table'
	@echo 'make test-interop  the tests against real PyTorch; makes $(BUILD)/venv from the package index'
	@echo 'make wheel    the Python package as a wheel in $(BUILD)/wheel; needs the package index'
	@echo 'make test-python  the tests of that wheel, with numpy and torch and without'
	@echo 'make test-trainers  checkpoints of transformers, accelerate, Lightning, DeepSpeed, Megatron; makes $(BUILD)/venv-trainers'
	@echo 'make bench    run the benchmarks; CASES="plan.*" picks some'
	@echo 'make format   let clang-format lay out every C file'
	@echo 'make check    layers, file names, format'
	@echo 'make install  into PREFIX (default /usr/local); DESTDIR works'
	@echo 'make deb      Debian packages in $(BUILD)/deb: library, headers, tool, MPI, UCX, Python'
	@echo 'make uninstall  remove the files that the last make install copied'
	@echo 'RESHARD_NO_INSTALL=1 keeps any of them from installing packages'

setup-build:
	@tools/setup $(BUILD) build features
	@tools/configure $(BUILD) $(MESON_ARGS)

setup-test:
	@tools/setup $(BUILD) build features mpi test
	@tools/configure $(BUILD) $(MESON_ARGS)
	@$(RUN) meson configure $(BUILD) -Dtests=enabled

demo: all
	@$(RUN) $(BUILD)/reshard demo

test: setup-test
	@$(NINJA)
	@$(RUN) tools/run-tests $(BUILD)

test-long: setup-test
	@$(NINJA)
	@RESHARD_CASES=100000 $(RUN) $(BUILD)/tests/test_random_plans

test-faults: setup-test
	@tools/setup $(BUILD) faults
	@$(NINJA)
	@$(RUN) tools/run-faults $(BUILD)

test-interop: setup-test
	@tools/setup $(BUILD) python
	@$(NINJA)
	@python=$$(tools/venv $(BUILD)) && $(RUN) $$python tests/interop/run.py --tool $(BUILD)/tests/ckpt_copy \
		--reshard $(BUILD)/reshard

wheel:
	@tools/setup $(BUILD) build features python
	@tools/wheel $(BUILD)

test-python: wheel setup-test
	@$(RUN) ninja -C $(BUILD) --quiet tests/libcomm_suite.so
	@python=$$(tools/venv $(BUILD)) && tools/test-python $(BUILD) $$python

test-trainers: setup-test
	@tools/setup $(BUILD) python
	@$(NINJA)
	@python=$$(tools/venv $(BUILD) trainers) && $(RUN) $$python tests/trainers/run.py --tool $(BUILD)/tests/ckpt_copy \
		--reshard $(BUILD)/reshard && $(RUN) $$python tests/trainers/megatron_judge.py $(BUILD)/reshard

bench: all
	@$(RUN) $(BUILD)/bench/bench --csv $(BUILD)/bench.csv '$(CASES)'

# What ranks pay on 1 to 65,536 of them: the tables and the chart of docs/scale.md.
scale: all
	@$(RUN) $(BUILD)/bench/bench --scale > $(BUILD)/scale.csv
	@$(RUN) tools/scale-chart $(BUILD)/scale.csv

check:
	@tools/setup $(BUILD) check
	@echo 'layers and file names'
	@$(RUN) tools/check-layers
	@echo 'format of all C files'
	@$(RUN) tools/check-format

format:
	@tools/setup $(BUILD) check
	@$(RUN) tools/check-format --fix

# Builds only what is installed: no tests, fuzz targets or benchmarks. The files for pkg-config and CMake were written when the
# build was configured and are no targets.
install: check-prefix setup-build
	@$(RUN) meson configure $(BUILD) -Dprefix=$(abspath $(PREFIX))
	@$(NINJA) $$($(RUN) meson introspect --installed $(BUILD) | tr ',' '\n' | \
		sed -n '/meson-private/d; /\.cmake"/d; s|^[{ ]*"$(abspath $(BUILD))/\([^"]*\)".*|\1|p')
	@$(RUN) meson install -C $(BUILD) --no-rebuild
	@tools/carry-libs $(BUILD) '$(DESTDIR)$(abspath $(PREFIX))'

check-prefix:
	@case '$(DESTDIR)' in '' | /*) ;; *) echo 'install: DESTDIR must begin with /: "$(DESTDIR)"' >&2; exit 1 ;; esac
	@case '$(PREFIX)' in *' '*) echo 'install: PREFIX must not have spaces: "$(PREFIX)"' >&2; exit 1 ;; esac
	@mkdir -p '$(DESTDIR)$(abspath $(PREFIX))/lib' 2>/dev/null && [ -w '$(DESTDIR)$(abspath $(PREFIX))/lib' ] || \
		{ echo "install: $(DESTDIR)$(abspath $(PREFIX)) can't be written: be root, or take PREFIX=\$$HOME/.local" >&2; exit 1; }

deb:
	@tools/setup $(BUILD) deb
	@tools/deb $(BUILD)

uninstall:
	@test -f $(BUILD)/meson-logs/install-log.txt || { echo 'uninstall: nothing was installed from $(BUILD)' >&2; exit 1; }
	@$(RUN) ninja -C $(BUILD) --quiet uninstall
	@rm $(BUILD)/meson-logs/install-log.txt

clean:
	@rm -rf $(BUILD)

.PHONY: scale all help check-prefix setup-build setup-test demo test test-long test-faults test-interop test-trainers wheel test-python bench check format install deb uninstall clean
# Targets share one build folder, so they run one after another, whatever -j says.
.NOTPARALLEL:
