"""Early exit: rules by hand, every text as if it were alone, and the file that keeps a rule."""

from __future__ import annotations

import functools
import json
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import predictor_of, runtime_of, small_model
from small_vocabularies import english

from litebert.errors import CheckpointError, ConfigError, InputError
from litebert.export.onnx_file import export_onnx
from litebert.model.hub import save_model
from litebert.predict import fused, torch_runtime
from litebert.predict.exits import (
    EXITS_FILE,
    Choice,
    ExitRule,
    Gate,
    Trace,
    load_rule,
    problem_of,
    save_rule,
    signs_of,
    simulate,
)
from litebert.predict.lanes import _Queue, group_numbers, trace_signs
from litebert.predict.onnx_runtime import OnnxRuntime
from litebert.predict.predictor import Predictor
from litebert.predict.runtime import Request
from litebert.predict.torch_runtime import TorchStages
from litebert.tasks.task import Task, save_task
from litebert.train.device import Device

DEEP = {"num_hidden_layers": 4, "exits": (1, 2, 3, 4), "labels": ("good", "bad", "so so")}
TASK = Task("t", "classification", DEEP["labels"], max_length=40)


def trace_of(problem, *rows, states=None):
    """Of logits [D, L] for each sequence."""
    logits = np.array(rows, np.float64).swapaxes(0, 1)
    lengths = np.ones(logits.shape[1], np.int64)
    signs = [signs_of(problem, {"logits": each}, lengths) for each in logits]
    return Trace(problem, tuple(range(1, len(logits) + 1)), signs, states)


def test_confidence_stops_at_the_first_exit_that_is_sure():
    trace = trace_of("classes", [[0, 0], [0, 1], [0, 3]], [[5, 0], [0, 1], [0, 1]], [[0, 0], [0, 0], [0, 0]])
    assert simulate(ExitRule("confidence", 0.9), trace).tolist() == [2, 0, 2]
    assert simulate(ExitRule("confidence", 0.7), trace).tolist() == [1, 0, 2]
    assert simulate(ExitRule("confidence", 0.5), trace).tolist() == [0, 0, 0]
    assert simulate(ExitRule("confidence", 0.5, least=2), trace).tolist() == [1, 1, 1]


def test_patience_stops_when_exits_in_a_row_agree():
    """As PABEE counts: an exit that differs from the one before it begins anew."""
    answers = [[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0]]
    trace = trace_of("classes", *([[answer == 0, answer == 1] for answer in each] for each in answers))
    assert simulate(ExitRule("patience", patience=1), trace).tolist() == [2, 1, 4]
    assert simulate(ExitRule("patience", patience=2), trace).tolist() == [3, 4, 4]


def test_numbers_agree_that_differ_by_little_and_sets_of_labels_that_are_equal():
    trace = trace_of("number", [[1.0], [1.5], [1.6], [1.6]], [[1.0], [1.1], [3.0], [4.0]])
    assert simulate(ExitRule("patience", 0.2, 1), trace).tolist() == [2, 1]
    with pytest.raises(ConfigError, match="use patience"):
        simulate(ExitRule("confidence", 0.9), trace)
    trace = trace_of("labels", [[1, -1], [1, 1], [2, 2]], [[1, -1], [3, -2], [1, 1]])
    assert simulate(ExitRule("patience", 0.0, 1), trace).tolist() == [2, 1]
    assert simulate(ExitRule("confidence", 1 / (1 + np.exp(-1))), trace).tolist() == [0, 0]
    assert simulate(ExitRule("confidence", 0.8), trace).tolist() == [2, 1]


