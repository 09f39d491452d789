"""A fine-tuning run: a model and labelled examples -> a scored model folder; resumable at any time.

RUN/
  config.yaml, run.json, metrics.jsonl, checkpoints/    as in every run (train/trainer.py)
  best/          the model folder that was chosen       scores.json    its scores on dev, with intervals
  adapter/       of a run with an adapter: it and the head alone, in PEFT's format (best/ has it merged)
  predictions/   of dev (and test)                      report.html    everything on one page
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from torch import Tensor

from litebert.config import given, read_yaml, to_dict
from litebert.errors import ConfigError
from litebert.files import staged_folder
from litebert.finetuning.baselines import compare_with_baselines, write_baselines
from litebert.finetuning.batches import TrainingBatches
from litebert.finetuning.card import write_card
from litebert.finetuning.config import FREE_ON_RESUME, FinetuneConfig, config_from
from litebert.finetuning.contrast import Contrast, Whole, make_contrast
from litebert.finetuning.data import Data, Split, open_tokenizer, read_data
from litebert.finetuning.head_only import check_kind, fit_head
from litebert.finetuning.model import Tensors, batch_loss, layout_for, make_model, to_device
from litebert.finetuning.results import Scores, predict_split, read_scores, score_split, write_predictions, write_scores
from litebert.machine import announces_bf16
from litebert.model.adapter import add_adapter, belongs_to, load_adapter, merge_adapter, save_adapter
from litebert.model.config import AdapterConfig, alpha_divisor, check_exits, load_config
from litebert.model.fast.layers import FastLayers
from litebert.model.heads import Model
from litebert.model.hub import save_model
from litebert.remote import DEFAULT, find_folder
from litebert.tasks.decode import write_submission
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import goodness
from litebert.tasks.read import named_tasks, read_task
from litebert.tasks.sentence_folder import write_sentence_files
from litebert.tasks.task import Task, TaskData, kind_of, save_task
from litebert.train.checkpoint import Checkpoint
from litebert.train.device import Device, seed_everything, speed_up
from litebert.train.folder import Resume, check_config, check_folder
from litebert.train.learner import Evaluation, Learner, StepBatches
from litebert.train.log import StepTotals
from litebert.train.optimizer import make_optimizer
from litebert.train.processes import World
from litebert.train.schedule import draw_depth, learning_rate, loss_shares
from litebert.train.trainer import Trainer, alone_in, open_machine

BEST = "best."  # prefix of the best weights so far in a checkpoint
COMPILE_STEPS = 2000  # compiling takes longer than a shorter run


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
    config: FinetuneConfig | Mapping[str, Any] | Path | str | None = None,
    out: Path | str | None = None,
    resume: Resume = "auto",
    console: Console | None = None,
    quiet: bool = False,
    data: Data | TaskData | None = None,
    *,
    task: str | None = None,
    train: Any = None,
    dev: Any = None,
    test: Any = None,
    columns: Mapping[str, str] | None = None,
    model: Path | str | None = None,
    preset: str | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    lr: float | None = None,
    max_length: int | None = None,
    device: str | None = None,
    seed: int | None = None,
    adapter: int | None = None,
    few: bool | None = None,
    head_only: bool | None = None,
    pairs: str | None = None,
    settings: Sequence[str] = (),
) -> FinetuneResult:
    """Train to the end and keep the weights that score best on dev; call it again to resume.

    finetune(task="classification", train="train.csv", dev="dev.csv", out="runs/mine")
    finetune(task="classification", train=frame, dev=other_frame, epochs=3, out="runs/mine")

    config: a FinetuneConfig, its plain data or a YAML file. Other arguments override it, then `settings` such as
    "optim.beta2=0.98". `out` is runs/TASK by default; a complete run is left as it is.
    train, dev, test: files, or rows in memory: a list of dictionaries or tuples, a pair (texts, labels), a dictionary
    of columns, a pandas or polars DataFrame, an Arrow table, a split of `datasets`; `columns` names their roles,
    {"text": "review"}.
    adapter: train a LoRA adapter of this rank. few, head_only, pairs: as the options of `litebert finetune`.
    data: your own task with its examples instead of files (or data already read, for another seed).
    """
    _check_config(config)
    files = {"train": train, "dev": dev, "test": test}
    in_memory = any(not isinstance(rows, str | Path | None) for rows in files.values())
    paths = {} if in_memory else files
    choices = {
        "task": task,
        "data": {**paths, "columns": columns},
        "model": model,
        "preset": preset,
        "epochs": epochs,
        "batch": batch,
        "optim": {"lr": lr},
        "max_length": max_length,
        "device": {"device": device},
        "seed": seed,
        "adapter": None if adapter is None else {"rank": adapter},
        "few": few,
        "head_only": head_only,
        "similarity": {"pairs": pairs},
    }
    if not isinstance(config, FinetuneConfig) or given(choices) or settings:
        config = config_from(choices, to_dict(config) if isinstance(config, FinetuneConfig) else config, settings)
    if in_memory:
        data = read_task(config.task, **files, columns=config.data.columns or None, encoding=config.data.encoding)
    return train_model(config, out if out is not None else Path("runs") / config.task, resume, console, quiet, data)


def _check_config(config: Any) -> None:
    """Refuse a task or data in the place of a config."""
    if not isinstance(config, FinetuneConfig | Mapping | Path | str | None):
        got = type(config).__name__
        raise ConfigError(f"config: expected a YAML file or settings, got {got}; name the data: train=..., dev=...")
    if isinstance(config, str) and not Path(config).exists() and config in (*named_tasks(), *KINDS):
        raise ConfigError(f"{config}: no such config file; to name a task: task={config!r}")


def train_model(
    config: FinetuneConfig,
    out: Path | str,
    resume: Resume = "auto",
    console: Console | None = None,
    quiet: bool = False,
    data: Data | TaskData | None = None,
) -> FinetuneResult:
    """The run of a complete config in its folder."""
    out = Path(out)
    if isinstance(data, TaskData):
        config = dataclasses.replace(config, task=data.task.name)
    done = finished_run(out, config, console or Console(quiet=quiet))
    if done is not None and resume != "never":
        return done
    world, device = open_machine(config.device)
    if config.batch < world.size:
        raise ConfigError(f"batch: {config.batch} examples for {world.size} processes; each needs at least one")
    # Refused mistakes must not leave a folder behind, so it is looked at before it is made and locked.
    if not isinstance(data, Data):
        data = read_data(config, open_tokenizer(config.model), load_config(config.model), data)
    if config.head_only:
        check_kind(data.task)
    if config.few and kind_of(data.task).says != "label":
        raise ConfigError(f"few: learns which texts share a label, so it is for classification, not {data.task.kind}")
    resuming = check_folder(out, config, resume, FREE_ON_RESUME)
    _ = data.train  # read now: a mistake in the files must not leave a folder either
    shape = load_config(config.model)
    if config.exits and kind_of(data.task).compares:
        raise ConfigError(f"exits: not for {data.task.kind}, which has no head; its vectors are available at any depth")
    check_exits(config.exits, shape.num_hidden_layers)
    _contrast_of(config, data, world)
    with alone_in(out, world, device) as stop:
        learner = Finetuning(config, data, device, world)
        with Trainer(learner, config, out, device, world, resuming, console, quiet) as trainer:
            if world.is_main:
                write_baselines(out, data)
            signal = None if config.head_only else trainer.fit(stop)
            if signal is not None:
                return FinetuneResult(out, trainer.step, completed=False, signal=signal)
            if config.head_only or config.few:
                found = fit_head(learner.model, data.task, data.train, device, config.seed)
                trainer.event(found.describe())
            scores = learner.finish(trainer)
            return FinetuneResult(out, trainer.step, True, scores, out / "best")


def finished_run(folder: Path, config: FinetuneConfig, console: Console) -> FinetuneResult | None:
    """The result of a complete run; None if there is none, an error if it had another config."""
    scores = read_scores(folder)
    if scores is None:
        return None
    try:
        saved = read_yaml(folder / "config.yaml")
    except ConfigError as error:  # lost or damaged, but the run is complete all the same
        console.print(f"{error}; the run is complete, so its model is kept", style="yellow", markup=False)
        saved = None
    check_config(folder, saved, config, FREE_ON_RESUME)
    return FinetuneResult(folder, scores.step, completed=True, scores=scores, model=folder / "best")


def _contrast_of(config: FinetuneConfig, data: Data, world: World) -> Contrast | None:
    """The loss of a run that compares the examples of a batch; None if its loss is a sum over them."""
    if not (config.few or kind_of(data.task).compares):
        return None
    return make_contrast(config, data, load_config(config.model), world)


def _adapt(model: Model, adapter: AdapterConfig, task: Task) -> list[str]:
    """Add a new adapter to the model, or one to continue from; the pooler gets none if nothing reads it.

    Notes for the user are returned.
    """
    if adapter.start is not None:
        start = find_folder(adapter.start)
        found = load_adapter(model, start, learning=True)
        own = belongs_to(start, model)
        if found.per_application != adapter.per_application:
            raise ConfigError(f"adapter: {adapter.start} has per_application: {str(found.per_application).lower()}")
        if found.rslora != adapter.rslora:
            raise ConfigError(f"adapter: {adapter.start} has rslora: {str(found.rslora).lower()}")
        if found.rank != adapter.rank or not math.isclose(found.scale, adapter.scale):
            divisor = alpha_divisor(adapter.rank, adapter.rslora)
            raise ConfigError(
                f"adapter: {adapter.start} has rank {found.rank} and alpha {found.alpha:g}, the config "
                f"{adapter.rank} and {adapter.scale * divisor:g}; they must be equal to continue from it"
            )
        return [] if own else [f"{adapter.start} was trained on other weights, so it is only a beginning here"]
    if kind_of(task).compares:
        targets = tuple(name for name in adapter.targets if name != "pooler")
        if not targets:
            raise ConfigError("adapter: targets: similarity does not read the pooler; name another matrix")
        adapter = dataclasses.replace(adapter, targets=targets)
    add_adapter(model, adapter)
    return []


def _lasting_name(model: str) -> str:
    """A model's name for an adapter that refers to it from any folder: a path becomes absolute."""
    path = Path(model).expanduser()
    return str(path.absolute()) if model != DEFAULT and path.exists() else model


