"""The sharing plan, in numbers and in gradients."""

from __future__ import annotations

import pytest
import torch
from tiny_shape import tiny_shape

from litebert.errors import ConfigError
from litebert.model.config import num_blocks, plan_of, sharing_plan, vary
from litebert.model.encoder import Encoder

TINY = tiny_shape(vocab_size=30, num_hidden_layers=4)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (dict(layers=4, sharing="all"), [(0, 0)] * 4),
        (dict(layers=4, sharing="attention"), [(0, 0), (0, 1), (0, 2), (0, 3)]),
        (dict(layers=4, sharing="ffn"), [(0, 0), (1, 0), (2, 0), (3, 0)]),
        (dict(layers=3, sharing="none", num_groups=3), [(0, 0), (1, 1), (2, 2)]),
        (dict(layers=4, sharing="all", num_groups=2), [(0, 0), (0, 0), (1, 1), (1, 1)]),
        (dict(layers=5, sharing="all", num_groups=3), [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2)]),
        (dict(layers=2, sharing="all", inner=2), [(0, 0), (1, 1), (0, 0), (1, 1)]),
        (dict(layers=2, sharing="all", num_groups=2, inner=2), [(0, 0), (1, 1), (2, 2), (3, 3)]),
        (dict(layers=4, sharing="attention", num_groups=2), [(0, 0), (0, 1), (1, 2), (1, 3)]),
        (dict(layers=2, sharing="ffn", inner=2), [(0, 0), (1, 1), (2, 0), (3, 1)]),
    ],
)
def test_plans(arguments, expected):
    assert [tuple(step) for step in sharing_plan(**arguments)] == expected


@pytest.mark.parametrize("layers", [1, 7, 12, 22, 24, 48])
def test_groups_are_contiguous_equal_and_all_used(layers):
    # Google's int(i / L * groups) leaves the last of 22 groups unused, transformers' form errs at (18, 14).
    for groups in range(1, layers + 1):
        blocks = [step.attention for step in sharing_plan(layers, "all", groups)]
        assert blocks == sorted(blocks)
        sizes = [blocks.count(group) for group in range(groups)]
        assert max(sizes) - min(sizes) <= 1


CONFIGS = {
    "all": TINY,
    "attention": vary(TINY, sharing="attention"),
    "ffn": vary(TINY, sharing="ffn"),
    "none": vary(TINY, sharing="none"),
    "groups": vary(TINY, num_hidden_groups=2),
    "inner": vary(TINY, inner_group_num=2),
    "attention, groups, E = H": vary(TINY, sharing="attention", num_hidden_groups=2, embedding_size=16),
    "ffn, inner": vary(TINY, sharing="ffn", inner_group_num=2),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_which_parameters_receive_gradient_from_which_application(name):
    """Cut the graph around one application at a time: exactly the blocks of the plan get its gradient."""
    config = CONFIGS[name]
    encoder = Encoder(config)
    ids = torch.arange(12).view(2, 6)
    assert (len(encoder.attention), len(encoder.ffn)) == num_blocks(config)
    for index, step in enumerate(plan_of(config)):
        encoder.zero_grad(set_to_none=True)
        with torch.no_grad():
            before = encoder(ids, output_hidden_states=True).hidden_states[index]
        encoder.plan = (step,)  # one application, fed with what it would be fed with
        hooked = encoder.embeddings.register_forward_hook(lambda *_, before=before: before)
        projection, encoder.projection = encoder.projection, None
        encoder(ids).hidden.square().sum().backward()
        hooked.remove()
        encoder.projection = projection
        encoder.set_depth()
        for kind, blocks, used in (("attention", encoder.attention, step.attention), ("ffn", encoder.ffn, step.ffn)):
            for block, module in enumerate(blocks):
                touched = [parameter.grad is not None for parameter in module.parameters()]
                assert all(touched) if block == used else not any(touched), (kind, block, index)


def test_shared_gradient_is_the_sum_over_applications():
    """All-shared ALBERT = the unshared model with equal copies, its gradients added up."""
    torch.manual_seed(0)
    shared = Encoder(TINY).double()
    unshared = Encoder(vary(TINY, sharing="none")).double()
    state = shared.state_dict()
    for name in unshared.state_dict():
        parts = name.split(".")
        if parts[0] in ("attention", "ffn"):
            parts[1] = "0"
        state[name] = shared.state_dict()[".".join(parts)]
    unshared.load_state_dict({name: state[name] for name in unshared.state_dict()})
    ids = torch.randint(0, 30, (3, 9))
    for model in (shared, unshared):
        model(ids).pooled.sin().sum().backward()
    for kind in ("attention", "ffn"):
        for name, parameter in getattr(shared, kind)[0].named_parameters():
            copies = [dict(block.named_parameters())[name].grad for block in getattr(unshared, kind)]
            torch.testing.assert_close(parameter.grad, torch.stack(copies).sum(0))


def test_depth_applies_the_same_blocks_fewer_or_more_times():
    encoder = Encoder(TINY).eval()
    ids = torch.arange(10).view(2, 5)
    states = encoder(ids, output_hidden_states=True).hidden_states
    encoder.set_depth(2)
    torch.testing.assert_close(encoder(ids).hidden, states[2])
    encoder.set_depth(9)
    assert len(encoder(ids, output_hidden_states=True).hidden_states) == 10
    encoder.set_depth()
    torch.testing.assert_close(encoder(ids).hidden, states[4])


@pytest.mark.parametrize(
    ("config", "depth", "message"),
    [
        (TINY, 0, "between 1 and 1,024, got 0"),
        (CONFIGS["none"], 5, "only shared layers can be applied more often"),
        (CONFIGS["attention"], 5, "must be <= num_hidden_layers 4 with sharing"),
        (CONFIGS["groups"], 1, "must be >= num_hidden_groups 2, got 1"),
    ],
)
def test_impossible_depths_are_refused(config, depth, message):
    with pytest.raises(ConfigError, match=message):
        Encoder(config).set_depth(depth)
