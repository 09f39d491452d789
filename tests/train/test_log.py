"""metrics.jsonl reads as if the run had never been interrupted; a full disk does not end it."""

from __future__ import annotations

import importlib.util
import io
import json
import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from litebert.errors import ConfigError, DataError, MissingExtraError
from litebert.train.log import MetricsLog, Progress, describe, read_metrics, short_count, short_time


def fill(path, steps, **options):
    with MetricsLog(path, **options) as log:
        for step in steps:
            log.write(step, {"loss": 1 / step})


def steps_in(path):
    return [line["step"] for line in read_metrics(path)]


def test_lines_are_on_disk_at_once(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    log = MetricsLog(path)
    log.write(1, {"loss": 0.1 + 0.2, "text": "é"})
    log.write(2, {"loss": math.nan, "norm": math.inf})
    log.event(2, "loss nan at step 2: skipped")
    raw = path.read_bytes()  # before close
    log.close()
    assert path.read_bytes() == raw
    lines = [json.loads(line) for line in raw.decode().splitlines()]
    assert [line["kind"] for line in lines] == ["train", "train", "event"]
    assert lines[0]["loss"] == 0.1 + 0.2
    assert lines[1]["loss"] is None  # NaN is not JSON
    assert lines[2]["message"] == "loss nan at step 2: skipped"
    assert read_metrics(path) == lines


@pytest.mark.parametrize("torn", [b"", b"{", b'{"step": 4, "loss": 0.2', b'{"step": 4}', b"\0\0\0", b'{"text": "\xc3'])
@pytest.mark.parametrize("resume_step", [0, 1, 2, 3, 9])
def test_resume_keeps_what_was_before(tmp_path, torn, resume_step):
    path = tmp_path / "metrics.jsonl"
    fill(path, [1, 2, 3])
    whole = path.read_bytes().splitlines(keepends=True)
    with path.open("ab") as file:
        file.write(torn)
    assert steps_in(path) == [1, 2, 3]
    fill(path, [resume_step + 1], resume_step=resume_step)
    assert path.read_bytes().startswith(b"".join(whole[:resume_step]))
    assert steps_in(path) == [*[1, 2, 3][:resume_step], resume_step + 1]


def test_rewinding_while_running(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for step in (1, 2, 3, 4):
            log.write(step, {})
        log.rewind(2)
        log.event(2, "rolled back")
        log.write(3, {})
    assert steps_in(path) == [1, 2, 2, 3]


def test_rewinding_to_a_checkpoint_by_its_lines(tmp_path):
    """What came after the checkpoint goes, also at the same step; what is lasting stays, told at that step."""
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write(1, {})
        log.write(2, {})
        saved = log.num_lines
        log.event(2, "depth 2")
        log.event(2, "resumed at step 2", lasting=True)
        log.write(3, {})
        log.event(3, "loss nan at step 3: back", lasting=True)
    for _ in range(2):
        with MetricsLog(path, resume_step=2, resume_lines=saved) as log:
            assert log.num_lines == 4
        assert [line.get("message") for line in read_metrics(path)] == [
            *(None, None),
            "resumed at step 2",
            "loss nan at step 3: back",
        ]
        assert steps_in(path) == [1, 2, 2, 2]
    with MetricsLog(path, resume_step=1, resume_lines=99) as log:  # lines that never came to the disk
        assert log.num_lines == 3


def test_a_new_run_does_not_overwrite(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.touch()
    fill(path, [1])  # an empty file is nobody's
    with pytest.raises(ConfigError, match="holds an earlier run's metrics; resume that run"):
        MetricsLog(path)
    assert steps_in(path) == [1]


@pytest.mark.parametrize("line", [b'{"step"', b"[]", b'{"step": "x"}', b"\xff", b"[" * 5000, b'{"step": 1e999}', b"5"])
def test_a_run_goes_on_without_damaged_lines(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    fill(path, [1, 2, 3, 4])
    lines = path.read_bytes().split(b"\n")
    damaged = b"\n".join([lines[0], line, *lines[2:]])
    path.write_bytes(damaged)
    with MetricsLog(path, resume_step=3, resume_lines=3) as log:
        assert log.damage == f"{path}: line 2 damaged and left out; the original file is kept as metrics.jsonl.damaged"
        assert log.num_lines == 2
        log.write(4, {"loss": 1.0})
    assert steps_in(path) == [1, 3, 4]
    assert path.with_name("metrics.jsonl.damaged").read_bytes() == damaged
    with MetricsLog(path, resume_step=4) as log:
        assert log.damage is None


def test_a_damaged_step_does_not_cost_other_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    fill(path, [1, 2, 3, 4])
    path.write_bytes(path.read_bytes().replace(b'"step": 2', b'"step": 9'))
    with MetricsLog(path, resume_step=3):
        assert steps_in(path) == [1, 9, 3]


def test_damage_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step"\n{"step": 3}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: not a line of metrics"):
        read_metrics(path)
    with pytest.raises(DataError, match="cannot read: No such file"):
        read_metrics(tmp_path / "none")


LIMITED = """
import resource, sys
from litebert.train.log import MetricsLog, read_metrics
path = sys.argv[1]
log = MetricsLog(path)
log.write(1, {"text": "a" * 300})
resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
log.write(2, {"text": "b" * 300})
assert log.problem == f"{path}: File too large", log.problem
assert [line["step"] for line in read_metrics(path)] == [1]
log.write(3, {"text": "c" * 300})
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.write(4, {"text": "d"})
assert log.problem is None
log.close()
assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4]
"""


def test_full_disk_keeps_lines_for_later(tmp_path):
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "metrics.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_tensorboard_mirror(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with MetricsLog(tmp_path / "metrics.jsonl", tensorboard=tmp_path / "board") as log:
        for step in (1, 2, 3):
            log.write(step, {"loss": 1 / step, "note": "text"})
        log.write(3, {"mlm_accuracy": 0.5}, kind="eval")
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert [(e.step, e.value) for e in board.Scalars("train/loss")] == [
        (step, pytest.approx(1 / step)) for step in (1, 2, 3)
    ]
    assert board.Scalars("eval/mlm_accuracy")[0].value == 0.5


def test_tensorboard_missing(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboard" else find_spec(name))
    with pytest.raises(MissingExtraError, match=r'pip install "litebert\[report\]"'):
        MetricsLog(tmp_path / "metrics.jsonl", tensorboard=tmp_path / "board")


VALUES = {
    "loss": 2.9139,
    "mlm_accuracy": 0.412,
    "sentence_accuracy": 0.78,
    "tokens_per_second": 38_123.0,
    "share_of_peak": 0.44,
}


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves; of this module alone, since servers of other tests live by the real one."""
    now = [1000.0]
    monkeypatch.setattr("litebert.train.log.time", SimpleNamespace(monotonic=lambda: now[0]))

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def plain(**options):
    file = io.StringIO()
    return file, Progress(1000, console=Console(file=file, width=200, soft_wrap=True), **options)


def test_line_shows_everything():
    line = "step 1,200/5,000  loss 2.914  MLM 41.2%  order 78.0%  3:20 left  38.1k tok/s  44% of peak"
    assert describe(1200, 5000, VALUES, 200.0) == line
    assert describe(1, 5, {"loss": 1.0}) == "step 1/5  loss 1.000"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (999.4, "999"),
        (999.9, "1k"),
        (38_123, "38.1k"),
        (999_999, "1M"),
        (1_234_567, "1.23M"),
        (2e9, "2G"),
    ],
)
def test_short_count(number, text):
    assert short_count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0:00"), (59.6, "1:00"), (200, "3:20"), (7384, "2:03:04"), (86_399, "23:59:59"), (200_000, "2 d 7 h")],
)
def test_short_time(seconds, text):
    assert short_time(seconds) == text


def test_plain_lines_come_every_few_seconds(clock):
    file, progress = plain(every_seconds=10)
    with progress:
        for step in range(1, 31):
            clock(1)
            progress.update(step, {"loss": float(step)})
        progress.note("checkpoint written")
    steps = [line.split()[1] for line in file.getvalue().splitlines() if line.startswith("step")]
    assert steps == ["1/1,000", "11/1,000", "21/1,000", "30/1,000"]  # the last is not lost
    assert "checkpoint written\n" in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_time_left_follows_the_recent_speed(clock):
    file, progress = plain(every_seconds=0, first_step=100)
    with progress:
        for step in range(101, 301):  # one step a second
            clock(1)
            progress.update(step, {})
        assert file.getvalue().splitlines()[0] == "step 101/1,000  14:59 left"
        assert file.getvalue().splitlines()[-1] == "step 300/1,000  11:40 left"
        for step in range(301, 401):  # then a deeper stage, four times as slow
            clock(4)
            progress.update(step, {})
        assert file.getvalue().splitlines()[-1] == "step 400/1,000  40:00 left"
        progress.update(401, {}, seconds_left=60)  # known, for a run limited by time
        assert file.getvalue().splitlines()[-1] == "step 401/1,000  1:00 left"


@pytest.mark.parametrize("width", [72, 140])
def test_terminal_gets_one_live_line(width):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None, _environ={"TERM": "xterm"})
    with Progress(1000, console=console) as progress:
        progress.update(500, VALUES, seconds_left=7200)
        progress.note("loss nan at step 500: skipped [really]")
    text = file.getvalue()
    assert "step 500/1,000  loss 2.914  MLM 41.2%  order 78.0%  2:00:00 left" in text
    assert ("━" in text) == (width == 140)  # the bar gives way to the numbers
    assert "loss nan at step 500: skipped [really]" in text
    assert "\x1b[2K" in text  # the line is redrawn in place


def test_other_processes_are_silent(capsys):
    with Progress(10, show=False) as progress:
        progress.update(1, VALUES)
        progress.note("x")
    assert capsys.readouterr().out == ""
