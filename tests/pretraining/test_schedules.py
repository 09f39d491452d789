"""Runs on a budget: Muon, averaged weights, and everything that may change during a run."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys

import pytest
import torch
from interruptions import stopped_at
from safetensors.torch import load_file
from tiny_run import lines, tiny_config
from torch import nn

from litebert.config import write_yaml
from litebert.errors import CheckpointError, ConfigError
from litebert.model.hub import load_model
from litebert.pretraining.data import Data, load_tokenizer, settle
from litebert.pretraining.run import Pretraining, pretrain
from litebert.train import checkpoint
from litebert.train.device import open_device
from litebert.train.optimizer import Average, Muon
from litebert.train.processes import World
from litebert.train.trainer import Trainer


def tensors(run, name: str) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.load(run).folder / name)


def halves(first, second) -> list[dict]:
    return [{"until": 0.5, "value": first}, {"until": 1.0, "value": second}]


MUON = {"name": "muon", "lr": 0.01, "warmup_steps": 2, "adam_factor": 0.5, "average": 0.6, "decay_share": 0.5}
ALL = {
    "optim": MUON,
    "depth": halves(1, 2),
    "length": halves(32, 64),
    "mask_rate": halves(0.3, 0.15),
    "batch_ramp": halves(256, 512),
    "lr_factor": halves(1.0, 0.5),
    "position_init": "sinusoidal",
    "position_offset": "random",
}


def learner_of(config) -> Pretraining:
    tokenizer = load_tokenizer(config)
    config = settle(config, tokenizer)
    return Pretraining(config, Data(config, tokenizer), open_device(config.device), World())


def test_resumed_equals_uninterrupted_bit_for_bit(corpus, tmp_path):
    config = tiny_config(corpus, **ALL)
    assert pretrain(config, tmp_path / "whole", quiet=True).completed
    for step in (2, 4, 5):
        with stopped_at(step):
            assert not pretrain(config, tmp_path / "cut", quiet=True).completed
    assert pretrain(config, tmp_path / "cut", quiet=True).completed
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole, cut = tensors(tmp_path / "whole", name), tensors(tmp_path / "cut", name)
        assert whole.keys() == cut.keys()
        assert all(torch.equal(tensor, cut[key]) for key, tensor in whole.items())
    for kind, value in (("train", "loss"), ("eval", "mlm_loss")):
        assert [(line["step"], line[value]) for line in lines(tmp_path / "whole", kind)] == [
            (line["step"], line[value]) for line in lines(tmp_path / "cut", kind)
        ]


def test_muon_learns_and_keeps_one_moment_for_a_matrix(corpus, tmp_path):
    config = tiny_config(corpus, optim={"name": "muon", "lr": 0.02}, steps=30, log={"evaluate_every": 0})
    pretrain(config, tmp_path, quiet=True)
    losses = [line["mlm_loss"] for line in lines(tmp_path, "train")]
    assert sum(losses[-5:]) < sum(losses[:5]) - 2
    kept = set(tensors(tmp_path, "optimizer.safetensors"))
    assert "encoder.attention.0.query.weight.m" in kept
    assert "encoder.attention.0.query.weight.v" not in kept
    assert "encoder.embeddings.word.weight.v" in kept


def test_muon_has_two_rates(corpus):
    learner = learner_of(tiny_config(corpus, optim=MUON))
    assert isinstance(learner.optimizer, Muon)
    factors = {bool(group.get("orthogonal")): group["lr_factor"] for group in learner.optimizer.param_groups}
    assert factors == {True: 1.0, False: 0.5}


def test_two_processes_equal_one(corpus, tmp_path):
    config = tiny_config(corpus, **ALL, model={"hidden_dropout_prob": 0.0})
    (tmp_path / "run.yaml").write_text(write_yaml(config))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "litebert"]
    command += ["pretrain", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    pretrain(config, tmp_path / "one", quiet=True)
    one, two = tensors(tmp_path / "one", "model.safetensors"), tensors(tmp_path / "two", "model.safetensors")
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], atol=2e-5, rtol=0, msg=name)


def test_masks_and_batches_follow_their_stages(corpus, tmp_path):
    config = tiny_config(corpus, mask_rate=halves(0.3, 0.15), batch_ramp=halves(256, 512))
    pretrain(config, tmp_path, quiet=True)
    train = lines(tmp_path, "train")
    assert [line["mask_rate"] for line in train] == [0.3] * 4 + [0.15] * 4
    tokens = [
        after["tokens"] - before for before, after in zip([0, *(x["tokens"] for x in train)], train, strict=False)
    ]
    assert max(tokens[:4]) <= 256 < min(tokens[4:]) <= max(tokens[4:]) <= 512
    assert "masks 15 %, batches of 512 tokens" in lines(tmp_path, "event")[0]["message"]
    learner = learner_of(config)
    for share, rate in ((0.0, 0.3), (0.5, 0.15)):
        learner.enter(share)
        batches = [batch for _, batch in zip(range(20), learner.batches(0), strict=False)]
        masked = sum(batch.counts[0] for batch in batches) / sum(batch.tokens for batch in batches)
        assert masked == pytest.approx(rate, abs=0.03)
    evaluated = learner.data.evaluation(64)
    assert evaluated.recipe.mask_rate == 0.15  # scores of all stages can be compared


@pytest.mark.parametrize("choice", ["copy", "random"])
def test_new_positions(corpus, choice):
    learner = learner_of(
        tiny_config(corpus, length=[{"until": 0.5, "value": 24}, {"until": 1, "value": 64}], new_positions=choice)
    )
    table = learner.model.encoder.embeddings.position.weight
    before = table.detach().clone()
    assert learner.enter(0.4) is None
    assert learner.enter(0.5).batches
    assert torch.equal(table[:24], before[:24])
    if choice == "random":
        assert torch.equal(table, before)
    else:
        assert torch.equal(table[24:], before[torch.arange(24, 64) % 24])
    again = table.detach().clone()
    assert learner.enter(0.9) is None
    assert torch.equal(table, again)


def test_sinusoidal_positions(corpus):
    config = tiny_config(corpus, position_init="sinusoidal")
    learner = learner_of(config)
    table = learner.model.encoder.embeddings.position.weight.detach()
    width = table.shape[1]
    scale = 2**0.5 * config.model.initializer_range
    for position in (0, 1, 17):  # the closed formula of Vaswani et al., scaled to the noise that it replaces
        angles = [position / 10_000 ** (2 * i / width) for i in range(width // 2)]
        wanted = [scale * f(angle) for angle in angles for f in (math.sin, math.cos)]
        torch.testing.assert_close(table[position], torch.tensor(wanted))
    noise = learner_of(tiny_config(corpus)).model.encoder.embeddings.position.weight.detach()
    assert 0.5 < float(table.std() / noise.std()) < 2


def positions_of(learner: Pretraining, step: int, length: int) -> torch.Tensor:
    """[N, 2]: first position and length of each sequence in a step's micro-batches."""
    found = []
    for inputs in next(learner.batches(step)).inputs:
        starts, positions = inputs.starts, inputs.positions
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if end > begin:
                own = positions[begin:end]
                assert torch.equal(own, own[0] + torch.arange(end - begin))
                found.append((int(own[0]), end - begin))
    return torch.tensor(found)


