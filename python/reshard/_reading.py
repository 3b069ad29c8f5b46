# SPDX-License-Identifier: Apache-2.0
"""Reading: a checkpoint as a mapping of names to tensors, of which any slice can be read."""

from _collections_abc import Mapping  # the class of collections.abc, whose import takes milliseconds

from . import _arrays, _core
from ._errors import InvalidError

_CHOICE = {None: 0, "default": 0, True: 1, "always": 1, False: 2, "never": 2}


def choice(value, name):
    """An rsd_choice from None, True, False."""
    try:
        return _CHOICE[value]
    except (KeyError, TypeError):
        raise InvalidError(f"{name}={value!r} is none of None, True, False") from None


def progress_of(progress):
    """A function of (done, total) in bytes: the one given, or one that moves a bar like tqdm's."""
    if progress is None or not (hasattr(progress, "update") and hasattr(progress, "total")):
        return progress

    def step(done, total):
        if progress.total != total:
            progress.total = total
        progress.update(done - progress.n)

    return step


def open(path, framework=None, *, salvage=False):  # pylint: disable=redefined-builtin
    """Opens a checkpoint of any format and reads its metadata; nothing in a pickle is executed.

    framework: "np" for numpy arrays, "pt" for torch tensors, "raw" for Arrays (buffer protocol and DLPack only);
    None takes numpy if it is installed, otherwise torch, otherwise "raw". salvage: missing or short files are no error;
    Tensor.health tells which tensors can be read."""
    framework = _arrays.pick(framework)
    return Checkpoint(_core.open(path, salvage), path, framework)


def load(path, framework=None, *, verify=None, threads=0, progress=None):
    """The whole checkpoint as the nested dict that was saved: tensors in the framework, and values."""
    with open(path, framework) as ck:
        return ck.state_dict(verify=verify, threads=threads, progress=progress)


class Chunk:
    """One stored box of a tensor: offsets, shape, file (below the checkpoint's path), offset and length in bytes there,
    and the transforms that were applied."""

    __slots__ = ("offsets", "shape", "file", "offset", "length", "transforms")

    def __init__(self, offsets, shape, file, offset, length, transforms):
        self.offsets, self.shape, self.file = offsets, shape, file
        self.offset, self.length, self.transforms = offset, length, transforms

    def __repr__(self):
        box = ", ".join(f"{o}:{o + n}" for o, n in zip(self.offsets, self.shape))
        return f"Chunk([{box}] in {self.file!r} at {self.offset}, {self.length} bytes)"


class Opaque:
    """An object that was not loaded: of a class that is not known to be harmless, or a large tensor inside an object."""

    __slots__ = ("name", "text")

    def __init__(self, name, text=""):
        self.name, self.text = name, text  # text: "m.C(lr=0.1)", or "<m.C>" if its pickle does not say it plainly

    def __repr__(self):
        return f"<not loaded: {self.name if self.text[:1] in ('', '<') else self.text}>"

    def __eq__(self, other):
        return isinstance(other, Opaque) and other.name == self.name

    def __hash__(self):
        return hash(self.name)


class DType(str):
    """A dtype that was saved as a value; torch.dtype with framework="pt"."""

    _reshard_kind = "dtype"


class Device(str):
    """A device that was saved as a value; torch.device with framework="pt"."""

    _reshard_kind = "device"


def _hook(framework):
    def make(kind, x):
        if kind == "tensor":
            return Opaque("a large tensor inside an object") if x is None else _arrays.wrap(x, framework)
        if kind == "opaque":
            return Opaque(*x)
        if framework == "pt":
            import torch

            return getattr(torch, x) if kind == "dtype" else torch.device(x)
        return DType(x) if kind == "dtype" else Device(x)

    return make


