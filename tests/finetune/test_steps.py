"""The way of a GPU, as far as a CPU can go it: planned shapes, padded batches, and a graph that is replayed."""

from __future__ import annotations

import pytest
import torch
from toy_tasks import make_files, tiny_config

from litebert.finetune import run as run_module
from litebert.finetune.run import Run, finetune
from litebert.finetune.steps import GraphStep, PlainStep, Recording
from litebert.model.hub import load_model

OPTIONS = dict(classifier_dropout=0.0, optim={"lr": 0.001})


class EagerGraph:
    """What a recorded graph does, done anew: reads the held inputs, adds to the gradients, writes the totals."""

    def __init__(self, work):
        self.work = work

    def replay(self):
        self.work()


class EagerGraphStep(GraphStep):
    """A GraphStep whose graphs are functions; everything around them is the real thing."""

    def __init__(self, *arguments):
        PlainStep.__init__(self, *arguments)
        self._recordings, self._records = {}, True

    def _record(self, batch):
        inputs, targets = ({k: torch.from_numpy(v.copy()) for k, v in a.items()} for a in (batch.inputs, batch.targets))
        scale, totals = torch.ones(()), torch.zeros(2)
        for _ in range(2):
            self.run(inputs, targets, batch, scale)  # the warm-up leaves gradients behind
        graph = EagerGraph(lambda: totals.copy_(self.run(inputs, targets, batch, scale)))
        return Recording(graph, inputs, targets, scale, totals)


@pytest.fixture(scope="module")
def reference(toy_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    files = make_files(folder / "files", "classification", train=40, dev=20)
    finetune(tiny_config(toy_model, files, **OPTIONS), folder / "run", quiet=True)
    return files, load_model(folder / "run" / "best").state_dict()


def assert_near(folder, expected):
    for name, tensor in load_model(folder / "best").state_dict().items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("micro_batch_tokens", [16_384, 40])
def test_planned_shapes_and_replayed_graphs_learn_the_same(
    toy_model, reference, tmp_path, monkeypatch, layout, micro_batch_tokens
):
    files, expected = reference
    steps = []

    def planned(self):
        self.batches.plan(self.num_steps)
        steps.append(EagerGraphStep(self.model, self.task.kind, self.device))
        return steps[0]

    monkeypatch.setattr(Run, "_make_step", planned)
    monkeypatch.setattr(run_module, "layout_for", lambda *_: layout)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    config = tiny_config(toy_model, files, **OPTIONS, micro_batch_tokens=micro_batch_tokens)
    finetune(config, tmp_path, quiet=True)
    assert_near(tmp_path, expected)
    assert 1 <= len(steps[0]._recordings) <= 4
    assert steps[0].problem is None


def test_a_graph_that_cannot_be_recorded_is_told_and_done_without(toy_model, reference, tmp_path, monkeypatch):
    files, expected = reference

    class Unrecordable(EagerGraphStep):
        def _record(self, batch):
            super()._record(batch)
            raise RuntimeError("operation not permitted when stream is capturing\nand more")

    def make(self):
        self.batches.plan(self.num_steps)
        return Unrecordable(self.model, self.task.kind, self.device)

    monkeypatch.setattr(Run, "_make_step", make)
    finetune(tiny_config(toy_model, files, **OPTIONS), tmp_path, quiet=True)
    assert_near(tmp_path, expected)
    log = (tmp_path / "metrics.jsonl").read_text()
    assert log.count("steps cannot be recorded here, so they are slower: operation not permitted") == 1
