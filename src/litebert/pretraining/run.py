"""A pretraining run, from its config to a model folder: learns on one process or many, and cannot be lost.

RUN/
  config.yaml     the complete config            run.json       hardware, versions, command, state
  metrics.jsonl   every report, the truth        checkpoints/   atomic and checksummed
  model/          the final model folder         samples.json   masks it filled

Everything a step needs is a function of (config, step): batches and dropout are drawn from (seed, step), the learning
rate, depth and length from the progress. So a resumed run is the uninterrupted one, bit for bit on a CPU.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from litebert.config import to_dict
from litebert.errors import CheckpointError, ConfigError, LitebertError
from litebert.files import write_atomic
from litebert.model.count import count_parameters
from litebert.model.hub import save_model
from litebert.pretraining.assembly import Batch
from litebert.pretraining.batches import Batches
from litebert.pretraining.card import write_card
from litebert.pretraining.config import FREE_ON_RESUME, RunConfig
from litebert.pretraining.data import Data, load_tokenizer, settle
from litebert.pretraining.evaluate import Scores, evaluate_batches
from litebert.pretraining.feed import Feed
from litebert.pretraining.meter import Meter, StepTotals
from litebert.pretraining.objective import scorer
from litebert.pretraining.plateau import PlateauWatch, commonest_share
from litebert.pretraining.samples import fill_samples
from litebert.pretraining.setup import make_model, make_optimizer
from litebert.pretraining.steps import GraphStep, PlainStep
from litebert.train import checkpoint
from litebert.train.device import Device, measure_peak, open_device, speed_up
from litebert.train.distributed import (
    World,
    connect,
    copy_from_main,
    sum_gradients,
    sum_totals,
    wait_for_all,
    world_from_environment,
)
from litebert.train.folder import Resume, begin, check_folder, describe_process, locked, write_facts
from litebert.train.guard import Guard
from litebert.train.log import MetricsLog, read_metrics
from litebert.train.optimizer import clip_gradients, load_moments, moments
from litebert.train.progress import Progress
from litebert.train.random_state import seed_everything
from litebert.train.schedule import learning_rate, run_progress, value_at
from litebert.train.signals import StopRequest, stop_on_signals

ADVICE = (
    "Lower the learning rate (it goes with the square root of the batch size), lengthen the warm-up, "
    "or begin with fewer applications of the layer (a depth schedule)."
)


class TrainingStoppedError(LitebertError, RuntimeError):
    """The guard ended a run: the loss is not finite or keeps jumping."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended; `model` is its model folder once it is complete."""

    folder: Path
    step: int
    completed: bool
    scores: Scores | None = None
    model: Path | None = None
    signal: int | None = None


def pretrain(
    config: RunConfig, out: Path | str, resume: Resume = "auto", console: Console | None = None, quiet: bool = False
) -> RunResult:
    """Train to the end of the config's budget; call it again to go on where it was stopped.

    resume: `auto` goes on if the folder holds a run, `never` wants a new folder, `must` wants an old one.
    """
    world = world_from_environment()
    device = open_device(config.device, world.local_rank, world.local_size)
    if device.graphs == "on" and world.size > 1:
        raise ConfigError(f"device.graphs: on is for one process, and these are {world.size}; use auto")
    # Refused mistakes must not leave a folder behind, so it is looked at before it is made and locked.
    tokenizer = load_tokenizer(config)
    config = settle(config, tokenizer)
    advice = f" (init_from: {Path(out) / 'model'} begins from its weights once it is complete)"
    resuming = check_folder(Path(out), config, resume, FREE_ON_RESUME, advice)
    data = Data(config, tokenizer)
    with (
        connect(world, device.device),
        # After that: if the main process failed alone, the others would wait here and meet it in its next run.
        locked(Path(out), world.is_main),
        stop_on_signals() as stop,
    ):
        run = Run(config, Path(out), data, device, world, resuming, console, quiet)
        with contextlib.closing(run):
            return run.fit(stop)


