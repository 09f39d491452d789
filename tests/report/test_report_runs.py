"""Run folders as data: any piece may be missing, and damaged pieces are named."""

from __future__ import annotations

import json

import numpy as np
import pytest
from synthetic_runs import write_run

from litebert.errors import ConfigError, DataError
from litebert.report.runs import Event, distinct_names, read_run, read_runs
from litebert.report.summary import final_numbers, state_of


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", lines=40)


def write_lines(folder, *lines):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_whole_run(folder):
    run = read_run(folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    assert run.train.series("loss").values.tolist() == [line["loss"] for line in train]
    assert run.train.steps.tolist() == [line["step"] for line in train]
    last = [line for line in lines if line["kind"] == "eval"][-1]
    final = final_numbers(run)
    assert (final.step, final.mlm_accuracy) == (400, last["mlm_accuracy"])
    assert final.loss == last["mlm_loss"] + last["sentence_loss"]
    assert (final.tokens, final.seconds) == (train[-1]["tokens"], train[-1]["seconds"])
    assert final.tokens_per_second == final.tokens / final.seconds
    assert final.held_out
    assert final.parameters == 1_264_130
    assert state_of(run) == "completed"


def test_stages_are_labelled_with_what_is_new(folder):
    stages = read_run(folder).stages
    assert [(s.step, s.label) for s in stages] == [
        (0, "depth 1 · length 64"),
        (140, "depth 2"),  # the last report of the stage before
        (280, "depth 4"),
        (340, "length 128"),
    ]
    assert stages[0].short_label == "depth 1"
    assert stages[2].description == "depth 4 · length 64"


def test_without_changes_there_is_one_stage_without_a_label(tmp_path):
    lines = [{"step": step, "kind": "train", "loss": 1.0, "depth": 4} for step in (10, 20)]
    assert [stage.label for stage in read_run(write_lines(tmp_path / "run", *lines)).stages] == [""]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("loss nan at step 120: step skipped", "skip"),
        ("loss 9 at step 7, the median is 3: back to the last checkpoint", "rollback"),
        ("rolled back to step 5", "rollback"),
        ("resumed at step 2400", "resume"),
        ("depth 4, length 128", "stage"),
        ("stopped by a signal; rerun the same command to continue", "note"),
    ],
)
def test_kinds_of_events(message, kind):
    assert Event(1, message).kind == kind


def test_gaps_text_and_torn_lines_are_no_values(tmp_path):
    folder = write_lines(
        tmp_path / "run",
        {"step": 1, "kind": "train", "loss": None},
        {"step": 2, "kind": "train", "loss": 3.0, "mlm_accuracy": "high", "lr": 10**400},
        {"step": 3, "kind": "train", "mlm_accuracy": True},
        {"step": 2, "kind": "train", "loss": 2.5},  # of two lines for one step, the later counts
    )
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "kind": "tr')
    run = read_run(folder)
    assert run.train.steps.tolist() == [1, 2, 3]
    assert run.train.series("loss").values.tolist() == [2.5]
    assert not run.train.series("mlm_accuracy")
    assert not run.train.series("lr")
    assert not run.train.series("no such thing")


def test_without_held_out_scores_the_last_reports_count(tmp_path):
    lines = [{"step": s, "kind": "train", "loss": float(s), "mlm_accuracy": s / 100} for s in range(1, 31)]
    final = final_numbers(read_run(write_lines(tmp_path / "run", *lines)))
    assert (final.held_out, final.loss) == (False, 25.5)
    assert final.mlm_accuracy == pytest.approx(0.255)
    assert (final.tokens, final.tokens_per_second, final.parameters) == (None, None, None)


def test_the_clock_grows_from_zero_and_joins_both_kinds(tmp_path):
    folder = write_lines(
        tmp_path / "run",
        {"step": 10, "kind": "train", "tokens": 100},
        {"step": 15, "kind": "eval", "tokens": 150},
        {"step": 20, "kind": "train", "tokens": 140},  # a clock that went back is not believed
    )
    run = read_run(folder)
    assert [array.tolist() for array in run.clock("tokens")] == [[0, 10, 15, 20], [0, 100, 150, 150]]
    assert not run.clock("seconds")


def test_only_run_json_or_only_metrics_make_a_run(tmp_path):
    folder = tmp_path / "begun"
    folder.mkdir()
    (folder / "run.json").write_text('{"completed": false, "finished": "2026-01-01T00:00:00Z"}')
    run = read_run(folder)
    assert (run.step, run.stages, run.samples, state_of(run)) == (0, (), (), "stopped")
    assert state_of(read_run(write_lines(tmp_path / "other"))) == "unfinished"


def test_names_are_as_short_as_they_can_be(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "b" / "other"]
    assert distinct_names(paths) == ["a/run", "b/run", "b/other"]
    assert distinct_names(paths[1:]) == ["run", "other"]


def test_a_folder_given_twice_is_one_run(folder):
    assert len(read_runs([folder, folder / ".." / folder.name])) == 1


def test_what_is_no_run_is_named(tmp_path, folder):
    with pytest.raises(DataError, match="no such folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"is a file; name its run folder"):
        read_run(folder / "run.json")
    with pytest.raises(DataError, match=rf"holds 1; compare them with: litebert report {tmp_path}/{folder.name}$"):
        read_run(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"not a run folder \(no metrics\.jsonl, no run\.json\)"):
        read_run(tmp_path / "empty")
    with pytest.raises(DataError, match="no run folder given"):
        read_runs([])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{", "run.json:1: not valid JSON"),
        ("run.json", "[]", "expected a dict, got list"),
        ("samples.json", '[{"text": "a"}]', "samples.json: entry 1 lacks"),
        ("samples.json", '[{"text": "a", "answers": [], "guesses": [[{"token": "b", "probability": 7}]]}]', "entry 1"),
        ("baselines.json", '{"mlm": {"unigram": "low"}}', 'expected numbers by name under "mlm"'),
        ("metrics.jsonl", "nonsense\n", "line 1"),
    ],
)
def test_damage_is_named(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_run(folder)


def test_a_damaged_config_is_named(folder):
    (folder / "config.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        read_run(folder)


def test_the_share_of_peak_is_the_median(folder):
    run = read_run(folder)
    shares = [json.loads(line).get("share_of_peak") for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert final_numbers(run).share_of_peak == pytest.approx(np.median([s for s in shares if s is not None]))
