"""Always the same: the level that everything else has to beat.

constant_values(task, train, examples)  -> ("always 'entailment'", [0, 0, 0, ...])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from litebert.tasks.examples import ChoiceExample, Example, QuestionExample, TagExample, option_letter
from litebert.tasks.task import Task

FIRST_WORDS = 3


def constant_values(task: Task, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[Any]]:
    """The most common label of the training examples (or their mean), said of every example."""
    if task.kind == "question-answering":
        # No answer suits all texts; where training knows questions without one, that is the constant.
        questions = [example for example in examples if isinstance(example, QuestionExample)]
        if (
            any(isinstance(example, QuestionExample) and example.impossible for example in train)
            or task.answerable_head
        ):
            return "never an answer", [""] * len(questions)
        return "the first words of the text", [" ".join(q.context.split()[:FIRST_WORDS]) for q in questions]
    if task.kind == "token-classification":
        tags = Counter(tag for example in train if isinstance(example, TagExample) for tag in example.tags or ())
        usual = most_common(tags)
        values = [(usual,) * len(example.words) for example in examples if isinstance(example, TagExample)]
        return f"always {task.labels[usual]!r}", values
    labels = [example.label for example in train if not isinstance(example, TagExample | QuestionExample)]
    if task.kind == "regression":
        mean = float(np.mean(np.array(labels, dtype=float)))
        return f"always the mean, {mean:.2f}", [mean] * len(examples)
    common = most_common(Counter(labels))
    if task.kind == "multiple-choice":
        # A question without that option gets the most common one that it has.
        counts: Counter[Any] = Counter(labels)
        sizes = [len(example.options) for example in examples if isinstance(example, ChoiceExample)]
        chosen = [max(range(size), key=counts.__getitem__) for size in sizes]
        return f"always option {option_letter(common)}", chosen
    names = [task.labels[label] for label in (common if isinstance(common, tuple) else (common,))]
    return f"always {', '.join(map(repr, names)) or 'no label'}", [common] * len(examples)


def most_common(counts: Counter[Any]) -> Any:
    """The value that was counted most; of equals the smallest, so that the order of a file does not matter."""
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)