def box_of(key, shape):
    """(offsets, sizes, shape of the result) of an index as in numpy: ints, slices without steps, one ellipsis."""
    key = key if isinstance(key, tuple) else (key,)
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = dots[0] if dots else len(key)
    missing = len(shape) - len(key) + len(dots)
    if missing < 0:
        raise IndexError(f"too many indices: the tensor has {len(shape)} dimensions, {len(key) - len(dots)} were indexed")
    key = key[:at] + (slice(None),) * missing + key[at + 1 :]
    offsets, sizes, result = [], [], []
    for d, (k, n) in enumerate(zip(key, shape)):
        if isinstance(k, slice):
            start, stop, step = k.indices(n)
            if step != 1:
                raise IndexError(f"dimension {d}: slices with a step of {step} are not supported: read with step 1, then index the result")
            size = max(0, stop - start)
            offsets.append(start if size else 0)
            sizes.append(size)
            result.append(size)
            continue
        if isinstance(k, bool) or not hasattr(type(k), "__index__"):
            raise IndexError(f"only integers, slices without steps and ellipsis ('...') are valid indices, not {k!r}")
        i = k.__index__()
        if not -n <= i < n:
            raise IndexError(f"index {i} is out of bounds for dimension {d} with size {n}")
        offsets.append(i + n if i < 0 else i)
        sizes.append(1)
    return tuple(offsets), tuple(sizes), tuple(result)


class Tensor:
    """A tensor of an open checkpoint. Indexing it reads: ck["w"][8:16, :], ck["w"][...]."""

    __slots__ = ("_checkpoint", "_number", "name", "dtype", "shape", "nbytes", "_chunks", "_health")

    def __init__(self, checkpoint, name, number):
        self._checkpoint, self.name, self._number = checkpoint, name, number
        self.dtype, self.shape, self.nbytes, self._chunks, self._health = checkpoint._core.info(number)

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    @property
    def chunks(self):
        """The boxes that it is stored as, which tile it: a list of Chunk."""
        core = self._checkpoint._core
        return [Chunk(*core.chunk(self._number, i)) for i in range(self._chunks)]

    @property
    def health(self):
        """ "whole", "damaged" or "gone", as far as is known."""
        return ("whole", "damaged", "gone")[self._health]

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __getitem__(self, key):
        return self.read(key)

    def read(self, key=..., *, into=None, cast=False, framework=None, verify=None, threads=0):
        """Reads a part, or all. into: a writable array of that shape, which is returned; cast: it may have another
        dtype; framework: as in open(); verify: True compares every checksum, False none."""
        ck = self._checkpoint
        offsets, sizes, shape = box_of(key, self.shape)
        if into is not None:
            target = _arrays.view(into, True)
            ck._core.read([(self._number, offsets, sizes, _reshaped(target, sizes, shape))], cast, choice(verify, "verify"), threads, 0, None)
            return into
        framework = _arrays.pick(framework) if framework else ck.framework
        array = ck._core.alloc(self.dtype, shape)
        if array.nbytes:
            ck._core.read([(self._number, offsets, sizes, array)], False, choice(verify, "verify"), threads, 0, None)
        return _arrays.wrap(array, framework)

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("reading always makes a new array")
        array = self.read(framework="np")
        return array if dtype is None else array.astype(dtype, copy=False)

    def __repr__(self):
        return f"Tensor({self.name!r}, {self.dtype}, {list(self.shape)}, {self._chunks} chunk{'' if self._chunks == 1 else 's'})"


def _reshaped(view, sizes, shape):
    """The view with the dimensions that numbers dropped."""
    return view if sizes == shape or view.shape != shape else view.with_shape(sizes)


class Objects(Mapping):
    """The values of a checkpoint that are no tensors, by name. Each is read when it is asked for."""

    def __init__(self, checkpoint):
        self._checkpoint = checkpoint
        self._numbers = {name: i for i, name in enumerate(checkpoint._core.object_names())}

    def __getitem__(self, name):
        ck = self._checkpoint
        return ck._core.object(self._numbers[name], _hook(ck.framework))

    def __iter__(self):
        return iter(self._numbers)

    def __len__(self):
        return len(self._numbers)

    def __repr__(self):
        return f"Objects({list(self._numbers)})"


class _Numbered(dict):
    """A list in the making."""


def _put(root, steps, x, name):
    at = root
    for (step, _), (_, below_is_list) in zip(steps, steps[1:]):
        below = at.setdefault(step, _Numbered() if below_is_list else {})
        if not isinstance(below, dict):  # a value has the place
            at, steps = root, [(name, False)]
            break
        at = below
    at[steps[-1][0]] = x


