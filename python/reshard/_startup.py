# SPDX-License-Identifier: Apache-2.0
"""For RESHARD_TORCH=1: reshard.torch.install() as soon as the program imports torch.distributed.checkpoint. The package's
start-up file, reshard.pth, imports this module if the variable is set."""

import sys

_target = "torch.distributed.checkpoint"


class _Finder:
    """Finds the module as all others do, and acts when it has been executed."""

    def find_spec(self, name, path=None, target=None):
        """The spec of `_target`, with a loader that installs; None for all else."""
        if name != _target:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = _then_install(spec.loader.exec_module)
        return spec


def _then_install(execute):
    def exec_module(module):
        execute(module)
        from .torch import install

        install()

    return exec_module


def watch():
    """Waits for the import, or acts at once if it has happened."""
    if _target in sys.modules:
        from .torch import install

        install()
    else:
        sys.meta_path.insert(0, _Finder())


watch()
