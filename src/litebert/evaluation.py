"""Score any model: a fine-tuned one on labelled data, a pretrained one on raw text or on minimal pairs.

    evaluate("runs/reviews/best", data="test.csv")           -> [Scored("runs/reviews/best", ...)]
    evaluate("run/model", text="other.txt")                  -> Intrinsic(mlm_accuracy=0.41, ...)
    evaluate("run/model", blimp="blimp/data")                -> PairScores(...)

This module sorts the arguments; `evaluate` of `finetuning` and of `pretraining`, and `minimal_pairs`, do the scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from litebert.errors import ConfigError

if TYPE_CHECKING:
    from litebert.finetuning.evaluate import Scored
    from litebert.pretraining.evaluate import Intrinsic
    from litebert.pretraining.minimal_pairs import PairScores

Place = Path | str
# What may be given beside each kind of data; the rest is refused.
OPTIONS = {
    "data": ("task", "columns", "encoding", "max_length", "predictions", "device", "threads", "depth"),
    "text": ("tokenizer", "max_length", "tokens", "device"),
    "store": ("tokenizer", "max_length", "tokens", "device"),
    "blimp": ("tokenizer", "limit", "device"),
}


def check_job(given: Mapping[str, Any], num_models: int = 1, spell: Callable[[str], str] = str) -> str:
    """Which job the arguments ask for ("data", "text", "store" or "blimp"); `spell` names them in errors."""
    # A DataFrame has no truth and no equal.
    empty = {name for name, value in given.items() if isinstance(value, list | tuple | dict) and not value}
    given = {name: value for name, value in given.items() if value is not None and name not in empty}
    jobs = [job for job in OPTIONS if job in given] or (["data"] if "task" in given else [])
    if not jobs:
        raise ConfigError(
            f"say what to score on: labelled data for a fine-tuned model ({spell('data')}), or raw text "
            f"({spell('text')}, {spell('store')}) or minimal pairs ({spell('blimp')}) for a pretrained one"
        )
    if len(jobs) > 1 and set(jobs) != {"text", "store"}:
        raise ConfigError(f"{' and '.join(map(spell, jobs))}: give one of them: each is a different kind of data")
    if wrong := [name for name in given if name not in (*jobs, *OPTIONS[jobs[0]])]:
        fits = [job for job in OPTIONS if wrong[0] in OPTIONS[job]]
        raise ConfigError(f"{spell(wrong[0])}: goes with {' or '.join(map(spell, fits))}, not with {spell(jobs[0])}")
    if jobs[0] != "data" and num_models != 1:
        raise ConfigError(f"{spell(jobs[0])}: scores one model at a time, got {num_models}")
    return jobs[0]


@overload
def evaluate(
    model: Place | Sequence[Place],
    *,
    data: Any = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    max_length: int | None = None,
    predictions: Place | None = None,
    device: str | None = None,
    threads: int | None = None,
    depth: int | Literal["all", "auto"] | None = None,
) -> list[Scored]: ...


@overload
def evaluate(
    model: Place,
    *,
    text: Place | Sequence[Place] = (),
    store: Place | Sequence[Place] = (),
    tokenizer: Place | None = None,
    max_length: int | None = None,
    tokens: int | None = None,
    device: str | None = None,
) -> Intrinsic: ...


@overload
def evaluate(
    model: Place,
    *,
    blimp: Place,
    tokenizer: Place | None = None,
    limit: int | None = None,
    device: str | None = None,
) -> PairScores: ...


def evaluate(
    model: Place | Sequence[Place],
    *,
    data: Any = None,
    text: Place | Sequence[Place] = (),
    store: Place | Sequence[Place] = (),
    blimp: Place | None = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    predictions: Place | None = None,
    tokenizer: Place | None = None,
    max_length: int | None = None,
    tokens: int | None = None,
    limit: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    depth: int | Literal["all", "auto"] | None = None,
) -> list[Scored] | Intrinsic | PairScores:
    """Score a fine-tuned model on labelled `data`, or a pretrained one on raw `text`, a `store` or `blimp`.

    `data` is a file, a folder of a task's files, `hub:owner/name`, rows in memory as `finetune` takes them (a list, a
    DataFrame, ...) or a `TaskData`; several models are also scored as an
    ensemble, `predictions` is a folder for per-example predictions, and `depth` scores one model at one of its exits,
    or at all of them with the time of each. `text` and `store` measure the accuracy of masked LM, sentence order and
    next sentence over about `tokens` tokens (Table 5). `blimp`, a folder of minimal pairs, measures the share of pairs
    judged correctly, over at most `limit` pairs per file.
    """
    given = {name: value for name, value in locals().items() if name != "model"}
    models = _several(model)
    job = check_job(given, len(models))
    options = {name: given[name] for name in OPTIONS[job] if given[name] is not None}
    if job == "data":
        from litebert.finetuning.evaluate import evaluate_task

        return evaluate_task(models, data=data, **options)
    if job == "blimp":
        from litebert.pretraining.minimal_pairs import evaluate_pairs

        assert blimp is not None
        return evaluate_pairs(models[0], blimp, **options)
    from litebert.pretraining.evaluate import evaluate_model

    return evaluate_model(models[0], texts=_several(text), stores=_several(store), **options)


def _several(places: Place | Sequence[Place]) -> list[Place]:
    return [places] if isinstance(places, Path | str) else list(places)