def _lists(x):
    """The same with lists for what is numbered."""
    for step in x:
        if isinstance(x[step], dict):
            x[step] = _lists(x[step])
    return [x[i] for i in sorted(x)] if isinstance(x, _Numbered) else x


class Checkpoint(Mapping):
    """An open checkpoint: a mapping of names to Tensor. It stays the same, whatever is published under its name later.
    Any number of threads may read from it."""

    def __init__(self, core, path, framework):
        self._core, self.path, self.framework = core, path, framework
        self._numbers = {name: i for i, name in enumerate(core.names())}
        self._objects = None

    @property
    def format(self):
        """ "dcp", "safetensors", "torch", "ranks" or "zero"."""
        return self._core.format

    @property
    def kind(self):
        """The variant of the format and what wrote it; "" for the usual one."""
        return self._core.kind

    @property
    def metadata(self):
        """safetensors' __metadata__, otherwise empty."""
        return self._core.metadata()

    @property
    def has_checksums(self):
        """True if it has a checksum file of reshard's."""
        return self._core.has_checksums

    @property
    def objects(self):
        """The values that are no tensors."""
        if self._objects is None:
            self._objects = Objects(self)
        return self._objects

    def __getitem__(self, name):
        try:
            return Tensor(self, name, self._numbers[name])
        except KeyError:
            pass
        if name in self.objects:
            raise KeyError(f"{name!r} is no tensor: use .objects[{name!r}]")
        raise KeyError(name)

    def __iter__(self):
        return iter(self._numbers)

    def __len__(self):
        return len(self._numbers)

    def __contains__(self, name):
        return name in self._numbers

    def load(self, names=None, into=None, *, cast=False, framework=None, verify=None, threads=0, max_memory=0, progress=None):
        """Reads many tensors in one call and returns a dict of names to arrays.

        names: all by default; a name may come with an index: ("w", slice(8, 16)). into: a mapping of names to writable
        arrays of the right shape, or a list of them in the order of names; they must not overlap. cast: they may have
        other dtypes. progress:
        a function of (bytes done, bytes in all), or a tqdm bar."""
        if names is None:
            names = list(into) if isinstance(into, Mapping) else list(self)
        wanted = [(n, ...) if isinstance(n, str) else n for n in ([names] if isinstance(names, str) else names)]
        framework = _arrays.pick(framework) if framework else self.framework
        if into is not None and not isinstance(into, Mapping):
            into = list(into)
            if len(into) != len(wanted):
                raise InvalidError(f"{len(wanted)} names, but {len(into)} arrays to read into")
        items, results = [], {}
        for i, (name, key) in enumerate(wanted):
            tensor = self[name]
            offsets, sizes, shape = box_of(key, tensor.shape)
            if into is None:
                results[name] = self._core.alloc(tensor.dtype, shape)
                items.append((tensor._number, offsets, sizes, results[name]))
            else:
                results[name] = into[name] if isinstance(into, Mapping) else into[i]
                items.append((tensor._number, offsets, sizes, _reshaped(_arrays.view(results[name], True), sizes, shape)))
        self._core.read(items, cast, choice(verify, "verify"), threads, max_memory, progress_of(progress))
        if into is not None:
            return results
        return {name: _arrays.wrap(array, framework) for name, array in results.items()}

    def state_dict(self, *, framework=None, verify=None, threads=0, progress=None):
        """All tensors and values, nested as they were saved; flat names if the format keeps no nesting."""
        framework = _arrays.pick(framework) if framework else self.framework
        flat = self.load(framework=framework, verify=verify, threads=threads, progress=progress)
        hook = _hook(framework)
        flat.update((name, self._core.object(i, hook)) for name, i in self.objects._numbers.items())
        root = {}
        for name, x in flat.items():
            _put(root, self._core.path(name) or [(name, False)], x, name)
        return _lists(root)

    def close(self):
        """Closes the files; reads in progress end first."""
        self._core.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __repr__(self):
        return f"Checkpoint({self.path!r}, {self.format}, {len(self)} tensors, {len(self.objects)} objects)"
