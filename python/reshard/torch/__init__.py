# SPDX-License-Identifier: Apache-2.0
"""reshard for torch's ranks. docs/torch.md describes every call.

    reshard.torch.save(state, "step-100")
    reshard.torch.load(state, "step-100")      # on any other mesh, and any number of ranks

Behind torch.distributed.checkpoint, storage classes take the place of torch's:

    dcp.save(state, storage_writer=reshard.torch.StorageWriter("step-100"))
    dcp.load(state, storage_reader=reshard.torch.StorageReader("step-100"))

install() puts them in the place of torch's for every caller; so does the environment variable RESHARD_TORCH=1."""

# Public names and the files that they live in, which are imported, torch with them, when they are used.
_files = {
    "AsyncSave": "_saving",
    "HuggingFaceReader": "_reader",
    "HuggingFaceWriter": "_writer",
    "Series": "_series",
    "Stager": "_stager",
    "StorageReader": "_reader",
    "StorageWriter": "_writer",
    "async_save": "_saving",
    "comm_of": "_comm",
    "input_reshard": "_input_reshard",
    "install": "_install",
    "load": "_loading",
    "redistribute": "_redistribute",
    "save": "_saving",
    "uninstall": "_install",
}
__all__ = list(_files)


def __getattr__(name):
    if name not in _files:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module("." + _files[name], __name__), name)
    return value


def __dir__():
    return sorted({*globals(), *_files})
