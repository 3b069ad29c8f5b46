# SPDX-License-Identifier: Apache-2.0
"""reshard for torch's ranks. docs/torch.md describes every call."""

_FROM = {
    "comm_of": "_comm",
    "input_reshard": "_input_reshard",
    "redistribute": "_redistribute",
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
