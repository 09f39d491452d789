"""Recipes: two names, every field can be changed, mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from litebert.config import build, to_dict
from litebert.errors import ConfigError
from litebert.pretraining.recipes import Recipe, named_recipe


def test_the_paper_predicts_15_percent_and_the_released_script_20_tokens():
    paper, google = named_recipe("paper"), named_recipe("google")
    assert [paper.num_to_predict(n) for n in (1, 5, 10, 128, 512)] == [1, 1, 2, 19, 77]
    assert [google.num_to_predict(n) for n in (1, 5, 10, 128, 512)] == [1, 1, 2, 19, 20]
    assert paper.one_sentence == "skip"  # no random documents among sentence-order labels
    assert google.one_sentence == "nsp"
    assert google.ngram_across_separator
    assert not paper.ngram_across_separator
    assert (paper.word_style, google.word_style) == ("spaces", "google")
    assert paper.random_excludes_special
    assert google.random_excludes_special


def test_a_recipe_survives_yaml_and_takes_changes():
    changed = named_recipe("google", {"max_length": "128", "objective": "nsp", "max_predictions": None})
    assert (changed.max_length, changed.objective, changed.max_predictions) == (128, "nsp", None)
    assert changed.truncation == "trim"
    assert build(Recipe, to_dict(changed)) == changed


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"objektive": "sop"}, "objektive: unknown key; did you mean 'objective'"),
        ({"objective": "sopp"}, "objective: 'sopp' is not one of: sop, nsp, none"),
        ({"max_length": 4}, "max_length: must be between 8 and 4096, got 4"),
        ({"mask_rate": 1.5}, "mask_rate: must be > 0 and <= 1, got 1.5"),
        ({"mask_rate": 0}, "mask_rate: must be > 0 and <= 1, got 0"),
        ({"max_predictions": 0}, "max_predictions: must be >= 1"),
        ({"max_ngram": 0}, "max_ngram: must be between 1 and 16, got 0"),
        ({"replace_with_random": 0.3}, "replace_with_mask \\+ replace_with_random: must be <= 1"),
        ({"pairs_without_objective": True}, "objective sop always has pairs"),
    ],
)
def test_mistakes_are_named(overrides, message):
    with pytest.raises(ConfigError, match=message):
        named_recipe("paper", overrides)


def test_the_documentation_lists_every_field_as_it_is():
    """The table of docs/batches.md: | `field` | `paper` | `google` | what it decides |."""
    page = Path(__file__).parents[2] / "docs" / "batches.md"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines() if "|" in line]
    table = {}
    for names, paper, google, _ in rows[2:]:
        for i, name in enumerate(names.split(", ")):
            values = [cell.split(", ")[i].strip("`") for cell in (paper, google)]
            table[name.strip("`")] = ["null" if value == "none" and "max" in name else value for value in values]
    spelt = {True: "true", False: "false", None: "null"}
    for field, paper in to_dict(named_recipe("paper")).items():
        values = (paper, to_dict(named_recipe("google"))[field])
        assert table.pop(field) == [spelt[v] if v is None or isinstance(v, bool) else str(v) for v in values], field
    assert not table


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'google'"):
        named_recipe("googel")


def test_room_for_text():
    assert named_recipe("paper").max_content == 509
    assert named_recipe("paper", {"objective": "none"}).max_content == 510
    assert named_recipe("paper", {"objective": "none", "pairs_without_objective": True}).max_content == 509
