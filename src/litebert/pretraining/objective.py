"""The model of a run at its start, its two losses, and replaced-token detection beside them.

Losses are sums with counts, so that any division of a global batch gives the same mean.
Shapes: T packed tokens, N sequences, P positions to predict, H hidden, V vocabulary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from litebert.errors import ConfigError
from litebert.model.encoder import Embeddings, Encoder, initialize
from litebert.model.heads import Exit, MaskedLMHead, MaskedLMModel, PretrainingModel, PretrainingOutput
from litebert.model.hub import load_model_and_report
from litebert.pretraining.batches import NO_LABEL, Batch
from litebert.pretraining.config import DetectionConfig, RunConfig
from litebert.text.tokenizer import Tokenizer
from litebert.train.device import Device, send


def make_model(config: RunConfig, load: bool = True) -> tuple[PretrainingModel, list[str]]:
    """The model at its start, random or from another (possibly shallower) model, and notes about it."""
    cls = MaskedLMModel if config.recipe.objective == "none" else PretrainingModel
    model = cls(config.model)
    if config.init_from is None or not load:
        if config.position_init == "sinusoidal":
            table = model.encoder.embeddings.position.weight
            with torch.no_grad():
                table.copy_(sinusoids(*table.shape) * (math.sqrt(2) * config.model.initializer_range))
        return model, []
    source, report = load_model_and_report(config.init_from, cls.head, new_head=True)
    if source.config.vocab_size != config.model.vocab_size:
        raise ConfigError(
            f"init_from: {config.init_from} has {source.config.vocab_size} pieces, the tokenizer "
            f"{config.model.vocab_size}; use that model's own tokenizer"
        )
    differences = {
        field.name: (getattr(source.config, field.name), getattr(config.model, field.name))
        for field in dataclasses.fields(config.model)
        if field.name in _DECISIVE and getattr(source.config, field.name) != getattr(config.model, field.name)
    }
    if differences:
        listed = ", ".join(f"{name} {old} there, {new} here" for name, (old, new) in differences.items())
        raise ConfigError(f"init_from: {config.init_from} does not fit the model of this config: {listed}")
    try:
        model.load_state_dict(source.state_dict())
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ConfigError(f"init_from: {config.init_from} does not fit the model of this config: {reason}") from None
    notes = [f"{config.init_from} has no {', '.join(report.missing)}: initialised"] if report.missing else []
    return model, notes


def sinusoids(length: int, width: int) -> Tensor:
    """sin and cos of each position at wavelengths from 2 pi to 20,000 pi: [length, width], of root mean square 0.71."""
    rates = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates  # [length, width / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width]


# Fields that must equal those of the model to start from: they decide what its weights compute.
_DECISIVE = (
    "embedding_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "sharing",
    "inner_group_num",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "embedding_projection",
)


class Inputs(NamedTuple):
    """A batch on the device."""

    tokens: Tensor  # [T]
    segments: Tensor  # [T]
    positions: Tensor  # [T]
    starts: Tensor  # [N + 1]
    masked: Tensor  # [P]
    labels: Tensor  # [P]
    order: Tensor  # [N]
    max_length: int
    step: int | None = None  # where it decides which exit learns; None: all of them do


class Totals(NamedTuple):
    """Sums over a batch; each a scalar tensor on the device."""

    mlm_loss: Tensor
    mlm_correct: Tensor
    mlm_count: Tensor
    sentence_loss: Tensor
    sentence_correct: Tensor
    sentence_count: Tensor

    def stacked(self) -> Tensor:
        """All six as one float32 vector, detached."""
        return torch.stack([value.detach().float() for value in self])


def to_device(batch: Batch, device: torch.device, max_length: int, step: int | None = None) -> Inputs:
    """Copy a batch; on a GPU without waiting for it."""
    return Inputs(
        send(batch.tokens, device).long(),
        send(batch.segments, device).long(),
        send(batch.positions, device).long(),
        send(batch.starts, device),
        send(batch.masked, device).long(),
        send(batch.labels, device).long(),
        send(batch.order, device).long(),
        max_length,
        step,
    )


def run_model(model: PretrainingModel, inputs: Inputs) -> PretrainingOutput:
    """The logits of a packed batch: masked LM [P, V], sentence order [N, 2]."""
    return model(inputs.tokens, positions=inputs.masked, **packing_of(inputs))


def run_exits(model: PretrainingModel, inputs: Inputs, depths: Sequence[int]) -> Iterator[PretrainingOutput]:
    """The logits at several depths, from one pass: one head serves them all."""
    for exit in model.at_exits(inputs.tokens, depths, positions=inputs.masked, **packing_of(inputs)):
        yield model(inputs.tokens, at=exit)


def packing_of(inputs: Inputs) -> dict[str, Any]:
    """How the encoder is to read the tokens."""
    return {
        "segment_ids": inputs.segments,
        "position_ids": inputs.positions,
        "starts": inputs.starts,
        "max_length": inputs.max_length,
    }


def score(output: PretrainingOutput, inputs: Inputs) -> Totals:
    """Loss sums, right answers and counts of both objectives; 0 for a head that the model lacks."""
    mlm = _score(output.masked_lm, inputs.labels)
    sentence = _score(output.sentence, inputs.order)
    return Totals(*mlm, *sentence)


def weigh(totals: Totals, counts: Tensor) -> tuple[Tensor, Tensor]:
    """A micro-batch's part of the two mean losses, added, given the counts of the whole batch; the totals."""
    masked, pairs = counts[:2].unbind()
    return totals.mlm_loss / masked + totals.sentence_loss / pairs, totals.stacked()


