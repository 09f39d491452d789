"""A fine-tuning run, from its config to a scored model folder; it can be killed at any time and goes on.

RUN/
  config.yaml    the complete config               run.json       hardware, versions, command, state
  metrics.jsonl  every report, the truth           checkpoints/   while it runs: weights, moments, the best so far
  best/          the model folder that was chosen  scores.json    its scores on dev, with intervals
  predictions/   what it says about dev (and test) report.html    all of it to look at

Batches and dropout are functions of (seed, step), so a resumed run is the uninterrupted one, bit for bit on a CPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from litebert.config import to_dict
from litebert.errors import ConfigError, LitebertError
from litebert.files import write_atomic
from litebert.finetuning.baselines import BASELINES_FILE, constant_scores
from litebert.finetuning.config import FREE_ON_RESUME, FinetuneConfig
from litebert.finetuning.data import Data, open_tokenizer, read_data
from litebert.finetuning.finish import finish_run
from litebert.finetuning.meter import Meter
from litebert.finetuning.order import TrainingBatches
from litebert.finetuning.outputs import layout_for
from litebert.finetuning.results import Scores, goodness, read_scores
from litebert.finetuning.scoring import predict_split, score_split
from litebert.finetuning.setup import make_model, make_optimizer
from litebert.finetuning.steps import GraphStep, PlainStep
from litebert.model.fast.layers import FastLayers
from litebert.model.folder import load_config
from litebert.tasks.task import TaskData
from litebert.train import checkpoint
from litebert.train.device import Device, open_device, speed_up
from litebert.train.folder import Resume, begin, check_config, check_folder, describe_process, locked, write_facts
from litebert.train.guard import Guard
from litebert.train.log import MetricsLog
from litebert.train.optimizer import clip_gradients, load_moments, moments
from litebert.train.progress import Progress
from litebert.train.random_state import seed_everything
from litebert.train.schedule import learning_rate
from litebert.train.signals import StopRequest, stop_on_signals

BEST = "best."  # prefix of the best weights so far in a checkpoint
COMPILE_STEPS = 2000  # compiling takes longer than a shorter run


class FinetuningStoppedError(LitebertError, RuntimeError):
    """The guard ended a run: the loss is not finite any more."""


@dataclass(frozen=True)
class FinetuneResult:
    """How a run ended; `model` is the folder of the chosen weights once it is complete."""

    folder: Path
    step: int
    completed: bool
    scores: Scores = field(default_factory=Scores)
    model: Path | None = None
    signal: int | None = None


def finetune(
    config: FinetuneConfig,
    out: Path | str,
    resume: Resume = "auto",
    console: Console | None = None,
    quiet: bool = False,
    data: Data | TaskData | None = None,
) -> FinetuneResult:
    """Train to the end and keep the weights that score best on dev; call it again to go on where it was stopped.

    A folder whose run is complete is left as it is. `data` is a task of one's own with its examples, instead of the
    files that the config names (or those files, read before, to save reading them again for another seed).
    """
    out = Path(out)
    if isinstance(data, TaskData):
        config = dataclasses.replace(config, task=data.task.name)
    done = finished_run(out, config)
    if done is not None and resume != "never":
        return done
    device = open_device(config.device)
    # Refused mistakes must not leave a folder behind, so it is looked at before it is made and locked.
    if not isinstance(data, Data):
        data = read_data(config, open_tokenizer(config.model), load_config(config.model), data)
    resuming = check_folder(out, config, resume, FREE_ON_RESUME)
    _ = data.train  # read now: a mistake in the files must not leave a folder either
    with locked(out, True), stop_on_signals() as stop:
        run = Run(config, out, data, device, resuming, console, quiet)
        with contextlib.closing(run):
            return run.fit(stop)


def finished_run(folder: Path, config: FinetuneConfig) -> FinetuneResult | None:
    """The result of a complete run; None if there is none, an error if it had another config."""
    scores = read_scores(folder)
    if scores is None:
        return None
    check_config(folder, config, FREE_ON_RESUME)
    return FinetuneResult(folder, scores.step, completed=True, scores=scores, model=folder / "best")


class Run:
    """One fine-tuning run in its folder."""

    def __init__(
        self,
        config: FinetuneConfig,
        folder: Path,
        data: Data,
        device: Device,
        resuming: bool = False,
        console: Console | None = None,
        quiet: bool = False,
    ):
        self.config, self.folder, self.data, self.device, self.task = config, folder, data, device, data.task
        seed_everything(config.seed)
        self.model, new = make_model(config, data.task)
        self.model.to(device.device)
        self.optimizer = make_optimizer(self.model, config, new)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        attention_dropout = self.model.config.attention_probs_dropout_prob if config.optim.freeze != "encoder" else 0.0
        self.batches = TrainingBatches(data, config, layout_for(device, attention_dropout))
        self.num_steps = config.num_steps(len(self.batches.units))
        self.schedule = config.learning_rate(self.num_steps)
        self.evaluate_every = config.log.evaluate_every or math.ceil(self.num_steps / config.log.num_evaluations)
        self.guard = Guard(config.guard)
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.best: dict[str, Tensor] = {}
        self.best_value, self.best_step, self.worse_in_a_row = -math.inf, 0, 0
        self._tried_step = -1

        saved = checkpoint.load(folder) if resuming else None
        self.progress = Progress(self.num_steps, saved.step if saved else 0, console=console, show=not quiet)
        if saved is not None:
            self._load(saved)
        for note in (*device.notes, *data.all_notes()):
            self.progress.note(note)
        for warning in data.warnings():
            self.progress.note(warning, "yellow")
        self._began = time.monotonic() - self.seconds
        self.evaluating = 0.0  # seconds, which no rate counts
        self._saved_at = time.monotonic()
        self.compiled = self._speed_up()
        self.take_step = self._make_step()
        begin(folder, config, resuming)
        board = folder / "tensorboard" if config.log.tensorboard else None
        self.log = MetricsLog(folder / "metrics.jsonl", self.step if resuming else None, board)
        if resuming:
            self.log.event(self.step, f"resumed at step {self.step}")
        write_facts(folder, self.facts(), completed=False)
        if data.dev and data.dev[0].is_labelled:
            guesses = constant_scores(self.task, data.train.examples, data.dev[0].examples)
            write_atomic(folder / BASELINES_FILE, json.dumps(guesses, indent=1))

    # -- the loop ------------------------------------------------------------------------------------------------------

    def fit(self, stop: StopRequest) -> FinetuneResult:
        """Train until the end, or until somebody asks to stop."""
        meter = Meter(self)
        with self.progress:
            while self.step < self.num_steps and not self._out_of_patience():
                self.train_step(meter)
                if self.step % self.config.log.report_every == 0:
                    meter.write()
                if self.step % self.evaluate_every == 0 or self.step == self.num_steps:
                    self.evaluate()
                if stop.requested or self._checkpoint_due():
                    self.save()
                if stop.requested:
                    self._event("stopped by a signal; the same command goes on from here")
                    number = int(stop.signal or signal.SIGTERM)
                    return FinetuneResult(self.folder, self.step, completed=False, signal=number)
            meter.write()
            return self._finish()

    def train_step(self, meter: Meter) -> None:
        """Learn from one batch, unless the guard has something against it."""
        loss, right, norm, count = self._forward_backward()
        verdict = self.guard.judge(self.step, loss, norm)
        if verdict.action == "ok":
            self._set_learning_rate()
            self.optimizer.step()
            meter.add(loss, right, norm, count)
        elif verdict.action == "skip":
            self._event(f"{verdict.reason}: step skipped")
        else:
            self._event(verdict.reason)
            raise FinetuningStoppedError(verdict.reason)
        self.step += 1
        self.seconds = time.monotonic() - self._began

    def _forward_backward(self) -> tuple[float, float, float, int]:
        """The gradients of one batch; its mean loss, share right, gradient norm, and examples (or tags) in it."""
        self.model.train()
        if self.config.optim.freeze == "encoder":
            self.model.encoder.eval()  # features do not drop out
        seed_everything(self.config.seed, self.step)
        self.take_step.clear()
        batches = self._next_batches()
        count = max(1, sum(batch.count for batch in batches))
        sums = torch.stack([self.take_step(batch, count) for batch in batches]).sum(0)
        norm = clip_gradients(self.parameters, self.config.optim.clip or math.inf)
        self._prepare()  # while the GPU is busy
        if self.take_step.problem:
            self._event(self.take_step.problem)
            self.take_step.problem = None
        loss, right, norm_value = torch.cat([sums, norm[None].float()]).tolist()  # note: here a step waits for the GPU
        self.tokens += sum(batch.num_tokens for batch in batches)
        return loss / count, right / count, norm_value, count

    def _next_batches(self) -> list[Any]:
        if self._tried_step != self.step:
            self._tried_step, self._ready = self.step, self.batches.step(self.step)
        return self._ready

    def _prepare(self) -> None:
        if self.step + 1 < self.num_steps:
            self._tried_step, self._ready = self.step + 1, self.batches.step(self.step + 1)

    def _set_learning_rate(self) -> None:
        lr = learning_rate(self.step, self.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["lr_factor"]

    def _out_of_patience(self) -> bool:
        return 0 < self.config.patience <= self.worse_in_a_row

    # -- evaluation, checkpoints, the end ------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Score dev, and remember the weights where they are the best so far (of equals the first)."""
        if not self.data.dev or not self.data.dev[0].is_labelled:
            return
        started = time.monotonic()
        values: dict[str, float] = {}
        for number, split in enumerate(self.data.dev):
            predictions = predict_split(self.model, self.task, split, self.device, self.compiled)
            scores = score_split(self.task, split, predictions, resamples=0).scores
            prefix = "" if number == 0 else f"{split.name}/"
            values |= {f"{prefix}{name}": metric.value for name, metric in scores.items()}
        value = goodness(self.task.metrics[0], values[self.task.metrics[0]])
        better = value > self.best_value or not self.best
        if better:
            self.best_value, self.best_step, self.worse_in_a_row = value, self.step, 0
            self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        else:
            self.worse_in_a_row += 1
        took = time.monotonic() - started
        self.evaluating += took
        self.seconds = time.monotonic() - self._began
        self.log.write(self.step, {**values, "seconds": self.seconds, "took": took}, kind="eval")
        shown = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        mark = "  best so far" if better else ""
        self.progress.note(f"step {self.step:,}  dev {shown}  ({took:.1f} s){mark}", "cyan")

    def save(self) -> None:
        """Write a checkpoint: the weights, the best so far, the moments."""
        self._saved_at = time.monotonic()
        state = {
            "config": to_dict(self.config),
            "tokenizer": self.data.tokenizer.fingerprint,
            "data": self.data.fingerprint,
            "tokens": self.tokens,
            "seconds": time.monotonic() - self._began,
            "guard": self.guard.state(),
            "best_value": self.best_value if self.best else None,
            "best_step": self.best_step,
            "worse_in_a_row": self.worse_in_a_row,
        }
        weights = {name: tensor.detach() for name, tensor in self.model.state_dict().items()}
        weights |= {f"{BEST}{name}": tensor for name, tensor in self.best.items()}
        checkpoint.save(self.folder, self.step, weights, moments(self.optimizer), state, keep_last=1)

    def _checkpoint_due(self) -> bool:
        log = self.config.log
        by_clock = bool(log.checkpoint_minutes) and time.monotonic() - self._saved_at > 60 * log.checkpoint_minutes
        return by_clock or bool(log.checkpoint_every and self.step % log.checkpoint_every == 0)

    def _load(self, saved: checkpoint.Checkpoint) -> None:
        for note in saved.notes:
            self.progress.note(note, "yellow")
        state = saved.state
        for what, now in (("tokenizer", self.data.tokenizer.fingerprint), ("data", self.data.fingerprint)):
            if state[what] != now:
                raise ConfigError(
                    f"{self.folder}: the {what} of the run there has changed since; bring it back, "
                    "or start a new run in another folder"
                )
        self.model.load_state_dict({k: v for k, v in saved.model.items() if not k.startswith(BEST)})
        self.best = {
            k.removeprefix(BEST): v.to(self.device.device) for k, v in saved.model.items() if k.startswith(BEST)
        }
        load_moments(self.optimizer, saved.optimizer)
        self.step, self.tokens, self.seconds = saved.step, state["tokens"], state["seconds"]
        self.best_value = -math.inf if state["best_value"] is None else state["best_value"]
        self.best_step, self.worse_in_a_row = state["best_step"], state["worse_in_a_row"]
        self.guard.restore(state["guard"])
        self.progress.note(f"resuming at step {self.step:,} of {self.num_steps:,}", "bold")

    def _finish(self) -> FinetuneResult:
        if self.best:
            self.model.load_state_dict(self.best)
        if self._out_of_patience():
            self._event(f"stopped early: {self.config.patience} evaluations without a better one")
        scores = finish_run(
            self.folder, self.config, self.data, self.model, self.device, self.chosen_step, self.facts(), self.compiled
        )
        write_facts(self.folder, self.facts(), completed=True)
        if not self.config.log.keep_checkpoints:
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
        return FinetuneResult(self.folder, self.step, True, scores, self.folder / "best")

    @property
    def chosen_step(self) -> int:
        """The step whose weights are kept: the best on dev, or the last."""
        return self.best_step if self.best else self.step

    def close(self) -> None:
        """Let go of files."""
        self.log.close()

    # -- small things --------------------------------------------------------------------------------------------------

    def _speed_up(self) -> bool:
        """Take the fast layers where they fit, else compile where that pays; whether it was compiled."""
        drops = max(self.model.config.hidden_dropout_prob, self.model.config.attention_probs_dropout_prob) > 0
        self.model.encoder.recompute = self.device.recompute
        if self.batches.layout != "packed":
            return False
        fast = self.device.fast_layers and not drops and FastLayers.fits(self.model.encoder)
        long = self.config.device.compile == "on" or self.num_steps - self.step >= COMPILE_STEPS
        compiled = self.device.compile and long and not fast
        speed_up(self.model, dataclasses.replace(self.device, compile=compiled))
        return compiled

    def _make_step(self) -> PlainStep:
        if not self.device.is_cuda or self.config.device.graphs == "off":
            return PlainStep(self.model, self.task.kind, self.device)
        self.batches.plan(self.num_steps)
        return GraphStep(self.model, self.task.kind, self.device)

    def _event(self, message: str) -> None:
        self.progress.note(f"step {self.step:,}  {message}", "yellow")
        self.log.event(self.step, message)

    def facts(self) -> dict[str, Any]:
        """What run.json says about the run."""
        return {
            "kind": "finetune",
            **describe_process(self.device),
            "task": self.task.name,
            "metric": self.task.metrics[0],
            "parameters": self.model.num_parameters,
            "learning_parameters": sum(p.numel() for p in self.parameters),
            "train_examples": len(self.data.train.examples),
            "steps": self.step,
            "num_steps": self.num_steps,
            "chosen_step": self.chosen_step,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }
