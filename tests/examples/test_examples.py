"""The examples run, and what they print is right; the later ones use the model that the first one makes."""

from __future__ import annotations

import ast
import csv
import fcntl
import importlib.util
import json
import re
from pathlib import Path

import pytest

import litebert
from litebert.errors import ConfigError, MissingExtraError

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(capsys):
    """Run an example as its user would, in this process: run("custom_task", "--out", folder) -> what it prints."""

    def call(name, *arguments):
        capsys.readouterr()
        load(name).main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return call


def find(pattern, text):
    """The groups of the one place where a pattern stands, numbers as numbers: "41.5 %" is 41.5."""
    matches = re.findall(pattern, text)
    assert len(matches) == 1, (pattern, text)
    groups = matches[0] if isinstance(matches[0], tuple) else (matches[0],)
    return [float(g.replace(",", "")) if re.fullmatch(r"[\d.,]*\d(e-?\d+)?", g) else g for g in groups]


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory, worker_id):
    """The folder that pretrain_on_text.py leaves after a shorter run, made once for all processes of pytest."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared if worker_id == "master" else shared.parent
    with (shared / "examples.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "examples" / "model").exists():
            load("pretrain_on_text").main(["--out", str(shared / "examples"), "--steps", "400"])
    return shared / "examples"


def test_pretrain_on_text(run, pretrained):
    printed = run("pretrain_on_text", "--out", pretrained, "--steps", 400)
    assert "resuming at step 400 of 400" in printed, "run again, it finds all done"
    documents, sentences, tokens = find(r"([\d,]+) documents, ([\d,]+) sentences, ([\d,]+) tokens", printed)
    files = [path.read_text(encoding="utf-8") for path in (pretrained / "texts").iterdir()]
    assert documents == sum(len(text.split("\n\n")) for text in files) == 2000
    assert sentences == sum(len(text.split()) > 0 for file in files for text in file.splitlines() if text)
    tokenizer = litebert.Tokenizer.load(pretrained / "vocabulary")
    assert tokens == sum(len(tokenizer.encode(line)) for file in files for line in file.splitlines())
    (parameters,) = find(r"([\d,]+) parameters", printed)
    model = litebert.load_model(pretrained / "model")
    assert parameters == sum(parameter.numel() for parameter in model.encoder.parameters())
    (words,) = find(r"masked words guessed ([\d.]+)%", printed)
    (order,) = find(r"sentence order told ([\d.]+)%", printed)
    assert words > 20
    assert order > 70


def test_pretrain_on_a_folder_of_ones_own(run, tmp_path):
    (tmp_path / "mine").mkdir()
    for number in range(3):
        lines = [
            f"Story {number} has line {line} of {word} in it." for line, word in enumerate("red blue green".split())
        ]
        (tmp_path / "mine" / f"{number}.txt").write_text("\n\n".join(["\n".join(lines)] * 20), encoding="utf-8")
    arguments = ("--texts", tmp_path / "mine", "--out", tmp_path / "out", "--steps", 2, "--vocab-size", 50)
    assert "60 documents, 180 sentences" in run("pretrain_on_text", *arguments)
    assert not (tmp_path / "out" / "texts").exists()


def test_score_coherence(run, pretrained):
    printed = run("score_coherence", "--model", pretrained / "model", "--stories", 40)
    told, shuffled = find(r"as told ([\d.]+), shuffled ([\d.]+)", printed)
    assert told > shuffled + 0.1
    preferred, stories = find(r"higher in (\d+) of (\d+) pairs", printed)
    assert preferred / stories > 0.8
    found, stories = find(r"found in (\d+) of (\d+) stories", printed)
    assert found / stories > 0.4, "by chance it would be one in nine"
    boundaries = [(float(value), "<- here" in line) for value, line in re.findall(r"^ *(\d+)%(.*)$", printed, re.M)]
    assert len(boundaries) == 9
    assert min(boundaries)[1], "the mark stands at the worst boundary"
    assert sum(marked for _, marked in boundaries) == 1


def test_semantic_search(run, pretrained, tmp_path, monkeypatch):
    query = "The night train to the coast leaves from platform four."
    printed = run("semantic_search", query, "--model", pretrained / "model", "--store", tmp_path / "store")
    lines = printed.splitlines()
    assert lines[0].startswith("8 texts, vectors of ")
    assert lines[1] == f"1.000  {query}"
    assert len(lines) == 4
    predictor = litebert.Predictor(pretrained / "model", threads=1)
    expected = predictor.search(query, load("semantic_search").LINES, top=3, lexical=0)
    assert [line[7:] for line in lines[1:]] == [hit.text for hit in expected.hits]
    (tmp_path / "mine.txt").write_text("one text\n\nanother\n", encoding="utf-8")
    printed = run("semantic_search", "another", "--texts", tmp_path / "mine.txt", "--model", pretrained / "model")
    assert printed.splitlines()[:2] == [lines[0].replace("8 texts", "2 texts"), "1.000  another"]
    for name, text in (("blank.txt", "\n"), ("missing.txt", None)):
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit):
            run("semantic_search", query, "--texts", tmp_path / name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install \"litebert\[search\]\""):
        run("semantic_search", query)


def test_finetune_from_csv(run, pretrained, tmp_path):
    printed = run("finetune_from_csv", "--model", pretrained / "model", "--out", tmp_path / "csv")
    assert "text = 'sentence', label = 'part' (guessed)" in printed
    accuracy, low, high = find(r"test accuracy ([\d.]+)%, with 95 % confidence ([\d.]+)% to ([\d.]+)%", printed)
    assert 75 < low <= accuracy <= high
    rows = read_csv(tmp_path / "csv-data" / "test.csv")
    said = litebert.Predictor(tmp_path / "csv" / "best", threads=1).classify([row["sentence"] for row in rows])
    right = sum(result.label == row["part"] for result, row in zip(said, rows, strict=True))
    assert accuracy == round(100 * right / len(rows), 1), "the Predictor says the same"
    for row, result in zip(rows[:3], said, strict=False):
        assert re.search(rf"^{result.label} +\d+% +{re.escape(row['sentence'])}$", printed, re.M)
    train = {row["sentence"] for row in read_csv(tmp_path / "csv-data" / "train.csv")}
    assert not train & {row["sentence"] for row in rows}


def test_tag_names(run, pretrained, tmp_path):
    arguments = ("--model", pretrained / "model", "--lr", 5e-4, "--train", 100, "--out", tmp_path / "tags")
    printed = run("tag_names", *arguments)
    train, test = (read_lines(tmp_path / "tags-data" / f"{name}.jsonl") for name in ("train-100", "test"))
    assert not {name for row in train for name in names(row)} & {name for row in test for name in names(row)}
    predictor = litebert.Predictor(tmp_path / "tags" / "best", threads=1)
    said = predictor.tag([" ".join(row["words"]) for row in test], split="spaces")
    found = [{(e.label, e.text) for e in result.entities} for result in said]
    right = [{(tag[2:], name) for tag, name in entities(row)} for row in test]
    hits = sum(len(a & b) for a, b in zip(found, right, strict=True))
    (f1,) = find(r"never saw: F1 ([\d.]+)%", printed)
    expected = 200 * hits / sum(map(len, found + right))  # a name that a sentence says twice counts once here
    assert f1 == pytest.approx(expected, abs=0.5)
    assert f1 > 5, "a year is a year, even to a model that has read of few names"
    text = "Maria Lopez was born in Lima and moved to Los Angeles in 1948."
    for entity in predictor.tag(text).entities:
        assert re.search(rf"^{entity.label} +\d+%  {re.escape(entity.text)}$", printed, re.M)
    with pytest.raises(ConfigError, match=r"train-100\.jsonl -> .*train-200\.jsonl"):
        run("tag_names", *arguments, "--train", 200)  # not the finished run's scores once more


def entities(row):
    """The stretches of a tagged sentence: {"words": [New, York], "tags": [B-LOC, I-LOC]} -> [(B-LOC, New York)]."""
    stretches = []
    for word, tag in zip(row["words"], row["tags"], strict=True):
        if tag.startswith("B-"):
            stretches.append((tag, word))
        elif tag.startswith("I-"):
            stretches[-1] = (stretches[-1][0], f"{stretches[-1][1]} {word}")
    return stretches


def names(row):
    """The words of people's and places' names; years are drawn anew each time."""
    return {word for tag, name in entities(row) if tag != "B-YEAR" for word in name.split()}


def test_custom_task(run, pretrained, tmp_path):
    printed = run("custom_task", "--model", pretrained / "model", "--out", tmp_path / "run", "--train", 200)
    accuracy, low, high = find(r"unseen stories: ([\d.]+)% \(([\d.]+)% to ([\d.]+)%\)", printed)
    assert 60 < low <= accuracy <= high
    options = re.findall(r"^ *(\d+)%  (.*?)(     <- right)?$", printed, re.M)
    assert sum(int(probability) for probability, *_ in options) in range(98, 103)
    assert [bool(mark) for *_, mark in options].count(True) == 1
    assert litebert.Predictor(tmp_path / "run" / "best", threads=1).task.name == "next-sentence"


def test_export_and_serve(run, pretrained, tmp_path):
    printed = run("export_and_serve", "--model", pretrained / "model", "--out", tmp_path / "onnx")
    sizes = {name: find(rf"{re.escape(name)} +([\d,]+) kB", printed)[0] for name in ("model.onnx", "model.int8.onnx")}
    assert sizes["model.int8.onnx"] < sizes["model.onnx"] / 2
    assert "serving full, small" in printed
    text = load("export_and_serve").TEXT
    expected = litebert.Predictor(pretrained / "model", threads=1).fill_mask(text, top=3).masks[0].candidates
    guesses = "  ".join(f"{candidate.word} {candidate.probability:.0%}" for candidate in expected)
    assert f"full   {text}  {guesses}" in printed
    (by_eight_bits,) = find(rf"small  {re.escape(text)}  ([^\n]+)", printed)
    assert by_eight_bits.split()[0] == expected[0].word
    assert "server stopped with exit code 0" in printed


def test_inside_transformers(run, pretrained):
    printed = run("inside_transformers", "--model", pretrained / "model")
    assert re.search(r"the same \d\d ids: True", printed)
    assert "AlbertForPreTraining" in printed
    gaps = [float(value) for value in re.findall(r"largest difference.* (\de-\d+)", printed)]
    assert len(gaps) == 3
    assert max(gaps) < 2e-5


def test_compare_sharing(run, pretrained, tmp_path):
    printed = run("compare_sharing", "--data", pretrained, "--out", tmp_path / "runs", "--steps", 8)
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines()[1:]}
    assert list(rows) == ["all", "attention", "ffn", "none"]
    parameters = {name: int(row[0].replace(",", "")) for name, row in rows.items()}
    attention, ffn = 4 * (128 * 128 + 128) + 2 * 128, 128 * 512 + 512 + 512 * 128 + 128 + 2 * 128  # one block of each
    # Sharing attention leaves each of the two layers an FFN of its own, and the other way round.
    assert parameters["attention"] - parameters["all"] == ffn
    assert parameters["ffn"] - parameters["all"] == attention
    assert parameters["none"] - parameters["all"] == attention + ffn
    losses = {name: float(row[1]) for name, row in rows.items()}
    assert len(set(losses.values())) == 4, "four different models"
    assert all(4 < loss < 8 for loss in losses.values()), "eight steps bring them below log(600) = 6.4, or near it"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_uses_what_is_public_and_says_how_to_run_it(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert f"python examples/{path.name}" in ast.get_docstring(tree)
    documents = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "litebert":
            assert {alias.name for alias in node.names} <= set(litebert.__all__)
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("litebert."):
            assert node.module in documents, f"{node.module} is in no document"
            assert not any(alias.name.startswith("_") for alias in node.names)


def test_the_readme_lists_every_example():
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\[`?(\w+\.py)`?\]\((\w+\.py)\)", text)
    assert sorted(name for name, _ in listed) == [path.name for path in EXAMPLES]
    assert all(name == target for name, target in listed)
