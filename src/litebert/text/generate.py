"""A generated corpus: short coherent documents whose sentences have a real order, for the quickstart and the tests.

    list(generate_documents(2, seed=0)) -> [["Clara Berg, a baker from Ashby, bought ...", ...], [...]]

A kind of story is a script of steps (`topics/*.txt`), used with several topics: what is bought is cooked later, what
breaks is mended later, a person is introduced by full name and then called "she". The order is in the content;
connectives such as "then" are rare.

    == baking                                   a kind of story
    topic, flour = rye bread, rye; nut rolls, ...   its topics with their slots; one is drawn per document
    + {full} bought {flour} flour.              a step, one sentence
    | At the mill {full} ...                    another wording of the same step
    [a|b|]  {n} {n+2} {day+1}                   a choice made each time; counters that go up and down
"""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from litebert.errors import InputError, check_choice, did_you_mean

Split = Literal["train", "held-out"]
T = TypeVar("T")

NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
# Start values of counters: {n} is between five and nine, so {n-3} is at least two and {n+11} at most twenty.
COUNTERS = {"n": (NUMBERS, 5, 9), "hour": (NUMBERS[1:13], 5, 8), "day": (DAYS, 0, 6)}
TENS = "twenty thirty forty fifty".split()
PRONOUNS = {
    "woman": {"he": "she", "him": "her", "his": "her", "himself": "herself", "child": "daughter"},
    "man": {"he": "he", "him": "him", "his": "his", "himself": "himself", "child": "son"},
}

CHOICE = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)([+-]\d+)?\}")
ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")
PUNCTUATION = str.maketrans("", "", ".,'")
# Half of all sentences belong to a split: with many wordings one is found at once, with few redrawing is faster.
TRIES_PER_SENTENCE, TRIES_PER_DOCUMENT = 30, 1000


@dataclass(frozen=True)
class Topic:
    """A kind of story: slot rows, one drawn per document, and steps in order, each with its wordings."""

    name: str
    slots: dict[tuple[str, ...], list[tuple[str, ...]]]
    steps: list[list[str]]


def generate_documents(
    num: int, *, seed: int = 0, split: Split = "train", kinds: Sequence[str] = (), excerpts: bool = False
) -> Iterator[list[str]]:
    """Documents as lists of sentences; the same seed gives the same documents on every machine.

    No sentence of the held-out split is ever generated for the training split, for any seeds and sizes.
    `kinds` restricts the stories ("baking", "repair"; see `story_kinds`); by default all are used.
    `excerpts` begin and end anywhere, for pretraining: whole stories would always be cut into pairs at the same steps,
    and a model could learn which steps open a pair instead of which step precedes which.
    """
    check_choice("split", split, get_args(Split), InputError)
    if num < 0:
        raise InputError(f"num: must be >= 0, got {num}")
    for kind in kinds:
        if kind not in story_kinds():
            raise InputError(f"kinds: unknown kind of story {kind!r}{did_you_mean(kind, story_kinds())}")
    documents = (generate_document(index, seed=seed, split=split, kinds=kinds) for index in range(num))
    if not excerpts:
        return documents
    return (_excerpt(document, f"{seed} {split} {index}") for index, document in enumerate(documents))


def generate_document(index: int, *, seed: int = 0, split: Split = "train", kinds: Sequence[str] = ()) -> list[str]:
    """Document `index`, a pure function of its arguments."""
    # Seeding with text does not depend on PYTHONHASHSEED.
    rng = random.Random(f"litebert {seed} {split} {index}")
    everywhere, topics = read_topics()
    topic = _pick(rng, [topic for topic in topics if not kinds or topic.name in kinds])
    rows = {**everywhere.slots, **topic.slots}
    for _ in range(TRIES_PER_DOCUMENT):
        document = _tell(rng, topic.steps, _draw_slots(rng, rows), split)
        if document:
            return document
    raise AssertionError(f"topic {topic.name!r} has too few wordings for the {split} split")


def join_documents(documents: Iterable[Sequence[str]]) -> str:
    """Documents as plain text: one sentence per line, a blank line between documents."""
    return "\n\n".join("\n".join(document) for document in documents) + "\n"


def story_kinds() -> list[str]:
    """The names of all kinds of story: ["hatching", "young animal", ...]."""
    return [topic.name for topic in read_topics()[1]]


