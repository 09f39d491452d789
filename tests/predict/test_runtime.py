"""Raw outputs against the model itself, one unpadded sequence at a time, and against transformers; batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import LABELS, runtime_of, small_model
from small_vocabularies import english

from litebert.errors import InputError
from litebert.model.hub import save_model
from litebert.predict.runtime import HEAD_OUTPUTS, Request, plan_packed, plan_padded
from litebert.predict.torch_runtime import one_ahead

LENGTHS = [5, 11, 11, 30, 8, 5, 48]


def random_requests(want, seed=0, mask_every=4):
    rng = np.random.default_rng(seed)
    requests = []
    for length in LENGTHS:
        ids = rng.integers(5, english().vocab_size, length).astype(np.int32)
        segments = (np.arange(length) > length // 2).astype(np.int8)
        positions = np.arange(1, length, mask_every) if "masked_lm" in want else None
        outside = np.arange(length) < 3
        outside[0] = False
        requests.append(Request(ids, segments, frozenset(want), positions, outside))
    return requests


def direct(model, request):
    """The outputs of one request by the plain model on input without padding."""
    ids, segments = (torch.from_numpy(x.astype(np.int64))[None] for x in (request.ids, request.segments))
    encoded = model.encoder(ids, segment_ids=segments, output_attentions=True)
    named = {
        "hidden": encoded.hidden[0],
        "first": encoded.hidden[0, 0],
        "mean": encoded.hidden[0].mean(0),
        "pooled": None if encoded.pooled is None else encoded.pooled[0],
        "attentions": torch.stack([layer[0] for layer in encoded.attentions]),
    }
    if model.head in ("pretraining", "masked-lm", "sentence-order"):
        output = model(ids, segment_ids=segments)
        if output.masked_lm is not None and request.positions is not None:
            named["masked_lm"] = output.masked_lm[0][request.positions]
        if output.sentence is not None:
            named["sentence"] = output.sentence[0]
    elif model.head == "span":
        start, end, _ = model(ids, segment_ids=segments)
        named |= {"start": start[0], "end": end[0]}
    elif model.head == "answer":
        output = model(ids, segment_ids=segments, outside=torch.from_numpy(request.outside)[None])
        named |= {
            "start_index": output.start_index[0],
            "start_log_prob": output.start_log_prob[0],
            "end_index": output.end_index[0],
            "end_log_prob": output.end[0],
            "answerable": output.no_answer[0],
        }
    elif model.head == "multiple-choice":
        named["logits"] = model(ids[None], segment_ids=segments[None])[0, 0]
    elif model.head != "encoder":
        named["logits"] = model(ids, segment_ids=segments)[0]
    return {name: named[name].numpy() for name in request.want}


@pytest.mark.parametrize("max_tokens", [1, 40, 8192])
@pytest.mark.parametrize("head", HEAD_OUTPUTS)
@torch.inference_mode()
def test_every_head_as_the_plain_model(head, max_tokens):
    labels = {"labels": LABELS} if "classification" in head else {}
    runtime = runtime_of(head, max_tokens, **labels)
    model = small_model(head, **labels)
    requests = random_requests(runtime.outputs)
    for request, output in zip(requests, runtime.run(requests), strict=True):
        expected = direct(model, request)
        assert output.keys() == expected.keys()
        if head == "answer":  # places that are out of the question come in any order
            expected, output = possible(expected), possible(output)
        for name in expected:
            np.testing.assert_allclose(output[name], expected[name], rtol=1e-4, atol=2e-5, err_msg=name)


def possible(output):
    """The answer head's output with what cannot be set to 0."""
    fine = (output["start_log_prob"] > -1e20) & (output["end_log_prob"] > -1e20)
    starts = fine.any(0)
    masks = {"start_index": starts, "start_log_prob": starts, "end_index": fine, "end_log_prob": fine}
    return {name: np.where(masks[name], value, 0) if name in masks else value for name, value in output.items()}


@torch.inference_mode()
def test_few_outputs_as_the_plain_model():
    """Where only [CLS] and masked places are asked for, the last application is computed there alone."""
    wants = ({"masked_lm"}, {"sentence"}, {"masked_lm", "sentence", "pooled"}, {"first"}, {"pooled", "first"})
    runtime, model = runtime_of("pretraining"), small_model("pretraining")
    for want in wants:
        requests = random_requests(want)
        for request, output in zip(requests, runtime.run(requests), strict=True):
            for name, value in direct(model, request).items():
                np.testing.assert_allclose(output[name], value, rtol=1e-4, atol=2e-5, err_msg=name)
        assert runtime.encoder.hidden is None


