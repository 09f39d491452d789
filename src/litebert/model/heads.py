"""The encoder with each of its heads: one class per task, all built as `cls(config)`.

    model(input_ids, attention_mask=mask)                   -> logits
    model(input_ids, attention_mask=mask, labels=labels)    -> an output with `.loss`, as transformers computes it

Shapes: B batch, S sequence, T packed tokens, N packed sequences, P positions to predict, C choices, K top-k,
E embedding, H hidden, V vocabulary. `inputs` are the encoder's keyword arguments (segment_ids, attention_mask, ...).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.errors import ConfigError, InputError, did_you_mean, quote_value
from litebert.model.config import ModelConfig, check_exit
from litebert.model.encoder import (
    Embeddings,
    Encoder,
    EncoderOutput,
    activation,
    initialize,
    mean_tokens,
    pad_packed,
)
from litebert.remote import push_folder

if TYPE_CHECKING:
    from typing import Self


class Exit(NamedTuple):
    """A partial pass: the head reads this output instead of running the encoder."""

    depth: int
    output: EncoderOutput


class Model(nn.Module):
    """An encoder, alone or under a head. `head` names the task; a subclass sets it."""

    head: ClassVar[str] = "encoder"
    pooler: ClassVar[bool] = True
    labelled: ClassVar[bool] = False  # whether it has one output per label of the config

    def __init__(self, config: ModelConfig, pooler: bool | None = None):
        super().__init__()
        if not isinstance(config, ModelConfig):
            raise InputError(
                f"config: expected a ModelConfig, such as preset('albert-base'), got {quote_value(config)}; "
                "load_model opens a model folder"
            )
        self.config = config
        self.encoder = Encoder(config, self.pooler if pooler is None else pooler)
        self.depth: int | None = None  # where it answers; None: at full depth
        self.exits: nn.ModuleDict | None = None  # the heads of the other depths; None: one head serves them all

    def forward(self, input_ids: Tensor, **inputs: Any) -> Any:
        return self.encode(input_ids, **inputs)

    def encode(self, input_ids: Tensor, at: Exit | None = None, **inputs: Any) -> EncoderOutput:
        """What the encoder makes of the input, or made of it at an exit."""
        output: EncoderOutput = self.encoder(input_ids, **inputs) if at is None else at.output
        return output

    def set_depth(self, depth: int | None = None) -> None:
        """Answer after this many layers, with the head of that exit (None: at full depth).

        Heads without exits, such as those of pretraining, are the same at every depth.
        """
        if depth is not None and self.exits is not None:
            check_exit(self.config, depth)
        self.encoder.stop_after(depth)
        self.depth = depth

    def at_exits(self, input_ids: Tensor, depths: Sequence[int], **inputs: Any) -> list[Exit]:
        """The states at several depths from one pass; `model(input_ids, at=exit, **inputs)` answers there."""
        inputs.pop("outside", None)  # of the answer head
        outputs = self.encoder.at_depths(input_ids, depths, **inputs)
        return [Exit(depth, output) for depth, output in zip(depths, outputs, strict=True)]

    def _head_at(self, at: Exit | None, full: nn.Module) -> nn.Module:
        depth = str(self.depth if at is None else at.depth)
        return self.exits[depth] if self.exits is not None and depth in self.exits else full

    @classmethod
    def from_pretrained(
        cls,
        source: Path | str,
        *,
        head: str | None = None,
        new_head: bool = False,
        num_labels: int | None = None,
        revision: str | None = None,
        **changes: Any,
    ) -> Self:
        """A model from a folder or a Hub name; `Model` takes the head it finds or the one named, a subclass its own.

        Model.from_pretrained("runs/mine/best")
        Model.from_pretrained("albert/albert-base-v2", head="masked-lm")
        ClassificationModel.from_pretrained("albert/albert-base-v2", num_labels=3, new_head=True)

        `new_head=True` initialises a head that the folder lacks; `changes` alter the config: hidden_dropout_prob, ...
        """
        from litebert.model.hub import load_model  # which knows these classes

        if num_labels is not None:
            changes["labels"] = tuple(f"LABEL_{i}" for i in range(num_labels))
        if cls is not Model:
            if head not in (None, cls.head):
                raise ConfigError(f"head: {cls.__name__} has the head {cls.head!r}, not {head!r}; use Model instead")
            head = cls.head
        return cast("Self", load_model(source, head, new_head, revision=revision, **changes))

    def save_pretrained(self, folder: Path | str, dtype: torch.dtype = torch.float32) -> Path:
        """Write a model folder, which transformers also opens if it has such a model; see save_model."""
        from litebert.model.hub import save_model

        return save_model(self, folder, dtype)

    def push_to_hub(
        self,
        name: str,
        *,
        tokenizer: Any = None,
        private: bool | None = None,
        revision: str | None = None,
        message: str | None = None,
        token: str | None = None,
    ) -> str:
        """Upload the model, and its tokenizer if given, as `owner/name` of the Hub; returns the address.

        Needs `hf auth login` once, or a `token`. litebert.remote.push_folder uploads a whole folder, card included.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            if tokenizer is not None:
                tokenizer.save(folder)
            return push_folder(folder, name, private=private, revision=revision, message=message, token=token)

    def summarize(self, input_ids: Tensor, **inputs: Any) -> Tensor:
        """One vector per text, [B or N, H], by the config's `pooling`."""
        if self.config.pooling == "first":
            pooled = self.encode(input_ids, **inputs).pooled
            assert pooled is not None
            return pooled
        # Every token counts, so none may be left out for speed.
        inputs = {name: value for name, value in inputs.items() if name not in ("positions", "only_asked")}
        hidden = self.encode(input_ids, **inputs).hidden
        return mean_tokens(hidden, inputs.get("starts"), inputs.get("attention_mask"))

    @property
    def num_parameters(self) -> int:
        """Numbers in the model, each counted once however often it is applied."""
        return sum(parameter.numel() for parameter in self.parameters())


