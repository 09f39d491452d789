"""Run configs: presets at the paper's recipe, precedence, and mistakes that name their key."""

from __future__ import annotations

import pytest

from litebert.errors import ConfigError
from litebert.pretraining.config import RUN_PRESETS, RunConfig, load_run_config, run_config
from litebert.train.schedule import learning_rate


@pytest.mark.parametrize("name", [name for name in RUN_PRESETS if name.startswith("paper/")])
def test_the_papers_recipe(name):
    config = load_run_config(name)
    assert config.optim.name == "lamb"
    assert (config.steps, config.batch_tokens) == (125_000, 4096 * 512)
    assert (config.learning_rate().peak, config.learning_rate().warmup_steps) == (0.00176, 3125)
    assert (config.optim.clip, config.optim.weight_decay, config.optim.eps) == (1.0, 0.01, 1e-6)
    assert (config.optim.beta1, config.optim.beta2, config.optim.end_lr, config.optim.power) == (0.9, 0.999, 0.0, 1.0)
    assert not config.optim.bias_correction
    assert (config.recipe.masking, config.recipe.max_length, config.recipe.objective) == ("ngram", 512, "sop")
    assert not config.depth


@pytest.mark.parametrize("name", RUN_PRESETS)
def test_every_preset_is_a_valid_run(name):
    config = load_run_config(name)
    assert run_config(name) == config
    assert config.micro_batches(1) >= 1
    schedule = config.learning_rate()
    assert learning_rate(schedule.warmup_steps, schedule) == pytest.approx(schedule.peak, rel=0.01)


def test_precedence_is_defaults_preset_file_settings(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("preset: cpu/albert-tiny\nsteps: 77\noptim: {lr: 5e-4}\nrecipe: {max_length: 64}\n")
    config = load_run_config(path, ["steps=78", "model.hidden_dropout_prob=0.1"])
    assert config.steps == 78  # the setting over the file
    assert config.optim.lr == 5e-4  # the file over the preset
    assert config.optim.name == "adamw"  # the preset over the default
    assert config.model.hidden_size == 312
    assert config.model.hidden_dropout_prob == 0.1
    assert config.recipe.max_length == 64
    assert config.seed == 0


def test_a_preset_with_another_model_leaves_its_depths_behind():
    config = run_config({"preset": "gpu/albert-base", "model": {"preset": "albert-small"}})
    assert (config.model.num_hidden_layers, config.depth) == (6, ())


def test_named_recipes():
    config = run_config({"recipe": {"name": "google", "max_length": 128}})
    assert (config.recipe.max_predictions, config.recipe.max_length) == (20, 128)


def test_square_root_rule_and_warm_up_share():
    schedule = run_config({"batch_tokens": 1024 * 512, "steps": 4000}).learning_rate()
    assert schedule.peak == pytest.approx(0.00088)
    assert schedule.warmup_steps == 100


def test_micro_batches_divide_the_rows_of_a_process():
    config = run_config({"batch_tokens": 65_536, "micro_batch_tokens": 16_384})
    assert [config.micro_batches(world) for world in (1, 2, 4, 8, 16)] == [4, 2, 1, 1, 1]
    # Never more than asked for: three rows at most two at a time are three micro-batches.
    assert run_config({"batch_tokens": 3 * 4096, "micro_batch_tokens": 2 * 4096}).micro_batches(1) == 3
    with pytest.raises(ConfigError, match="cannot be divided equally among 3 processes"):
        config.micro_batches(3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"preset": "gpu/albert-bse"}, r"preset: no run preset 'gpu/albert-bse'; did you mean 'gpu/albert-base'"),
        ({"model": {"preset": "albert-bse"}}, r"model: no preset 'albert-bse'"),
        ({"model": {"preset": "albert-base", "heads": 3}}, r"model: heads: unknown model field"),
        ({"model": {"hidden_size": 100}}, r"model: num_attention_heads: must divide hidden_size 100, got 12"),
        ({"recipe": {"name": "papper"}}, r"recipe: .*papper"),
        ({"optim": {"lr": "fast"}}, r"optim.lr: expected a number"),
        ({"optim": {"name": "lamp"}}, r"optim.name: 'lamp' is not one of: lamb, adamw, muon; did you mean 'lamb'"),
        ({"optim": {"name": "adamw"}}, r"optim.lr: needed for adamw"),
        ({"step": 5}, r"step: unknown key; did you mean 'steps'"),
        ({"steps": 0}, r"steps: must be >= 1"),
        ({"max_minutes": 0}, r"max_minutes: must be > 0"),
        ({"batch_tokens": 5000}, r"batch_tokens: 5000 is not a multiple of 4096"),
        ({"batch_tokens": 256, "data": {"row_tokens": 512}}, r"batch_tokens: 256 is less than a row of 512 tokens"),
        ({"depth": [{"until": 1.0, "value": 6}]}, r"depth: the last stage has 6 applications, the model 12"),
        ({"depth": [{"until": 0.5, "value": 12}]}, r"the last stage must end at 1.0"),
        (
            {"model": {"num_hidden_groups": 3}, "depth": [{"until": 0.5, "value": 2}, {"until": 1.0, "value": 12}]},
            r"depth: must be >= num_hidden_groups 3, got 2",
        ),
        (
            {"length": [{"until": 0.5, "value": 4}, {"until": 1.0, "value": 512}]},
            r"max_length: must be between 8 and 4096, got 4",
        ),
        ({"optim": {"clip": -1}}, r"optim: clip: must be >= 0"),
        ({"seed": -1}, r"seed: must be >= 0"),
        ({"batch_tokens": 0}, r"batch_tokens: must be >= 1"),
        ({"preset": ["a"]}, r"preset: no run preset"),
        ({"recipe": {"max_length": 1024}}, r"recipe.max_length: 1024 tokens are more than the model's"),
        ({"data": {"row_tokens": 256}}, r"data.row_tokens: 256 cannot hold a sequence of 512"),
        ({"data": {"stores": ["a"], "weights": [1, 2]}}, r"weights: 2 weights for 1 stores"),
        ({"steps": 10, "optim": {"warmup_steps": 20}}, r"warmup_steps: must be <= the 10 steps of the run, got 20"),
    ],
)
def test_mistakes_name_their_key(data, message):
    with pytest.raises(ConfigError, match=message):
        run_config(data)


def test_what_is_neither_a_file_nor_a_preset(tmp_path):
    with pytest.raises(ConfigError, match="not a YAML file or a preset; did you mean 'gpu/albert-base'"):
        load_run_config("gpu/albert-bas")
    (tmp_path / "config.yaml").touch()
    with pytest.raises(ConfigError, match=r"not a YAML file or a preset; did you mean .*config\.yaml\?"):
        load_run_config(tmp_path)
    with pytest.raises(ConfigError, match="no such config file"):
        load_run_config(tmp_path / "missing.yaml")
    (tmp_path / "bad.yaml").write_text("steps: many")
    with pytest.raises(ConfigError, match=r"bad.yaml: steps: expected a whole number, got 'many'"):
        load_run_config(tmp_path / "bad.yaml")


def test_the_default_config_is_the_papers_base():
    assert RunConfig().learning_rate().peak == pytest.approx(0.00176)