class Inputs(NamedTuple):
    """A micro-batch on the device."""

    inputs: Tensors
    targets: Tensors
    max_length: int
    num_rows: int
    depth: int | None = None  # of the one exit that learns in this step; None: all of them


def weigh(loss: Tensor, right: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """A micro-batch's part of the mean loss, given the whole batch's count [1]; and [loss sum, number right]."""
    return loss * counts[0].double().reciprocal().float(), torch.stack([loss.detach().float(), right.float()])


WIDE = 512  # hidden size from which a CPU saves more by bf16 than it spends on rounding


class Finetuning(Learner):
    """One task's loss on batches of its examples; the weights that score best on dev are kept."""

    check_graphs = False

    def __init__(self, config: FinetuneConfig, data: Data, device: Device, world: World):
        self.config, self.data, self.device, self.world, self.task = config, data, device, world, data.task
        self.notes = [(note, "") for note in data.all_notes()] + [(warning, "yellow") for warning in data.warnings()]
        self.contrast = _contrast_of(config, data, world)
        start = config
        if self.contrast is not None:
            self.notes += [(note, "") for note in self.contrast.notes]
            start = dataclasses.replace(config, dropout=self.contrast.dropout)
        seed_everything(config.seed)
        self.model, new = make_model(start, data.task)
        auto = config.device.precision == "auto" and not device.is_cuda
        if auto and self.model.config.hidden_size >= WIDE and announces_bf16():
            self.notes.append(("this CPU multiplies in bf16, which is faster: device.precision=bf16", ""))
        optim = config.optim
        if config.adapter is not None:
            if any(name.startswith("encoder.") for name in new):
                raise ConfigError(
                    f"adapter: {config.model} has no pooler, which this task reads; fine-tune the whole model"
                )
            self.notes += [(note, "yellow") for note in _adapt(self.model, config.adapter, self.task)]
            optim = dataclasses.replace(optim, freeze="encoder")
        self.model.to(device.device)
        self.optimizer = make_optimizer(self.model, optim, optim.lr, new)
        # Counted now: at the end an adapter is merged, and then everything counts as learning.
        self.learning = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        shape = self.model.config
        attention_dropout = shape.attention_probs_dropout_prob if config.optim.freeze != "encoder" else 0.0
        self.training = TrainingBatches(data, config, layout_for(device, attention_dropout))
        self.num_steps = config.num_steps(len(self.training.units))
        self.schedule = config.learning_rate(max(1, self.num_steps))
        self.draws = max(shape.hidden_dropout_prob, attention_dropout, shape.classifier_dropout_prob or 0.0) > 0
        self.shares = loss_shares(config.exits, config.exit_weights) if config.exits else None
        self.random_depth = self.shares is not None and config.exit_loss == "random"
        self.graphs = "on" if self._records() and not self.random_depth else "off"  # one recording, one depth
        self.best: dict[str, Tensor] = {}
        self.best_value, self.best_step, self.worse_in_a_row = -math.inf, 0, 0
        self.compiled = False
        self._set_training_mode()

    def prepare(self, step: int) -> None:
        """Use the fast layers if possible, otherwise compile if it pays; plan the shapes of recorded steps."""
        shape = self.model.config
        drops = max(shape.hidden_dropout_prob, shape.attention_probs_dropout_prob) > 0
        self.model.encoder.recompute = self.device.recompute
        if self.training.layout == "packed":
            fast = self.device.fast_layers and not drops and FastLayers.fits(self.model.encoder)
            long = self.config.device.compile == "on" or self.num_steps - step >= COMPILE_STEPS
            self.compiled = self.device.compile and long and not fast and self.contrast is None
            speed_up(self.model, dataclasses.replace(self.device, compile=self.compiled))
        if self.graphs == "on":
            self.training.plan(self.num_steps)

    def _records(self) -> bool:
        alone = self.world.size == 1 and self.contrast is None
        return self.device.is_cuda and alone and self.config.device.graphs != "off"

    def _set_training_mode(self) -> None:
        self.model.train()
        if self.config.optim.freeze == "encoder":
            self.model.encoder.eval()  # features do not drop out

    # -- one step ------------------------------------------------------------------------------------------------------

    def batches(self, step: int) -> Iterator[StepBatches]:
        """The examples of each step in micro-batches."""
        for number in itertools.count(step):
            batches = self.training.step(number, self.world.rank, self.world.size)
            depth = draw_depth(self.shares, self.config.seed, number) if self.shares and self.random_depth else None
            inputs = [Inputs(*to_device(b, self.device.device), b.max_length, b.num_rows, depth) for b in batches]
            count, tokens = sum(batch.count for batch in batches), sum(batch.num_tokens for batch in batches)
            if self.contrast is not None:  # examples of a file smaller than a batch are in it more than once
                count = sum(batch.num_rows for batch in batches) // self.contrast.texts
            yield StepBatches(inputs if self.contrast is None else [Whole(tuple(inputs))], (count,), tokens)

    def loss(self, inputs: Inputs | Whole, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss; its sum and the number of right answers as sums."""
        if isinstance(inputs, Whole):
            assert self.contrast is not None
            return self.contrast(self.model, inputs)
        if inputs.depth is not None:
            self.model.set_depth(inputs.depth)  # until it has learned: the fast layers look there on their way back
        shares = self.shares if inputs.depth is None else None
        batch = (inputs.inputs, inputs.targets, inputs.max_length, inputs.num_rows)
        return weigh(*batch_loss(self.model, self.task.kind, *batch, shares), counts)

    def mean_loss(self, totals: StepTotals) -> float:
        """The mean over examples (or tags)."""
        return totals.sums[0] / max(totals.counts[0], 1)

    def learning_rate(self, step: int, share: float) -> float:
        """By the schedule."""
        return learning_rate(step, self.schedule)

    def satisfied(self) -> bool:
        """Whether patience is over."""
        return 0 < self.config.patience <= self.worse_in_a_row

    # -- reports, evaluation, checkpoints ------------------------------------------------------------------------------

    def report(self, steps: Sequence[StepTotals], seconds: float) -> dict[str, float]:
        """The share of correct predictions, if meaningful, and the speed."""
        values = {"examples_per_second": sum(step.counts[0] for step in steps) / seconds}
        if kind_of(self.task).counts_right and self.contrast is None:
            values["train_accuracy"] = sum(step.sums[1] / max(step.counts[0], 1) for step in steps) / len(steps)
        return values

    def evaluate(self, step: int) -> Evaluation | None:
        """Score dev, and keep the weights if they are the best so far (of ties the first)."""
        if not self.data.dev or not self.data.dev[0].is_labelled or self.config.few:  # whose head comes last
            return None
        values: dict[str, float] = {}
        self.model.set_depth(None)
        for number, split in enumerate(self.data.dev):
            predictions = predict_split(self.model, self.task, split, self.device, self.compiled, self.world)
            scores = score_split(self.task, split, predictions, resamples=0).scores
            prefix = "" if number == 0 else f"{split.name}/"
            values |= {f"{prefix}{name}": metric.value for name, metric in scores.items()}
        self._set_training_mode()
        value = goodness(self.task.metrics[0], values[self.task.metrics[0]])
        better = value > self.best_value or not self.best
        if better:
            self.best_value, self.best_step, self.worse_in_a_row = value, step, 0
            self.best = {name: tensor.clone() for name, tensor in self._learned().items()}
        else:
            self.worse_in_a_row += 1
        shown = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        return Evaluation(values, f"dev {shown}" + "  best so far" * better)

    def state(self) -> dict[str, Any]:
        """Fingerprints of the data, and how the best weights so far were chosen."""
        return {
            "tokenizer": self.data.tokenizer.fingerprint,
            "data": self.data.fingerprint,
            "best_value": self.best_value if self.best else None,
            "best_step": self.best_step,
            "worse_in_a_row": self.worse_in_a_row,
        }

    def weights(self) -> dict[str, Tensor]:
        """The weights, and the best so far."""
        return self._learned() | {f"{BEST}{name}": tensor for name, tensor in self.best.items()}

    def _learned(self) -> dict[str, Tensor]:
        """All weights; with an adapter, those it changes."""
        learned = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        state = {name: tensor.detach() for name, tensor in self.model.state_dict().items()}
        return state if self.config.adapter is None else {name: state[name] for name in sorted(learned)}

    def restore(self, saved: Checkpoint) -> None:
        """Restore the weights and the best so far, if the data are the same."""
        for what, now in (("tokenizer", self.data.tokenizer.fingerprint), ("data", self.data.fingerprint)):
            if saved.state[what] != now:
                raise ConfigError(
                    f"{saved.folder}: the run's {what} has changed; restore it, or start a new run in another folder"
                )
        best = {name: tensor for name, tensor in saved.model.items() if name.startswith(BEST)}
        weights = {name: tensor for name, tensor in saved.model.items() if name not in best}
        self.model.load_state_dict(weights, strict=self.config.adapter is None)
        self.best = {name.removeprefix(BEST): tensor.to(self.device.device) for name, tensor in best.items()}
        value = saved.state["best_value"]
        self.best_value = -math.inf if value is None else value
        self.best_step, self.worse_in_a_row = saved.state["best_step"], saved.state["worse_in_a_row"]

    def facts(self, step: int) -> dict[str, Any]:
        """The task, the trained parameters, and which weights were chosen."""
        return {
            "kind": "finetune",
            "task": self.task.name,
            "metric": self.task.metrics[0],
            "parameters": self.model.num_parameters,
            "learning_parameters": self.learning,
            "train_examples": len(self.data.train.examples),
            "num_steps": self.num_steps,
            "chosen_step": self.best_step if self.best else step,
        }

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, trainer: Trainer) -> Scores:
        """Score the chosen weights with intervals; write predictions, the model folder and, last, scores.json."""
        if self.num_steps:
            trainer.evaluate()
        step = self.best_step if self.best else trainer.step
        self.model.set_depth(None)
        if self.best:
            self.model.load_state_dict(self.best, strict=self.config.adapter is None)
        if self.satisfied():
            trainer.event(f"stopped early: {self.config.patience} evaluations without a better one")
        folder, data, task, splits = trainer.folder, self.data, self.task, {}
        evaluations = []
        for number, split in enumerate([*data.dev, *data.test]):
            predictions = predict_split(self.model, task, split, self.device, self.compiled, self.world)
            if number == 0 and data.dev and split.is_labelled:
                task, predictions = kind_of(task).tune(task, split.examples, predictions)
                task = self._tune_exits(task, split)
            evaluations.append(score_split(task, split, predictions))
            splits[split.name] = evaluations[-1].scores
        scored = {name: found for name, found in splits.items() if found}
        baselines = compare_with_baselines(data, evaluations[0]) if self.world.is_main and data.dev else ()
        threshold = task.null_threshold if task.answerable_head else None
        scores = Scores(task.metrics[0], step, scored, threshold, baselines)
        if self.world.is_main:
            (folder / "predictions").mkdir(exist_ok=True)
            for evaluation in evaluations:
                write_predictions(folder / "predictions" / f"{evaluation.split.name}.jsonl", evaluation)
            for test in evaluations[len(data.dev) :]:
                write_submission(task, test.split.name, test.split.examples, test.predictions, folder / "predictions")
            if self.config.adapter is not None:
                with staged_folder(folder / "adapter", keep=lambda name: False) as staging:
                    save_adapter(self.model, staging, base=_lasting_name(self.config.model))
                    save_task(task, staging)
                    write_card(staging, self.config, task, self.model, scores, trainer.facts())
                merge_adapter(self.model)
            with staged_folder(folder / "best", keep=lambda name: False) as staging:
                save_model(self.model, staging)
                data.tokenizer.save(staging, max_length=max(task.max_length, data.tokenizer.max_length or 0))
                save_task(task, staging)
                if kind_of(task).compares:
                    write_sentence_files(staging, task, self.model.config.hidden_size)
                write_card(staging, self.config, task, self.model, scores, trainer.facts())
            write_scores(folder, scores)
        trainer.complete()
        if self.world.is_main and not self.config.log.keep_checkpoints:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return scores

    def _tune_exits(self, task: Task, split: Split) -> Task:
        """The task with a no-answer threshold for each exit, where questions may have no answer."""
        found = {}
        for depth in self.config.exits[:-1] if task.answerable_head else ():
            self.model.set_depth(depth)
            predictions = predict_split(self.model, task, split, self.device, self.compiled, self.world)
            found[depth] = kind_of(task).tune(task, split.examples, predictions)[0].null_threshold
        self.model.set_depth(None)
        return dataclasses.replace(task, exit_thresholds=found)
