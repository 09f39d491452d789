"""Whole runs: results do not depend on how the batch is divided, and no interruption loses them."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest
import torch
from interruptions import killed_at
from safetensors.torch import load_file
from tiny_run import lines, make_corpus, poison, tiny_config

from litebert.config import to_dict, write_yaml
from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.model.heads import MaskedLMModel, PretrainingModel
from litebert.model.hub import load_model, save_model
from litebert.pretraining import evaluate
from litebert.pretraining import run as run_module
from litebert.pretraining.config import load_run_config, machine_preset
from litebert.pretraining.data import Data
from litebert.pretraining.dry_run import describe_run
from litebert.pretraining.objective import run_model, score
from litebert.pretraining.run import Pretraining, pretrain
from litebert.report.runs import read_run
from litebert.report.summary import final_numbers
from litebert.text.store import TokenStore
from litebert.text.tokenizer import Tokenizer
from litebert.train import checkpoint
from litebert.train.trainer import TrainingStoppedError


def weights(run, step: int = 8) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")


def moments(run, step: int = 8) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / "optimizer.safetensors")


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        if tolerance:
            torch.testing.assert_close(tensor, b[name], atol=tolerance, rtol=0, msg=name)
        else:
            assert torch.equal(tensor, b[name]), name


def test_a_run_leaves_a_whole_folder(corpus, tmp_path):
    config = tiny_config(corpus)
    result = pretrain(config, tmp_path / "run", quiet=True)
    assert result.completed
    assert result.step == 8
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "checkpoints",
        "config.yaml",
        "metrics.jsonl",
        "model",
        "run.json",
        "samples.json",
    ]
    model = load_model(result.model)
    assert isinstance(model, PretrainingModel)
    assert_same(dict(model.state_dict()), weights(tmp_path / "run"))
    assert {"README.md", "config.json", "model.safetensors", "spiece.model"} <= set(os.listdir(result.model))
    train, evaluated = lines(tmp_path / "run", "train"), lines(tmp_path / "run", "eval")
    assert [line["step"] for line in train] == list(range(1, 9))
    assert [line["step"] for line in evaluated] == [4, 8]
    expected = {"loss", "mlm_loss", "mlm_accuracy", "sentence_loss", "sentence_accuracy", "lr", "gradient_norm"}
    assert expected | {"tokens", "tokens_per_second", "depth", "length", "seconds"} <= train[0].keys()
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["completed"]
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    # One number, under one name, wherever it is told: the backbone with its pooler.
    told = f"{sum(p.numel() for p in model.encoder.parameters()):,} parameters without heads"
    assert told in (tmp_path / "run" / "model" / "README.md").read_text()
    assert told in next(describe_run(config))
    assert f"{final_numbers(read_run(tmp_path / 'run')).parameters:,} parameters without heads" == told
    samples = json.loads((tmp_path / "run" / "samples.json").read_text())
    assert samples
    assert all("[MASK]" in sample["text"] and len(sample["guesses"][0]) == 5 for sample in samples)
    # The saved config is complete: it makes the same run.
    assert load_run_config(tmp_path / "run" / "config.yaml").steps == 8


def test_in_python_a_run_is_named_as_on_the_command_line(corpus, tmp_path):
    plain = to_dict(tiny_config(corpus, data={"stores": [], "tokenizer": ""}))
    (tmp_path / "run.yaml").write_text(write_yaml(tiny_config(corpus, steps=3)))
    data = {"store": corpus / "store", "tokenizer": str(corpus / "tokenizer")}
    for name, config, more in (
        ("plain", plain, data),
        ("file", tmp_path / "run.yaml", {}),
        ("config", tiny_config(corpus, data={"stores": ["elsewhere"]}), {**data, "store": [corpus / "store"]}),
    ):
        result = pretrain(config, tmp_path / name, quiet=True, **more, settings=["steps=3"], minutes=9, device="cpu")
        assert result.completed
        assert_same(weights(tmp_path / "plain", 3), weights(tmp_path / name, 3))
        assert load_run_config(tmp_path / name / "config.yaml").max_minutes == 9
    with pytest.raises(ConfigError, match="out: must name the run folder"):
        pretrain(plain)
    assert machine_preset("cpu") == "cpu/albert-tiny"


def test_transformers_opens_the_model(corpus, tmp_path):
    import transformers

    result = pretrain(tiny_config(corpus, steps=2), tmp_path, quiet=True)
    model = transformers.AutoModelForPreTraining.from_pretrained(result.model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(result.model)
    inputs = tokenizer("She opened the door.", "Then she went in.", return_tensors="pt")
    assert "token_type_ids" in inputs
    ours = load_model(result.model)(inputs["input_ids"], segment_ids=inputs["token_type_ids"])
    torch.testing.assert_close(model(**inputs).sop_logits, ours.sentence, atol=1e-5, rtol=1e-5)


def test_the_same_seed_gives_the_same_run_and_another_does_not(corpus, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        pretrain(tiny_config(corpus, seed=seed, steps=3), tmp_path / name, quiet=True)
    assert_same(weights(tmp_path / "a", 3), weights(tmp_path / "b", 3))
    different = weights(tmp_path / "c", 3)
    assert any(not torch.equal(tensor, different[name]) for name, tensor in weights(tmp_path / "a", 3).items())


def test_accumulated_equals_one_large_batch(corpus, tmp_path):
    plain = {"model": {"hidden_dropout_prob": 0.0}, "optim": {"name": "adamw", "lr": 0.001}}
    pretrain(tiny_config(corpus, **plain), tmp_path / "one", quiet=True)
    pretrain(tiny_config(corpus, **plain, micro_batch_tokens=128), tmp_path / "four", quiet=True)
    assert_same(weights(tmp_path / "one"), weights(tmp_path / "four"), 1e-6)


def test_two_steps_by_hand(corpus, tmp_path):
    """Mean MLM loss + mean order loss, unweighted; gradients clipped to 1; LAMB as released, biases and norms apart."""
    shape = {"hidden_dropout_prob": 0.0, "initializer_range": 0.3}  # large weights: gradients that have to be clipped
    changes = {"model": shape, "steps": 4, "log": {"checkpoint_every": 1, "keep_last": 4}}
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    data = run_module.Data(run_module.settle(tiny_config(corpus, **changes), tokenizer), tokenizer)
    torch.manual_seed(5)
    model = PretrainingModel(data.config.model)
    save_model(model, tmp_path / "start")
    pretrain(tiny_config(corpus, init_from=str(tmp_path / "start"), **changes), tmp_path / "run", quiet=True)

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    m, v = ({name: torch.zeros_like(tensor) for name, tensor in before.items()} for _ in range(2))
    for step, rate in ((0, 0.005), (1, 0.01)):  # warm-up: a half and the whole of 0.01
        model.load_state_dict(before)
        gradients, norm = gradients_by_hand(model, data.training(64).batch(step))
        assert norm > 1.5
        assert lines(tmp_path / "run", "train")[step]["gradient_norm"] == pytest.approx(norm, rel=1e-4)
        saved, after = moments(tmp_path / "run", step + 1), weights(tmp_path / "run", step + 1)
        for name, gradient in gradients.items():
            gradient = gradient / norm
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient.square()
            torch.testing.assert_close(saved[f"{name}.m"], m[name], atol=1e-6, rtol=1e-4, msg=f"{name}.m")
            torch.testing.assert_close(saved[f"{name}.v"], v[name], atol=1e-9, rtol=1e-4, msg=f"{name}.v")
            # From the saved moments on, since a quotient of two tiny numbers would magnify their rounding.
            update = saved[f"{name}.m"] / (saved[f"{name}.v"].sqrt() + 1e-6)
            if not name.endswith("bias") and ".norm." not in name:
                update = update + 0.01 * before[name]
                update = update * before[name].norm() / update.norm()
            torch.testing.assert_close(after[name], before[name] - rate * update, atol=1e-6, rtol=1e-5, msg=name)
        before = after


def gradients_by_hand(model, batch) -> tuple[dict[str, torch.Tensor], float]:
    """One sequence after the other, unpacked; the gradients of the two means and their common norm."""
    mlm, order = [], []
    for number in range(batch.num_sequences):
        first, last = batch.starts[number : number + 2].tolist()
        here = (batch.labels >= 0) & (batch.masked >= first) & (batch.masked < last)
        ids, segments = (torch.from_numpy(x[first:last]).long()[None] for x in (batch.tokens, batch.segments))
        output = model(ids, positions=torch.from_numpy(batch.masked[here]).long() - first, segment_ids=segments)
        labels = torch.from_numpy(batch.labels[here]).long()
        mlm += (output.masked_lm.logsumexp(-1) - output.masked_lm.gather(1, labels[:, None])[:, 0]).unbind()
        if batch.order[number] >= 0:
            order.append(output.sentence[0].logsumexp(0) - output.sentence[0, int(batch.order[number])])
    model.zero_grad()
    (torch.stack(mlm).mean() + torch.stack(order).mean()).backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return gradients, float(torch.stack([gradient.norm() for gradient in gradients.values()]).norm())


def torchrun(config, out, folder, processes: int = 2, **options) -> subprocess.Popen:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.yaml").write_text(write_yaml(config))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "litebert", "pretrain", str(folder / "run.yaml"), "--out", str(out)]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return subprocess.Popen(command, **pipes, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_equal_one(corpus, tmp_path, processes):
    config = tiny_config(corpus, model={"hidden_dropout_prob": 0.0}, optim={"name": "adamw", "lr": 0.001})
    process = torchrun(config, tmp_path / "two", tmp_path, processes)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    pretrain(config, tmp_path / "one", quiet=True)
    assert_same(weights(tmp_path / "one"), weights(tmp_path / "two"), 1e-6)
    one, two = lines(tmp_path / "one", "train"), lines(tmp_path / "two", "train")
    for a, b in zip(one, two, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
        assert a["tokens"] == b["tokens"]
    for a, b in zip(lines(tmp_path / "one", "eval"), lines(tmp_path / "two", "eval"), strict=True):
        assert (a["mlm_count"], a["sentence_count"]) == (b["mlm_count"], b["sentence_count"])
        assert a["mlm_loss"] == pytest.approx(b["mlm_loss"], abs=1e-4)
    assert two[-1]["seconds"] > 0


def test_a_dead_worker_ends_the_run_and_a_restart_goes_on(corpus, tmp_path):
    config = tiny_config(corpus, steps=2000, log={"checkpoint_every": 5, "evaluate_every": 0, "report_every": 5})
    process = torchrun(config, tmp_path / "run", tmp_path)
    try:
        _wait_for(lambda: len(checkpoint.steps(tmp_path / "run")) > 0, 60)
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
        os.kill(int(children.stdout.split()[-1]), signal.SIGKILL)
        process.communicate(timeout=60)
        assert process.returncode != 0
    finally:
        process.kill()
    reached = checkpoint.load(tmp_path / "run").step
    assert reached >= 5
    shorter = dataclasses.replace(config, log=dataclasses.replace(config.log, checkpoint_every=1))
    again = torchrun(shorter, tmp_path / "run", tmp_path)
    try:
        _wait_for(lambda: checkpoint.steps(tmp_path / "run")[-1] > reached + 1, 60)
    finally:
        again.terminate()
        output, _ = again.communicate(timeout=60)
    assert f"resuming at step {reached:,}" in output


def _wait_for(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


STAGES = {
    "depth": [{"until": 0.5, "value": 1}, {"until": 1.0, "value": 2}],
    "length": [{"until": 0.25, "value": 32}, {"until": 1.0, "value": 64}],
}


def test_depth_and_length_schedules(corpus, tmp_path):
    pretrain(tiny_config(corpus, **STAGES), tmp_path, quiet=True)
    train = lines(tmp_path, "train")
    assert [line["depth"] for line in train] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [line["length"] for line in train] == [32, 32, 64, 64, 64, 64, 64, 64]
    assert load_model(tmp_path / "model").config.num_hidden_layers == 2


EXITS = {"model": {"num_hidden_layers": 3}, "exits": [1, 2, 3]}
DEPTHS = [{"until": 0.5, "value": 2}, {"until": 1.0, "value": 3}]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {**STAGES, "optim": {"name": "adamw", "bias_correction": True}},
        EXITS,
        {**EXITS, "depth": DEPTHS, "exit_loss": "random"},
    ],
)
def test_resumed_equals_uninterrupted_bit_for_bit(corpus, tmp_path, more):
    config = tiny_config(corpus, **more)
    pretrain(config, tmp_path / "whole", quiet=True)
    for stop_at in (1, 3, 5):
        with killed_at(stop_at):
            pretrain(config, tmp_path / "cut", quiet=True)
    pretrain(config, tmp_path / "cut", quiet=True)
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "cut"))
    assert_same(moments(tmp_path / "whole"), moments(tmp_path / "cut"))
    whole, cut = lines(tmp_path / "whole", "train"), lines(tmp_path / "cut", "train")
    assert [(line["step"], line["loss"]) for line in whole] == [(line["step"], line["loss"]) for line in cut]
    assert [line["message"] for line in lines(tmp_path / "cut", "event")].count("resumed at step 3") == 2


@pytest.mark.parametrize("objective", ["sop", "none"])
def test_the_loss_of_exits_is_the_sum_of_those_of_shallower_models(corpus, tmp_path, monkeypatch, objective):
    changes = {"model": {"num_hidden_layers": 3, "hidden_dropout_prob": 0.0}, "recipe": {"objective": objective}}
    found = []

    def by_hand(learner, inputs, counts):
        whole = loss(learner, inputs, counts)
        expected = 0.0
        for depth, share in ((1, 1 / 6), (2, 2 / 6), (3, 3 / 6)):
            shape = dataclasses.replace(learner.config.model, num_hidden_layers=depth, exits=())
            plain = type(learner.model)(shape)
            plain.load_state_dict(learner.model.state_dict())
            masked, pairs = counts[:2].unbind()
            totals = score(run_model(plain, inputs), inputs)
            expected += share * (totals.mlm_loss / masked + totals.sentence_loss / pairs.clamp(min=1))
        found.append((whole[0].item(), expected.item()))
        assert torch.equal(whole[1], totals.stacked())  # what is reported is the full depth
        return whole

    loss = Pretraining.loss
    monkeypatch.setattr(Pretraining, "loss", by_hand)
    pretrain(tiny_config(corpus, **changes, exits=[1, 2, 3], steps=3), tmp_path, quiet=True)
    assert len(found) >= 3
    for whole, expected in found:
        assert whole == pytest.approx(expected, rel=1e-5)
    assert load_model(tmp_path / "model").config.exits == (1, 2, 3)


def test_random_exits_learn_one_after_another_and_are_scored_at_full_depth(corpus, tmp_path, monkeypatch):
    seen = []

    def watch(model, inputs):
        seen.append((model.training, len(model.encoder.plan)))
        return run_model(model, inputs)

    monkeypatch.setattr(run_module, "run_model", watch)
    monkeypatch.setattr(evaluate, "run_model", watch)
    pretrain(tiny_config(corpus, **EXITS, exit_loss="random", steps=12), tmp_path, quiet=True)
    assert {depth for training, depth in seen if training} == {1, 2, 3}
    assert {depth for training, depth in seen if not training} == {3}


def test_the_log_of_a_resumed_run_is_that_of_the_uninterrupted(corpus, tmp_path, monkeypatch):
    """Reports that span the interruption, events at the step of the checkpoint, and the scores of the end."""
    log = {"report_every": 5, "evaluate_every": 4, "checkpoint_every": 4}
    config = tiny_config(corpus, **STAGES, steps=16, log=log, guard={"on_nan": "skip"})
    poison(monkeypatch, {8})
    pretrain(config, tmp_path / "whole", quiet=True)
    for stop_at in (6, 9, 9, 13):  # at 8 a stage begins and a step is skipped, both after the checkpoint of step 8
        with killed_at(stop_at):
            pretrain(config, tmp_path / "cut", quiet=True)
    pretrain(config, tmp_path / "cut", quiet=True)
    assert_same(weights(tmp_path / "whole", 16), weights(tmp_path / "cut", 16))
    assert pretrain(config, tmp_path / "cut", quiet=True).completed  # once more: nothing is left to do
    for kind in ("train", "eval", "event"):
        whole, cut = ([without_clocks(line) for line in lines(tmp_path / name, kind)] for name in ("whole", "cut"))
        assert [line for line in cut if not line.get("lasting")] == whole, kind
    messages = [line["message"] for line in lines(tmp_path / "cut", "event")]
    resumed = [message for message in messages if message.startswith("resumed")]
    assert resumed == [f"resumed at step {step}" for step in (4, 8, 8, 12, 16)]


def without_clocks(line: dict) -> dict:
    clocks = ("time", "seconds", "took", "tokens_per_second", "share_of_peak")
    return {name: value for name, value in line.items() if name not in clocks}


def start(config, out, folder, *more: str) -> subprocess.Popen:
    (folder / "run.yaml").write_text(write_yaml(config))
    command = [sys.executable, "-m", "litebert", "pretrain", str(folder / "run.yaml"), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_killed_at_random_moments_loses_nothing(corpus, tmp_path):
    """Real SIGKILLs at random moments of a real process; what is resumed ends as if nothing had happened."""
    config = tiny_config(corpus, steps=40, log={"checkpoint_every": 4, "evaluate_every": 0})
    pretrain(config, tmp_path / "whole", quiet=True)
    for delay in (0.05, 0.31):
        process = start(config, tmp_path / "cut", tmp_path)
        known = checkpoint.steps(tmp_path / "cut")[-1:] or [0]
        _wait_for(lambda known=known: (checkpoint.steps(tmp_path / "cut")[-1:] or [0]) > known, 60)
        time.sleep(delay)
        process.kill()
        process.communicate()
    pretrain(config, tmp_path / "cut", quiet=True)
    assert_same(weights(tmp_path / "whole", 40), weights(tmp_path / "cut", 40))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_and_exit_cleanly(corpus, tmp_path, number):
    config = tiny_config(corpus, steps=5000, log={"checkpoint_every": 0, "evaluate_every": 0})
    process = start(config, tmp_path / "run", tmp_path)
    _wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists() and lines(tmp_path / "run", "train"), 60)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert "Traceback" not in output
    saved = checkpoint.load(tmp_path / "run")
    assert saved.step == lines(tmp_path / "run", "train")[-1]["step"]
    assert not (tmp_path / "run" / "model").exists()


def test_a_nan_step_is_skipped_and_said(corpus, tmp_path, monkeypatch):
    poison(monkeypatch, {2})
    result = pretrain(tiny_config(corpus), tmp_path, quiet=True)
    assert result.completed
    messages = [line["message"] for line in lines(tmp_path, "event")]
    assert any("loss nan at step 2" in message and "skipped" in message for message in messages)
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path).values())


def test_a_nan_step_rolls_back_and_leaves_the_batch_out(corpus, tmp_path, monkeypatch):
    poison(monkeypatch, {5})
    result = pretrain(tiny_config(corpus, guard={"on_nan": "rollback"}), tmp_path, quiet=True)
    assert result.completed
    messages = [line["message"] for line in lines(tmp_path, "event")]
    assert sum("back to the last checkpoint" in message for message in messages) == 1
    assert [line["step"] for line in lines(tmp_path, "train")] == [1, 2, 3, 4, 5, 7, 8]  # batch 5 was left out


def test_a_run_that_does_not_begin_to_read_says_so_once(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluate, "PATIENCE", 0)
    log = {"evaluate_every": 2, "evaluate_batches": 40}
    pretrain(tiny_config(corpus, optim={"lr": 1e-9, "warmup_steps": 1}, log=log), tmp_path / "stuck")
    [said] = [
        line["message"] for line in lines(tmp_path / "stuck", "event") if "most frequent token" in line["message"]
    ]
    assert said.startswith(
        "since step 2 the model fills masks no better than by always predicting the most frequent token ("
    )
    assert "Lower optim.lr (1e-09), lengthen optim.warmup_steps (1)" in said
    assert capsys.readouterr().out.count("has collapsed") == 1


def test_a_run_that_cannot_be_saved_stops_with_advice(corpus, tmp_path, monkeypatch):
    poison(monkeypatch, set(range(8)))
    with pytest.raises(TrainingStoppedError, match="Lower the learning rate"):
        pretrain(tiny_config(corpus, guard={"max_skips": 2}), tmp_path, quiet=True)


def test_a_spike_is_caught(corpus, tmp_path, monkeypatch):
    poison(monkeypatch, {6}, value=50.0)
    guard = {"window": 5, "min_history": 3, "spike_factor": 3.0}
    pretrain(tiny_config(corpus, guard=guard), tmp_path, quiet=True)
    assert any("at step 6, the median is" in line["message"] for line in lines(tmp_path, "event"))


def test_a_corrupt_last_checkpoint_falls_back_and_says_so(corpus, tmp_path, capsys):
    config = tiny_config(corpus)
    pretrain(config, tmp_path / "whole", quiet=True)
    pretrain(config, tmp_path / "run", quiet=True)
    path = tmp_path / "run" / "checkpoints" / "step-00000008" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    pretrain(config, tmp_path / "run")
    shown = capsys.readouterr().out
    assert "using the previous one" in shown
    assert "resuming at step 6" in shown
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "run"))


def test_a_half_written_checkpoint_is_not_taken_for_whole(corpus, tmp_path):
    config = tiny_config(corpus)
    pretrain(config, tmp_path, quiet=True)
    (tmp_path / "checkpoints" / "step-00000008" / "checksums.json").unlink()
    assert checkpoint.load(tmp_path).step == 6
    assert pretrain(config, tmp_path, quiet=True).completed


def test_a_full_disk_does_not_end_the_run(corpus, tmp_path, monkeypatch):
    original = checkpoint._write_tensors
    failures = []

    def full(path, tensors):
        if "step-00000003" in str(path):
            failures.append(path)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        original(path, tensors)

    monkeypatch.setattr(checkpoint, "_write_tensors", full)
    result = pretrain(tiny_config(corpus), tmp_path / "go", quiet=True)
    assert result.completed
    assert failures
    assert checkpoint.steps(tmp_path / "go") == [6, 8]
    assert any("The run continues" in line["message"] for line in lines(tmp_path / "go", "event"))
    with pytest.raises(checkpoint.CheckpointWriteError, match="step-00000003"):
        pretrain(tiny_config(corpus, log={"on_write_error": "stop"}), tmp_path / "stop", quiet=True)


def test_a_changed_config_on_resume_is_refused_with_the_difference(corpus, tmp_path):
    pretrain(tiny_config(corpus), tmp_path, quiet=True)
    with pytest.raises(ConfigError, match=r"optim.lr: 0.01 -> 0.02"):
        pretrain(tiny_config(corpus, optim={"lr": 0.02}), tmp_path, quiet=True)
    # What changes nothing about the learning may change.
    again = tiny_config(corpus, log={"report_every": 4}, micro_batch_tokens=128)
    assert pretrain(again, tmp_path, quiet=True).completed


def test_another_tokenizer_on_resume_is_refused(corpus, tmp_path):
    pretrain(tiny_config(corpus, steps=3), tmp_path / "run", quiet=True)
    (tmp_path / "other").mkdir()
    other = make_corpus(tmp_path / "other", documents=130)
    config = tiny_config(other, steps=3)
    with pytest.raises(ConfigError, match="another tokenizer"):
        pretrain(config, tmp_path / "run", quiet=True)


def test_resume_modes(corpus, tmp_path):
    with pytest.raises(ConfigError, match="no checkpoint to resume from"):
        pretrain(tiny_config(corpus), tmp_path / "x", resume="must", quiet=True)
    pretrain(tiny_config(corpus, steps=3), tmp_path / "x", resume="never", quiet=True)
    with pytest.raises(ConfigError, match="already holds a run; choose another folder"):
        pretrain(tiny_config(corpus, steps=3), tmp_path / "x", resume="never", quiet=True)
    assert pretrain(tiny_config(corpus, steps=3), tmp_path / "x", resume="must", quiet=True).completed


def test_a_config_written_by_hand_is_not_overwritten(corpus, tmp_path):
    config = tiny_config(corpus, steps=3)
    pretrain(config, tmp_path / "run", quiet=True)
    written = (tmp_path / "run" / "config.yaml").read_text()
    path = tmp_path / "mine" / "config.yaml"
    path.parent.mkdir()
    path.write_text(f"# why this run\n{written}")
    with pytest.raises(ConfigError, match=r"config\.yaml: not written by a run, and a run would overwrite it"):
        pretrain(config, path.parent, quiet=True)
    assert path.read_text().startswith("# why this run")
    path.write_text(written)  # as a run leaves it that died before it wrote anything else
    assert pretrain(config, path.parent, quiet=True).completed


@pytest.mark.parametrize("content", ["", "seed: 2001-13-45", "[" * 3000, "steps: 4", "optim: {lr: 0.5}"])
def test_a_damaged_config_file_does_not_stop_a_run(corpus, tmp_path, content):
    """The checkpoint knows the config too, and has checksums."""
    pretrain(tiny_config(corpus, steps=3), tmp_path / "run", quiet=True)
    file = tmp_path / "run" / "config.yaml"
    whole = file.read_text()
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"another config:\n  optim\.lr: 0\.01 -> 0\.5"):
        pretrain(tiny_config(corpus, steps=3, optim={"lr": 0.5}), tmp_path / "run", quiet=True)
    assert pretrain(tiny_config(corpus, steps=3), tmp_path / "run", quiet=True).completed
    assert file.read_text() == whole


def test_what_a_kill_left_behind_is_removed(corpus, tmp_path):
    (tmp_path / "run" / ".model.abcd1234.tmp").mkdir(parents=True)
    (tmp_path / "run" / ".run.json.abcd1234.tmp").write_text("{")
    pretrain(tiny_config(corpus, steps=2), tmp_path / "run", quiet=True)
    assert list((tmp_path / "run").rglob("*.tmp")) == []


def test_without_a_sentence_objective(corpus, tmp_path):
    result = pretrain(tiny_config(corpus, recipe={"objective": "none"}), tmp_path, quiet=True)
    assert isinstance(load_model(result.model), MaskedLMModel)
    assert "sentence_accuracy" not in lines(tmp_path, "train")[0]


def test_next_sentence_prediction(corpus, tmp_path):
    pretrain(tiny_config(corpus, recipe={"objective": "nsp"}, steps=2), tmp_path, quiet=True)
    assert "sentence_accuracy" in lines(tmp_path, "train")[0]


def test_continued_pretraining_and_a_deeper_model_from_a_shallower_one(corpus, tmp_path):
    first = pretrain(tiny_config(corpus, steps=3), tmp_path / "first", quiet=True)
    config = tiny_config(corpus, init_from=str(first.model), model={"num_hidden_layers": 6}, steps=2)
    config = run_module.settle(config, run_module.load_tokenizer(config))
    model, _ = run_module.make_model(config)
    assert_same(dict(model.state_dict()), weights(tmp_path / "first", 3))
    assert len(model.encoder.plan) == 6
    assert pretrain(config, tmp_path / "second", quiet=True).completed
    wider = tiny_config(corpus, init_from=str(first.model), model={"hidden_size": 32})
    with pytest.raises(ConfigError, match="does not fit the model of this config"):
        pretrain(wider, tmp_path / "third", quiet=True)
    other = PretrainingModel(dataclasses.replace(config.model, vocab_size=77))
    save_model(other, tmp_path / "other")
    with pytest.raises(ConfigError, match="77 pieces"):
        pretrain(tiny_config(corpus, init_from=str(tmp_path / "other")), tmp_path / "fourth", quiet=True)


def test_wall_clock_budget(corpus, tmp_path, capsys):
    config = tiny_config(
        corpus,
        steps=100_000,
        max_minutes=0.02,
        optim={"warmup_steps": 50_000},
        log={"evaluate_every": 0, "checkpoint_every": 0},
    )
    result = pretrain(config, tmp_path)
    assert result.completed
    assert "the run ended during the warm-up of 50,000 steps" in capsys.readouterr().out
    assert 1 < result.step < 100_000
    assert lines(tmp_path, "train")[-1]["lr"] < 0.005  # the schedule followed the clock


def test_tensorboard(corpus, tmp_path):
    pretrain(tiny_config(corpus, steps=2, log={"tensorboard": True}), tmp_path, quiet=True)
    assert list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"stores": []}}, "data.stores: name at least one token store"),
        ({"data": {"tokenizer": ""}}, "data.tokenizer: name the tokenizer"),
        ({"data": {"stores": ["nowhere"]}}, "nowhere"),
    ],
)
def test_missing_data(corpus, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain(tiny_config(corpus, **changes), tmp_path / "x", quiet=True)


def test_another_corpus_on_resume_is_refused_and_a_moved_one_is_not(corpus, tmp_path):
    pretrain(tiny_config(corpus, steps=3), tmp_path / "run", quiet=True)
    moved = tmp_path / "moved"
    shutil.copytree(corpus / "store", moved)
    assert pretrain(tiny_config(corpus, steps=3, data={"stores": [str(moved)]}), tmp_path / "run", quiet=True).completed
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    TokenStore.write(tmp_path / "other", [[[7, 8, 9], [10, 11]]] * 200, tokenizer.fingerprint, tokenizer.vocab_size)
    with pytest.raises(ConfigError, match="trained on stores with other content than"):
        pretrain(tiny_config(corpus, steps=3, data={"stores": [str(tmp_path / "other")]}), tmp_path / "run", quiet=True)


def test_a_corpus_of_the_same_size_and_other_content_on_resume_is_refused(corpus, tmp_path):
    store, tokenizer = TokenStore.open(corpus / "store"), Tokenizer.load(corpus / "tokenizer")
    documents = [[sentence.tolist() for sentence in document] for document in store.documents()]
    documents[5][0][0] = 7 if documents[5][0][0] != 7 else 8
    TokenStore.write(tmp_path / "other", documents, tokenizer.fingerprint, tokenizer.vocab_size)
    other = tiny_config(corpus, steps=3, data={"stores": [str(tmp_path / "other")]})
    pretrain(tiny_config(corpus, steps=3), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match=r"trained on stores with other content than .*"):
        pretrain(other, tmp_path / "run", quiet=True)
    data = Data(other, tokenizer)  # a checkpoint of litebert 0.1 knows the counts alone
    data.check_stores([fingerprint[:3] for fingerprint in data.fingerprints()], tmp_path)
    for wrong in (None, [], [[1, 2, 3]], [[*data.fingerprints()[0][:3], "0"]]):
        with pytest.raises(ConfigError, match="trained on stores with other content than"):
            data.check_stores(wrong, tmp_path)


def test_damaged_tokens_do_not_train(corpus, tmp_path):
    shutil.copytree(corpus / "store", tmp_path / "store")
    part = tmp_path / "store" / "part-00000.arrow"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    with pytest.raises(DataError, match=r"part-00000\.arrow: damaged within the .* tokens from byte"):
        pretrain(tiny_config(corpus, data={"stores": [str(tmp_path / "store")]}), tmp_path / "run", quiet=True)


def test_row_length_is_part_of_the_run(corpus, tmp_path):
    """Without a row length of its own, a run's rows follow its micro-batch: another one would be another run."""
    plain = {"data": {"row_tokens": None}, "steps": 3}
    pretrain(tiny_config(corpus, **plain), tmp_path, quiet=True)
    with pytest.raises(ConfigError, match=r"data.row_tokens: 512 -> 128"):
        pretrain(tiny_config(corpus, **plain, micro_batch_tokens=128), tmp_path, quiet=True)


