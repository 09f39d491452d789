"""`litebert baseline` as a user types it: every kind, models beside it, masks."""

from __future__ import annotations

import json
import shutil

import pytest
from tiny_run import make_corpus
from tiny_shape import tiny_shape
from toy_tasks import KINDS as TASK_KINDS
from toy_tasks import make_files, make_model, tiny_config

from litebert.baselines.table import methods_of
from litebert.finetuning.evaluate import evaluate_task
from litebert.finetuning.results import read_scores
from litebert.finetuning.run import finetune
from litebert.finetuning.study import run_study
from litebert.model.heads import PretrainingModel
from litebert.model.hub import save_model
from litebert.text.generate import generate_documents
from litebert.text.tokenizer import Tokenizer


def flags(files):
    return [part for split in ("train", "dev") for part in (f"--{split}", files[split])]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make_files(tmp_path_factory.mktemp("files"), "classification")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def run(tmp_path_factory, files, model):
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    finetune(tiny_config(model, files, steps=2), folder, quiet=True)
    return folder


@pytest.mark.parametrize("kind", TASK_KINDS)
def test_every_kind_of_task(cli, tmp_path, kind):
    made = make_files(tmp_path, kind)
    result = cli("baseline", "--task", kind, *flags(made), "--method", "all", "--json")
    assert result.code == 0, result
    table = json.loads(result.out)
    assert [method["name"] for method in table["methods"]] == ["majority", *methods_of(kind).kinds]
    assert all(metric["low"] is not None for method in table["methods"] for metric in method["splits"]["dev"].values())
    assert result.err == ""


def test_one_table_with_what_was_done(cli, files):
    result = cli("baseline", "--task", "classification", *flags(files), "--method", "tfidf", "--method", "bow,ngram")
    assert result.code == 0, result
    first, *rows = result.out.splitlines()
    assert first.split() == ["method", "accuracy", "macro", "f1", "s"]
    assert [row.split()[0] for row in rows[:4]] == ["majority", "bow", "tfidf", "ngram"]
    assert "always 'pos'" in result.out
    assert "logistic regression on" in result.out
    assert "24 train, 12 dev" in result.out
    assert "(guessed)" in result.out  # the columns


def test_korean_says_what_is_counted(cli, tmp_path):
    path = tmp_path / "ko.csv"
    path.write_text(
        "text,label\n" + "정말 재밌는 영화,1\n너무 지루하다,0\n재밌다,1\n지루한 영화,0\n" * 3, encoding="utf-8"
    )
    result = cli("baseline", "--task", "classification", "--train", path, "--dev", path, "--method", "bow")
    assert result.code == 0, result
    assert "character n-grams (Korean words" in result.out


def test_a_file_in_another_encoding(cli, tmp_path):
    for name in ("train", "dev"):
        rows = "".join(f"{'좋은' if i % 2 else '나쁜'} 영화 {i},{i % 2}\n" for i in range(20))
        (tmp_path / f"{name}.csv").write_text("text,label\n" + rows, encoding="cp949")
    arguments = ["--task", "classification", "--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv"]
    refused = cli("baseline", *arguments, "--method", "bow")
    assert refused.code != 0
    assert "cp949" in refused.err
    found = json.loads(cli("baseline", *arguments, "--method", "bow", "--encoding", "cp949", "--json").out)
    bow = next(method for method in found["methods"] if method["name"] == "bow")
    assert bow["splits"]["dev"]["accuracy"]["value"] == 1.0


def test_vectors_from_a_text_of_ones_own(cli, files, tmp_path):
    (tmp_path / "text.txt").write_text("a good film\nwe saw it\n\na dull story\n", encoding="utf-8")
    command = ["baseline", "--task", "classification", *flags(files), "--method", "word2vec"]
    result = cli(*command, "--train-text", tmp_path / "text.txt")
    assert "vectors of 8 words of the given text" in result.out, result
    missing = cli(*command, "--train-text", tmp_path / "none.txt")
    assert missing.code == 2
    assert "none.txt: no such file" in missing.err


def test_a_run_and_its_model_stand_in_the_table(cli, files, model, run):
    command = ["baseline", "--task", "classification", *flags(files), "--method", "bow", "--json"]
    result = cli(*command, "--model", run, "--model", run / "best", "--model", run / "best" / ".")
    assert result.code == 0, result
    methods = json.loads(result.out)["methods"]
    assert [method["name"] for method in methods[:3]] == ["majority", "bow", str(run)]
    expected = read_scores(run).splits["dev"]["accuracy"]
    for method in methods[2:]:
        assert method["splits"]["dev"]["accuracy"] == {
            "value": expected.value,
            "low": expected.low,
            "high": expected.high,
        }


def test_a_model_folder_is_scored_now(cli, files, run, tmp_path):
    elsewhere = tmp_path / "moved"
    shutil.copytree(run / "best", elsewhere)
    result = cli(
        "baseline", "--task", "classification", *flags(files), "--method", "bow", "--model", elsewhere, "--json"
    )
    assert result.code == 0, result
    method = json.loads(result.out)["methods"][-1]
    [scored] = evaluate_task([elsewhere], data=files["dev"])
    assert method["splits"]["dev"]["accuracy"]["value"] == scored.evaluations[0].scores["accuracy"].value
    assert "scored now" in method["what"]


