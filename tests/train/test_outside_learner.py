"""A custom kind of training: a `Learner` from outside runs in the one loop, is evaluated, saved and resumed."""

from __future__ import annotations

import itertools
import os
import signal
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from tiny_shape import tiny_shape

from litebert.errors import ConfigError
from litebert.model.heads import EncoderModel
from litebert.train.config import DeviceConfig, GuardConfig, LogConfig, OptimConfig
from litebert.train.device import seed_everything
from litebert.train.folder import check_folder
from litebert.train.learner import Change, Evaluation, Learner, StepBatches
from litebert.train.log import read_metrics
from litebert.train.optimizer import make_optimizer
from litebert.train.trainer import Trainer, alone_in, open_machine

SHAPE = tiny_shape(max_position_embeddings=8)


@dataclass(frozen=True)
class DistilConfig:
    """What the loop reads of a run's config."""

    seed: int = 1
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(name="adamw", lr=0.01, warmup_steps=0))
    guard: GuardConfig = field(default_factory=GuardConfig)
    log: LogConfig = field(default_factory=lambda: LogConfig(report_every=1, evaluate_every=10, checkpoint_every=5))


class Distillation(Learner):
    """A student learns to give a fixed teacher's vectors; batches are drawn from (seed, step)."""

    num_steps, draws = 30, False

    def __init__(self, config: DistilConfig, stop_at: int | None = None):
        self.config, self.stop_at = config, stop_at
        seed_everything(7)
        self.teacher = EncoderModel(SHAPE).eval()
        self.model = EncoderModel(SHAPE)
        self.optimizer = make_optimizer(self.model, config.optim, config.optim.lr)
        self.halves = 1

    def texts(self, step):
        return torch.randint(5, 40, (8, 8), generator=torch.Generator().manual_seed(step))

    def batches(self, step):
        for number in itertools.count(step):
            if number == self.stop_at:
                os.kill(os.getpid(), signal.SIGTERM)
            yield StepBatches(list(self.texts(number).split(4)), (8,), 64)

    def distance(self, ids):
        with torch.no_grad():
            wanted = self.teacher(ids).pooled
        return F.mse_loss(self.model(ids).pooled, wanted, reduction="none").sum(1).sum()

    def loss(self, inputs, counts):
        loss = self.distance(inputs)
        return loss / counts[0], loss.detach()[None]

    def mean_loss(self, totals):
        return totals.sums[0] / totals.counts[0]

    def learning_rate(self, step, share):
        return self.config.optim.lr / self.halves

    def enter(self, share):
        halves = 1 if share < 0.5 else 2
        if halves == self.halves:
            return None
        self.halves = halves
        return Change("half the rate", batches=False)

    def report(self, steps, seconds):
        return {"distance": sum(step.sums[0] for step in steps)}

    def evaluate(self, step):
        with torch.no_grad():
            value = float(self.distance(self.texts(1_000_000)))
        return Evaluation({"held_out": value}, f"distance {value:.2f}")

    def state(self):
        return {"teacher": 7}

    def restore(self, saved):
        if saved.state["teacher"] != 7:
            raise ConfigError("another teacher")
        self.model.load_state_dict(saved.model)

    def facts(self, step):
        return {"teacher": 7}


def run(folder, stop_at=None):
    config = DistilConfig()
    world, device = open_machine(DeviceConfig(device="cpu", threads=1))
    resuming = check_folder(folder, config, "auto")
    with alone_in(folder, world, device) as stop:
        learner = Distillation(config, stop_at)
        with Trainer(learner, config, folder, device, world, resuming, quiet=True) as trainer:
            signalled = trainer.fit(stop)
            if signalled is None:
                trainer.complete()
    return learner, signalled


def lines(folder, kind):
    return [line for line in read_metrics(folder / "metrics.jsonl") if line["kind"] == kind]


def test_a_learner_from_outside(tmp_path):
    whole, _ = run(tmp_path / "whole")
    losses = [line["loss"] for line in lines(tmp_path / "whole", "train")]
    assert len(losses) == 30
    assert losses[-1] < 0.5 * losses[0]
    assert [line["step"] for line in lines(tmp_path / "whole", "eval")] == [10, 20, 30]
    assert "half the rate" in [line["message"] for line in lines(tmp_path / "whole", "event")]

    assert run(tmp_path / "parts", stop_at=17)[1] == signal.SIGTERM
    parts, signalled = run(tmp_path / "parts")
    assert signalled is None
    again = [line["loss"] for line in lines(tmp_path / "parts", "train")]
    assert again == losses
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, parts.model.state_dict()[name]), name


def test_a_learner_must_say_what_differs():
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Learner,), {"loss": Distillation.loss})()