def is_held_out(sentence: str) -> bool:
    """Whether a sentence belongs to the held-out split, by a hash of its letters; half of all do."""
    letters = sentence.lower().translate(PUNCTUATION)  # so that all spellings are in the same split
    return hashlib.sha256(letters.encode()).digest()[0] % 2 == 1


@functools.cache
def read_topics() -> tuple[Topic, list[Topic]]:
    """The global slots, and all topics in a fixed order."""
    folder = importlib.resources.files("litebert.text") / "topics"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".txt")), key=lambda file: file.name)
    everywhere, topics = Topic("everywhere", {}, []), []
    for file in files:
        topic = everywhere
        for line in file.read_text(encoding="utf-8").splitlines():
            mark, _, text = line.partition(" ")
            if mark == "==":
                topic = Topic(text, {}, [])
                topics.append(topic)
            elif mark == "+":
                topic.steps.append([text])
            elif mark == "|":
                topic.steps[-1].append(text)
            elif " = " in line:
                left, right = line.split(" = ")
                names, rows = tuple(left.split(", ")), right.split("; ")
                topic.slots[names] = [tuple(row.split(", ", len(names) - 1)) for row in rows]
    return everywhere, topics


def _excerpt(document: list[str], name: str) -> list[str]:
    """A stretch of a story without up to three sentences at either end; at least four remain."""
    rng = random.Random(f"excerpt {name}")
    most = range(min(3, (len(document) - 4) // 2) + 1)
    return document[_pick(rng, most) : len(document) - _pick(rng, most)]


def _draw_slots(rng: random.Random, rows: dict[tuple[str, ...], list[tuple[str, ...]]]) -> dict[str, str]:
    slots: dict[str, str] = {"tens": _pick(rng, TENS)}
    for names, values in rows.items():
        slots.update(zip(names, _pick(rng, values), strict=True))
    for number in ("", "2"):  # the main person and another one
        gender = _pick(rng, ("woman", "man"))
        (first,) = _pick(rng, [row for row in rows[(gender,)] if row[0] != slots.get("name")])
        (last,) = _pick(rng, rows[("surname",)])
        slots |= {f"name{number}": first, f"full{number}": f"{first} {last}"}
        slots |= {f"{word}{number}": own for word, own in PRONOUNS[gender].items()}
    for name, (words, low, high) in COUNTERS.items():
        slots[name] = words[_pick(rng, range(low, high + 1))]
    return slots


def _tell(rng: random.Random, steps: list[list[str]], slots: dict[str, str], split: Split) -> list[str] | None:
    """One sentence per step, or None if a step has no wording in the split with these slots."""
    document = []
    for wordings in steps:
        sentence = _say(rng, wordings, slots, split)
        if sentence is None:
            return None
        document.append(sentence)
    return document


def _say(rng: random.Random, wordings: Sequence[str], slots: dict[str, str], split: Split) -> str | None:
    """A sentence for a step that belongs to the split, or None if none was found."""
    for _ in range(TRIES_PER_SENTENCE):
        sentence = _fill(rng, _pick(rng, wordings), slots)
        if is_held_out(sentence) == (split == "held-out"):
            return sentence
    return None


def _fill(rng: random.Random, text: str, slots: dict[str, str]) -> str:
    """'[a|the] {n} oxen' -> 'The six oxen': innermost choices first, since slots may contain choices."""
    while "[" in text or "{" in text:
        text = CHOICE.sub(lambda match: _pick(rng, match[1].split("|")), text)
        text = SLOT.sub(lambda match: _count(match[1], slots[match[1]], int(match[2] or 0)), text)
    text = ARTICLE.sub(r"\1n ", " ".join(text.split()).replace(" ,", ",").replace(" .", "."))
    return text[0].upper() + text[1:]


def _count(name: str, word: str, offset: int) -> str:
    """'day', 'Sunday', 1 -> 'Monday'"""
    if not offset:
        return word
    words, _, _ = COUNTERS[name]
    return words[(words.index(word) + offset) % len(words)]


def _pick(rng: random.Random, choices: Sequence[T]) -> T:
    # random() is the one method whose sequence Python promises to keep across versions.
    return choices[int(rng.random() * len(choices))]