class EncoderModel(Model):
    """The bare encoder: hidden states, and the pooled output unless made with `pooler=False`."""


class MaskedLMHead(nn.Module):
    """H -> E, activation, LayerNorm, then the word embeddings themselves as the output matrix (unless untied)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        width = config.embedding_norm_size
        self.dense = nn.Linear(config.hidden_size, width)
        self.activation = activation(config.hidden_act)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        tied = config.tie_word_embeddings
        self.output = None if tied else nn.Linear(config.embedding_size, config.vocab_size, bias=False)

    def forward(self, hidden: Tensor, embeddings: Embeddings) -> Tensor:
        narrow = self.norm(self.activation(self.dense(hidden)))  # [P, E]
        if embeddings.projection is not None:
            narrow = narrow @ embeddings.projection.weight  # [P, H] -> [P, E]: back the way that words came in
        words = embeddings.word if self.output is None else self.output
        return F.linear(narrow, words.weight, self.bias)  # [P, V]


class PretrainingOutput(NamedTuple):
    """Logits of the two pretraining heads; a model without one of them leaves it None."""

    masked_lm: Tensor | None  # [P, V], or [*, V] without `positions`
    sentence: Tensor | None  # [B or N, 2]: 0 = right order (or the true next segment), 1 = swapped (or random)
    loss: Tensor | None = None  # with labels: the sum of the mean losses


class PretrainingModel(Model):
    """Masked LM and the sentence head (SOP or NSP: the same two logits, trained on other pairs)."""

    head = "pretraining"
    masked_lm_head: ClassVar[bool] = True
    sentence_head: ClassVar[bool] = True

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.masked_lm = MaskedLMHead(config) if self.masked_lm_head else None
        self.sentence = nn.Linear(config.hidden_size, 2) if self.sentence_head else None
        initialize_heads(self)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        labels: Tensor | None = None,
        sentence_labels: Tensor | None = None,
        **inputs: Any,
    ) -> PretrainingOutput:
        """`positions` [P] index the flattened tokens ([B * S] or [T]): only those are predicted.

        labels: ids to predict, like input_ids (or [P]), -100 where there is nothing to predict; those of the pairs if
        the model has the sentence head alone. sentence_labels: [B or N], 0 or 1, -100 for none.
        """
        if self.masked_lm is None and sentence_labels is None:
            labels, sentence_labels = None, labels
        output = self.encode(input_ids, positions=positions, **inputs)
        masked_lm = None
        if self.masked_lm is not None:
            masked_lm = self.masked_lm(output.hidden, self.encoder.embeddings)
        # No dropout before the sentence head (transformers adds 0.1).
        sentence = None if self.sentence is None else self.sentence(output.pooled)
        losses = [
            cross_entropy(logits, target)
            for logits, target in ((masked_lm, labels), (sentence, sentence_labels))
            if logits is not None and target is not None
        ]
        return PretrainingOutput(masked_lm, sentence, torch.stack(losses).sum() if losses else None)


class MaskedLMModel(PretrainingModel):
    """Masked LM alone, as pretrained without a sentence objective; it has no pooler."""

    head = "masked-lm"
    pooler = False
    sentence_head = False


class SentenceOrderModel(PretrainingModel):
    """The sentence head alone (transformers has it for BERT as next-sentence prediction)."""

    head = "sentence-order"
    masked_lm_head = False


class ClassifierOutput(NamedTuple):
    """What a classifier returns where labels are given."""

    logits: Tensor
    loss: Tensor


class _Classifier(Model):
    """Dropout and one linear layer; subclasses choose its input."""

    def __init__(self, config: ModelConfig, num_outputs: int | None = None):
        super().__init__(config)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_outputs or config.num_labels)
        self.exits = exit_heads(config, self.classifier)
        initialize_heads(self)

    def classify(self, vectors: Tensor, at: Exit | None) -> Tensor:
        """The logits by the classifier of a depth: vectors [*, H] -> [*, labels]."""
        logits: Tensor = self._head_at(at, self.classifier)(self.dropout(vectors))
        return logits


class ClassificationModel(_Classifier):
    """One vector of the text -> dropout -> one logit per label; a single output for regression."""

    head = "classification"
    labelled = True

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, **inputs: Any) -> Tensor | ClassifierOutput:
        """Logits [B or N, labels]. Labels are classes [B], numbers [B] (regression) or 0s and 1s [B, labels].

        The config's `problem_type` says which; without it, one output means regression, whole numbers mean classes.
        """
        logits = self.classify(self.summarize(input_ids, **inputs), inputs.get("at"))
        if labels is None:
            return logits
        problem_type = self.config.problem_type
        if problem_type == "regression" or (problem_type is None and logits.shape[-1] == 1):
            loss = F.mse_loss(logits, labels.to(logits.dtype).view_as(logits))
        elif problem_type == "multi_label_classification" or (problem_type is None and labels.is_floating_point()):
            loss = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        else:
            loss = cross_entropy(logits, labels)
        return ClassifierOutput(logits, loss)


class TokenClassificationModel(_Classifier):
    """One logit per label for every token."""

    head = "token-classification"
    labelled = True
    pooler = False

    def forward(self, input_ids: Tensor, labels: Tensor | None = None, **inputs: Any) -> Tensor | ClassifierOutput:
        """Logits [*, labels]. `labels` are classes, like input_ids; -100 where a token does not count."""
        logits = self.classify(self.encode(input_ids, **inputs).hidden, inputs.get("at"))
        return logits if labels is None else ClassifierOutput(logits, cross_entropy(logits, labels))


class MultipleChoiceModel(_Classifier):
    """One score per choice; the caller takes the softmax over a question's choices."""

    head = "multiple-choice"

    def __init__(self, config: ModelConfig):
        super().__init__(config, num_outputs=1)

    def forward(
        self, input_ids: Tensor, num_choices: int | None = None, labels: Tensor | None = None, **inputs: Any
    ) -> Tensor | ClassifierOutput:
        """Padded [B, C, S], or packed [T] with `num_choices` and starts for B * C sequences -> [B, C].

        labels: the right choice of each question, [B].
        """
        if input_ids.ndim == 3:
            num_choices = input_ids.shape[1]
            inputs = {k: v.flatten(0, 1) if isinstance(v, Tensor) and v.ndim == 3 else v for k, v in inputs.items()}
            input_ids = input_ids.flatten(0, 1)  # [B * C, S]
        if num_choices is None:
            raise InputError(
                "multiple choice takes input ids [batch, choices, sequence], or packed ones and num_choices"
            )
        logits = self.classify(self.summarize(input_ids, **inputs), inputs.get("at")).view(-1, num_choices)
        return logits if labels is None else ClassifierOutput(logits, cross_entropy(logits, labels))


