"""answer: the stretch of a context that answers a question, or the word that there is none."""

from __future__ import annotations

from dataclasses import replace

from litebert.errors import InputError
from litebert.predict.inputs import Inputs, check_count, check_number, check_text
from litebert.predict.job import Steps
from litebert.predict.results import Answer, AnswerSpan
from litebert.predict.runtime import HEAD_OUTPUTS, Request
from litebert.tasks.kinds.question_answering import question_windows
from litebert.tasks.logits import sigmoid
from litebert.tasks.spans import best_spans
from litebert.tasks.task import Task, kind_of

N_BEST = 20  # spans that probabilities are over, as in the published scripts


def answer(
    inputs: Inputs, task: Task, question: str, context: str, top: int = 3, threshold: float | None = None
) -> Steps[Answer]:
    """The best span over all windows of the context; none where the no-answer score is above the threshold.

    A plain span head is taken to always answer, unless a threshold is given: then the score of [CLS] over that of the
    best span counts, as in the scripts of SQuAD 2.0.
    """
    check_text(question, "question")
    check_text(context, "context")
    check_count(top, "top")
    if threshold is not None:
        check_number(threshold, "threshold")
    windows = question_windows(replace(task, max_length=inputs.max_length), inputs.tokenizer, question, context)
    if not any(window.inside is not None and window.inside.any() for window in windows):
        raise InputError("context: holds nothing that the vocabulary can read")
    want = HEAD_OUTPUTS[kind_of(task).head(task)]
    outputs = yield [Request(each.ids, each.segments, want, outside=each.outside) for each in windows]
    found = best_spans(windows, outputs, context, n_best=max(N_BEST, top), max_answer=task.max_answer)
    candidates = tuple(
        AnswerSpan(span.text, span.start, span.end, probability, span.score)
        for span, probability in zip(found.spans, found.probabilities(), strict=True)
    )
    no_answer = None
    if task.answerable_head or threshold is not None:
        limit = task.null_threshold if threshold is None else threshold
        no_answer = sigmoid(found.no_answer)
        if found.no_answer > limit or not candidates:
            return Answer("", None, None, no_answer, no_answer, candidates[:top])
    best = candidates[0]
    return Answer(best.text, best.start, best.end, best.probability, no_answer, candidates[:top])
