"""A pretraining run: token stores -> masked batches -> a model that fills masks and knows the order of sentences.

RUN/
  config.yaml, run.json, metrics.jsonl, checkpoints/     as in every run (train/trainer.py)
  model/          the final model folder                 samples.json   masks it filled
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from litebert.errors import ConfigError
from litebert.files import write_atomic
from litebert.model.count import count_parameters, forward_flops
from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.pretraining.batches import Batches, shift_positions
from litebert.pretraining.config import FREE_ON_RESUME, RunConfig, choose_config
from litebert.pretraining.data import Data, load_tokenizer, settle
from litebert.pretraining.draws import make_key
from litebert.pretraining.evaluate import (
    PlateauWatch,
    Scores,
    commonest_share,
    evaluate_batches,
    fill_samples,
    write_card,
)
from litebert.pretraining.objective import (
    Detection,
    Inputs,
    make_model,
    report_detection,
    run_exits,
    run_model,
    scorer,
    to_device,
    weigh,
)
from litebert.train.checkpoint import Checkpoint
from litebert.train.device import Device, measure_peak, seed_everything, speed_up
from litebert.train.folder import Resume, check_folder
from litebert.train.learner import Change, Evaluation, Learner, StepBatches
from litebert.train.log import StepTotals
from litebert.train.optimizer import make_optimizer
from litebert.train.processes import World
from litebert.train.schedule import draw_depth, learning_rate, loss_shares, value_at
from litebert.train.trainer import Trainer, alone_in, open_machine


@dataclass(frozen=True)
class RunResult:
    """How a run ended; `model` is its model folder if it is complete."""

    folder: Path
    step: int
    completed: bool
    scores: Scores | None = None
    model: Path | None = None
    signal: int | None = None


def pretrain(
    config: RunConfig | Mapping[str, Any] | Path | str | None = None,
    out: Path | str | None = None,
    resume: Resume = "auto",
    console: Console | None = None,
    quiet: bool = False,
    *,
    store: Path | str | Sequence[Path | str] | None = None,
    tokenizer: Path | str | None = None,
    minutes: float | None = None,
    device: str | None = None,
    settings: Sequence[str] = (),
) -> RunResult:
    """Train to the end of the config's budget; call it again to resume.

    pretrain(store="store", tokenizer="vocab", minutes=10, out="runs/mine")
    pretrain("gpu/albert-base", store=["wiki", "books"], tokenizer="vocab", out="runs/base")

    config: a RunConfig, its plain data, a YAML file or a preset's name; by default the preset that suits this machine.
    Other arguments override it, then `settings` such as "optim.lr=1e-3".
    resume: `auto` continues a run in the folder, `never` refuses one, `must` requires one.
    """
    if out is None:
        raise ConfigError("out: must name the run folder")
    config = choose_config(config, store, tokenizer, minutes, device, settings)
    out = Path(out)
    world, hardware = open_machine(config.device)
    # Check before the folder is made and locked, so that a mistake leaves no folder behind.
    vocabulary = load_tokenizer(config)
    config = settle(config, vocabulary)
    advice = f" (init_from={out / 'model'} starts from this run's final weights)"
    resuming = check_folder(out, config, resume, FREE_ON_RESUME, advice)
    data = Data(config, vocabulary)
    with alone_in(out, world, hardware) as stop:
        learner = Pretraining(config, data, hardware, world, load=not resuming)
        with Trainer(learner, config, out, hardware, world, resuming, console, quiet) as trainer:
            signal = trainer.fit(stop)
            if signal is not None:
                return RunResult(out, trainer.step, completed=False, signal=signal)
            model = learner.finish(trainer)
            return RunResult(out, trainer.step, completed=True, scores=learner.scores, model=model)


class StageSettings(NamedTuple):
    """Settings that may change during a run."""

    depth: int
    length: int
    mask_rate: float
    batch_tokens: int

    def describe(self, before: StageSettings) -> str:
        """Depth and length, and what else has changed."""
        parts = [f"depth {self.depth}, length {self.length}"]
        if self.mask_rate != before.mask_rate:
            parts.append(f"masks {100 * self.mask_rate:g} %")
        if self.batch_tokens != before.batch_tokens:
            parts.append(f"batches of {self.batch_tokens:,} tokens")
        return ", ".join(parts)


class Pretraining(Learner):
    """Masked LM and sentence order on packed batches; depth, length, masks and batches may change over the run."""

    model: PretrainingModel
    advice = (
        "Lower the learning rate (it scales with the square root of the batch size), lengthen the warm-up, "
        "or start with fewer layers (a depth schedule)."
    )

    def __init__(self, config: RunConfig, data: Data, device: Device, world: World, load: bool = True):
        self.config, self.data, self.device, self.world = config, data, device, world
        config.micro_batches(world.size)  # refuse a batch that the processes cannot share
        seed_everything(config.seed)
        self.model, notes = make_model(config, load)
        self.detection: Detection | None = None
        if config.detection.share:
            self.detection = self.model.detection = Detection(self.model, config.detection, data.tokenizer)
        self.model.to(device.device)
        self.notes = [(note, "yellow") for note in notes]
        self.schedule = config.learning_rate()
        beside = {"detection.": config.detection.lr_factor}
        self.optimizer = make_optimizer(self.model, config.optim, self.schedule.peak, beside=beside)
        self.num_steps = config.steps
        self.max_seconds = 60 * config.max_minutes if config.max_minutes else None
        self.max_tokens = config.max_tokens
        dropout = config.model.hidden_dropout_prob or config.model.attention_probs_dropout_prob
        self.draws = bool(dropout or config.detection.share)
        self.random_depth = bool(config.exits) and config.exit_loss == "random"
        self.graphs = "off" if self.random_depth else device.graphs  # one recording, one depth
        self.score = scorer(device)
        self.peak = 0.0
        self.scores: Scores | None = None
        self._plateau = PlateauWatch(self.schedule.warmup_steps)
        self._floors: dict[int, float] = {}  # by length
        self._set_stage(self._stage(0.0))

    def prepare(self, step: int) -> None:
        """Use the fast layers; measure the peak."""
        speed_up(self.model, self.device)
        if self.detection is not None and self.device.compile:
            self.detection.compile_scores()
        self.peak = measure_peak(self.device) if self.world.is_main else 0.0

    # -- one step ------------------------------------------------------------------------------------------------------

    def batches(self, step: int) -> Iterator[StepBatches]:
        """Micro-batches of the stage's length, made ahead by other processes."""
        _, length, mask_rate, batch_tokens = self.stage
        count = self.config.micro_batches(self.world.size, batch_tokens)
        stream = self.data.training(length, mask_rate, batch_tokens).iterate(
            step,
            rank=self.world.rank,
            world=self.world.size,
            micro_batches=count,
            workers=self.config.data.workers,
            prefetch=max(4, 2 * count),
        )
        room = self.config.model.max_position_embeddings - length
        shift = self.config.position_offset == "random" and room > 0
        with stream:
            for number in itertools.count(step):
                batches = [next(stream) for _ in range(count)]
                if shift:
                    key = make_key(self.config.seed, number)
                    batches = [shift_positions(batch, room, key) for batch in batches]
                masked = sum(int((batch.labels >= 0).sum()) for batch in batches)
                pairs = sum(int((batch.order >= 0).sum()) for batch in batches)
                tokens = sum(int(batch.starts[batch.num_sequences]) for batch in batches)
                drawn = number if self.random_depth else None
                inputs = [to_device(batch, self.device.device, length, drawn) for batch in batches]
                yield StepBatches(inputs, (masked, pairs, tokens), tokens)

    def loss(self, inputs: Inputs, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the two mean losses, unweighted; the six `Totals` as sums.

        With exits, that sum at each of them by its share, and the totals of the deepest.
        """
        if self.detection is not None:
            return self._detection_loss(self.detection, inputs, counts)
        shares = self._shares()
        if inputs.step is not None:  # until it has learned: the fast layers look there on their way back
            self.model.encoder.stop_after(draw_depth(shares, self.config.seed, inputs.step))
        if not self.config.exits or inputs.step is not None:
            return weigh(self.score(run_model(self.model, inputs), inputs), counts)
        found = [weigh(self.score(out, inputs), counts) for out in run_exits(self.model, inputs, tuple(shares))]
        losses = [share * loss for share, (loss, _) in zip(shares.values(), found, strict=True)]
        return torch.stack(losses).sum(), found[-1][1]

    def _detection_loss(self, detection: Detection, inputs: Inputs, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The two losses, the generator's, and that of every token; the sums of `DetectionTotals` follow."""
        output, detected = detection(self.model, inputs)
        loss, sums = weigh(self.score(output, inputs), counts)
        loss = loss + detected.generator_loss / counts[0] + self.config.detection.weight * detected.loss / counts[2]
        return loss, torch.cat([sums, detected.stacked()])

    def _shares(self) -> dict[int, float]:
        """How much each exit of the stage counts."""
        return loss_shares(self.config.exits, self.config.exit_weights, self.stage.depth)

    def mean_loss(self, totals: StepTotals) -> float:
        """The sum of the two mean losses, unweighted."""
        mlm_loss, _, mlm_count, sentence_loss, _, sentence_count = totals.sums[:6]
        return mlm_loss / max(mlm_count, 1) + sentence_loss / max(sentence_count, 1)

    def learning_rate(self, step: int, share: float) -> float:
        """A clock may hasten the decay, but never the warm-up."""
        scheduled = learning_rate(share * self.num_steps, self.schedule) * value_at(self.config.lr_factor, share, 1.0)
        return min(scheduled, self.schedule.peak * (step + 1) / max(1, self.schedule.warmup_steps))

    def enter(self, share: float) -> Change | None:
        """Another depth, length, mask rate or batch."""
        stage, before = self._stage(share), self.stage
        if stage == before:
            return None
        cold = self.config.position_offset == "none"  # otherwise every position has been trained
        if stage.length > before.length and self.config.new_positions == "copy" and cold:
            self._copy_positions(before.length, stage.length)
        self._set_stage(stage)
        return Change(stage.describe(before), batches=stage[1:] != before[1:])

    def _stage(self, share: float) -> StageSettings:
        config = self.config
        return StageSettings(
            value_at(config.depth, share, config.model.num_hidden_layers),
            value_at(config.length, share, config.recipe.max_length),
            value_at(config.mask_rate, share, config.recipe.mask_rate),
            value_at(config.batch_ramp, share, config.batch_tokens),
        )

    def _set_stage(self, stage: StageSettings) -> None:
        self.stage = stage
        self.model.encoder.set_depth(stage.depth)

    def _copy_positions(self, known: int, length: int) -> None:
        """Positions from `known` on start as those that are learned, over and over (as Longformer began)."""
        table = self.model.encoder.embeddings.position.weight
        with torch.no_grad():
            table[known:length] = table[torch.arange(known, length, device=table.device) % known]

    # -- reports, evaluation, checkpoints ------------------------------------------------------------------------------

    def report(self, steps: Sequence[StepTotals], seconds: float) -> dict[str, float]:
        """Losses and accuracies of both objectives, the stage, and the share of the machine's peak."""
        sums = [sum(column) for column in zip(*(step.sums for step in steps), strict=True)]
        mlm_loss, mlm_correct, mlm_count, loss, correct, count = sums[:6]
        values = {"mlm_loss": mlm_loss / max(mlm_count, 1), "mlm_accuracy": mlm_correct / max(mlm_count, 1)}
        if count:
            values |= {"sentence_loss": loss / count, "sentence_accuracy": correct / count}
        if self.detection is not None:
            values |= report_detection(sums[6:], mlm_count)
        depth, length, mask_rate, _ = self.stage
        values |= {"depth": depth, "length": length}
        if self.config.mask_rate:
            values["mask_rate"] = mask_rate
        if self.peak:
            rate = sum(step.tokens for step in steps) / seconds
            flops = 3 * forward_flops(self.config.model, length, depth, mask_rate) * rate
            # It was measured at the start; where others used the machine then, it may turn out to be higher.
            self.peak = max(self.peak, flops / self.world.size)
            values["share_of_peak"] = flops / (self.peak * self.world.size)
        return values

    def evaluate(self, step: int) -> Evaluation | None:
        """Held-out scores at the depth and the length of the stage: positions not trained yet would say nothing."""
        held_out = self.data.evaluation(self.stage.length)
        if held_out is None:
            return None
        count = min(self.config.log.evaluate_batches, held_out.steps_per_epoch)
        self.model.encoder.set_depth(self.stage.depth)  # not that of a random step
        self.scores = scores = evaluate_batches(self.model, held_out, count, self.device, self.world)
        shown = []
        if scores.mlm_accuracy is not None:
            shown.append(f"held-out MLM {100 * scores.mlm_accuracy:.1f} %")
        if scores.sentence_accuracy is not None:
            shown.append(f"order {100 * scores.sentence_accuracy:.1f} %")
        return Evaluation(scores.as_dict(), "  ".join(shown), self._watch_plateau(step, scores, held_out, count))

    def _watch_plateau(self, step: int, scores: Scores, held_out: Batches, count: int) -> list[str]:
        """Say so where a calm loss hides that nothing is learned."""
        if scores.mlm_accuracy is None or not self.world.is_main:
            return []
        length = self.stage.length
        if length not in self._floors:
            self._floors[length] = commonest_share(map(held_out.batch, range(count)))
        floor = self._floors[length]
        since = self._plateau.look(step, scores.mlm_accuracy, floor)
        if since is None:
            return []
        return [
            f"since step {since:,} the model fills masks no better than by always predicting the most frequent token "
            f"({100 * floor:.1f} %): it has not started to learn, or has collapsed. Lower optim.lr "
            f"({self.schedule.peak:g}), lengthen optim.warmup_steps ({self.schedule.warmup_steps:,}), or start "
            "with fewer layers (depth). See 'Fix a run that does not learn' in the docs"
        ]

    def state(self) -> dict[str, Any]:
        """What identifies the data, the stage, and the last scores."""
        return {
            "tokenizer": self.data.tokenizer.fingerprint,
            "stores": self.data.fingerprints(),
            # Of the last step: if the next one is another, the loop enters it as the uninterrupted run does.
            "stage": list(self.stage),
            "scores": self.scores.as_dict() if self.scores else None,
        }

    def restore(self, saved: Checkpoint) -> None:
        """Weights, stage and scores, if the data are the same."""
        if saved.state.get("tokenizer") != self.data.tokenizer.fingerprint:
            raise ConfigError(
                f"{saved.folder}: trained with another tokenizer than {self.config.data.tokenizer}; resume with the "
                "run's own tokenizer, or start a new run in another folder"
            )
        self.data.check_stores(saved.state.get("stores"), saved.folder)
        self.model.load_state_dict(saved.model)
        # Older checkpoints hold depth and length.
        self._set_stage(StageSettings(*saved.state["stage"], *self._stage(0.0)[len(saved.state["stage"]) :]))
        scores = saved.state.get("scores")
        self.scores = Scores(**{**dict.fromkeys(Scores.__dataclass_fields__), **scores}) if scores else None

    def facts(self, step: int) -> dict[str, Any]:
        """Parameters and the objective."""
        beside = sum(p.numel() for p in self.detection.parameters()) if self.detection is not None else 0
        return {
            "parameters": self.model.num_parameters - beside,
            "backbone_parameters": count_parameters(self.config.model).total,
            "objective": self.config.recipe.objective,
        }

    def hardware(self) -> dict[str, Any]:
        """The measured peak."""
        return {"peak_flops": self.peak}

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, trainer: Trainer) -> Path:
        """Score the whole model, save it with its card and some masks that it fills; the model folder."""
        self._set_stage(self.stage._replace(depth=self.config.model.num_hidden_layers, length=self.data.last_length))
        trainer.evaluate()
        trainer.save(must=True)
        if trainer.step < (warmup := self.schedule.warmup_steps):
            trainer.progress.note(
                f"the run ended during the warm-up of {warmup:,} steps, so the rate never reached its peak. Give "
                "it more time, or lower optim.warmup_steps (a dry run shows how many steps to expect)",
                "yellow",
            )
        folder = trainer.folder / "model"
        if self.world.is_main:
            # Uncompiled, since every sample has a different shape; without what only the run needed.
            plain = type(self.model)(self.config.model).to(self.device.device)
            weights = self.model.state_dict()
            plain.load_state_dict({name: tensor for name, tensor in weights.items() if name in plain.state_dict()})
            samples = fill_samples(plain, self.data.tokenizer, self.data, self.device)
            write_atomic(trainer.folder / "samples.json", json.dumps(samples, ensure_ascii=False, indent=1))
            save_model(plain, folder)
            if self.detection is not None:
                self.detection.save(trainer.folder)
            self.data.tokenizer.save(folder, max_length=self.data.longest)
            write_card(folder, self.config, self.scores, samples, trainer.facts())
        trainer.complete()
        return folder
