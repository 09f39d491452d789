"""SQuAD's official scores: exact match and F1 of words, after case, punctuation, articles and spaces are set aside.

normalize_answer("The  Eiffel-Tower!")               -> "eiffeltower"
score_answer("an Eiffel Tower", ["Eiffel Tower"])    -> (1.0, 1.0)
score_answer("", [])                                 -> (1.0, 1.0)     no answer, and rightly so
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """What of an answer counts: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def score_answer(prediction: str, references: Sequence[str]) -> tuple[float, float]:
    """(exact match, F1), each with the reference that suits it best; no references means that none is right."""
    words = normalize_answer(prediction).split()
    # The rule of 2.0: a reference of articles and punctuation only is no reference.
    normal = [kept for text in references if (kept := normalize_answer(text).split())] or [[]]
    return max(float(words == reference) for reference in normal), max(_f1(words, r) for r in normal)


def _f1(prediction: list[str], reference: list[str]) -> float:
    if not prediction or not reference:
        return float(prediction == reference)
    shared = sum((Counter(prediction) & Counter(reference)).values())
    return 2 * shared / (len(prediction) + len(reference))
