# The short front of the build: Meson and Ninja do the work. `make help` lists what there is.
BUILD ?= build
MESON_ARGS ?=
CASES ?= *
RUN = tools/with-deps $(BUILD)

all: setup-build
	@$(RUN) ninja -C $(BUILD) --quiet

help:
	@echo 'make          build the library, the tool ($(BUILD)/reshard) and the examples'
	@echo 'make demo     the same, then a short tour in the terminal'
	@echo 'make test     build and run every test that needs no Python package'
	@echo 'make test-long  100,000 random layout pairs instead of 2,000'
	@echo 'make test-faults  saves that are disturbed, killed and cut off in every way; a table'
	@echo 'make test-interop  the tests against real PyTorch; makes $(BUILD)/venv from the package index'
	@echo 'make bench    run the benchmarks; CASES="plan.*" picks some'
	@echo 'make format   let clang-format lay out every C file'
	@echo 'make check    layers, file names, format'
	@echo 'make install  into PREFIX (default /usr/local); DESTDIR works'
	@echo 'RESHARD_NO_INSTALL=1 keeps any of them from installing packages'

setup-build:
	@tools/setup $(BUILD) build features
	@test -f $(BUILD)/build.ninja || $(RUN) meson setup $(BUILD) $(MESON_ARGS) >/dev/null

setup-test:
	@tools/setup $(BUILD) build features mpi test
	@test -f $(BUILD)/build.ninja || $(RUN) meson setup $(BUILD) $(MESON_ARGS) >/dev/null
	@$(RUN) meson configure $(BUILD) -Dtests=enabled

demo: all
	@$(RUN) $(BUILD)/reshard demo

test: setup-test
	@$(RUN) ninja -C $(BUILD) --quiet
	@$(RUN) tools/run-tests $(BUILD)

test-long: setup-test
	@$(RUN) ninja -C $(BUILD) --quiet
	@RESHARD_CASES=100000 $(RUN) $(BUILD)/tests/test_random_plans

test-faults: setup-test
	@tools/setup $(BUILD) faults
	@$(RUN) ninja -C $(BUILD) --quiet
	@$(RUN) tools/run-faults $(BUILD)

test-interop: setup-test
	@tools/setup $(BUILD) python
	@$(RUN) ninja -C $(BUILD) --quiet
	@python=$$(tools/venv $(BUILD)) && $(RUN) $$python tests/interop/run.py --tool $(BUILD)/tests/ckpt_copy \
		--reshard $(BUILD)/reshard

bench: all
	@$(RUN) $(BUILD)/bench/bench --csv $(BUILD)/bench.csv '$(CASES)'

check: setup-build
	@tools/check-layers
	@tools/check-format

format:
	@tools/check-format --fix

install: setup-build
	@$(RUN) meson configure $(BUILD) $(if $(PREFIX),-Dprefix=$(abspath $(PREFIX)))
	@$(RUN) ninja -C $(BUILD) --quiet
	@$(RUN) meson install -C $(BUILD) --no-rebuild

clean:
	@rm -rf $(BUILD)

.PHONY: all help setup-build setup-test demo test test-long test-faults test-interop bench check format install clean
