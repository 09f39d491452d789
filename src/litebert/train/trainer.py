"""The one training loop, on one process or many, which resumes wherever it was stopped.

RUN/
  config.yaml     the complete config          run.json       hardware, versions, command, state
  metrics.jsonl   every report, the truth      checkpoints/   atomic and checksummed

Everything a step needs is a function of (config, step): batches and dropout are drawn from (seed, step), rates and
stages follow the share of the run that is done. So a resumed run is the uninterrupted one, bit for bit on a CPU.

    with alone_in(folder, world, device) as stop, Trainer(learner, config, folder, device, world) as trainer:
        signal = trainer.fit(stop)       # None once the run has come to its end
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from torch import Tensor

from litebert.config import to_dict
from litebert.errors import CheckpointError, ConfigError, LitebertError
from litebert.model.heads import Model
from litebert.train import checkpoint
from litebert.train.config import DeviceConfig, GuardConfig, LogConfig, OptimConfig
from litebert.train.device import Device, open_device, seed_everything
from litebert.train.folder import begin, describe_process, locked, write_facts
from litebert.train.graphs import GraphStep
from litebert.train.guard import Guard
from litebert.train.learner import Learner, StepBatches
from litebert.train.log import Meter, MetricsLog, Progress, StepTotals
from litebert.train.optimizer import Average, clip_gradients, load_moments, moments
from litebert.train.processes import (
    StopRequest,
    World,
    connect,
    copy_from_main,
    stop_on_signals,
    sum_gradients,
    sum_totals,
    wait_for_all,
    world_from_environment,
)
from litebert.train.schedule import run_progress

AVERAGE = "average."  # of the averaged weights' names in a checkpoint


class TrainingStoppedError(LitebertError, RuntimeError):
    """The guard ended a run: the loss is not finite or keeps jumping."""


class TrainConfig(Protocol):
    """What the loop reads of a run's config."""

    @property
    def seed(self) -> int: ...
    @property
    def optim(self) -> OptimConfig: ...
    @property
    def guard(self) -> GuardConfig: ...
    @property
    def log(self) -> LogConfig: ...


def open_machine(config: DeviceConfig) -> tuple[World, Device]:
    """The processes of a run, as `torchrun` says, and the hardware of this one."""
    world = world_from_environment()
    device = open_device(config, world.local_rank, world.local_size)
    if device.graphs == "on" and world.has_group:
        raise ConfigError(f"device.graphs: on works with one process, not {world.size}; use auto")
    return world, device


@contextlib.contextmanager
def alone_in(folder: Path, world: World, device: Device) -> Iterator[StopRequest]:
    """Connect the processes of a run, lock its folder, and turn signals into a request to stop."""
    with (
        connect(world, device.device),
        # After that: if the main process failed alone, the others would wait here and meet it in its next run.
        locked(folder, world.is_main),
        stop_on_signals() as stop,
    ):
        yield stop


