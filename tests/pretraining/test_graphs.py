"""Recorded steps, as far as a CPU can test them: a graph recomputed at each replay learns what plain steps learn.

Real graphs need a GPU: benchmarks/pretrain_graphs.py holds them to fp32 on the CPU.
"""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from eager_graphs import EagerGraph, failing, stand_in
from interruptions import killed_at
from safetensors.torch import load_file
from tiny_run import poison, tiny_config

from litebert.errors import ConfigError
from litebert.model.config import ModelConfig
from litebert.model.fast.layers import FastLayers
from litebert.model.heads import MaskedLMModel, PretrainingModel
from litebert.pretraining.batches import Batches
from litebert.pretraining.objective import Inputs, run_model, score, to_device, weigh
from litebert.pretraining.recipes import Recipe
from litebert.pretraining.run import pretrain
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train import trainer as trainer_module
from litebert.train.device import DeviceConfig, open_device
from litebert.train.graphs import CALLS, GraphStep, Recorded, Recorder, Timing, Trial, shape_of
from litebert.train.log import read_metrics
from litebert.train.processes import World
from litebert.train.trainer import PlainStep

CPU = open_device(DeviceConfig(device="cpu", threads=1))
STAGES = {
    "depth": [{"until": 0.5, "value": 1}, {"until": 1.0, "value": 2}],
    "length": [{"until": 0.25, "value": 32}, {"until": 1.0, "value": 64}],
}


# -- one step ----------------------------------------------------------------------------------------------------------


def make_model(objective, fast=False, **changes):
    torch.manual_seed(0)
    shape = dict(hidden_size=32, embedding_size=8, num_hidden_layers=2, num_attention_heads=1, intermediate_size=32)
    config = ModelConfig(vocab_size=300, **shape, **changes)
    model = (MaskedLMModel if objective == "none" else PretrainingModel)(config).double()
    if fast:
        assert FastLayers.fits(model.encoder)
        model.encoder.fast_layers = FastLayers(model.encoder, torch.float64)
    return model


@functools.cache
def draw(corpus, objective, step):
    """A batch with the unused places that the loader leaves, and the same batch without any."""
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    store = TokenStore.open(corpus / "store", tokenizer)
    recipe = Recipe(max_length=64, objective=objective)
    batch = Batches(store, tokenizer, recipe, tokens_per_batch=256, row_tokens=128).batch(step)
    inputs = to_device(batch, torch.device("cpu"), 64)
    used = inputs.labels >= 0
    starts = inputs.starts.unique()
    exact = inputs._replace(
        starts=starts, order=inputs.order[: len(starts) - 1], masked=inputs.masked[used], labels=inputs.labels[used]
    )
    return inputs, exact


def plain_step(model) -> PlainStep:
    return PlainStep(model, CPU, loss_of(model))


def graph_step(model, choose=False) -> GraphStep:
    return GraphStep(plain_step(model), choose=choose, check=True)


def loss_of(model):
    return lambda inputs, counts: weigh(score(run_model(model, inputs), inputs), counts)


def counts_of(inputs: Inputs) -> torch.Tensor:
    return torch.stack([(inputs.labels >= 0).sum(), (inputs.order >= 0).sum().clamp(min=1)]).double()


def gradients(model):
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


CASES = [
    *((objective, {}) for objective in ("sop", "nsp", "none")),
    *(("sop", {"sharing": sharing}) for sharing in ("attention", "ffn", "none")),
    *(("sop", {name: 2}) for name in ("num_hidden_groups", "inner_group_num")),
]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("objective", "shape"), CASES)
def test_a_replay_gives_the_gradients_of_the_batch_without_its_unused_places(
    corpus, monkeypatch, objective, shape, fast
):
    graphs = stand_in(monkeypatch)
    model, reference = (make_model(objective, way, **shape) for way in (fast, False))
    step = graph_step(model)
    plain = plain_step(reference)
    for number in (0, 1, 2):
        padded, exact = draw(corpus, objective, number)
        assert len(padded.labels) > len(exact.labels)
        assert len(padded.order) > len(exact.order)
        for each in (model, reference):  # what a graph must not have frozen
            with torch.no_grad():
                torch._foreach_mul_([p for p in each.parameters() if p.ndim == 2], 1.01)
        step.clear()
        plain.clear()
        found, expected = step(padded, counts_of(padded)), plain(exact, counts_of(exact))
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)  # float32
        assert found[2] == len(exact.labels)
        for name, gradient in gradients(reference).items():
            replayed = gradients(model)[name]
            torch.testing.assert_close(replayed, gradient, rtol=1e-10, atol=1e-13, msg=name)
    assert len(graphs) == 1
    assert graphs[0].replays == 4  # one of them to be checked


