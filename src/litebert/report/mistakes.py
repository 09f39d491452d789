"""A model's errors: a confusion matrix, and the worst errors with their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from litebert.finetuning.scoring import worst
from litebert.report.html import Child, Markup, element
from litebert.tasks.kinds.kind import Part
from litebert.tasks.task import Task, kind_of

MOST_CLASSES = 20


def count_confusions(task: Task, lines: Iterable[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Counts of (gold, predicted): {("neg", "pos"): 12, ...}; for tags, of words."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in lines:
        counts.update(kind_of(task).confusions(line))
    return counts


def draw_confusion(task: Task, lines: Sequence[dict[str, Any]]) -> Markup | None:
    """The confusion matrix as a table, shaded by row share; None for tasks without labels."""
    if not task.labels or not lines:
        return None
    counts = count_confusions(task, lines)
    rows, columns = list(task.labels), list(task.labels)
    if extra := kind_of(task).confused:
        rows, columns = [*rows, extra[0]], [*columns, extra[1]]
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
                "tr", element("th", "gold", class_="axis"), [element("th", c, scope="col", title=c) for c in columns]
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
    """Precision, recall and F1 per class."""
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
    """A table of the worst errors: text, gold, prediction and confidence."""
    kind = kind_of(task)
    found = worst(task, lines, most)
    wrong = sum(kind.is_wrong(line) for line in lines)
    if not found:
        return element("p", f"None: all {len(lines):,} predictions are correct.", class_="note") if lines else None
    body = [
        element(
            "tr",
            element("td", _text(kind.show(line))),
            element("td", kind.show_value(line, "gold"), class_="gold"),
            element("td", kind.show_value(line, "prediction"), " ", _small(kind.show_sureness(line)), class_="said"),
        )
        for line in found
    ]
    head = [element("th", name, scope="col") for name in ("Text", "Gold", "Predicted")]
    table = element("table", element("thead", element("tr", head)), element("tbody", body), class_="errors")
    summary = f"{wrong:,} of {len(lines):,} {kind.how_wrong}; the worst {len(found)} are listed."
    note = element("p", summary, class_="note")
    return element("div", note, element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Errors"))


def _text(paragraphs: Sequence[Sequence[Part]]) -> list[Child]:
    """The first paragraph, and the others smaller below it."""
    first, *rest = [[_mark(part) for part in paragraph] for paragraph in paragraphs]
    return [*first, *(element("span", paragraph, class_="second") for paragraph in rest)]


def _mark(part: Part) -> Child:
    if not part.mark:
        return part.text
    return element("mark", part.text, class_="wrong" if part.mark == "wrong" else None, title=part.title or None)


def _small(text: str | None) -> Markup | None:
    return element("small", text) if text is not None else None
