"""Fine-tuned models as further rows of the table: the scores that a run wrote down, or a model scored now."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from litebert.errors import ConfigError, DataError
from litebert.finetuning.results import SCORES_FILE, is_study, read_scores, read_summary, show_spread, show_value
from litebert.ladder.climb import Rung
from litebert.tasks.metrics import Metric
from litebert.tasks.task import TaskData, load_task


def read_rungs(
    sources: Sequence[str],
    data: TaskData,
    scored_on: Path | str | None,
    columns: Mapping[str, str],
    encoding: str = "utf-8",
) -> list[Rung]:
    """A rung for each run folder, study of several seeds, or model folder (which is scored on `scored_on`)."""
    rungs = []
    for source in sources:
        folder = Path(source)
        # The model of a run lies in its folder: what the run wrote about it counts.
        if folder.name == "best" and _has_scores(folder.parent):
            folder = folder.parent
        if _has_scores(folder):
            rungs.append(_read(folder, data))
        else:
            rungs.append(_score(source, data, scored_on, columns, encoding))
    return rungs


def _has_scores(folder: Path) -> bool:
    return (folder / SCORES_FILE).is_file() or is_study(folder)


def _read(folder: Path, data: TaskData) -> Rung:
    task = load_task(folder / "best")
    if task is not None and (task.kind, task.labels) != (data.task.kind, data.task.labels):
        raise ConfigError(f"{folder}: was trained for {task.name}, which is not {data.task.name} with these labels")
    if is_study(folder):
        return _read_study(folder, data)
    scores = read_scores(folder)
    assert scores is not None
    _check_examples(folder, data)
    return Rung(str(folder), f"fine-tuned, the best of its run on {scores.metric}", _shared(scores.splits, data))


def _read_study(folder: Path, data: TaskData) -> Rung:
    """The median of each score over the seeds of the best learning rate; an interval belongs to one run, so none."""
    summary = read_summary(folder)
    setting = next((one for one in summary["settings"] if one["lr"] == summary["best_lr"]), None)
    runs = [folder / run["name"] for run in summary["runs"] if run["lr"] == summary["best_lr"]]
    scored = {run: found for run in runs if (found := read_scores(run)) is not None and found.value is not None}
    if not scored or setting is None:
        raise DataError(f"{folder}: no run in there has been scored")
    for run in scored:
        _check_examples(run, data)
    if len(scored) == 1:
        [only] = scored.values()
        return Rung(str(folder), f"fine-tuned, the best of its run on {only.metric}", _shared(only.splits, data))
    splits = _medians([scores.splits for scores in scored.values()])
    metric = summary["metric"]
    low, high = (show_value(setting[end], metric) for end in ("min", "max"))
    spread = show_spread(setting["spread"], metric)
    what = f"fine-tuned, the median of {len(scored)} seeds ({metric} {low} – {high} over seeds, ± {spread})"
    return Rung(str(folder), what, _shared(splits, data))


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
    """Scores on other examples do not belong into one table."""
    from litebert.finetuning.predictions import read_predictions

    for split, examples in {**data.dev, **data.test}.items():
        path = run / "predictions" / f"{split}.jsonl"
        if path.is_file() and [line["id"] for line in read_predictions(path)] != [example.id for example in examples]:
            raise DataError(f"{run}: its {split} examples are not those scored here; give the files that it was given")


def _score(
    source: str, data: TaskData, scored_on: Path | str | None, columns: Mapping[str, str], encoding: str
) -> Rung:
    from litebert.finetuning.evaluate import evaluate_task

    if not (Path(source) / "config.json").is_file() and Path(source).is_dir():
        raise DataError(f"{source}: neither a finished run (scores.json) nor a model folder (config.json)")
    [scored] = evaluate_task([source], task=data.task.name, data=scored_on, columns=columns, encoding=encoding)
    splits = {evaluation.split.name: evaluation.scores for evaluation in scored.evaluations}
    known = {**data.dev, **data.test}
    if len(splits) == 1 and not splits.keys() & known.keys():  # a file of one's own is called by its name there
        splits = {next(iter(known)): next(iter(splits.values()))}
    return Rung(source, "a model folder, scored now", _shared(splits, data))


def _shared(splits: Mapping[str, Mapping[str, Metric]], data: TaskData) -> dict[str, Mapping[str, Metric]]:
    """Only what is scored here too, so that every row is about the same examples."""
    shared = {name: scores for name, scores in splits.items() if name in data.dev or name in data.test}
    if not shared:
        raise DataError(f"scored on {', '.join(splits) or 'nothing'}, not on {', '.join({**data.dev, **data.test})}")
    return shared
