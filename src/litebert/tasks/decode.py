"""From a model's raw outputs to predictions of a task, and several models' predictions as one.

    decode(task, examples, make_features(task, examples, tokenizer), outputs)  -> one Prediction per example

`outputs` hold, per sequence, the arrays that its head gives: "logits", "start" and "end", or the answer head's search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.examples import Example, QuestionExample, TagExample
from litebert.tasks.features import Sequence as Feature
from litebert.tasks.logits import softmax
from litebert.tasks.spans import Answers, Span, best_spans
from litebert.tasks.task import Task

Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says of one example.

    The value is a label id, a number, label ids (multi-label), one tag id per word, the number of an option, or the
    text of an answer ("" for none). Probabilities are [labels], [options], or [words, labels] for tags.
    """

    value: int | float | tuple[int, ...] | str
    probabilities: NDArray[np.float64] | None = None
    answers: Answers | None = None


def decode(
    task: Task, examples: Sequence[Example], features: Sequence[Feature], outputs: Sequence[Outputs]
) -> list[Prediction]:
    """One prediction per example, in their order."""
    predictions = []
    for example, windows, raw in _by_example(examples, features, outputs):
        if task.kind == "question-answering":
            assert isinstance(example, QuestionExample)
            predictions.append(answer(task, best_spans(windows, raw, example.context, max_answer=task.max_answer)))
        elif task.kind == "token-classification":
            assert isinstance(example, TagExample)
            predictions.append(_decided(task, word_probabilities(task, len(example.words), windows, raw)))
        elif task.kind == "multiple-choice":
            predictions.append(_decided(task, softmax(np.array([np.ravel(each["logits"])[0] for each in raw]))))
        elif task.kind == "regression":
            predictions.append(Prediction(float(np.ravel(raw[0]["logits"])[0])))
        elif task.kind == "multi-label":
            predictions.append(_decided(task, 1 / (1 + np.exp(-raw[0]["logits"].astype(np.float64)))))
        else:
            predictions.append(_decided(task, softmax(raw[0]["logits"])))
    return predictions


def average(task: Task, models: Sequence[Sequence[Prediction]]) -> list[Prediction]:
    """An ensemble, as in the paper: mean probabilities (or numbers); for answers mean span and no-answer scores."""
    return [_average(task, votes) for votes in zip(*models, strict=True)]


def answer(task: Task, answers: Answers) -> Prediction:
    """The best answer; with the head for it, none where the no-answer score is above the task's threshold."""
    return Prediction(answers.best(task.null_threshold if task.answerable_head else None), answers=answers)


def labels_reached(probabilities: NDArray[np.float64]) -> tuple[int, ...]:
    """The labels of a multi-label task that hold: all whose probability reaches 0.5, none perhaps."""
    return tuple(np.flatnonzero(probabilities >= 0.5).tolist())


def word_probabilities(
    task: Task, num_words: int, windows: Sequence[Feature], outputs: Sequence[Outputs]
) -> NDArray[np.float64]:
    """[words, labels]; a word without any piece (an invisible character) counts as "O", or as the first tag."""
    probabilities = np.zeros((num_words, len(task.labels)))
    probabilities[:, task.labels.index("O") if "O" in task.labels else 0] = 1
    for window, output in zip(windows, outputs, strict=True):
        assert window.words is not None
        decided = np.flatnonzero(window.words >= 0)
        probabilities[window.words[decided]] = softmax(output["logits"][decided])
    return probabilities


def _by_example(
    examples: Sequence[Example], features: Sequence[Feature], outputs: Sequence[Outputs]
) -> Iterator[tuple[Example, list[Feature], list[Outputs]]]:
    """Each example with its own sequences, which lie one after another."""
    place = 0
    for number, example in enumerate(examples):
        begin = place
        while place < len(features) and features[place].example == number:
            place += 1
        assert place > begin, example.where
        yield example, list(features[begin:place]), list(outputs[begin:place])
    assert place == len(features) == len(outputs)


def _decided(task: Task, probabilities: NDArray[np.float64]) -> Prediction:
    if task.kind == "multi-label":
        return Prediction(labels_reached(probabilities), probabilities)
    if task.kind == "token-classification":
        return Prediction(tuple(probabilities.argmax(1).tolist()), probabilities)
    return Prediction(int(probabilities.argmax()), probabilities)


def _average(task: Task, votes: Sequence[Prediction]) -> Prediction:
    if task.kind == "question-answering":
        return answer(task, _average_answers([vote.answers for vote in votes if vote.answers is not None]))
    if task.kind == "regression":
        return Prediction(float(np.mean([float(vote.value) for vote in votes])))  # type: ignore[arg-type]
    probabilities = [vote.probabilities for vote in votes if vote.probabilities is not None]
    return _decided(task, np.mean(probabilities, axis=0))


def _average_answers(models: Sequence[Answers]) -> Answers:
    """A span that a model does not have among its n best gets its worst score there."""
    scores: list[dict[str, float]] = [{span.text: span.score for span in model.spans} for model in models]
    places = {span.text: span for model in models for span in model.spans}
    worst = [min(known.values(), default=0.0) for known in scores]
    means = {
        text: float(np.mean([known.get(text, low) for known, low in zip(scores, worst, strict=True)]))
        for text in places
    }
    ranked = sorted(means, key=lambda text: -means[text])
    spans = tuple(Span(text, places[text].start, places[text].end, means[text]) for text in ranked)
    return Answers(spans, float(np.mean([model.no_answer for model in models])))
