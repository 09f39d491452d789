"""Tables in print and as a page: the right numbers in the right cells, in every form."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from litebert.report.reproduction_page import draw_dots, draw_interval, draw_page
from litebert.report.reproduction_tables import (
    notes_of,
    our_cell,
    paper_cell,
    to_json,
    to_latex,
    to_markdown,
    to_screen,
)
from litebert.reproduce.paper import load_table
from litebert.reproduce.reproduction import JudgedTable
from litebert.reproduce.results import Place, Results
from litebert.reproduce.verdicts import judge_table


def outcome_of(name, values, **more) -> JudgedTable:
    results = Results(load_table(name), "cpu", 3, values, **more)
    return JudgedTable(results, tuple(judge_table(results)))


@pytest.fixture
def table5():
    values = {
        "none": {"mlm": {0: 20.0, 1: 21.0, 2: 22.0}},
        "nsp": {
            "mlm": {0: 20.0, 1: 21.0, 2: 22.0},
            "nsp": {0: 60.0, 1: 61.0, 2: 62.0},
            "sop": {0: 51.0, 1: 50.0, 2: 50.0},
        },
        "sop": {"sop": {0: 80.0, 1: 82.0, 2: 84.0}, "sst2": {0: 90.0}, "squad1_f1": {0: 88.0}, "squad1_em": {0: 80.0}},
    }
    return outcome_of("table5", values, problems={Place("sop", 1): "out of <memory> & more"})


@pytest.fixture
def figure1():
    layers = {
        Place(row, seed): {"l2": [1.0, 2.0 + rough, 1.0, 2.0], "angle": [10.0, 20.0, 15.0, 12.0]}
        for row, rough in (("bert-large", 2.0), ("albert-large", 0.0))
        for seed in range(3)
    }
    return outcome_of("figure1", {row: {"last_l2": {0: 0.5}} for row in ("bert-large", "albert-large")}, layers=layers)


def test_cells(table5):
    results = table5.results
    assert our_cell(results, "sop", "sop") == "82.0 ± 2.0"
    assert our_cell(results, "sop", "squad1_f1") == "88.0 / 80.0"
    assert our_cell(results, "none", "sop") == "–"
    assert paper_cell(results.table.rows["sop"].paper, "squad1_f1") == "89.3/82.3"
    assert paper_cell({"params": 12.0}, "params") == "12M"


def test_markdown_has_the_paper_above_ours(table5):
    lines = to_markdown(table5).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| **sop** | paper"))
    heads = [cell.strip() for cell in lines[2].strip("|").split("|")]
    paper, ours = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[start : start + 2])
    assert (paper[heads.index("SOP")], ours[heads.index("SOP")]) == ("86.5", "82.0 ± 2.0")
    assert (paper[heads.index("SST-2")], ours[heads.index("SST-2")]) == ("90.3", "90.0")
    assert all(len(line.split("|")) == len(lines[2].split("|")) for line in lines[3 : start + 2])
    assert any(
        line.startswith("| **holds** | Trained on SOP, a model solves SOP (over 55 %) [SOP] | 82.0 against 55 points")
        for line in lines
    )


def test_latex_is_escaped(table5):
    text = to_latex(table5)
    assert text.count("{") == text.count("}")
    assert r"82.0 $\pm$ 2.0" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len({line.count("&") for line in rows}) == 1
    body = text[: text.index("%")] if "%" in text else text
    assert not re.search(r"(?<!\\)[#_]", body)


def test_json_holds_every_seed_and_test(table5):
    data = json.loads(json.dumps(to_json(table5)))
    assert data["rows"]["sop"]["ours"]["sop"] == [80.0, 82.0, 84.0]
    assert data["rows"]["sop"]["paper"]["nsp"] == 78.9
    verdict = next(v for v in data["verdicts"] if v["claim"] == "Trained on SOP, a model solves SOP (over 55 %)")
    assert verdict["answer"] == "holds"
    assert verdict["test"]["low"] < 82 - 55 < verdict["test"]["high"]
    assert verdict["test"]["least_seen"] > 0


def test_the_screen_fits_80_columns(table5):
    console = Console(width=80, file=io.StringIO(), highlight=False)
    console.print(to_screen(table5))
    text = console.file.getvalue()
    assert "…" not in text
    assert re.search(r"sop\s+paper\s+54\.0\s+78\.9\s+86\.5", text)
    assert re.search(r"ours\s+–\s+–\s+82\.0±2\.0", text)


def test_what_is_missing_is_said(table5):
    notes = " ".join(notes_of(table5.results))
    assert "sop, seed 1: out of <memory>" in notes
    nothing = outcome_of("table7", {})
    assert "Not measured, because no data sets were given (tasks): SQuAD 1.1, SQuAD 2.0, MNLI" in " ".join(
        notes_of(nothing.results)
    )
    facts = {"steps": 500, "tokens": 511_234, "device": "CPU"}
    ran = outcome_of("table7", {}, facts={Place("base", 0): facts, Place("more", 0): {**facts, "steps": 700}})
    assert "Each of our runs: 500 to 700 steps, 511k tokens, on CPU." in notes_of(ran.results)
    sizes = [{"steps": 2000, "parameters": 2_797_696, "rate": 1e-3}, {"parameters": 49_490_496, "rate": 1.67e-4}]
    wide = {Place(row, 0): {**facts, **size} for row, size in zip(("hidden-1024", "hidden-6144"), sizes, strict=True)}
    told = notes_of(outcome_of("table12", {}, facts=wide).results)
    trained = "500 to 2,000 steps, 511k tokens, 2.80M to 49.5M parameters, a peak rate of 1.67e-4 to 1e-3, on CPU."
    assert f"Each of our runs: {trained}" in told
    assert any("params counts the paper's models" in note for note in told)
    assert not any("Set for all rows" in note for note in told)
    changed = replace(nothing.results, settings=("model.num_hidden_layers=3", "optim.lr=5e-4"))
    assert "Set for all rows, regardless of their names: model.num_hidden_layers=3, optim.lr=5e-4." in notes_of(changed)
    asked = outcome_of("table7", {"base": {"squad2_f1": {0: 70.0}, "squad2_em": {0: 65.0}}})
    assert any("no-answer threshold that is best on dev" in note for note in notes_of(asked.results))
    assert not any("threshold" in note for note in notes_of(nothing.results))
    stuck = outcome_of(
        "table7",
        {"base": {"mlm": {0: 5.3}}, "more": {"mlm": {0: 12.0}}},
        facts={Place(row, 0): {**facts, "mlm_floor": 5.3} for row in ("base", "more")},
    )
    said = (
        "base (seed 0) learned no more than token frequencies: MLM 5.3, where the most frequent token alone gives 5.3"
    )
    assert f"{said}; claims about them are inconclusive." in notes_of(stuck.results)
    assert f"- {said}; " in to_markdown(stuck)
    assert f"<li>{said}; " in draw_page([stuck])
    assert to_json(stuck)["learned_nothing"] == ["base/0"]
    some = outcome_of("table7", {}, missing_tasks=("RACE",))
    assert "Missing data sets: RACE." in notes_of(some.results)


def test_the_page_is_whole_and_escaped(table5, figure1):
    page = draw_page([table5, figure1])
    assert "2 tables and figures of the ALBERT paper" in page
    assert "out of &lt;memory&gt; &amp; more" in page
    assert "82.0 ± 2.0" in page
    assert page.count('class="forest"') == sum(v.test is not None for o in (table5, figure1) for v in o.verdicts)
    assert not re.search(r"(src|href)=", page)
    assert "L2 distance" in page


@pytest.mark.parametrize("width", [768, 1024, 1280])
def test_no_column_of_table_5_is_cut(table5, browser, tmp_path, width):
    (tmp_path / "page.html").write_text(draw_page([table5]), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto((tmp_path / "page.html").as_uri())
    last = page.locator(".reproduced thead th").last.bounding_box()
    assert last["x"] + last["width"] <= width - 16
    page.set_viewport_size({"width": 360, "height": 800})
    scroll = page.locator('.scroll[aria-label="Table 5"]')
    scroll.evaluate("node => { node.scrollLeft = node.scrollWidth }")
    name = page.locator(".reproduced tbody th").first.bounding_box()
    assert name["x"] >= scroll.bounding_box()["x"] - 1, "the names of the rows stay in view"
    page.close()


def test_figure1_has_a_line_per_row_and_a_thin_one_per_seed(figure1):
    page = draw_page([figure1])
    assert page.count("curve thin run-0") == 2 * 3  # L2 and angle
    assert len(re.findall(r'class="curve run-1"', page)) >= 2


def test_dots_stand_where_their_values_are(table5):
    drawn = draw_dots(table5.results, "sop")
    circles = [float(y) for y in re.findall(r'<circle[^>]*cy="([\d.]+)"', drawn)]
    assert len(circles) == 6
    low, high = circles[:3], circles[3:]  # nsp near 50, sop near 80: further up
    assert max(high) < min(low)
    assert high[0] - high[1] == pytest.approx(high[1] - high[2], abs=0.2)
    assert drawn.count('class="printed"') == 2
    assert draw_dots(table5.results, "nsp") is None  # one row alone compares nothing


def test_long_names_below_dots_take_two_lines():
    speeds = {row: {"speed": {0: 100.0 + len(row)}} for row in load_table("table2").rows}
    drawn = draw_dots(outcome_of("table2", speeds).results, "speed")
    words = dict(re.findall(r'<text x="[\d.]+" y="([\d.]+)"[^>]*>(albert-|xxlarge|bert-base)<', drawn))
    assert {word: float(y) for y, word in words.items()} == {"albert-": 215.0, "bert-base": 221.0, "xxlarge": 227.0}
    assert "…" not in drawn


def test_an_interval_lies_on_the_side_of_its_verdict(table5):
    verdict = next(v for v in table5.verdicts if v.answer == "holds" and v.metric == "sop")
    drawn = draw_interval(verdict)
    zero = float(re.search(r'class="zero"', drawn) and re.search(r'<line x1="([\d.]+)"[^>]*class="zero"', drawn)[1])
    start = float(re.search(r'<line x1="([\d.]+)"[^>]*class="interval', drawn)[1])
    assert start > zero
