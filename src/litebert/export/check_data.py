"""An exported file on the user's own data: how often it decides as torch does, and what that costs in scores.

A fine-tuned folder reads data of its task, labelled, and scores them; any other reads plain text, one per line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from litebert.errors import DataError
from litebert.export.check import Check, compare
from litebert.model.hub import load_model
from litebert.predict.runtime import HEAD_OUTPUTS, Outputs, Request, Runtime
from litebert.predict.torch_runtime import TorchRuntime
from litebert.tasks.decode import decode
from litebert.tasks.examples import Example
from litebert.tasks.features import Sequence as Feature
from litebert.tasks.features import make_features, text_sequence
from litebert.tasks.metrics import score
from litebert.tasks.read import data_form, read_task
from litebert.tasks.task import Task, check_outputs, load_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device

MOST_EXAMPLES = 1000  # of a data file: enough to see a point, and minutes even for long questions


@dataclass(frozen=True)
class CheckData:
    """Requests made of data, with torch's outputs for them; where there are labels, with the task that scores them."""

    requests: list[Request]
    expected: list[Outputs]
    task: Task | None = None
    examples: Sequence[Example] = ()
    features: list[Feature] = field(default_factory=list)

    def check(self, exported: Runtime) -> Check:
        """Run the file over the data: differences, equal decisions and both scores."""
        check, actual = compare(self.expected, exported, self.requests)
        if self.task is None:
            return check
        ours, theirs = self._score(actual), self._score(self.expected)
        return replace(check, scores={name: (theirs[name], ours[name]) for name in theirs})

    def _score(self, outputs: Sequence[Outputs]) -> dict[str, float]:
        assert self.task is not None
        predictions = decode(self.task, self.examples, self.features, outputs)
        return {name: metric.value for name, metric in score(self.task, self.examples, predictions, 0).items()}


def read_check_data(path: Path, folder: Path) -> CheckData:
    """Read data for the model of a folder, and run torch over it."""
    tokenizer, task = Tokenizer.load(folder), load_task(folder)
    device = Device(torch.device("cpu"), "fp32", compile=False, name="CPU")
    runtime = TorchRuntime(load_model(folder), device)
    want = HEAD_OUTPUTS[runtime.head] - {"pooled"} or frozenset({"mean"})
    longest = runtime.config.max_position_embeddings
    if task is None:
        masked = "masked_lm" in want
        requests = _text_requests(path, want, tokenizer, min(128, longest), masked)
        return CheckData(requests, runtime.run(requests))
    check_outputs(task, runtime.head, runtime.config.num_labels, str(folder))
    task = replace(task, max_length=min(task.max_length, longest))
    examples = _read_examples(path, task)
    features = make_features(task, examples, tokenizer)
    requests = [Request(f.ids, f.segments, want, outside=f.outside) for f in features]
    return CheckData(requests, runtime.run(requests), task, examples, features)


def _read_examples(path: Path, task: Task) -> Sequence[Example]:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    form = data_form(task)
    read = read_task(form, folder=path, task=task) if path.is_dir() else read_task(form, dev=path, task=task)
    if not read.dev:
        raise DataError(f"{path}: no labelled dev split of {task.name} in there")
    return next(iter(read.dev.values()))[:MOST_EXAMPLES]


def _text_requests(
    path: Path, want: frozenset[str], tokenizer: Tokenizer, max_length: int, masked: bool
) -> list[Request]:
    """One text per line, a tab between the two of a pair; `masked` hides every seventh token."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text: {error}") from None
    requests = []
    for line in filter(None, lines):
        a, _, b = line.partition("\t")
        sequence = text_sequence(tokenizer, a, b or None, max_length)
        ids, positions = sequence.ids.copy(), np.arange(1, len(sequence.ids) - 1, 7)
        if masked:
            ids[positions] = tokenizer.mask_id
        requests.append(Request(ids, sequence.segments, want, positions, np.zeros(len(ids), np.bool_)))
    if not requests:
        raise DataError(f"{path}: holds no text; one text per line is expected, a tab between the two of a pair")
    return requests[:MOST_EXAMPLES]
