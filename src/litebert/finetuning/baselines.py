"""Compare fine-tuned models with baselines, in words and as rows of the table of `litebert baseline`.

write_baselines(folder, data)              at a run's start: what simple methods score on dev, for the page's curves
compare_with_baselines(data, evaluation)   at its end: the model's lead over each of them, with intervals
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from litebert.baselines.table import Comparison, Method, Verdict, compare, strongest
from litebert.errors import ConfigError, DataError
from litebert.files import write_atomic
from litebert.finetuning.results import (
    SCORES_FILE,
    Evaluation,
    Scores,
    is_study,
    read_predictions,
    read_scores,
    read_summary,
)
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import ERRORS, Metric, score, show_interval, show_spread, show_value
from litebert.tasks.read import named_tasks
from litebert.tasks.task import TaskData, kind_of, load_task

if TYPE_CHECKING:  # torch is not needed to read what runs wrote
    from litebert.finetuning.data import Data

BASELINES_FILE = "baselines.json"
FEW_LABELS = 5_000

# -- at the start and at the end of a run ------------------------------------------------------------------------------


def write_baselines(folder: Path, data: Data) -> None:
    """Write baselines.json, {"accuracy": {"always 'pos'": 0.51, "TF-IDF + ...": 0.68}, ...}, where dev has labels."""
    found: dict[str, dict[str, float]] = {}
    for baseline in data.baselines:
        for name, metric in score(data.task, data.dev[0].examples, baseline.values, resamples=0).items():
            found.setdefault(name, {})[baseline.name] = metric.value
    if found:
        write_atomic(folder / BASELINES_FILE, json.dumps(found, indent=1))


def compare_with_baselines(data: Data, evaluation: Evaluation) -> tuple[Comparison, ...]:
    """Compare a model's predictions for the first dev split with those of simple methods."""
    predictions = evaluation.predictions
    if "fixed" in evaluation.thresholds:  # where the deciding metric is scored
        predictions = kind_of(evaluation.task).at_threshold(predictions, evaluation.thresholds["fixed"])
    return tuple(compare(evaluation.task, evaluation.split.examples, predictions, data.baselines))


# -- in words ----------------------------------------------------------------------------------------------------------


def verdict_of(comparison: Comparison, scores: Scores, median: float | None = None) -> Verdict:
    """Ahead, level or behind; of several seeds, the best is no better than their median by the deciding metric."""
    if median is None or comparison.metric != scores.metric:
        return comparison.verdict
    return comparison.verdict_at(median)


def describe_verdicts(scores: Scores, median: float | None = None) -> list[tuple[str, Verdict]]:
    """One sentence about the strongest baseline by the deciding metric, and one per error metric."""
    sentences = []
    for metric in dict.fromkeys([scores.metric, *(each.metric for each in scores.baselines)]):
        found = strongest(scores.baselines, metric)
        if found is None:
            continue
        verdict = verdict_of(found, scores, median)
        words = {"ahead": "ahead of", "level": "level with", "behind": "behind"}[verdict]
        model = show_value(found.score.value + found.lead.value, metric)
        sentence = (
            f"The model is {words} {found.baseline}: {metric} {model} against {show_value(found.score.value, metric)}, "
            f"a difference of {show_lead(found)}."
        )
        sentences.append((sentence, verdict))
    return sentences


def show_lead(comparison: Comparison) -> str:
    """The model's score less the baseline's, with its interval: "+2.7 (-0.4 to +5.8)"."""
    lead, scale = comparison.lead, (1, 3) if comparison.metric in ERRORS else (100, 1)
    shown = [f"{scale[0] * value:+.{scale[1]}f}" for value in (lead.value, lead.low, lead.high) if value is not None]
    return shown[0] if len(shown) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def next_steps(
    num_train: int, head_only: bool, task: str = "classification", spell: Callable[[str], str] = str
) -> list[str]:
    """What usually helps a model that is not ahead of simple methods; `spell` writes the names of settings."""
    named = named_tasks().get(task)
    kind = KINDS.get(named.kind if named else task)
    steps = [f"label more examples: {num_train:,} are few for fine-tuning"] if 0 < num_train < FEW_LABELS else []
    if head_only:
        steps.append(f"fine-tune the whole model instead of only a head (without {spell('head_only')})")
    else:
        if kind is None or kind.has_linear_head:
            steps.append(
                f"fit only a linear head on the frozen encoder ({spell('head_only')}): fast, with nothing to tune"
            )
        steps.append(f"train several times and longer ({spell('seeds')}, {spell('epochs')})")
    steps.append(
        f"start from a stronger model ({spell('model')}), or pretrain this one further on your own text "
        "(docs/howto/domain.md)"
    )
    return steps


def needs_advice(scores: Scores, sentences: Sequence[tuple[str, Verdict]]) -> bool:
    """Whether a model that is not ahead could do better: one without a mistake could not."""
    return any(verdict != "ahead" for _, verdict in sentences) and scores.value != 1.0


