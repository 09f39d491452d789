"""Our models against transformers': same weights, same outputs, same gradients; folders open on both sides."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import onnxruntime
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from litebert.export.model_graph import build_onnx
from litebert.model.config import ModelConfig, preset, vary
from litebert.model.count import count_parameters
from litebert.model.heads import MODELS
from litebert.model.hub import load_model, load_model_and_report, save_model
from litebert.model.names import HUB_CLASSES, hub_names

SMALL = ModelConfig(
    vocab_size=90,
    embedding_size=16,
    hidden_size=32,
    num_hidden_layers=6,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    labels=("a", "b", "c"),
)
SHAPES = {
    "small": SMALL,
    "3 groups": vary(SMALL, num_hidden_groups=3),
    "inner 2": vary(SMALL, inner_group_num=2, num_hidden_layers=3),
    "3 groups, inner 2": vary(SMALL, num_hidden_groups=3, inner_group_num=2),
    "unshared": vary(SMALL, sharing="none"),
    "E = H": vary(SMALL, embedding_size=32),
    "erf": vary(SMALL, hidden_act="gelu"),
    "relu": vary(SMALL, hidden_act="relu"),
    "bert": vary(SMALL, model_type="bert", sharing="none", embedding_size=32, hidden_act="gelu", num_hidden_layers=3),
}
UNTIED = {
    "untied": vary(SMALL, tie_word_embeddings=False),
    "bert, untied": vary(SHAPES["bert"], tie_word_embeddings=False),
}
SHAPES |= UNTIED
BERT_BASE = preset("bert-base", vocab_size=1000, num_hidden_layers=2)
TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def scramble(model: torch.nn.Module, scale: float = 0.1) -> torch.nn.Module:
    """Weights away from their initial values, biases and norms included, so that nothing can hide."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


