"""What happened in the runs, and where: events, hardware, versions, the command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from litebert.report.html import Markup, element, join
from litebert.report.numbers import count
from litebert.report.palette import swatch
from litebert.report.runs import Event, Run
from litebert.report.settings import draw_by_run

MOST_EVENTS = 200  # of one run; the last ones
OBJECTIVES = {"sop": "sentence order", "nsp": "next sentence", "none": "masked words only"}


def describe_run(run: Run) -> str:
    """A run in one line: "ALBERT, hidden size 128, 4 layers · sentence order · CPU, 2 threads"."""
    model = run.config.get("model")
    model = model if isinstance(model, Mapping) else {}
    shape = [str(model["model_type"]).upper()] if "model_type" in model else []
    shape += [f"hidden size {model['hidden_size']}"] if "hidden_size" in model else []
    shape += [f"{model['num_hidden_layers']} layers"] if "num_hidden_layers" in model else []
    objective = str(run.facts.get("objective") or "")
    parts = [", ".join(shape), OBJECTIVES.get(objective, objective), str(run.hardware.get("name") or "")]
    return " · ".join(part for part in parts if part)


def draw_events(runs: Sequence[Run]) -> Markup | None:
    """The events of all runs in the order of their steps."""
    found = [(event, number) for number, run in enumerate(runs) for event in run.events[-MOST_EVENTS:]]
    if not found:
        return None
    found.sort(key=lambda pair: pair[0].step)
    head = [element("th", "Run", scope="col")] if len(runs) > 1 else []
    head.append(element("th", "Step", scope="col", class_="number"))
    head += [element("th", name, scope="col") for name in ("Kind", "Message")]
    body = [_event(event, number, runs) for event, number in found]
    table = element("table", element("thead", element("tr", head)), element("tbody", body), class_="events")
    left_out = sum(max(0, len(run.events) - MOST_EVENTS) for run in runs)
    note = element("p", f"{left_out:,} earlier ones are in metrics.jsonl.", class_="note") if left_out else None
    return join(element("div", table, class_="scroll", tabindex=0, role="region", aria_label="Events"), note)


def draw_provenance(runs: Sequence[Run]) -> Markup:
    """Where each run ran, with which versions, from which command."""
    facts = [_facts(run) for run in runs]
    if len(runs) > 1:
        keys = dict.fromkeys(key for one in facts for key in one)
        rows = {key: [one.get(key, "–") for one in facts] for key in keys}
        return draw_by_run("Hardware and software", "", rows, runs)
    command = facts[0].pop("command", None)
    items = [element("div", element("dt", name), element("dd", value)) for name, value in facts[0].items()]
    return element(
        "div",
        element("dl", items, class_="facts"),
        element("pre", element("code", command), tabindex=0) if command else None,
        class_="provenance",
    )


def _facts(run: Run) -> dict[str, str]:
    facts = {str(key).replace("_", " "): value for key, value in run.hardware.items()}
    facts |= {key: run.facts.get(key) for key in ("litebert", "torch", "python", "started", "finished")}
    facts |= {"folder": run.folder, "command": run.facts.get("command")}
    return {key: _fact(value) for key, value in facts.items() if value not in (None, "")}


def _event(event: Event, number: int, runs: Sequence[Run]) -> Markup:
    return element(
        "tr",
        element("td", swatch(number), " ", runs[number].name) if len(runs) > 1 else None,
        element("td", f"{event.step:,}", class_="number"),
        element("td", element("span", event.kind, class_=f"kind {event.kind}")),
        element("td", event.message),
    )


def _fact(value: Any) -> str:
    """A fact in few letters: "2026-01-01T00:02:00Z" -> "2026-01-01 00:02 UTC", 1.1e11 -> "110B"."""
    if isinstance(value, float):
        return count(value)
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ$", r"\1 \2 UTC", str(value))