def test_micro_batches_add_up_and_recording_amid_a_step_loses_nothing(corpus, monkeypatch):
    stand_in(monkeypatch)
    model, reference = make_model("sop"), make_model("sop")
    batches = [draw(corpus, "sop", number)[0] for number in range(3)]
    counts = sum(counts_of(batch) for batch in batches)
    plain, step = plain_step(reference), graph_step(model)
    expected = [plain(batch, counts) for batch in batches]
    found = [step.plain(batches[0], counts), *(step(batch, counts) for batch in batches[1:])]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    for name, gradient in gradients(reference).items():
        assert torch.equal(gradients(model)[name], gradient), name


def test_recording_draws_no_random_numbers(corpus, monkeypatch):
    stand_in(monkeypatch)
    batch, _ = draw(corpus, "sop", 0)
    results = []
    for make in (plain_step, graph_step):
        step = make(make_model("sop", hidden_dropout_prob=0.5))
        torch.manual_seed(3)
        results.append((step(batch, counts_of(batch)), torch.rand(())))
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)


def test_a_recording_that_fails_leaves_no_weights_that_it_never_made(corpus, monkeypatch):
    def capture(self, work):
        layers = self.model.encoder.fast_layers
        layers.forget()
        work()
        layers._attention[0].qkv.fill_(torch.nan)  # what is recorded is not done: they hold whatever was there
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Recorder, "_capture", capture)
    batch, _ = draw(corpus, "sop", 0)
    step = graph_step(make_model("sop", fast=True))
    expected = plain_step(make_model("sop", fast=True))(batch, counts_of(batch))
    torch.testing.assert_close(step(batch, counts_of(batch)), expected)
    assert len(step.news) == 1


def test_a_batch_of_another_shape_has_a_graph_of_its_own(corpus, monkeypatch):
    graphs = stand_in(monkeypatch)
    padded, exact = draw(corpus, "sop", 0)
    assert shape_of(padded) != shape_of(exact)
    model, reference = make_model("sop"), make_model("sop")
    step, plain = graph_step(model), plain_step(reference)
    for batch in (padded, exact, padded):
        assert torch.equal(step(batch, counts_of(batch)), plain(batch, counts_of(batch)))
    for name, gradient in gradients(reference).items():
        assert torch.equal(gradients(model)[name], gradient), name
    assert [graph.replays for graph in graphs] == [3, 2]  # one of each to be checked


# -- the trial ---------------------------------------------------------------------------------------------------------


def timed(plain, replayed=()):
    trial = Trial(CPU)
    trial.plain, trial.replayed = ([Timing(*times) for times in side] for side in (plain, replayed))
    return trial


@pytest.mark.parametrize(
    ("plain", "replayed", "replays", "over"),
    [
        ([(9, 9)] * (CALLS - 1), [], False, False),
        ([(9, 9)] * CALLS, [], True, False),
        ([(9, 4)] * CALLS, [], False, True),  # the GPU is busy anyway
        ([(9, 9)] * CALLS, [(20, 1)] * (CALLS - 1), True, False),  # slow only while it records?
        ([(9, 9)] * CALLS, [(20, 1)] * (CALLS - 1) + [(8, 1)], True, True),
        ([(9, 9)] * CALLS, [(12, 1)] * CALLS, True, True),  # somebody else uses the GPU
        ([(30, 30)] + [(9, 9)] * (CALLS - 1), [(14, 1)] * CALLS, False, True),
    ],
)
def test_replaying_is_kept_unless_it_is_much_slower(plain, replayed, replays, over):
    trial = timed(plain, replayed)
    assert (trial.replays(), trial.over()) == (replays, over)


