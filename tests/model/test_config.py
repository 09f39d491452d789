"""Configs: presets, validation, and the Hub's and Google's JSON."""

from __future__ import annotations

import json

import pytest

from litebert.errors import CheckpointError, ConfigError
from litebert.model.config import (
    PRESETS,
    ModelConfig,
    from_google,
    from_hub,
    plan_of,
    preset,
    read_config,
    to_hub,
    vary,
)

RELEASED_BASE = {  # the fields of a released albert_config.json
    "attention_probs_dropout_prob": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0,
    "embedding_size": 128,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "inner_group_num": 1,
    "down_scale_factor": 1,
    "type_vocab_size": 2,
    "vocab_size": 30000,
}


def test_presets_have_the_papers_shapes():
    shapes = {
        name: (c.hidden_size, c.num_hidden_layers, c.num_attention_heads, c.intermediate_size)
        for name, c in PRESETS.items()
        if name.endswith(("-base", "-large", "-xlarge", "-xxlarge"))
    }
    assert shapes == {
        "albert-base": (768, 12, 12, 3072),
        "albert-large": (1024, 24, 16, 4096),
        "albert-xlarge": (2048, 24, 32, 8192),
        "albert-xxlarge": (4096, 12, 64, 16384),
        "bert-base": (768, 12, 12, 3072),
        "bert-large": (1024, 24, 16, 4096),
    }


@pytest.mark.parametrize("size", ["base", "large", "xlarge", "xxlarge"])
def test_dropout_of_v1_and_v2(size):
    assert preset(f"albert-{size}-v2").hidden_dropout_prob == 0
    expected = 0 if size == "xxlarge" else 0.1
    v1 = preset(f"albert-{size}-v1")
    assert (v1.hidden_dropout_prob, v1.attention_probs_dropout_prob) == (expected, expected)
    assert v1.classifier_dropout_prob == 0.1


def test_released_json_ignores_unused_fields_and_reads_gelu_as_tanh():
    assert from_google(RELEASED_BASE) == preset("albert-base")
    chinese = from_google({**RELEASED_BASE, "hidden_act": "relu", "vocab_size": 21128, "initializer_range": 0.014})
    assert (chinese.hidden_act, chinese.vocab_size, chinese.initializer_range) == ("relu", 21128, 0.014)


def test_the_small_shapes_of_the_chinese_models():
    shapes = [
        (c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.num_attention_heads)
        for c in (preset("albert-tiny"), preset("albert-small"))
    ]
    assert shapes == [(4, 312, 1248, 12), (6, 384, 1536, 12)]


def test_a_bert_config_json_is_read_as_the_hubs_conversion_is():
    bert = {
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 2,
        "vocab_size": 30522,
    }
    config = from_google(bert)
    assert config == preset("bert-base", vocab_size=30522)
    assert (config.hidden_act, config.bos_token_id, config.eos_token_id) == ("gelu", None, None)


def test_gelu_in_a_hub_config_is_the_erf_form():
    assert from_hub({**RELEASED_BASE, "model_type": "albert"}).hidden_act == "gelu"


def test_the_file_name_tells_the_two_apart(tmp_path):
    for name, expected in (("albert_config.json", "gelu_new"), ("config.json", "gelu")):
        (tmp_path / name).write_text(json.dumps(RELEASED_BASE))
        assert read_config(tmp_path / name)[0].hidden_act == expected


def test_heads_come_from_the_file():
    assert from_hub({**RELEASED_BASE, "model_type": "albert", "num_attention_heads": 16}).num_attention_heads == 16


@pytest.mark.parametrize("name", PRESETS)
def test_hub_json_round_trip(name):
    config = PRESETS[name]
    assert from_hub(json.loads(json.dumps(to_hub(config, "X")))) == config


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
def test_extension_json_round_trip(sharing):
    config = preset("albert-tiny", sharing=sharing, labels=("x", "y", "z"), problem_type="multi_label_classification")
    data = json.loads(json.dumps(to_hub(config, "X", extension=True)))
    assert data["model_type"] == "litebert"
    assert from_hub(data) == config


def test_not_sharing_is_one_group_per_layer():
    assert preset("albert-base", sharing="none").num_hidden_groups == 12
    assert preset("albert-base", sharing="none", num_hidden_layers=3).num_hidden_groups == 3
    assert from_hub(to_hub(preset("albert-base", num_hidden_groups=12), "X")).sharing == "none"


def test_hub_defaults_are_transformers_own():
    assert from_hub({"model_type": "albert"}).hidden_size == 4096
    assert from_hub({"model_type": "bert"}).vocab_size == 30522
    bert = from_hub({"model_type": "bert", "hidden_dropout_prob": 0.2, "classifier_dropout": None})
    assert bert.classifier_dropout_prob == 0.2


