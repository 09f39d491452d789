"""`litebert pretrain`, `plan` and their error messages."""

from __future__ import annotations

import json

import pytest
from tiny_run import make_corpus, tiny_config

from litebert.config import write_yaml
from litebert.pretraining.config import RUN_PRESETS, find_model_config, load_run_config


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


def test_plain_options_stand_over_the_config(cli, corpus, tmp_path):
    (tmp_path / "run.yaml").write_text(write_yaml(tiny_config(corpus, data={"stores": ["elsewhere"]})))
    options = ["--store", corpus / "store", "--tokenizer", corpus / "tokenizer", "--minutes", 5, "--device", "cpu"]
    result = cli("pretrain", tmp_path / "run.yaml", *options, "--set", "steps=2", "--out", tmp_path / "run")
    assert result.code == 0, result
    config = load_run_config(tmp_path / "run" / "config.yaml")
    assert config.data.stores == (str(corpus / "store"),)
    assert (config.max_minutes, config.device.device, config.steps) == (5, "cpu", 2)


def test_without_a_config_the_preset_for_the_machine_is_taken(cli, corpus):
    options = ["--store", corpus / "store", "--tokenizer", corpus / "tokenizer", "--device", "cpu", "--dry-run"]
    small = ["--set", "micro_batch_tokens=256", "--set", "batch_tokens=256", "--set", "recipe.max_length=32"]
    result = cli("pretrain", *options, *small)
    assert result.code == 0, result
    assert result.out.splitlines()[0] == "preset cpu/albert-tiny"
    assert "300 pieces" in result.out
    assert str(corpus / "store") in result.out


@pytest.mark.parametrize("columns", [80, 200])
def test_the_presets_are_listed_one_a_line(cli, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = cli("pretrain", "--list").out.splitlines()
    assert "…" not in "".join(rows)
    assert [row.split()[0] for row in rows if "/" in row] == list(RUN_PRESETS)
    assert len(rows) <= len(RUN_PRESETS) + 2
    assert max(len(row) for row in rows) <= columns


def test_a_dry_run_trains_nothing(cli, corpus, tmp_path):
    (tmp_path / "run.yaml").write_text(write_yaml(tiny_config(corpus)))
    result = cli("pretrain", tmp_path / "run.yaml", "--dry-run")
    assert result.code == 0, result
    assert "epochs of it" in result.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a YAML file, a preset (`litebert pretrain --list`), or what to train on"),
        (["cpu/albert-tny", "--out", "x"], "did you mean 'cpu/albert-tiny'"),
        (["none.yaml", "--out", "x"], "none.yaml: no such config file"),
        (["cpu/albert-tiny"], "--out: give the folder to write the run to"),
        (["cpu/albert-tiny", "--out", "x"], "data.stores: name at least one token store"),
        (["cpu/albert-tiny", "--out", "x", "--store", "nowhere"], "nowhere"),
        (["--store", "nowhere", "--out", "x"], "nowhere"),
        (["cpu/albert-tiny", "--out", "x", "--minutes", "0"], "max_minutes: must be"),
        (["cpu/albert-tiny", "--out", "x", "--set", "optim.lr"], "expected key=value"),
        (["cpu/albert-tiny", "--out", "x", "--set", "optim.rate=1"], "optim.rate: unknown key"),
        (["cpu/albert-tiny", "--out", "x", "--resume", "maybe"], "--resume: 'maybe' is not one of"),
        (["cpu/albert-tiny", "--out", "x", "--set", "data.stores=[nowhere]", "--set", "data.tokenizer=v"], "v"),
    ],
)
def test_mistakes(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    cli("pretrain", *arguments).assert_refused(message)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data.held_out=nan", "data.held_out: expected a number, got 'nan'"),
        ("data.held_out=.nan", "data.held_out: expected a number, got nan"),
        ("data.held_out=.inf", "data: held_out: must be a count of documents or a share below 1"),
        ("data.held_out=100000", "held_out: 100000 documents, but the store has only 120"),
        ("optim.eps=-1", "optim.eps: must be > 0"),
        ("optim.beta1=7", "optim.beta1"),
        ("seed=2001-13-45", "'2001-13-45' is not a valid timestamp"),
    ],
)
def test_refused_settings_leave_no_folder(cli, corpus, tmp_path, setting, message):
    (tmp_path / "run.yaml").write_text(write_yaml(tiny_config(corpus)))
    result = cli("pretrain", tmp_path / "run.yaml", "--out", tmp_path / "run", "--set", setting)
    assert result.code == 2, result
    assert message in result.err
    assert not (tmp_path / "run").exists()


def test_evaluate_wants_tokens(cli):
    result = cli("evaluate", "somewhere", "--text", "some.txt", "--tokens", 0)
    assert (result.code, "--tokens" in result.err) == (2, True), result


def test_plan(cli):
    result = cli("plan", "albert-xlarge", "--gpus", 1, "--gpus", 64)
    assert result.code == 0, result
    assert "extrapolated" in result.out
    rows = json.loads(cli("plan", "albert-base", "--gpus", 8, "--json").out)["rows"]
    assert rows[0]["gpus"] == 8
    assert cli("plan", "albert-xlrge").code == 2
    of_a_run = json.loads(cli("plan", "gpu/albert-base", "--gpus", 8, "--json").out)["rows"]
    assert of_a_run == rows
    assert cli("plan", "albert-base", "--gpus", 0).code == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--steps", -1),
        ("--steps", 0),
        ("--batch", 0),
        ("--length", 0),
        ("--micro-batch-tokens", 0),
        ("--bandwidth", 0.0),
        ("--bandwidth", "nan"),
        ("--bandwidth", "inf"),
    ],
)
def test_plan_refuses_what_cannot_be(cli, option, value):
    result = cli("plan", "albert-base", option, value)
    assert result.code == 2, result
    assert option in result.err
    assert "or equal to 1" in result.err or f"{option}: must be" in result.err


@pytest.mark.parametrize(
    ("text", "layers", "vocab_size"),
    [
        ("model: {preset: albert-tiny, num_hidden_layers: 3}\nsteps: 10", 3, 30000),
        ("model: {num_hidden_layers: 5, vocab_size: 70}", 5, 70),
        ("preset: cpu/albert-tiny\nmodel: {vocab_size: 50}", 4, 50),
        ("preset: cpu/albert-tiny", 4, 30000),
        ("preset: albert-tiny\nvocab_size: 80", 4, 80),
        ("num_hidden_layers: 2", 2, 30000),
    ],
)
def test_a_runs_yaml_stands_for_its_model(cli, tmp_path, text, layers, vocab_size):
    (tmp_path / "run.yaml").write_text(text)
    config = find_model_config(str(tmp_path / "run.yaml"))
    assert (config.num_hidden_layers, config.vocab_size) == (layers, vocab_size)
    assert cli("params", tmp_path / "run.yaml").code == 0
    assert cli("plan", tmp_path / "run.yaml", "--gpus", 1).code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: {preset: albert-tny}", "run.yaml: model: no preset 'albert-tny'; did you mean 'albert-tiny'"),
        ("preset: [a]", "run.yaml: no preset ['a']"),
        ("preset: albert-tiny\nname: mine", "run.yaml: name: unknown model field"),
        ("layers: 2", "run.yaml: layers: unknown key"),
    ],
)
def test_mistakes_in_a_models_yaml(cli, tmp_path, text, message):
    (tmp_path / "run.yaml").write_text(text)
    result = cli("params", tmp_path / "run.yaml")
    assert (result.code, message in result.err) == (2, True), result