def inputs(config: ModelConfig, batch: int = 3, length: int = 20):
    """Ids with both segments and real padding."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(0, config.vocab_size, (batch, length), generator=generator)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[1, length // 2 :] = 0
    mask[2, -1:] = 0
    segments = torch.zeros_like(ids)
    segments[:, length // 3 :] = 1
    return ids, segments, mask


def both(config: ModelConfig, head: str, tmp_path, scale: float = 0.1):
    ours = scramble(MODELS[head](config), scale)
    save_model(ours, tmp_path / "model")
    cls = getattr(transformers, HUB_CLASSES[head][config.model_type == "bert"])
    theirs, info = cls.from_pretrained(tmp_path / "model", output_loading_info=True, attn_implementation="eager")
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return ours, theirs.eval()


@pytest.mark.parametrize("shape", SHAPES)
def test_hidden_states_pooled_output_and_attention(shape, tmp_path):
    config = dataclasses.replace(SHAPES[shape], labels=())
    ours, theirs = both(config, "encoder", tmp_path)
    ids, segments, mask = inputs(config)
    actual = ours(ids, segment_ids=segments, attention_mask=mask, output_hidden_states=True, output_attentions=True)
    expected = theirs(
        ids, token_type_ids=segments, attention_mask=mask, output_hidden_states=True, output_attentions=True
    )
    real = mask.bool()
    torch.testing.assert_close(actual.hidden[real], expected.last_hidden_state[real], **TOLERANCE)
    torch.testing.assert_close(actual.pooled, expected.pooler_output, **TOLERANCE)
    plain = ours(ids, segment_ids=segments, attention_mask=mask)
    torch.testing.assert_close(plain.hidden, actual.hidden, **TOLERANCE)
    # transformers records one state per layer (inner blocks are not told apart in every release), ours one per block.
    per_layer = actual.hidden_states[:: config.inner_group_num]
    if len(expected.hidden_states) == len(actual.hidden_states):
        per_layer = actual.hidden_states
    assert len(per_layer) == len(expected.hidden_states)
    for a, b in zip(per_layer, expected.hidden_states, strict=True):
        torch.testing.assert_close(a[real], b[real], **TOLERANCE)
    assert len(actual.attentions) == config.num_hidden_layers * config.inner_group_num
    if len(expected.attentions) == len(actual.attentions):
        for a, b in zip(actual.attentions, expected.attentions, strict=True):
            torch.testing.assert_close(a, b, **TOLERANCE)


def head_outputs(head, ours, theirs, config):
    """The outputs both sides share, as (name, ours, theirs)."""
    ids, segments, mask = inputs(config, batch=4)
    if head == "multiple-choice":
        ids, segments, mask = (x.view(2, 2, -1) for x in (ids, segments, mask))
    actual = ours(ids, segment_ids=segments, attention_mask=mask)
    expected = theirs(ids, token_type_ids=segments, attention_mask=mask)
    if head == "pretraining":
        sentence = expected.sop_logits if config.model_type == "albert" else expected.seq_relationship_logits
        return [(actual.masked_lm, expected.prediction_logits), (actual.sentence, sentence)]
    if head == "masked-lm":
        return [(actual.masked_lm, expected.logits)]
    if head == "sentence-order":
        return [(actual.sentence, expected.logits)]
    if head == "span":
        return [(actual[0], expected.start_logits), (actual[1], expected.end_logits)]
    return [(actual, expected.logits)]


HEADS = [
    (shape, head)
    for shape in ("small", "3 groups, inner 2", "E = H", "bert")
    for head, names in HUB_CLASSES.items()
    if head != "encoder" and names[shape == "bert"] is not None
] + [(shape, head) for shape in UNTIED for head in ("pretraining", "masked-lm")]


@pytest.mark.parametrize(("shape", "head"), HEADS)
def test_heads_and_gradients(shape, head, tmp_path):
    config = SHAPES[shape]
    ours, theirs = both(config, head, tmp_path)
    pairs = head_outputs(head, ours, theirs, config)
    for actual, expected in pairs:
        torch.testing.assert_close(actual, expected, **TOLERANCE)
    compare_gradients(ours, theirs, pairs)


@pytest.mark.parametrize(("shape", "head"), HEADS)
def test_every_head_that_transformers_writes_opens_here(shape, head, tmp_path):
    """Made and saved by transformers alone; the head is told by the folder, and every output is theirs."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act")
    config = SHAPES[shape]
    options = {name: getattr(config, name) for name in (*sizes, "max_position_embeddings", "tie_word_embeddings")}
    if config.model_type == "albert":
        for name in ("embedding_size", "num_hidden_groups", "inner_group_num"):
            options[name] = getattr(config, name)
    # transformers sizes its sentence-order head by the labels, so these are 2 where there is one.
    if head in ("classification", "token-classification"):
        options |= {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    kind = transformers.BertConfig if config.model_type == "bert" else transformers.AlbertConfig
    theirs = scramble(getattr(transformers, HUB_CLASSES[head][config.model_type == "bert"])(kind(**options)))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert ours.head == head
    for actual, expected in head_outputs(head, ours, theirs, config):
        torch.testing.assert_close(actual, expected, **TOLERANCE)


def compare_gradients(ours, theirs, pairs):
    """Every gradient within 1e-4 of its tensor's largest, from the same scalar of both sides' outputs."""
    config = ours.config
    # The same scalar of every output, so that every head sends gradient.
    for side in (0, 1):
        loss = sum((pair[side].float().sin() * torch.arange(pair[side].shape[-1]).cos()).mean() for pair in pairs)
        loss.backward()
    names = hub_names(vary(config, embedding_projection=True) if config.model_type == "albert" else config)
    gradients = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    compared = 0
    if not config.tie_word_embeddings:  # transformers adds the decoder's bias then, and leaves the other without use
        names["masked_lm.bias"] = names["masked_lm.output.weight"].replace(".weight", ".bias")
    for name, parameter in ours.named_parameters():
        expected = gradients[names[name]]
        if name == "encoder.embeddings.word.weight":
            # padding_idx stops the pad row's gradient as an input in transformers; ours trains it, as released.
            expected, actual = expected[1:], parameter.grad[1:]
        else:
            actual = parameter.grad
        # A key's bias adds the same to all logits of a query: its true gradient is 0, and only rounding is left of it.
        scale = largest if name.endswith("key.bias") else float(expected.abs().max())
        assert float((actual - expected).abs().max()) <= 1e-4 * scale, name
        compared += 1
    assert compared == len(list(ours.parameters()))


@pytest.mark.parametrize("config", [preset("albert-base"), BERT_BASE], ids=["albert", "bert"])
def test_base_shape(config, tmp_path):
    ours, theirs = both(config, "pretraining", tmp_path, scale=0.02)
    ids, segments, mask = inputs(config, batch=3, length=64)
    actual = ours(ids, segment_ids=segments, attention_mask=mask)
    expected = theirs(ids, token_type_ids=segments, attention_mask=mask)
    sentence = expected.sop_logits if config.model_type == "albert" else expected.seq_relationship_logits
    real = mask.bool()
    pairs = [(actual.masked_lm[real], expected.prediction_logits[real]), (actual.sentence, sentence)]
    for a, b in pairs:
        torch.testing.assert_close(a, b, **TOLERANCE)
    compare_gradients(ours, theirs, pairs)


def test_a_hub_name_is_found_in_the_cache_offline(tmp_path):
    """The Hub's cache as huggingface_hub lays it out; a process of its own, since the setting is read on import."""
    ours = scramble(MODELS["masked-lm"](dataclasses.replace(SMALL, labels=())))
    cache, commit = tmp_path / "cache" / "models--someone--small-albert", "0123456789abcdef0123456789abcdef01234567"
    save_model(ours, cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    ids, _, _ = inputs(SMALL)
    code = (
        "import sys, torch\n"
        "from litebert import load_model\n"
        f"ids = torch.tensor({ids.tolist()})\n"
        "torch.save(load_model('someone/small-albert')(ids).masked_lm.detach(), sys.argv[1])\n"
        "load_model('someone/not-there')\n"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", code, str(tmp_path / "logits.pt")]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "CheckpointError: someone/not-there: no such folder, and" in result.stderr, result.stderr
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), ours(ids).masked_lm.detach(), **TOLERANCE)


@pytest.mark.parametrize("shape", SHAPES)
def test_folders_of_transformers_open_here(shape, tmp_path):
    """Written by transformers, read by ours, written by ours, read by its Auto classes: the same outputs throughout."""
    config = SHAPES[shape]
    ours, theirs = both(config, "classification", tmp_path)
    theirs.save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    assert again.head == "classification"
    assert again.config.labels == ("a", "b", "c")
    ids, segments, mask = inputs(config)
    expected = ours(ids, segment_ids=segments, attention_mask=mask)
    torch.testing.assert_close(again(ids, segment_ids=segments, attention_mask=mask), expected, **TOLERANCE)
    save_model(again, tmp_path / "again")
    auto = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").eval()
    assert auto.config.id2label == {0: "a", 1: "b", 2: "c"}
    logits = auto(ids, token_type_ids=segments, attention_mask=mask).logits
    torch.testing.assert_close(logits, expected, **TOLERANCE)


def test_a_projection_found_in_a_file_is_kept(tmp_path):
    config = transformers.AlbertConfig(
        vocab_size=50,
        embedding_size=16,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        num_hidden_layers=2,
    )
    theirs = scramble(transformers.AlbertModel(config))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert ours.config.embedding_projection
    ids, _, _ = inputs(ours.config)
    torch.testing.assert_close(ours(ids).pooled, theirs(ids).pooler_output, **TOLERANCE)
    save_model(ours, tmp_path / "again")
    assert load_model(tmp_path / "again").config.embedding_projection


def test_identity_projection_comes_and_goes(tmp_path):
    ours = scramble(MODELS["encoder"](vary(SHAPES["E = H"], labels=())))
    assert ours.encoder.projection is None
    save_model(ours, tmp_path)
    assert load_model(tmp_path).encoder.projection is None
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        theirs.encoder.embedding_hidden_mapping_in.bias += 1.0  # trained on there: no longer an identity
    theirs.save_pretrained(tmp_path / "trained")
    assert load_model(tmp_path / "trained").encoder.projection is not None


@pytest.mark.parametrize(
    ("config", "head"),
    [
        (vary(SMALL, sharing="attention"), "encoder"),
        (vary(SMALL, sharing="ffn"), "pretraining"),
        (SMALL, "answer"),
        (SMALL, "sentence-order"),
        # transformers puts a layer of 18 in 14 groups into the wrong one
        (vary(SMALL, num_hidden_layers=18, num_hidden_groups=14), "encoder"),
    ],
)
def test_what_transformers_cannot_express_is_refused_there_and_opens_here(config, head, tmp_path):
    ours = scramble(MODELS[head](config))
    save_model(ours, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "litebert"
    with pytest.raises(ValueError, match="litebert"):
        transformers.AutoModel.from_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert again.head == head
    assert again.config == dataclasses.replace(config, labels=())
    for name, tensor in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def untied_file(shape, folder):
    """A masked LM of transformers whose output matrix and its bias are their own, and its logits for some ids."""
    kind = transformers.BertConfig if "bert" in shape else transformers.AlbertConfig
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=90)
    if "bert" not in shape:
        sizes["embedding_size"] = 16
    config = kind(**sizes, max_position_embeddings=40, tie_word_embeddings=False)
    theirs = scramble(getattr(transformers, HUB_CLASSES["masked-lm"]["bert" in shape])(config))
    theirs.save_pretrained(folder)
    ids = torch.arange(60).view(3, 20)
    return ids, theirs(ids).logits.detach()


@pytest.mark.parametrize("shape", UNTIED)
def test_an_untied_output_matrix_is_kept_by_every_door(shape, tmp_path, cli):
    ids, expected = untied_file(shape, tmp_path / "theirs")
    ours, report = load_model_and_report(tmp_path / "theirs")
    torch.testing.assert_close(ours(ids).masked_lm, expected, **TOLERANCE)
    assert report.skipped == [("cls." if "bert" in shape else "") + "predictions.bias"]  # which is not in use there
    tied = load_model(tmp_path / "theirs", tie_word_embeddings=True)
    assert (tied(ids).masked_lm - expected).abs().max() > 0.1  # what is at stake
    assert cli("convert", tmp_path / "theirs", tmp_path / "converted").code == 0
    again, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "converted", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    torch.testing.assert_close(again.eval()(ids).logits, expected, **TOLERANCE)
    with_sentence = MODELS["pretraining"](ours.config)
    assert with_sentence.num_parameters == count_parameters(ours.config).with_heads
    for int8, bound in ((False, 1e-4), (True, 0.1 * float(expected.abs().max()))):
        session = onnxruntime.InferenceSession(build_onnx(ours, "int8" if int8 else "fp32").SerializeToString())
        feeds = {"input_ids": ids, "segment_ids": torch.zeros_like(ids), "attention_mask": torch.ones_like(ids)}
        feeds["positions"] = torch.arange(ids.numel())
        (logits,) = session.run(["masked_lm"], {name: value.numpy() for name, value in feeds.items()})
        assert (torch.from_numpy(logits) - expected.flatten(0, 1)).abs().max() < bound


@pytest.mark.parametrize("shape", UNTIED)
def test_a_config_that_says_tied_beside_another_output_matrix_is_not_believed(shape, tmp_path):
    """transformers then ties nothing; a matrix that equals the word embeddings is one of two names for them."""
    ids, expected = untied_file(shape, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    ours, report = load_model_and_report(tmp_path)
    torch.testing.assert_close(ours(ids).masked_lm, expected, **TOLERANCE)
    assert not ours.config.tie_word_embeddings
    assert any("output matrix" in note for note in report.notes)
    state = load_file(tmp_path / "model.safetensors")
    (words,) = (name for name in state if name.endswith("word_embeddings.weight"))
    (matrix,) = (name for name in state if name.endswith("decoder.weight"))
    state[matrix] = state[words].clone()
    save_file(state, tmp_path / "model.safetensors")
    tied, report = load_model_and_report(tmp_path)
    assert tied.config.tie_word_embeddings
    assert matrix in report.skipped
    del state[words]  # as some writers of safetensors do with one of two equal tensors
    save_file(state, tmp_path / "model.safetensors")
    torch.testing.assert_close(load_model(tmp_path)(ids).masked_lm, tied(ids).masked_lm)


@pytest.mark.parametrize(("layers", "groups"), [(18, 14), (27, 21), (44, 36)])
def test_groups_are_cut_as_transformers_cuts_them(layers, groups, tmp_path):
    """Its int(i / (layers / groups)) rounds 13 pairs up to 48 layers down to the group before."""
    sizes = dict(vocab_size=30, embedding_size=4, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    config = transformers.AlbertConfig(**sizes, num_hidden_layers=layers, num_hidden_groups=groups)
    theirs = scramble(transformers.AlbertModel(config), scale=0.5)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    ids = torch.arange(30).view(3, 10)
    expected = torch.stack(theirs(ids, output_hidden_states=True).hidden_states)
    states = torch.stack(ours(ids, output_hidden_states=True).hidden_states)
    torch.testing.assert_close(states, expected, atol=1e-4, rtol=1e-4)
    exactly = load_model(tmp_path / "theirs", rounded_groups=False)
    states = torch.stack(exactly(ids, output_hidden_states=True).hidden_states)
    assert (states - expected).abs().max() > 0.1  # what is at stake
    save_model(ours, tmp_path / "again")
    again = transformers.AutoModel.from_pretrained(tmp_path / "again").eval()
    torch.testing.assert_close(again(ids).last_hidden_state, expected[-1], **TOLERANCE)
    save_model(exactly, tmp_path / "exactly")  # which transformers would compute otherwise, so it must not open it
    assert json.loads((tmp_path / "exactly" / "config.json").read_text())["model_type"] == "litebert"
    assert load_model(tmp_path / "exactly").config == exactly.config


@pytest.mark.parametrize("kind", ["Albert", "Bert"])
def test_an_encoder_that_transformers_wrote_without_a_pooler(kind, tmp_path):
    sizes = dict(vocab_size=50, hidden_size=16, num_attention_heads=2, intermediate_size=32, num_hidden_layers=2)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    theirs = scramble(getattr(transformers, f"{kind}Model")(config, add_pooling_layer=False))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    ids = torch.arange(20).view(2, 10)
    output = ours(ids)
    assert output.pooled is None
    torch.testing.assert_close(output.hidden, theirs(ids).last_hidden_state, **TOLERANCE)
