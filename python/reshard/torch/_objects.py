# SPDX-License-Identifier: Apache-2.0
"""Objects are looked at before a planner unpickles them: torch's planners run any code that is in them."""

import io

import torch

from .._errors import UnsupportedError

# What install(trust_objects=...) sets, for readers that were not told.
trusted = False


def check(data, key):
    """Raises unless torch.load(weights_only=True) loads the bytes, with what add_safe_globals added."""
    try:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as e:  # pylint: disable=broad-except
        raise refused(key, _classes(data) or str(e).partition("\n")[0]) from None


def refused(key, what):
    """The exception for an object that is not loaded."""
    return UnsupportedError(
        f'object "{key}" is not loaded because it could run code: it needs {what}. If you trust the checkpoint, allow this by '
        "torch.serialization.add_safe_globals, or everything by trust_objects=True, of StorageReader, reshard.torch.load or "
        "reshard.torch.install"
    )


def _classes(data):
    try:
        return ", ".join(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data))))
    except Exception:  # pylint: disable=broad-except
        return ""
