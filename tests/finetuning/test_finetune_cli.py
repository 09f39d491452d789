"""The commands: every kind of task from files to a scored model, seeds and sweeps, ensembles, and mistakes."""

from __future__ import annotations

import json
import shutil

import pytest
from toy_tasks import make_files, make_model, rows_of, tiny_config, write_rows

from litebert.config import read_yaml
from litebert.finetuning.config import describe_length, finetune_config
from litebert.finetuning.data import open_tokenizer, read_data, unknown_share
from litebert.finetuning.results import read_scores
from litebert.model.config import load_config

SETTINGS = ("batch=8", "steps=6", "max_length=40", "optim.lr=0.01", "log.evaluate_every=3", "device.threads=1")
# kind, seed of the files (an odd one has questions without an answer), files that servers take
KINDS = {
    "classification": ("classification", 0, ["classification-test.tsv"]),
    "regression": ("regression", 0, ["regression-test.tsv"]),
    "multi-label": ("multi-label", 0, ["multi-label-test.tsv"]),
    "token-classification": ("token-classification", 0, ["token-classification-test.tsv"]),
    "multiple-choice": ("multiple-choice", 0, ["multiple-choice-test.json"]),
    "question-answering": ("question-answering", 0, ["question-answering-test-predictions.json"]),
    "no-answer": ("question-answering", 1, ["question-answering-test-null-odds.json"]),
}


def command(kind, files, model, out, *more):
    arguments = ["finetune", "--task", kind, "--model", model, "--out", out]
    for split, path in files.items():
        arguments += [f"--{split}", path]
    for setting in SETTINGS:
        arguments += ["--set", setting]
    return [*arguments, *more]


@pytest.mark.parametrize("case", KINDS)
def test_every_kind_from_files_to_scores(cli, toy_model, tmp_path, case):
    kind, seed, submissions = KINDS[case]
    files = make_files(tmp_path / "files", kind, seed=seed)
    done = cli(*command(kind, files, toy_model, tmp_path / "run"))
    assert done.code == 0, done
    scores = read_scores(tmp_path / "run")
    assert list(scores.splits) == ["dev", "test"]
    assert f"model:  {tmp_path / 'run' / 'best'}" in done.out
    assert (tmp_path / "run" / "report.html").is_file()
    written = {path.name for path in (tmp_path / "run" / "predictions").iterdir()}
    assert {"dev.jsonl", "test.jsonl", *submissions} <= written

    # The saved model scores the same when it is opened again.
    again = cli("evaluate", tmp_path / "run" / "best", "--data", files["dev"], "--json", "--threads", "1")
    assert again.code == 0, again
    (row,) = json.loads(again.out)
    assert {name: metric["value"] for name, metric in row["scores"].items()} == pytest.approx(
        {name: metric.value for name, metric in scores.splits["dev"].items()}, abs=1e-6
    )
    assert row["examples"] == 12
    assert ("thresholds" in row) == (scores.threshold is not None) == (case == "no-answer")


def test_scores_at_the_fixed_and_at_the_saved_threshold_are_told_apart(cli, toy_model, tmp_path):
    files = make_files(tmp_path / "files", "question-answering", seed=1)
    done = cli(*command("question-answering", files, toy_model, tmp_path / "run"))
    assert done.code == 0, done
    task_file = tmp_path / "run" / "best" / "task.json"
    task, written = json.loads(task_file.read_text()), json.loads((tmp_path / "run" / "scores.json").read_text())
    assert written["threshold"] == task["null_threshold"] != 0
    assert f"tuned_ scores use the no-answer threshold {written['threshold']:.4g}" in done.out
    for split, names in written["splits"].items():
        assert {"f1", "tuned_f1", "best_f1", "exact_match", "tuned_exact_match"} <= names.keys(), split
        assert names["f1"]["value"] <= names["best_f1"]["value"]
    assert written["splits"]["dev"]["tuned_f1"] == written["splits"]["dev"]["best_f1"]

    # Silence on every question: only what has no answer is right then, and only at the saved threshold.
    task_file.write_text(json.dumps({**task, "null_threshold": -1000.0}))
    evaluate = ["evaluate", tmp_path / "run" / "best", "--data", files["dev"], "--threads", "1"]
    (row,) = json.loads(cli(*evaluate, "--json").out)
    assert row["thresholds"]["fixed"] == 0
    assert row["thresholds"]["tuned"] == -1000
    assert row["thresholds"]["best"] == pytest.approx(written["threshold"], abs=1e-5)
    assert row["scores"]["tuned_f1"]["value"] == pytest.approx(4 / 12)  # every third of the toy questions
    assert row["scores"]["f1"]["value"] == pytest.approx(written["splits"]["dev"]["f1"]["value"])
    shown = cli(*evaluate)
    assert "use the fixed no-answer threshold 0" in shown.out
    assert "tuned_ uses -1000, saved with the model" in shown.out


