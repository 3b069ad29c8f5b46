#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of torch.distributed.checkpoint with the storage classes of reshard.torch in the place of torch's,
and prints a table. The tests are not part of torch's wheel nor of this repository: give the folder of PyTorch's sources, of
the installed torch's version, that holds test/distributed/checkpoint.

    conformance.py SOURCES [--modes stock,both,writer,reader] [--only MODULE ...] [--timeout SECONDS]

Needs pytest, expecttest, hypothesis, psutil, safetensors, zstandard. Modes: stock replaces nothing, both replaces all names
that install() does, writer and reader only these, so that stock reads what ours wrote and the reverse. Tests that ask for
GPUs run on the CPU, with fully_shard for FSDP; those that can't are counted as failed in each mode alike."""

import argparse
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

MODULES = [
    "test_file_system_checkpoint_cpu.py",
    "test_compatibility.py",
    "test_planner.py",
    "test_format_utils.py",
    "test_dtensor_checkpoint.py",
    "test_dtensor_resharding.py",
    "test_save_load_api.py",
    "test_fsspec.py",
    "test_hf_storage.py",
    "test_hf_safetensor_e2e.py",
    "test_quantized_hf_storage.py",
    "test_consolidate_hf_safetensors.py",
    "test_async_process_executor.py",
    "test_state_dict_stager.py",
    "e2e/test_e2e_save_and_load.py",
]
MODE, MODULE, FOLDER = "RESHARD_CONFORMANCE", "RESHARD_CONFORMANCE_MODULE", pathlib.Path(__file__).resolve().parent
_servers = multiprocessing.get_context("forkserver")


# ---- in every process of a test, through sitecustomize ----


class _After:
    """Calls a function when a module has been imported."""

    def __init__(self, target, act):
        self.target, self.act = target, act

    def find_spec(self, name, path=None, target=None):
        if name != self.target:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.act(module)

        spec.loader.exec_module = exec_module
        return spec


def _storage(module):
    from reshard.torch import _install

    mode = os.environ[MODE]
    if mode == "both":
        _install.install(trust_objects=True)
    elif mode != "stock":
        name = {"writer": "FileSystemWriter", "reader": "FileSystemReader"}[mode]
        stock, ours, places = _install._ours[name]
        _install._objects.trusted = True
        _install._replace(stock, ours, name, places)


def _without_gpus(module):
    def same(*args, **kwargs):
        return lambda function: function

    module.skip_if_lt_x_gpu = module.requires_accelerator_dist_backend = same
    module.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(Rank)


class Rank(_servers.Process):
    """A process of a test, begun by a server that has imported the test's module: doing so takes longer than most tests."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.environ = dict(os.environ)

    def run(self):
        os.environ.update(self.environ)
        super().run()


def _plain_gloo(module):
    base = module.DTensorTestBase
    init = base.init_pg

    def init_pg(self, eager_init, backend=None):
        backend = backend or self.backend
        return init(self, eager_init, "gloo" if backend.startswith("cpu:gloo") else backend)

    base.init_pg = init_pg


def _fully_sharded(module):
    """FSDP wants an accelerator, fully_shard does not. Not for tests that call more of FSDP or compare whole state dicts."""

    def shard(model, *args, device_mesh=None, **kwargs):
        from torch.distributed import get_world_size, init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        shape = tuple(device_mesh.shape) if device_mesh else (get_world_size(),)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
        return model if isinstance(model, FSDPModule) else fully_shard(model, mesh=mesh)

    if module.__name__ in ("test_e2e_save_and_load", "test_save_load_api"):
        module.FSDP = shard


def substitute():
    _servers.set_forkserver_preload(["torch.distributed.checkpoint", os.environ[MODULE]])
    for target, act in (
        ("torch.distributed.checkpoint", _storage),
        ("torch.testing._internal.common_distributed", _without_gpus),
        ("torch.testing._internal.distributed._tensor.common_dtensor", _plain_gloo),
        (os.environ[MODULE], _fully_sharded),
    ):
        sys.meta_path.insert(0, _After(target, act))


# ---- the runner ----


def run(tests, module, mode, timeout, select):
    """(passed, failed, skipped, names of those that failed)"""
    with tempfile.TemporaryDirectory() as folder:
        hook = pathlib.Path(folder, "sitecustomize.py")
        hook.write_text(f"import sys; sys.path.append({str(FOLDER)!r}); import conformance; conformance.substitute()\n", encoding="utf-8")
        report = pathlib.Path(folder, "report.xml")
        file = tests / module
        path = os.pathsep.join([folder, str(file.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, MODE: mode, MODULE: file.stem, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=1000", f"--junitxml={report}", "-p", "no:cacheprovider", str(file)]
        if select:
            command += ["-k", select]
        process = subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            output = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return 0, 0, 0, [f"no end within {timeout} s"]
        if os.environ.get("CONFORMANCE_LOG"):
            pathlib.Path(os.environ["CONFORMANCE_LOG"], f"{mode}-{file.stem}.log").write_text(output, encoding="utf-8")
        if not report.exists():
            return 0, 0, 0, [output.strip().splitlines()[-1] if output.strip() else "no output"]
        good, skipped, bad = 0, 0, []
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                bad.append(case.get("name"))
            elif "skipped" in kinds:
                skipped += 1
            else:
                good += 1
        return good, len(bad), skipped, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", nargs="?", default=os.environ.get("PYTORCH_SOURCES"))
    parser.add_argument("--modes", default="stock,both,writer,reader")
    parser.add_argument("--only", nargs="*", default=MODULES)
    parser.add_argument("--timeout", type=float, default=900)
    parser.add_argument("--select", help="pytest's -k", default="")
    options = parser.parse_args()
    if not options.sources:
        parser.error("no sources of PyTorch given")
    tests = pathlib.Path(options.sources, "test", "distributed", "checkpoint").resolve()
    print("| module | mode | passed | failed | skipped | which failed |\n|---|---|---|---|---|---|", flush=True)
    for module in options.only:
        for mode in options.modes.split(",") if (tests / module).exists() else ():
            good, bad, skipped, names = run(tests, module, mode, options.timeout, options.select)
            print(f"| {module} | {mode} | {good} | {bad} | {skipped} | {' '.join(names)} |", flush=True)


if __name__ == "__main__":
    main()