class SpanOutput(NamedTuple):
    """Start and end logits, and the loss where positions are given."""

    start: Tensor
    end: Tensor
    loss: Tensor | None = None


class SpanModel(Model):
    """SQuAD 1.1: start and end logits straight from the hidden states, no dropout."""

    head = "span"
    pooler = False

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.span = nn.Linear(config.hidden_size, 2)
        self.exits = exit_heads(config, self.span)
        initialize_heads(self)

    def forward(
        self,
        input_ids: Tensor,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **inputs: Any,
    ) -> SpanOutput:
        """Logits [*] each; with the positions of the answers [B], the loss too (padded input)."""
        head = self._head_at(inputs.get("at"), self.span)
        start, end = head(self.encode(input_ids, **inputs).hidden).unbind(-1)
        if start_positions is None or end_positions is None:
            return SpanOutput(start, end)
        if input_ids.ndim != 2:
            raise InputError("start_positions: the loss is for padded input [batch, sequence]")
        return SpanOutput(start, end, span_loss(start, end, start_positions, end_positions))


class AnswerOutput(NamedTuple):
    """SQuAD 2.0 logits. With `start_positions`, the ends are [B, S] and there is no search."""

    start: Tensor  # [B, S]
    end: Tensor  # training [B, S]; search: [B, K_end, K_start] log-probabilities of the best ends of each start
    no_answer: Tensor  # [B]: high where the passage holds no answer
    start_index: Tensor | None = None  # search [B, K_start]
    start_log_prob: Tensor | None = None  # search [B, K_start]
    end_index: Tensor | None = None  # search [B, K_end, K_start]
    loss: Tensor | None = None  # with start_positions and end_positions