@torch.inference_mode()
def test_requests_that_want_different_things_share_a_pass():
    runtime, model = runtime_of("pretraining"), small_model("pretraining")
    wants = [{"masked_lm"}, {"sentence"}, {"mean"}, {"masked_lm", "first"}, {"attentions"}, {"hidden"}, {"pooled"}]
    requests = [random_requests(want, seed=number)[number] for number, want in enumerate(wants)]
    passes = []
    runtime.encoder.register_forward_hook(lambda module, arguments, output: passes.append(1))
    outputs = runtime.run(requests)
    assert len(passes) == 1
    for request, output in zip(requests, outputs, strict=True):
        for name, value in direct(model, request).items():
            np.testing.assert_allclose(output[name], value, rtol=1e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("pretraining", {"masked_lm": "prediction_logits", "sentence": "sop_logits"}),
        ("classification", {"logits": "logits"}),
        ("token-classification", {"logits": "logits"}),
        ("span", {"start": "start_logits", "end": "end_logits"}),
        ("encoder", {"hidden": "last_hidden_state", "pooled": "pooler_output"}),
    ],
)
@torch.inference_mode()
def test_as_transformers_on_a_padded_batch(head, names, tmp_path):
    import transformers

    labels = {"labels": LABELS} if "classification" in head else {}
    model = small_model(head, **labels)
    save_model(model, tmp_path / "model")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "model")
    theirs = getattr(transformers, config.architectures[0]).from_pretrained(tmp_path / "model").eval()
    requests = random_requests(names)
    size = max(LENGTHS)
    ids, segments, mask = (torch.zeros(len(requests), size, dtype=torch.int64) for _ in range(3))
    for row, request in enumerate(requests):
        ids[row, : len(request)] = torch.from_numpy(request.ids)
        segments[row, : len(request)] = torch.from_numpy(request.segments)
        mask[row, : len(request)] = 1
    expected = theirs(input_ids=ids, token_type_ids=segments, attention_mask=mask)
    for row, (request, output) in enumerate(zip(requests, runtime_of(head, **labels).run(requests), strict=True)):
        for name, their_name in names.items():
            value = expected[their_name][row].numpy()
            if name == "masked_lm":
                value = value[request.positions]
            elif name in ("hidden", "start", "end") or head == "token-classification":
                value = value[: len(request)]
            np.testing.assert_allclose(output[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_second_segment_of_a_model_that_knows_one():
    runtime = runtime_of("encoder", type_vocab_size=1)
    (output,) = runtime.run(random_requests({"mean", "attentions"})[:1])
    assert np.isfinite(output["mean"]).all()


@pytest.mark.parametrize("ids", [[], [10**6], [-1], [5] * 49], ids=["none", "unknown", "negative", "too many"])
def test_what_no_model_can_take_is_refused(ids):
    request = Request(np.array(ids, np.int32), np.zeros(len(ids), np.int8), frozenset({"mean"}))
    with pytest.raises(InputError):
        runtime_of("encoder").run([request])


# ---------------------------------------------------------------------------------------------------------------------
# Which sequences run together

lengths = st.lists(st.integers(1, 60), max_size=40)


@settings(deadline=None)
@given(lengths, st.integers(1, 200))
def test_packed_batches_keep_the_budget_and_lose_nothing(lengths, max_tokens):
    batches = plan_packed(lengths, max_tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= max_tokens
    # Nothing was cut too early: each batch is full, or the next sequence would not have fitted.
    for batch, after in itertools.pairwise(batches):
        assert sum(lengths[i] for i in batch) + lengths[after[0]] > max_tokens


def cost(lengths, passes, pass_cost):
    return sum(len(each) * max(lengths[i] for i in each) + pass_cost for each in passes)


@settings(deadline=None)
@given(lengths, st.integers(1, 200), st.integers(0, 50))
def test_every_sequence_is_in_one_pass_within_the_budget(lengths, max_tokens, pass_cost):
    passes = plan_padded(lengths, max_tokens, pass_cost)
    assert sorted(int(i) for each in passes for i in each) == list(range(len(lengths)))
    for each in passes:
        assert len(each) == 1 or len(each) * max(lengths[i] for i in each) <= max_tokens
    longest = [max(lengths[i] for i in each) for each in passes]
    assert longest == sorted(longest, reverse=True)


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=7), st.integers(0, 20))
def test_no_other_cut_is_cheaper(lengths, pass_cost):
    passes = plan_padded(lengths, 10**6, pass_cost)
    ordered = sorted(lengths, reverse=True)
    cheapest = min(
        sum((b - a) * ordered[a] + pass_cost for a, b in itertools.pairwise((0, *cuts, len(ordered))))
        for number in range(len(ordered))
        for cuts in itertools.combinations(range(1, len(ordered)), number)
    )
    assert cost(lengths, passes, pass_cost) == cheapest


def test_like_lengths_run_together_and_a_long_one_apart():
    passes = plan_padded([10, 100, 12, 11, 9], max_tokens=512, pass_cost=16)
    assert [list(np.sort(each)) for each in passes] == [[1], [0, 2, 3, 4]]
    assert plan_padded([], 10, 1) == []


def test_only_what_full_passes_leave_over_runs_without_a_graph():
    """Its size is different each time, and every size would be recorded."""
    runtime = runtime_of("encoder", max_tokens=10)
    for lengths, graphed in (([4, 4], [True]), ([5] * 5, [True, True, False]), ([12, 3], [True, False]), ([], [])):
        seen = [runtime.encoder.use_graphs for _ in runtime.passes(lengths)]
        assert seen == graphed
        assert runtime.encoder.use_graphs


def test_a_pass_begins_before_the_one_before_it_is_read():
    seen = []

    def begin():
        for number in range(3):
            seen.append(f"begin {number}")
            yield number

    for number in one_ahead(begin()):
        seen.append(f"read {number}")
    assert seen == ["begin 0", "begin 1", "read 0", "begin 2", "read 1", "read 2"]
    assert list(one_ahead([])) == []
