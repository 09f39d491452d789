"""The lines on the screen, with and without a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from litebert.train.progress import Progress, describe, short_count, short_time

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
    monkeypatch.setattr("litebert.train.progress.time", SimpleNamespace(monotonic=lambda: now[0]))

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
