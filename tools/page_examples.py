"""Choose the first English examples of the page: those of our own candidates on which the default model does best.

    python tools/page_examples.py            # every candidate with its score, best first
    python tools/page_examples.py --write    # and put the best into page/examples.js

A visitor's first click should show what the model can do. What is measured, per ability:
    fill_mask        the probability of the accepted words at the weakest mask; the best word must be one of them
    sentence_order   the probability of the right order, read in both directions
    coherence        the probability at the weakest boundary
    embed            of three pairs of sentences, the least similar pair over the most similar strangers; and a search
                     for each of them
tests/predict/test_default_model.py keeps the chosen ones good. Other languages and fine-tuned abilities have no model
in the package to measure with.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from litebert.predict.predictor import Predictor

EXAMPLES = Path(__file__).parent.parent / "src" / "litebert" / "page" / "examples.js"
PREFIX = "export const EXAMPLES = "
SHOWN = {"fill_mask": 3, "sentence_order": 1, "coherence": 1}

# Sentences, and for each mask the words that a reader would accept.
MASKS: list[tuple[str, list[str]]] = [
    (
        "the band released their first [MASK] in 1994 and went on a [MASK] of europe.",
        ["album ep single record", "tour"],
    ),
    ("she read a [MASK] before she went to [MASK].", ["book letter story novel", "bed sleep"]),
    ("they were married in 1902 and had three [MASK].", ["children daughters sons"]),
    ("the town lies on the west [MASK] of the river.", ["bank side shore"]),
    ("he scored the winning [MASK] in the last minute of the [MASK].", ["goal penalty", "game match season final"]),
    ("the old church was built in the 12th [MASK].", ["century"]),
    ("romeo and [MASK] is a play by william [MASK].", ["juliet", "shakespeare"]),
    ("the second world [MASK] ended in 1945.", ["war"]),
    ("she was awarded the nobel [MASK] for literature.", ["prize award"]),
    ("he was elected to the house of [MASK] in 1874.", ["representatives commons deputies"]),
    ("the village had a [MASK] of 240 people in the last census.", ["population"]),
    ("the film was a success at the box [MASK].", ["office"]),
    ("he studied law at the [MASK] of oxford.", ["university college"]),
    ("the river rises in the mountains and flows into the [MASK].", ["sea ocean lake valley river"]),
    ("she opened the [MASK] and read the letter.", ["envelope door box"]),
    ("after the war he returned to his [MASK] town.", ["home native"]),
    ("the train leaves the [MASK] at noon.", ["station town city"]),
    ("new york is the largest [MASK] in the united [MASK].", ["city", "states"]),
    ("the museum is open every day of the [MASK].", ["week year month day"]),
    ("her [MASK] and father lived in a small house by the sea.", ["mother"]),
    ("the king married the [MASK] of the duke of burgundy.", ["daughter sister widow niece"]),
    ("the team won the championship for the first [MASK] in ten [MASK].", ["time", "years seasons"]),
    ("he plays the [MASK] and sings in a rock [MASK].", ["guitar piano drums bass violin", "band"]),
    ("the novel tells the [MASK] of two brothers.", ["story tale life lives history"]),
    ("the bridge crosses the [MASK] near the old town.", ["river creek road"]),
]
ORDERS = [
    ("she put on her coat and looked for her keys.", "then she locked the door behind her and left the house."),
    ("The company was founded in 1921 by two engineers.", "It was sold to an American firm in 1958."),
    ("He was born in a small village in Norway.", "At the age of nineteen he moved to Chicago and found work there."),
    ("The first bridge was built of wood in 1786.", "It was replaced by a bridge of stone a hundred years later."),
    ("Anna studied medicine in Vienna.", "After her studies she worked as a doctor in Prague."),
    ("The station was opened in May 1904.", "It was closed in 1967, when the last train left the town."),
    ("The band was formed in 1988 by three friends.", "Their first album was released two years later."),
    ("He joined the army in 1914.", "After the war he returned to his farm."),
    ("The novel was published in 1931.", "It was made into a film in 1954."),
    ("It began to rain in the evening.", "By midnight the streets were under water."),
    ("The farmer planted the seeds in spring.", "In autumn he brought in the harvest."),
    ("The team lost the first three games of the season.", "After that it won eleven games and took the title."),
    ("The island was discovered by a Dutch captain in 1642.", "Today it is home to about four hundred people."),
    ("The school opened in 1896 with twelve pupils.", "Ten years later it had more than two hundred."),
]
TEXTS = [
    "The village was founded in 1832 by two brothers from Ohio. It grew quickly after the railway came in 1851. By "
    "1900 it had a school, two churches and a bank. In 1964 a new bridge was built over the river. Today about two "
    "thousand people live there.",
    "Clara Holm was born in Bergen in 1871. She studied mathematics in Berlin and wrote her thesis in 1896. In 1902 "
    "she became the first woman to teach at the university. She retired in 1936 and moved to the coast. She died "
    "there in 1949.",
    "The band was formed in Leeds in 1988. Their first album was released two years later. It was followed by a tour "
    "of Europe and Japan. In 1997 the singer left the group. The others went on without him until 2004.",
    "The company was founded in 1921 by two engineers. At first it built pumps for farms. In the 1930s it began to "
    "make engines for boats. It was sold to an American firm in 1958. The old factory is now a museum.",
    "The castle was built in the 13th century. It was damaged by a fire in 1523. A new tower was added fifty years "
    "later. After 1800 nobody lived in it any more. Since 1954 it has been open to visitors.",
]
PAIRS = [
    ("the cat sleeps on the warm stove.", "a kitten is lying by the fire.", "animals at home"),
    ("the train to the north leaves at noon.", "our bus was an hour late today.", "public transport"),
    ("add two eggs and a spoon of sugar.", "stir the flour into the milk.", "how to bake a cake"),
    ("The album was released in 1994.", "Their second record came out a year later.", "music"),
    ("The river flows through the valley into the sea.", "The lake lies between two mountains.", "a landscape"),
    ("He scored two goals in the final.", "The team won the match and the cup.", "football"),
    ("She was elected to parliament in 1974.", "He served two terms as governor of the state.", "politics"),
    ("The church was built in the 12th century.", "The old castle stands on a hill above the town.", "old buildings"),
    ("The beetle lives in dry forests.", "This bird nests on the ground and eats insects.", "wild animals"),
    ("I love you, and I will never leave you.", "You are the best friend that I have.", "friendship"),
    ("Where did you put my keys?", "Have you seen my glasses?", "looking for something"),
    ("The court ruled against the company.", "The judge sent the two men to prison.", "a trial"),
    ("Mix the butter with the sugar and bake it.", "Cut the onions and fry them in oil.", "cooking"),
]


def main() -> None:
    """Score all candidates, show them, and write the best if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the best into examples.js")
    write = parser.parse_args().write
    found = rank(Predictor())
    for ability, scored in found.items():
        print(f"\n{ability}")
        for score, example, note in scored[:10]:
            print(f"  {score:7.3f}  {' / '.join(' | '.join(v.splitlines()) for v in example.values())}  {note}")
    if write:
        write_examples(found)


