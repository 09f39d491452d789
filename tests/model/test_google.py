"""Google's checkpoints, written by real TensorFlow, in our model: the numbers that TensorFlow computed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.errors import CheckpointError
from litebert.model import google
from litebert.model.config import load_config
from litebert.model.google import load_google
from litebert.model.hub import load_model, load_model_and_report

FIXTURES = Path(__file__).parent / "fixtures" / "tf"
FORWARD = ("base", "groups", "no_projection", "unshared_layer_norms", "classifier", "squad1", "squad2")


def forward_inputs(folder: Path):
    values = {name: torch.from_numpy(array) for name, array in np.load(folder / "forward.npz").items()}
    ids, segments, mask = (values[name].long() for name in ("input_ids", "segment_ids", "input_mask"))
    return values, ids, dict(segment_ids=segments, attention_mask=mask)


def check(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected.double(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", FORWARD)
def test_the_encoder_computes_what_tensorflow_computed(name):
    values, ids, inputs = forward_inputs(FIXTURES / name)
    model, _ = load_google(FIXTURES / name, "encoder")
    output = model.double()(ids, **inputs, output_hidden_states=True)
    real = inputs["attention_mask"].bool()
    for ours, tensorflow in zip(output.hidden_states[1:], values["hidden_states"], strict=True):
        check(ours[real], tensorflow[real])
    check(output.pooled, values["pooled_output"])


@pytest.mark.parametrize("name", ["base", "groups", "no_projection"])
def test_pretraining_heads(name):
    values, ids, inputs = forward_inputs(FIXTURES / name)
    model, report = load_google(FIXTURES / name)
    assert model.head == "pretraining"
    assert not report.missing
    positions = values["masked_lm_positions"].long()
    flat = (positions + ids.shape[1] * torch.arange(len(ids))[:, None]).flatten()
    output = model.double()(ids, positions=flat, **inputs)
    check(output.masked_lm.view(*positions.shape, -1), values["masked_lm_logits"])
    check(output.sentence, values["sentence_order_logits"])


def test_classifier_head():
    values, ids, inputs = forward_inputs(FIXTURES / "classifier")
    model, _ = load_google(FIXTURES / "classifier")
    assert (model.head, model.config.num_labels) == ("classification", 3)
    check(model.double()(ids, **inputs), values["classifier_logits"])


class Tensors:
    """What read_bundle gives, from plain arrays."""

    def __init__(self, prefix, tensors):
        self.prefix, self.tensor = prefix, tensors.__getitem__
        self.shapes = {name: array.shape for name, array in tensors.items()}

    def __iter__(self):
        return iter(self.shapes)


def test_one_output_is_a_regression_or_on_request_multiple_choice(monkeypatch):
    """The classifier's checkpoint, as if its head had the single output of STS-B or RACE."""
    values, ids, inputs = forward_inputs(FIXTURES / "classifier")
    bundle = google.read_bundle(FIXTURES / "classifier")
    tensors = {name: bundle.tensor(name)[: 1 if name.startswith("output_") else None] for name in bundle}
    monkeypatch.setattr(google, "read_bundle", lambda path: Tensors(bundle.prefix, tensors))
    model, report = load_google(FIXTURES / "classifier")
    assert (model.head, model.config.problem_type, model.config.num_labels) == ("classification", "regression", 1)
    assert any("for RACE, choose the multiple-choice head" in note for note in report.notes)
    check(model.double()(ids, **inputs), values["classifier_logits"][:, :1])
    race, report = load_google(FIXTURES / "classifier", "multiple-choice")
    assert not report.missing
    choices = {name: tensor[None] for name, tensor in inputs.items()}  # one question with three options
    check(race.double()(ids[None], **choices), values["classifier_logits"][None, :, 0])


def google_bert_name(name: str) -> str:
    """transformers' name of a BERT tensor as google-research/bert has it."""
    name = name.replace("encoder.layer.", "encoder.layer_").replace(".", "/")
    for theirs, google_word in (
        ("LayerNorm/weight", "LayerNorm/gamma"),
        ("LayerNorm/bias", "LayerNorm/beta"),
        ("_embeddings/weight", "_embeddings"),
        ("seq_relationship/weight", "seq_relationship/output_weights"),
        ("seq_relationship/bias", "seq_relationship/output_bias"),
        ("cls/predictions/bias", "cls/predictions/output_bias"),
        ("/weight", "/kernel"),
    ):
        if name.endswith(theirs):
            return name.removesuffix(theirs) + google_word
    return name