def test_the_readmes_commands_for_ones_own_labels(cli, toy_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, path in make_files(tmp_path, "classification", train=16, dev=8).items():
        assert path == str(tmp_path / f"{name}.csv")
    files = ["--train", "train.csv", "--dev", "dev.csv"]
    settings = [argument for setting in SETTINGS for argument in ("--set", setting)]
    tuned = cli(
        *["finetune", "--task", "classification", *files, "--model", toy_model, "--out", "mine"],
        *["--seeds", "3", *settings],
    )
    assert tuned.code == 0, tuned
    assert "median" in tuned.out
    assert "always '" in tuned.out
    assert "predictions:" not in tuned.out
    assert "unknown to the model's vocabulary" not in tuned.out
    scored = cli("evaluate", "mine/best", "--data", "test.csv")
    assert scored.code == 0, scored
    assert "95 % interval" in scored.out
    assert scored.err.strip() == "test.csv: text = 'text', label = 'label'"
    table = cli("baseline", "--task", "classification", *files, "--model", "mine")
    assert table.code == 0, table
    rows = [line.split()[0] for line in table.out.split("\n\n")[0].splitlines()]
    assert rows[:3] == ["method", "majority", "bow"]
    assert rows[-1] == "mine"
    assert "the median of 3 seeds" in table.out


def test_seeds_and_rates_in_one_command_that_skips_what_is_done(cli, toy_model, tmp_path, monkeypatch):
    files = make_files(tmp_path / "files", "classification")
    sweep = command("classification", files, toy_model, tmp_path / "study", "--lr", "1e-2,1e-3")
    first = cli(*sweep, "--seeds", "1")
    assert first.code == 0, first
    changed = (tmp_path / "study" / "lr-0.01-seed-0" / "scores.json").stat().st_mtime_ns
    done = cli(*sweep, "--seeds", "2")
    assert done.code == 0, done
    assert (tmp_path / "study" / "lr-0.01-seed-0" / "scores.json").stat().st_mtime_ns == changed
    summary = json.loads((tmp_path / "study" / "summary.json").read_text())
    assert [run["name"] for run in summary["runs"]] == [
        "lr-0.01-seed-0",
        "lr-0.01-seed-1",
        "lr-0.001-seed-0",
        "lr-0.001-seed-1",
    ]
    by_lr = {}
    for run in summary["runs"]:
        by_lr.setdefault(run["lr"], []).append(run["splits"]["dev"]["accuracy"]["value"])
    for setting in summary["settings"]:
        assert setting["median"] == pytest.approx(sum(by_lr[setting["lr"]]) / 2)
        assert (setting["min"], setting["max"]) == (min(by_lr[setting["lr"]]), max(by_lr[setting["lr"]]))
    assert summary["completed"]
    assert "median" in done.out
    assert f"predictions: {tmp_path / 'study' / summary['best'] / 'predictions'}" in done.out
    best = tmp_path / "study" / "best" / "model.safetensors"
    assert best.read_bytes() == (tmp_path / "study" / summary["best"] / "best" / "model.safetensors").read_bytes()
    page = cli("report", tmp_path / "study", "--out", tmp_path / "page.html")
    assert page.code == 0, page
    assert "lr-0.001-seed-1" in (tmp_path / "page.html").read_text()

    # Beside another folder a study stands for its runs, each once.
    both = (tmp_path / "study", tmp_path / "study" / "lr-0.01-seed-0")
    compared = cli("report", *both, "--out", tmp_path / "compared.html")
    assert compared.code == 0, compared
    assert "4 runs compared" in (tmp_path / "compared.html").read_text(encoding="utf-8")

    # And the models of a study as an ensemble.
    models = [tmp_path / "study" / run["name"] / "best" for run in summary["runs"][:2]]
    together = cli(
        "evaluate", *models, "--data", files["test"], "--predictions", tmp_path / "said", "--json", "--threads", "1"
    )
    assert together.code == 0, together
    rows = json.loads(together.out)
    assert [row["model"] for row in rows] == [*map(str, models), "ensemble"]
    lines = [json.loads(line) for line in (tmp_path / "said" / "test.jsonl").read_text().splitlines()]
    right = sum(line["prediction"] == line["gold"] for line in lines) / len(lines)
    assert rows[-1]["scores"]["accuracy"]["value"] == pytest.approx(right)
    assert (tmp_path / "said" / "classification-test.tsv").is_file()


def test_an_official_folder_with_a_table_14_preset(cli, toy_model, tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    labels = {"pos": "1", "neg": "0"}
    for name, seed in (("train", 0), ("dev", 2)):
        rows = rows_of("classification", 16, seed)
        body = "".join(f"{row['text']} \t{labels[row['label']]}\n" for row in rows)
        (folder / f"{name}.tsv").write_text("sentence\tlabel\n" + body, encoding="utf-8")
    (folder / "test.tsv").write_text("index\tsentence\n0\ta good film\n1\ta dull plot\n", encoding="utf-8")
    arguments = ["finetune", "--task", "sst-2", "--data", folder, "--model", toy_model, "--preset", "v2"]
    settings = ["--set", "steps=4", "--set", "optim.warmup_steps=1", "--set", "device.threads=1"]
    done = cli(*arguments, *settings, "--out", tmp_path / "run")
    assert done.code == 0, done
    assert "preset v2: lr 1e-05, batch 32, 4 steps" in done.out
    assert read_scores(tmp_path / "run").metric == "accuracy"
    assert not (tmp_path / "run" / "predictions" / "SST-2.tsv").exists()
    asked = cli(*arguments, *settings, "--out", tmp_path / "asked", "--predict-test")
    assert asked.code == 0, asked
    submission = (tmp_path / "asked" / "predictions" / "SST-2.tsv").read_text().splitlines()
    assert submission[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in submission[1:]] == ["0", "1"]
    scored = cli("evaluate", tmp_path / "run" / "best", "--task", "sst-2", "--data", folder, "--threads", "1")
    assert scored.code == 0, scored
    assert "accuracy" in scored.out


def test_a_task_with_two_dev_sets_chooses_by_the_first(cli, toy_model, tmp_path):
    folder = tmp_path / "MNLI"
    folder.mkdir()
    labels = ("contradiction", "entailment", "neutral")
    for name in ("train", "dev_matched", "dev_mismatched"):
        rows = "".join(f"a good film\ta {w} film\t{labels[i % 3]}\n" for i, w in enumerate(["bad", "fine", "poor"] * 4))
        (folder / f"{name}.tsv").write_text("sentence1\tsentence2\tgold_label\n" + rows, encoding="utf-8")
    settings = [argument for setting in SETTINGS for argument in ("--set", setting)]
    arguments = ["finetune", "--task", "mnli", "--data", folder, "--model", toy_model, "--out", tmp_path / "run"]
    done = cli(*arguments, *settings)
    assert done.code == 0, done
    first, second = read_scores(tmp_path / "run").splits
    assert "mismatched" in second
    assert "mismatched" not in first
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"Accuracy on {second}" in page

    # Three labels there, two here: the encoder goes on, the head begins anew.
    files = make_files(tmp_path / "files", "classification")
    pairs = command("classification", files, tmp_path / "run" / "best", tmp_path / "next")
    assert cli(*pairs).code == 0


def test_korean_files_and_named_columns(cli, tmp_path):
    """A vocabulary without a word of the text gives unknown pieces, but nothing breaks on the way."""
    model = make_model(tmp_path / "model")
    rows = [
        {"번호": i, "리뷰": ["재미있는 영화", "지루한 영화"][i % 2], "감성": ["긍정", "부정"][i % 2]} for i in range(12)
    ]
    files = {split: write_rows(tmp_path / f"{split}.csv", rows) for split in ("train", "dev")}
    done = cli(
        *command("classification", files, model, tmp_path / "run", "--column", "text=리뷰", "--column", "label=감성")
    )
    assert done.code == 0, done
    line = json.loads((tmp_path / "run" / "predictions" / "dev.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert line["gold"] == "긍정"
    assert done.out.count("100 % of the training tokens are unknown to the model's vocabulary") == 1
    assert "litebert tokenizer train" in done.out
    assert "긍정" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("known", "warned"), [(19, False), (9, True)])
def test_a_few_unknown_tokens_are_nothing_to_warn_of(toy_model, tmp_path, known, warned):
    rows = [{"text": "film " * known + "영화", "label": label} for label in "ab"]
    config = tiny_config(toy_model, {"train": str(write_rows(tmp_path / "train.csv", rows))})
    data = read_data(config, open_tokenizer(config.model), load_config(config.model))
    assert unknown_share(data.train.features, data.tokenizer) == pytest.approx(1 / (known + 1))
    assert [told[:4] for told in data.warnings()] == ["10 %"] * warned
    assert data.warnings() == []  # told once


def test_plain_options_stand_over_the_config(cli, toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification", train=16, dev=8)
    (tmp_path / "run.yaml").write_text("steps: 500\nrecipe: small\nbatch: 2\n")  # an old name of preset
    options = ["--epochs", 0.5, "--batch", 4, "--lr", "0.003", "--max-length", 20, "--device", "cpu"]
    arguments = ["finetune", "--config", tmp_path / "run.yaml", "--task", "classification", "--model", toy_model]
    paths = ["--train", files["train"], "--dev", files["dev"], "--out", tmp_path / "run"]
    done = cli(*arguments, *paths, *options, "--set", "device.threads=1")
    assert done.code == 0, done
    config = finetune_config(read_yaml(tmp_path / "run" / "config.yaml"))
    assert (config.epochs, config.steps, config.batch, config.optim.lr, config.max_length) == (0.5, None, 4, 0.003, 20)
    assert (config.preset, config.device.device) == ("small", "cpu")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["steps"] == 2
    # A run of before the renaming goes on, too: here it is complete, and left as it is.
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text().replace("preset: small", "recipe: small"))
    options[options.index("--epochs") : options.index("--epochs")] = ["--preset", "small"]
    again = cli(*arguments, *paths, *options, "--set", "device.threads=1")
    assert again.code == 0, again
    assert "resuming" not in again.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "classificaton"], "unknown task 'classificaton'; did you mean 'classification'"),
        (["--column", "text=review"], "no column 'review'"),
        (["--column", "text"], "--column text: expected role=name"),
        (["--lr", "fast"], "--lr fast: expected numbers"),
        (["--seeds", "0"], "seeds: must be >= 1"),
        (["--preset", "v3"], "no preset 'v3'"),
        (["--set", "epoch=3"], "epoch: unknown key; did you mean 'epochs'"),
        (["--set", "schedule.steps=30"], "schedule: unknown key; did you mean 'steps'?"),
        (["--set", "lr=1e-5"], "lr: unknown key; did you mean 'optim.lr'?"),
        (["--task", "sst-3", "--data", "nowhere"], "unknown task 'sst-3'; did you mean 'sst-2'"),
        (["--model", "nowhere/at/all"], "nowhere/at/all: no such folder"),
        (["--resume", "yes"], "--resume: 'yes' is not one of"),
        (["--dev", "none.csv"], "none.csv"),
    ],
)
def test_mistakes_end_with_one_message(cli, toy_model, tmp_path, arguments, message):
    files = make_files(tmp_path / "files", "classification")
    done = cli(*command("classification", files, toy_model, tmp_path / "run", *arguments))
    assert done.code == 2, done
    assert message in done.err
    assert not (tmp_path / "run").exists()