def test_the_median_of_several_seeds(cli, files, model, tmp_path):
    study = run_study(tiny_config(model, files, steps=2), tmp_path / "study", seeds=2, quiet=True)
    for seed, accuracy in enumerate((0.4, 0.6)):  # scores as unlike as they can be
        path = tmp_path / "study" / f"lr-0.01-seed-{seed}" / "scores.json"
        scores = json.loads(path.read_text())
        scores["splits"]["dev"]["accuracy"] = {"value": accuracy, "low": accuracy - 0.1, "high": accuracy + 0.1}
        path.write_text(json.dumps(scores))
    study = run_study(tiny_config(model, files, steps=2), tmp_path / "study", seeds=2, quiet=True)
    assert study.settings[0].median == 0.5
    result = cli(
        "baseline", "--task", "classification", *flags(files), "--method", "bow", "--model", tmp_path / "study"
    )
    assert result.code == 0, result
    assert "the median of 2 seeds (accuracy 40.0 – 60.0 over seeds, ± 14.14)" in result.out
    row = next(line for line in result.out.splitlines() if line.startswith(str(tmp_path)))
    assert "50.0" in row.split()
    assert "(" not in row  # an interval is one run's


def test_scores_of_other_examples_are_refused(cli, files, run, tmp_path):
    other = make_files(tmp_path, "classification", dev=9)
    result = cli("baseline", "--task", "classification", *flags(other), "--method", "bow", "--model", run)
    assert result.code == 2
    assert "was scored on other dev examples" in result.err
    numbers = make_files(tmp_path, "regression")
    result = cli("baseline", "--task", "regression", *flags(numbers), "--method", "bow", "--model", run)
    assert result.code == 2
    assert "was trained for classification, not for regression" in result.err
    (tmp_path / "empty").mkdir()
    result = cli("baseline", "--task", "classification", *flags(files), "--model", tmp_path / "empty")
    assert result.code == 2
    assert "neither a finished run (scores.json) nor a model folder" in result.err


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = make_corpus(tmp_path_factory.mktemp("corpus"))
    documents = generate_documents(20, seed=3, split="held-out")
    (folder / "other.txt").write_text("\n\n".join(map("\n".join, documents)), encoding="utf-8")
    return folder


def test_masks_by_counting_beside_a_model(cli, corpus, tmp_path):
    command = ["baseline", "--task", "masked-lm", "--method", "ngram", "--train-text", corpus / "text.txt"]
    command += ["--text", corpus / "other.txt", "--tokens", "4096"]
    result = cli(*command, "--tokenizer", corpus / "tokenizer", "--json")
    assert result.code == 0, result
    methods = {method["name"]: method["splits"]["dev"] for method in json.loads(result.out)["methods"]}
    unigram, ngram = (methods[name]["masked_lm_accuracy"]["value"] for name in ("unigram", "ngram"))
    assert 0 < unigram < ngram < 1
    assert methods["connectives"]["sentence_order_accuracy"]["value"] > 0.5
    pretrained = make_pretrained(tmp_path / "model", corpus)
    result = cli(*command, "--model", pretrained)
    assert result.code == 0, result
    assert [line.split()[0] for line in result.out.splitlines()[1:5]] == [
        "unigram",
        "ngram",
        "connectives",
        str(pretrained),
    ]


def make_pretrained(folder, corpus):
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    shape = tiny_shape(vocab_size=tokenizer.vocab_size, num_hidden_layers=1, max_position_embeddings=512)
    save_model(PretrainingModel(shape), folder)
    tokenizer.save(folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "bow", "--train-text", "TEXT", "--text", "OTHER"], "the only baseline for masked-lm is ngram"),
        (["--train-text", "TEXT", "--text", "TEXT"], "is also the text that n-grams are counted in"),
        (["--train-text", "TEXT"], "and other text to score on (text)"),
        (["--train-text", "TEXT", "--text", "OTHER"], "name a model or a tokenizer folder"),
        (["--train-text", "TEXT", "--text", "OTHER", "--data", "x"], "masked-lm takes --train-text FILE"),
        (
            ["--train-text", "TEXT", "--text", "OTHER", "--tokenizer", "TOKENIZER", "--tokens", "0"],
            "--tokens",
        ),
        (
            ["--train-text", "TEXT", "--text", "OTHER", "--tokenizer", "TOKENIZER", "--model", "MODEL"],
            "its vocabulary differs",
        ),
    ],
)
def test_mistakes_with_masks(cli, corpus, model, arguments, message):
    places = {"TEXT": corpus / "text.txt", "OTHER": corpus / "other.txt"}
    places |= {"TOKENIZER": corpus / "tokenizer", "MODEL": model}
    result = cli("baseline", "--task", "masked-lm", *(places.get(argument, argument) for argument in arguments))
    assert result.code == 2
    assert message in result.err


def test_a_tokenizer_is_not_for_tasks(cli, files):
    result = cli("baseline", "--task", "classification", *flags(files), "--tokenizer", "x")
    assert result.code == 2
    assert "--tokenizer: goes with --task masked-lm only" in result.err
