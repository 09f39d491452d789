"""Entities in tagged words (BIO, IOB and BIOES alike), counted as CoNLL's scorer does: type and both ends must agree.

find_entities(["B-PER", "I-PER", "O", "B-LOC"])  -> {("PER", 0, 2), ("LOC", 3, 4)}
"""

from __future__ import annotations

from collections.abc import Sequence

Entity = tuple[str, int, int]  # type, first word, word after the last


def find_entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of a sentence; an I- that continues nothing begins one, as in the CoNLL scorer."""
    entities = set()
    kind, begin, closed = "", 0, True
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        inside = bool(name)
        starts = inside and (closed or prefix in "BSU" or name != kind)
        if not closed and (starts or not inside):
            entities.add((kind, begin, place))
            closed = True
        if starts:
            kind, begin, closed = name, place, False
        if inside and prefix in "ESLU":
            entities.add((kind, begin, place + 1))
            closed = True
    return entities
