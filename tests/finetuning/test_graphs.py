"""The way of a GPU, as far as a CPU can go it: planned shapes, padded batches, and a graph that is replayed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from eager_graphs import failing, stand_in
from toy_tasks import make_files, tiny_config

from litebert.finetuning import run as run_module
from litebert.finetuning.run import Finetuning, finetune
from litebert.model.hub import load_model
from litebert.train.config import DeviceConfig
from litebert.train.graphs import GraphStep
from litebert.train.processes import World
from litebert.train.trainer import PlainStep, Trainer

OPTIONS = dict(classifier_dropout=0.0, optim={"lr": 0.001})


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
    graphs = stand_in(monkeypatch)
    monkeypatch.setattr(Finetuning, "_records", lambda self: True)
    monkeypatch.setattr(run_module, "layout_for", lambda *_: layout)
    config = tiny_config(toy_model, files, **OPTIONS, micro_batch_tokens=micro_batch_tokens)
    finetune(config, tmp_path, quiet=True)
    assert_near(tmp_path, expected)
    assert 1 <= len(graphs) <= 4
    assert all(graph.replays for graph in graphs)
    assert "recorded" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("graphs", "processes", "step"), [("auto", 1, GraphStep), ("off", 1, PlainStep), ("auto", 2, PlainStep)]
)
def test_steps_are_recorded_on_a_gpu_by_one_process_unless_turned_off(graphs, processes, step):
    config, world = SimpleNamespace(device=DeviceConfig(graphs=graphs)), World(0, processes)
    parts = SimpleNamespace(device=SimpleNamespace(is_cuda=True), config=config, world=world, contrast=None)
    learner = SimpleNamespace(
        graphs="on" if Finetuning._records(parts) else "off", model=torch.nn.Linear(1, 1), loss=None, check_graphs=False
    )
    assert type(Trainer._make_step(SimpleNamespace(learner=learner, device=None, world=world))) is step


@pytest.mark.parametrize("kind", [RuntimeError, torch.OutOfMemoryError])
def test_a_graph_that_cannot_be_recorded_is_told_and_done_without(toy_model, reference, tmp_path, monkeypatch, kind):
    files, expected = reference
    attempts = failing(monkeypatch, kind("operation not permitted when stream is capturing\nand more"))
    monkeypatch.setattr(Finetuning, "_records", lambda self: True)
    finetune(tiny_config(toy_model, files, **OPTIONS), tmp_path, quiet=True)
    assert_near(tmp_path, expected)
    assert len(attempts) == 1
    log = (tmp_path / "metrics.jsonl").read_text()
    assert log.count("CUDA graphs do not work here, so steps are slower: operation not permitted") == 1
