"""Schedules against closed forms, the paper's figures and torch's own schedulers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import build
from litebert.errors import ConfigError
from litebert.train.schedule import (
    LearningRate,
    RateStage,
    Stage,
    check_stages,
    check_weights,
    draw_depth,
    learning_rate,
    loss_shares,
    run_progress,
    sqrt_scaled_lr,
    value_at,
)

GOOGLE = LearningRate(style="google")  # 0.00176, 125,000 steps, 3,125 of warm-up


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0),
        (1, 0.00176 / 3125),
        (3124, 0.00176 * 3124 / 3125),
        (3125, 0.001716),  # the drop: 0.00176 * (1 - 3125/125000)
        (62_500, 0.00088),
        (124_999, 0.00176 / 125_000),
        (125_000, 0.0),
        (200_000, 0.0),
    ],
)
def test_google_style(step, expected):
    assert learning_rate(step, GOOGLE) == pytest.approx(expected, rel=1e-12, abs=1e-18)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.00176 / 3125),  # no step is lost
        (3124, 0.00176),
        (3125, 0.00176),  # no drop
        (3125 + 121_875 // 5, 0.00176 * 0.8),
        (124_999, 0.00176 / 121_875),
        (125_000, 0.0),
    ],
)
def test_continuous_style(step, expected):
    assert learning_rate(step, LearningRate()) == pytest.approx(expected, rel=1e-12, abs=1e-18)


def test_continuous_never_jumps():
    schedule = LearningRate(peak=1.0, num_steps=100, warmup_steps=10, end=0.1)
    rates = [learning_rate(step, schedule) for step in range(101)]
    assert max(abs(a - b) for a, b in pairwise(rates)) == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert rates[100] == pytest.approx(0.1)


def reference_rates(make) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(50):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("schedule", "make"),
    [
        (
            LearningRate(peak=1.0, num_steps=50, warmup_steps=0, power=2.0),
            lambda o: torch.optim.lr_scheduler.PolynomialLR(o, total_iters=50, power=2.0),
        ),
        (
            LearningRate(peak=1.0, num_steps=50, warmup_steps=0, end=0.2, shape="cosine"),
            lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=50, eta_min=0.2),
        ),
    ],
)
def test_shapes_equal_torchs(schedule, make):
    ours = [learning_rate(step, schedule) for step in range(50)]
    assert ours == pytest.approx(reference_rates(make), rel=1e-9)


def test_constant_after_warmup():
    schedule = LearningRate(peak=0.5, num_steps=20, warmup_steps=4, shape="constant")
    assert [learning_rate(step, schedule) for step in range(6)] == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]
    assert learning_rate(19, schedule) == 0.5


@given(
    num_steps=st.integers(1, 500),
    warmup=st.integers(0, 500),
    share=st.floats(0, 1),
    shape=st.sampled_from(["polynomial", "cosine", "constant"]),
)
def test_rates_stay_between_zero_and_the_peak(num_steps, warmup, share, shape):
    schedule = LearningRate(peak=2.0, num_steps=num_steps, warmup_steps=min(warmup, num_steps), shape=shape)
    rate = learning_rate(share * num_steps, schedule)  # a fraction: a run limited by time
    assert 0 <= rate <= 2.0
    assert all(learning_rate(step, schedule) > 0 for step in range(num_steps))  # no step is wasted


def test_square_root_rule_gives_you_et_als_table():
    # Their table: lr 5/(2^k * 1000) with k from 3 to 0 in halves, batch 512 to 32,768.
    for i, batch in enumerate([512, 1024, 2048, 4096, 8192, 16384, 32768]):
        rate = 5 / (2 ** (3 - i / 2) * 1000)
        assert sqrt_scaled_lr(batch, base_lr=5 / (2**1.5 * 1000)) == pytest.approx(rate)
    assert sqrt_scaled_lr(4096) == 0.00176
    assert sqrt_scaled_lr(1024) == pytest.approx(0.00088)


DEPTH = (Stage(0.33, 3), Stage(0.66, 6), Stage(1.0, 12))


@pytest.mark.parametrize(
    ("progress", "depth"), [(0.0, 3), (0.3299, 3), (0.33, 6), (0.65, 6), (0.66, 12), (1.0, 12), (1.5, 12)]
)
def test_stages(progress, depth):
    check_stages(DEPTH, "depth")
    assert value_at(DEPTH, progress) == depth


def test_progress_is_what_ends_the_run_first():
    assert run_progress(25, 100) == 0.25
    assert run_progress(25, 100, seconds=30, max_seconds=60) == 0.5
    assert run_progress(75, 100, seconds=30, max_seconds=60) == 0.75
    assert run_progress(25, 100, seconds=90, max_seconds=60) == 1.0


def test_stages_come_from_plain_config():
    assert build(Stage, {"until": "0.5", "value": "6"}) == Stage(0.5, 6)
    with pytest.raises(ConfigError, match="unknown key; did you mean 'value'"):
        build(Stage, {"until": 0.5, "vlaue": 6})


@given(
    st.floats(0, 1), st.floats(0.01, 1), st.sampled_from(["polynomial", "cosine"]), st.floats(0, 1), st.integers(0, 20)
)
def test_the_rate_falls_in_the_last_share_of_the_run_only(progress, share, shape, end, warmup):
    schedule = LearningRate(peak=1.0, num_steps=100, warmup_steps=warmup, end=end, shape=shape, decay_share=share)
    step = warmup + progress * (100 - warmup)
    rate = learning_rate(step, schedule)
    assert end - 1e-12 <= rate <= 1.0
    if progress <= 1 - share - 1e-9 and step >= warmup:
        assert rate == 1.0
    whole = LearningRate(peak=1.0, num_steps=100, warmup_steps=warmup, end=end, shape=shape)
    assert rate >= learning_rate(step, whole) - 1e-12
    assert learning_rate(100, schedule) == pytest.approx(end)


@given(st.integers(0, 200), st.floats(0, 200), st.integers(0, 200))
def test_progress_is_that_of_the_budget_that_ends_first(step, seconds, tokens):
    found = run_progress(step, 100, seconds, 100.0, tokens, 100)
    assert found == min(1.0, max(step, seconds, tokens) / 100)
    assert run_progress(step, 100) == min(1.0, step / 100)


def test_rate_stages_hold_shares():
    stages = (RateStage(0.5, 0.3), RateStage(1.0, 0.15))
    assert [value_at(stages, share, 0.2) for share in (0.0, 0.49, 0.5, 1.0)] == [0.3, 0.3, 0.15, 0.15]
    assert value_at((), 0.5, 0.2) == 0.2


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "depth: needs at least one stage"),
        (
            (Stage(0.5, 3), Stage(0.5, 6), Stage(1.0, 9)),
            r"depth\[1\]\.until: must be > 0\.5, the stage before it, got 0\.5",
        ),
        ((Stage(0.5, 3), Stage(0.9, 6)), r"depth\[1\]\.until: the last stage must end at 1\.0, got 0\.9"),
    ],
)
def test_stages_that_do_not_cover_the_run(stages, message):
    with pytest.raises(ConfigError, match=message):
        check_stages(stages, "depth")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"peak": 0}, r"^optim\.lr \(peak\): must be > 0"),
        ({"peak": float("inf")}, r"optim\.lr \(peak\): must be > 0"),
        ({"peak": float("nan")}, "peak: expected a number, got nan"),
        ({"end": 1.0}, r"optim\.end_lr \(end\): must be between 0 and optim\.lr 0\.00176, got 1\.0"),
        ({"num_steps": 0}, r"^steps \(num_steps\): must be >= 1"),
        ({"warmup_steps": -1}, r"optim\.warmup_steps: must be >= 0"),
        (
            {"num_steps": 100, "warmup_steps": 101},
            "must be <= the 100 steps of the run, got 101; lower it, or raise steps",
        ),
        ({"shape": "linear"}, "not one of: polynomial, cosine, constant"),
        ({"power": 0}, r"optim\.power: must be > 0"),
    ],
)
def test_mistakes_are_named(values, message):
    with pytest.raises(ConfigError, match=message):
        build(LearningRate, values)
    with pytest.raises(ConfigError, match="until: must be a share of the run, > 0 and <= 1, got 0"):
        Stage(0.0, 3)
    with pytest.raises(ConfigError, match="value: must be >= 1"):
        Stage(1.0, 0)
    with pytest.raises(ConfigError, match="batch"):
        sqrt_scaled_lr(0)


def test_an_exit_counts_as_much_as_it_is_deep():
    assert loss_shares((3, 6, 12)) == {3: 3 / 21, 6: 6 / 21, 12: 12 / 21}
    assert loss_shares((3, 6, 12), (1, 1, 2)) == {3: 0.25, 6: 0.25, 12: 0.5}


def test_a_stage_of_fewer_layers_has_fewer_exits_and_ends_with_its_own_depth():
    assert loss_shares((3, 6, 12), deepest=6) == {3: 3 / 9, 6: 6 / 9}
    assert loss_shares((3, 6, 12), deepest=4) == {3: 3 / 7, 4: 4 / 7}
    assert loss_shares((3, 6, 12), (1, 1, 2), deepest=4) == {3: 1 / 3, 4: 2 / 3}


def test_depths_are_drawn_by_their_shares_and_by_the_step_alone():
    shares = {1: 0.2, 2: 0.3, 4: 0.5}
    drawn = [draw_depth(shares, 7, step) for step in range(4000)]
    assert drawn == [draw_depth(shares, 7, step) for step in range(4000)]
    assert drawn != [draw_depth(shares, 8, step) for step in range(4000)]
    for depth, share in shares.items():
        assert Counter(drawn)[depth] / 4000 == pytest.approx(share, abs=0.03)  # four standard errors


def test_weights_that_do_not_fit():
    check_weights((1, 2), (0.5, 2.0))
    with pytest.raises(ConfigError, match="1 for 2 exits"):
        check_weights((1, 2), (1.0,))
    with pytest.raises(ConfigError, match="must be > 0"):
        check_weights((1, 2), (0.0, 1.0))
