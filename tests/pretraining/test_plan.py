"""The cost model: equal to what was measured on one GPU, and sane beyond."""

from __future__ import annotations

import pytest
from tiny_run import tiny_config

from litebert.errors import ConfigError
from litebert.model.config import preset
from litebert.model.count import count_parameters
from litebert.pretraining import plan
from litebert.pretraining.plan import describe_run, estimate_seconds, load_rates, predict, random_inputs
from litebert.train.device import DeviceConfig, open_device


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("name", ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"])
def test_one_gpu_is_what_was_measured(name, length):
    rates = load_rates()
    [measured] = [rate for rate in rates.rates if (rate.model, rate.length) == (name, length)]
    prediction = predict(preset(name), gpus=1, batch_tokens=4096 * length, steps=1, length=length)
    assert prediction.tokens_per_second == pytest.approx(measured.tokens_per_second, rel=0.02)
    assert prediction.communication_seconds == 0


def test_more_gpus_cost_communication():
    config = preset("albert-xlarge")
    one, eight = (predict(config, gpus, 4096 * 512, 125_000, bandwidth=50e9) for gpus in (1, 8))
    sent = 2 * 7 / 8 * 4 * count_parameters(config).with_heads  # a ring all-reduce of fp32
    assert eight.communication_seconds == pytest.approx(sent / 50e9)
    assert eight.seconds_per_step == pytest.approx(one.seconds_per_step / 8 + sent / 50e9)
    assert eight.gpu_hours > one.gpu_hours
    assert eight.days < one.days / 7


def test_widths_between_the_measured_ones_are_interpolated():
    rates = load_rates()
    shares = [rates.share(size, 512) for size in (256, 768, 900, 1024, 3000, 4096, 8192)]
    assert shares == sorted(shares)
    assert shares[0] == shares[1]
    assert shares[-1] == shares[-2]


def test_impossible_plans_are_refused():
    with pytest.raises(ConfigError, match="--gpus"):
        predict(preset("albert-base"), 0, 4096, 1)
    with pytest.raises(ConfigError, match="cannot be shared by 64 GPUs"):
        predict(preset("albert-base"), 64, 32, 1)


def test_a_dry_run_says_what_will_happen(tmp_path):
    stages = [{"until": 0.5, "value": 1}, {"until": 1.0, "value": 2}]
    config = tiny_config(tmp_path, depth=stages, max_minutes=1)
    text = "\n".join(describe_run(config))
    wanted = ("parameters", "sop", "lamb", "512 tokens in 1 micro-batches", "1 until 50%", "at most 1 minutes", "time")
    for part in wanted:
        assert part in text, text
    assert str(tmp_path / "store") in text  # it is not there, and that is said


def test_random_inputs_look_like_a_packed_batch():
    device = open_device(DeviceConfig(device="cpu", threads=1))
    inputs = random_inputs(preset("albert-tiny"), 256, 64, 0.15, device)
    assert inputs.starts.tolist() == [0, 64, 128, 192, 256]
    assert len(inputs.masked) == round(0.15 * 256)


def test_the_estimate_counts_stages_and_micro_batches(tmp_path, monkeypatch):
    seconds = {1: 1.0, 2: 3.0}
    monkeypatch.setattr(plan, "time_micro_batch", lambda config, device, depth, tokens: seconds[depth])
    device = open_device(DeviceConfig(device="cpu", threads=1))
    stages = [{"until": 0.25, "value": 1}, {"until": 1.0, "value": 2}]
    config = tiny_config(tmp_path, steps=10, depth=stages, micro_batch_tokens=128)
    assert estimate_seconds(config, device) == pytest.approx(10 * 4 * (0.25 * 1.0 + 0.75 * 3.0))  # 4 micro-batches
