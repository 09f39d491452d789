"""Replaced-token detection beside masked LM (Clark et al. 2020): a loss on every token, not only on the masked ones.

A small generator, with the model's own embeddings, fills the masks of a batch. The model then reads some of them as
masks and the others as the generator's guesses. It predicts all of them, as always, and says of every other token
whether it is the author's. The model folder has neither generator nor detector; the run folder keeps them in
`detection.safetensors`, for a run that goes on from this one.

Shapes: T packed tokens, P positions to predict, H hidden, V vocabulary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from litebert.errors import ConfigError
from litebert.model.encoder import Embeddings, Encoder, initialize
from litebert.model.heads import Exit, MaskedLMHead, PretrainingModel, PretrainingOutput
from litebert.pretraining.batches import NO_LABEL
from litebert.pretraining.config import DetectionConfig
from litebert.pretraining.objective import Inputs, packing_of
from litebert.text.tokenizer import Tokenizer

FILE = "detection.safetensors"


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
    """The generator and the detector of a run."""

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
        del self.encoder.embeddings  # those of the model, which it brings to every call
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
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, folder / FILE)

    def _load(self, path: Path) -> None:
        try:
            self.load_state_dict({name: tensor.float() for name, tensor in load_file(path).items()})
        except FileNotFoundError:
            raise ConfigError(f"detection.init_from: no such file: {path}") from None
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"detection.init_from: {path}: not a {FILE} of a run ({error})") from None
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
        self.encoder.__dict__["embeddings"] = embeddings  # not a module of its own: its weights are the model's
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
