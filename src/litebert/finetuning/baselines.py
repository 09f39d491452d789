"""Fine-tuned models beside baselines: the constant that a model has to beat, and models as rows of the table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from litebert.baselines.table import Method
from litebert.errors import ConfigError, DataError
from litebert.finetuning.results import (
    SCORES_FILE,
    goodness,
    is_study,
    read_scores,
    read_summary,
    show_spread,
    show_value,
)
from litebert.parse import read_object
from litebert.tasks.examples import Example
from litebert.tasks.metrics import Metric, score
from litebert.tasks.task import Task, TaskData, kind_of, load_task

Baselines = dict[str, dict[str, float]]
BASELINES_FILE = "baselines.json"


def constant_scores(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> Baselines:
    """{"accuracy": {"always 'pos'": 0.51}, ...}: each metric of the best constant that training suggests."""
    name, values = kind_of(task).constant(task, train, dev)
    return {metric: {name: found.value} for metric, found in score(task, dev, values, resamples=0).items()}


def read_baselines(run: Path) -> Baselines:
    """What a run's folder says about constants; nothing where it had no dev split."""
    path = run / BASELINES_FILE
    try:
        found: Baselines = read_object(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    return found


def print_constants(baselines: Baselines, metric: str, pessimistic: float | None, console: Console) -> None:
    """What the constants score, and a warning where the model, seen pessimistically, does no better."""
    for what, value in baselines.get(metric, {}).items():
        console.print(f"{what}: {metric} {show_value(value, metric)}")
        if pessimistic is not None and goodness(metric, pessimistic) <= goodness(metric, value):
            console.print(
                "The model is not clearly better than that: try more data, epochs or another lr.", style="yellow"
            )


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
    """Each score's median over runs, where all have it."""
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
    from litebert.finetuning.predictions import read_predictions

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
    if len(splits) == 1 and not splits.keys() & known.keys():  # one's own file is a split named after it
        splits = {next(iter(known)): next(iter(splits.values()))}
    return Method(source, "a model folder, scored now", _shared(splits, data))


def _shared(splits: Mapping[str, Mapping[str, Metric]], data: TaskData) -> dict[str, Mapping[str, Metric]]:
    """Only the splits that are scored here too, so that every row is about the same examples."""
    shared = {name: scores for name, scores in splits.items() if name in data.dev or name in data.test}
    if not shared:
        raise DataError(f"scored on {', '.join(splits) or 'nothing'}, not on {', '.join({**data.dev, **data.test})}")
    return shared
