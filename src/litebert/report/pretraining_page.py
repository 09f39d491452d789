"""The page of pretraining runs: scores, curves, filled masks, events, hardware and config in one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from litebert.errors import DataError
from litebert.report.charts import make_charts
from litebert.report.figures import chart_data, draw_figures, make_axes
from litebert.report.html import (
    Child,
    Markup,
    assemble_page,
    draw_header,
    draw_section,
    element,
    join,
    swatch,
    write_html,
)
from litebert.report.provenance import describe_run, draw_differences, draw_events, draw_provenance, draw_settings
from litebert.report.runs import Guess, Sample, TrainingRun, read_runs
from litebert.report.summary import draw_comparison, draw_tiles, print_summary, state_of

MASK = "[MASK]"
MOST_TEXTS = 48


def write_pretraining_page(folders: Sequence[Path], out: Path | None = None, print_scores: bool = False) -> Path:
    """Write one page about pretraining runs."""
    runs = read_runs(folders)
    if others := [run.name for run in runs if run.facts.get("kind") == "finetune"]:
        raise DataError(
            f"{', '.join(others)}: a fine-tuning run among pretraining runs, which have other scores; "
            "write one report for each kind"
        )
    page = write_html(draw_page(runs), out or (runs[0].folder if len(runs) == 1 else Path()) / "report.html")
    if print_scores:
        print_summary(runs)
    return page


def draw_page(runs: Sequence[TrainingRun]) -> str:
    """The whole page as text."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared"
    axes = make_axes(runs)
    rows = make_charts(runs)
    sections = [
        draw_section("Numbers", draw_tiles(runs[0]) if len(runs) == 1 else draw_comparison(runs), hide_title=True),
        draw_section("What differs", draw_differences(runs)),
        draw_section("Curves", draw_figures(rows, runs, axes)),
        draw_section("Filled masks", draw_masks(runs)),
        draw_section("Events", draw_events(runs)),
        draw_section("Hardware and software", draw_provenance(runs)),
        draw_section("Config", draw_settings(runs)),
    ]
    return assemble_page(title, _header(runs, title), sections, chart_data(rows, runs, axes))


def _header(runs: Sequence[TrainingRun], title: str) -> Markup:
    if len(runs) == 1:
        state = state_of(runs[0])
        line: Child = [element("span", state, class_=f"state {state.split()[0]}"), describe_run(runs[0])]
    else:
        line = ", ".join(run.name for run in runs)
    return draw_header("litebert · pretraining report", title, line)


# -- filled masks ------------------------------------------------------------------------------------------------------


def rank_of(answer: str, guesses: Sequence[Guess]) -> int | None:
    """The rank of the correct word among the guesses, from 1; None if it is missing."""
    tokens = [guess.token.strip() for guess in guesses]
    return tokens.index(answer.strip()) + 1 if answer.strip() in tokens else None


def draw_masks(runs: Sequence[TrainingRun]) -> Markup | None:
    """A card per text, with the guesses of every run."""
    texts: dict[tuple[str, tuple[str, ...]], list[tuple[int, Sample]]] = {}
    for number, run in enumerate(runs):
        for sample in run.samples:
            texts.setdefault((sample.text, sample.answers), []).append((number, sample))
    if not texts:
        return None
    cards = [_card(answered, runs) for answered in list(texts.values())[:MOST_TEXTS]]
    left_out = len(texts) - len(cards)
    return join(
        [_score(number, run, len(runs) > 1) for number, run in enumerate(runs) if run.samples],
        element("div", cards, class_="masks several" if len(runs) > 1 else "masks"),
        element("p", f"{left_out} more texts are in samples.json.", class_="note") if left_out else None,
    )


def _score(number: int, run: TrainingRun, with_name: bool) -> Markup:
    ranks = [
        rank_of(answer, guesses)
        for sample in run.samples
        for answer, guesses in zip(sample.answers, sample.guesses, strict=False)
    ]
    first, among = sum(rank == 1 for rank in ranks), sum(rank is not None for rank in ranks)
    text = f"The first guess is correct for {first} of {len(ranks)} masked words; {among} are among the guesses shown."
    return element("p", [swatch(number), f" {run.name}: "] if with_name else None, text, class_="note")


def _card(answered: Sequence[tuple[int, Sample]], runs: Sequence[TrainingRun]) -> Markup:
    sample = answered[0][1]
    several = len(sample.answers) > 1
    blocks = []
    for place, answer in enumerate(sample.answers):
        guesses = [
            _guesses(
                answer, one.guesses[place], join(swatch(number), " ", runs[number].name) if len(runs) > 1 else None
            )
            for number, one in answered
            if place < len(one.guesses)
        ]
        title = element("p", f"{place + 1}. {answer}", class_="place") if several else None
        blocks.append(element("div", title, element("div", guesses, class_="runs")))
    return element(
        "article",
        element("p", _filled(answered), class_="text"),
        element("div", blocks, class_="guesses"),
        class_="mask",
    )


def _filled(answered: Sequence[tuple[int, Sample]]) -> list[Child]:
    """The text with the original words filled in, coloured by how well the best run guessed them."""
    sample = answered[0][1]
    parts: list[Child] = []
    pieces = sample.text.split(MASK)
    for place, piece in enumerate(pieces):
        parts.append(piece)
        if place == len(pieces) - 1:
            break
        if place >= len(sample.answers):
            parts.append(element("mark", MASK))
            continue
        known = [rank_of(sample.answers[place], one.guesses[place]) for _, one in answered if place < len(one.guesses)]
        kind = "right" if 1 in known else "near" if any(known) else "wrong"
        number = element("sup", str(place + 1)) if len(sample.answers) > 1 else None
        parts.append(element("mark", sample.answers[place], number, class_=kind))
    return parts


def _guesses(answer: str, guesses: Sequence[Guess], whose: Markup | None) -> Markup:
    rank = rank_of(answer, guesses)
    rows = []
    for place, guess in enumerate(guesses, start=1):
        is_right = place == rank
        mark = element("span", "✓", role="img", aria_label="right") if is_right else None
        rows.append(
            element(
                "li",
                element("span", guess.token.strip() or "␣", class_="name"),
                element("span", element("span", style=f"--share: {100 * guess.probability:.1f}%"), class_="track"),
                element("span", f"{100 * guess.probability:.0f}%", class_="number"),
                element("span", mark, class_="tick"),
                class_="right" if is_right else None,
            )
        )
    missing = element("p", "correct: ", element("b", answer), class_="missing") if rank is None else None
    return element(
        "div", element("p", whose, class_="whose") if whose else None, element("ol", rows, class_="bars"), missing
    )
