"""Configs and presets: the paper's numbers, precedence, and mistakes that name their key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from litebert.config import build, read_yaml, write_yaml
from litebert.errors import ConfigError
from litebert.finetuning.config import PRESETS, FinetuneConfig, find_preset, finetune_config, pick_preset
from litebert.finetuning.data import settle_task
from litebert.model.config import ModelConfig
from litebert.tasks.task import Task

# Table 14 of the paper, as printed: learning rate, batch, ALBERT dropout, classifier dropout, steps, warm-up, length.
PRINTED = """
CoLA 1.00E-05 16 0 0.1 5336 320 512
STS-B 2.00E-05 16 0 0.1 3598 214 512
SST-2 1.00E-05 32 0 0.1 20935 1256 512
MNLI 3.00E-05 128 0 0.1 10000 1000 512
QNLI 1.00E-05 32 0 0.1 33112 1986 512
QQP 5.00E-05 128 0.1 0.1 14000 1000 512
RTE 3.00E-05 32 0.1 0.1 800 200 512
MRPC 2.00E-05 32 0 0.1 800 200 512
WNLI 2.00E-05 16 0.1 0.1 2000 250 512
SQuAD-1.1 5.00E-05 48 0 0.1 3649 365 384
SQuAD-2.0 3.00E-05 48 0 0.1 8144 814 512
RACE 2.00E-05 32 0.1 0.1 12000 1000 512
"""


@pytest.mark.parametrize("line", PRINTED.strip().splitlines(), ids=lambda line: line.split()[0])
def test_table_14(line):
    task, *numbers = line.split()
    for version in ("v1", "v2"):
        config = finetune_config({"task": task.lower(), "preset": version})
        found = [
            config.optim.lr,
            config.batch,
            config.dropout,
            config.classifier_dropout,
            config.steps,
            config.optim.warmup_steps,
            config.max_length,
        ]
        expected = [float(number) for number in numbers]
        if (task, version) == ("RACE", "v2"):
            expected[0], expected[2] = 1e-5, 0.0  # v1's setting diverges on v2 (the authors' README)
        assert found == expected
        optim = config.optim
        # As released: AdamW without bias correction, a decay that counts from step 0, gradients clipped to 1.
        assert (optim.name, optim.bias_correction, optim.style, optim.shape) == ("adamw", False, "google", "polynomial")
        assert (optim.beta1, optim.beta2, optim.eps, optim.weight_decay, optim.clip) == (0.9, 0.999, 1e-6, 0.01, 1.0)


def test_glue_is_evaluated_as_often_as_the_released_script_saves():
    """run_glue.sh: every 100 steps, QNLI every 200."""
    for task in ("sst-2", "mnli", "cola", "qnli", "qqp", "rte", "sts-b", "mrpc"):
        every = finetune_config({"task": task, "preset": "v2"}).log.evaluate_every
        assert every == (200 if task == "qnli" else 100), task


def test_a_recipe_gives_way_to_what_is_said():
    config = finetune_config({"task": "rte", "preset": "v2", "batch": 8, "optim": {"lr": "5e-6"}})
    assert (config.batch, config.optim.lr, config.optim.warmup_steps, config.preset) == (8, 5e-6, 200, "v2")


def test_epochs_of_ones_own_replace_the_steps_of_a_preset():
    config = finetune_config({"task": "rte", "preset": "v2", "epochs": 2})
    assert config.steps is None
    assert config.num_steps(100) == 7  # 200 examples in batches of 32
    assert config.learning_rate(7).warmup_steps == 1


def test_a_row_can_be_borrowed_and_a_missing_one_says_so():
    assert finetune_config({"task": "classification", "preset": "v2/sst-2"}).steps == 20935
    with pytest.raises(ConfigError, match=r"no row for the task 'classification'.*v2/sst-2"):
        finetune_config({"task": "classification", "preset": "v2"})
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        find_preset("smal", "cola")


def test_auto_picks_by_model_and_machine():
    assert pick_preset(768, on_gpu=True) == "base"
    assert pick_preset(312, on_gpu=True) == "small"
    assert pick_preset(768, on_gpu=False) == "cpu"
    assert finetune_config({}, auto="small").optim.lr == finetune_config({"preset": "small"}).optim.lr


def test_the_windows_of_a_question_overlap_unless_a_stride_is_set():
    model, task = ModelConfig(max_position_embeddings=512), Task("qa", "question-answering", max_length=384)
    settled = settle_task(task, finetune_config({"preset": "cpu"}), model)
    assert (settled.max_length, settled.stride) == (128, None)
    assert settle_task(task, finetune_config({"preset": "cpu", "stride": 100}), model).stride == 100
    assert settle_task(replace(task, stride=90), finetune_config({"preset": "cpu"}), model).stride == 90


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_its_file(name, tmp_path):
    config = finetune_config({"preset": name})
    (tmp_path / "config.yaml").write_text(write_yaml(config), encoding="utf-8")
    again = read_yaml(tmp_path / "config.yaml")
    assert build(FinetuneConfig, again) == config
    assert finetune_config(again) == config


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"epoch": 3}, "epoch: unknown key; did you mean 'epochs'"),
        ({"optim": {"lr": -1}}, "optim.lr"),
        ({"batch": 0}, "batch: must be between 1 and 1,048,576, got 0"),
        ({"steps": 0}, "steps: must be >= 1"),
        ({"epochs": 0}, "epochs: must be > 0"),
        ({"stride": 0}, "stride: must be >= 1"),
        ({"dropout": 1.0}, "dropout: must be >= 0 and < 1"),
        ({"optim": {"freeze": "all"}}, "optim.freeze: 'all' is not one of"),
        ({"optim": {"block_decay": 0}}, "optim: block_decay: must be > 0"),
        ({"optim": {"head_factor": 0}}, "optim: head_factor: must be > 0"),
        ({"log": {"evaluate_every": -1}}, "log: evaluate_every: must be >= 0"),
        ({"log": {"num_evaluations": 0}}, "log: num_evaluations: must be >= 1"),
        ({"data": {"limit": -1}}, "data: limit: must be >= 0"),
        (
            {"steps": 10, "optim": {"warmup_steps": 20}},
            "optim.warmup_steps: must be <= the 10 steps of the run, got 20",
        ),
    ],
)
def test_mistakes_name_their_key(data, message):
    with pytest.raises(ConfigError, match=message):
        finetune_config(data)


def test_a_part_of_a_group_of_settings_leaves_the_rest_at_fine_tunings_own():
    config = finetune_config({"guard": {"max_skips": 3}, "optim": {"beta2": 0.98}, "log": {"report_every": 5}})
    assert (config.guard.max_skips, config.guard.on_spike) == (3, "ignore")
    assert (config.optim.name, config.optim.lr, config.optim.bias_correction) == ("adamw", 2e-5, True)
    assert (config.log.evaluate_every, config.log.checkpoint_minutes, config.log.keep_checkpoints) == (None, 5.0, False)
