"""The page of a fine-tuning run, of a study, or of several runs compared, made from their folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.baselines.table import Comparison
from litebert.finetuning.baselines import describe_verdicts, needs_advice, next_steps, show_lead, verdict_of
from litebert.finetuning.results import (
    Scores,
    capital,
    is_detail,
    is_study,
    name_of,
    read_depths,
    read_predictions,
    read_scores,
    read_summary,
    worst,
)
from litebert.parse import read_object
from litebert.report.charts import ChartSpec, held_out, make_charts
from litebert.report.figures import Line, Point, chart_data, draw_depths, draw_figures, make_axes
from litebert.report.html import (
    Child,
    Markup,
    assemble_page,
    draw_header,
    draw_section,
    draw_stat,
    draw_table,
    element,
    number_heads,
    read_style,
    scrolling,
    write_html,
)
from litebert.report.numbers import Format, count, duration
from litebert.report.provenance import draw_differences, draw_events, draw_provenance, draw_settings
from litebert.report.runs import TrainingRun, read_runs
from litebert.report.studies import draw_groups, draw_seeds, draw_study_table, expand, group_runs, print_groups
from litebert.report.summary import state_of
from litebert.tasks.kinds import KINDS
from litebert.tasks.kinds.kind import Fragment
from litebert.tasks.metrics import Metric, goodness, show_interval, show_value
from litebert.tasks.read import named_tasks
from litebert.tasks.task import Task, kind_of, load_task

EYEBROW = "litebert · fine-tuning report"
RATE = "examples-per-second"


def is_finetuning(folder: Path) -> bool:
    """Whether a folder is a fine-tuning run or a study of several."""
    if is_study(folder):
        return True
    try:
        return bool(read_object(folder / "run.json").get("kind") == "finetune")
    except (OSError, ValueError, AttributeError):
        return False


def write_finetuning_page(folders: Sequence[Path], out: Path | None = None, print_scores: bool = False) -> Path:
    """Write the page of a run, of a study, or of several of them compared."""
    if len(folders) == 1:
        write = write_study_page if is_study(folders[0]) else write_run_page
        return write(folders[0], out)
    runs = read_runs(expand(folders))
    page = write_comparison_page(runs, out or Path("report.html"))
    if print_scores:
        print_groups(group_runs(runs))
    return page


def write_run_page(folder: Path | str, out: Path | None = None) -> Path:
    """Write the page of a run, by default report.html in its folder."""
    folder = Path(folder)
    (run,) = read_runs([folder])
    task, scores = load_task(folder / "best"), read_scores(folder) or Scores()
    sections = [
        draw_section("Numbers", _headline(run, scores), hide_title=True),
        _baselines(scores, run),
        draw_section("Depth", _depths(folder / "best", task)),
        *_curves([run]),
        *_mistakes(folder, task, scores),
        *_history([run]),
    ]
    header = draw_header(EYEBROW, run.name, _subtitle(run, task))
    return write_html(_assemble(run.name, header, sections, [run]), out or folder / "report.html")


def write_study_page(folder: Path | str, out: Path | None = None) -> Path:
    """Write the page of a study: all runs, their spread, and the mistakes of the best one."""
    folder = Path(folder)
    summary = read_summary(folder)
    names = [run["name"] for run in summary["runs"]]
    chosen = summary["best"] or next((run["name"] for run in summary["runs"] if run["step"]), names[0])
    runs = read_runs([folder / name for name in names])
    best = folder / chosen
    task, scores = load_task(best / "best"), read_scores(best) or Scores()
    sections = [
        draw_section("Seeds", [draw_seeds(summary), draw_study_table(summary)], hide_title=True),
        _baselines(scores, runs[names.index(chosen)], _median(summary, chosen)),
        *_curves(runs),
        *_mistakes(best, task, scores, f"From the best run, {best.name}."),
        *_history(runs),
    ]
    title = folder.resolve().name
    header = draw_header(EYEBROW, title, f"{len(runs)} runs · {_subtitle(runs[0], task, False)}")
    return write_html(_assemble(title, header, sections, runs), out or folder / "report.html")


def write_comparison_page(runs: Sequence[TrainingRun], out: Path | str) -> Path:
    """Write one page about several runs, of one task or of many."""
    title = f"{len(runs)} runs compared"
    sections = [
        draw_section("Scores", draw_groups(group_runs(runs))),
        draw_section("What differs", draw_differences(runs)),
        *_curves(runs),
        *_history(runs),
    ]
    header = draw_header(EYEBROW, title, ", ".join(run.name for run in runs))
    return write_html(_assemble(title, header, sections, runs), out)


def _assemble(title: str, header: Markup, sections: Child, runs: Sequence[TrainingRun]) -> str:
    axes = make_axes(runs)
    return assemble_page(
        title, header, sections, chart_data(make_charts(runs, _metrics(runs)), runs, axes), read_style("finetuning.css")
    )


def _subtitle(run: TrainingRun, task: Task | None, with_state: bool = True) -> Any:
    config = run.config
    parts = [
        f"{config.get('task')}" + (f" ({task.kind})" if task and task.kind != config.get("task") else ""),
        f"from {config.get('model')}",
        f"preset {config.get('preset') or config.get('recipe')}",
        str(run.hardware.get("name") or ""),
    ]
    text = " · ".join(part for part in parts if part)
    state = state_of(run)
    return [element("span", state, class_=f"state {state.split()[0]}"), text] if with_state else text


# -- numbers -----------------------------------------------------------------------------------------------------------


def _headline(run: TrainingRun, scores: Scores) -> list[Markup]:
    cards = [
        _card(split, metrics, scores, run, first=i == 0) for i, (split, metrics) in enumerate(scores.splits.items())
    ]
    facts = run.facts
    seconds, tokens = run.clock("seconds"), run.clock("tokens")
    elapsed = float(seconds.values[-1]) if seconds else None
    # The end of the chart, so that both show the same number.
    rates = [chart.final(0) for row in make_charts([run], _metrics([run])) for chart in row if chart.name == RATE]
    rate = rates[0] if rates else None
    stats: list[tuple[str, str | None, str | None]] = [
        ("Training examples", f"{facts['train_examples']:,}" if "train_examples" in facts else None, None),
        ("Chosen step", f"{scores.step:,}", f"of {facts.get('num_steps', run.step):,}" if scores.splits else None),
        ("Time", duration(elapsed) if elapsed is not None else None, None),
        (
            f"{_unit(run)} per second",
            count(rate[0]) if rate else None,
            f"{count(float(tokens.values[-1]))} tokens in all" if tokens else None,
        ),
        ("Parameters with head", count(facts["parameters"]) if "parameters" in facts else None, _learning(facts)),
    ]
    known = [draw_stat(*stat) for stat in stats if stat[1]]
    return [element("div", cards, class_="cards")] * bool(cards) + [element("dl", known, class_="stats")]


def _learning(facts: Mapping[str, Any]) -> str | None:
    total, learning = facts.get("parameters"), facts.get("learning_parameters")
    return f"{count(learning)} of them trained" if learning and learning != total else None


def _card(split: str, metrics: Mapping[str, Metric], scores: Scores, run: TrainingRun, first: bool) -> Markup:
    main = scores.metric if scores.metric in metrics else next(iter(metrics))
    levels = run.baselines.get(main, {}) if first else {}
    rest = [
        element(
            "li",
            element("span", name_of(name), class_="name"),
            element("span", element("span", style=f"--share: {_percent(metric.value)}"), class_="track"),
            element(
                "span",
                f"{show_value(metric.value, name)} ",
                element("span", show_interval(metric, name), class_="near"),
                class_="number",
            ),
        )
        for name, metric in metrics.items()
        if name != main
    ]
    chosen = "the weights were chosen by this score" if first and split != "test" else "not used in training"
    return element(
        "section",
        element("h3", capital(f"{name_of(main)} on {split}")),
        element("p", element("strong", show_value(metrics[main].value, main)), element("span", chosen), class_="big"),
        _interval(metrics[main], main, levels),
        element("ul", rest, class_="bars wide") if rest else None,
        class_="card",
    )


def _interval(metric: Metric, name: str, levels: Mapping[str, float]) -> list[Markup]:
    """The score on a line from 0 to 100, with its interval and the baselines."""
    if metric.low is None or metric.high is None or goodness(name, 1.0) < 0:
        return []
    low, at = (_percent(value) for value in (metric.low, metric.value))
    marks = [
        element("span", class_="level", style=f"--at: {_percent(level)}", title=f"{label} {show_value(level)}")
        for label, level in levels.items()
    ]
    width = f"{max(0.0, min(metric.high, 1) - max(metric.low, 0)) * 100:.2f}%"
    legend = [f"{label} {show_value(level)}" for label, level in levels.items()]
    return [
        element(
            "div",
            marks,
            element("span", class_="range", style=f"--low: {low}; --width: {width}"),
            element("span", class_="point", style=f"--at: {at}"),
            class_="interval",
            role="img",
            aria_label=f"95 % interval from {show_value(metric.low)} to {show_value(metric.high)}",
        ),
        element(
            "p",
            element("span", f"95 % interval {show_value(metric.low)} to {show_value(metric.high)}"),
            element("span", ", ".join(legend)),
            class_="ends",
        ),
    ]


def _median(summary: Mapping[str, Any], chosen: str) -> float | None:
    """The median over the seeds of the chosen run's learning rate."""
    lr = next(run["lr"] for run in summary["runs"] if run["name"] == chosen)
    return next((setting["median"] for setting in summary["settings"] if setting["lr"] == lr), None)


