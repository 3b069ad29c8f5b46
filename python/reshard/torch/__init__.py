# SPDX-License-Identifier: Apache-2.0
"""reshard for torch's ranks. docs/torch.md describes every call.

    reshard.torch.save(state_dict, "step-100")
    reshard.torch.load(state_dict, "step-100")      # on any other mesh, and any number of ranks"""

# Public names and the files that they live in, which are imported, torch with them, when they are used.
_FROM = {
    "comm_of": "_comm",
    "save": "_saving",
    "async_save": "_saving",
    "AsyncSave": "_saving",
    "load": "_loading",
    "Series": "_series",
}

__all__ = list(_FROM)


def __getattr__(name):
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *_FROM])
