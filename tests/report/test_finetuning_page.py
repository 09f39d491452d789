"""The page of a run: what is on it is what the files say, and no text of the data becomes markup."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser

import pytest
from toy_tasks import KINDS, make_files, tiny_config, write_rows

from litebert.errors import DataError
from litebert.finetuning.results import read_predictions, worst
from litebert.finetuning.run import finetune
from litebert.report.finetuning_page import (
    count_confusions,
    draw_confusion,
    draw_worst,
    is_finetuning,
    write_finetuning_page,
    write_run_page,
)
from litebert.tasks.metrics import show_value
from litebert.tasks.task import Task, load_task

VOID = {"meta", "br", "hr", "wbr"}


class Balanced(HTMLParser):
    """Fails where an element is closed that is not open."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_every_kind(kind, toy_model, tmp_path):
    files = make_files(tmp_path / "files", kind, train=16, dev=10)
    result = finetune(tiny_config(toy_model, files, kind, steps=4), tmp_path / "run", quiet=True)
    page = write_run_page(tmp_path / "run").read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert f"<strong>{show_value(result.scores.value, result.scores.metric)}</strong>" in page
    task = load_task(result.model)
    lines = read_predictions(tmp_path / "run" / "predictions" / "dev.jsonl")
    for line in worst(task, lines, 1):
        assert (
            html.escape(str(line["words"][0] if "words" in line else line.get("text", line.get("question"))), False)
            in page
        )
    if task.labels:
        assert "Confusion matrix" in page


def test_texts_never_become_markup(toy_model, tmp_path):
    rows = [
        {"text": f"<script>alert({i})</script> & <b>film</b>", "label": ["<i>no</i>", "yes"][i % 2]} for i in range(12)
    ]
    file = str(write_rows(tmp_path / "rows.csv", rows))
    finetune(tiny_config(toy_model, {"train": file, "dev": file}, steps=2), tmp_path / "run", quiet=True)
    page = write_run_page(tmp_path / "run").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<i>no</i>" not in page
    assert "&lt;i&gt;no&lt;/i&gt;" in page


TASK = Task("toy", "classification", labels=("neg", "pos"), metrics=("accuracy",))


def line(gold, said, badness=1.0, **more):
    return {"id": "0", "text": "t", "gold": gold, "prediction": said, "probability": 0.9, "badness": badness, **more}


def test_the_matrix_counts():
    lines = [line("neg", "neg"), line("neg", "pos"), line("neg", "pos"), line("pos", "pos")]
    assert count_confusions(TASK, lines) == {("neg", "neg"): 1, ("neg", "pos"): 2, ("pos", "pos"): 1}
    cells = re.findall(r"<td[^>]*>(\d+|·)<", str(draw_confusion(TASK, lines)))
    assert cells[:4] == ["1", "2", "·", "1"]
    shown = str(draw_confusion(TASK, lines))
    assert "33.3" in shown  # recall of neg, and precision of pos


def test_multi_label_errors_are_missed_or_made_up():
    task = Task("toy", "multi-label", labels=("a", "b"), metrics=("micro_f1",))
    lines = [line(["a", "b"], ["a"]), line([], ["b"])]
    assert count_confusions(task, lines) == {("a", "a"): 1, ("b", "(missed)"): 1, ("(made up)", "b"): 1}


def test_the_worst_come_first_and_right_ones_never():
    lines = [line("neg", "pos", 1.0, text="one"), line("neg", "pos", 3.0, text="two"), line("pos", "pos", 0.1)]
    assert [found["text"] for found in worst(TASK, lines)] == ["two", "one"]
    shown = str(draw_worst(TASK, lines))
    assert shown.index("two") < shown.index("one")
    assert "2 of 3 are wrong" in shown
    assert "all 1 predictions are correct" in str(draw_worst(TASK, lines[2:]))


def test_only_fine_tuning_folders_get_this_page(tmp_path):
    assert not is_finetuning(tmp_path)
    (tmp_path / "run.json").write_text('{"kind": "finetune"}')
    assert is_finetuning(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(DataError, match=r"summary\.json: not the summary of a study"):
        write_finetuning_page([tmp_path])


def test_the_speed_is_the_same_in_the_tile_and_under_the_chart(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "token-classification")
    config = tiny_config(toy_model, files, "token-classification", steps=1, log={"report_every": 1})
    finetune(config, tmp_path / "run", quiet=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = [
        {"step": step, "kind": "train", "loss": 1.0, "examples_per_second": 100.0 + 50 * (step % 2)}
        for step in range(1, 101)
    ]
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_run_page(tmp_path / "run").read_text(encoding="utf-8")
    (tile,) = re.findall(r"<dt>Tags per second</dt><dd>([^<]+)</dd>", page)
    (chart,) = re.findall(r'<h3 id="examples-per-second-title">Tags per second</h3><span class="now">([^<]+)<', page)
    assert tile == chart
