"""benchmarks/depth_curve.py: held-out data is not trained on, and packing does not change a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from toy_tasks import make_files, make_model, tiny_config

from litebert.finetuning.run import finetune
from litebert.model.hub import load_model
from litebert.predict.exits import ExitRule, load_rule, save_rule
from litebert.tasks.task import QuestionExample, Task, TaskData, TextExample, load_task


@pytest.fixture
def models(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import depth_models

    return depth_models


def test_held_out_sentences_are_as_long_as_dev_and_no_phrase_of_them_is_trained_on(models):
    draw = np.random.default_rng(0)
    train = []
    for number in range(60):
        sentence = [f"w{number}x{place}" for place in range(12)]
        for _ in range(6):  # phrases of a sentence, as in SST-2, and the sentence
            begin, size = draw.integers(0, 9), draw.integers(1, 4)
            train.append(" ".join(sentence[begin : begin + size]) + " ")
        train.append(" ".join(sentence))
    examples = [TextExample(str(number), text, None, 0, "x") for number, text in enumerate(train)]
    dev = [TextExample("d", " ".join(["w"] * 12), None, 0, "x")]
    kept, held = models.hold_out(TaskData(Task("t", "classification"), examples, {"dev": dev}), 5)
    assert len(held) == 5
    assert {len(each.a.split()) for each in held} == {12}
    words = {word for each in held for word in each.a.split()}
    assert not words & {word for each in kept.train for word in each.a.split()}
    assert len(kept.train) == len(examples) - 5 * 7
    _, most = models.hold_out(TaskData(Task("t", "classification"), examples, {"dev": dev}), 1000)
    assert len(most) == 8  # an eighth of what there is, with all phrases


def test_questions_about_one_paragraph_are_held_out_together(models):
    train = [
        QuestionExample(f"{n}-{k}", f"q{k}", f"paragraph {n}", ("a",), (0,), False, "x")
        for n in range(40)
        for k in range(5)
    ]
    kept, held = models.hold_out(TaskData(Task("t", "question-answering"), train, {"dev": train[:3]}), 10)
    assert len(held) == 10
    assert len(kept.train) + len(held) == len(train)
    assert not {each.context for each in held} & {each.context for each in kept.train}


def test_a_packed_model_is_the_model_but_for_the_last_digits(models, tmp_path):
    base = make_model(tmp_path / "base", num_hidden_layers=3)
    files = make_files(tmp_path / "files", "classification")
    config = tiny_config(base, files, exits=[1, 2, 3], steps=3)
    model = finetune(config, tmp_path / "run", quiet=True).model
    save_rule(ExitRule("confidence", 0.9), model, {})
    file = tmp_path / "packed.npz"
    worst = models.pack(model, str(base), file)
    found = models.unpack(file, str(base), tmp_path / "again")
    assert 0 < worst < 1e-4
    assert load_rule(found) == ExitRule("confidence", 0.9)
    assert load_task(found) == load_task(model)
    before, after = load_model(model).state_dict(), load_model(found).state_dict()
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1.01 * worst)