def _baselines(scores: Scores, run: TrainingRun, median: float | None = None) -> Markup | None:
    """The baselines and the model: which is ahead, and what may help if it is not the model."""
    if not scores.baselines:
        return None
    verdicts = describe_verdicts(scores, median)
    words = [element("p", sentence, class_=f"verdict {verdict}") for sentence, verdict in verdicts]
    rows = [
        element(
            "tr",
            element("th", each.baseline, element("small", each.what), scope="row"),
            element("td", name_of(each.metric)),
            element("td", f"{show_value(each.score.value, each.metric)} ", _near(each), class_="number"),
            element("td", show_lead(each), class_="number"),
            element("td", verdict_of(each, scores, median)),
        )
        for each in scores.baselines
    ]
    columns = ("Baseline", "Metric", "Score on dev", "Lead of the model", "The model is")
    table = draw_table("Baselines", columns, rows, "comparison baselines")
    advice = None
    if needs_advice(scores, verdicts):
        num_train, task = int(run.facts.get("train_examples") or 0), str(run.config.get("task"))
        steps = next_steps(num_train, bool(run.config.get("head_only")), task)
        advice = element("div", element("p", "What may help:"), element("ul", [element("li", step) for step in steps]))
    return draw_section("Baselines", [words, table, advice])


