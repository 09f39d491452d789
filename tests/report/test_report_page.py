"""The page: whole, valid, escaped, self-contained, and true to the metrics."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from synthetic_runs import write_run

from litebert.errors import DataError
from litebert.report import write_report
from litebert.report.figures import LEFT, RIGHT, SIZES, TOP
from litebert.report.html import VOID, Markup, element, inline_json, join
from litebert.report.pretraining_page import draw_page, rank_of
from litebert.report.provenance import differences, flatten, show_setting
from litebert.report.runs import Guess, MetricLog, TrainingRun, read_run, read_runs

CHARTS = {
    "loss",
    "mlm-accuracy",
    "sentence-accuracy",
    "mlm-loss",
    "sentence-loss",
    "learning-rate",
    "gradient-norm",
    "tokens-per-second",
}
HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"' &amp; \u2028"


class Page(HTMLParser):
    """Checks that tags nest, and gathers what the tests ask about."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.chart: str | None = None
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice"
        self.chart = dict(attrs).get("data-chart", self.chart)
        self.elements.append((tag, {**dict(attrs), "in-chart": self.chart}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]

    def text(self, *tags: str) -> str:
        return " ".join(data for tag, data in self.texts if not tags or tag in tags)

    @property
    def data(self):
        return json.loads(next(data for tag, data in self.texts if tag == "script"))

    @property
    def charts(self) -> set[str | None]:
        return {attributes["data-chart"] for attributes in self.all("figure")}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [
        write_run(root / "first", lines=200),
        write_run(root / "second", lines=150, seed=1, lr=1e-3, skill=0.7),
        write_run(root / "third", lines=100, seed=2, skill=0.5, objective="none", depths=((1.0, 4),), completed=False),
    ]


@pytest.fixture(scope="module")
def one(folders):
    return Page(draw_page(read_runs(folders[:1])))


@pytest.fixture(scope="module")
def several(folders):
    return Page(draw_page(read_runs(folders)))


def test_every_chart_is_there_and_named(one, several):
    for page in (one, several):
        assert page.charts == CHARTS
        assert set(page.data["charts"]) == CHARTS
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        for svg in page.all("svg", role="img"):
            assert set(svg["aria-labelledby"].split()) <= set(ids)
        assert len(page.all("details", class_="alternative")) == len(CHARTS)


def test_the_headline_is_the_last_held_out_score(folders, one):
    lines = [json.loads(line) for line in (folders[0] / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "eval"][-1]
    assert one.text("strong").split() == [f"{100 * last[f'{name}_accuracy']:.1f}%" for name in ("mlm", "sentence")]
    text = one.text()
    for expected in ("trigram", "31.2%", "connectives", "62.3%", "1,264,130", "in 2,000 steps", "completed", "ALBERT"):
        assert expected in text


def test_nothing_is_loaded_and_only_our_script_may_run(one):
    for _, attributes in one.elements:
        assert not {"src", "href", "srcset", "onload", "onclick"} & set(attributes)
    policy = one.all("meta", http_equiv="Content-Security-Policy")[0]["content"]
    script = [data for tag, data in one.texts if tag == "script"][-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert "url(" not in one.text("style")
    assert "@import" not in one.text("style")
    assert "http" not in script.replace("http-equiv", "")
    assert "innerHTML" not in script


def test_curves_stand_where_the_metrics_say(folders, one):
    """From the drawn path back to the values, with the axis read off the labels."""
    chart = one.data["charts"]["mlm-accuracy"]
    number = next(i for i, curve in enumerate(chart["curves"]) if curve["role"] == "held-out")
    path = one.all("path", in_chart="mlm-accuracy", data_curve=str(number), class_="curve held-out run-0")[0]["d"]
    points = np.array(path.removeprefix("M").split(), dtype=float).reshape(-1, 2)
    lines = [json.loads(line) for line in (folders[0] / "metrics.jsonl").read_text().splitlines()]
    expected = [(line["step"], line["mlm_accuracy"]) for line in lines if line["kind"] == "eval"]
    size = SIZES[2]
    width, height = size.width - LEFT - RIGHT, size.height - TOP - 24
    low, high = chart["linear"]
    steps = points[:, 0] / width * 2000
    values = low + (1 - points[:, 1] / height) * (high - low)
    assert steps == pytest.approx(np.array([step for step, _ in expected]), abs=5)
    assert values == pytest.approx(np.array([value for _, value in expected]), abs=0.002)


def test_the_data_for_the_script_fits_the_drawing(several):
    charts = several.data["charts"].values()
    assert sum(len(chart["curves"]) for chart in charts) > 0
    for chart in charts:
        for curve in chart["curves"]:
            assert len(curve["x"]) == len(curve["y"]) > 0
            assert 0 <= curve["run"] < 3
    runs = several.data["runs"]
    assert [run["name"] for run in runs] == ["first", "second", "third"]
    for run in runs:
        for steps, values in run["clocks"].values():
            assert (np.diff(steps) > 0).all()
            assert (np.diff(values) >= 0).all()


def test_stages_are_bands_for_one_run_and_a_strip_for_several(one, several):
    assert len(one.all("rect", class_="band")) == 2 * len(CHARTS)  # every other one of four stages
    labels = [text for tag, text in one.texts if tag == "text"]
    assert {"depth 1 · length 64", "depth 2", "depth 4", "length 128"} <= set(labels)
    assert not several.all("rect", class_="band")
    assert [len(several.all("rect", class_=f"strip run-{run}")) for run in range(3)] == [4, 4, 2]


def test_events_are_marked_and_listed(one):
    assert len(one.all("path", class_="mark skip")) == len(CHARTS)
    assert len(one.all("path", class_="mark resume")) == len(CHARTS)
    assert "step 820: loss nan at step 820: step skipped" in one.text("title")
    assert "depth 2, length 64" in one.text("td")
    # The legend has a triangle of each colour that is drawn.
    drawn = {a["class"].split()[1] for a in one.all("path") if (a.get("class") or "").startswith("mark ")}
    keys = {a["class"].split()[2] for a in one.all("i") if (a.get("class") or "").startswith("key event ")}
    assert keys == drawn == {"skip", "resume"}
    style = files("litebert.report").joinpath("page.css").read_text(encoding="utf-8")
    for kind in ("skip", "rollback", "resume"):
        assert f".mark.{kind}, .key.{kind} {{ color:" in style


def test_many_events_do_not_fill_the_page(tmp_path):
    events = [(share, f"loss nan {number}: step skipped") for number, share in enumerate(np.linspace(0.01, 1, 3000))]
    page = Page(draw_page([read_run(write_run(tmp_path / "run", lines=100, events=events))]))
    assert 0 < len(page.all("path", class_="mark skip")) <= 60 * len(CHARTS)
    assert "2,802 earlier events" in page.text("p")  # 3,000 and two stages, of which 200 are shown


def test_several_runs_are_compared(several):
    text = several.text()
    assert "3 runs compared" in text
    assert text.count("★") == 4 + 1  # masked words, sentence, loss, tokens/s, and what the sign means
    assert [a["data-toggle"] for a in several.all("button") if "data-toggle" in a] == ["0", "1", "2"]
    dashes = {a.get("stroke-dasharray") for a in several.all("path") if "curve train" in (a["class"] or "")}
    assert len(dashes) == 3
    assert len(several.all("tr", class_="differs")) == 5  # lr, steps, depth, seed, objective
    assert "unfinished" in text
    for name in ("unigram", "trigram", "connectives", "chance"):
        assert name in text


def test_levels_that_differ_between_runs_carry_their_names(tmp_path):
    folders = [write_run(tmp_path / name, lines=30) for name in ("a", "b")]
    (folders[1] / "baselines.json").write_text('{"mlm": {"unigram": 0.2, "trigram": 0.312}}')
    page = Page(draw_page(read_runs(folders)))
    levels = [text for tag, text in page.texts if tag == "text" and "gram" in text]
    assert levels == ["trigram 31.2%", "unigram (b) 20.0%", "unigram (a) 8.1%"]


def test_a_level_reads_the_same_in_card_and_chart(tmp_path):
    folder = write_run(tmp_path / "run", lines=20)
    (folder / "baselines.json").write_text('{"mlm": {"unigram": 0.088542}}')  # rounded twice, it would be 8.8 %
    text = draw_page([read_run(folder)])
    assert "unigram 8.9%" in text
    assert "8.8%" not in text


def test_names_of_levels_do_not_overlap(tmp_path):
    folder = write_run(tmp_path / "run", lines=30)
    (folder / "baselines.json").write_text('{"mlm": {"a": 0.300, "b": 0.301, "c": 0.302}}')
    page = Page(draw_page([read_run(folder)]))
    heights = sorted(float(a["y"]) for a in page.all("text", class_="level-name"))
    assert len(heights) == 3
    assert min(np.diff(heights)) >= 12


def test_without_a_sentence_objective(folders):
    page = Page(draw_page([read_run(folders[2])]))
    assert page.charts == CHARTS - {"sentence-accuracy", "sentence-loss", "mlm-loss"}
    assert "masked words only" in page.text()
    assert "Sentence" not in page.text("h2", "h3")


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_run_that_has_hardly_begun(tmp_path, lines):
    folder = write_run(tmp_path / "run", lines=lines, events=())
    page = Page(draw_page([read_run(folder)]))
    assert page.charts == (CHARTS if lines else set())
    assert ("No curves yet" in page.text("p")) == (lines == 0)
    # One or two reports are no line to see, so their points are drawn.
    dots = page.all("path", class_="curve train run-0 dots")
    assert bool(dots) == (lines in (1, 2))


def test_every_optional_piece_may_be_missing(tmp_path):
    folder = write_run(tmp_path / "run", lines=20, samples=False, baselines=False)
    titles = {"config.yaml": "Config", "run.json": "completed"}
    for name, title in titles.items():
        assert title in Page(draw_page([read_run(folder)])).text("h2", "span")
        (folder / name).unlink()
        assert title not in Page(draw_page([read_run(folder)])).text("h2", "span")
    assert "Filled masks" not in Page(draw_page([read_run(folder)])).text("h2")
    keep = ("step", "kind", "loss")  # the fewest fields that make a curve
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    short = [{key: line[key] for key in keep if key in line} for line in lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in short))
    page = Page(draw_page([read_run(folder)]))
    assert page.charts == {"loss"}
    assert list(page.data["axes"]) == ["step"]


def test_filled_masks(one, folders):
    marks = [attributes.get("class") for attributes in one.all("mark")]
    assert marks == ["right", "near", "right", "right", "wrong", "right", "near"]
    assert "bread" in one.text("mark")
    assert "The first guess is correct for 4 of 7 masked words; 6 are among the guesses shown." in one.text("p")
    samples = json.loads((folders[0] / "samples.json").read_text())
    probabilities = [guess["probability"] for sample in samples for mask in sample["guesses"] for guess in mask]
    bars = [a["style"] for a in one.all("span") if a.get("style")]
    assert bars[-len(probabilities) :] == [f"--share: {100 * p:.1f}%" for p in probabilities]
    assert [rank_of("b", [Guess("a", 0.6), Guess(" b", 0.3)]), rank_of("c", [Guess("a", 0.6)])] == [2, None]


def test_a_text_with_more_masks_than_answers(tmp_path):
    folder = write_run(tmp_path / "run", lines=5)
    sample = {"text": "[MASK] and [MASK]", "answers": ["this"], "guesses": []}
    (folder / "samples.json").write_text(json.dumps([sample]))
    page = Page(draw_page([read_run(folder)]))
    assert page.text("mark") == "this [MASK]"


def test_hostile_texts_stay_text(tmp_path):
    name = "<script>alert(2)<" + "\u0041"
    folder = write_run(tmp_path / name, lines=30, events=[(0.5, HOSTILE)])
    write_run(tmp_path / "other", lines=30)
    guess = [[{"token": HOSTILE, "probability": 0.5}]]
    (folder / "samples.json").write_text(
        json.dumps([{"text": f"{HOSTILE} [MASK]", "answers": [HOSTILE], "guesses": guess}])
    )
    (folder / "baselines.json").write_text(json.dumps({"mlm": {HOSTILE: 0.1}}))
    (folder / "config.yaml").write_text(json.dumps({HOSTILE: HOSTILE, "model": {HOSTILE: [HOSTILE]}}))
    facts = {"command": HOSTILE, "objective": HOSTILE, "started": HOSTILE, "hardware": {"name": HOSTILE, HOSTILE: 1}}
    (folder / "run.json").write_text(json.dumps(facts))
    for folders in ([folder], [folder, tmp_path / "other"]):
        page = Page(draw_page(read_runs(folders)))
        assert len(page.all("script")) == 2
        assert not page.all("img")
        assert page.data["runs"][0]["name"] == name
        assert page.text().count("alert('x')") > 8
    for tag, attributes in page.elements:
        assert not any(key.startswith("on") for key in attributes), tag


def test_inline_json_cannot_end_its_script():
    text = inline_json({"a": HOSTILE})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": HOSTILE}
    with pytest.raises(ValueError, match="JSON"):
        inline_json(float("nan"))


def test_elements_escape_everything_but_markup():
    assert element("p", "1 < 2 & 3", class_='a"b') == '<p class="a&quot;b">1 &lt; 2 &amp; 3</p>'
    assert element("p", Markup("<b>x</b>"), None, ["y", ["z"]]) == "<p><b>x</b>yz</p>"
    assert element("td", hidden=True, title=None, data_x=3) == '<td hidden data-x="3"></td>'
    assert element("meta", name="a") == '<meta name="a">'
    assert join("<", Markup("<")) == "&lt;<"


def test_settings():
    config = {
        "optim": {"lr": 1e-3, "betas": [0.9, 0.999]},
        "depth": [{"until": 0.5, "value": 3}, {"until": 1.0, "value": 6}],
    }
    assert dict(flatten(config)) == {
        "optim.lr": "0.001",
        "optim.betas": "0.9, 0.999",
        "depth": "3 until 50%, 6 to the end",
    }
    assert [show_setting(v) for v in (None, True, 1_000_000, [], {}, "x")] == [
        "null",
        "true",
        "1,000,000",
        "none",
        "none",
        "x",
    ]


def test_only_differing_settings_count(folders):
    runs = read_runs(folders)
    assert differences(runs[:1]) == {}
    found = differences(runs[:2])
    assert set(found) == {"optim.lr", "steps", "seed"}
    assert found["optim.lr"] == ["0.002", "0.001"]


def test_a_million_lines_make_a_small_page():
    length = 1_000_000
    random = np.random.default_rng(0)
    steps = np.arange(1, length + 1, dtype=float)
    names = ("loss", "mlm_loss", "mlm_accuracy", "sentence_loss", "sentence_accuracy", "lr", "gradient_norm")
    columns = {name: random.random(length) for name in (*names, "tokens_per_second")}
    columns |= {"tokens": steps * 4096, "seconds": steps * 0.1, "depth": np.repeat([3.0, 12.0], length // 2)}
    run = TrainingRun(
        "folder", "long", MetricLog(steps, columns), MetricLog(steps[::1000], {"mlm_accuracy": random.random(1000)})
    )
    text = draw_page([run])
    assert len(text.encode()) < 2_000_000
    curves = [curve for chart in Page(text).data["charts"].values() for curve in chart["curves"]]
    assert len(curves) == 16  # of eight charts: seven with all reports, one with held-out scores
    assert max(len(curve["x"]) for curve in curves) <= 1500
    assert max(curve["x"][-1] for curve in curves) == length


def test_many_runs_make_a_small_page():
    steps = np.arange(1, 2001, dtype=float)
    random = np.random.default_rng(0)
    names = ("loss", "mlm_loss", "mlm_accuracy", "sentence_loss", "sentence_accuracy", "lr", "gradient_norm", "tokens")
    empty = MetricLog(np.empty(0), {})
    runs = [
        TrainingRun("f", f"run {i}", MetricLog(steps, {n: random.random(2000) for n in names}), empty)
        for i in range(12)
    ]
    text = draw_page(runs)
    assert len(text.encode()) < 2_000_000
    pairs = {
        (a["class"], a.get("stroke-dasharray")) for a in Page(text).all("path") if "curve train" in (a["class"] or "")
    }
    assert len(pairs) == 12


def test_writing(tmp_path, folders):
    page = write_report(folders[:1], tmp_path / "new" / "page.html")
    assert page == tmp_path / "new" / "page.html"
    text = page.read_text(encoding="utf-8")
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert re.search(r"<title>first · litebert report</title>", text)
    with pytest.raises(DataError, match=r"is a folder; name a file, for example .*report\.html"):
        write_report(folders[:1], tmp_path)
    assert write_report(str(folders[0]), tmp_path / "one.html").read_text(encoding="utf-8").count("<title>first ") == 1