def test_no_whole_checkpoint_left_is_an_error_not_a_fresh_start(corpus, tmp_path):
    pretrain(tiny_config(corpus), tmp_path, quiet=True)
    for path in tmp_path.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="none of its checkpoints"):
        pretrain(tiny_config(corpus), tmp_path, quiet=True)
    assert lines(tmp_path, "train")


def test_two_runs_in_one_folder_are_refused(corpus, tmp_path):
    config = tiny_config(corpus, steps=5000, log={"checkpoint_every": 0, "evaluate_every": 0})
    process = start(config, tmp_path / "run", tmp_path)
    try:
        _wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), 60)
        with pytest.raises(ConfigError, match="another process is training in this folder"):
            pretrain(config, tmp_path / "run", quiet=True)
    finally:
        process.kill()
        process.communicate()


def test_sigterm_to_the_whole_group_saves_too(corpus, tmp_path):
    """As a scheduler sends it: the batch worker gets it as well, and must not die first."""
    config = tiny_config(corpus, steps=5000, data={"workers": 1}, log={"checkpoint_every": 0, "evaluate_every": 0})
    (tmp_path / "run.yaml").write_text(write_yaml(config))
    command = [sys.executable, "-m", "litebert", "pretrain", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "run")]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process = subprocess.Popen(command, start_new_session=True, **pipes)
    _wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists() and lines(tmp_path / "run", "train"), 60)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert checkpoint.load(tmp_path / "run").step >= 1