def scorer(device: Device) -> Callable[[PretrainingOutput, Inputs], Totals]:
    """`score`, compiled on a GPU: a row of logits is then read twice, not once per step of the formula."""
    return torch.compile(score, dynamic=False) if device.compile and device.is_cuda else score


def _score(logits: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if logits is None:
        zero = torch.zeros((), device=labels.device)
        return zero, zero, zero
    logits = logits.float()
    counted = labels != NO_LABEL
    loss = F.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="sum")
    correct = ((logits.argmax(-1) == labels) & counted).sum()
    return loss, correct, counted.sum()


# ---------------------------------------------------------------------------------------------------------------------
# Replaced-token detection


DETECTION_FILE = "detection.safetensors"


class DetectionTotals(NamedTuple):
    """Sums over a batch; each a scalar tensor on the device."""

    generator_loss: Tensor
    generator_correct: Tensor
    loss: Tensor
    found: Tensor  # replaced tokens that the model noticed
    replaced: Tensor
    wrong: Tensor  # author's tokens that it took for replaced
    judged: Tensor

    def stacked(self) -> Tensor:
        """All of them as one float32 vector, detached."""
        return torch.stack([value.detach().float() for value in self])


class Detection(nn.Module):
    """Replaced-token detection (Clark et al. 2020): a loss on every token, not only on the masked ones.

    A small generator, with the model's own embeddings, fills the masks of a batch. The model then reads some of them as
    masks and the others as the generator's guesses. It predicts all of them, as always, and tells for every other token
    whether it is the original. The model folder has neither generator nor detector; the run folder keeps them in
    `detection.safetensors`, for a run that starts from this one.
    """

    def __init__(self, model: PretrainingModel, config: DetectionConfig, tokenizer: Tokenizer):
        super().__init__()
        shape = dataclasses.replace(
            model.config,
            hidden_size=config.hidden_size,
            num_attention_heads=max(1, config.hidden_size // 64),
            intermediate_size=4 * config.hidden_size,
            num_hidden_layers=config.layers,
            num_hidden_groups=config.layers,
            inner_group_num=1,
            sharing="none",
            exits=(),
            embedding_projection=True,
        )
        self.share, self.by_token = config.share, config.draw == "token"
        self.unreadable = (tokenizer.mask_id, tokenizer.pad_id)  # neither the author's nor the generator's
        self.encoder = Encoder(shape, pooler=False)
        del self.encoder.embeddings  # the model's are passed in at every call
        self.masked_lm = MaskedLMHead(shape)
        width = model.config.hidden_size
        self.detector = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        for head in (self.masked_lm, self.detector):
            initialize(head, model.config.initializer_range)
        self._judge: Callable[..., tuple[Tensor, ...]] = judge
        self._guess: Callable[..., tuple[Tensor, ...]] = guess
        if config.init_from is not None:
            self._load(Path(config.init_from))

    def save(self, folder: Path) -> None:
        """Write generator and detector to a run folder."""
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, folder / DETECTION_FILE)

    def _load(self, path: Path) -> None:
        try:
            self.load_state_dict({name: tensor.float() for name, tensor in load_file(path).items()})
        except FileNotFoundError:
            raise ConfigError(f"detection.init_from: no such file: {path}") from None
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"detection.init_from: {path}: not a {DETECTION_FILE} of a run ({error})") from None
        except RuntimeError:
            raise ConfigError(
                f"detection.init_from: {path} has another generator or another model than this config; set "
                "detection.hidden_size and detection.layers as in that run, or leave init_from out"
            ) from None

    def compile_scores(self) -> None:
        """On a GPU: large logits are then read twice, not once per step of a formula."""
        self._judge, self._guess = (torch.compile(function, dynamic=False) for function in (judge, guess))

    def forward(self, model: PretrainingModel, inputs: Inputs) -> tuple[PretrainingOutput, DetectionTotals]:
        """The model's logits on text in which some tokens are guesses; the sums of generator and detector."""
        logits = self.generate(model.encoder.embeddings, inputs)
        generator_loss, generator_correct, guesses = self._guess(logits, inputs.labels)
        original = put(inputs.tokens, inputs.masked, inputs.labels, inputs.labels != NO_LABEL)
        shown = self._draw(inputs) & (inputs.labels != NO_LABEL)
        tokens = put(inputs.tokens, inputs.masked, guesses, shown)
        output = model.encode(tokens, **packing_of(inputs))
        answers = model(
            tokens, at=Exit(model.config.num_hidden_layers, output._replace(hidden=output.hidden[inputs.masked]))
        )
        readable = (tokens != self.unreadable[0]) & (tokens != self.unreadable[1])
        judged = self._judge(self.detector(output.hidden).squeeze(-1), tokens != original, readable)
        return answers, DetectionTotals(generator_loss, generator_correct, *judged)

    def _draw(self, inputs: Inputs) -> Tensor:
        """Which of the places to predict [P] may show a guess."""
        if self.by_token:
            return torch.rand(inputs.masked.shape, device=inputs.masked.device) < self.share
        sequence = torch.searchsorted(inputs.starts[1:], inputs.masked.to(inputs.starts.dtype), right=True)
        return (torch.rand(inputs.starts.shape, device=inputs.starts.device) < self.share)[sequence]

    def generate(self, embeddings: Embeddings, inputs: Inputs) -> Tensor:
        """The generator's logits [P, V]."""
        self.encoder.__dict__["embeddings"] = embeddings  # not a submodule: the weights are the model's
        hidden = self.encoder(inputs.tokens, positions=inputs.masked, **packing_of(inputs)).hidden
        logits: Tensor = self.masked_lm(hidden, embeddings)
        return logits


