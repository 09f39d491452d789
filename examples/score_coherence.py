"""Sentence-order prediction at work: which of two versions of a text hangs together, and where it breaks.

    python examples/score_coherence.py                        after examples/pretrain_on_text.py
    python examples/score_coherence.py --model FOLDER         any model that was pretrained with sentence order

A pretrained ALBERT needs no labels for this: `coherence` asks at every boundary between two sentences whether what
stands before it should stand before it. On the command line: litebert predict coherence --file essay.txt --whole
"""

from __future__ import annotations

import argparse
import random

from litebert import Predictor
from litebert.text.generate import generate_documents

KINDS = ("baking", "repair", "growing")  # what the model of pretrain_on_text.py has read about


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/example/model")
    parser.add_argument("--stories", type=int, default=200)
    options = parser.parse_args(arguments)
    predictor = Predictor(options.model)

    # Stories of which no sentence was in the training text; then the same with their sentences in another order.
    stories = list(generate_documents(options.stories, seed=7, split="held-out", kinds=KINDS))
    draw = random.Random(0)
    shuffled = [draw.sample(story, len(story)) for story in stories]
    told = predictor.coherence([" ".join(story) for story in stories])
    mixed = predictor.coherence([" ".join(story) for story in shuffled])
    preferred = sum(a.score > b.score for a, b in zip(told, mixed, strict=True))
    print(f"mean score: as told {mean(a.score for a in told):.2f}, shuffled {mean(b.score for b in mixed):.2f}")
    print(f"the story as told scores higher in {preferred} of {len(stories)} pairs")

    # Where does it break? Two neighbours change places in the middle; the worst boundary should lie there.
    found = 0
    for story in stories:
        place = draw.randrange(1, len(story) - 2)
        broken = [*story[:place], story[place + 1], story[place], *story[place + 2 :]]
        result = predictor.coherence(" ".join(broken), group=1)
        found += result.boundaries.index(min(result.boundaries)) == place
    print(f"two sentences that changed places are found in {found} of {len(stories)} stories")

    print("\nthe last of them, with the probability that each sentence follows the one before it:")
    for sentence, boundary in zip(result.sentences, (None, *result.boundaries), strict=True):
        mark = "     " if boundary is None else f"{boundary:5.0%}"
        print(f"{mark}  {sentence.text}" + ("     <- here" if boundary == min(result.boundaries) else ""))


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
