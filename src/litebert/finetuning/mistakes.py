"""What a model gets wrong, for the page: a confusion matrix, and the errors that hurt most, with their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from litebert.finetuning.predictions import is_wrong, worst
from litebert.report.html import Child, Markup, element
from litebert.tasks.task import Task

MOST_CLASSES = 20
MOST_TEXT = 420  # characters of a text
NEAR = 160  # characters shown on each side of an answer


def count_confusions(task: Task, lines: Iterable[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """How often each class was taken for each: {("neg", "pos"): 12, ...}; words are counted for tags."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in lines:
        if task.kind == "token-classification":
            counts.update(zip(line["gold"], line["prediction"], strict=True))
        elif task.kind == "multi-label":
            # A label is taken for another only by guesswork; what can be said is missed and made up.
            gold, said = set(line["gold"]), set(line["prediction"])
            counts.update((label, label) for label in gold & said)
            counts.update((label, "(missed)") for label in gold - said)
            counts.update(("(made up)", label) for label in said - gold)
        else:
            counts[line["gold"], line["prediction"]] += 1
    return counts


def draw_confusion(task: Task, lines: Sequence[dict[str, Any]]) -> Markup | None:
    """The matrix as a table, shaded by the share of its row; None for kinds without classes."""
    if not task.labels or not lines:
        return None
    counts = count_confusions(task, lines)
    rows, columns = list(task.labels), list(task.labels)
    if task.kind == "multi-label":
        rows, columns = [*rows, "(made up)"], [*columns, "(missed)"]
    frequent = Counter({row: sum(counts[row, column] for column in columns) for row in rows})
    left_out = len(rows) - MOST_CLASSES
    if left_out > 0:
        kept = {row for row, _ in frequent.most_common(MOST_CLASSES)}
        rows, columns = [row for row in rows if row in kept], [column for column in columns if column in kept]
    body = []
    for row in rows:
        cells = [_cell(row, column, counts[row, column], frequent[row]) for column in columns]
        body.append(element("tr", element("th", row, scope="row", title=row), cells))
    table = element(
        "table",
        element(
            "thead",
            element("tr", element("th"), element("th", "predicted", colspan=len(columns), class_="axis across")),
            element(
                "tr", element("th", "right", class_="axis"), [element("th", c, scope="col", title=c) for c in columns]
            ),
        ),
        element("tbody", body),
        class_="matrix",
    )
    matrix = element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Confusion matrix")
    note = f"The {MOST_CLASSES} most frequent of {MOST_CLASSES + left_out} classes." if left_out > 0 else None
    return element(
        "div",
        element("div", matrix, _class_table(counts, [row for row in rows if row in task.labels]), class_="confusion"),
        element("p", note, class_="note") if note else None,
    )


def _class_table(counts: Counter[tuple[str, str]], classes: Sequence[str]) -> Markup:
    """Of each class: how much of what was called so is, how much of it was found, and both together."""
    body = []
    for name in classes:
        right = counts[name, name]
        said = sum(number for (_, column), number in counts.items() if column == name)
        real = sum(number for (row, _), number in counts.items() if row == name)
        shares = (right / said if said else 0.0, right / real if real else 0.0, 2 * right / max(said + real, 1))
        cells = [element("td", f"{100 * share:.1f}", class_="number") for share in shares]
        body.append(element("tr", element("th", name, scope="row"), cells, element("td", f"{real:,}", class_="number")))
    head = [element("th", name, scope="col", class_="number") for name in ("precision", "recall", "F1", "count")]
    table = element(
        "table",
        element("thead", element("tr", element("th", "Class", scope="col"), head)),
        element("tbody", body),
        class_="comparison classes",
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Scores per class")


def _cell(row: str, column: str, number: int, total: int) -> Markup:
    share = number / total if total else 0.0
    kind = "right" if row == column else None
    note = element("small", f"{100 * share:.0f}%") if number else None
    return element("td", f"{number:,}" if number else "·", note, class_=kind, style=f"--share: {100 * share:.1f}%")


def draw_worst(task: Task, lines: Sequence[dict[str, Any]], most: int = 15) -> Markup | None:
    """A table of the worst errors: text, what is right, what was said, how surely."""
    found = worst(task, lines, most)
    wrong = sum(is_wrong(task, line) for line in lines)
    if not found:
        return element("p", f"None: all {len(lines):,} are right.", class_="note") if lines else None
    body = [
        element(
            "tr",
            element("td", _text(task, line)),
            element("td", _value(task, line, "gold"), class_="gold"),
            element("td", _value(task, line, "prediction"), " ", _sureness(task, line), class_="said"),
        )
        for line in found
    ]
    head = [element("th", name, scope="col") for name in ("Text", "Right", "Said")]
    table = element("table", element("thead", element("tr", head)), element("tbody", body), class_="errors")
    what = "are off by some amount" if task.kind == "regression" else "are wrong"
    note = element("p", f"{wrong:,} of {len(lines):,} {what}; these are the {len(found)} furthest off.", class_="note")
    return element("div", note, element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Errors"))


def _sureness(task: Task, line: dict[str, Any]) -> Markup | None:
    if task.kind == "regression":
        return element("small", f"off by {line['badness']:.2f}")
    return element("small", f"{100 * line['probability']:.0f}% sure") if "probability" in line else None


def _value(task: Task, line: dict[str, Any], key: str) -> str:
    value = line[key]
    if task.kind == "question-answering":
        answers = value if isinstance(value, list) else [value]
        return " / ".join(dict.fromkeys(answer for answer in answers if answer)) or "(no answer)"
    if task.kind == "token-classification":
        pairs = zip(line["words"], value, line["gold"], line["prediction"], strict=True)
        return ", ".join(f"{word}: {tag}" for word, tag, gold, said in pairs if gold != said)
    if isinstance(value, list):
        return ", ".join(value) or "(none)"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _text(task: Task, line: dict[str, Any]) -> Child:
    if task.kind == "token-classification":
        return _tagged(line)
    if task.kind == "multiple-choice":
        options = " · ".join(line["options"])
        return [_short(line["passage"]), element("span", f"{line['question']} — {options}", class_="second")]
    if task.kind == "question-answering":
        return [line["question"], element("span", _around(line), class_="second")]
    pair = element("span", _short(line["pair"]), class_="second") if "pair" in line else None
    return [_short(line["text"]), pair]


def _tagged(line: dict[str, Any]) -> list[Child]:
    parts: list[Child] = []
    for word, gold, said in zip(line["words"], line["gold"], line["prediction"], strict=True):
        if gold == said:
            parts.append(element("mark", word, title=gold) if gold != "O" else word)
        else:
            parts.append(element("mark", word, class_="wrong", title=f"right: {gold}, said: {said}"))
        parts.append(" ")
    return parts


def _around(line: dict[str, Any]) -> Child:
    """The context near the right answer (or near what was said), with both marked."""
    context: str = line["context"]
    gold = next(iter(line["gold"]), "")
    said: str = line["prediction"]
    center = context.find(gold) if gold else context.find(said) if said else 0
    begin, end = max(0, center - NEAR), min(len(context), max(center, 0) + len(gold or said) + NEAR)
    text = context[begin:end]
    parts: list[Child] = ["…" if begin else ""]
    place = 0
    marks = sorted((text.find(t), t, kind) for t, kind in ((gold, None), (said, "wrong")) if t and t in text)
    for at, marked, kind in marks:
        if at >= place:
            parts += [text[place:at], element("mark", marked, class_=kind)]
            place = at + len(marked)
    return [*parts, text[place:], "…" if end < len(context) else ""]


def _short(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
