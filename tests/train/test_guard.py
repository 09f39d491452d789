"""The guard's verdicts, and that they do not depend on being interrupted."""

from __future__ import annotations

import json
import math
import random

import pytest

from litebert.config import build
from litebert.errors import ConfigError
from litebert.train.config import GuardConfig
from litebert.train.guard import Guard


def warmed(config: GuardConfig | None = None, level: float = 4.0, steps: int = 40) -> Guard:
    guard = Guard(config)
    for step in range(steps):
        assert guard.judge(step, level + 0.1 * math.sin(step), 1.0).action == "ok"
    return guard


@pytest.mark.parametrize("action", ["skip", "rollback", "stop"])
@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (4.0, math.nan), (4.0, math.inf)])
def test_not_finite_is_caught_at_once(action, loss, norm):
    guard = Guard(GuardConfig(on_nan=action))
    assert guard.judge(0, 9.0, 1.0).action == "ok"
    verdict = guard.judge(1, loss, norm)
    assert verdict.action == action
    assert "at step 1" in verdict.reason
    assert ("loss" if not math.isfinite(loss) else "gradient norm") in verdict.reason


@pytest.mark.parametrize("action", ["skip", "rollback", "stop"])
def test_spike_is_measured_by_the_median(action):
    guard = warmed(GuardConfig(on_spike=action))
    assert guard.judge(40, 7.5, 1.0).action == "ok"
    verdict = guard.judge(41, 8.5, 1.0)
    assert verdict.action == action
    assert "loss 8.5 at step 41, the median is 4" in verdict.reason


def test_spike_can_be_ignored_and_needs_a_history():
    assert warmed(GuardConfig(on_spike="ignore")).judge(40, 100.0).action == "ok"
    assert warmed(steps=19).judge(19, 100.0).action == "ok"
    assert warmed(steps=20).judge(20, 100.0).action == "skip"


def test_gradient_spike_only_where_asked():
    assert warmed().judge(40, 4.0, 50.0).action == "ok"
    verdict = warmed(GuardConfig(gradient_factor=10.0)).judge(40, 4.0, 50.0)
    assert verdict.action == "skip"
    assert "gradient norm 50" in verdict.reason


def test_skipped_steps_do_not_shift_the_median():
    guard = warmed(GuardConfig(max_skips=1000))
    assert all(guard.judge(step, 20.0, 1.0).action == "skip" for step in range(40, 300))
    assert guard.num_skipped == 260


def test_too_many_skips_in_a_row_stop_with_advice():
    guard = warmed(GuardConfig(max_skips=3))
    for step in range(3):
        assert guard.judge(step, math.nan).action == "skip"
    assert guard.judge(3, 4.0).action == "ok"  # the row is broken
    actions = [guard.judge(step, math.nan).action for step in range(4, 8)]
    assert actions == ["skip", "skip", "skip", "stop"]
    reason = guard.judge(8, math.nan).reason
    assert "after 3 skipped steps in a row" in reason
    assert "Lower the learning rate" in reason
    assert "warm-up" in reason


def test_rollback_leaves_the_batch_out_and_ends():
    guard = warmed(GuardConfig(on_nan="rollback", max_rollbacks=2))
    saved = json.loads(json.dumps(guard.state()))
    for bad in (45, 50):
        assert guard.judge(bad, math.nan).action == "rollback"
        guard.rewind(saved)
        assert guard.is_bad(bad)
        assert not guard.is_bad(bad + 1)
    assert guard.bad_steps == {45, 50}
    verdict = guard.judge(55, math.nan)
    assert verdict.action == "stop"
    assert "after 2 rollbacks. Lower the learning rate" in verdict.reason


def test_forget_allows_an_expected_jump():
    guard = warmed()
    guard.forget()
    assert guard.judge(40, 12.0, 30.0).action == "ok"


@pytest.mark.parametrize("cut", [1, 30, 77, 199])
def test_resumed_guard_gives_the_same_verdicts(cut):
    chance = random.Random(5)
    config = GuardConfig(window=15, min_history=10, max_skips=2, gradient_factor=3.0, on_nan="rollback")
    series = [
        (
            chance.choice([4.0, 4.2, 4.4, 9.0, math.nan]) if chance.random() < 0.3 else 4.0,
            chance.choice([0.8, 1.0, 1.2, 1.0, 9.0]),
        )
        for _ in range(200)
    ]
    whole = Guard(config)
    expected = [whole.judge(step, *values) for step, values in enumerate(series)]
    first, second = Guard(config), Guard(config)
    got = [first.judge(step, *values) for step, values in enumerate(series[:cut])]
    second.restore(json.loads(json.dumps(first.state())))
    got += [second.judge(step, *values) for step, values in enumerate(series[cut:], start=cut)]
    assert got == expected
    assert second.state() == whole.state()
    assert {verdict.action for verdict in expected} == {"ok", "skip", "rollback", "stop"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"on_nan": "ignore"}, "not one of: skip, rollback, stop"),
        ({"spike_factor": 1.0}, "spike_factor: must be > 1"),
        ({"gradient_factor": 0.5}, "gradient_factor: must be > 1"),
        ({"window": 5, "min_history": 6}, "min_history"),
        ({"max_skips": -1}, "max_skips: must be >= 0"),
    ],
)
def test_mistakes_are_named(values, message):
    with pytest.raises(ConfigError, match=message):
        build(GuardConfig, values)
