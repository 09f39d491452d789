"""How runs were made: settings, events, hardware, versions, the command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from litebert.report.html import Markup, draw_table, element, join, number_heads, swatch
from litebert.report.numbers import count
from litebert.report.runs import Event, TrainingRun

MOST_EVENTS = 200  # per run, the latest
OBJECTIVES = {"sop": "sentence order", "nsp": "next sentence", "none": "masked words only"}
ABSENT = "–"


# -- settings ----------------------------------------------------------------------------------------------------------


def flatten(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as text: {"optim": {"lr": 1e-3}} -> ("optim.lr", "0.001")."""
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, show_setting(value)


def show_setting(value: Any) -> str:
    """A value in one line: [{"until": 0.5, "value": 3}, ...] -> "3 until 50%, ..."."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(show_setting(item) for item in value) or "none"
    if isinstance(value, Mapping):
        if set(value) == {"until", "value"} and isinstance(value["until"], (int, float)):
            end = f"until {100 * value['until']:.3g}%" if value["until"] < 1 else "to the end"
            return f"{value['value']} {end}"
        return " ".join(f"{key} {show_setting(item)}" for key, item in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return str(value)


def differences(runs: Sequence[TrainingRun]) -> dict[str, list[str]]:
    """Settings that differ between runs, with a value per run."""
    return {key: values for key, values in _settings(runs).items() if len(set(values)) > 1}


def draw_differences(runs: Sequence[TrainingRun]) -> Markup | None:
    """Only what differs, as a table."""
    found = differences(runs)
    return draw_by_run("Settings that differ", "Setting", found, runs) if found else None


def draw_by_run(label: str, what: str, rows: Mapping[str, Sequence[str]], runs: Sequence[TrainingRun]) -> Markup:
    """A table with a column per run, under its name and colour."""
    names = [element("th", swatch(number), " ", run.name, scope="col") for number, run in enumerate(runs)]
    body = [
        element("tr", element("th", key, scope="row"), [element("td", value) for value in values])
        for key, values in rows.items()
    ]
    return draw_table(label, [what, *names], body, "settings")


def draw_settings(runs: Sequence[TrainingRun]) -> Markup | None:
    """All settings in collapsed groups, each with a preview."""
    settings = _settings(runs)
    groups: dict[str, dict[str, list[str]]] = {}
    for key, values in settings.items():
        group, dot, name = key.partition(".")
        groups.setdefault(group if dot else "run", {})[name if dot else key] = values
    if not groups:
        return None
    first = {"run": groups.pop("run")} if "run" in groups else {}
    return element("div", [_group(name, rows, runs) for name, rows in {**first, **groups}.items()], class_="tree")


def _settings(runs: Sequence[TrainingRun]) -> dict[str, list[str]]:
    columns = [dict(flatten(run.config)) for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    return {key: [column.get(key, ABSENT) for column in columns] for key in keys}


def _group(name: str, rows: Mapping[str, Sequence[str]], runs: Sequence[TrainingRun]) -> Markup:
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


# -- events and provenance ---------------------------------------------------------------------------------------------


def describe_run(run: TrainingRun) -> str:
    """A run in one line: "ALBERT, hidden size 128, 4 layers · sentence order · CPU, 2 threads"."""
    model = run.config.get("model")
    model = model if isinstance(model, Mapping) else {}
    shape = [str(model["model_type"]).upper()] if "model_type" in model else []
    shape += [f"hidden size {model['hidden_size']}"] if "hidden_size" in model else []
    shape += [f"{model['num_hidden_layers']} layers"] if "num_hidden_layers" in model else []
    objective = str(run.facts.get("objective") or "")
    parts = [", ".join(shape), OBJECTIVES.get(objective, objective), str(run.hardware.get("name") or "")]
    return " · ".join(part for part in parts if part)


def draw_events(runs: Sequence[TrainingRun]) -> Markup | None:
    """The events of all runs, sorted by step."""
    found = [(event, number) for number, run in enumerate(runs) for event in run.events[-MOST_EVENTS:]]
    if not found:
        return None
    found.sort(key=lambda pair: pair[0].step)
    head = [*["Run"] * (len(runs) > 1), *number_heads(["Step"]), "Kind", "Message"]
    body = [_event(event, number, runs) for event, number in found]
    left_out = sum(max(0, len(run.events) - MOST_EVENTS) for run in runs)
    note = element("p", f"{left_out:,} earlier events are in metrics.jsonl.", class_="note") if left_out else None
    return join(draw_table("Events", head, body, "events"), note)


def draw_provenance(runs: Sequence[TrainingRun]) -> Markup:
    """The hardware, versions and command of each run."""
    facts = [_facts(run) for run in runs]
    if len(runs) > 1:
        keys = dict.fromkeys(key for one in facts for key in one)
        rows = {key: [one.get(key, ABSENT) for one in facts] for key in keys}
        return draw_by_run("Hardware and software", "", rows, runs)
    command = facts[0].pop("command", None)
    items = [element("div", element("dt", name), element("dd", value)) for name, value in facts[0].items()]
    return element(
        "div",
        element("dl", items, class_="facts"),
        element("pre", element("code", command), tabindex=0) if command else None,
        class_="provenance",
    )


def _facts(run: TrainingRun) -> dict[str, str]:
    facts = {str(key).replace("_", " "): value for key, value in run.hardware.items()}
    facts |= {key: run.facts.get(key) for key in ("litebert", "torch", "python", "started", "finished")}
    facts |= {"folder": run.folder, "command": run.facts.get("command")}
    return {key: _fact(value) for key, value in facts.items() if value not in (None, "")}


def _event(event: Event, number: int, runs: Sequence[TrainingRun]) -> Markup:
    return element(
        "tr",
        element("td", swatch(number), " ", runs[number].name) if len(runs) > 1 else None,
        element("td", f"{event.step:,}", class_="number"),
        element("td", element("span", event.kind, class_=f"kind {event.kind}")),
        element("td", event.message),
    )


def _fact(value: Any) -> str:
    """A fact in short: "2026-01-01T00:02:00Z" -> "2026-01-01 00:02 UTC", 1.1e11 -> "110B"."""
    if isinstance(value, float):
        return count(value)
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ$", r"\1 \2 UTC", str(value))
