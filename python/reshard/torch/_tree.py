# SPDX-License-Identifier: Apache-2.0
"""A state dict as a list of leaves, cut by the rules of torch.distributed.checkpoint: dicts are always opened, lists if a
tensor or a dict is in them; everything else is one leaf."""

from collections.abc import Mapping

import torch


def _opened(items):
    """True if a list is opened."""
    for x in items:
        if isinstance(x, (torch.Tensor, Mapping)) or (isinstance(x, list) and _opened(x)):
            return True
    return False


def leaves(state_dict):
    """[(path of str keys and int indices, container, key in it, value), ...]"""
    found = []
    _walk((), state_dict, state_dict.items(), found, True)
    return found


def _walk(path, holder, items, found, named):
    for key, x in items:
        step = path + ((key if type(key) is str else str(key)) if named else key,)
        if isinstance(x, torch.Tensor):
            found.append((step, holder, key, x))
        elif isinstance(x, Mapping):
            _walk(step, x, x.items(), found, True)
        elif isinstance(x, list) and _opened(x):
            _walk(step, x, enumerate(x), found, False)
        else:
            found.append((step, holder, key, x))


def name_of(path):
    """The name in the checkpoint."""
    return ".".join(map(str, path))


def is_stateful(x):
    """Whether it is asked for a state dict, and given one to load."""
    return callable(getattr(x, "state_dict", None)) and callable(getattr(x, "load_state_dict", None))


def asked(state_dict, keys):
    """The state dict with the contents of its Stateful objects."""
    return {key: state_dict[key].state_dict() if is_stateful(state_dict[key]) else state_dict[key] for key in keys}