def test_a_gate_stops_where_it_expects_full_depth_to_agree():
    states = np.array([[[1.0], [-1.0]], [[0.0], [0.0]]], np.float32)  # [D - 1, N, H]
    trace = trace_of("classes", [[0, 1]] * 3, [[0, 1]] * 3, states=states)
    gate = Gate(np.array([[2.0], [1.0]], np.float32), np.zeros((2, 3), np.float32), np.array([0.0, -1.0], np.float32))
    assert simulate(ExitRule("gate", 0.8, gate=gate), trace).tolist() == [0, 2]  # 1 / (1 + e ** -2) is 0.88
    assert simulate(ExitRule("gate", 0.2, gate=gate), trace).tolist() == [0, 1]
    seen = Gate(np.zeros((2, 1), np.float32), np.array([[0, 0, 0], [0, 0, 3]], np.float32), np.zeros(2, np.float32))
    assert simulate(ExitRule("gate", 0.9, gate=seen), trace).tolist() == [1, 1]  # one exit has agreed
    with pytest.raises(ConfigError, match="gate: required for a rule by gate"):
        ExitRule("gate", 0.5)


def test_signs_of_spans_tags_and_options_by_hand():
    lengths = np.array([3, 2])
    start, end = np.array([0.0, 2, 9, 1, 0]), np.array([0.0, 1, 3, 0, 1])
    outside = np.array([False, False, True, False, False])
    spans = signs_of("span", {"start": start, "end": end}, lengths, outside)
    assert spans.answer.tolist() == [[1, 1], [0, 1]]
    first = np.exp(2) / (1 + np.exp(2)) * np.exp(1) / (1 + np.exp(1))
    second = (np.exp(1) / (1 + np.exp(1))) ** 2
    np.testing.assert_allclose(spans.sure, [first, second])

    logits = np.array([[0, 1], [3, 0], [0, 0], [0, 2], [0, 5]], np.float64)
    tags = signs_of("tags", {"logits": logits}, lengths, outside)
    np.testing.assert_allclose(tags.sure, [np.exp(1) / (1 + np.exp(1)), np.exp(2) / (1 + np.exp(2))])
    for place, same in ((2, True), (1, False)):
        other = logits.copy()
        other[place] = other[place, ::-1] + np.array([0, 1])
        again = signs_of("tags", {"logits": other}, lengths, outside)
        assert (again.answer[0] == tags.answer[0]).all() == same
        assert again.answer[1] == tags.answer[1]

    options = signs_of(
        "choice", {"logits": np.array([1.0, 5, 2, 2, 3])}, np.ones(5, int), groups=np.array([7, 4, 7, 4, 7])
    )
    np.testing.assert_allclose(options.sure[[0, 2, 4]], np.exp(3) / (np.exp(1) + np.exp(2) + np.exp(3)))
    np.testing.assert_allclose(options.sure[[1, 3]], np.exp(5) / (np.exp(5) + np.exp(2)))
    assert options.answer[:, 0].tolist() == [4, 1, 4, 1, 4]


# What is asked of each head, and with what its model differs.
HEADS = {
    "classes": ("classification", {"logits"}, {}),
    "classes, two layers each": ("classification", {"logits"}, {"inner_group_num": 2}),
    "classes, own layers": ("classification", {"logits"}, {"sharing": "none"}),
    "classes, mean": ("classification", {"logits"}, {"pooling": "mean", "seed": 7}),
    "labels": (
        "classification",
        {"logits"},
        {"problem_type": "multi_label_classification", "labels": ("x", "y"), "seed": 5},
    ),
    "number": ("classification", {"logits"}, {"problem_type": "regression", "labels": ("x",)}),
    "tags": ("token-classification", {"logits"}, {"seed": 1}),
    "choice": ("multiple-choice", {"logits"}, {}),
    "span": ("span", {"start", "end"}, {}),
    "answer": ("answer", {"start_index", "start_log_prob", "end_index", "end_log_prob", "answerable"}, {}),
}


def rules_of(by: str) -> list[ExitRule]:
    """Rules to try until some texts stop earlier than others: the models are random."""
    levels = np.linspace(0.95, 0.05, 19)
    if by == "patience":
        return [ExitRule("patience", change, count) for change in (0.0, 0.5) for count in (1, 2)]
    if by == "confidence":
        return [ExitRule("confidence", float(level)) for level in levels]
    draw = np.random.default_rng(1)
    parts = (draw.normal(size=(3, 24)) / 3, draw.normal(size=(3, 3)) / 3, draw.normal(size=3) / 3)
    gate = Gate(*(part.astype(np.float32) for part in parts))
    return [ExitRule("gate", float(level), gate=gate) for level in levels]


