# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.checkpoint's collectives carry from rank to rank for a storage class: plans and metadata of thousands
of items. Equal shapes in them become one object each, which pickle writes once. What comes back to the rank that made it is
sent as a token, and everything else as bytes, unpickled only when somebody looks at it. Values stay the same."""

import array
import contextlib
import dataclasses
import gc
import pickle
import uuid
import weakref

from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan
from torch.distributed.checkpoint.storage import WriteResult

_set = object.__setattr__  # items are frozen
_mine = weakref.WeakValueDictionary()  # token -> Sent, of this process
_seen = {}  # on the coordinator: rank -> (token, SavePlan) that has come from it,
_answered = weakref.WeakValueDictionary()  # and token -> the plan that its rank was given, as long as the storage class keeps it


# ---- equal shapes ----

def _properties(p, one):
    return one((p.dtype, p.layout, p.requires_grad, p.memory_format, p.pin_memory), p)


def _index(index, one):
    if index.offset is not None:
        _set(index, "offset", one(index.offset, index.offset))


def _chunk(chunk, one):
    chunk.offsets, chunk.sizes = one(chunk.offsets, chunk.offsets), one(chunk.sizes, chunk.sizes)


def _share_writes(items):
    one = {}.setdefault
    for item in items:
        _index(item.index, one)
        data = item.tensor_data
        if data is not None:
            _chunk(data.chunk, one)
            _set(data, "size", one(data.size, data.size))
            _set(data, "properties", _properties(data.properties, one))


def _share_reads(items):
    one = {}.setdefault
    for item in items:
        _index(item.dest_index, one)
        _index(item.storage_index, one)
        for name in ("dest_offsets", "storage_offsets", "lengths"):
            value = getattr(item, name)
            _set(item, name, one(value, value))


def _share_metadata(whole):
    one = {}.setdefault
    for m in whole.state_dict_metadata.values():
        if isinstance(m, TensorStorageMetadata):
            m.properties = _properties(m.properties, one)
            m.size = one(m.size, m.size)
            for chunk in m.chunks:
                _chunk(chunk, one)
    for index in whole.storage_data:
        _index(index, one)


# ---- objects that arrive as bytes ----


@contextlib.contextmanager
def _no_collection():
    """Many objects are about to be made, none of them garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Calm:
    """As long as it exists, collections of garbage skip all objects that existed before. Planning makes so many that the whole
    heap, torch with it, would be searched again and again."""

    def __init__(self):
        self._mine = gc.get_freeze_count() == 0
        if self._mine:
            gc.freeze()

    def __del__(self, _unfreeze=gc.unfreeze):
        if self._mine:
            _unfreeze()


class _Later:
    """A plan or metadata that has arrived and is what `_make` returns from the first look at an attribute on."""

    def __getattribute__(self, name):
        if not name.startswith("__") or name == "__dict__":
            _become(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name, value):
        _become(self)
        setattr(self, name, value)

    def __eq__(self, other):
        _become(self)
        return self == other

    __hash__ = None

    def __reduce_ex__(self, protocol):
        return _arrived, object.__getattribute__(self, "__dict__")["_arrived"]


def _become(later):
    fields = object.__getattribute__(later, "__dict__")
    if "_arrived" not in fields:
        return
    kind, how, args = fields["_arrived"]
    with _no_collection():
        made = how(*args)
    del fields["_arrived"]
    _set(later, "__class__", kind)
    fields.update(made.__dict__)


class _LaterMetadata(_Later, Metadata):
    pass


class _LaterLoadPlan(_Later, LoadPlan):
    pass


class _LaterSavePlan(_Later, SavePlan):
    pass


_later = {Metadata: _LaterMetadata, LoadPlan: _LaterLoadPlan, SavePlan: _LaterSavePlan}


def _arrived(kind, how, args):
    """An object of class `kind` that how(*args) makes when it is needed."""
    later = object.__new__(_later[kind])
    object.__getattribute__(later, "__dict__")["_arrived"] = kind, how, args
    return later


# ---- plans ----


class Sent:
    """The plan that a rank sent to the coordinator, as long as its storage class keeps this."""

    def __init__(self, plan):
        self.plan, self.token = plan, uuid.uuid4().bytes
        _mine[self.token] = self


class _SentLoadPlan(LoadPlan):
    def __reduce_ex__(self, protocol):
        plain = LoadPlan(self.items, self.storage_data, self.planner_data)
        return _arrived, (LoadPlan, _load_plan, (self._token, pickle.dumps(plain), self._note, None))


class _SentSavePlan(SavePlan):
    def __reduce_ex__(self, protocol):
        plain = SavePlan(self.items, self.storage_data, self.planner_data, self.usable)
        return _arrived, (SavePlan, _save_plan, (self._token, self._rank, pickle.dumps(plain)))


def load_plan(plan, note):
    """A plan to send, and what keeps it here: it comes back unchanged unless the planner looks at it on the way. `note` goes
    along to the coordinator, which answers it with answer_notes."""
    if type(plan) is not LoadPlan or not plan.items:
        return plan, None
    _share_reads(plan.items)
    kept, out = Sent(plan), _SentLoadPlan(plan.items, plan.storage_data, plan.planner_data)
    out._token, out._note = kept.token, note
    return out, kept


def _load_plan(token, data, note, answer):
    kept = _mine.get(token)
    plan = kept.plan if kept else pickle.loads(data)
    plan._answer = answer
    return plan


