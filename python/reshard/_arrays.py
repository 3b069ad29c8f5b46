# SPDX-License-Identifier: Apache-2.0
"""Between the core's memory and the arrays of numpy and torch, none of which has to be installed."""

import sys

from . import _core
from ._errors import InvalidError, UnsupportedError

FRAMEWORKS = ("np", "pt", "raw")
# Those that numpy and the buffer protocol have.
_plain = frozenset("bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128".split())
_torch_names = {}  # torch.dtype -> its name


def pick(framework):
    """The framework to use; None means numpy, or torch if numpy is missing, or neither."""
    if framework is None:
        for name, module in (("np", "numpy"), ("pt", "torch")):
            if module in sys.modules or _installed(module):
                return name
        return "raw"
    if framework not in FRAMEWORKS:
        raise InvalidError(f'framework "{framework}" is none of "np", "pt", "raw"')
    return framework


def _installed(module):
    from importlib.util import find_spec

    return find_spec(module) is not None


def wrap(array, framework):
    """A core Array as an array of the framework, which shares and keeps its memory."""
    if framework == "raw":
        return array
    return _numpy_of(array) if framework == "np" else _torch_of(array)


def _numpy_of(array):
    import numpy

    if array.dtype in _plain:
        return numpy.asarray(array).view(array.dtype)
    dtype = _ml_dtype(array.dtype)
    return numpy.frombuffer(array, numpy.uint8).view(dtype).reshape(array.shape) if array.nbytes else numpy.empty(array.shape, dtype)


def _ml_dtype(name):
    import numpy

    try:
        import ml_dtypes
    except ImportError:
        raise UnsupportedError(f'numpy has no {name}: install ml_dtypes, or read with framework="pt" or "raw"') from None
    dtype = getattr(ml_dtypes, name, None)
    if dtype is None:
        raise UnsupportedError(f'neither numpy nor ml_dtypes has {name}: read with framework="pt" or "raw"')
    return numpy.dtype(dtype)


def _torch_of(array):
    import torch

    dtype = getattr(torch, array.dtype, None)
    if dtype is None:
        raise UnsupportedError(f'this torch has no {array.dtype}: read with framework="np" or "raw"')
    if not array.nbytes:
        return torch.empty(array.shape, dtype=dtype)
    try:
        tensor = torch.from_dlpack(array)
    except (RuntimeError, BufferError, TypeError):
        tensor = None
    if tensor is None or tensor.dtype != dtype:  # an older torch, whose DLPack lacks the dtype
        tensor = torch.frombuffer(array, dtype=torch.uint8).view(dtype).view(array.shape)
    return tensor


def is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_numpy(x):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.ndarray)


def is_tensor(x):
    """True for what is saved as a tensor. bytes and bytearray are values."""
    if isinstance(x, (_core.Array, memoryview)) or is_torch(x) or is_numpy(x):
        return True
    kind = type(x)
    return hasattr(kind, "__dlpack__") or (kind.__module__, kind.__name__) == ("array", "array")


def view(x, writing):
    """A core View of an array: of its own memory if it is written to, otherwise perhaps of a copy."""
    if isinstance(x, _core.View):
        return x
    if is_torch(x):
        return _torch_view(x, writing)
    if is_numpy(x):
        return _numpy_view(x, writing)
    try:
        return _core.View.of_buffer(x, None)
    except TypeError:
        if writing or not hasattr(x, "__dlpack__"):
            raise
    import numpy

    return _numpy_view(numpy.from_dlpack(x), writing)


def _numpy_view(x, writing):
    import numpy

    kind = None
    if not writing and 0 in x.strides:
        x = numpy.ascontiguousarray(x).reshape(x.shape)
    if x.dtype.isbuiltin == 2:  # registered with numpy, as ml_dtypes does
        kind = x.dtype.name
        x = x.view(f"u{x.dtype.itemsize}")
    try:
        return _core.View.of_buffer(x, kind)
    except (ValueError, BufferError, TypeError) as e:
        raise InvalidError(f"an array of dtype {kind or x.dtype} can't be used: {e}") from None


def _torch_view(x, writing):
    import torch

    if type(x) is not torch.Tensor and not isinstance(x, torch.nn.Parameter):
        raise UnsupportedError(f"{type(x).__module__}.{type(x).__qualname__} is no plain tensor; reshard.torch saves and loads those")
    if x.layout is not torch.strided or x.is_quantized or x.device.type == "meta":
        raise UnsupportedError(f"a tensor of layout {x.layout} on {x.device} has no plain elements")
    x = x.detach()
    if writing and (x.device.type != "cpu" or x.is_conj() or x.is_neg()):
        raise UnsupportedError(f"can't read into a tensor on {x.device}, conjugated or negated: read into a plain one on the CPU")
    if not writing:
        x = x.cpu().resolve_conj().resolve_neg()
        if 0 in x.stride():
            x = x.contiguous()
    name = _torch_names.get(x.dtype)
    if name is None:
        name = _torch_names[x.dtype] = str(x.dtype)
    return _core.View.of_pointer(x, x.data_ptr(), name, tuple(x.shape), x.stride())