def test_a_closed_terminal_saves_too(corpus, tmp_path):
    """SIGHUP to the run and its batch worker, and nothing can be printed any more."""
    config = tiny_config(corpus, steps=5000, data={"workers": 1}, log={"checkpoint_every": 0, "evaluate_every": 0})
    (tmp_path / "run.yaml").write_text(write_yaml(config))
    command = [sys.executable, "-m", "litebert", "pretrain", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "run")]
    terminal, side = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(side)
    os.set_blocking(terminal, False)

    def trains() -> bool:
        with contextlib.suppress(OSError):
            os.read(terminal, 65536)  # a full terminal would hold the run up
        return (tmp_path / "run" / "metrics.jsonl").exists() and bool(lines(tmp_path / "run", "train"))

    _wait_for(trains, 60)
    os.close(terminal)
    process.wait(timeout=60)
    saved = checkpoint.load(tmp_path / "run")
    assert saved.step == lines(tmp_path / "run", "train")[-1]["step"]
    assert "stopped by a signal" in lines(tmp_path / "run", "event")[-1]["message"]


def test_another_number_of_heads_is_no_start(corpus, tmp_path):
    first = pretrain(tiny_config(corpus, steps=2), tmp_path / "first", quiet=True)
    config = tiny_config(corpus, init_from=str(first.model), model={"num_attention_heads": 4})
    with pytest.raises(ConfigError, match="num_attention_heads 2 there, 4 here"):
        pretrain(config, tmp_path / "second", quiet=True)


def test_a_skipped_step_does_not_spoil_the_report(corpus, tmp_path, monkeypatch):
    poison(monkeypatch, {1})
    pretrain(tiny_config(corpus, log={"report_every": 4}), tmp_path, quiet=True)
    assert all(line["loss"] is not None for line in lines(tmp_path, "train"))
