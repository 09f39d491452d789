"""Models with exits: every depth equals a model of that depth, and their folders open here and in transformers."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tiny_shape import tiny_shape

from litebert.errors import ConfigError, InputError
from litebert.model.config import vary
from litebert.model.heads import AnswerModel, ClassificationModel, PretrainingModel, SpanModel, TokenClassificationModel
from litebert.model.hub import load_model, save_model

TINY = tiny_shape(num_hidden_layers=4, initializer_range=0.3, labels=("a", "b", "c"), exits=(1, 3, 4))
IDS = torch.arange(20).reshape(2, 10)
MASK = torch.ones_like(IDS)
MASK[1, 7:] = 0


def shallower(model: ClassificationModel, depth: int) -> ClassificationModel:
    """A model of so many layers with the same weights, and the classifier of that exit."""
    other = ClassificationModel(vary(TINY, num_hidden_layers=depth, exits=())).eval()
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("exits.")}
    if depth < TINY.num_hidden_layers:
        state |= {f"classifier.{part}": model.exits[str(depth)].get_parameter(part) for part in ("weight", "bias")}
    other.load_state_dict(state)
    return other


@torch.no_grad()
def test_each_depth_is_a_model_of_that_depth_with_the_head_of_its_exit():
    torch.manual_seed(0)
    model = ClassificationModel(TINY).eval()
    exits = model.at_exits(IDS, (1, 3, 4), attention_mask=MASK)
    answers = []
    for exit in exits:
        expected = shallower(model, exit.depth)(IDS, attention_mask=MASK)
        answers.append(expected)
        torch.testing.assert_close(model(IDS, at=exit), expected)
        model.set_depth(exit.depth)
        torch.testing.assert_close(model(IDS, attention_mask=MASK), expected)
        model.set_depth(None)
    assert not torch.allclose(answers[0], answers[1])
    torch.testing.assert_close(model(IDS, attention_mask=MASK), answers[-1])


@torch.no_grad()
@pytest.mark.parametrize("cls", [TokenClassificationModel, SpanModel, AnswerModel, PretrainingModel])
def test_every_head_answers_at_its_exits(cls):
    torch.manual_seed(1)
    model = cls(TINY).eval()
    found = []
    for exit in model.at_exits(IDS, TINY.exits):
        model.set_depth(exit.depth)
        here, alone = model(IDS, at=exit), model(IDS)
        here, alone = (x if isinstance(x, torch.Tensor) else x[0] for x in (here, alone))
        torch.testing.assert_close(here, alone)
        found.append(here)
    assert not torch.allclose(found[0], found[-1])


@torch.no_grad()
@pytest.mark.parametrize("changes", [{"sharing": "none"}, {"num_hidden_groups": 2}, {"inner_group_num": 2}])
def test_a_depth_is_the_beginning_of_the_whole_pass_whatever_is_shared(changes):
    model = ClassificationModel(vary(TINY, **changes)).eval()
    states = model.encoder(IDS, output_hidden_states=True).hidden_states
    model.set_depth(3)
    torch.testing.assert_close(model.encoder(IDS).hidden, states[3 * model.config.inner_group_num])


def test_exits_live_in_the_folder_and_transformers_opens_the_full_depth(tmp_path):
    torch.manual_seed(2)
    model = ClassificationModel(TINY).eval()
    save_model(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["exits"] == [1, 3, 4]
    tensors = load_file(tmp_path / "model.safetensors")
    assert sorted(name for name in tensors if name.startswith("exits.")) == [
        "exits.1.bias",
        "exits.1.weight",
        "exits.3.bias",
        "exits.3.weight",
    ]
    again = load_model(tmp_path)
    assert again.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(
            theirs(IDS, attention_mask=MASK).logits, model(IDS, attention_mask=MASK), atol=1e-5, rtol=1e-5
        )
    assert load_model(tmp_path, "encoder").config.exits == (1, 3, 4)


def test_a_folder_without_exits_says_nothing_of_them(tmp_path):
    save_model(ClassificationModel(vary(TINY, exits=())), tmp_path)
    assert "exits" not in json.loads((tmp_path / "config.json").read_text())


@pytest.mark.parametrize("exits", [(0, 4), (3, 1, 4), (1, 3), (2, 2, 4), (4, 5)])
def test_exits_that_do_not_rise_to_the_full_depth(exits):
    with pytest.raises(ConfigError, match="exits: "):
        vary(TINY, exits=exits)


def test_a_depth_that_was_not_trained():
    with pytest.raises(InputError, match="depth 2; it has exits at 1, 3, 4"):
        ClassificationModel(TINY).set_depth(2)
    with pytest.raises(InputError, match="it has no exits"):
        ClassificationModel(vary(TINY, exits=())).set_depth(2)
    with pytest.raises(InputError, match="between 1 and 4"):
        PretrainingModel(TINY).set_depth(5)
    PretrainingModel(TINY).set_depth(2)  # one head for all depths