def requests_of(
    count: int, rule: ExitRule | None, depth: int | None = None, want=frozenset({"logits"}), grouped: bool = False
) -> list[Request]:
    draw = np.random.default_rng(0)
    lengths = draw.integers(6, 30, count)
    ids = [draw.integers(5, english().vocab_size, length).astype(np.int32) for length in lengths]
    outside = [draw.random(length) < 0.3 for length in lengths]
    for marks in outside:
        marks[0] = False
    groups = [object() for _ in range(count)]
    return [
        Request(
            each,
            np.zeros(len(each), np.int8),
            frozenset(want),
            outside=marks,
            depth=depth,
            rule=rule,
            group=groups[number // 4] if grouped else None,
        )
        for number, (each, marks) in enumerate(zip(ids, outside, strict=True))
    ]


def reading(name: str, max_tokens: int = 8192):
    """The runtime of a head, and its requests by rule or depth."""
    head, want, changes = HEADS[name]
    runtime = runtime_of(head, max_tokens, **{**DEEP, **changes})
    return runtime, functools.partial(requests_of, 40, want=want, grouped=head == "multiple-choice")


@pytest.mark.parametrize(
    ("name", "by"),
    [
        (name, by)
        for name in HEADS
        for by in ("confidence", "patience", "gate")
        if (name, by) != ("number", "confidence")  # it has none
    ],
)
@pytest.mark.parametrize(("max_tokens", "lanes"), [(64, 1), (96, 2), (8192, 1)])
def test_texts_leave_and_join_and_no_answer_depends_on_its_neighbours(name, by, max_tokens, lanes, monkeypatch):
    """The reference: all exits for every text, and the rule on paper. Few tokens: texts join others on their way."""
    runtime, ask = reading(name, max_tokens)
    plain = ask(None)
    problem = problem_of(runtime.head, runtime.config)
    state = "pooled" if "pooled" in runtime.outputs else "first"
    full = [runtime.run(ask(None, depth)) for depth in DEEP["exits"]]
    ask_state = [Request(r.ids, r.segments, frozenset({state}), depth=d) for d in DEEP["exits"][:-1] for r in plain]
    states = np.stack([output[state] for output in runtime.run(ask_state)]).reshape(3, len(plain), -1)
    groups = group_numbers(plain) if problem == "choice" else None
    trace = Trace(problem, DEEP["exits"], [trace_signs(problem, plain, each) for each in full], states, groups)
    rule = next(rule for rule in rules_of(by) if len(set(simulate(rule, trace).tolist())) > 1)
    chosen = simulate(rule, trace)

    made = TorchStages.__init__

    def several(self, runtime):
        made(self, runtime)
        self.num_lanes = lanes

    monkeypatch.setattr(TorchStages, "__init__", several)
    requests = ask(rule)
    together = runtime.run(requests)
    for number, (request, output) in enumerate(zip(requests, together, strict=True)):
        assert int(output["depth"]) == DEEP["exits"][chosen[number]]
        expected = full[chosen[number]][number]
        assert output.keys() == {*expected, "depth"}
        found = [output]
        if number % 5 == 0:
            own = [each for each in requests if each is request or each.group is request.group is not None]
            found.append(runtime.run(own)[[id(each) for each in own].index(id(request))])
            assert found[1]["depth"] == output["depth"]
        for said in found:
            for key in expected.keys() - {"start_index", "end_index"}:  # which change places where scores are equal
                # A short text has fewer starts than are asked for; what ends the others means nothing.
                begins = expected["start_log_prob"] if key == "end_log_prob" else expected[key]
                real = np.asarray(np.minimum(expected[key], begins)) > -1e20
                np.testing.assert_allclose(np.asarray(said[key])[real], np.asarray(expected[key])[real], atol=2e-5)
            if problem != "choice":
                signs = trace_signs(problem, [request], [{key: said[key] for key in expected}])
                np.testing.assert_allclose(signs.answer[0], trace.exits[chosen[number]].answer[number], atol=2e-5)
    assert runtime.model.depth is None


def test_a_lane_on_a_gpu_takes_what_its_memory_allows(monkeypatch):
    gpu = Device(torch.device("cuda"), "bf16", compile=True, name="a GPU")

    def lane_tokens(gigabytes: float) -> int:
        found = SimpleNamespace(total_memory=int(gigabytes * 1e9))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: found)
        return torch_runtime._lane_tokens(3072, gpu)

    sizes = [lane_tokens(gigabytes) for gigabytes in (4, 24, 80, 300)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (8192, 131_072)
    assert 8192 < sizes[1] < sizes[2] < 131_072
    for asked, expected in ((0, 8192), (100, 100)):  # on a CPU
        assert TorchStages(runtime_of("classification", asked, **DEEP)).max_tokens == expected


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


@pytest.mark.parametrize("name", ["classes", "classes, two layers each", "classes, own layers", "choice", "tags"])
def test_an_exit_completes_the_state_of_cls_alone_where_its_head_reads_no_other(name, monkeypatch):
    """What the FFNs see: before the last one of an exit, only texts that went on are there whole."""
    runtime, ask = reading(name)
    seen = []
    widen = fused.Product.__call__

    def count(self, x, *mix):
        seen.extend([len(x)] if self.key.endswith("input") else [])
        return widen(self, x, *mix)

    monkeypatch.setattr(fused.Product, "__call__", count)
    outputs = runtime.run(ask(ExitRule("patience", 0.0, 1)))
    lengths, depths = np.array([len(request) for request in ask(None)]), np.array([int(o["depth"]) for o in outputs])
    expected = 0
    for depth in DEEP["exits"]:
        here, on = depths >= depth, depths > depth
        whole = runtime.config.inner_group_num if name == "tags" else runtime.config.inner_group_num - 1
        expected += whole * lengths[here].sum() + (0 if name == "tags" else here.sum() + lengths[on].sum())
    assert sum(seen) == expected


def test_waiting_texts_fill_the_places_of_those_that_left():
    """With room for 64 tokens, every pass but the last ones is as full as the next text allows."""
    runtime = runtime_of("classification", 64, **DEEP)
    seen = []
    apply = runtime.encoder.apply_layers
    runtime.encoder.apply_layers = lambda hidden, *rest: (seen.append(len(hidden)), apply(hidden, *rest))[1]
    outputs = runtime.run(requests_of(40, ExitRule("patience", 0.0, 1)))
    lengths = np.array([len(request) for request in requests_of(40, None)])
    work = (lengths * [int(output["depth"]) for output in outputs]).sum()
    assert sum(seen) == work
    assert max(seen) <= 64
    assert min(seen[:-8]) > 64 - 30


def test_requests_that_come_later_join_and_nothing_is_kept_of_those_that_left():
    runtime = runtime_of("classification", **DEEP)
    rule = ExitRule("confidence", 0.8)
    requests = requests_of(60, rule)
    expected = [int(output["depth"]) for output in runtime.run(requests)]
    alive = [weakref.ref(request) for request in requests]
    waiting = list(requests[4:])
    held = []

    def more(tokens: int) -> list[Request]:
        fitting = []
        while waiting and len(waiting[0]) <= tokens:
            fitting.append(waiting.pop(0))
            tokens -= len(fitting[-1])
        return fitting

    found, first = {}, requests[:4]
    del requests
    reader = runtime.run_open(first, more, 64)
    del first
    for number, output in reader:
        found[number] = int(output["depth"])
        held.append(sum(ref() is not None for ref in alive) - len(waiting))
    assert [found[number] for number in range(60)] == expected
    assert max(held[10:]) <= 64 // 6 + 1  # at most those in the lane


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
    plain = cli("predict", "classify", texts[0], "--depth", "auto", "--model", tmp_path, "--device", "cpu")
    assert f"answered after {found[0].depth} of 4 layers" in plain.out
    for ability, depth, message in (
        ("classify", "much", "a whole number of layers or 'auto', not 'much'"),
        ("embed", "auto", "auto is for answers of a fine-tuned head; give a number of layers"),
    ):
        wrong = cli("predict", ability, texts[0], "--depth", depth, "--model", tmp_path, "--device", "cpu")
        assert wrong.code == 2
        assert message in wrong.err


def test_auto_needs_a_rule_and_a_classifier():
    with pytest.raises(InputError, match="has no rule for auto yet"):
        predictor_of("classification", TASK, **DEEP).classify("the fox", depth="auto")
    plain = predictor_of("classification", TASK, **{**DEEP, "exits": ()})
    for depth in (2, "auto"):
        with pytest.raises(InputError, match=r"no exits.* \(exits: \[1, 2, 3, 4\]\)"):
            plain.classify("the fox", depth=depth)
    with pytest.raises(InputError, match="auto is for answers of a fine-tuned head"):
        plain.embed("the fox", depth="auto")
    with pytest.raises(InputError, match="a whole number of layers or 'auto', not 'fast'"):
        plain.classify("the fox", depth="fast")


def test_rules_in_words():
    assert ExitRule("confidence", 0.9, least=2).describe() == "stops at a probability of 0.9, after at least 2 layers"
    assert ExitRule("confidence", 0, least=1).describe() == "always stops after 1 layer"
    assert ExitRule("patience", patience=1).describe() == "stops when an exit agrees with the previous one"
    assert ExitRule("patience", patience=2).describe() == "stops when 2 exits in a row agree with the previous one"


def test_a_rule_is_kept_as_it_was_and_damage_is_noticed(tmp_path):
    assert load_rule(tmp_path) is None
    for rule in (ExitRule("confidence", 0.925, least=6), ExitRule("patience", 0.1, 3)):
        save_rule(rule, tmp_path, {})
        assert load_rule(tmp_path) == rule
    gated = rules_of("gate")[0]
    others = [Choice(ExitRule("confidence", 0.7), 0.8, 3.0), Choice(gated, 0.9, 6.0), Choice(rule, 0.91, 12.0)]
    save_rule(rule, tmp_path, {}, others, full_depth=12)
    assert load_rule(tmp_path) == rule
    assert load_rule(tmp_path, speed_up=4) == others[0].rule
    fast = load_rule(tmp_path, speed_up=1.5)
    assert (fast.by, fast.threshold) == ("gate", 0.95)
    for part in ("state", "signs", "bias"):
        np.testing.assert_allclose(getattr(fast.gate, part), getattr(gated.gate, part), atol=1e-7)
    with pytest.raises(ConfigError, match="at most 4"):
        load_rule(tmp_path, speed_up=5)
    good = (tmp_path / EXITS_FILE).read_text()
    for text in (
        "{",
        '{"format": 2}',
        '{"format": 1, "rule": {"by": "luck"}}',
        '{"format": 1, "rule": {}}',
        '{"format": 1, "rule": {"by": "gate", "threshold": 0.5}}',
        good.replace('"bias": [', '"bias": [1.0, '),
        good.replace('"signs"', '"sighs"'),
    ):
        (tmp_path / EXITS_FILE).write_text(text)
        with pytest.raises(CheckpointError, match=EXITS_FILE):
            load_rule(tmp_path)


@pytest.mark.parametrize("name", [each for each in HEADS if each != "classes, own layers"])
def test_an_exported_model_stops_where_torch_does(name, tmp_path):
    """Graphs in parts against torch: at every exit, and by rules; alone and beside others."""
    head, want, changes = HEADS[name]
    model = small_model(head, **{**DEEP, **changes})
    save_model(model, tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx", int8=True)
    runtime = runtime_of(head, **{**DEEP, **changes})
    onnx = OnnxRuntime(tmp_path / "onnx", threads=1, precision="fp32")
    assert onnx.any_depth
    by_first = head in ("classification", "multiple-choice") and name != "classes, mean"
    assert (tmp_path / "onnx" / "model.finish.onnx").exists() == by_first
    ask = functools.partial(requests_of, 24, want=want, grouped=head == "multiple-choice")
    for when in ({"depth": 1, "rule": None}, {"depth": 3, "rule": None}, {"rule": ExitRule("patience", 0.5, 1)}):
        for mine, other in zip(onnx.run(ask(**when)), runtime.run(ask(**when)), strict=True):
            if when["rule"] is not None:
                assert mine["depth"] == other["depth"]
            for key in other.keys() - {"start_index", "end_index"}:
                begins = other["start_log_prob"] if key == "end_log_prob" else other[key]
                real = np.asarray(np.minimum(other[key], begins)) > -1e20
                np.testing.assert_allclose(np.asarray(mine[key])[real], np.asarray(other[key])[real], atol=2e-4)
    gate = rules_of("gate")[9]
    assert [int(each["depth"]) for each in onnx.run(ask(gate))] == [int(e["depth"]) for e in runtime.run(ask(gate))]
    vectors = requests_of(6, None, 2, {"mean", "first", "hidden"})
    for mine, other in zip(onnx.run(vectors), runtime.run(vectors), strict=True):
        for key, value in other.items():
            np.testing.assert_allclose(mine[key], value, atol=2e-4)
    small = OnnxRuntime(tmp_path / "onnx", threads=1, precision="int8")
    rule = ExitRule("patience", 0.5, 1)
    together = small.run(ask(rule))
    for request, output in zip(ask(rule)[::6], together[::6], strict=True):
        if request.group is None:
            (alone,) = small.run([request])
            assert alone["depth"] == output["depth"]
    with pytest.raises(InputError, match="between 1 and 4"):
        onnx.run(requests_of(1, None, 9, want))


def test_an_export_without_exits_says_so(tmp_path):
    save_model(small_model("classification", **{**DEEP, "exits": ()}), tmp_path / "model")
    english().save(tmp_path / "model")
    save_task(TASK, tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert not list((tmp_path / "onnx").glob("model.layers*"))
    predictor = Predictor(tmp_path / "onnx", threads=1)
    with pytest.raises(InputError, match="has none"):
        predictor.classify("the fox", depth="auto")
    save_model(small_model("classification", **DEEP), tmp_path / "exits")
    for save in (english().save, lambda folder: save_task(TASK, folder)):
        save(tmp_path / "exits")
    save_rule(ExitRule("patience", patience=1), tmp_path / "exits", {})
    export_onnx(tmp_path / "exits", tmp_path / "early")
    early, torch = Predictor(tmp_path / "early", threads=1), Predictor(tmp_path / "exits", device="cpu", threads=1)
    for depth in (1, 3, "auto"):
        assert early.classify("the fox", depth=depth).depth == torch.classify("the fox", depth=depth).depth
    with pytest.raises(InputError, match="between 1 and 4"):
        early.embed("the fox", depth=5)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    groups=st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=40, max_size=40),
    rooms=st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=20),
)
def test_who_waits_joins_by_length_and_options_of_one_question_together(sizes, groups, rooms):
    requests = [
        Request(np.zeros(size, np.int32), np.zeros(size, np.int8), frozenset({"logits"}), group=group)
        for size, group in zip(sizes, groups, strict=False)
    ]
    units: dict[object, list[int]] = {}
    for row, request in enumerate(requests):
        units.setdefault((row,) if request.group is None else request.group, []).append(row)
    waiting = sorted(units.values(), key=lambda unit: -max(sizes[row] for row in unit))
    queue = _Queue(7, requests)
    for room, at_least_one in [*rooms, *((10**6, False),)]:
        expected: list[int] = []
        left = room
        while waiting and (sum(sizes[row] for row in waiting[0]) <= left or (at_least_one and not expected)):
            left -= sum(sizes[row] for row in waiting[0])
            expected += waiting.pop(0)
        assert queue.take(room, at_least_one) == (expected, room - left)
        assert queue.is_empty == (not waiting)