def print_baselines(
    scores: Scores,
    console: Console,
    num_train: int,
    head_only: bool = False,
    median: float | None = None,
    task: str = "classification",
    spell: Callable[[str], str] = str,
) -> None:
    """The baselines and the model, which is ahead, and what to do if it is not the model."""
    if not scores.baselines:
        return
    for metric in dict.fromkeys(each.metric for each in scores.baselines):
        shown = [
            f"{each.baseline} {show_value(each.score.value, metric)} ({show_interval(each.score, metric)})"
            for each in scores.baselines
            if each.metric == metric
        ]
        console.print(Text(f"baselines, {metric}: {'; '.join(shown)}"))
    sentences = describe_verdicts(scores, median)
    for sentence, verdict in sentences:
        console.print(Text(sentence), style="green" if verdict == "ahead" else "yellow")
    if needs_advice(scores, sentences):
        console.print("What may help:")
        for step in next_steps(num_train, head_only, task, spell):
            console.print(Text(f"- {step}"))


# -- models as rows of a table of baselines ----------------------------------------------------------------------------


def read_methods(
    sources: Sequence[str],
    data: TaskData,
    scored_on: Path | str | None,
    columns: Mapping[str, str],
    encoding: str = "utf-8",
) -> list[Method]:
    """A row for each run folder, study of several seeds, or model folder (which is scored now, on `scored_on`)."""
    methods = []
    for source in sources:
        folder = Path(source)
        # The model of a run: take the scores that the run wrote down.
        if folder.name == "best" and _has_scores(folder.parent):
            folder = folder.parent
        if _has_scores(folder):
            methods.append(_read(folder, data))
        else:
            methods.append(_score(source, data, scored_on, columns, encoding))
    return methods


def _has_scores(folder: Path) -> bool:
    return (folder / SCORES_FILE).is_file() or is_study(folder)


def _read(folder: Path, data: TaskData) -> Method:
    task = load_task(folder / "best")
    if task is not None and (task.kind, task.labels) != (data.task.kind, data.task.labels):
        raise ConfigError(f"{folder}: was trained for {task.name}, not for {data.task.name} with these labels")
    if is_study(folder):
        return _read_study(folder, data)
    scores = read_scores(folder)
    assert scores is not None
    _check_examples(folder, data)
    return Method(
        str(folder), f"fine-tuned, the weights with the best {scores.metric} on dev", _shared(scores.splits, data)
    )


def _read_study(folder: Path, data: TaskData) -> Method:
    """The median of each score over the seeds of the best learning rate; no interval, which belongs to one run."""
    summary = read_summary(folder)
    setting = next((one for one in summary["settings"] if one["lr"] == summary["best_lr"]), None)
    runs = [folder / run["name"] for run in summary["runs"] if run["lr"] == summary["best_lr"]]
    scored = {run: found for run in runs if (found := read_scores(run)) is not None and found.value is not None}
    if not scored or setting is None:
        raise DataError(f"{folder}: none of its runs has been scored")
    for run in scored:
        _check_examples(run, data)
    if len(scored) == 1:
        [only] = scored.values()
        return Method(
            str(folder), f"fine-tuned, the weights with the best {only.metric} on dev", _shared(only.splits, data)
        )
    splits = _medians([scores.splits for scores in scored.values()])
    metric = summary["metric"]
    low, high = (show_value(setting[end], metric) for end in ("min", "max"))
    spread = show_spread(setting["spread"], metric)
    what = f"fine-tuned, the median of {len(scored)} seeds ({metric} {low} – {high} over seeds, ± {spread})"
    return Method(str(folder), what, _shared(splits, data))


def _medians(runs: Sequence[Mapping[str, Mapping[str, Metric]]]) -> dict[str, dict[str, Metric]]:
    """The median of each score that all runs have."""
    return {
        split: {
            name: Metric(statistics.median(run[split][name].value for run in runs))
            for name in metrics
            if all(name in run.get(split, {}) for run in runs)
        }
        for split, metrics in runs[0].items()
    }


def _check_examples(run: Path, data: TaskData) -> None:
    """Refuse scores on other examples: they do not belong in the same table."""
    for split, examples in {**data.dev, **data.test}.items():
        path = run / "predictions" / f"{split}.jsonl"
        if path.is_file() and [line["id"] for line in read_predictions(path)] != [example.id for example in examples]:
            raise DataError(f"{run}: was scored on other {split} examples; give the files that the run had")


def _score(
    source: str, data: TaskData, scored_on: Path | str | None, columns: Mapping[str, str], encoding: str
) -> Method:
    from litebert.finetuning.evaluate import evaluate_task

    if not (Path(source) / "config.json").is_file() and Path(source).is_dir():
        raise DataError(f"{source}: neither a finished run (scores.json) nor a model folder (config.json)")
    [scored] = evaluate_task([source], task=data.task.name, data=scored_on, columns=columns, encoding=encoding)
    splits = {evaluation.split.name: evaluation.scores for evaluation in scored.evaluations}
    known = {**data.dev, **data.test}
    if len(splits) == 1 and not splits.keys() & known.keys():  # a user's file is a split named after it
        splits = {next(iter(known)): next(iter(splits.values()))}
    return Method(source, "a model folder, scored now", _shared(splits, data))


def _shared(splits: Mapping[str, Mapping[str, Metric]], data: TaskData) -> dict[str, Mapping[str, Metric]]:
    """Only the splits that are scored here too, so that every row is about the same examples."""
    shared = {name: scores for name, scores in splits.items() if name in data.dev or name in data.test}
    if not shared:
        raise DataError(f"scored on {', '.join(splits) or 'nothing'}, not on {', '.join({**data.dev, **data.test})}")
    return shared