def test_googles_bert_computes_what_transformers_bert_does(tmp_path, monkeypatch):
    import transformers

    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50)
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**sizes, max_position_embeddings=24)).eval()
    tensors = {}
    for name, parameter in theirs.named_parameters():
        torch.nn.init.normal_(parameter, std=0.3)
        name = google_bert_name(name)
        tensors[name] = parameter.detach().numpy().T if name.endswith("/kernel") else parameter.detach().numpy()
    assert "bert/encoder/layer_1/attention/output/LayerNorm/gamma" in tensors
    (tmp_path / "bert_config.json").write_text(json.dumps({**sizes, "max_position_embeddings": 24}))
    monkeypatch.setattr(google, "read_bundle", lambda path: Tensors(tmp_path / "bert_model.ckpt", tensors))
    model, report = load_google(tmp_path)
    assert (model.head, model.config.model_type) == ("pretraining", "bert")
    assert not report.missing
    assert not report.skipped
    ids = torch.arange(20).view(2, 10)
    expected, actual = theirs(ids), model(ids)
    torch.testing.assert_close(actual.masked_lm, expected.prediction_logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(actual.sentence, expected.seq_relationship_logits, atol=1e-5, rtol=1e-5)


def test_squad1_head():
    values, ids, inputs = forward_inputs(FIXTURES / "squad1")
    model, _ = load_google(FIXTURES / "squad1")
    assert model.head == "span"
    check(torch.stack(model.double()(ids, **inputs)[:2], -1), values["squad_logits"])


def test_squad2_head_in_training_and_in_search():
    values, ids, inputs = forward_inputs(FIXTURES / "squad2")
    model, report = load_google(FIXTURES / "squad2")
    assert model.head == "answer"
    assert not report.missing
    outside, beam = values["p_mask"], int(values["beam"])
    model = model.double()
    trained = model(ids, outside=outside, start_positions=values["start_positions"].long(), **inputs)
    inside = ~outside.bool()
    check(trained.start.log_softmax(-1)[inside], values["start_log_probs"][inside])
    check(trained.end.log_softmax(-1)[inside], values["end_log_probs"][inside])
    check(trained.no_answer, values["cls_logits"].flatten())
    found = model(ids, outside=outside, top_starts=beam, top_ends=beam, **inputs)
    check(found.start_log_prob, values["start_top_log_probs"])
    assert torch.equal(found.start_index, values["start_top_index"].long())
    expected_index = values["end_top_index"].long().view(len(ids), beam, beam)
    expected = values["end_top_log_probs"].view(len(ids), beam, beam)
    # TensorFlow's fixture keeps [start, end]; ours is [end, start], as XLNet's beam search has it.
    if not torch.equal(found.end_index, expected_index):
        expected, expected_index = expected.mT, expected_index.mT
    assert torch.equal(found.end_index, expected_index)
    check(found.end, expected)


def test_shards_slices_and_optimizer_slots_change_nothing():
    expected, _ = load_google(FIXTURES / "base")
    for name in ("two_shards", "partitioned", "with_optimizer"):
        model, report = load_google(FIXTURES / name)
        assert not report.missing
        for key, tensor in expected.state_dict().items():
            assert torch.equal(model.state_dict()[key], tensor), (name, key)
        if name == "with_optimizer":
            assert "global_step" in report.skipped
            assert len(report.skipped) == 1 + 2 * len(report.mapped)


def test_hub_module_without_sentence_head_is_reported_and_answers_fifty_fifty():
    model, report = load_google(FIXTURES / "hub_module")
    assert report.missing == ["sentence.weight", "sentence.bias"]
    assert any("no sentence head" in note for note in report.notes)
    _, ids, inputs = forward_inputs(FIXTURES / "base")
    assert torch.equal(model(ids, **inputs).sentence, torch.zeros(len(ids), 2))
    expected, _ = load_google(FIXTURES / "base", "encoder")
    torch.testing.assert_close(model.encoder(ids, **inputs).hidden, expected(ids, **inputs).hidden)


def test_tf_hub_folder_layout(tmp_path):
    """saved modules keep their bundle under variables/ and the config under assets/."""
    (tmp_path / "variables").mkdir()
    (tmp_path / "assets").mkdir()
    for file in (FIXTURES / "hub_module").glob("model.ckpt-best.*"):
        shutil.copy(file, tmp_path / "variables" / file.name.replace("model.ckpt-best", "variables"))
    shutil.copy(FIXTURES / "hub_module" / "albert_config.json", tmp_path / "assets")
    model, _ = load_model_and_report(tmp_path)
    assert model.head == "pretraining"


def test_layer_normalization_spelling():
    expected, _ = load_google(FIXTURES / "base")
    model, report = load_google(FIXTURES / "layer_normalization")
    assert not report.missing
    for key, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor), key