def test_a_label_that_training_never_saw(cli, toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification")
    rows = [*rows_of("classification", 3), {"text": "a film", "label": "meh"}]
    files["dev"] = str(write_rows(tmp_path / "dev.csv", rows))
    done = cli(*command("classification", files, toy_model, tmp_path / "run"))
    assert done.code == 2, done
    assert "dev.csv:5: unknown label 'meh'. The labels of" in done.err


def test_evaluate_says_what_it_needs(cli, toy_model, tmp_path):
    assert "say what to score on" in cli("evaluate", toy_model).err
    data = make_files(tmp_path, "classification")["dev"]
    assert (
        "not fine-tuned for a task (no task.json); fine-tune it first" in cli("evaluate", toy_model, "--data", data).err
    )
    run = tmp_path / "run"
    shutil.copytree(toy_model, run / "best")
    assert f"it is a run folder, its model is {run / 'best'}" in cli("evaluate", run, "--data", data).err
    assert "--data and --text: give one of them" in cli("evaluate", toy_model, "--text", data, "--data", data).err
    assert "unknown task 'sst-3'" in cli("evaluate", toy_model, "--task", "sst-3", "--data", "nowhere").err


def test_evaluate_refuses_a_model_of_other_labels(cli, toy_model, tmp_path):
    files = make_files(tmp_path / "a", "classification")
    assert cli(*command("classification", files, toy_model, tmp_path / "run")).code == 0
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "run" / "best", other)
    task = json.loads((other / "task.json").read_text())
    (other / "task.json").write_text(json.dumps({**task, "labels": ["no", "yes"]}))
    done = cli("evaluate", tmp_path / "run" / "best", other, "--data", files["dev"], "--threads", "1")
    assert done.code == 2, done
    assert "was trained for classification with the labels no, yes" in done.err
    headless = cli("evaluate", tmp_path / "run" / "best", toy_model, "--data", files["dev"], "--threads", "1")
    assert headless.code == 2
    assert "has no classification head" in headless.err
    assert "train one with `litebert finetune`" in headless.err


def test_the_list_of_presets(cli):
    done = cli("finetune", "--list")
    assert done.code == 0, done
    for word in ("small", "cpu", "frozen", "v1/ v2/sst-2", "20,935 steps", "v2/race"):
        assert word in done.out


@pytest.mark.parametrize(
    ("settings", "length"),
    [({"epochs": 1}, "1 epoch"), ({"epochs": 2.5}, "2.5 epochs"), ({"steps": 1}, "1 step"), ({"steps": 8}, "8 steps")],
)
def test_lengths_in_words(settings, length):
    assert describe_length(finetune_config({"preset": "base", **settings})) == length