def test_random_offsets_reach_every_position(corpus):
    stages = [{"until": 0.5, "value": 24}, {"until": 1, "value": 64}]
    learner = learner_of(tiny_config(corpus, length=stages, position_offset="random"))
    drawn = torch.cat([positions_of(learner, step, 24) for step in range(30)])
    offsets = drawn[:, 0]
    assert set(offsets.tolist()) == set(range(64 - 24 + 1))
    assert (drawn.sum(1) <= 64).all()
    before = learner.model.encoder.embeddings.position.weight.detach().clone()
    learner.enter(0.5)
    assert torch.equal(learner.model.encoder.embeddings.position.weight, before)  # nothing is cold, nothing is copied
    assert (positions_of(learner, 30, 64)[:, 0] == 0).all()  # the whole table is needed


def test_random_offsets_are_the_same_for_any_division_of_a_batch(corpus):
    config = {"recipe": {"max_length": 24}, "position_offset": "random"}
    whole = learner_of(tiny_config(corpus, **config, micro_batch_tokens=512))
    parts = learner_of(tiny_config(corpus, **config, micro_batch_tokens=128))
    for step in (0, 3):
        texts = []
        for learner in (whole, parts):
            inputs = next(learner.batches(step)).inputs
            tokens = torch.cat([batch.tokens[: int(batch.starts[-1])] for batch in inputs])
            positions = torch.cat([batch.positions[: int(batch.starts[-1])] for batch in inputs])
            real = tokens != learner.data.tokenizer.pad_id
            texts.append((tokens[real], positions[real]))
        assert torch.equal(texts[0][0], texts[1][0])
        assert torch.equal(texts[0][1], texts[1][1])
        assert len(set(texts[0][1].tolist())) > 24


