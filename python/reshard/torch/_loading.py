# SPDX-License-Identifier: Apache-2.0
"""load: fills a state dict in place, whatever layout the checkpoint has."""

import io

import torch

from .. import _core
from .._errors import MissingKeyError, NotFoundError
from .._reading import Opaque, _hook, choice
from . import _objects
from ._describe import Describer
from ._group import Group, path_of, run
from ._tree import asked, is_stateful, leaves, name_of


def _real(x):
    """A tensor with memory instead of one on the meta device."""
    dtensor = getattr(torch.distributed, "tensor", None) and torch.distributed.tensor.DTensor
    device = "cpu" if not torch.distributed.is_initialized() else torch.distributed.distributed_c10d._get_pg_default_device()
    if dtensor and isinstance(x, dtensor):
        local = torch.empty_like(x._local_tensor, device=device)
        return dtensor.from_local(local, x.device_mesh, x.placements, run_check=False, shape=x.size(), stride=x.stride())
    return torch.empty_like(x, device=device)


class _Load:
    """One load: the state, and where its results go."""

    def __init__(self, group, contents):
        self.describer, self.values = Describer(group, True), []
        for path, holder, key, x in leaves(contents):
            if isinstance(x, torch.Tensor) and x.device.type == "meta":
                x = holder[key] = _real(x)
            if not self.describer.tensor(path, x):
                self.describer.state.want(path)
                self.values.append((path, holder, key))

    def finish(self, trust):
        for x, memory in self.describer.copies:
            x.detach().copy_(memory)
        for (path, holder, key), found in zip(self.values, self.describer.state.wanted(_hook("pt"))):
            if isinstance(found, bytes):
                holder[key] = _unpickled(found, name_of(path), trust)
            elif found is not None:
                if _opaque(found[0]):
                    raise _objects.refused(name_of(path), found[0])
                holder[key] = found[0]


def _opaque(x):
    return isinstance(x, Opaque) or (isinstance(x, (list, tuple, set)) and any(map(_opaque, x)))


def _unpickled(data, name, trust):
    if trust:
        return torch.load(io.BytesIO(data), weights_only=False)
    try:
        return torch.load(io.BytesIO(data), weights_only=True)
    except Exception:
        _objects.check(data, name)
        raise


def load(
    state_dict,
    path=None,
    *,
    checkpoint_id=None,
    process_group=None,
    no_dist=False,
    strict=True,
    trust_objects=False,
    prefix=None,
    share=None,
    verify=None,
    threads=0,
    max_memory=0,
):
    """Loads a checkpoint of any format and layout into a state dict: tensors are filled in place and cast to their dtype,
    other values replaced, Stateful objects given what was loaded for them.

    state_dict: as torch.distributed.checkpoint.load takes it. strict: False leaves alone what the checkpoint lacks.
    trust_objects: unpickle objects that could run code. prefix: of the checkpoint's names, which the state dict's lack.
    share: whether bytes that several ranks want are read once; None decides. verify: as in reshard.load."""
    group = Group(process_group, no_dist)
    keys = sorted(state_dict, key=str)
    contents, one, how = {}, None, None

    def make():
        nonlocal one, how
        how = (path_of(path, checkpoint_id), choice(verify, "verify"), choice(share, "share"))
        contents.update(asked(state_dict, keys))
        one = _Load(group, contents)
        return one.describer.state

    def use(state):
        where, check, together = how or ("", 0, 0)  # a rank without a path fails all
        return _core.load(
            where,
            state,
            group.comm,
            verify=check,
            partial=not strict,
            threads=threads,
            max_memory=max_memory,
            prefix=prefix,
            share=together,
        )

    try:
        run(group, make, use, True)
    except NotFoundError as e:
        if "the checkpoint has no " not in str(e):
            raise
        raise MissingKeyError(f"Missing key: {e}", e.rank, e.errno) from None
    one.finish(trust_objects or _objects.trusted)
    for key in keys:
        if is_stateful(state_dict[key]):
            state_dict[key].load_state_dict(contents[key])
        else:
            state_dict[key] = contents[key]
