"""`litebert pretrain`, `plan` and their mistakes, as a newcomer types them."""

from __future__ import annotations

import json

import pytest
from tiny_run import make_corpus, tiny_config

from litebert.config import write_yaml
from litebert.pretraining.presets import RUN_PRESETS


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def test_from_a_config_to_a_model_and_its_report(cli, corpus, tmp_path):
    (tmp_path / "run.yaml").write_text(write_yaml(tiny_config(corpus)))
    result = cli("pretrain", tmp_path / "run.yaml", "--set", "steps=4", "--out", tmp_path / "run")
    assert result.code == 0, result
    assert f"model: {tmp_path / 'run' / 'model'}" in result.out
    assert "held-out MLM" in result.out
    again = cli("pretrain", tmp_path / "run.yaml", "--set", "steps=4", "--out", tmp_path / "run")
    assert again.code == 0, again
    assert "resuming at step 4" in again.out
    report = cli("report", tmp_path / "run", "--out", tmp_path / "report.html")
    assert report.code == 0, report
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_the_presets_are_listed(cli):
    out = cli("pretrain", "--list").out
    assert all(name in out for name in RUN_PRESETS)


def test_a_dry_run_trains_nothing(cli, corpus, tmp_path):
    (tmp_path / "run.yaml").write_text(write_yaml(tiny_config(corpus)))
    result = cli("pretrain", tmp_path / "run.yaml", "--dry-run")
    assert result.code == 0, result
    assert "epochs of it" in result.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a YAML file or a preset"),
        (["cpu/albert-tny", "--out", "x"], "did you mean 'cpu/albert-tiny'"),
        (["none.yaml", "--out", "x"], "none.yaml: no such config file"),
        (["cpu/albert-tiny"], "--out: name the folder of the run"),
        (["cpu/albert-tiny", "--out", "x"], "data.stores: name at least one token store"),
        (["cpu/albert-tiny", "--out", "x", "--set", "optim.lr"], "expected key=value"),
        (["cpu/albert-tiny", "--out", "x", "--set", "optim.rate=1"], "optim.rate: unknown key"),
        (["cpu/albert-tiny", "--out", "x", "--resume", "maybe"], "--resume: 'maybe' is not one of"),
        (["cpu/albert-tiny", "--out", "x", "--set", "data.stores=[nowhere]", "--set", "data.tokenizer=v"], "v"),
    ],
)
def test_mistakes(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = cli("pretrain", *arguments)
    assert result.code == 2, result
    assert message in result.err
    assert "Traceback" not in result.err
    assert not (tmp_path / "x").exists()


def test_plan(cli):
    result = cli("plan", "albert-xlarge", "--gpus", 1, "--gpus", 64)
    assert result.code == 0, result
    assert "extrapolation" in result.out
    rows = json.loads(cli("plan", "albert-base", "--gpus", 8, "--json").out)["rows"]
    assert rows[0]["gpus"] == 8
    assert cli("plan", "albert-xlrge").code == 2
    assert cli("plan", "albert-base", "--gpus", 0).code == 2
