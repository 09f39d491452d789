"""What a run starts from, and what learns in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from litebert.config import to_dict
from litebert.model.config import load_config
from litebert.model.heads import MaskedLMModel
from litebert.model.hub import load_model
from litebert.pretraining.config import run_config
from litebert.pretraining.objective import make_model
from litebert.train.optimizer import AdamW, Lamb, make_optimizer

GOOGLE = Path(__file__).parents[1] / "model" / "fixtures" / "tf"


def continued(name: str, **changes):
    model = to_dict(load_config(GOOGLE / name))
    return run_config({"model": model, "init_from": str(GOOGLE / name), "recipe": {"max_length": 16}, **changes})


def test_pretraining_goes_on_from_googles_files():
    model, notes = make_model(continued("base"))
    assert not notes
    expected = load_model(GOOGLE / "base").state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())


def test_a_tf_hub_module_lacks_the_sentence_head_and_says_so():
    model, (note,) = make_model(continued("hub_module"))
    assert note.endswith("has no sentence.weight, sentence.bias: initialised")
    assert torch.equal(model.encoder.pooler.weight, load_model(GOOGLE / "base").encoder.pooler.weight)
    without, notes = make_model(continued("hub_module", recipe={"max_length": 16, "objective": "none"}))
    assert isinstance(without, MaskedLMModel)
    assert not notes


@pytest.mark.parametrize(("name", "kind"), [("lamb", Lamb), ("adamw", AdamW)])
def test_the_optimiser_is_the_one_that_was_named(name, kind):
    config = continued("base", optim={"name": name, "lr": 0.1, "weight_decay": 0.02, "beta1": 0.8, "eps": 1e-7})
    optimizer = make_optimizer(make_model(config)[0], config.optim, config.learning_rate().peak)
    assert type(optimizer) is kind
    plain, exempt = optimizer.param_groups
    assert (plain["weight_decay"], exempt["weight_decay"]) == (0.02, 0.0)
    assert (plain["betas"], plain["eps"]) == ((0.8, 0.999), 1e-7)