class AnswerModel(Model):
    """SQuAD 2.0: the end is conditioned on the start, and a third output says that there is no answer.

    `outside` [B, S] is 1 for tokens excluded as answers (question, separators, padding), 0 for [CLS] and the passage.
    Packed input gives the same output, [N, max_length], with `outside` [T].
    """

    head = "answer"
    pooler = False

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        hidden = config.hidden_size
        self.start = nn.Linear(hidden, 1)
        self.end_hidden = nn.Linear(2 * hidden, hidden)
        self.end_norm = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.end = nn.Linear(hidden, 1)
        # Under these names in model files; the output is high for *no* answer.
        self.answerable_hidden = nn.Linear(2 * hidden, hidden)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.answerable = nn.Linear(hidden, 1, bias=False)
        initialize_heads(self)

    def forward(
        self,
        input_ids: Tensor,
        outside: Tensor | None = None,
        start_positions: Tensor | None = None,
        top_starts: int = 5,
        top_ends: int = 5,
        end_positions: Tensor | None = None,
        is_impossible: Tensor | None = None,
        **inputs: Any,
    ) -> AnswerOutput:
        """With the positions of the answers [B] (0, the [CLS], where there is none), the loss too.

        `is_impossible` [B] is 1 where there is no answer; without it the no-answer output is not trained.
        """
        hidden = self.encode(input_ids, **inputs).hidden  # [B, S, H]
        if inputs.get("starts") is not None:
            # Only this head pays for padding: the encoder has done without.
            starts, positions = inputs["starts"], inputs["position_ids"]
            size = inputs.get("max_length") or self.config.max_position_embeddings
            outside = pad_packed(
                torch.zeros_like(positions) if outside is None else outside, starts, positions, size, 1
            )
            hidden = pad_packed(hidden, starts, positions, size)
        start = _exclude(self.start(hidden).squeeze(-1), outside)  # [B, S]
        no_answer = self._no_answer(hidden, start)
        if start_positions is not None:
            rows = torch.arange(len(hidden), device=hidden.device)
            end = _exclude(self._end(hidden, hidden[rows, start_positions].unsqueeze(1)), outside)
            loss = None if end_positions is None else span_loss(start, end, start_positions, end_positions)
            if loss is not None and is_impossible is not None:
                target = is_impossible.to(no_answer.dtype)
                loss = loss + F.binary_cross_entropy_with_logits(no_answer, target) / 2  # as released
            return AnswerOutput(start, end, no_answer, loss=loss)

        start_log_prob, start_index = start.log_softmax(-1).topk(min(top_starts, start.shape[1]))  # [B, K]
        chosen = hidden.gather(1, start_index[..., None].expand(-1, -1, hidden.shape[-1]))  # [B, K, H]
        # Every token beside every chosen start, as one more axis: [B, K, S, H].
        end = self._end(hidden.unsqueeze(1), chosen.unsqueeze(2))  # [B, K, S]
        end = _exclude(end, None if outside is None else outside.unsqueeze(1))
        end_log_prob, end_index = end.log_softmax(-1).topk(min(top_ends, end.shape[-1]))  # [B, K, K_end]
        return AnswerOutput(
            start,
            end_log_prob.mT,
            no_answer,
            start_index,
            start_log_prob,
            end_index.mT,  # [B, K_end, K]
        )

    def _end(self, hidden: Tensor, start_state: Tensor) -> Tensor:
        hidden, start_state = torch.broadcast_tensors(hidden, start_state)
        joined = torch.cat([hidden, start_state], dim=-1)
        return self.end(self.end_norm(torch.tanh(self.end_hidden(joined)))).squeeze(-1)

    def _no_answer(self, hidden: Tensor, start: Tensor) -> Tensor:
        summary = torch.einsum("bs,bsh->bh", start.softmax(-1), hidden)
        joined = torch.cat([summary, hidden[:, 0]], dim=-1)
        return self.answerable(self.dropout(torch.tanh(self.answerable_hidden(joined)))).squeeze(-1)