def test_norms_of_each_layer_are_kept():
    folder = FIXTURES / "unshared_layer_norms"
    model, report = load_google(folder)
    saved = np.load(folder / "expected.npz")
    assert model.config.sharing == "none"
    assert not report.missing
    scope = "bert/encoder/transformer"
    names = (f"{scope}/group_0/layer_0", f"{scope}/group_0_1/layer_1", f"{scope}/group_0_2/layer_2")
    for layer, name in enumerate(names):
        for kind, number in (("attention", 2 * layer + 1), ("ffn", 2 * layer + 2)):
            norm = getattr(model.encoder, kind)[layer].norm
            expected = saved[f"{name}/inner_group_0/layer_normalization_{number}/gamma"]
            np.testing.assert_array_equal(norm.weight.detach().numpy(), expected)
        # ... and the matrices are the one shared set.
        expected = saved[f"{scope}/group_0/inner_group_0/ffn_1/intermediate/dense/kernel"].T
        np.testing.assert_array_equal(model.encoder.ffn[layer].input.weight.detach().numpy(), expected)


def test_heads_can_be_asked_for():
    assert load_google(FIXTURES / "base", "masked-lm")[0].head == "masked-lm"
    with pytest.raises(CheckpointError, match="has no span head"):
        load_google(FIXTURES / "base", "span")
    model, report = load_google(FIXTURES / "base", "span", new_head=True)
    assert report.missing == ["span.weight", "span.bias"]
    assert model.head == "span"


def test_load_model_takes_the_folder_too():
    assert load_model(FIXTURES / "base").head == "pretraining"


def copy_without_config(target: Path) -> None:
    target.mkdir(exist_ok=True)
    for file in (FIXTURES / "base").glob("model.ckpt-best.*"):
        shutil.copy(file, target)


@pytest.mark.parametrize("name", ["albert_config_tiny_g.json", "config.json"])
def test_any_one_config_beside_the_checkpoint_is_its_own(name, tmp_path):
    """albert_tiny_zh_google calls it albert_config_tiny_g.json; "gelu" means the tanh form whatever the name."""
    copy_without_config(tmp_path)
    shutil.copy(FIXTURES / "base" / "albert_config.json", tmp_path / name)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    expected = load_model(FIXTURES / "base")
    model = load_model(tmp_path)
    assert model.config == expected.config == load_config(tmp_path)
    _, ids, inputs = forward_inputs(FIXTURES / "base")
    assert torch.equal(model(ids, **inputs).masked_lm, expected(ids, **inputs).masked_lm)
    assert load_model(tmp_path / "model.ckpt-best").config == expected.config


def test_without_a_config_or_with_several_one_must_be_named(tmp_path, cli):
    copy_without_config(tmp_path / "google")
    with pytest.raises(CheckpointError, match=r"no albert_config.json .* so pass the file as `config`"):
        load_google(tmp_path / "google")
    elsewhere = tmp_path / "shape.json"
    shutil.copy(FIXTURES / "base" / "albert_config.json", elsewhere)
    for name in ("albert_config_a.json", "albert_config_b.json"):
        shutil.copy(elsewhere, tmp_path / "google" / name)
    with pytest.raises(CheckpointError, match=r"several configs .*: albert_config_a.json, albert_config_b.json"):
        load_google(tmp_path / "google")
    assert load_google(tmp_path / "google", config=elsewhere)[0].config == load_google(FIXTURES / "base")[0].config
    result = cli("convert", tmp_path / "google", tmp_path / "out", "--model-config", elsewhere)
    assert result.code == 0, result
    assert load_model(tmp_path / "out").config.vocab_size == 50


def test_groups_that_tensorflow_would_leave_unused_are_refused(tmp_path):
    shutil.copytree(FIXTURES / "base", tmp_path / "x")
    config = tmp_path / "x" / "albert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 22, "num_hidden_groups": 22}))
    with pytest.raises(CheckpointError, match="22 layers in 22 groups"):
        load_google(tmp_path / "x")


def test_a_config_that_does_not_fit_names_the_tensor(tmp_path):
    shutil.copytree(FIXTURES / "base", tmp_path / "x")
    config = tmp_path / "x" / "albert_config.json"
    config.write_text(config.read_text().replace('"intermediate_size": 32', '"intermediate_size": 64'))
    with pytest.raises(CheckpointError, match=r"ffn_1/intermediate/dense/kernel has shape \[32, 16\].*\[64, 16\]"):
        load_google(tmp_path / "x")
