"""choose: which of several options fits a passage and a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from litebert.errors import InputError
from litebert.predict.inputs import Inputs, check_text
from litebert.predict.job import Steps
from litebert.predict.results import Choice
from litebert.predict.runtime import Request
from litebert.tasks.kinds.multiple_choice import choice_sequences
from litebert.tasks.logits import softmax
from litebert.tasks.task import Task


def choose(inputs: Inputs, task: Task, passage: str, question: str, options: Sequence[str]) -> Steps[Choice]:
    """Each option beside the passage, as in training: a passage too long for the model loses its end."""
    check_text(passage, "passage")
    if not isinstance(question, str):
        raise InputError(f"question: expected a str, got {type(question).__name__}")
    if question:  # a passage alone may ask: "how does it go on?"
        check_text(question, "question")
    if isinstance(options, str) or not isinstance(options, Sequence) or len(options) < 2:
        raise InputError("options: expected a list of two or more texts")
    for number, option in enumerate(options):
        check_text(option, f"options[{number}]")
    fitting = replace(task, max_length=inputs.max_length)
    sequences = choice_sequences(fitting, inputs.tokenizer, passage, question, list(options))
    outputs = yield [Request(sequence.ids, sequence.segments, frozenset({"logits"})) for sequence in sequences]
    scores = np.array([float(output["logits"]) for output in outputs], np.float64)
    probabilities = softmax(scores)
    best = int(probabilities.argmax())
    return Choice(best, options[best], tuple(probabilities.tolist()))