class Run:
    """One process of a run."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        data: Data,
        device: Device,
        world: World,
        resuming: bool = False,
        console: Console | None = None,
        quiet: bool = False,
    ):
        self.config, self.folder, self.data, self.device, self.world = config, folder, data, device, world
        self.tokenizer = data.tokenizer
        self.micro_batches = config.micro_batches(world.size)

        first_step = checkpoint.steps(folder)[-1] if resuming else 0
        self.progress = Progress(config.steps, first_step, console=console, show=world.is_main and not quiet)
        for note in device.notes:
            self.progress.note(note)
        seed_everything(config.seed)
        self.model, notes = make_model(config, load=not resuming)
        self.model.to(device.device)
        for note in notes:
            self.progress.note(note, "yellow")
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(self.model, config)
        self.schedule = config.learning_rate()
        self.guard = Guard(config.guard, ADVICE)
        # `seconds` is the clock that decisions follow: the main process's, the same in all of them.
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        self.depth, self.length = self._stage_values()
        self._evaluated: tuple[int, Scores] | None = None
        self._plateau = PlateauWatch(self.schedule.warmup_steps)
        self._floors: dict[int, float] = {}  # by length
        if resuming:
            self._load(checkpoint.load(folder), resumed=True)
        check_same_step(self.step, world, device.device)
        copy_from_main(self.model.parameters(), world)
        self._clock_began = time.monotonic() - self.seconds
        self._saved_at = time.monotonic()

        speed_up(self.model, device)
        self.take_step = self._make_step()
        self.peak = measure_peak(device) if world.is_main else 0.0
        self.log: MetricsLog | None = None
        if world.is_main:
            begin(folder, config, resuming)
            board = folder / "tensorboard" if config.log.tensorboard else None
            self.log = MetricsLog(folder / "metrics.jsonl", self.step if resuming else None, board)
            if resuming:
                self.log.event(self.step, f"resumed at step {self.step}")
            write_facts(folder, self._facts(), completed=False)
        wait_for_all(world)
        self.model.encoder.set_depth(self.depth)
        self.feed = self._open_feed()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def fit(self, stop: StopRequest) -> RunResult:
        """Train until the budget is spent or somebody asks to stop."""
        config, meter = self.config, Meter(self)
        with self.progress:
            while not self._finished():
                self._enter_stage()
                if self.guard.is_bad(self.step):  # the run was rolled back because of this batch: leave it out
                    self.feed.take()
                    self.step += 1
                    continue
                totals, norm, self.seconds, stopping = self._forward_backward(stop.requested)
                verdict = self.guard.judge(self.step, totals.loss, norm)
                if verdict.action == "ok":
                    self._set_learning_rate()
                    self.optimizer.step()
                    meter.add(totals, norm)
                elif verdict.action == "stop":
                    self._event(verdict.reason)
                    raise TrainingStoppedError(verdict.reason)
                elif verdict.action == "rollback":
                    self._event(f"{verdict.reason}: back to the last checkpoint")
                    self._roll_back()
                    meter = Meter(self)
                    continue
                else:
                    self._event(f"{verdict.reason}: step skipped")
                self.take_step.clear()
                self.step += 1
                self.tokens += totals.tokens
                if self._every(config.log.report_every):
                    meter.write()
                if self._every(config.log.evaluate_every):
                    self.evaluate()
                if stopping or self._checkpoint_due():
                    self.save(must=stopping)
                if stopping:
                    self._event("stopped by a signal; the same command goes on from here")
                    number = int(stop.signal or signal.SIGTERM)  # another process may have got it
                    return RunResult(self.folder, self.step, completed=False, signal=number)
            meter.write()
        return self._finish()

    def _forward_backward(self, stop_requested: bool) -> tuple[StepTotals, float, float, bool]:
        """One global batch: gradients of the mean losses, whatever the number of micro-batches and processes."""
        if self.config.model.hidden_dropout_prob or self.config.model.attention_probs_dropout_prob:
            seed_everything(self.config.seed, self.step, self.world.rank)
        batches = self.feed.take()
        device = self.device.device
        counts = torch.tensor(
            [
                batches.masked,
                batches.pairs,
                batches.tokens,
                # Every process must stop, and read the clock, at the same step: these two ride along.
                float(stop_requested),
                time.monotonic() - self._clock_began if self.world.is_main else 0.0,
            ],
            device=device,
            dtype=torch.float64,
        )
        counts = sum_totals(counts, self.world)
        divisors = counts[:2].clamp(min=1).float()
        sums = torch.zeros(6, device=device)
        for inputs in batches.inputs:
            sums += self.take_step(inputs, divisors)
        while self.take_step.news:
            self._event(self.take_step.news.pop(0))
        sums = sum_gradients(self.parameters, sums, self.world)
        norm = clip_gradients(self.parameters, self.config.optim.clip or math.inf)
        if self.step + 1 < self.config.steps:
            self.feed.prepare()  # while the device is still busy
        values = torch.cat([sums, counts, norm[None]]).tolist()  # note: the one place where a step waits for the GPU
        scores, (_, _, tokens, stopping, seconds), norm_value = values[:6], values[6:11], values[11]
        return StepTotals(int(tokens), *scores), norm_value, seconds, stopping > 0

    def _enter_stage(self) -> None:
        depth, length = self._stage_values()
        if (depth, length) == (self.depth, self.length):
            return
        if length != self.length:
            self.feed.close()
            self.length = length
            self.feed = self._open_feed()
        if depth != self.depth:
            self.depth = depth
            self.model.encoder.set_depth(depth)
        self.take_step.renew()
        self.guard.forget()  # the loss may jump here
        self._event(f"depth {depth}, length {length}")

    def _stage_values(self) -> tuple[int, int]:
        share = self._progress()
        depth = value_at(self.config.depth, share) if self.config.depth else self.config.model.num_hidden_layers
        length = value_at(self.config.length, share) if self.config.length else self.config.recipe.max_length
        return depth, length

    def _set_learning_rate(self) -> None:
        lr = self.current_lr()
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def current_lr(self) -> float:
        """The learning rate of the step at hand; a clock may hasten the decay, but never the warm-up."""
        scheduled = learning_rate(self._progress() * self.config.steps, self.schedule)
        return min(scheduled, self.schedule.peak * (self.step + 1) / max(1, self.schedule.warmup_steps))

    def _progress(self) -> float:
        minutes = self.config.max_minutes
        return run_progress(self.step, self.config.steps, self.seconds, minutes * 60 if minutes else None)

    def _finished(self) -> bool:
        return self._progress() >= 1.0

    def _every(self, steps: int) -> bool:
        return bool(steps) and self.step % steps == 0

    # -- evaluation, checkpoints, the end ------------------------------------------------------------------------------

    def evaluate(self) -> Scores | None:
        """Held-out scores at the depth and the length of the stage: positions not trained yet would say nothing."""
        if self._evaluated is not None and self._evaluated[0] == self.step:
            return self._evaluated[1]
        started = time.monotonic()
        held_out = self.data.evaluation(self.length)
        if held_out is None:
            return None
        count = min(self.config.log.evaluate_batches, held_out.steps_per_epoch)
        scores = evaluate_batches(self.model, held_out, count, self.device, self.world)
        self._evaluated = self.step, scores
        if self.log is not None:
            self.log.write(self.step, {**scores.as_dict(), "tokens": self.tokens, "seconds": self.seconds}, kind="eval")
            parts = [f"held-out MLM {100 * scores.mlm_accuracy:.1f} %" if scores.mlm_accuracy is not None else ""]
            if scores.sentence_accuracy is not None:
                parts.append(f"order {100 * scores.sentence_accuracy:.1f} %")
            self.progress.note(f"step {self.step:,}  {'  '.join(parts)}  ({time.monotonic() - started:.1f} s)", "cyan")
            if scores.mlm_accuracy is not None:
                self._watch_plateau(scores.mlm_accuracy, held_out, count)
        return scores

    def _watch_plateau(self, accuracy: float, held_out: Batches, count: int) -> None:
        """Say so where a calm loss hides that nothing is learned."""
        if self.length not in self._floors:
            batches = (batch for batch in map(held_out.batch, range(count)) if isinstance(batch, Batch))
            self._floors[self.length] = commonest_share(batches)
        floor = self._floors[self.length]
        since = self._plateau.look(self.step, accuracy, floor)
        if since is not None:
            self._event(
                f"since step {since:,} masked words are guessed no better than by always answering the commonest token "
                f"({100 * floor:.1f} %): the model has not begun to read, or has collapsed. Lower optim.lr "
                f"({self.schedule.peak:g}), lengthen optim.warmup_steps ({self.schedule.warmup_steps:,}), or begin "
                "with fewer layers (depth). More under 'Fix a run that does not learn' in the docs"
            )

    def save(self, must: bool = False) -> None:
        """Write a checkpoint; a full disk ends the run only where it must not be lost now."""
        self._saved_at = time.monotonic()
        if not self.world.is_main:
            return
        state = {
            "config": to_dict(self.config),
            "tokenizer": self.tokenizer.fingerprint,
            "stores": self.data.fingerprints(),
            "tokens": self.tokens,
            "seconds": time.monotonic() - self._clock_began,
            "stage": [self.depth, self.length],
            "guard": self.guard.state(),
        }
        log = self.config.log
        try:
            checkpoint.save(
                self.folder,
                self.step,
                {name: tensor.detach() for name, tensor in self.model.state_dict().items()},
                moments(self.optimizer),
                state,
                keep_last=log.keep_last,
                keep_every=log.keep_every,
            )
        except checkpoint.CheckpointWriteError as error:
            if must or log.on_write_error == "stop":
                raise
            self._event(f"{error} The run goes on; the next checkpoint will be tried as usual.")

    def _checkpoint_due(self) -> bool:
        minutes = self.config.log.checkpoint_minutes
        by_clock = bool(minutes) and time.monotonic() - self._saved_at > 60 * minutes
        return self._every(self.config.log.checkpoint_every) or by_clock

    def _load(self, saved: checkpoint.Checkpoint, resumed: bool) -> None:
        for note in saved.notes:
            self.progress.note(note, "yellow")
        if saved.state.get("tokenizer") != self.tokenizer.fingerprint:
            raise ConfigError(
                f"{saved.folder}: trained with another tokenizer than {self.config.data.tokenizer}; "
                "resume with the tokenizer of the run, or start a new run in another folder"
            )
        if saved.state["stores"] != self.data.fingerprints():
            raise ConfigError(
                f"{saved.folder}: trained on other stores than {', '.join(self.config.data.stores)}; "
                "resume with those of the run, or start a new run in another folder"
            )
        self.model.load_state_dict(saved.model)
        load_moments(self.optimizer, saved.optimizer)
        self.step, self.tokens, self.seconds = saved.step, saved.state["tokens"], saved.state["seconds"]
        # The stage of the last step: if the next one is another, the loop enters it as the uninterrupted run did.
        self.depth, self.length = saved.state["stage"]
        if resumed:
            self.guard.restore(saved.state["guard"])
            self.progress.note(f"resuming at step {self.step:,} of {self.config.steps:,}", "bold")
        else:
            self.guard.rewind(saved.state["guard"])

    def _roll_back(self) -> None:
        wait_for_all(self.world)
        try:
            saved = checkpoint.load(self.folder)
        except CheckpointError:
            raise TrainingStoppedError(
                "a rollback is due, but there is no checkpoint to go back to yet; lower the learning rate"
            ) from None
        self._load(saved, resumed=False)
        if self.log is not None:
            events = self.log_events_after(self.step)
            self.log.rewind(self.step)
            for message in events:
                self.log.event(self.step, message)
        self._evaluated = None
        self._clock_began = time.monotonic() - self.seconds
        self.feed.close()
        self.model.encoder.set_depth(self.depth)
        self.take_step.renew()
        self.feed = self._open_feed()

    def log_events_after(self, step: int) -> list[str]:
        """Messages that a rollback to `step` would drop from the log, though people want to read them."""
        lines = read_metrics(self.folder / "metrics.jsonl")
        return [line["message"] for line in lines if line["kind"] == "event" and line["step"] > step]

    def _finish(self) -> RunResult:
        self.model.encoder.set_depth()
        self.length = self.data.last_length
        scores = self.evaluate()
        self.save(must=True)
        if self.step < (warmup := self.schedule.warmup_steps):
            self.progress.note(
                f"the time was over before the warm-up of {warmup:,} steps was: the rate never reached its peak. Give "
                f"it more minutes, or lower optim.warmup_steps (--dry-run says how many steps to expect)",
                "yellow",
            )
        model_folder = self.folder / "model"
        if self.world.is_main:
            # Uncompiled, since every sample has a shape of its own.
            plain = type(self.model)(self.config.model).to(self.device.device)
            plain.load_state_dict(self.model.state_dict())
            samples = fill_samples(plain, self.tokenizer, self.data, self.device)
            write_atomic(self.folder / "samples.json", json.dumps(samples, ensure_ascii=False, indent=1))
            save_model(self.model, model_folder)
            self.tokenizer.save(model_folder, max_length=self.data.longest)
            write_card(model_folder, self.config, scores, samples, self._facts())
            write_facts(self.folder, self._facts(), completed=True)
        wait_for_all(self.world)
        return RunResult(self.folder, self.step, completed=True, scores=scores, model=model_folder)

    def close(self) -> None:
        """Let go of workers and files."""
        self.feed.close()
        if self.log is not None:
            self.log.close()

    # -- small things --------------------------------------------------------------------------------------------------

    def _open_feed(self) -> Feed:
        stream = self.data.training(self.length).iterate(
            self.step,
            rank=self.world.rank,
            world=self.world.size,
            micro_batches=self.micro_batches,
            workers=self.config.data.workers,
            prefetch=max(4, 2 * self.micro_batches),
        )
        return Feed(stream, self.micro_batches, self.device.device, self.length)

    def _make_step(self) -> PlainStep:
        score = scorer(self.device)
        if self.device.graphs == "off" or self.world.size > 1:
            return PlainStep(self.model, self.device, score)
        return GraphStep(self.model, self.device, score, choose=self.device.graphs == "auto")

    def _event(self, message: str) -> None:
        self.progress.note(f"step {self.step:,}  {message}", "yellow")
        if self.log is not None:
            self.log.event(self.step, message)

    def _facts(self) -> dict[str, Any]:
        return {
            **describe_process(self.device, processes=self.world.size, peak_flops=self.peak),
            "parameters": self.model.num_parameters,
            "backbone_parameters": count_parameters(self.config.model).total,
            "objective": self.config.recipe.objective,
            "steps": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }


def check_same_step(step: int, world: World, device: torch.device) -> None:
    """Every process must have found the same checkpoint: a run's folder has to be one that all of them see."""
    total = sum_totals(torch.tensor([float(step)], dtype=torch.float64, device=device), world)
    if int(total.item()) != step * world.size:
        raise ConfigError(
            f"process {world.rank} is at step {step}, others are not: the run's folder must be on a disk that all "
            "machines share"
        )
