"""Check an exported file against its model: the same requests through torch and through the file.

Requests are random ids of many lengths and, if given, the user's data: labelled data of its task for a fine-tuned
folder, which is also scored on both sides; plain text, one per line, for any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.errors import DataError
from litebert.model.config import ModelConfig
from litebert.model.convert import Difference
from litebert.model.heads import Model, named_outputs
from litebert.model.hub import load_model
from litebert.predict.runtime import Outputs, Request, Runtime, outputs_of, wanted_outputs
from litebert.predict.torch_runtime import TorchRuntime
from litebert.tasks.decode import decode, log_softmax
from litebert.tasks.features import Feature, make_features, text_sequence
from litebert.tasks.metrics import score
from litebert.tasks.read import data_form, read_task
from litebert.tasks.task import Example, Task, check_outputs, load_task
from litebert.text.spiece import NORMAL, SentencePieceTokenizer, read_model
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device

INPUTS = ("input_ids", "attention_mask", "segment_ids")
# The input that a head has beside the encoder's.
OWN_INPUT = {"pretraining": "positions", "masked-lm": "positions", "answer": "outside"}
# Outputs whose largest entry along the last axis is the model's decision; of the rest there is none.
_DECISIONS = ("logits", "masked_lm", "sentence", "start", "end")
_EXCLUDED = -1e29  # log-probabilities below are of tokens that cannot be an answer
MOST_EXAMPLES = 1000  # of a data file: enough to see a point, and minutes even for long questions


# ---------------------------------------------------------------------------------------------------------------------
# The model in plain torch


class NamedModel(nn.Module):
    """A model as a function of plain tensors, with its outputs by name."""

    def __init__(self, model: Model):
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor, own: Tensor | None = None
    ) -> dict[str, Tensor]:
        """`own`: the positions to predict [P], or the tokens excluded as answers [B, S]."""
        inputs: dict[str, Any] = {"attention_mask": attention_mask, "segment_ids": segment_ids}
        if own is not None:
            inputs[OWN_INPUT[self.model.head]] = own
        if self.model.head == "multiple-choice":
            inputs["num_choices"] = 1
        return named_outputs(self.model.head, self.model(input_ids, **inputs))


class Reference:
    """A runtime without any haste: one request at a time, unpadded, through the model as it is written."""

    def __init__(self, model: Model):
        self.config, self.head = model.config, model.head
        self.outputs = outputs_of(model)
        self.model = model.eval()
        self._named = NamedModel(self.model)

    @torch.inference_mode()
    def run(self, requests: Sequence[Request]) -> list[Outputs]:
        """The wanted outputs of each request, in order."""
        return [self._run(request) for request in requests]

    @torch.inference_mode()
    def head_outputs(self, request: Request) -> dict[str, Tensor]:
        """The head's outputs, as tensors."""
        ids, segments = self._tensors(request)
        inputs = [ids, torch.ones_like(ids), segments]
        own = OWN_INPUT.get(self.head)
        if own == "positions":
            assert request.positions is not None
            inputs.append(torch.from_numpy(request.positions))
        elif own == "outside":
            assert request.outside is not None
            inputs.append(torch.from_numpy(request.outside)[None].long())
        outputs: dict[str, Tensor] = self._named(*inputs)
        return outputs

    @staticmethod
    def _tensors(request: Request) -> tuple[Tensor, Tensor]:
        ids, segments = (torch.from_numpy(x.astype(np.int64))[None] for x in (request.ids, request.segments))
        return ids, segments

    def _run(self, request: Request) -> Outputs:
        ids, segments = self._tensors(request)
        named = self.head_outputs(request)
        # Once more for itself: a head may ask its encoder for some tokens only.
        maps = "attentions" in request.want
        encoded = self.model.encoder(ids, segment_ids=segments, output_attentions=maps)
        values = {name: value if name == "masked_lm" else value[0] for name, value in named.items()}
        hidden = encoded.hidden[0]
        values |= {"hidden": hidden, "first": hidden[0], "mean": hidden.mean(0)}
        if maps:
            values["attentions"] = torch.stack(encoded.attentions)[:, 0]
        if encoded.pooled is not None:
            values["pooled"] = encoded.pooled[0]
        return {name: values[name].numpy() for name in request.want}


# ---------------------------------------------------------------------------------------------------------------------
# The comparison


