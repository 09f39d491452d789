"""Several fine-tuning runs on one page: by task, with intervals, from the command line and in a real browser."""

from __future__ import annotations

import json
import re

import pytest
from toy_tasks import make_files, tiny_config

from litebert.finetuning.results import Scores, write_scores
from litebert.finetuning.run import finetune
from litebert.finetuning.study import run_study
from litebert.report.runs import read_runs
from litebert.report.studies import draw_groups, group_runs
from litebert.tasks.metrics import Metric, show_interval, show_value


def write_run(folder, task="sst-2", scores=None, lr=1e-5, data=None, **facts):
    """A run folder without a model, which the page does not need."""
    folder.mkdir(parents=True)
    facts = {"kind": "finetune", "metric": "accuracy", "completed": True, **facts}
    (folder / "run.json").write_text(json.dumps(facts))
    config = {"task": task, "optim": {"lr": lr}, "data": data or {"folder": "glue"}}
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    lines = [{"step": 10 * i, "kind": "train", "loss": 1 / i, "seconds": 2.0 * i, "tokens": i} for i in (1, 2, 3)]
    lines += [{"step": 30, "kind": "eval", name: metric.value} for name, metric in (scores or {}).items()]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if scores:
        write_scores(folder, Scores(next(iter(scores)), 20, {"dev": scores}))
    return folder


def cells(page):
    """The table rows of a page's scores as text."""
    (part,) = re.findall(r'<h2 class="section-title">Scores</h2>(.*?)</section>', page, re.DOTALL)
    rows = re.findall(r"<tr.*?</tr>", part)
    return [[re.sub("<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_real_runs_of_different_tasks(cli, toy_model, tmp_path):
    results = {}
    for name, kind, seed in (("a", "classification", 0), ("b", "classification", 1), ("r", "regression", 0)):
        files = make_files(tmp_path / "files" / kind, kind)
        config = tiny_config(toy_model, files, kind, steps=2, seed=seed)
        results[name] = finetune(config, tmp_path / name, quiet=True).scores
    said = cli("report", *(tmp_path / name for name in results), "--out", tmp_path / "page.html")
    assert said.code == 0, said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    rows = {row[0]: row for row in cells(page) if row[0] in results}
    for name, scores in results.items():
        shown = [
            f"{show_value(metric.value, key)} {show_interval(metric, key)}"
            for key, metric in scores.splits["dev"].items()
        ]
        assert [cell.removeprefix("★") for cell in rows[name][1 : 1 + len(shown)]] == shown
        deciding = scores.deciding
        line = next(line for line in said.out.splitlines() if line.startswith(f"{name} "))
        assert f"{show_value(deciding.value)} {show_interval(deciding)}" in line
    titles = re.findall(r'class="group"><h3>(.*?)</h3>', page)
    assert titles == ["classification on classification/dev.csv", "regression on regression/dev.csv"]
    assert '<h3 id="accuracy-title">Accuracy on dev</h3>' in page
    assert '<h3 id="pearson-title">Pearson on dev</h3>' in page
    assert "always the mean" in page
    assert not re.search(r"always the mean[^<]*%<", re.search(r'data-chart="rmse".*?</figure>', page, re.S)[0])


def test_a_study_stands_for_its_runs(cli, toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification")
    run_study(tiny_config(toy_model, files, steps=2), tmp_path / "study", seeds=2, quiet=True)
    finetune(tiny_config(toy_model, files, steps=2, seed=7), tmp_path / "alone", quiet=True)
    said = cli("report", tmp_path / "study", tmp_path / "alone", "--out", tmp_path / "page.html")
    assert said.code == 0, said
    rows = [row[0] for row in cells((tmp_path / "page.html").read_text(encoding="utf-8"))]
    assert {"lr-0.01-seed-0", "lr-0.01-seed-1", "alone"} <= set(rows)


def test_what_can_be_compared_stands_together(tmp_path):
    own = [{"dev": "x/dev.csv"}, {"dev": "x/dev.csv", "train": "more.csv"}, {"dev": "y/dev.csv"}]
    folders = [write_run(tmp_path / f"own{i}", "classification", data=data) for i, data in enumerate(own)]
    public = [{"folder": "a/SST-2"}, {"folder": "b/SST-2"}, {"folder": "a/SST-2", "limit": 100}]
    folders += [write_run(tmp_path / f"sst{i}", data=data) for i, data in enumerate(public)]
    found = [(group.title, list(group.runs)) for group in group_runs(read_runs(folders))]
    assert found == [
        ("classification on x/dev.csv", [0, 1]),
        ("classification on y/dev.csv", [2]),
        ("sst-2", [3, 4]),
        ("sst-2, 100 examples", [5]),
    ]


def test_the_best_of_a_score_is_the_highest_and_of_an_error_the_least(tmp_path):
    for name, value in (("a", 0.9), ("b", 0.4)):
        scores = {metric: Metric(value, value - 0.1, value + 0.1) for metric in ("pearson", "rmse")}
        write_run(tmp_path / name, "sts-b", scores)
    write_run(tmp_path / "unscored", "sts-b", completed=False)
    (group,) = group_runs(read_runs([tmp_path / name for name in ("a", "b", "unscored")]))
    rows = cells(f'<h2 class="section-title">Scores</h2>{"".join(draw_groups([group]))}</section>')
    assert rows == [
        ["Run", "Pearson", "Error (RMSE)", "Chosen step", "Time"],
        ["a", "★90.0 80.0 – 100.0", "0.900 0.800 – 1.000", "20", "6.0 s"],
        ["b", "40.0 30.0 – 50.0", "★0.400 0.300 – 0.500", "20", "6.0 s"],
        ["unscored unfinished", "–", "–", "–", "6.0 s"],
    ]


def test_what_has_no_score_in_common_is_refused(cli, tmp_path):
    tuned = write_run(tmp_path / "tuned")
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "loss": 1.0}\n')
    result = cli("report", tuned, other, "--out", tmp_path / "page.html")
    assert result.code == 2
    assert "tuned: a fine-tuning run among pretraining runs" in result.err
    assert "no such folder" in cli("report", tuned, tmp_path / "nowhere").err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(browser, cli, tmp_path, scheme):
    for name, value in (("first", 0.9), ("second", 0.7)):
        write_run(tmp_path / name, scores={"accuracy": Metric(value, value - 0.05, value + 0.05)}, lr=value)
    assert cli("report", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "page.html").code == 0
    page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
    troubles, requests = [], []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda sent: requests.append(sent.url))
    page.goto((tmp_path / "page.html").as_uri())
    curve = page.locator('[data-chart="loss"] .curve.run-1').first
    assert curve.is_visible()
    page.get_by_role("button", name="second", exact=True).click()
    assert not curve.is_visible()
    best = page.locator(".group td.best")
    assert best.inner_text().split() == ["★90.0", "85.0", "–", "95.0"]
    styles = page.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    ink, paper = (sum(map(int, re.findall(r"\d+", style))) for style in styles)
    assert (ink > paper) == (scheme == "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390  # tables scroll in themselves
    assert troubles == []
    assert len(requests) == 1
    page.close()