@pytest.mark.parametrize("faster", ["replayed", "plain"])
def test_a_trial_amid_training(corpus, monkeypatch, faster):
    graphs = stand_in(monkeypatch)
    clock = {"now": 0.0}
    work, replay = PlainStep.__call__, EagerGraph.replay

    def slow(self, *arguments):
        clock["now"] += 2.0
        return work(self, *arguments)

    def replayed(self):
        before = clock["now"]
        replay(self)
        clock["now"] = before + (1.0 if faster == "replayed" else 4.0)

    monkeypatch.setattr(PlainStep, "__call__", slow)
    monkeypatch.setattr(EagerGraph, "replay", replayed)
    monkeypatch.setattr("litebert.train.graphs.time.perf_counter", lambda: clock["now"])
    batch, _ = draw(corpus, "sop", 0)
    step = graph_step(make_model("sop"), choose=True)
    for stage in (1, 2):
        for _ in range(2 * CALLS + 3):
            step(batch, counts_of(batch))
            step.clear()
        assert len(graphs) == stage
        assert graphs[-1].replays == 1 + CALLS + (3 if faster == "replayed" else 0)
        way = "replayed from a graph" if faster == "replayed" else "run kernel by kernel"
        assert step.news[stage - 1].startswith(f"micro-batches are {way} (")
        assert len(step.news) == stage
        step.renew()


# -- whole runs --------------------------------------------------------------------------------------------------------


def weights(run) -> dict[str, torch.Tensor]:
    tensors = load_file(run / "checkpoints" / "step-00000008" / "model.safetensors")
    return tensors | load_file(run / "checkpoints" / "step-00000008" / "optimizer.safetensors")


def train_lines(run) -> list[dict]:
    timing = ("seconds", "tokens_per_second", "share_of_peak", "time")
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train"]
    return [{name: value for name, value in line.items() if name not in timing} for line in lines]


def events(run) -> list[str]:
    return [line["message"] for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "event"]


def assert_same_run(a, b) -> None:
    expected, found = weights(a), weights(b)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    assert train_lines(a) == train_lines(b)


@pytest.fixture(scope="module")
def run_plainly(tmp_path_factory):
    """config -> the folder of its run without graphs; each config is run once."""
    folders = {}

    def run(config):
        if config not in folders:
            folders[config] = tmp_path_factory.mktemp("plain")
            pretrain(config, folders[config], quiet=True)
        return folders[config]

    return run


def choose(monkeypatch, graphs: str) -> None:
    """The device that a run opens has this choice, though it is a CPU."""
    monkeypatch.setattr(trainer_module, "open_device", lambda *a: dataclasses.replace(open_device(*a), graphs=graphs))


RUNS = {
    "dropout, stages, accumulated": {**STAGES, "micro_batch_tokens": 256},
    # Parameters that a stage leaves out must not be touched: no decay, no moments.
    "not shared, stages": {**STAGES, "model": {"sharing": "none"}},
    "exits, stages": {**STAGES, "exits": [1, 2], "model": {"hidden_dropout_prob": 0.0}},
    "no sentence objective": {"recipe": {"objective": "none"}, "optim": {"name": "adamw", "bias_correction": True}},
}


@pytest.mark.parametrize("changes", RUNS.values(), ids=RUNS)
def test_a_run_with_graphs_is_the_run_without(corpus, tmp_path, monkeypatch, run_plainly, changes):
    config = tiny_config(corpus, **changes)
    plain = run_plainly(config)
    graphs = stand_in(monkeypatch)
    choose(monkeypatch, "on")
    pretrain(config, tmp_path, quiet=True)
    assert_same_run(plain, tmp_path)
    assert len(graphs) == (3 if "depth" in changes else 1)
    micro = config.micro_batches(1)
    assert sum(graph.replays for graph in graphs) == 8 * micro + len(graphs)


