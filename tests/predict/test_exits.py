"""Early exit: rules by hand, every text as if it were alone, and the file that keeps a rule."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_models import predictor_of, runtime_of, small_model
from small_vocabularies import english

from litebert.errors import CheckpointError, ConfigError, InputError
from litebert.model.hub import save_model
from litebert.predict.exits import EXITS_FILE, ExitRule, load_rule, save_rule, simulate
from litebert.predict.predictor import Predictor
from litebert.predict.runtime import Request
from litebert.tasks.task import Task, save_task

DEEP = {"num_hidden_layers": 4, "exits": (1, 2, 3, 4), "labels": ("good", "bad", "so so")}
TASK = Task("t", "classification", DEEP["labels"], max_length=40)


def logits_of(*rows):
    """[D, N, L] of one text each."""
    return np.array(rows, np.float64).swapaxes(0, 1)


def test_confidence_stops_at_the_first_exit_that_is_sure():
    rows = logits_of([[0, 0], [0, 1], [0, 3]], [[5, 0], [0, 1], [0, 1]], [[0, 0], [0, 0], [0, 0]])
    assert simulate(ExitRule("confidence", 0.9), "classes", rows).tolist() == [2, 0, 2]
    assert simulate(ExitRule("confidence", 0.7), "classes", rows).tolist() == [1, 0, 2]
    assert simulate(ExitRule("confidence", 0.5), "classes", rows).tolist() == [0, 0, 0]


def test_patience_stops_when_exits_in_a_row_agree():
    """As PABEE counts: an exit that differs from the one before it begins anew."""
    answers = [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0]]
    rows = logits_of(*([[answer == 0, answer == 1] for answer in each] for each in answers))
    assert simulate(ExitRule("patience", patience=1), "classes", rows).tolist() == [2, 1, 4]
    assert simulate(ExitRule("patience", patience=2), "classes", rows).tolist() == [3, 4, 4]


def test_numbers_agree_that_differ_by_little_and_sets_of_labels_that_are_equal():
    rows = logits_of([[1.0], [1.5], [1.6], [1.6]], [[1.0], [1.1], [3.0], [4.0]])
    assert simulate(ExitRule("patience", 0.2, 1), "number", rows).tolist() == [2, 1]
    rows = logits_of([[1, -1], [1, 1], [2, 2]], [[1, -1], [3, -2], [1, 1]])
    assert simulate(ExitRule("patience", 0.0, 1), "labels", rows).tolist() == [2, 1]
    with pytest.raises(ConfigError, match="use patience"):
        simulate(ExitRule("confidence", 0.9), "number", rows)


def requests_of(count: int, rule: ExitRule | None, depth: int | None = None) -> list[Request]:
    draw = np.random.default_rng(0)
    lengths = draw.integers(3, 30, count)
    ids = [draw.integers(5, english().vocab_size, length).astype(np.int32) for length in lengths]
    return [Request(i, np.zeros(len(i), np.int8), frozenset({"logits"}), depth=depth, rule=rule) for i in ids]


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        (ExitRule("confidence", 0.8), {}),
        (ExitRule("patience", 0.0, 1), {}),
        (ExitRule("patience", 0.0, 2), {"inner_group_num": 2}),
        (ExitRule("confidence", 0.8), {"pooling": "mean"}),
        (ExitRule("patience", 0.0, 1), {"problem_type": "multi_label_classification", "labels": ("x", "y"), "seed": 5}),
        (ExitRule("patience", 0.5, 1), {"problem_type": "regression", "labels": ("x",)}),
    ],
)
@pytest.mark.parametrize("max_tokens", [64, 8192])
def test_texts_leave_the_batch_and_no_answer_depends_on_its_neighbours(rule, changes, max_tokens):
    """The reference: all exits for every text, and the rule on paper."""
    runtime = runtime_of("classification", max_tokens, **{**DEEP, **changes})
    problem = {"regression": "number", "multi_label_classification": "labels"}.get(changes.get("problem_type"))
    full = np.array([[out["logits"] for out in runtime.run(requests_of(40, None, depth))] for depth in DEEP["exits"]])
    chosen = simulate(rule, problem or "classes", full)
    assert len(set(chosen.tolist())) > 1
    together = runtime.run(requests_of(40, rule))
    for number, (request, output) in enumerate(zip(requests_of(40, rule), together, strict=True)):
        assert int(output["depth"]) == DEEP["exits"][chosen[number]]
        np.testing.assert_allclose(output["logits"], full[chosen[number], number], atol=1e-5)
        (alone,) = runtime.run([request])
        assert alone["depth"] == output["depth"]
        np.testing.assert_allclose(alone["logits"], output["logits"], atol=1e-5)
    assert runtime.model.depth is None


def test_less_work_is_done():
    """What the layers see, counted at their attention."""
    runtime = runtime_of("classification", **DEEP)
    seen = []
    attention = runtime.encoder._attention

    def count(hidden, starts, max_length):
        seen.append(len(hidden))
        return attention(hidden, starts, max_length)

    runtime.encoder._attention = count
    outputs = runtime.run(requests_of(40, ExitRule("patience", 0.0, 1)))
    lengths = [len(request) for request in requests_of(40, None)]
    depths = [int(output["depth"]) for output in outputs]
    assert seen == [sum(n for n, d in zip(lengths, depths, strict=True) if d >= depth) for depth in DEEP["exits"]]


def test_auto_in_python_on_the_command_line_and_mixed_with_other_depths(tmp_path, cli):
    save_model(small_model("classification", **DEEP), tmp_path)
    english().save(tmp_path)
    save_task(TASK, tmp_path)
    texts = ["the quick fox", "dogs", "a man sleeps and the others run in the park", "the fox and the dog"]
    with pytest.raises(InputError, match="litebert calibrate"):
        Predictor(tmp_path, depth="auto", device="cpu", threads=1)
    save_rule(ExitRule("patience", patience=1), tmp_path, {"asked": {"speed_up": 2}})
    predictor = Predictor(tmp_path, depth="auto", device="cpu", threads=1)
    found = predictor.classify(texts)
    assert {each.depth for each in found} <= {2, 3, 4}
    for text, each in zip(texts, found, strict=True):
        fixed = predictor.classify(text, depth=each.depth)
        assert fixed.label == each.label
        assert fixed.probabilities == pytest.approx(each.probabilities, abs=1e-5)
    assert predictor.embed("the fox").shape == (24,)  # at full depth
    said = cli("predict", "classify", texts[0], "--depth", "auto", "--model", tmp_path, "--device", "cpu", "--json")
    assert json.loads(said.out)["depth"] == found[0].depth
    wrong = cli("predict", "classify", texts[0], "--depth", "much", "--model", tmp_path, "--device", "cpu")
    assert wrong.code == 2


def test_auto_needs_a_rule_and_a_classifier():
    with pytest.raises(InputError, match="has no rule for auto yet"):
        predictor_of("classification", TASK, **DEEP).classify("the fox", depth="auto")


def test_a_rule_is_kept_as_it_was_and_damage_is_noticed(tmp_path):
    assert load_rule(tmp_path) is None
    for rule in (ExitRule("confidence", 0.925), ExitRule("patience", 0.1, 3)):
        save_rule(rule, tmp_path, {})
        assert load_rule(tmp_path) == rule
    for text in ("{", '{"format": 2}', '{"format": 1, "rule": {"by": "luck"}}', '{"format": 1, "rule": {}}'):
        (tmp_path / EXITS_FILE).write_text(text)
        with pytest.raises(CheckpointError, match=EXITS_FILE):
            load_rule(tmp_path)