def _near(comparison: Comparison) -> Markup:
    return element("span", f"({show_interval(comparison.score, comparison.metric)})", class_="near")


def _percent(value: float) -> str:
    return f"{100 * min(max(value, 0.0), 1.0):.2f}%"


# -- depth ---------------------------------------------------------------------------------------------------------


def _depths(model: Path, task: Task | None) -> Child:
    """What each exit scores and costs, as picture and table, if `litebert evaluate --depth all` has measured it."""
    data = read_depths(model)
    if data is None or task is None:
        return None
    metric = task.metrics[0]
    splits = list(dict.fromkeys(split for row in data["rows"] for split in row["splits"]))
    fixed = [row for row in data["rows"] if row["depth"] != "auto"]
    auto = [row for row in data["rows"] if row["depth"] == "auto"]
    lines = [
        Line(split, *([_depth_point(row, split, metric) for row in part] for part in (fixed, auto))) for split in splits
    ]
    form: Format = "number" if goodness(metric, 1.0) < 0 else "percent"
    names = ("Split", "Depth", "Layers on average", capital(name_of(metric)), "ms per example", "Times faster")
    slowest = max(row["ms"] for row in fixed)
    rows = []
    for split in splits:
        for row in data["rows"]:
            found = Metric(**row["splits"][split][metric])
            cells = (f"{row['mean_depth']:.2f}", show_value(found.value, metric), f"{row['ms']:.2f}")
            faster = f"{slowest / row['ms']:.2f}" if row["ms"] else ""
            rows.append(
                element(
                    "tr",
                    element("th", split, scope="row"),
                    element("td", str(row["depth"])),
                    [element("td", cell, class_="number") for cell in (*cells, faster)],
                )
            )
    note = element("p", f"Measured on {data['machine']}, {data['date']}.", class_="note")
    return [
        draw_depths(lines, "layers on average", form),
        draw_table("Depths", [*names[:2], *number_heads(names[2:])], rows, "comparison"),
        note,
    ]


