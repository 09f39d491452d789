"""A reproduced table, the paper's numbers above ours, and its verdicts: as Markdown, LaTeX, JSON, on the terminal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table as ScreenTable
from rich.text import Text

from litebert.config import to_dict
from litebert.report.numbers import count, tick_labels
from litebert.reproduce.paper import METRICS, PAIRS
from litebert.reproduce.reproduction import JudgedTable
from litebert.reproduce.results import Results, describe_unlearned, find_unlearned
from litebert.reproduce.verdicts import Answer, Verdict

STYLES: dict[Answer, str] = {"holds": "bold green", "does not hold": "bold red", "inconclusive": "bold yellow"}
NOTHING = "–"


def columns_of(results: Results) -> list[str]:
    """The metrics to show: every one that the paper or we have a number for, F1 and EM as one."""
    table = results.table
    seconds = {PAIRS[name] for name in table.columns if name in PAIRS}
    return [
        name
        for name in table.columns
        if name not in seconds
        and (any(name in row.paper for row in table.rows.values()) or any(results.of(row, name) for row in table.rows))
    ]


def title_of(column: str) -> str:
    """The head of a column: "SQuAD1.1 F1/EM", "MLM"."""
    return METRICS[column].title + ("/EM" if column in PAIRS else "")


def paper_cell(paper: Mapping[str, float], column: str) -> str:
    """What the paper prints: "90.4/83.2"."""
    digits = 0 if column == "params" else METRICS[column].digits if column != "speed_up" else 1
    values = [paper[name] for name in (column, PAIRS.get(column, "")) if name in paper]
    return "/".join(f"{value:.{digits}f}" for value in values) + "M" * (column == "params" and bool(values)) or NOTHING


def our_cell(results: Results, row: str, column: str) -> str:
    """What we have: a mean and, over several seeds, the standard deviation: "54.0 ± 0.3"."""
    parts = []
    for name in (column, PAIRS.get(column)):
        values = list(results.of(row, name).values()) if name else []
        if not values:
            continue
        if name == "params":  # exact, so every digit of it
            return f"{round(1e6 * values[0]):,}"
        digits = METRICS[column].digits
        text = f"{statistics.fmean(values):,.{digits}f}"
        if len(set(values)) > 1:
            text += f" ± {statistics.stdev(values):,.{digits}f}"
        parts.append(text)
    return " / ".join(parts) or NOTHING


def table_rows(results: Results, columns: Sequence[str] | None = None) -> list[list[str]]:
    """Lines of the table: name, "paper" or "ours", then one text per column."""
    lines = []
    columns = columns_of(results) if columns is None else columns
    for name, row in results.table.rows.items():
        if row.paper:
            lines.append([name, "paper", *(paper_cell(row.paper, column) for column in columns)])
        if row.model:
            ours = [our_cell(results, name, column) for column in columns]
            lines.append(["" if row.paper else name, "ours", *ours])
    return lines


def headline(results: Results) -> str:
    """ "Table 5. Sentence order against next sentence (scale cpu, 3 seeds)"."""
    seeds = f"{results.seeds} seed{'s' if results.seeds > 1 else ''}"
    trained = any(METRICS[name].source != "count" for name in results.table.measure)
    scale = f" (scale {results.scale}, {seeds})" if trained else ""
    return f"{results.table.label}. {results.table.title}{scale}"


def notes_of(results: Results) -> list[str]:
    """Notes below the table."""
    notes = list(results.table.notes)
    tasks = [METRICS[name].task for name in results.table.columns if METRICS[name].source == "task"]
    tasks = [name for name in dict.fromkeys(tasks) if name != METRICS["average"].task]
    if tasks and results.missing_tasks:
        notes.append(f"Missing data sets: {', '.join(results.missing_tasks)}.")
    elif tasks and not any(
        results.of(row, n) for row in results.table.rows for n in results.table.columns if METRICS[n].source == "task"
    ):
        notes.append(f"Not measured, because no data sets were given (tasks): {', '.join(tasks)}.")
    if any(results.of(row, "squad2_f1") for row in results.table.rows):
        notes.append("SQuAD 2.0 is scored at the no-answer threshold that is best on dev, as in the paper.")
    facts = [facts for facts in results.facts.values() if facts]
    if facts:
        devices = ", ".join(sorted({str(one["device"]) for one in facts}))
        notes.append(f"Each of our runs: {', '.join(_describe_runs(facts))}, on {devices}.")
        if "params" in columns_of(results) and results.scale != "paper":
            notes.append("The column params counts the paper's models, not the smaller ones of these runs.")
    if results.settings:
        notes.append(f"Set for all rows, regardless of their names: {', '.join(results.settings)}.")
    if unlearned := find_unlearned(results):
        notes.append(f"{describe_unlearned(unlearned)}; claims about them are inconclusive.")
    notes += [f"{row}, seed {seed}: {problem}" for (row, seed), problem in results.problems.items()]
    return notes


def _describe_runs(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is known of all runs: ["500 to 1,200 steps", "511k tokens", "1.59M parameters", "a peak rate of 1e-3"]."""
    texts: dict[str, tuple[Callable[[float], str], str]] = {
        "steps": ("{:,}".format, "{} steps"),
        "tokens": (count, "{} tokens"),
        "parameters": (count, "{} parameters"),
        "rate": (lambda rate: tick_labels([rate], "rate")[0], "a peak rate of {}"),
    }
    described = []
    for name, (show, text) in texts.items():
        values = [one[name] for one in facts if name in one]
        if values:
            described.append(text.format(" to ".join(dict.fromkeys(show(end) for end in (min(values), max(values))))))
    return described


