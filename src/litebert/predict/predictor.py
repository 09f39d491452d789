"""The Predictor: a model folder, and raw text in and plain answers out.

    predictor = Predictor("runs/mine/model")
    predictor.fill_mask("the capital of france is [MASK]").masks[0].candidates[0].word
    predictor.fill_mask(["a [MASK]", "b [MASK]"])       -> two results from one pass through the model

Every method takes one input or a list of them, of any length, and answers in their order. A server makes jobs
(`predictor.job`) as requests arrive and runs them together, to their end (`predictor.run`) or pass by pass
(`predictor.run_pass`).
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, cast, overload

from litebert.errors import ConfigError, InputError
from litebert.predict.abilities import ABILITIES, abilities_of, begin, infer_task, refuse
from litebert.predict.inputs import Inputs
from litebert.predict.job import Job, run_jobs, run_pass
from litebert.predict.load import load_parts
from litebert.predict.results import (
    Answer,
    Attention,
    Choice,
    Classification,
    Coherence,
    Embedding,
    FilledMasks,
    Result,
    SentenceOrder,
    Tagging,
)
from litebert.predict.runtime import Runtime
from litebert.tasks.task import Task, check_outputs
from litebert.text.tokenizer import Tokenizer

Texts = list[str] | tuple[str, ...]


class Predictor:
    """Answers from raw text by one model."""

    def __init__(
        self,
        model: Path | str = "default",
        *,
        runtime: str = "auto",  # the fastest of: torch, onnx-fp32; or onnx (int8 where it is there), onnx-int8
        device: str = "auto",
        threads: int = 0,
        max_tokens: int = 8192,
    ):
        counts: tuple[tuple[str, object, int], ...] = (("max_tokens", max_tokens, 1), ("threads", threads, 0))
        for name, value, least in counts:
            if not isinstance(value, Integral) or int(value) < least:
                raise ConfigError(f"{name}: must be a whole number from {least} on, not {value!r}")
        self._set(*load_parts(model, runtime, device, threads, max_tokens), str(model))

    @classmethod
    def of(cls, runtime: Runtime, tokenizer: Tokenizer, task: Task | None = None, name: str = "model") -> Predictor:
        """A Predictor made of parts that are loaded already."""
        predictor = cls.__new__(cls)
        predictor._set(runtime, tokenizer, task, name)
        return predictor

    def _set(self, runtime: Runtime, tokenizer: Tokenizer, task: Task | None, name: str) -> None:
        config = runtime.config
        if tokenizer.vocab_size > config.vocab_size:
            raise ConfigError(
                f"{name}: the tokenizer has {tokenizer.vocab_size:,} pieces, the model {config.vocab_size:,}; "
                "they do not belong together"
            )
        if task is not None:
            check_outputs(task, runtime.head, config.num_labels, name)
        self.name = name
        self.runtime = runtime
        self.tokenizer = tokenizer
        self.task = task or infer_task(config, runtime.head)
        self.abilities = abilities_of(runtime)
        # Positions that no training has seen are random: a model is asked in sequences as long as it was trained on.
        longest = min(config.max_position_embeddings, tokenizer.max_length or config.max_position_embeddings)
        self._inputs = Inputs(tokenizer, longest)
        self._task_inputs = Inputs(tokenizer, min(longest, self.task.max_length) if self.task else longest)

    def __repr__(self) -> str:
        return f"Predictor({self.name!r}, {self.runtime.head}: {', '.join(self.abilities)})"

    # -----------------------------------------------------------------------------------------------------------------
    # Jobs: what a server batches across requests

    def job(self, ability: str, **arguments: Any) -> Job:
        """One piece of work, checked and encoded, for `run`: job("fill_mask", text="a [MASK]", top=3)."""
        if ability not in self.abilities:
            raise refuse(ability, self.name, self.runtime.head, self.abilities)
        inputs = self._task_inputs if ABILITIES[ability].takes_task else self._inputs
        return Job(ability, begin(ability, inputs, self.task, arguments), self.runtime.config)

    def run(self, jobs: Sequence[Job]) -> list[Result | Exception]:
        """Run jobs together, whatever their abilities; each gets its result, or the error that is its own."""
        return run_jobs(self.runtime, jobs)

    def run_pass(self, parts: Sequence[tuple[Job, int]]) -> None:
        """Run the next so many sequences of each job (of its `lengths`) together; a finished job has its `result`."""
        run_pass(self.runtime, parts)

    # -----------------------------------------------------------------------------------------------------------------
    # One method per ability

    @overload
    def fill_mask(self, text: str, top: int = ..., joint: bool = ...) -> FilledMasks: ...
    @overload
    def fill_mask(self, text: Texts, top: int = ..., joint: bool = ...) -> list[FilledMasks]: ...
    def fill_mask(self, text: str | Texts, top: int = 5, joint: bool = False) -> FilledMasks | list[FilledMasks]:
        """The `top` likeliest pieces for each [MASK]; `joint` also fills several masks together."""
        return self._each("fill_mask", {"text": text}, top=top, joint=joint)

    @overload
    def sentence_order(self, a: str, b: str, symmetric: bool = ...) -> SentenceOrder: ...
    @overload
    def sentence_order(self, a: Texts, b: str | Texts, symmetric: bool = ...) -> list[SentenceOrder]: ...
    @overload
    def sentence_order(self, a: str, b: Texts, symmetric: bool = ...) -> list[SentenceOrder]: ...
    def sentence_order(
        self, a: str | Texts, b: str | Texts, symmetric: bool = False
    ) -> SentenceOrder | list[SentenceOrder]:
        """The probability that `a` comes before `b`; `symmetric` asks for both orders and weighs the answers."""
        return self._each("sentence_order", {"a": a, "b": b}, symmetric=symmetric)

    @overload
    def coherence(self, text: str, group: int = ...) -> Coherence: ...
    @overload
    def coherence(self, text: Texts, group: int = ...) -> list[Coherence]: ...
    def coherence(self, text: str | Texts, group: int = 2) -> Coherence | list[Coherence]:
        """How well a text hangs together, boundary by boundary of its sentences, `group` of them on either side."""
        return self._each("coherence", {"text": text}, group=group)

    @overload
    def embed(self, text: str, pooling: str = ..., normalize: bool = ...) -> Embedding: ...
    @overload
    def embed(self, text: Texts, pooling: str = ..., normalize: bool = ...) -> list[Embedding]: ...
    def embed(self, text: str | Texts, pooling: str = "mean", normalize: bool = False) -> Embedding | list[Embedding]:
        """A text as a vector: `pooling` "mean" over its tokens or "cls"; `normalize` to length 1."""
        return self._each("embed", {"text": text}, pooling=pooling, normalize=normalize)

    @overload
    def classify(self, text: str, pair: str | None = ...) -> Classification: ...
    @overload
    def classify(self, text: Texts, pair: str | Texts | None = ...) -> list[Classification]: ...
    def classify(self, text: str | Texts, pair: str | Texts | None = None) -> Classification | list[Classification]:
        """The label of a text, or of a text and its `pair`, with the probability of every label."""
        return self._each("classify", {"text": text, "pair": pair})

    @overload
    def tag(self, text: str, split: str = ...) -> Tagging: ...
    @overload
    def tag(self, text: Texts, split: str = ...) -> list[Tagging]: ...
    def tag(self, text: str | Texts, split: str = "words") -> Tagging | list[Tagging]:
        """A tag for every word, and the entities that they make; `split` "spaces" if the words are already apart."""
        return self._each("tag", {"text": text}, split=split)

    @overload
    def answer(self, question: str, context: str, top: int = ..., threshold: float | None = ...) -> Answer: ...
    @overload
    def answer(
        self, question: Texts, context: str | Texts, top: int = ..., threshold: float | None = ...
    ) -> list[Answer]: ...
    @overload
    def answer(self, question: str, context: Texts, top: int = ..., threshold: float | None = ...) -> list[Answer]: ...
    def answer(
        self, question: str | Texts, context: str | Texts, top: int = 3, threshold: float | None = None
    ) -> Answer | list[Answer]:
        """The stretch of the context that answers the question, or none; `threshold` moves the line between them."""
        return self._each("answer", {"question": question, "context": context}, top=top, threshold=threshold)

    @overload
    def choose(self, passage: str, question: str, options: Texts) -> Choice: ...
    @overload
    def choose(self, passage: Texts, question: str | Texts, options: Texts | Sequence[Texts]) -> list[Choice]: ...
    @overload
    def choose(self, passage: str, question: Texts, options: Texts | Sequence[Texts]) -> list[Choice]: ...
    def choose(
        self, passage: str | Texts, question: str | Texts, options: Texts | Sequence[Texts]
    ) -> Choice | list[Choice]:
        """Which option fits; many questions take many lists of options, or one list for all."""
        # The options of one question are a list themselves.
        nested = isinstance(options, (list, tuple)) and len(options) > 0 and not isinstance(options[0], str)
        inputs = {"passage": passage, "question": question}
        return self._each("choose", {**inputs, "options": options}, whole=() if nested else ("options",))

    @overload
    def attention(self, text: str, pair: str | None = ..., max_tokens: int = ...) -> Attention: ...
    @overload
    def attention(self, text: Texts, pair: str | Texts | None = ..., max_tokens: int = ...) -> list[Attention]: ...
    def attention(
        self, text: str | Texts, pair: str | Texts | None = None, max_tokens: int = 128
    ) -> Attention | list[Attention]:
        """Who looks at whom in every head of every application of a layer, for the first `max_tokens` tokens."""
        return self._each("attention", {"text": text, "pair": pair}, max_tokens=max_tokens)

    def _each(self, ability: str, inputs: dict[str, Any], whole: tuple[str, ...] = (), **options: Any) -> Any:
        """One result for plain inputs; for lists a list, where a plain input stands beside each of theirs."""
        plain = (str, bytes, bytearray)  # sequences too, but one input each
        lists = {
            n: v for n, v in inputs.items() if n not in whole and isinstance(v, Sequence) and not isinstance(v, plain)
        }
        if not lists:
            return self._finish([self.job(ability, **inputs, **options)])[0]
        sizes = {name: len(value) for name, value in lists.items()}
        count = next(iter(sizes.values()))
        if len(set(sizes.values())) > 1:
            given = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise InputError(f"{ability}: lists of different lengths: {given}")
        jobs = []
        for number in range(count):
            arguments = {name: lists[name][number] if name in lists else value for name, value in inputs.items()}
            try:
                jobs.append(self.job(ability, **arguments, **options))
            except InputError as error:
                raise InputError(f"input {number}: {error}") from None
        return self._finish(jobs)

    def _finish(self, jobs: Sequence[Job]) -> list[Result]:
        results = self.run(jobs)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return cast(list[Result], results)
