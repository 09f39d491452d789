"""The kinds of tasks. To add one, write a file like its neighbours and an entry here."""

from __future__ import annotations

from typing import Any

from litebert.tasks.kinds.classification import Classification
from litebert.tasks.kinds.kind import Kind
from litebert.tasks.kinds.multi_label import MultiLabel
from litebert.tasks.kinds.multiple_choice import MultipleChoice
from litebert.tasks.kinds.question_answering import QuestionAnswering
from litebert.tasks.kinds.regression import Regression
from litebert.tasks.kinds.similarity import Similarity
from litebert.tasks.kinds.token_classification import TokenClassification

__all__ = ["KINDS", "Kind", "register"]

KINDS: dict[str, Kind[Any]] = {}


def register(kind: Kind[Any]) -> None:
    """Make a kind available by name: in `Task`, in task.json and on the command line."""
    KINDS[kind.name] = kind


for _kind in (
    Classification(),
    Regression(),
    MultiLabel(),
    TokenClassification(),
    MultipleChoice(),
    QuestionAnswering(),
    Similarity(),
):
    register(_kind)