def test_rates_follow_their_factors(corpus, tmp_path):
    plain = {"optim": {"name": "adamw", "lr": 1e-3, "warmup_steps": 0, "shape": "constant"}}
    pretrain(tiny_config(corpus, **plain, lr_factor=halves(1.0, 0.25)), tmp_path, quiet=True)
    assert [line["lr"] for line in lines(tmp_path, "train")] == [1e-3] * 4 + [2.5e-4] * 4


def test_a_budget_of_tokens_ends_the_run_and_its_decay(corpus, tmp_path):
    plain = {"name": "adamw", "lr": 1e-3, "warmup_steps": 0}
    result = pretrain(tiny_config(corpus, optim=plain, steps=1000, max_tokens=3000), tmp_path, quiet=True)
    train = lines(tmp_path, "train")
    assert result.completed
    assert train[-2]["tokens"] < 3000 <= train[-1]["tokens"]
    assert train[-1]["lr"] < 0.35 * train[0]["lr"]


def test_an_average_is_the_mean_of_the_weights_at_first_and_moves_on_later():
    model = nn.Linear(2, 2, bias=False)
    average = Average(model, decay=0.75)
    seen, expected = [], None
    for step in range(8):
        nn.init.constant_(model.weight, float(step))
        average.update()
        seen.append(float(step))
        expected = sum(seen) / len(seen) if step < 4 else 0.75 * expected + 0.25 * step
        assert average.weights["weight"][0, 0].item() == pytest.approx(expected)
    place = model.weight.data_ptr()
    with average.applied():
        assert model.weight[0, 0].item() == pytest.approx(expected)
        assert model.weight.data_ptr() == place  # a recorded step reads this memory
    assert model.weight[0, 0].item() == 7.0
    average.apply()
    assert model.weight[0, 0].item() == pytest.approx(expected)
    with pytest.raises(CheckpointError, match="averaged weights do not fit this model"):
        average.restore({"other": torch.zeros(1)}, 3)


def test_the_average_is_what_is_evaluated_and_saved(corpus, tmp_path, monkeypatch):
    config = tiny_config(corpus, optim={"average": 0.9})
    history: list[dict[str, torch.Tensor]] = []
    update = Trainer.update

    def remember(self, totals):
        update(self, totals)
        history.append(copy.deepcopy(self.learner.model.state_dict()))

    monkeypatch.setattr(Trainer, "update", remember)
    result = pretrain(config, tmp_path / "averaged", quiet=True)
    mean = {name: sum(state[name] for state in history) / len(history) for name in history[0]}  # of 8 steps, under 10
    saved = load_model(result.model).state_dict()
    for name, tensor in saved.items():
        torch.testing.assert_close(tensor, mean[name], atol=1e-6, rtol=1e-5)
    monkeypatch.undo()
    pretrain(tiny_config(corpus), tmp_path / "plain", quiet=True)
    losses = [[line["loss"] for line in lines(tmp_path / run, "train")] for run in ("averaged", "plain")]
    assert losses[0] == losses[1]  # training itself does not see it
    scores = [lines(tmp_path / run, "eval")[0]["mlm_loss"] for run in ("averaged", "plain")]
    assert scores[0] != scores[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optim": {"name": "muon", "lr": None}}, r"optim\.lr: needed for muon"),
        ({"optim": {"adam_factor": 0.5}}, "adam_factor: only for name: muon"),
        ({"optim": {"name": "muon", "adam_factor": 0.0}}, "adam_factor: must be > 0"),
        ({"optim": {"average": 1.0}}, "average: must be >= 0 and < 1"),
        ({"optim": {"decay_share": 0.0}}, "decay_share: must be > 0 and <= 1"),
        ({"mask_rate": halves(0.3, 1.5)}, "mask_rate"),
        ({"mask_rate": [{"until": 0.5, "value": 0.3}]}, r"mask_rate\[0\]\.until: the last stage must end at 1\.0"),
        ({"batch_ramp": halves(200, 512)}, "batch_ramp: 200 is not a multiple of 128"),
        ({"batch_ramp": halves(256, 384)}, "batch_ramp: ends with 384 tokens, batch_tokens is 512"),
        ({"lr_factor": halves(0.0, 1.0)}, "value: must be > 0"),
        ({"max_tokens": 0}, "max_tokens: must be >= 1"),
        ({"new_positions": "cold"}, "not one of: copy, random"),
        ({"position_init": "zero"}, "not one of: normal, sinusoidal"),
        ({"position_offset": "all"}, "not one of: none, random"),
    ],
)
def test_mistakes_are_named(corpus, changes, message):
    with pytest.raises(ConfigError, match=message):
        tiny_config(corpus, **changes)