def _exclude(logits: Tensor, outside: Tensor | None) -> Tensor:
    if outside is None:
        return logits
    outside = outside.to(logits.dtype)
    return logits * (1 - outside) - 1e30 * outside


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over all labels but -100: logits [*, classes], labels [*]."""
    return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


def span_loss(start: Tensor, end: Tensor, start_positions: Tensor, end_positions: Tensor) -> Tensor:
    """(start + end) / 2 over logits [B, S]; a position beyond the sequence does not count."""
    size = start.shape[1]
    first, last = (
        F.cross_entropy(logits.float(), places.view(-1).clamp(0, size), ignore_index=size)
        for logits, places in ((start, start_positions), (end, end_positions))
    )
    return (first + last) / 2


def named_outputs(head: str, output: Any) -> dict[str, Tensor]:
    """A head's outputs, by the names that runtimes and exported files use: logits, masked_lm, sentence, start, ..."""
    named: dict[str, Tensor | None]
    if isinstance(output, EncoderOutput):
        named = {"hidden": output.hidden, "pooled": output.pooled}
    elif isinstance(output, PretrainingOutput | SpanOutput):
        named = {name: value for name, value in output._asdict().items() if name != "loss"}
    elif isinstance(output, AnswerOutput):
        named = {
            "start_index": output.start_index,
            "start_log_prob": output.start_log_prob,
            "end_index": output.end_index,
            "end_log_prob": output.end,
            "answerable": output.no_answer,
        }
    else:
        named = {"logits": output.squeeze(-1) if head == "multiple-choice" else output}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def exit_heads(config: ModelConfig, full: nn.Linear) -> nn.ModuleDict:
    """A linear head like the one of full depth for each exit before it, by depth (PABEE has one per layer)."""
    return nn.ModuleDict({str(depth): nn.Linear(full.in_features, full.out_features) for depth in config.exits[:-1]})


def initialize_heads(model: Model) -> None:
    """Initialise everything except the encoder, which initialises itself."""
    for name, child in model.named_children():
        if name != "encoder":
            initialize(child, model.config.initializer_range)


def model_class(head: str) -> type[Model]:
    """The class of a head by its name; a mistyped name shows the nearest."""
    if head not in MODELS:
        raise ConfigError(f"no head {head!r}{did_you_mean(head, MODELS) or '.'} Known: {', '.join(MODELS)}")
    return MODELS[head]


MODELS: dict[str, type[Model]] = {
    cls.head: cls
    for cls in (
        EncoderModel,
        PretrainingModel,
        MaskedLMModel,
        SentenceOrderModel,
        ClassificationModel,
        TokenClassificationModel,
        MultipleChoiceModel,
        SpanModel,
        AnswerModel,
    )
}
