"""Calibration: the promise is kept on the examples, as cheaply as the candidates allow, and saved with the model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_tasks import KINDS, make_files, make_model, tiny_config

from litebert.errors import ConfigError
from litebert.finetuning.calibrate import (
    ExitOutputs,
    calibrate,
    cautious_scores,
    choose,
    loss_of,
    luck_of,
    read_exits,
    train_gate,
)
from litebert.finetuning.data import Data
from litebert.finetuning.evaluate import as_requests, open_member, read_labelled
from litebert.finetuning.run import finetune
from litebert.model.hub import load_model, save_model
from litebert.predict.exits import Choice, ExitRule, Signs, Trace, load_rule, simulate
from litebert.predict.predictor import Predictor
from litebert.predict.torch_runtime import TorchRuntime
from litebert.tasks.metrics import goodness, score
from litebert.train.device import DeviceConfig, open_device


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    deep = make_model(folder / "model", num_hidden_layers=3)
    seed = 1 if request.param == "question-answering" else 0  # odd: the head that knows of no answer
    files = make_files(folder / "files", request.param, train=40, dev=30, seed=seed)
    config = tiny_config(deep, files, request.param, exits=[1, 2, 3], steps=30, log={"evaluate_every": 30})
    return finetune(config, folder / "run", quiet=True).model, files["dev"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """One that errs, the more the earlier it answers, with enough examples for halves."""
    folder = tmp_path_factory.mktemp("classifier")
    deep = make_model(folder / "model", num_hidden_layers=3)
    files = make_files(folder / "files", "classification", train=40, dev=200)
    config = tiny_config(deep, files, exits=[1, 2, 3], steps=60, log={"evaluate_every": 60})
    folder = finetune(config, folder / "run", quiet=True).model
    model = load_model(folder)
    torch.manual_seed(0)
    for depth, noise in (("1", 1.0), ("2", 0.5)):
        model.exits[depth].weight.data += noise * torch.randn(model.exits[depth].weight.shape)
    save_model(model, folder)
    return folder, files["dev"]


def outputs_of(model, dev) -> ExitOutputs:
    found = read_labelled(None, model, dev, None, "utf-8")
    opened, task, tokenizer = open_member(model, found.task, None)
    runtime = TorchRuntime(opened, open_device(DeviceConfig(device="cpu", threads=1)))
    return read_exits(runtime, task, Data(task, found, tokenizer).dev[0])


def ask(predictor: Predictor, examples, **more):
    """What a Predictor says of each example, as the task was trained."""
    kind = predictor.task.kind
    if kind == "token-classification":
        return predictor.tag([" ".join(example.words) for example in examples], split="spaces", **more)
    if kind == "multiple-choice":
        columns = zip(*((e.passage, e.question, list(e.options)) for e in examples), strict=True)
        return predictor.choose(*map(list, columns), **more)
    if kind == "question-answering":
        return predictor.answer([e.question for e in examples], [e.context for e in examples], **more)
    return predictor.classify([example.a for example in examples], **more)


@pytest.mark.parametrize("promise", [{"max_loss": 0.0}, {"max_loss": 5.0, "rule": "gate"}, {"speed_up": 1.2}])
def test_the_promise_holds_for_what_the_predictor_says(trained, promise):
    model, dev = trained
    found = calibrate(model, dev, device="cpu", threads=1, **promise)
    if "max_loss" in promise:
        least = found.full_score - promise["max_loss"] / 100 - 1e-9
        assert found.chosen.score >= least
        expected = zip(found.trials, cautious_scores(found.trials, [t.score for t in found.trials]), strict=True)
        assert found.chosen.mean_depth == min(trial.mean_depth for trial, score in expected if score >= least)
    else:
        assert found.speed_up >= 1.2
        assert found.chosen.score == max(t.score for t in found.trials if t.mean_depth <= 3 / 1.2)
    assert found.loss.value == pytest.approx(100 * (found.full_score - found.chosen.score))
    rule = load_rule(model)
    assert rule.as_dict() == found.chosen.rule.as_dict()

    predictor = Predictor(model, depth="auto", device="cpu", threads=1)
    outputs = outputs_of(model, dev)
    chosen = simulate(rule, outputs.trace)
    said = ask(predictor, outputs.split.examples)
    deepest = np.maximum.reduceat(np.take((1, 2, 3), chosen), outputs.begins[:-1])
    assert [each.depth for each in said] == deepest.tolist()
    if rule.by != "gate":
        assert outputs.scores([chosen]) == pytest.approx([found.chosen.score])
        assert outputs.mean_depth(chosen) == found.chosen.mean_depth
    for depth in set(deepest.tolist()):
        fixed = ask(predictor, outputs.split.examples, depth=depth)
        for number in np.flatnonzero(deepest == depth):
            assert plain(fixed[number]) == pytest.approx(plain(said[number]), abs=1e-5)


def plain(result) -> dict:
    """Numbers that are comparable."""
    if hasattr(result, "words"):
        return {f"{word.text} {word.tag}": word.probability for word in result.words}
    if hasattr(result, "candidates"):
        return {result.text: result.probability, "depth": result.depth}
    if hasattr(result, "option"):
        return {result.option: max(result.probabilities)}
    return {"value": result.value} if result.value is not None else dict(result.probabilities)


def test_scores_on_paper_are_those_of_the_metric(trained):
    """Of all choices in one table as of each by itself, by any metric."""
    outputs = outputs_of(*trained)
    draw = np.random.default_rng(0)
    chosen = [draw.integers(0, 3, len(outputs.split.features)) for _ in range(4)]
    together = outputs.scores(chosen)
    name = outputs.task.metrics[0]
    for each, found in zip(chosen, together, strict=True):
        value = score(outputs.task, outputs.split.examples, outputs.predictions(each), 0)[name].value
        assert found == pytest.approx(goodness(name, value))
    half = outputs.part(draw.permutation(len(outputs.split.examples))[:10])
    rows = np.concatenate([np.arange(outputs.begins[e], outputs.begins[e + 1]) for e in half.numbers])
    values = [outputs.predictions(chosen[0])[each].value for each in half.numbers]
    assert [each.value for each in half.predictions(chosen[0][rows])] == values


def test_ten_calibrations_keep_their_promise_on_the_other_half(classifier):
    """Within the points promised and the margin stated; at full depth nothing would be lost, but nothing gained."""
    outputs = outputs_of(*classifier)
    gained = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(outputs.split.examples))
        seen, unseen = outputs.part(order[:100]), outputs.part(order[100:])
        found = choose(seen, 2.0, None)
        assert 0 < found.margin < 15
        chosen = simulate(found.chosen.rule, unseen.trace)
        assert loss_of(unseen, chosen).value <= 2.0 + found.margin
        gained.append(3 / unseen.mean_depth(chosen))
    assert np.median(gained) > 1.1


def test_more_examples_make_the_margin_smaller_and_it_covers_the_loss_of_the_others(classifier):
    """As with examples that were held out of training beside those of dev."""
    outputs = outputs_of(*classifier)
    margins = {}
    for count in (40, 160):
        for seed in range(10):
            order = np.random.default_rng(seed).permutation(len(outputs.split.examples))
            found = choose(outputs.part(order[:count]), 2.0, None)
            unseen = outputs.part(order[count:])
            chosen = simulate(found.chosen.rule, unseen.trace)
            margins.setdefault(count, []).append((found.margin, loss_of(unseen, chosen).value - 2.0))
    assert np.median([margin for margin, _ in margins[160]]) < np.median([margin for margin, _ in margins[40]])
    kept = [loss <= margin for each in margins.values() for margin, loss in each]
    assert np.mean(kept) >= 0.9


def test_a_rule_is_not_expected_to_do_better_than_a_more_cautious_one():
    rules = [ExitRule("confidence", threshold) for threshold in (0.5, 0.7, 0.9)]
    trials = [Choice(rule, score, depth) for rule, score, depth in zip(rules, (0.8, 0.92, 0.9), (3, 6, 9), strict=True)]
    other = Choice(ExitRule("patience", 0.0, 1), 0.95, 4)
    trials.append(other)
    assert cautious_scores(trials, [trial.score for trial in trials]) == [0.8, 0.9, 0.9, 0.95]


@pytest.mark.parametrize(("rules", "lucky"), [(1, False), (100, True)])
def test_luck_is_what_the_best_of_many_rules_loses_on_other_examples(rules, lucky):
    """Rules that are all as good as full depth: whatever the best one gains here is luck."""
    draw = np.random.default_rng(0)
    found, gained = [], []
    for _ in range(20):
        right = draw.random((rules + 1, 400)) < 0.9  # of full depth, then of the rules
        halves = np.array([draw.permutation(400) < 200 for _ in range(10)])
        by_half = right.astype(float) @ np.concatenate([halves, ~halves]).T / 200
        found.append(luck_of(by_half, lambda scores: 1 + int(np.argmax(scores[1:]))))
        scores = right.mean(1)
        gained.append(100 * (scores[1:].max() - scores[0]))
    assert np.mean(found) == pytest.approx(np.mean(gained), rel=0.4) if lucky else np.mean(found) < 0.5


def test_a_rule_that_never_stops_early_has_no_margin(classifier):
    found = choose(outputs_of(*classifier), None, 1.0, "patience")
    never = replace(found, chosen=found.trials[0])
    assert never.chosen.mean_depth == 3
    assert (never.margin, found.luck >= 0) == (0.0, True)


def test_every_exit_answers_in_one_pass_through_the_layers(trained):
    """The reference: a run at each depth."""
    model, dev = trained
    found = read_labelled(None, model, dev, None, "utf-8")
    opened, task, tokenizer = open_member(model, found.task, None)
    runtime = TorchRuntime(opened, open_device(DeviceConfig(device="cpu", threads=1)))
    requests = as_requests(runtime, task, Data(task, found, tokenizer).dev[0])
    tokens = []
    attention = runtime.encoder._attention
    runtime.encoder._attention = lambda hidden, *rest: (tokens.append(len(hidden)), attention(hidden, *rest))[1]
    together = runtime.run_exits(requests)
    assert sum(tokens) == 3 * sum(map(len, requests))
    for depth, outputs in zip((1, 2, 3), together, strict=True):
        for found, expected in zip(outputs, runtime.run([replace(r, depth=depth) for r in requests]), strict=True):
            assert found.keys() == expected.keys()
            for name in expected.keys() - {"start_index", "end_index"}:
                np.testing.assert_allclose(found[name], expected[name], atol=1e-4)


def test_a_gate_learns_when_full_depth_agrees():
    """Agreement is written in the state: gates that have not seen an example know it all the same."""
    draw = np.random.default_rng(0)
    full = draw.integers(0, 2, 300)
    states = draw.normal(size=(2, 300, 8)).astype(np.float32)
    exits = []
    for exit in range(2):
        agree = states[exit, :, 3] + 0.3 * draw.normal(size=300) > 0
        exits.append(Signs(np.full(300, 0.9), np.where(agree, full, 1 - full)[:, None].astype(float)))
    trace = Trace("classes", (1, 2, 3), [*exits, Signs(np.full(300, 0.9), full[:, None].astype(float))], states)
    gate, unseen = train_gate(trace, np.arange(300))
    for exit in range(2):
        agree = exits[exit].answer[:, 0] == full
        assert ((unseen[exit] > 0.5) == agree).mean() > 0.85
        assert np.abs(gate.state[exit]).argmax() == 3


def test_the_speed_is_chosen_later(classifier):
    model, dev = classifier
    found = calibrate(model, dev, max_loss=0, device="cpu", threads=1)
    assert {trial.rule.by for trial in found.trials} == {"confidence", "patience", "gate"}
    fast = Predictor(model, speed_up=2, device="cpu", threads=1)
    assert fast.depth == "auto"
    allowed = [trial for trial in found.curve if trial.mean_depth <= 1.5]
    assert fast.rule.as_dict() == max(allowed, key=lambda trial: trial.score).rule.as_dict()
    with pytest.raises(ConfigError, match="at most 3"):
        Predictor(model, speed_up=4, device="cpu", threads=1)
    for wrong, message in (
        ({"speed_up": 0.5}, "must be >= 1"),
        ({"speed_up": "2"}, "speed_up: must be a number, got '2'"),
        ({"speed_up": 2, "depth": 1}, "speed_up: chooses the depth of each text; leave out depth=1"),
    ):
        with pytest.raises(ConfigError, match=message):
            Predictor(model, device="cpu", threads=1, **wrong)
    with pytest.raises(ConfigError, match="max_loss: must be a number, got '1'"):
        calibrate(model, dev, max_loss="1", device="cpu", threads=1)


def test_the_command(classifier, cli):
    model, dev = classifier
    arguments = ("calibrate", model, "--data", dev, "--device", "cpu", "--threads", 1)
    said = cli(*arguments, "--max-loss", 1)
    assert said.code == 0, said
    assert "of 3 layers on average" in said.out
    assert "19 of 20" in said.out
    assert "examples are few" in said.err
    first = cli(*arguments, "--max-loss", 100)
    assert "always stops after 1 layer\n" in first.out
    never = cli(*arguments, "--speed-up", 1, "--rule", "patience")
    assert ("never stops early" in never.out) == ("3.00 of 3 layers" in never.out)
    numbers = json.loads(cli(*arguments, "--speed-up", 1.2, "--json").out)
    assert numbers["mean_depth"] <= 2.5
    for more, message in (
        ((), "give either --max-loss"),
        (("--max-loss", 1, "--speed-up", 2), "or --speed-up"),
        (("--speed-up", 9), "at most"),
        (("--speed-up", 0.5), "--speed-up: must be >= 1"),
        (("--max-loss", -1), "--max-loss: must be >= 0"),
        (("--max-loss", 1, "--rule", "luck"), "rule"),
    ):
        refused = cli(*arguments, *more)
        assert refused.code == 2, (more, refused)
        assert message in refused.err


def test_one_example_is_enough_to_say_that_it_is_too_few(classifier, tmp_path):
    file = tmp_path / "one.csv"
    file.write_text("text,label\na good film,pos\n")
    found = calibrate(classifier[0], file, max_loss=1, device="cpu", threads=1)
    assert found.luck == 0
    assert found.margin in (0, 100)


def test_numbers_have_no_confidence(tmp_path):
    files = make_files(tmp_path / "files", "regression")
    deep = make_model(tmp_path / "model", num_hidden_layers=2)
    model = finetune(tiny_config(deep, files, "regression", steps=1, exits=[1, 2]), tmp_path / "run", quiet=True).model
    with pytest.raises(ConfigError, match="numbers have no confidence; choose patience"):
        calibrate(model, files["dev"], max_loss=1, rule="confidence", device="cpu", threads=1)


def test_a_model_without_exits(toy_model, tmp_path):
    files = make_files(tmp_path / "files", "classification")
    model = finetune(tiny_config(toy_model, files, steps=1), tmp_path / "run", quiet=True).model
    with pytest.raises(ConfigError, match="has no exits; fine-tune it with some"):
        calibrate(model, files["dev"], max_loss=1, device="cpu", threads=1)
