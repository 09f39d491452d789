"""Every run is compared with simple methods: in the terminal, on the page, in the card, in scores.json."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import random

import pytest
from rich.console import Console
from toy_tasks import make_files, tiny_config

from litebert.baselines.table import Comparison
from litebert.finetuning.baselines import describe_verdicts, next_steps, print_baselines, show_lead
from litebert.finetuning.results import Scores, read_scores
from litebert.finetuning.run import finetune
from litebert.report.finetuning_page import write_run_page
from litebert.tasks.metrics import Metric

TFIDF = "TF-IDF + logistic regression"


def write(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


@pytest.fixture
def few_labels(tmp_path):
    """Labels that single words decide, and a model that learns nothing in one step."""
    draw = random.Random(0)

    def rows(count):
        for _ in range(count):
            good = draw.random() < 0.5
            yield (
                f"the film was {draw.choice(['good', 'great'] if good else ['bad', 'poor'])}",
                "pos" if good else "neg",
            )

    header = ("text", "label")
    return {
        "train": write(tmp_path / "train.csv", [header, *rows(60)]),
        "dev": write(tmp_path / "dev.csv", [header, *rows(40)]),
    }


def test_a_model_that_loses_to_a_bag_of_words_is_told_so_everywhere(cli, toy_model, few_labels, tmp_path):
    arguments = ["finetune", "--task", "classification", "--model", toy_model, "--out", tmp_path / "run"]
    arguments += ["--train", few_labels["train"], "--dev", few_labels["dev"]]
    done = cli(*arguments, "--set", "steps=1", "--set", "optim.lr=1e-9", "--set", "device.threads=1")
    assert done.code == 0, done
    told = f"The model is behind {TFIDF}: accuracy "
    assert told in done.out
    assert "baselines, accuracy: always '" in done.out
    assert "label more examples: 60 are few" in done.out
    assert "fit only a linear head on the frozen encoder (--head-only)" in done.out
    assert "train several times and longer (--seeds, --epochs)" in done.out
    assert "start from a stronger model (--model)" in done.out
    scores = read_scores(tmp_path / "run")
    assert {each.baseline: each.verdict for each in scores.baselines}[TFIDF] == "behind"
    (sentence, verdict), *_ = describe_verdicts(scores)
    assert verdict == "behind"
    assert sentence in (tmp_path / "run" / "best" / "README.md").read_text(encoding="utf-8")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert sentence in page
    assert "What may help" in page
    # The curves have both baselines as lines.
    levels = json.loads((tmp_path / "run" / "baselines.json").read_text())["accuracy"]
    assert levels[TFIDF] == 1.0
    assert len(levels) == 2


def test_a_regression_model_worse_than_the_mean_is_told_so(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "regression", train=40, dev=30)
    config = tiny_config(toy_model, files, "regression", steps=1, optim={"lr": 1e-9})  # says about 0, the mean is 2.6
    result = finetune(config, tmp_path / "run", quiet=True)
    out = io.StringIO()
    print_baselines(result.scores, Console(file=out, width=200), 40)
    by_metric = {(each.metric, each.baseline[:11]): each.verdict for each in result.scores.baselines}
    assert by_metric["rmse", "always the "] == "behind"
    assert "behind" in out.getvalue()
    assert "rmse" in out.getvalue()
    page = write_run_page(tmp_path / "run").read_text(encoding="utf-8")
    assert "always the mean" in page


def test_without_labels_on_dev_nothing_is_compared(toy_model, few_labels, tmp_path):
    few_labels.pop("dev")
    result = finetune(tiny_config(toy_model, few_labels, steps=1), tmp_path / "run", quiet=True)
    assert result.scores.baselines == ()
    assert not (tmp_path / "run" / "baselines.json").exists()


def test_words_and_advice():
    lead = Comparison("TF-IDF", "", "accuracy", Metric(0.68, 0.65, 0.71), Metric(-0.027, -0.054, -0.001))
    scores = Scores("accuracy", 10, {"dev": {"accuracy": Metric(0.653, 0.62, 0.68)}}, baselines=(lead,))
    assert show_lead(lead) == "-2.7 (-5.4 to -0.1)"
    assert describe_verdicts(scores) == [
        ("The model is behind TF-IDF: accuracy 65.3 against 68.0, a difference of -2.7 (-5.4 to -0.1).", "behind")
    ]
    error = Comparison("always the mean, 2.70", "", "rmse", Metric(1.3), Metric(0.21, 0.1, 0.3))
    assert show_lead(error) == "+0.210 (+0.100 to +0.300)"
    assert error.verdict == "behind"
    assert any("600 are few" in step for step in next_steps(600, head_only=False))
    assert any("(head_only)" in step for step in next_steps(600, head_only=False))
    assert not any("are few" in step for step in next_steps(60_000, head_only=False))
    assert any("instead of only a head (without head_only)" in step for step in next_steps(600, head_only=True))
    for task, linear in (("sst-2", True), ("regression", True), ("squad-1.1", False), ("similarity", False)):
        assert any("(head_only)" in step for step in next_steps(600, head_only=False, task=task)) == linear
    out = io.StringIO()
    print_baselines(scores, Console(file=out, width=200), 600)
    assert "What may help" in out.getvalue()
    perfect = Scores(
        "accuracy",
        10,
        {"dev": {"accuracy": Metric(1.0)}},
        baselines=(dataclasses.replace(lead, lead=Metric(0.0, 0.0, 0.0)),),
    )
    out = io.StringIO()
    print_baselines(perfect, Console(file=out, width=200), 600)
    assert "level with TF-IDF" in out.getvalue()
    assert "What may help" not in out.getvalue()


def test_scores_keep_their_baselines(tmp_path):
    old = {"metric": "accuracy", "step": 3, "splits": {"dev": {"accuracy": Metric(0.5).as_dict()}}}
    (tmp_path / "scores.json").write_text(json.dumps(old))
    assert read_scores(tmp_path).baselines == ()  # a run from before there were any