def verdict_title(verdict: Verdict) -> str:
    """The claim, with the metric that it was tested on."""
    return f"{verdict.claim.text} [{METRICS[verdict.metric].title}]"


def to_screen(outcome: JudgedTable) -> Group:
    """For a terminal, with colours; pretraining metrics and task scores are two tables, so that both fit."""
    results = outcome.results
    columns = columns_of(results)
    tasks = [column for column in columns if METRICS[column].source == "task"]
    others = [column for column in columns if column not in tasks]
    blocks: list[ScreenTable | Text] = []
    for part in (others, tasks):
        if part:
            blocks += [_screen_table(results, part), Text()]
    judged = ScreenTable.grid(padding=(0, 2, 0, 0))
    for verdict in outcome.verdicts:
        answer = Text(verdict.answer, STYLES[verdict.answer])
        judged.add_row(answer, Text.assemble(verdict_title(verdict), "\n", (verdict.evidence, "dim")))
    notes = ScreenTable.grid(padding=(0, 1, 0, 0))
    for note in notes_of(results):
        notes.add_row(Text("-", "dim"), Text(note, "dim"))
    return Group(Text(headline(results), "bold"), Text(), *blocks, judged, Text(), notes)


def _screen_table(results: Results, columns: Sequence[str]) -> ScreenTable:
    table = ScreenTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(title_of(column), justify="right")
    for name, who, *cells in table_rows(results, columns):
        compact = [cell.replace(" ± ", "±").replace(" / ", "/") for cell in cells]
        table.add_row(Text(name, "bold"), who, *compact, style="dim" if who == "paper" else "")
    return table


def to_markdown(outcome: JudgedTable) -> str:
    """For a document."""
    results = outcome.results
    heads = ["", "", *(title_of(column) for column in columns_of(results))]
    lines = [f"### {headline(results)}", "", _line(heads), _line(["---"] * 2 + ["---:"] * (len(heads) - 2))]
    lines += [_line([f"**{name}**" if name else "", *rest]) for name, *rest in table_rows(results)]
    lines += ["", _line(["verdict", "claim", "evidence"]), _line(["---"] * 3)]
    lines += [_line([f"**{v.answer}**", verdict_title(v), v.evidence]) for v in outcome.verdicts]
    lines += ["", *(f"- {note}" for note in notes_of(results)), ""]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def to_latex(outcome: JudgedTable) -> str:
    """For a paper; needs the package booktabs."""
    results = outcome.results
    columns = columns_of(results)
    heads = " & ".join(["", "", *(_tex(title_of(column)) for column in columns)])
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{ll{'r' * len(columns)}}}",
        r"\toprule",
        rf"{heads} \\",
        r"\midrule",
        *(rf"{' & '.join(_tex(cell) for cell in cells)} \\" for cells in table_rows(results)),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{_tex(headline(results))}}}",
        r"\end{table}",
        *(f"% {v.answer}: {verdict_title(v)}: {v.evidence}" for v in outcome.verdicts),
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    for plain, escaped in (
        ("\\", r"\textbackslash{}"),
        ("&", r"\&"),
        ("%", r"\%"),
        ("_", r"\_"),
        ("#", r"\#"),
        ("±", r"$\pm$"),
        ("–", "--"),
    ):
        text = text.replace(plain, escaped)
    return text


def to_json(outcome: JudgedTable) -> dict[str, Any]:
    """For programs: everything that the other forms show, unrounded."""
    results = outcome.results
    return {
        "table": results.table.name,
        "title": results.table.title,
        "scale": results.scale,
        "seeds": results.seeds,
        "rows": {
            name: {
                "paper": dict(row.paper),
                "ours": {metric: list(by_seed.values()) for metric, by_seed in results.values.get(name, {}).items()},
            }
            for name, row in results.table.rows.items()
        },
        "verdicts": [
            {
                "claim": verdict.claim.text,
                "metric": verdict.metric,
                "answer": verdict.answer,
                "evidence": verdict.evidence,
                "test": to_dict(verdict.test) if verdict.test else None,
            }
            for verdict in outcome.verdicts
        ],
        "layers": {f"{row}/{seed}": layers for (row, seed), layers in results.layers.items()},
        "facts": {f"{row}/{seed}": facts for (row, seed), facts in results.facts.items()},
        "learned_nothing": [f"{row}/{seed}" for row, seed in find_unlearned(results)],
        "notes": notes_of(results),
    }
