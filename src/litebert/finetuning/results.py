"""Predictions of a model for a split, their scores, and the files for both.

scores.json          scores with their intervals
predictions/*.jsonl  {"id": "17", "text": "a dull film", "gold": "negative", "prediction": "positive", "badness": 2.7}
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.baselines.table import Comparison
from litebert.errors import DataError
from litebert.files import write_atomic
from litebert.parse import parse_json, read_object
from litebert.tasks.decode import Prediction, decode
from litebert.tasks.metrics import RESAMPLES, Metric, goodness, score
from litebert.tasks.task import Example, Task, kind_of

if TYPE_CHECKING:  # torch takes seconds, and a report only reads what is written here
    from litebert.finetuning.data import Split
    from litebert.model.heads import Model
    from litebert.train.device import Device
    from litebert.train.processes import World


@dataclass(frozen=True)
class Evaluation:
    """The predictions of a model (or an ensemble) for one split; no scores without labels."""

    task: Task
    split: Split
    predictions: list[Prediction]
    scores: Mapping[str, Metric]
    thresholds: Mapping[str, float] = field(default_factory=dict)  # "fixed", "tuned", "best": where "no answer" begins


def predict_split(
    model: Model, task: Task, split: Split, device: Device, fixed: bool = False, world: World | None = None
) -> list[Prediction]:
    """A model's predictions for a split; the processes of a run share the work."""
    from litebert.finetuning.model import run_sequences
    from litebert.train.processes import World, gather

    world = world or World()
    outputs = run_sequences(model, task, split.features[world.rank :: world.size], device, fixed)
    outputs = gather(outputs, world)
    return decode(task, split.examples, split.features, outputs)


def score_split(task: Task, split: Split, predictions: list[Prediction], resamples: int = RESAMPLES) -> Evaluation:
    """Score predictions; `resamples=0` skips the intervals.

    If "no answer" is possible, plain scores use the threshold 0, `tuned_f1` those saved with the model, by which the
    predictions were made, and `best_f1` the best one for this split (at a fixed depth, an upper bound).
    """
    if not split.examples:
        raise DataError(f"{split.name}: no examples to score")
    scores: dict[str, Metric] = {}
    thresholds: dict[str, float] = {}
    if split.is_labelled:
        kind = kind_of(task)
        thresholds = kind.thresholds(task, split.examples, predictions)
        if not thresholds:
            scores = score(task, split.examples, predictions, resamples)
        for name, threshold in thresholds.items():
            here = predictions if name == "tuned" else kind.at_threshold(predictions, threshold)
            found = score(task, split.examples, here, resamples)
            scores |= found if name == "fixed" else {f"{name}_{metric}": found[metric] for metric in task.metrics}
    return Evaluation(task, split, predictions, scores, thresholds)


def write_predictions(path: Path, evaluation: Evaluation) -> None:
    """Write all predictions of a split, in the order of its examples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = zip(evaluation.split.examples, evaluation.predictions, strict=True)
    lines = (json.dumps(describe(evaluation.task, *pair), ensure_ascii=False) for pair in pairs)
    write_atomic(path, "".join(line + "\n" for line in lines))


def read_predictions(path: Path) -> list[dict[str, Any]]:
    """Read a file written by `write_predictions`."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot read the predictions: {error}") from None
    return [parse_json(line, str(path), line=number) for number, line in enumerate(lines, start=1) if line]


def describe(task: Task, example: Example, prediction: Prediction) -> dict[str, Any]:
    """One example and its prediction in readable form."""
    kind = kind_of(task)
    said, gold = kind.describe(example)
    line: dict[str, Any] = {"id": example.id, **said}
    if example.is_labelled:
        line["gold"] = kind.say(task, example, gold)
    line["prediction"] = kind.say(task, example, prediction.value)
    probability = kind.sureness(prediction)
    if probability is not None:
        line["probability"] = round(probability, 6)
    if task.answerable_head and prediction.answers is not None:
        line["no_answer_score"] = round(prediction.answers.no_answer, 6)
    if example.is_labelled:
        line["badness"] = round(kind.badness(task, example, gold, prediction), 6)
    return line


def worst(task: Task, lines: Iterable[dict[str, Any]], most: int = 20) -> list[dict[str, Any]]:
    """The worst errors, worst first."""
    wrong = [line for line in lines if "gold" in line and kind_of(task).is_wrong(line)]
    return sorted(wrong, key=lambda line: -line["badness"])[:most]


# ---------------------------------------------------------------------------------------------------------------------
# Scores of a run, and how they are shown


SCORES_FILE = "scores.json"
DEPTHS_FILE = "depths.json"  # in a model folder: what each depth scores and costs
SUMMARY_FILE = "summary.json"  # of a study of several runs


