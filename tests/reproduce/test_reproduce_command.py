"""`litebert reproduce` and `litebert report` on its folder, from the command line."""

from __future__ import annotations

import json

import pytest

from litebert.pretraining import run as pretraining_run
from litebert.reproduce import corpus as corpus_module
from litebert.reproduce.paper import load_table

COUNTS = {  # published (keras-hub) for ALBERT, BERT by the closed formula with 30,000 pieces
    "albert-base": 11_683_584,
    "albert-large": 17_683_968,
    "albert-xlarge": 58_724_864,
    "albert-xxlarge": 222_595_584,
    "bert-base": 12 * (12 * 768**2 + 13 * 768) + (30_000 + 514) * 768 + 2 * 768 + 768**2 + 768,
    "bert-large": 24 * (12 * 1024**2 + 13 * 1024) + (30_000 + 514) * 1024 + 2 * 1024 + 1024**2 + 1024,
}


def test_table1_is_exact(cli, tmp_path):
    result = cli("reproduce", "table1", "--out", tmp_path / "out", "--json")
    assert result.code == 0, result
    rows = json.loads(result.out)["rows"]
    assert {name: round(1e6 * row["ours"]["params"][0]) for name, row in rows.items()} == COUNTS
    answers = {v["claim"]: v["answer"] for v in json.loads(result.out)["verdicts"]}
    assert set(answers.values()) == {"holds"}
    for name, paper in (("base", "12M"), ("large", "18M"), ("xlarge", "60M"), ("xxlarge", "235M")):
        count = COUNTS[f"albert-{name}"]
        released = f"ALBERT-{name} has the {count:,} parameters of the released checkpoint (the paper prints {paper})"
        assert released in answers
    assert any("does not say how it counted" in note for note in load_table("table1").notes)
    assert "222,595,584" in (tmp_path / "out" / "table1.md").read_text()
    page = tmp_path / "pages" / "table1.html"  # of a folder that is not there yet
    assert cli("report", tmp_path / "out", "--out", page).code == 0
    assert "<title>Table 1: " in page.read_text()
    assert "<script" not in page.read_text()  # no runs, no charts


def test_the_list(cli):
    result = cli("reproduce", "--list")
    assert result.code == 0
    assert all(f"table{number}" in result.out for number in range(1, 14))
    assert "figure2" in result.out
    assert "--scale gpu-hour" in result.out


def test_dry_runs_say_what_it_will_take(cli):
    result = cli("reproduce", "table5", "table6", "--dry-run")
    assert result.code == 0, result
    assert "timed on this machine" in result.out
    result = cli("reproduce", "table11", "--dry-run", "--scale", "gpu-hour", "--minutes-per-row", "2")
    assert "2 minutes for each run" in result.out
    assert "layers-48" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a table"),
        (["table99"], "no table 'table99'"),
        (["table5", "--scale", "huge"], "--scale: 'huge' is not one of"),
        (["table5", "--table-format", "word"], "--table-format: 'word'"),
        (["table5", "--scale", "gpu-hour", "--out", "OUT"], "needs token stores"),
        (["table5", "--seeds", "0"], "seeds: must be >= 1"),
        (["table5", "--out", "OUT", "--store", "OUT/nowhere"], "tokenizer: missing"),
    ],
)
def test_mistakes_end_with_one_message(cli, tmp_path, arguments, message):
    result = cli("reproduce", *(str(argument).replace("OUT", str(tmp_path / "out")) for argument in arguments))
    result.assert_refused(message)


def test_table5_from_corpus_to_verdicts_and_page(cli, tmp_path, monkeypatch):
    """The whole path of `reproduce table5 --scale cpu` with a few steps, then again, then the page anew."""
    monkeypatch.setattr(corpus_module, "GENERATED_DOCUMENTS", 1500)
    monkeypatch.setattr(pretraining_run, "measure_peak", lambda device: 1e9)
    out = tmp_path / "out"
    small = [f"--set=model.{name}={size}" for name, size in (("hidden_size", 32), ("num_attention_heads", 2))]
    small += ["--set=model.intermediate_size=64", "--set=model.initializer_range=0.1"]
    command = ("reproduce", "table5", "--steps", "3", "--seeds", "1", "--jobs", "1", "--out", out, *small)
    result = cli(*command, "--json")
    assert result.code == 0, result
    data = json.loads(result.out)
    assert len(data["rows"]["sop"]["ours"]["sop_probe"]) == 1
    assert "sop" not in data["rows"]["none"]["ours"]  # no head to ask
    assert "sop_probe" in data["rows"]["none"]["ours"]
    assert {v["answer"] for v in data["verdicts"]} <= {"holds", "does not hold", "inconclusive"}
    assert all("smallest detectable difference" in v["evidence"] for v in data["verdicts"] if v["test"])
    again = cli(*command, "--table-format", "markdown")
    assert "3 of 3 cells are already finished" in again.err
    assert "| **sop** | paper |" in again.out
    (out / "report.html").unlink()
    result = cli("report", out)
    assert result.code == 0, result
    assert "Trained on SOP, a model also solves NSP" in (out / "report.html").read_text()