def test_labels_from_the_hub():
    data = {**RELEASED_BASE, "model_type": "albert", "id2label": {"1": "yes", "0": "no"}}
    assert from_hub(data).labels == ("no", "yes")
    assert from_hub({**RELEASED_BASE, "model_type": "albert", "num_labels": 3}).num_labels == 3
    with pytest.raises(ConfigError, match="without gaps"):
        from_hub({**data, "id2label": {"0": "no", "2": "yes"}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 7}, "must divide hidden_size 768, got 7"),
        ({"num_hidden_groups": 13}, "num_hidden_groups: must be <= num_hidden_layers 12, got 13"),
        ({"hidden_size": 0}, "hidden_size: must be between 1 and 65,536, got 0"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob: must be >= 0 and < 1"),
        ({"hidden_act": "gelo"}, "did you mean 'gelu'"),
        ({"sharing": "atention"}, "did you mean 'attention'"),
        ({"hiden_size": 3}, "did you mean 'hidden_size'"),
        ({"name": "mine", "config": 1}, "name: unknown model field"),
        ({"layer_norm_eps": 0}, "layer_norm_eps: must be > 0"),
        ({"embedding_projection": False}, "embedding_projection: needed"),
        ({"pad_token_id": 30000}, "pad_token_id: must be >= 0 and < vocab_size"),
        ({"model_type": "bert"}, "a bert has sharing none"),
        ({"vocab_size": "many"}, "vocab_size: expected a whole number, got 'many'"),
    ],
)
def test_impossible_values_are_refused_with_the_reason(changes, message):
    with pytest.raises(ConfigError, match=message):
        preset("albert-base", **changes)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"model_type": "gpt2"}, "neither albert nor bert"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder"),
        ({"model_type": "albert", "num_attention_heads": 48}, "must divide hidden_size"),
    ],
)
def test_hub_configs_we_cannot_run_are_refused(data, message):
    with pytest.raises(ConfigError, match=message):
        from_hub(data, "some/config.json")


def test_an_unknown_preset_shows_the_nearest():
    with pytest.raises(
        ConfigError, match=r"^no preset 'albert-xlrge'; did you mean 'albert-xlarge'.*\? Known: albert-"
    ):
        preset("albert-xlrge")
    with pytest.raises(ConfigError, match=r"^no preset 'zzz'\. Known: albert-tiny, "):
        preset("zzz")


@pytest.mark.parametrize("name", [["albert-base"], {"a": 1}, 3, True])
def test_a_preset_that_is_no_text_is_refused(name):
    with pytest.raises(ConfigError, match=r"^no preset "):
        preset(name)


def test_unreadable_json_names_file_and_line(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"hidden_size": 3,\n oops}')
    with pytest.raises(CheckpointError, match=r"config.json:2: not valid JSON"):
        read_config(path)
    path.write_text("[]")
    with pytest.raises(CheckpointError, match="expected a JSON object"):
        read_config(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: must be between 1 and 1,024, got 1,000,000,000"),
        ({"hidden_size": 10**12}, "hidden_size: must be between 1 and 65,536"),
        ({"hidden_size": 10**400}, "hidden_size: expected a whole number"),
        ({"num_hidden_layers": 1000, "inner_group_num": 1000}, "inner_group_num: 1000 layers of 1000 blocks are 1,0"),
        ({"vocab_size": 10**15}, "vocab_size: must be between"),
        ({"initializer_range": float("inf")}, "initializer_range: must be > 0 and <= 100"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps: expected a number"),
        ({"num_labels": 10**10}, "num_labels: must be between 0 and"),
        ({"bos_token_id": []}, "bos_token_id: expected a whole number"),
        ({"architectures": 5}, "architectures: expected a list of names, got 5"),
        ({"architectures": [5]}, "architectures: expected a list of names"),
    ],
)
def test_absurd_configs_are_refused_at_once(tmp_path, changes, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "albert", **changes}))
    with pytest.raises((ConfigError, CheckpointError), match=rf"config\.json: {message}"):
        read_config(path)


def test_depth_has_a_limit_too():
    with pytest.raises(ConfigError, match="depth: must be between 1 and 1,024, got 1,000,000,000"):
        plan_of(preset("albert-base"), 10**9)


def test_vary_works_out_derived_fields_anew():
    assert not vary(preset("albert-base"), embedding_size=768).embedding_projection
    assert vary(preset("albert-base", embedding_size=768), embedding_size=128).embedding_projection
    assert ModelConfig() == preset("albert-base")
