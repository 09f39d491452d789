"""The configs of the runs as one tree: a column per run, and what differs between them stands out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from litebert.report.html import Markup, element
from litebert.report.palette import swatch
from litebert.report.runs import Run

ABSENT = "–"


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as text: {"optim": {"lr": 1e-3}} -> ("optim.lr", "0.001")."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, show_value(value)


def show_value(value: Any) -> str:
    """A value in one line: [{"until": 0.5, "value": 3}, ...] -> "3 until 50%, ..."."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(show_value(item) for item in value) or "none"
    if isinstance(value, Mapping):
        if set(value) == {"until", "value"} and isinstance(value["until"], (int, float)):
            end = f"until {100 * value['until']:.3g}%" if value["until"] < 1 else "to the end"
            return f"{value['value']} {end}"
        return " ".join(f"{key} {show_value(item)}" for key, item in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return str(value)


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Settings in which the runs differ, a value per run; empty for one run."""
    return {key: values for key, values in _settings(runs).items() if len(set(values)) > 1}


def draw_differences(runs: Sequence[Run]) -> Markup | None:
    """Only what differs, as a table."""
    found = differences(runs)
    return draw_by_run("Settings that differ", "Setting", found, runs) if found else None


def draw_by_run(label: str, what: str, rows: Mapping[str, Sequence[str]], runs: Sequence[Run]) -> Markup:
    """A table with a column per run, under its name and colour."""
    names = [element("th", swatch(number), " ", run.name, scope="col") for number, run in enumerate(runs)]
    body = [
        element("tr", element("th", key, scope="row"), [element("td", value) for value in values])
        for key, values in rows.items()
    ]
    table = element(
        "table",
        element("thead", element("tr", element("th", what, scope="col"), names)),
        element("tbody", body),
        class_="settings",
    )
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def draw_settings(runs: Sequence[Run]) -> Markup | None:
    """All settings, group by group, each folded away behind a line that says the most of it."""
    settings = _settings(runs)
    groups: dict[str, dict[str, list[str]]] = {}
    for key, values in settings.items():
        group, dot, name = key.partition(".")
        groups.setdefault(group if dot else "run", {})[name if dot else key] = values
    if not groups:
        return None
    first = {"run": groups.pop("run")} if "run" in groups else {}
    return element("div", [_group(name, rows, runs) for name, rows in {**first, **groups}.items()], class_="tree")


def _settings(runs: Sequence[Run]) -> dict[str, list[str]]:
    columns = [dict(flatten(run.config)) for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    return {key: [column.get(key, ABSENT) for column in columns] for key in keys}


def _group(name: str, rows: Mapping[str, Sequence[str]], runs: Sequence[Run]) -> Markup:
    differing = sum(len(set(values)) > 1 for values in rows.values())
    preview = ", ".join(f"{key} {values[0]}" for key, values in rows.items() if len(set(values)) == 1)
    head = None
    if differing:
        head = element("thead", element("tr", element("th"), [element("th", run.name, scope="col") for run in runs]))
    body = [
        element(
            "tr",
            element("th", key, scope="row"),
            [element("td", value) for value in values]
            if len(set(values)) > 1
            else element("td", values[0], colspan=len(runs)),
            class_="differs" if len(set(values)) > 1 else None,
        )
        for key, values in rows.items()
    ]
    summary = element(
        "summary",
        element("span", name, class_="name"),
        element("span", f"{differing} differ", class_="badge") if differing else None,
        element("span", preview, class_="preview"),
    )
    return element("details", summary, element("div", element("table", head, element("tbody", body)), class_="scroll"))
