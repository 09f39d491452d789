"""When to say that a question has no answer: the threshold that gives the best F1 on labelled questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from litebert.tasks.decode import Prediction
from litebert.tasks.examples import Example, QuestionExample
from litebert.tasks.squad_metric import score_answer

FIXED_THRESHOLD = 0.0  # chosen on no data: "no answer" where that is more likely than not


def best_threshold(examples: Sequence[Example], predictions: Sequence[Prediction]) -> tuple[float, float]:
    """(threshold, F1): no answer where its score is above the threshold. Tuned on dev, it flatters dev a little."""
    questions = [example for example in examples if isinstance(example, QuestionExample)]
    answers = [prediction.answers for prediction in predictions if prediction.answers is not None]
    scores = np.array([each.no_answer for each in answers])
    answered = np.array([score_answer(a.best(), q.answers)[1] for q, a in zip(questions, answers, strict=True)])
    silent = np.array([score_answer("", q.answers)[1] for q in questions])
    # From the least "no answer" up: everything up to i is answered, the rest is not.
    order = np.argsort(scores, kind="stable")
    f1 = silent.sum() + np.concatenate([[0.0], np.cumsum((answered - silent)[order])])
    ordered = scores[order]
    cuts = np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])  # equal scores cannot be told apart
    best = int(np.argmax(np.where(cuts, f1, -np.inf)))
    threshold = ordered[best - 1] if best else np.nextafter(ordered[0], -np.inf)
    return float(threshold), float(f1[best] / len(questions))


def with_threshold(predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
    """The same predictions with another word on which questions have no answer."""
    return [replace(p, value=p.answers.best(threshold)) if p.answers is not None else p for p in predictions]
