# SPDX-License-Identifier: Apache-2.0
"""reshard.torch.load: what it fills, casts, replaces and refuses; models and optimizers under FSDP2, HSDP and TP."""

import collections
import unittest

from support import Case, installed, needs_torch

if installed("torch"):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from rank_pool import shared
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    import reshard
    import reshard.torch


class Odd:
    """An object of a class that torch's weights_only does not know."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Odd) and other.x == self.x


class Counter:
    """Stateful."""

    def __init__(self, n):
        self.n, self.weight = n, torch.full((3,), float(n))

    def state_dict(self):
        return {"n": self.n, "weight": self.weight}

    def load_state_dict(self, state):
        self.n = state["n"] * 100


@needs_torch
class InOneProcess(Case):
    """Without torch.distributed."""

    def saved(self, state, writer="ours"):
        path = str(self.folder / f"ck{len(list(self.folder.iterdir()))}")
        if writer == "ours":
            reshard.torch.save(state, path)
        else:
            dcp.save(state, checkpoint_id=path)
        return path

    def test_nested_dicts_lists_and_values_both_ways(self):
        state = {
            "model": {"a.b": torch.arange(6.0).reshape(2, 3), "deep": [{"t": torch.ones(2)}, [torch.zeros(1), 5]]},
            "groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": [0, 1], "none": None}],
            "numbers": [1, 2, 3],
            "text": "x",
            "raw": b"\x00\xff",
            "tuple": (torch.ones(2), {"a": 1}),
            "ordered": collections.OrderedDict(z=1, a=torch.ones(1)),
            "dtype": torch.bfloat16,
            "nothing": {},
            1: torch.ones(1),
        }

        def blank(x):
            if isinstance(x, torch.Tensor):
                return torch.zeros_like(x)
            if isinstance(x, dict):
                return type(x)((k, blank(v)) for k, v in x.items())
            return [blank(v) for v in x] if isinstance(x, list) else 0

        for writer in ("ours", "stock"):
            with self.subTest(writer=writer):
                path, got = self.saved(state, writer), blank(state)
                reshard.torch.load(got, path)
                self.assertEqual(str(got), str(state))
        got = blank(state)
        del got[1]  # of which torch makes another key
        dcp.load(got, checkpoint_id=self.saved(state))
        self.assertEqual(str(got), str({k: v for k, v in state.items() if k != 1}))

    def test_tensors_are_filled_in_place_and_cast(self):
        full = torch.arange(12.0).reshape(3, 4)
        path = self.saved({"t": full, "u": full.to(torch.bfloat16), "s": torch.tensor(3)})
        a, b, c, s = torch.zeros(3, 4, dtype=torch.float16), torch.zeros(4, 3).t(), torch.zeros(6, 4)[::2], torch.zeros(())
        for state in ({"t": a, "u": b, "s": s}, {"t": c}):
            reshard.torch.load(state, path)
        self.assertTrue(torch.equal(a, full.half()) and torch.equal(b, full) and torch.equal(c, full))
        self.assertEqual(s.item(), 3.0)

    def test_parameters_conjugates_and_expanded_tensors(self):
        z = torch.view_as_complex(torch.arange(4.0).reshape(2, 2))
        path = self.saved({"w": torch.nn.Parameter(torch.ones(2)), "z": z.conj(), "e": torch.ones(1).expand(3)})
        w, zz = torch.nn.Parameter(torch.zeros(2)), torch.zeros(2, dtype=torch.complex64).conj()
        state = {"w": w, "z": zz, "e": torch.zeros(3)}
        reshard.torch.load(state, path)
        self.assertIs(state["w"], w)
        self.assertEqual((w.tolist(), state["e"].tolist()), ([1.0, 1.0], [1.0] * 3))
        self.assertTrue(torch.equal(zz, z.conj()))

    def test_tensors_on_the_meta_device_get_memory(self):
        path = self.saved({"m": {"w": torch.arange(3.0)}})
        state = {"m": {"w": torch.zeros(3, device="meta")}}
        reshard.torch.load(state, path)
        self.assertEqual(state["m"]["w"].tolist(), [0.0, 1.0, 2.0])

    def test_stateful_objects_are_asked_and_given_what_was_loaded(self):
        path, it = self.saved({"c": Counter(7), "d": 1}), Counter(1)
        weight, state = it.weight, {"c": it, "d": 0}
        self.assertIsNone(reshard.torch.load(state, path))
        self.assertEqual((it.n, weight.tolist(), state["d"]), (700, [7.0] * 3, 1))
        self.assertIs(state["c"], it)

    def test_missing_names_are_a_key_error_that_names_them(self):
        path = self.saved({"a": torch.ones(2), "n": 1})
        for state in ({"b": torch.ones(2)}, {"b": 3}):
            with self.assertRaisesRegex(KeyError, 'Missing key: .* "b"') as caught:
                reshard.torch.load(state, path)
            self.assertIsInstance(caught.exception, reshard.NotFoundError)
        state = {"a": torch.zeros(2), "b": torch.full((2,), 5.0), "c": "kept"}
        reshard.torch.load(state, path, strict=False)
        self.assertEqual((state["a"].tolist(), state["b"].tolist(), state["c"]), ([1.0] * 2, [5.0] * 2, "kept"))

    def test_a_missing_checkpoint_is_not_a_missing_key(self):
        with self.assertRaises(FileNotFoundError) as caught:
            reshard.torch.load({"a": torch.ones(1)}, self.folder / "none")
        self.assertNotIsInstance(caught.exception, KeyError)

    def test_another_shape_is_refused_before_anything_is_read(self):
        path, state = self.saved({"a": torch.ones(2), "b": torch.ones(3)}), {"a": torch.zeros(2), "b": torch.zeros(4)}
        with self.assertRaisesRegex(ValueError, '"b"'):
            reshard.torch.load(state, path)
        self.assertEqual(state["a"].tolist(), [0.0, 0.0])

    def test_objects_that_could_run_code_need_trust(self):
        for writer in ("ours", "stock"):
            with self.subTest(writer=writer):
                path, state = self.saved({"o": Odd(4)}, writer), {"o": None}
                with self.assertRaisesRegex(reshard.UnsupportedError, "trust_objects=True, of .*reshard.torch.load"):
                    reshard.torch.load(state, path)
                self.assertIsNone(state["o"])
                reshard.torch.load(state, path, trust_objects=True)
                self.assertEqual(state["o"], Odd(4))
        dcp.load(state := {"o": None}, checkpoint_id=self.saved({"o": Odd(5)}))
        self.assertEqual(state["o"], Odd(5))

    def test_other_formats_load_too(self):
        torch.save({"m": {"w": torch.arange(4.0)}, "n": 3}, self.folder / "x.pt")
        state = {"m": {"w": torch.zeros(4)}, "n": 0}
        reshard.torch.load(state, self.folder / "x.pt")
        self.assertEqual((state["m"]["w"].tolist(), state["n"]), ([0.0, 1.0, 2.0, 3.0], 3))

    def test_a_prefix_of_the_checkpoints_names(self):
        path, state = self.saved({"model": {"w": torch.ones(2)}}), {"w": torch.zeros(2)}
        reshard.torch.load(state, path, prefix="model.")
        self.assertEqual(state["w"].tolist(), [1.0, 1.0])

    def test_a_path_is_needed_once(self):
        for options in ({}, {"path": "a", "checkpoint_id": "b"}):
            with self.assertRaisesRegex(ValueError, "path"):
                reshard.torch.load({}, **options)


# ---- on every rank ----


class Net(torch.nn.Module if installed("torch") else object):
    """Two layers of uneven sizes."""

    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 10), torch.nn.Linear(10, 6)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def build(kind):
    """A model with Adam, after one step."""
    torch.manual_seed(0)
    model = Net()
    if kind in ("tp", "fsdp+tp"):
        both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, both["tp"], {"one": ColwiseParallel(), "two": RowwiseParallel()})
    if kind == "fsdp+tp":
        fully_shard(model, mesh=both["dp"])
    elif kind == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    elif kind == "hsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("rep", "shard")))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=False)
    step(model, optimizer, 1)
    return model, optimizer


def step(model, optimizer, seed):
    torch.manual_seed(seed)
    loss = model(torch.randn(4, 6)).pow(2).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


def weights(model):
    return [(p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for p in model.parameters()]


def train_on(rank, folder, kind, other, writer, reader):
    """Saves a model of one kind, loads it into another, and compares the next steps."""
    model, optimizer = build(kind)
    state = dict(zip(("model", "optim"), get_state_dict(model, optimizer)))
    path = f"{folder}/{kind}-{other}-{writer}-{reader}"
    if writer == "ours":
        reshard.torch.save(state, path)
    else:
        dcp.save(state, checkpoint_id=path)
    model2, optimizer2 = build(other)
    step(model2, optimizer2, 5)  # away from what was saved
    state = dict(zip(("model", "optim"), get_state_dict(model2, optimizer2)))
    if reader == "ours":
        reshard.torch.load(state, path)
    else:
        dcp.load(state, checkpoint_id=path)
    set_state_dict(model2, optimizer2, model_state_dict=state["model"], optim_state_dict=state["optim"])
    good = all(torch.equal(a, b) for a, b in zip(weights(model), weights(model2)))
    losses = [step(model, optimizer, 7), step(model2, optimizer2, 7)], [step(model, optimizer, 8), step(model2, optimizer2, 8)]
    return good, all(abs(a - b) < 1e-4 * abs(a) for a, b in losses)


def one_rank_misses_a_key(rank, folder):
    reshard.torch.save({"a": torch.ones(2)}, f"{folder}/a")
    state = {"a": torch.zeros(2)} | ({"b": torch.zeros(2)} if rank == 1 else {})
    try:
        reshard.torch.load(state, f"{folder}/a")
    except KeyError as e:
        return type(e).__name__, str(e), state["a"].tolist()
    return None


def one_rank_raises(rank, folder):
    class Raises(Counter):
        def state_dict(self):
            raise RuntimeError("out of luck")

    reshard.torch.save({"c": Counter(3)}, f"{folder}/c")
    try:
        reshard.torch.load({"c": Raises(1) if rank == 3 else Counter(1)}, f"{folder}/c")
    except Exception as e:  # pylint: disable=broad-except
        dist.barrier()
        return type(e).__name__, str(e)
    return None


@needs_torch
class OnFourRanks(Case):
    """Each test runs one function on all ranks."""

    def test_models_and_optimizers_under_other_parallelism(self):
        for kind, other, writer, reader in (
            ("fsdp", "hsdp", "ours", "stock"),
            ("hsdp", "fsdp+tp", "ours", "ours"),
            ("fsdp+tp", "tp", "stock", "ours"),
            ("tp", "fsdp", "ours", "stock"),
            ("fsdp+tp", "fsdp", "ours", "ours"),
        ):
            with self.subTest(f"{kind} to {other}", writer=writer, reader=reader):
                got = shared(4).run(train_on, str(self.folder), kind, other, writer, reader)
                self.assertEqual(got, [(True, True)] * 4)

    def test_a_key_that_one_rank_misses_fails_all_ranks(self):
        got = shared(4).run(one_rank_misses_a_key, str(self.folder))
        self.assertEqual(len({str(g) for g in got}), 1, got)
        self.assertEqual(got[0][0], "MissingKeyError")
        self.assertIn('rank 1: the checkpoint has no tensor "b"', got[0][1])
        self.assertEqual(got[0][2], [0.0, 0.0])

    def test_a_rank_that_raises_fails_all_ranks(self):
        got = shared(4).run(one_rank_raises, str(self.folder))
        self.assertEqual(got[3], ("RuntimeError", "out of luck"))
        self.assertTrue(all("rank 3" in m and "out of luck" in m for _, m in got[:3]), got)


if __name__ == "__main__":
    unittest.main()
