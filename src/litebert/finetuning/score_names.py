"""Scores in words."""

from __future__ import annotations

NAMES = {
    "f1": "F1",
    "tuned_f1": "F1 at the model's threshold",
    "best_f1": "F1 at the best threshold",
    "exact_match": "exact match",
    "tuned_exact_match": "exact match at the model's threshold",
    "best_exact_match": "exact match at the best threshold",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "entity_f1": "entity F1",
    "rmse": "error (RMSE)",
    "answerable_f1": "F1 where there is an answer",
    "answerable_exact_match": "exact match where there is one",
    "unanswerable_accuracy": "rightly silent where there is none",
}


def name_of(metric: str) -> str:
    """A metric in words: "macro_f1" -> "macro F1", "dev-mismatched/accuracy" -> "accuracy on dev-mismatched"."""
    split, slash, name = metric.rpartition("/")
    words = NAMES.get(name, name.replace("_", " "))
    return f"{words} on {split}" if slash else words


def capital(text: str) -> str:
    """As the first word of a title."""
    return text[:1].upper() + text[1:]


def is_detail(column: str) -> bool:
    """What has no chart and no column of its own: clocks, and the parts of a score."""
    return column in ("time", "seconds", "took", "tokens", "kind", "best_exact_match") or "answerable_" in column
