"""tag: a tag for every word of a text, and the entities that the tags form."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from litebert.errors import InputError
from litebert.predict.ability import Applied, Probability, Result, ability
from litebert.predict.job import Inputs, Steps
from litebert.predict.runtime import Request
from litebert.tasks.kinds.token_classification import tag_windows, word_probabilities
from litebert.tasks.task import Task
from litebert.text.words import word_marks

_HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SPACED = re.compile(r"\S+")


@functools.cache
def _word() -> re.Pattern[str]:
    """Words as in tagged corpora: punctuation is separate, "didn't", "U.S" and "well-known" stay whole.

    Each ideograph is a word. Marks stay with their letter: "हिन्दी", "José" in five characters.
    """
    marks = word_marks()
    letters = rf"[^\W{_HAN}](?:[^\W{_HAN}]++|[{marks}]++)*+"
    return re.compile(rf"{letters}(?:[-'’.&]{letters})*+|(?:[{_HAN}]|[^\w\s])[{marks}]*+")


@dataclass(frozen=True)
class TaggedWord:
    """A word and its tag."""

    text: str
    start: Annotated[int, "First character."]
    end: Annotated[int, "One past the last character."]
    tag: str
    probability: Probability


@dataclass(frozen=True)
class Entity:
    """Words that form one entity: B-PER I-PER is one PER."""

    label: str
    text: str
    start: Annotated[int, "First character."]
    end: Annotated[int, "One past the last character."]
    probability: Annotated[Probability, "Of its least certain word."]


@dataclass(frozen=True)
class Tagging(Result):
    """The words of a text with their tags, and the entities that these form."""

    text: str
    words: tuple[TaggedWord, ...]
    entities: tuple[Entity, ...]
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """Words and tags with spaces between them, and the entities: "PER Anna Berg|LOC Oslo"."""
        return {
            "words": " ".join(word.text for word in self.words),
            "tags": " ".join(word.tag for word in self.words),
            "entities": "|".join(f"{entity.label} {entity.text}" for entity in self.entities),
        }


@ability(
    outputs=["logits"],
    heads=["token-classification"],
    makes="litebert finetune --task token-classification --train FILE",
    examples=[{"text": "anna lives in oslo."}],
    also=["ner", "entities", "pos", "token-classification"],
)
def tag(
    inputs: Inputs,
    task: Task,
    text: Annotated[str, "The text to tag."],
    split: Annotated[
        Literal["words", "spaces"], "How to split the text: into words and punctuation, or at spaces only."
    ] = "words",
) -> Steps[Tagging]:
    """Tag every word and merge the tags into entities.

    With `split="spaces"` every word is returned: one outside the vocabulary (a zero-width space) gets the tag
    "O", or the first tag.
    """
    spans = [match.span() for match in (_word() if split == "words" else _SPACED).finditer(text)]
    windows = tag_windows(inputs.tokenizer, [text[begin:end] for begin, end in spans], inputs.max_length)
    read = {int(word) for window in windows if window.words is not None for word in window.words if word >= 0}
    if not read:
        raise InputError("text: has no word that the vocabulary covers")
    outputs = yield [
        Request(each.ids, each.segments, frozenset({"logits"}), outside=None if each.words is None else each.words < 0)
        for each in windows
    ]
    words: list[TaggedWord] = []
    for number, row in enumerate(word_probabilities(task, len(spans), windows, outputs)):
        if number in read or split == "spaces":
            begin, end = spans[number]
            best = int(row.argmax())
            words.append(TaggedWord(text[begin:end], begin, end, task.labels[best], float(row[best])))
    return Tagging(text, tuple(words), tuple(merge_entities(text, words, task.labels)))


def merge_entities(text: str, words: Sequence[TaggedWord], labels: Sequence[str]) -> list[Entity]:
    """Entities in the words' tags: B-PER I-PER O -> one PER; BIO, BIOES and BILOU are read, and plain names with "O".

    An inside tag with nothing before it (I-PER after O) begins an entity. Labels without "O" and without prefixes, such
    as parts of speech, make no entities.
    """
    prefixed = any(label[:2] in ("B-", "I-") for label in labels)
    if not prefixed and "O" not in labels:
        return []
    entities: list[Entity] = []
    group: list[TaggedWord] = []
    current = ""

    def close() -> None:
        if group:
            begin, end = group[0].start, group[-1].end
            least = min(word.probability for word in group)
            entities.append(Entity(current, text[begin:end], begin, end, least))
            group.clear()

    for word in words:
        prefix, name = _split_tag(word.tag) if prefixed else ("I", word.tag)
        if word.tag == "O":
            close()
            continue
        if prefix in ("B", "S", "U") or name != current:
            close()
        current = name
        group.append(word)
        if prefix in ("E", "S", "L", "U"):
            close()
    close()
    return entities


def _split_tag(tag: str) -> tuple[str, str]:
    prefix, dash, name = tag.partition("-")
    return (prefix, name) if dash and prefix in ("B", "I", "E", "S", "L", "U") else ("I", tag)
