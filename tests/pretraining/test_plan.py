"""The cost model: equal to what was measured on one GPU, and sane beyond."""

from __future__ import annotations

import json

import pytest

from litebert.errors import ConfigError
from litebert.model.config import preset
from litebert.model.count import count_parameters
from litebert.pretraining.plan import load_rates, most_gpus, predict_run


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("name", ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"])
def test_one_gpu_is_what_was_measured(name, length):
    rates = load_rates()
    [measured] = [rate for rate in rates.rates if (rate.model, rate.length) == (name, length)]
    prediction = predict_run(preset(name), gpus=1, batch_tokens=4096 * length, steps=1, length=length)
    assert prediction.tokens_per_second == pytest.approx(measured.tokens_per_second, rel=0.02)
    assert prediction.communication_seconds == 0


def test_more_gpus_cost_communication():
    config = preset("albert-xlarge")
    one, eight = (predict_run(config, gpus, 4096 * 512, 125_000, bandwidth=50e9) for gpus in (1, 8))
    sent = 2 * 7 / 8 * 4 * count_parameters(config).with_heads  # a ring all-reduce of fp32
    assert eight.communication_seconds == pytest.approx(sent / 50e9)
    assert eight.seconds_per_step == pytest.approx(one.seconds_per_step / 8 + sent / 50e9)
    assert eight.gpu_hours > one.gpu_hours
    assert eight.days < one.days / 7


def test_communication_ends_what_more_gpus_bring():
    config, batch = preset("albert-base"), 4096 * 512
    count = most_gpus(config, batch, bandwidth=10e9)
    speeds = [
        predict_run(config, gpus, batch, 1, bandwidth=10e9).tokens_per_second for gpus in (count // 2, count, 2 * count)
    ]
    assert speeds[1] >= 1.5 * speeds[0]
    assert speeds[2] < 1.5 * speeds[1]
    assert most_gpus(config, batch, bandwidth=1e9) < count < most_gpus(config, batch, bandwidth=100e9)
    assert most_gpus(config, 4 * 512, bandwidth=1e15) == 4  # a sequence each


def test_widths_between_the_measured_ones_are_interpolated():
    rates = load_rates()
    shares = [rates.share(size, 512) for size in (256, 768, 900, 1024, 3000, 4096, 8192)]
    assert shares == sorted(shares)
    assert shares[0] == shares[1]
    assert shares[-1] == shares[-2]


def test_impossible_plans_are_refused():
    with pytest.raises(ConfigError, match="gpus: must be >= 1"):
        predict_run(preset("albert-base"), 0, 4096, 1)
    with pytest.raises(ConfigError, match="gpus: 5,000, but a step has 4,096 sequences; each GPU needs at least one"):
        predict_run(preset("albert-base"), 5000, 4096 * 512, 1)
    assert predict_run(preset("albert-base"), 4096, 4096 * 512, 1).gpus == 4096


def test_a_small_batch_is_planned_for_as_many_gpus_as_it_feeds(cli):
    rows = json.loads(cli("plan", "albert-base", "--batch", "16", "--json").out)["rows"]
    assert [row["gpus"] for row in rows] == [1, 8]
    refused = cli("plan", "albert-base", "--batch", "16", "--gpus", "64")
    assert (refused.code, refused.err) == (
        2,
        "error: gpus: 64, but a step has 16 sequences; each GPU needs at least one\n",
    )