def _depth_point(row: Mapping[str, Any], split: str, metric: str) -> Point:
    value = row["splits"][split][metric]["value"]
    label = f"{split}, depth {row['depth']}: {show_value(value, metric)}, {row['ms']:.2f} ms per example"
    return Point(row["mean_depth"], value, label)


# -- curves, history and mistakes --------------------------------------------------------------------------------------


def _metrics(runs: Sequence[TrainingRun]) -> list[list[ChartSpec]]:
    units = {_unit(run) for run in runs}
    unit = units.pop() if len(units) == 1 else "Inputs"
    names = [str(run.facts.get("metric") or "") for run in runs]
    first = names[0] if names else ""
    shown = [name for name in dict.fromkeys(n for run in runs for n in run.held_out.columns) if not is_detail(name)]
    shown.sort(key=lambda name: name != first)
    scored = [
        ChartSpec(
            name.replace("_", "-").replace("/", "-"),
            capital(name_of(name if "/" in name else f"dev/{name}")),
            "number" if goodness(name, 1.0) < 0 else "percent",
            "train_accuracy" if name == "accuracy" else "",
            held_out(name),
            baselines=name,
        )
        for name in shown
    ]
    row = [ChartSpec("loss", "Loss", "number", "loss", log=True), *scored[:1]]
    rest = [
        *scored[1:],
        ChartSpec("learning-rate", "Learning rate", "rate", "lr", smoothing=0.0),
        ChartSpec("gradient-norm", "Gradient norm", "number", "gradient_norm", log=True, smoothing=1 / 12),
        ChartSpec(RATE, f"{unit} per second", "count", "examples_per_second"),
    ]
    return [row, *(rest[i : i + 3] for i in range(0, len(rest), 3))]


def _unit(run: TrainingRun) -> str:
    """The unit of a run's speed."""
    name = str(run.config.get("task") or "")
    kind = named_tasks()[name].kind if name in named_tasks() else name
    return KINDS[kind].unit if kind in KINDS else "Examples"


def _curves(runs: Sequence[TrainingRun]) -> list[Markup | None]:
    return [draw_section("Curves", draw_figures(make_charts(runs, _metrics(runs)), runs, make_axes(runs)))]


def _history(runs: Sequence[TrainingRun]) -> list[Markup | None]:
    return [
        draw_section("Events", draw_events(runs)),
        draw_section("Hardware and software", draw_provenance(runs)),
        draw_section("Config", draw_settings(runs)),
    ]


def _mistakes(folder: Path, task: Task | None, scores: Scores, whose: str = "") -> list[Markup | None]:
    split = next(iter(scores.splits), None)
    path = folder / "predictions" / f"{split}.jsonl"
    if task is None or not path.is_file():
        return []
    lines = [line for line in read_predictions(path) if "gold" in line]
    confusion, errors = draw_confusion(task, lines), draw_worst(task, lines)
    note = element("p", whose, class_="note") if whose else None
    return [
        draw_section("Confusion matrix", [note, confusion] if confusion else None),
        draw_section("Worst errors", [note, errors] if errors else None),
    ]


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
    note = f"The {MOST_CLASSES} most frequent of {MOST_CLASSES + left_out} classes." if left_out > 0 else None
    return element(
        "div",
        element(
            "div",
            scrolling("Confusion matrix", table),
            _class_table(counts, [row for row in rows if row in task.labels]),
            class_="confusion",
        ),
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
    head = ["Class", *number_heads(("precision", "recall", "F1", "count"))]
    return draw_table("Scores per class", head, body, "comparison classes")


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
    summary = f"{wrong:,} of {len(lines):,} {kind.how_wrong}; the worst {len(found)} are listed."
    note = element("p", summary, class_="note")
    return element("div", note, draw_table("Errors", ("Text", "Gold", "Predicted"), body, "errors"))


def _text(paragraphs: Sequence[Sequence[Fragment]]) -> list[Child]:
    """The first paragraph, and the others smaller below it."""
    first, *rest = [[_mark(part) for part in paragraph] for paragraph in paragraphs]
    return [*first, *(element("span", paragraph, class_="second") for paragraph in rest)]


def _mark(part: Fragment) -> Child:
    if not part.mark:
        return part.text
    return element("mark", part.text, class_="wrong" if part.mark == "wrong" else None, title=part.title or None)


def _small(text: str | None) -> Markup | None:
    return element("small", text) if text is not None else None