def rank(predictor: Predictor) -> dict[str, list[tuple[float, dict[str, str], str]]]:
    """(score, example, what the model says) of every candidate by ability, the best first."""
    ways = {"fill_mask": score_masks, "sentence_order": score_orders, "coherence": score_texts, "embed": score_pairs}
    return {name: sorted(score(predictor), key=lambda entry: -entry[0]) for name, score in ways.items()}


def score_masks(predictor: Predictor) -> list[tuple[float, dict[str, str], str]]:
    """Two masks are worth more than one: there is more to look at."""
    scored = []
    for text, accepted in MASKS:
        result = predictor.fill_mask(text, top=6)
        mass, best = [], []
        for mask, words in zip(result.masks, accepted, strict=True):
            first = mask.candidates[0].word
            best.append(first)
            mass.append(
                sum(c.probability for c in mask.candidates if c.word in words.split()) * (first in words.split())
            )
        scored.append((min(mass) + 0.5 * (len(mass) > 1) * (min(mass) > 0), {"text": text}, f"-> {', '.join(best)}"))
    return scored


def score_orders(predictor: Predictor) -> list[tuple[float, dict[str, str], str]]:
    """The probability of the right order."""
    results = predictor.sentence_order([a for a, _ in ORDERS], [b for _, b in ORDERS], symmetric=True)
    return [(r.probability, {"a": a, "b": b}, "") for r, (a, b) in zip(results, ORDERS, strict=True)]


def score_texts(predictor: Predictor) -> list[tuple[float, dict[str, str], str]]:
    """The probability at the weakest boundary."""
    results = predictor.coherence(TEXTS)
    return [(min(r.boundaries), {"text": text}, f"mean {r.score:.3f}") for r, text in zip(results, TEXTS, strict=True)]


def score_pairs(predictor: Predictor) -> list[tuple[float, dict[str, str], str]]:
    """Three pairs of which each is closer than any two strangers, by as much as possible, and found by its query."""
    texts = [text for pair in PAIRS for text in pair[:2]]
    vectors = predictor.embed(texts, normalize=True).astype(np.float64)
    asked = predictor.embed([pair[2] for pair in PAIRS], normalize=True).astype(np.float64)
    cosines, found = vectors @ vectors.T, asked @ vectors.T
    scored = []
    for chosen in itertools.combinations(range(len(PAIRS)), 3):
        places = [2 * pair + side for pair in chosen for side in (0, 1)]
        inside = [cosines[2 * pair, 2 * pair + 1] for pair in chosen]
        strangers = [cosines[i, j] for i, j in itertools.combinations(places, 2) if i // 2 != j // 2]
        # By how much the query of each pair finds both of its lines before all others.
        margins = [
            min(found[pair, [2 * pair, 2 * pair + 1]]) - max(found[pair, i] for i in places if i // 2 != pair)
            for pair in chosen
        ]
        text = "\n".join(part for pair in chosen for part in PAIRS[pair][:2])
        score = float(min(inside) - max(strangers) + min(0.0, *margins))
        scored.append((score, {"query": PAIRS[chosen[0]][2], "text": text}, ""))
    return scored


def read_examples() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The page's examples: language -> ability -> examples."""
    _, _, data = EXAMPLES.read_text(encoding="utf-8").partition(PREFIX)
    found: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(data.rstrip().rstrip(";"))
    return found


def write_examples(ranked: dict[str, list[tuple[float, dict[str, str], str]]]) -> None:
    """Put the best into the page, the others of the page staying as they are."""
    examples = read_examples()
    for ability, count in SHOWN.items():
        examples["en"][ability] = [example for _, example, _ in ranked[ability][:count]]
    lines = ranked["embed"][0][1]
    queries = [query for line, _, query in PAIRS if line in lines["text"].split("\n")]
    examples["en"]["embed"] = [{**lines, "query": query} for query in queries]
    head, _, _ = EXAMPLES.read_text(encoding="utf-8").partition(PREFIX)
    EXAMPLES.write_text(head + PREFIX + json.dumps(examples, ensure_ascii=False, indent=2) + ";\n", encoding="utf-8")


if __name__ == "__main__":
    main()
