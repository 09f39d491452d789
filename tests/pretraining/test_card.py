"""The model card describes the run, and nothing else."""

from __future__ import annotations

import pytest

from litebert.model.config import preset
from litebert.pretraining.config import run_config
from litebert.pretraining.evaluate import describe_sharing, write_card

FACTS = {
    "backbone_parameters": 1234,
    "objective": "sop",
    "steps": 3,
    "tokens": 4567,
    "seconds": 60.0,
    "hardware": {"name": "a test", "precision": "fp32"},
    "litebert": "0",
    "torch": "2",
    "python": "3",
}
SAMPLE = {"text": "a [MASK] | b", "answers": ["cat"], "guesses": [[{"token": "dog", "probability": 0.5}]]}


def card(folder, objective="sop", **data) -> str:
    config = run_config({"model": {"preset": "albert-tiny"}, "recipe": {"objective": objective}, "data": data})
    return write_card(folder, config, None, [SAMPLE], {**FACTS, "objective": objective}).read_text()


@pytest.mark.parametrize(
    ("data", "source"),
    [
        ({"held_out": 0.01}, "held-out text"),
        ({"held_out": 0, "eval_stores": ["other"]}, "held-out text"),
        ({"held_out": 0}, "text it was trained on"),
    ],
)
def test_samples_name_their_source(tmp_path, data, source):
    text = card(tmp_path, **data)
    assert f"| {source} | right | guesses |" in text
    assert ("held-out" in text) == (source == "held-out text")
    assert "| a [MASK] \\| b | cat | dog 50% |" in text


@pytest.mark.parametrize(("objective", "name"), [("sop", "AutoModelForPreTraining"), ("none", "AutoModelForMaskedLM")])
def test_the_class_that_opens_it(tmp_path, objective, name):
    assert f"`{name}.from_pretrained(...)`" in card(tmp_path, objective)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "all layers share one block"),
        ({"num_hidden_groups": 2}, "layers in 2 groups, each sharing one block"),
        ({"inner_group_num": 2}, "all layers share 2 blocks"),
        ({"sharing": "attention"}, "all layers share attention"),
        ({"sharing": "ffn", "num_hidden_groups": 2}, "layers in 2 groups, each sharing the feed-forward part"),
        ({"sharing": "none"}, "no sharing"),
    ],
)
def test_sharing_in_words(changes, text):
    assert describe_sharing(preset("albert-tiny", **changes)) == text