class Trainer:
    """One process of a run in its folder."""

    def __init__(
        self,
        learner: Learner,
        config: TrainConfig,
        folder: Path,
        device: Device,
        world: World,
        resuming: bool = False,
        console: Console | None = None,
        quiet: bool = False,
    ):
        self.learner, self.config, self.folder, self.device, self.world = learner, config, folder, device, world
        self.parameters = [p for p in learner.model.parameters() if p.requires_grad]
        self.guard = Guard(config.guard, learner.advice)
        self.average = Average(learner.model, config.optim.average) if config.optim.average else None
        # `seconds` is the clock that decisions follow: the main process's, the same in all of them.
        self.step, self.tokens, self.seconds, self.lr = 0, 0, 0.0, 0.0
        self.evaluating = 0.0  # seconds, which no rate counts
        self._evaluated_at: int | None = None
        self._began = self._saved_at = time.monotonic()
        saved = checkpoint.load(folder) if resuming else None
        show = world.is_main and not quiet
        self.progress = Progress(learner.num_steps, saved.step if saved else 0, console=console, show=show)
        for note, style in (*((note, "") for note in device.notes), *learner.notes):
            self.progress.note(note, style)

        self.meter = Meter(self)
        if saved is not None:
            self._restore(saved)
            self.guard.restore(saved.state["guard"])
            self.progress.note(f"resuming at step {self.step:,} of {learner.num_steps:,}", "bold")
        check_same_step(self.step, world, device.device)
        copy_from_main(learner.model.parameters(), world)
        learner.prepare(self.step)
        self.take_step = self._make_step()
        self.log: MetricsLog | None = None
        if world.is_main:
            begin(folder, config, resuming)
            board = folder / "tensorboard" if config.log.tensorboard else None
            lines = saved.state.get("log_lines") if saved else None
            self.log = MetricsLog(folder / "metrics.jsonl", saved.step if saved else None, board, lines)
            if self.log.damage:
                self.event(self.log.damage, lasting=True)
            if saved is not None:
                self.log.event(self.step, f"resumed at step {self.step}", lasting=True)
            write_facts(folder, self.facts(), completed=False)
        wait_for_all(world)
        self.feed = Feed(learner.batches(self.step))

    # -- the loop ------------------------------------------------------------------------------------------------------

    def fit(self, stop: StopRequest) -> int | None:
        """Train until the budget is spent; if a signal asks to stop, save and return its number."""
        log = self.config.log
        with self.progress:
            while not self.finished:
                self._enter_stage()
                if self.guard.is_bad(self.step):  # the run was rolled back because of this batch
                    self.feed.take()
                    self.step += 1
                    continue
                totals, stopping = self.forward_backward(stop.requested)
                verdict = self.guard.judge(self.step, self.learner.mean_loss(totals), totals.norm)
                if verdict.action == "ok":
                    self.update(totals)
                elif verdict.action == "skip":
                    self.event(f"{verdict.reason}: step skipped")
                elif verdict.action == "rollback":
                    self._roll_back(verdict.reason)
                    continue
                else:
                    self.event(verdict.reason)
                    raise TrainingStoppedError(verdict.reason)
                self.take_step.clear()
                self.step += 1
                self.tokens += totals.tokens
                if self._every(log.report_every):
                    self.meter.write()
                if self._every(self.evaluate_every):
                    self.evaluate()
                stopping = stopping or (self.world.size == 1 and stop.requested)
                if stopping:
                    self.event("stopped by a signal; rerun the same command to continue")
                if stopping or self._checkpoint_due():
                    self.save(must=stopping)
                if stopping:
                    return int(stop.signal or signal.SIGTERM)  # another process may have got it
            self.meter.write()
        if self.average is not None:
            self.average.apply()
        return None

    def forward_backward(self, stop_requested: bool = False) -> tuple[StepTotals, bool]:
        """One global batch: gradients of the mean losses, for any number of micro-batches and processes."""
        if self.learner.draws:
            seed_everything(self.config.seed, self.step, self.world.rank)
        batches = self.feed.take()
        # Every process must stop, and read the clock, at the same step: these two ride along.
        clock = self.clock() if self.world.is_main else 0.0
        numbers = [*batches.counts, batches.tokens, float(stop_requested), clock]
        counts = sum_totals(torch.tensor(numbers, device=self.device.device, dtype=torch.float64), self.world)
        divisors = counts[: len(batches.counts)].clamp(min=1).float()
        sums = torch.zeros((), device=self.device.device)
        for inputs in batches.inputs:
            sums = sums + self.take_step(inputs, divisors)
        while self.take_step.news:
            self.event(self.take_step.news.pop(0))
        sums = sum_gradients(self.parameters, sums, self.world)
        norm = clip_gradients(self.parameters, self.config.optim.clip or math.inf)
        if self.step + 1 < self.learner.num_steps:
            self.feed.prepare()  # while the device is still busy
        values = torch.cat([sums, counts, norm[None]]).tolist()  # note: the one place where a step waits for the GPU
        *reported, tokens, stopping, self.seconds, norm_value = values
        totals = StepTotals(int(tokens), tuple(reported[len(sums) :]), tuple(reported[: len(sums)]), norm_value)
        return totals, stopping > 0

    def update(self, totals: StepTotals) -> None:
        """The optimiser's step, at the learning rate that is due."""
        self._set_learning_rate()
        self.learner.optimizer.step()
        if self.average is not None:
            self.average.update()
        self.meter.add(totals)

    def _set_learning_rate(self) -> None:
        self.lr = self.learner.learning_rate(self.step, self.share)
        for group in self.learner.optimizer.param_groups:
            group["lr"] = self.lr * group["lr_factor"]

    def _enter_stage(self) -> None:
        change = self.learner.enter(self.share)
        if change is None:
            return
        if change.batches:
            self._reopen_feed()
        self.take_step.renew()
        self.guard.forget()  # the loss may jump here
        self.event(change.message)

    @property
    def share(self) -> float:
        """How much of the run is done, by steps, the clock or tokens."""
        learner = self.learner
        return run_progress(
            self.step, learner.num_steps, self.seconds, learner.max_seconds, self.tokens, learner.max_tokens
        )

    @property
    def finished(self) -> bool:
        """Whether the budget is spent, or the learner is satisfied."""
        return self.share >= 1.0 or self.learner.satisfied()

    @property
    def evaluate_every(self) -> int:
        """Steps between two evaluations."""
        log = self.config.log
        every = log.evaluate_every
        return math.ceil(self.learner.num_steps / log.num_evaluations) if every is None else every

    def _every(self, steps: int) -> bool:
        return bool(steps) and self.step % steps == 0

    def _reopen_feed(self) -> None:
        self.feed.close()
        self.feed = Feed(self.learner.batches(self.step))

    # -- evaluation, checkpoints, the end ------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Score held-out data, once per step."""
        if self._evaluated_at == self.step:
            return
        started = time.monotonic()
        with self.average.applied() if self.average is not None else contextlib.nullcontext():
            found = self.learner.evaluate(self.step)
        if found is None:
            return
        took = time.monotonic() - started
        self.evaluating += took
        self._evaluated_at = self.step
        if self.log is not None:
            values = {**found.values, "tokens": self.tokens, "seconds": self.clock(), "took": took}
            self.log.write(self.step, values, kind="eval")
        self.progress.note(f"step {self.step:,}  {found.text}  ({took:.1f} s)", "cyan")
        for warning in found.warnings:
            self.event(warning)

    def save(self, must: bool = False) -> None:
        """Write a checkpoint; a full disk ends the run only if `must`."""
        self._saved_at = time.monotonic()
        if self.log is None:
            return
        state = {
            "config": to_dict(self.config),
            **self.learner.state(),
            "tokens": self.tokens,
            "seconds": self.clock(),
            "evaluated_at": self._evaluated_at,
            "guard": self.guard.state(),
            "meter": self.meter.state(),
            "log_lines": self.log.num_lines,
            "averaged_steps": self.average.steps if self.average is not None else 0,
        }
        log, weights, momentum = self.config.log, self.learner.weights(), moments(self.learner.optimizer)
        if self.average is not None:
            weights |= {f"{AVERAGE}{name}": tensor for name, tensor in self.average.weights.items()}
        kept = {"keep_last": log.keep_last, "keep_every": log.keep_every}
        try:
            checkpoint.save(self.folder, self.step, weights, momentum, state, **kept)
        except checkpoint.CheckpointWriteError as error:
            if must or log.on_write_error == "stop":
                raise
            self.event(f"{error} The run continues and will try again at the next checkpoint.")

    def _checkpoint_due(self) -> bool:
        minutes = self.config.log.checkpoint_minutes
        by_clock = bool(minutes) and time.monotonic() - self._saved_at > 60 * minutes
        return by_clock or self._every(self.config.log.checkpoint_every)

    def _restore(self, saved: checkpoint.Checkpoint) -> None:
        for note in saved.notes:
            self.progress.note(note, "yellow")
        averaged = {k.removeprefix(AVERAGE): v for k, v in saved.model.items() if k.startswith(AVERAGE)}
        if self.average is not None:
            self.average.restore(averaged, saved.state["averaged_steps"])
        model = {name: tensor for name, tensor in saved.model.items() if not name.startswith(AVERAGE)}
        self.learner.restore(dataclasses.replace(saved, model=model))
        load_moments(self.learner.optimizer, saved.optimizer)
        self.step, self.tokens, self.seconds = saved.step, saved.state["tokens"], saved.state["seconds"]
        self._began = time.monotonic() - self.seconds
        self._evaluated_at = saved.state.get("evaluated_at")
        self.meter = Meter(self, saved.state.get("meter"))

    def _roll_back(self, reason: str) -> None:
        wait_for_all(self.world)
        try:
            saved = checkpoint.load(self.folder)
        except CheckpointError:
            self.event(reason)
            raise TrainingStoppedError(f"{reason}: no checkpoint to roll back to yet. {self.learner.advice}") from None
        self._restore(saved)
        self.guard.rewind(saved.state["guard"])
        if self.log is not None:
            self.log.rewind(saved.step, saved.state.get("log_lines"))
        self.event(f"{reason}: back to the last checkpoint", lasting=True)
        self.take_step.renew()
        self._reopen_feed()

    def complete(self) -> None:
        """Say in run.json that the run is finished."""
        if self.log is not None:
            write_facts(self.folder, self.facts(), completed=True)
        wait_for_all(self.world)

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()
        if self.log is not None:
            self.log.close()

    # -- small things --------------------------------------------------------------------------------------------------

    def _make_step(self) -> PlainStep | GraphStep:
        learner = self.learner
        plain = PlainStep(learner.model, self.device, learner.loss)
        if learner.graphs == "off" or self.world.has_group:
            return plain
        return GraphStep(plain, choose=learner.graphs == "auto", check=learner.check_graphs)

    def clock(self) -> float:
        """Seconds since the run began, without the time between its parts."""
        return time.monotonic() - self._began

    def event(self, message: str, lasting: bool = False) -> None:
        """Show a message on the screen and log it."""
        self.progress.note(f"step {self.step:,}  {message}", "yellow")
        if self.log is not None:
            self.log.event(self.step, message, lasting)

    def facts(self) -> dict[str, Any]:
        """What run.json says about the run."""
        hardware = {"processes": self.world.size, **self.learner.hardware()}
        counts = {"steps": self.step, "tokens": self.tokens, "seconds": self.clock()}
        return {**describe_process(self.device, **hardware), **self.learner.facts(self.step), **counts}