def report_detection(sums: Sequence[float], masked: float) -> dict[str, float]:
    """`DetectionTotals` over some steps, for the log."""
    totals = dict(zip(DetectionTotals._fields, sums, strict=True))
    replaced, judged = max(totals["replaced"], 1), max(totals["judged"], 1)
    return {
        "generator_loss": totals["generator_loss"] / max(masked, 1),
        "generator_accuracy": totals["generator_correct"] / max(masked, 1),
        "detection_loss": totals["loss"] / judged,
        "replaced_found": totals["found"] / replaced,
        "wrongly_found": totals["wrong"] / max(judged - totals["replaced"], 1),
    }


def put(tokens: Tensor, places: Tensor, values: Tensor, where: Tensor) -> Tensor:
    """A copy of the tokens [T] with values [P] in their places; unused places are 0, a [CLS], and keep it."""
    return tokens.index_copy(0, places, torch.where(where, values, tokens[places]))


def guess(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The generator's loss, its right answers, and one token drawn from each of its distributions [P]."""
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="sum")
    correct = ((logits.argmax(-1) == labels) & (labels != NO_LABEL)).sum()
    noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-20, 1 - 1e-7)))  # Gumbel: its argmax is a draw
    return loss, correct, (logits.detach() + noise).argmax(-1)


def judge(logits: Tensor, replaced: Tensor, readable: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The detector's loss [T] summed; replaced tokens found and in all; others taken for replaced; tokens in all."""
    logits = logits.float()
    losses = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
    replaced, others, said = replaced & readable, ~replaced & readable, logits > 0
    return (losses * readable).sum(), (said & replaced).sum(), replaced.sum(), (said & others).sum(), readable.sum()