@pytest.mark.parametrize("objective", ["sop", "none"])
def test_exits_through_the_fast_layers_learn_the_same(corpus, tmp_path, monkeypatch, run_plainly, objective):
    """As on a GPU: one pass for all exits of a stage, replayed from a graph."""
    changes = {"exits": [1, 2], "model": {"hidden_dropout_prob": 0.0}, "recipe": {"objective": objective}}
    config = tiny_config(corpus, **STAGES, **changes)
    plain = run_plainly(config)
    passes = []

    class Watched(FastLayers):
        def __call__(self, hidden, starts, max_length, positions, stops):
            passes.append((torch.is_grad_enabled(), *stops))
            return super().__call__(hidden, starts, max_length, positions, stops)

    def speed_up(model, device):
        model.encoder.fast_layers = Watched(model.encoder, torch.float32)

    monkeypatch.setattr("litebert.pretraining.run.speed_up", speed_up)
    graphs = stand_in(monkeypatch)
    choose(monkeypatch, "on")
    pretrain(config, tmp_path, quiet=True)
    assert len(graphs) == 3
    assert {tuple(stops) for learns, *stops in passes if learns} == {(1,), (1, 2)}
    expected, found = train_lines(plain), train_lines(tmp_path)
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in expected], rel=1e-4)


def test_killed_with_graphs_and_resumed_without_and_back(corpus, tmp_path, monkeypatch, run_plainly):
    config = tiny_config(corpus, **STAGES, micro_batch_tokens=256)
    whole = run_plainly(config)
    stand_in(monkeypatch)

    for stop_at, graphs in ((4, "on"), (6, "off")):
        choose(monkeypatch, graphs)
        with killed_at(stop_at):
            pretrain(config, tmp_path, quiet=True)
    choose(monkeypatch, "auto")
    pretrain(config, tmp_path, quiet=True)
    assert_same_run(whole, tmp_path)


def test_a_rollback_into_a_shallower_stage(corpus, tmp_path, monkeypatch):
    """Step 4 is the first of depth 2; the last checkpoint is of depth 1, where the second layer has no gradients."""
    config = tiny_config(corpus, depth=STAGES["depth"], model={"sharing": "none"}, guard={"on_nan": "rollback"})
    poison(monkeypatch, {4})
    pretrain(config, tmp_path / "plain", quiet=True)
    graphs = stand_in(monkeypatch)
    choose(monkeypatch, "on")
    pretrain(config, tmp_path / "graphs", quiet=True)
    assert_same_run(tmp_path / "plain", tmp_path / "graphs")
    assert [len(graph.plan) for graph in graphs] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("operation not permitted when stream is capturing\nand more"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate all of it"),
    ],
)
def test_where_nothing_can_be_recorded_it_is_told_once_and_nothing_is_lost(
    corpus, tmp_path, monkeypatch, run_plainly, error
):
    config = tiny_config(corpus, **STAGES, micro_batch_tokens=256)
    plain = run_plainly(config)
    attempts = failing(monkeypatch, error)
    choose(monkeypatch, "on")
    pretrain(config, tmp_path, quiet=True)
    assert_same_run(plain, tmp_path)
    assert len(attempts) == 1
    reason = str(error).splitlines()[0]
    told = [message for message in events(tmp_path) if "CUDA graphs" in message]
    assert told == [f"CUDA graphs do not work here, so steps are slower: {reason}"]


@pytest.mark.parametrize("factor", [1.5, torch.nan])
@pytest.mark.parametrize("spoiled", ["gradients", "losses"])
def test_a_graph_that_gives_other_numbers_is_not_used(corpus, tmp_path, monkeypatch, run_plainly, spoiled, factor):
    config = tiny_config(corpus, **STAGES, micro_batch_tokens=256)
    plain = run_plainly(config)

    class Wrong(EagerGraph):
        def replay(self):
            super().replay()
            if spoiled == "losses":
                self.result.mul_(factor)
            else:
                self.recorder.model.encoder.ffn[0].input.weight.grad.mul_(factor)

    monkeypatch.setattr(Recorder, "_capture", lambda self, work: Recorded(g := Wrong(self, work), g.result))
    choose(monkeypatch, "on")
    pretrain(config, tmp_path, quiet=True)
    assert_same_run(plain, tmp_path)
    told = f"CUDA graphs do not work here, so steps are slower: a replay gives other {spoiled}"
    assert events(tmp_path).count(told) == 1


def test_graphs_are_for_one_process(corpus, tmp_path, monkeypatch):
    choose(monkeypatch, "on")
    monkeypatch.setattr(trainer_module, "world_from_environment", lambda: World(0, 2, 0, 2))
    with pytest.raises(ConfigError, match="on works with one process, not 2; use auto"):
        pretrain(tiny_config(corpus), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