@dataclass(frozen=True)
class Scores:
    """Scores of the chosen weights on each dev split; `metric` on the first split made the choice at `step`.

    `threshold`, if questions may have no answer, is the one saved with the model, which tuned scores use; the others
    use 0.
    """

    metric: str = ""
    step: int = 0
    splits: Mapping[str, Mapping[str, Metric]] = field(default_factory=dict)
    threshold: float | None = None
    #: Simple methods beside the model, on the first dev split.
    baselines: tuple[Comparison, ...] = ()

    @property
    def deciding(self) -> Metric | None:
        """The score that decides; None without a dev set."""
        first = next(iter(self.splits.values()), None)
        return None if first is None else first[self.metric]

    @property
    def value(self) -> float | None:
        """Its value."""
        return None if self.deciding is None else self.deciding.value

    @property
    def goodness(self) -> float:
        """Its value such that higher is better."""
        return -math.inf if self.value is None else goodness(self.metric, self.value)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % bootstrap interval."""
        metric = self.deciding
        if metric is None or metric.low is None or metric.high is None:
            return None
        return metric.low, metric.high

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; without the baselines, which are the same for all seeds."""
        tuned = {} if self.threshold is None else {"threshold": self.threshold}
        return {"metric": self.metric, "step": self.step, **tuned, "splits": asdict(self)["splits"]}


def write_scores(folder: Path, scores: Scores) -> None:
    """Write scores.json, by which a run is known to be complete."""
    data = {**scores.as_dict(), "baselines": [each.as_dict() for each in scores.baselines]}
    write_atomic(folder / SCORES_FILE, json.dumps(data, indent=1))


def read_scores(folder: Path) -> Scores | None:
    """The scores of a complete run; None if it is not complete."""
    path = folder / SCORES_FILE
    if not path.exists():
        return None
    try:
        data = read_object(path)
        splits = {
            split: {name: Metric(**values) for name, values in metrics.items()}
            for split, metrics in data["splits"].items()
        }
        baselines = tuple(map(Comparison.from_dict, data.get("baselines", ())))
        return Scores(data["metric"], data["step"], splits, data.get("threshold"), baselines)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: damaged ({error}); restore it, or delete it to train this run again (its model stays until then)"
        ) from None


def write_depths(folder: Path, rows: list[dict[str, Any]], machine: str) -> None:
    """Write what `evaluate` found at each depth into a model folder, for the report of its run."""
    facts = {"format": 1, "machine": machine, "date": datetime.date.today().isoformat(), "rows": rows}
    write_atomic(folder / DEPTHS_FILE, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def read_depths(folder: Path) -> dict[str, Any] | None:
    """What `write_depths` wrote; None if there is nothing."""
    path = folder / DEPTHS_FILE
    if not path.is_file():
        return None
    data = read_object(path, DataError)
    if data.get("format") != 1 or not isinstance(data.get("rows"), list):
        raise DataError(f"{path}: not a curve of depths; run litebert evaluate --depth all again")
    return data


def num_train_examples(run: Path) -> int:
    """The number of training examples of a run; 0 if its folder does not say."""
    try:
        return int(json.loads((run / "run.json").read_text(encoding="utf-8"))["train_examples"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def is_study(folder: Path) -> bool:
    """Whether a folder is a study of several runs."""
    return (folder / SUMMARY_FILE).is_file()


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a study, as `write_summary` wrote it: its runs, its settings, the best of them."""
    path = folder / SUMMARY_FILE
    try:
        data = read_object(path)
        missing = {"runs", "settings", "metric", "best", "best_lr"} - data.keys()
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not the summary of a study: {error}") from None
    if missing or not data["runs"]:
        raise DataError(f"{path}: not the summary of a study: missing {', '.join(sorted(missing)) or 'runs'}")
    return data


def explain_threshold(threshold: float) -> str:
    """Which no-answer threshold each score uses."""
    return (
        f"tuned_ scores use the no-answer threshold {threshold:.4g}, the best on dev, saved with the model; scores "
        "without a prefix use the fixed threshold 0, best_ scores the best threshold for their own split."
    )


NAMES = {
    "f1": "F1",
    "tuned_f1": "F1 at the model's threshold",
    "best_f1": "F1 at the best threshold",
    "exact_match": "exact match",
    "tuned_exact_match": "exact match at the model's threshold",
    "best_exact_match": "exact match at the best threshold",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "entity_f1": "entity F1",
    "rmse": "error (RMSE)",
    "answerable_f1": "F1, answerable questions",
    "answerable_exact_match": "exact match, answerable questions",
    "unanswerable_accuracy": "accuracy, unanswerable questions",
}


def name_of(metric: str) -> str:
    """A metric in words: "macro_f1" -> "macro F1", "dev-mismatched/accuracy" -> "accuracy on dev-mismatched"."""
    split, slash, name = metric.rpartition("/")
    words = NAMES.get(name, name.replace("_", " "))
    return f"{words} on {split}" if slash else words


def capital(text: str) -> str:
    """As the first word of a title."""
    return text[:1].upper() + text[1:]


def is_detail(column: str) -> bool:
    """Values without their own chart and column: clocks, and the parts of a score."""
    return column in ("time", "seconds", "took", "tokens", "kind", "best_exact_match") or "answerable_" in column