@dataclass(frozen=True)
class Check:
    """How one file compares with torch."""

    sequences: int
    differences: list[Difference]
    agreement: float | None  # share of equal decisions: labels, words, spans; None where a model makes none
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # metric -> torch's, the file's
    divergence: float | None = None  # mean KL divergence of the file's probabilities from torch's, in nats

    def within(self, tolerance: float) -> bool:
        """Whether all outputs agree (relative to their size if above 1), and all decisions except ties."""
        close = all(row.within(tolerance * max(1.0, row.magnitude)) for row in self.differences)
        return close and (self.agreement is None or self.agreement > 0.95)

    @property
    def worst(self) -> Difference:
        """The output that is furthest off for its size."""
        return max(
            self.differences, key=lambda row: np.nan_to_num(row.difference / max(1.0, row.magnitude), nan=np.inf)
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        scores = {name: {"torch": both[0], "file": both[1]} for name, both in self.scores.items()}
        return {**vars(self), "scores": scores, "differences": [row.as_dict() for row in self.differences]}


def compare(
    expected: Sequence[Outputs], exported: Runtime, requests: Sequence[Request]
) -> tuple[Check, Sequence[Outputs]]:
    """Run the requests and compare each output with the expected one."""
    actual = exported.run(requests)
    names = sorted(name for name in expected[0] if not name.endswith("_index"))
    votes = [vote for a, b in zip(expected, actual, strict=True) for vote in _same_decisions(a, b)]
    apart = [value for a, b in zip(expected, actual, strict=True) for value in _divergences(a, b)]
    differences = [_difference(name, expected, actual) for name in names]
    agreement, divergence = (float(np.mean(values)) if values else None for values in (votes, apart))
    return Check(len(requests), differences, agreement, divergence=divergence), actual


def random_requests(
    config: ModelConfig, want: frozenset[str], seed: int = 0, tokenizer: Tokenizer | None = None
) -> list[Request]:
    """Random ids of many lengths, from one token to the model's limit (at most 512), with both segments.

    With a tokenizer, pieces are drawn as often as they occur in text.
    """
    generator = np.random.default_rng(seed)
    shares = piece_shares(config, tokenizer)
    longest = min(512, config.max_position_embeddings)
    lengths = sorted({min(length, longest) for length in (1, 2, 3, 7, 8, 16, 31, 64, 100, longest)})
    requests = []
    for length in (*lengths, *lengths[1:-1]):
        ids = generator.choice(config.vocab_size, length, p=shares).astype(np.int32)
        segments = (np.arange(length) >= length // 2).astype(np.int8) * min(1, config.type_vocab_size - 1)
        positions = np.unique(generator.integers(0, length, max(1, length // 7)))
        outside = generator.random(length) < 0.3
        outside[0] = False  # [CLS] always may be the answer: that there is none
        requests.append(Request(ids, segments.astype(np.int8), want, positions, outside))
    return requests


def piece_shares(config: ModelConfig, tokenizer: Tokenizer | None) -> NDArray[np.float64]:
    """How often each piece occurs [V]: as a SentencePiece vocabulary says itself, otherwise by rank (Zipf)."""
    shares = np.zeros(config.vocab_size)
    if tokenizer is None:
        shares[:] = 1
    else:
        known = min(tokenizer.vocab_size, config.vocab_size)
        if isinstance(tokenizer, SentencePieceTokenizer):
            pieces = read_model(tokenizer.model).pieces[:known]
            shares[:known] = [math.exp(piece.score) if piece.kind == NORMAL else 0 for piece in pieces]
        else:
            shares[:known] = 1 / (np.arange(known) + 10.0)
        shares[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]] = 0
        shares[[tokenizer.pad_id, tokenizer.unk_id]] = 0
    return shares / shares.sum()


def _difference(name: str, expected: Sequence[Outputs], actual: Sequence[Outputs]) -> Difference:
    worst = largest = 0.0
    for a, b in zip(expected, actual, strict=True):
        left, right = a[name].astype(np.float64), b[name].astype(np.float64)
        if left.shape != right.shape:
            return Difference(name, float("nan"), largest)
        if name.endswith("log_prob"):
            # Where nothing can be an answer, which of the equals comes first means nothing, nor what follows from it.
            possible = (left > _EXCLUDED) & (a["start_log_prob"] > _EXCLUDED)
            left, right = left[possible], right[possible]
        if left.size:
            # np.max hands a NaN on, max() would lose it.
            worst = float(np.max([worst, np.abs(left - right).max()]))
            largest = max(largest, float(np.abs(left).max()))
    return Difference(name, worst, largest)


def _divergences(expected: Outputs, actual: Outputs) -> list[Any]:
    found: list[Any] = []
    for name in _DECISIONS:
        if name in expected and expected[name].ndim and expected[name].shape[-1] > 1:
            p, q = (log_softmax(np.atleast_2d(side[name])) for side in (expected, actual))
            found.extend((np.exp(p) * (p - q)).sum(-1))
    return found


def _same_decisions(expected: Outputs, actual: Outputs) -> list[Any]:
    votes: list[Any] = []
    for name in _DECISIONS:
        if name in expected and expected[name].ndim and expected[name].shape[-1] > 1:
            same = expected[name].argmax(-1) == actual[name].argmax(-1)
            votes.extend(np.atleast_1d(same))
    if "start_index" in expected:
        # The best start and its best end.
        votes.append(expected["start_index"][0] == actual["start_index"][0])
        votes.append(expected["end_index"][0, 0] == actual["end_index"][0, 0])
    return votes


# ---------------------------------------------------------------------------------------------------------------------
# The user's own data


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
    want = wanted_outputs(task, runtime.head)
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
        raise DataError(f"{path}: contains no labelled dev split of {task.name}")
    return next(iter(read.dev.values()))[:MOST_EXAMPLES]


def _text_requests(
    path: Path, want: frozenset[str], tokenizer: Tokenizer, max_length: int, masked: bool
) -> list[Request]:
    """One text per line, a tab between the two of a pair; `masked` hides every seventh token."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a text file: {error}") from None
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
