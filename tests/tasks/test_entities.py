"""Entities by the rules of CoNLL's scorer, worked by hand."""

from __future__ import annotations

import pytest

from litebert.tasks.kinds.token_classification import find_entities


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("", set()),
        ("O O", set()),
        ("B-PER I-PER O B-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("B-PER I-LOC", {("PER", 0, 1), ("LOC", 1, 2)}),  # another type begins a new one
        ("O I-PER I-PER", {("PER", 1, 3)}),  # an I- that continues nothing begins one
        ("I-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("B-PER O I-PER", {("PER", 0, 1), ("PER", 2, 3)}),
        ("B-PER I-PER", {("PER", 0, 2)}),  # open at the end
        ("B-PER I-PER E-PER S-LOC", {("PER", 0, 3), ("LOC", 3, 4)}),  # BIOES
        ("S-PER S-PER", {("PER", 0, 1), ("PER", 1, 2)}),
        ("B-PER E-PER I-PER", {("PER", 0, 2), ("PER", 2, 3)}),
        ("B-multi-part I-multi-part", {("multi-part", 0, 2)}),
    ],
)
def test_entities(tags, entities):
    assert find_entities(tags.split()) == entities