def answer_notes(plans, answers):
    """On the coordinator: every plan takes its answer back, if no planner has looked at any of them. answers(notes) gives one
    for each."""
    sent = [object.__getattribute__(plan, "__dict__").get("_arrived") for plan in plans]
    if len(plans) > 1 and all(one and one[1] is _load_plan for one in sent):
        found = answers([args[2] for _, _, args in sent])
        for plan, (kind, how, args), answer in zip(plans, sent, found):
            object.__getattribute__(plan, "__dict__")["_arrived"] = kind, how, (*args[:3], answer)


def answer_of(plan):
    """What the coordinator answered; None: nothing."""
    return getattr(plan, "_answer", None)


def save_plan(plan, rank):
    """A plan to send, and what keeps it here for kept_plans' answer."""
    if type(plan) is not SavePlan or not plan.items or rank is None:
        return plan, None
    _share_writes(plan.items)
    kept, out = Sent(plan), _SentSavePlan(plan.items, plan.storage_data, plan.planner_data, plan.usable)
    _set(out, "_token", kept.token)
    _set(out, "_rank", rank)
    return out, kept


def _save_plan(token, rank, data):
    plan = pickle.loads(data)
    _seen[rank] = token, plan
    return plan


def kept_plans(plans):
    """Plans for the ranks, in the coordinator's answer. Of one that has only items which its rank sent, if with other hints,
    their numbers are sent."""
    seen = _seen.copy()
    _seen.clear()
    return [_kept_plan(plan, *seen[rank]) if rank in seen else plan for rank, plan in enumerate(plans)]


class _KeptSavePlan(SavePlan):
    def __reduce_ex__(self, protocol):
        return _arrived, (SavePlan, _own_items, self._kept)


def _key(item):
    return id(item if item.tensor_data is None else item.tensor_data)  # the planner makes new items with other hints


def _kept_plan(plan, token, sent):
    if type(plan) is not SavePlan or not plan.items:
        return plan
    places = {_key(item): i for i, item in enumerate(sent.items)}
    numbers, hints = array.array("q"), array.array("q")
    for item in plan.items:
        i = places.get(_key(item))
        if i is None or item.type != sent.items[i].type or item.index != sent.items[i].index:
            _share_writes(plan.items)
            return plan
        numbers.append(i)
        hints.append(-1 if item.index.index is None else item.index.index)
    out = _KeptSavePlan(plan.items, plan.storage_data, plan.planner_data, plan.usable)
    data = None if plan.planner_data is sent.planner_data else (plan.planner_data,)
    _answered[token] = out
    _set(out, "_kept", (token, numbers.tobytes(), hints.tobytes(), plan.storage_data, data, plan.usable))
    return out


def _own_items(token, numbers, hints, storage_data, planner_data, usable):
    """The plan of _kept_plan, on the rank whose items they are."""
    own, items = _mine[token].plan, []
    for i, hint in zip(memoryview(numbers).cast("q"), memoryview(hints).cast("q")):
        item = own.items[i]
        if item.index.index != hint and (hint >= 0 or item.index.index is not None):
            index = MetadataIndex(item.index.fqn, item.index.offset, hint if hint >= 0 else None)
            item = dataclasses.replace(item, index=index)
        items.append(item)
    plan = SavePlan(items, storage_data, own.planner_data if planner_data is None else planner_data[0], usable)
    _set(plan, "_token", token)
    return plan


# ---- results ----


class Results(list):
    """WriteResults of one file, in the order of a plan's items. The coordinator knows the plan that it gave: what else there is
    to know are places. `sent`: what save_plan gave to keep."""

    def __init__(self, plan, sent, file, places, transforms, receipt, dtypes):
        super().__init__(_results(plan.items, file, places, transforms, receipt, dtypes))
        # A cached plan is the answer to an earlier save.
        token = sent.token if sent and getattr(plan, "_token", None) == sent.token else None
        self._sent = token, file, places, transforms, receipt, dtypes

    def __reduce_ex__(self, protocol):
        return (_arrived_results, self._sent) if self._sent[0] else (list, (list(self),))


def _results(items, file, places, transforms, receipt, dtypes):
    at = memoryview(places).cast("q")
    with _no_collection():
        results = [
            WriteResult(item.index, at[2 * i + 1], _StorageInfo(file, at[2 * i], at[2 * i + 1], transforms))
            for i, item in enumerate(items)
        ]
    first = results[0]
    results[0] = Written(first.index, first.size_in_bytes, first.storage_data, receipt, dtypes)
    return results


def _arrived_results(token, *fields):
    return _results(_answered[token].items, *fields)


@dataclasses.dataclass(frozen=True)
class Written(WriteResult):
    """The first result of a rank also tells the coordinator about its part."""

    receipt: bytes = b""
    dtypes: dict = dataclasses.field(default_factory=dict)  # of tensors whose plan has another one


# ---- metadata ----


class _SentMetadata(Metadata):
    def __reduce_ex__(self, protocol):
        data = self.__dict__.pop("_data")
        self.__class__ = Metadata  # others who pickle it get it as it is then
        return _arrived, (Metadata, pickle.loads, (data,))


def metadata(whole, ranks):
    """The bytes of .metadata. The next pickling, of the broadcast if there are several ranks, takes them as they are."""
    if type(whole) is _SentMetadata:  # a broadcast that did not take place
        del whole.__dict__["_data"]
        whole.__class__ = Metadata
    _share_metadata(whole)
    data = pickle.dumps(whole)
    if ranks > 1 and type(whole) is Metadata:
        whole._data = data
        whole.__class__ = _SentMetadata
    return data
