"""Parameter counts to the digit: against the facts, and against the modules themselves."""

from __future__ import annotations

import json

import pytest
import torch

from litebert.model.config import ModelConfig, preset, vary
from litebert.model.count import count_parameters, paper_models, training_memory
from litebert.model.heads import EncoderModel, PretrainingModel

PUBLISHED = {
    "albert-base": (11_683_584, 11_813_810),
    "albert-large": (17_683_968, 17_847_474),
    "albert-xlarge": (58_724_864, 59_021_490),
    "albert-xxlarge": (222_595_584, 223_158_450),
}
# Computed counts of the facts, in millions with two decimals.
MILLIONS = {
    "Table 3": [87.65, 89.65, 93.65, 109.08, 9.68, 11.68, 15.69, 31.11],
    "Table 4": [31.11, 83.08, 57.12, 109.08, 11.68, 63.65, 37.69, 89.65],
    "groups": [11.68, 18.77, 25.86, 32.95, 47.12, 89.65],
}


def test_params_json(cli):
    rows = json.loads(cli("params", "--json").out)
    for row in rows:
        assert {"name", "parameters", "parameters_with_heads", "paper"} <= row.keys()
        parts = ("embeddings", "projection", "attention", "ffn", "pooler")
        assert sum(row[part] for part in parts) == row["parameters"]
        assert row["parameters"] + row["heads"] == row["parameters_with_heads"]
    by_name = {row["name"]: row for row in rows}
    for name, (backbone, heads) in PUBLISHED.items():
        assert (by_name[name]["parameters"], by_name[name]["parameters_with_heads"]) == (backbone, heads)
    for table, expected in MILLIONS.items():
        assert [round(row["parameters"] / 1e6, 2) for row in rows if row["table"] == table] == expected
    width = [row["parameters"] for row in rows if row["table"] == "Table 12"]
    assert width[:3] == [17_683_968, 58_724_864, 222_595_584]
    assert round(width[3] / 1e6, 1) == 495.5
    assert by_name["albert-large"]["paper"] == "18M"
    # "An ALBERT configuration similar to BERT-large has 18x fewer parameters"
    assert int(by_name["albert-large"]["bert_large_ratio"]) == 18


def test_the_bert_baselines():
    sizes = dict(hidden_size=2048, embedding_size=2048, num_attention_heads=32, intermediate_size=8192)
    models = (preset("bert-base"), preset("bert-large"), preset("bert-large", **sizes))
    base, large, xlarge = (count_parameters(config).total for config in models)
    assert (round(base / 1e6, 2), round(large / 1e6, 2)) == (109.08, 334.61)
    # Embeddings and their norm, 24 times attention and FFN with theirs, pooler: 1,275M.
    assert xlarge == 62_496_768 + 24 * (16_789_504 + 33_568_768) + 4_196_352


@pytest.mark.parametrize("entry", paper_models(), ids=lambda entry: f"{entry.table} {entry.name}")
def test_formula_equals_the_modules(entry):
    with torch.device("meta"):
        encoder, model = EncoderModel(entry.config), PretrainingModel(entry.config)
    count = count_parameters(entry.config)
    assert sum(p.numel() for p in encoder.parameters()) == count.total
    assert sum(p.numel() for p in model.parameters()) == count.with_heads


def test_params_of_a_config_file_a_folder_and_a_preset(cli, tmp_path):
    from litebert.model.hub import save_model

    config = preset("albert-tiny", vocab_size=100)
    save_model(EncoderModel(config), tmp_path / "model")
    (tmp_path / "mine.yaml").write_text("hidden_size: 64\nnum_attention_heads: 2\nintermediate_size: 128\n")
    for source, expected in (
        (tmp_path / "model", config),
        (tmp_path / "model" / "config.json", config),
        (tmp_path / "mine.yaml", ModelConfig(hidden_size=64, num_attention_heads=2, intermediate_size=128)),
        ("bert-large", preset("bert-large")),
    ):
        [row] = json.loads(cli("params", source, "--json").out)
        assert row["parameters"] == count_parameters(expected).total
    assert "albert-base" in cli("params").out
    assert "none.yaml: no such config file" in cli("params", tmp_path / "none.yaml").err


@pytest.mark.parametrize(
    ("name", "paper"),
    [
        ("albert-base", "12M"),
        ("albert-xxlarge-v1", "235M"),
        ("bert-large", "334M"),
        ("default", "12M"),
        ("albert-tiny", "-"),
    ],
)
def test_one_model_is_shown_beside_the_papers_figure(cli, name, paper):
    [row] = json.loads(cli("params", name, "--json").out)
    assert row["paper"] == paper
    shown = cli("params", name).out
    assert paper in shown.splitlines()[1].split()
    assert "exactly those of the released checkpoints" in " ".join(shown.split())


def test_activation_estimate_is_near_what_autograd_keeps():
    """Bytes saved for backward by the real model, against the formula, in fp32."""
    config = vary(preset("albert-tiny"), vocab_size=500, hidden_size=128, num_attention_heads=2, intermediate_size=512)
    model = PretrainingModel(config)
    tokens = 256
    sizes: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters and tensor.is_floating_point():
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(0, 500, (2, tokens // 2))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(ids, positions=torch.arange(0, tokens, 7))
        loss = torch.nn.functional.cross_entropy(output.masked_lm, torch.zeros(37, dtype=torch.long))
    measured = sum(sizes.values()) / tokens
    estimate = training_memory(config, bytes_per_value=4, mask_rate=1 / 7).activations_per_token
    assert abs(estimate - measured) < 0.15 * measured, (estimate, measured, loss)
