"""answer and choose: a question about a text, answered by a span of it or by one of several options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from litebert.errors import InputError
from litebert.predict.ability import Applied, Limits, Probability, Result, ability
from litebert.predict.job import Inputs, Steps
from litebert.predict.runtime import HEAD_OUTPUTS, Request
from litebert.tasks.decode import sigmoid, softmax
from litebert.tasks.kinds.multiple_choice import choice_sequences
from litebert.tasks.kinds.question_answering import question_windows, window_thresholds
from litebert.tasks.spans import best_spans
from litebert.tasks.task import Task, kind_of

N_BEST = 20  # spans that probabilities are over, as in the published scripts


@dataclass(frozen=True)
class AnswerSpan:
    """A span of the context that may be the answer."""

    text: str
    start: Annotated[int, "First character in the context."]
    end: Annotated[int, "One past the last character."]
    probability: Annotated[Probability, "Among the candidates."]
    score: Annotated[float, "The model's score; comparable only within one question."]


@dataclass(frozen=True)
class Answer(Result):
    """The best answer, or none, with the candidates."""

    text: Annotated[str, "Empty if there is no answer."]
    start: int | None
    end: int | None
    probability: Probability
    no_answer: Annotated[Probability | None, "That the context has no answer; null if this model always answers."]
    candidates: Annotated[tuple[AnswerSpan, ...], "The best spans, the highest score first."]
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The answer without the other candidates."""
        return {"answer": self.text, "start": self.start, "end": self.end, "probability": self.probability}


@dataclass(frozen=True)
class Choice(Result):
    """The chosen option, and the probability of each."""

    index: int
    option: str
    probabilities: tuple[Probability, ...]
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The chosen option."""
        return {"index": self.index, "option": self.option, "probability": self.probabilities[self.index]}


@ability(
    outputs=[],
    heads=["span", "answer"],
    makes="litebert finetune --task question-answering --train FILE",
    examples=[{"question": "who lives in oslo?", "context": "anna lives in oslo. her brother lives in rome."}],
    also=["qa", "question", "question-answering", "squad"],
)
def answer(
    inputs: Inputs,
    task: Task,
    question: Annotated[str, "The question."],
    context: Annotated[str, "The text that contains the answer, of any length."],
    top: Annotated[int, "How many candidates to return.", Limits(1, served=20)] = 3,
    threshold: Annotated[
        float | None, "Return no answer if the no-answer score is above this; by default the model's own threshold."
    ] = None,
) -> Steps[Answer]:
    """Find the answer to a question in a text.

    A model with a plain span head always answers unless a threshold is given: then the no-answer score is that of [CLS]
    minus that of the best span, as in the SQuAD 2.0 scripts.
    """
    windows = question_windows(replace(task, max_length=inputs.max_length), inputs.tokenizer, question, context)
    if not any(window.inside is not None and window.inside.any() for window in windows):
        raise InputError("context: has no text that the vocabulary covers")
    want = HEAD_OUTPUTS[kind_of(task).head(task)]
    outputs = yield [Request(each.ids, each.segments, want, outside=each.outside) for each in windows]
    limits = window_thresholds(task, outputs) if threshold is None else [threshold] * len(outputs)
    found = best_spans(windows, outputs, context, max(N_BEST, top), task.max_answer, limits)
    candidates = tuple(
        AnswerSpan(span.text, span.start, span.end, probability, span.score)
        for span, probability in zip(found.spans, found.probabilities(), strict=True)
    )
    no_answer = None
    if task.answerable_head or threshold is not None:
        no_answer = sigmoid(found.no_answer)
        if found.no_answer > found.threshold or not candidates:
            return Answer("", None, None, no_answer, no_answer, candidates[:top])
    best = candidates[0]
    return Answer(best.text, best.start, best.end, best.probability, no_answer, candidates[:top])


@ability(
    outputs=["logits"],
    heads=["multiple-choice"],
    makes="litebert finetune --task multiple-choice --train FILE",
    examples=[{"passage": "anna moved in may.", "question": "when did anna move?", "options": ["in may", "in june"]}],
    also=["choice", "multiple-choice", "mcq", "race"],
    one_by_one=True,
)
def choose(
    inputs: Inputs,
    task: Task,
    passage: Annotated[str, "The passage."],
    question: Annotated[str, 'The question, perhaps with a gap "_"; may be empty.', Limits(0)],
    options: Annotated[Sequence[str], "Two or more options.", Limits(2, served=16)],
) -> Steps[Choice]:
    """Pick the option that best answers a question about a passage.

    Each option is read with the passage, as in training; a passage that is too long is truncated at the end.
    """
    fitting = replace(task, max_length=inputs.max_length)
    sequences = choice_sequences(fitting, inputs.tokenizer, passage, question, list(options))
    want, group = frozenset({"logits"}), object()
    outputs = yield [Request(sequence.ids, sequence.segments, want, group=group) for sequence in sequences]
    scores = np.array([float(output["logits"]) for output in outputs], np.float64)
    probabilities = softmax(scores)
    best = int(probabilities.argmax())
    return Choice(best, options[best], tuple(probabilities.tolist()))
