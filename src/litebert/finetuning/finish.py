"""The end of a run: the chosen weights scored, and written down with all that belongs to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.files import staged_folder
from litebert.finetuning.card import write_card
from litebert.finetuning.config import FinetuneConfig
from litebert.finetuning.data import Data
from litebert.finetuning.predictions import write_predictions
from litebert.finetuning.results import Scores, write_scores
from litebert.finetuning.scoring import predict_split, score_split
from litebert.model.heads import Model
from litebert.model.hub import save_model
from litebert.tasks.submission import write_submission
from litebert.tasks.task import save_task
from litebert.tasks.threshold import best_threshold, with_threshold
from litebert.train.device import Device


def finish_run(
    folder: Path,
    config: FinetuneConfig,
    data: Data,
    model: Model,
    device: Device,
    step: int,
    facts: Mapping[str, Any],
    fixed: bool = False,
) -> Scores:
    """Score dev with intervals; write predictions, the model folder and, last, scores.json."""
    task, splits = data.task, {}
    (folder / "predictions").mkdir(exist_ok=True)
    for number, split in enumerate(data.dev):
        predictions = predict_split(model, task, split, device, fixed)
        if number == 0 and task.answerable_head and split.is_labelled:
            # The model is used with the threshold that suits dev best, as the authors' was.
            threshold, _ = best_threshold(split.examples, predictions)
            task = dataclasses.replace(task, null_threshold=threshold)
            predictions = with_threshold(predictions, threshold)
        evaluation = score_split(task, split, predictions)
        splits[split.name] = evaluation.scores
        write_predictions(folder / "predictions" / f"{split.name}.jsonl", evaluation)
    for split in data.test:
        evaluation = score_split(task, split, predict_split(model, task, split, device, fixed))
        splits[split.name] = evaluation.scores
        write_predictions(folder / "predictions" / f"{split.name}.jsonl", evaluation)
        write_submission(task, split.name, split.examples, evaluation.predictions, folder / "predictions")
    scored = {name: found for name, found in splits.items() if found}
    scores = Scores(task.metrics[0], step, scored, task.null_threshold if task.answerable_head else None)
    with staged_folder(folder / "best", keep=lambda name: False) as staging:
        save_model(model, staging)
        data.tokenizer.save(staging, max_length=max(task.max_length, data.tokenizer.max_length or 0))
        save_task(task, staging)
        write_card(staging, config, task, model, scores, facts)
    write_scores(folder, scores)
    return scores