# -- the parts of a step ----------------------------------------------------------------------------------------------

# A micro-batch (a named tuple of tensors, dictionaries of tensors and numbers) and what each loss is the mean over
# -> the loss to go down, and the sums to report.
Loss = Callable[[Any, Tensor], tuple[Tensor, Tensor]]


class PlainStep:
    """The gradients of one micro-batch, kernel by kernel."""

    def __init__(self, model: Model, device: Device, loss: Loss):
        self.model, self.device, self.loss = model, device, loss
        self.news: list[str] = []  # for the caller to report

    def __call__(self, inputs: Any, counts: Tensor) -> Tensor:
        """Add the gradients of a micro-batch to the parameters'; returns its sums."""
        with self.device.autocast():
            loss, sums = self.loss(inputs, counts)
        loss.backward()
        return sums

    def clear(self) -> None:
        """Forget the gradients of the step before."""
        self.model.zero_grad(set_to_none=True)

    def renew(self) -> None:
        """Start over for a stage of another depth or length, whose batches have other shapes."""
        self.clear()


class Feed:
    """The batches of each step in turn, on the device before they are needed.

    A step ends by waiting for the device, to learn its loss. If the next batches were fetched and copied only then, the
    device would be idle meanwhile; so `prepare` is called while it still has work.
    """

    def __init__(self, batches: Iterator[StepBatches]):
        self._batches = batches
        self._ready: StepBatches | None = None

    def prepare(self) -> None:
        """Fetch the next step's batches, if that has not been done."""
        if self._ready is None:
            self._ready = next(self._batches)

    def take(self) -> StepBatches:
        """The next step's batches."""
        self.prepare()
        assert self._ready is not None
        taken, self._ready = self._ready, None
        return taken

    def close(self) -> None:
        """Close the source of the batches."""
        self._ready = None
        if hasattr(self._batches, "close"):
            self._batches.close()


def check_same_step(step: int, world: World, device: torch.device) -> None:
    """Every process must find the same checkpoint, in a run folder that all of them see."""
    total = sum_totals(torch.tensor([float(step)], dtype=torch.float64, device=device), world)
    if int(total.item()) != step * world.size:
        raise ConfigError(
            f"process {world.rank} is at step {step}, others are not: the run folder must be on a disk that all "
            "machines share"
        )
