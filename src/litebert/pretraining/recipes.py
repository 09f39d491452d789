"""How examples are made and masked: every choice one field, and the two sets of choices that have a name.

    named_recipe("paper")                             -> Recipe(objective="sop", mask_rate=0.15, ...)
    named_recipe("google", {"max_length": 128})       -> the released script's choices, at another length

The paper's text and the released `create_pretraining_data.py` differ; `docs/batches.md` lists where and why it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from litebert.config import build, check_numbers, to_dict
from litebert.errors import ConfigError, check_choice

Objective = Literal["sop", "nsp", "none"]


@dataclass(frozen=True)
class Recipe:
    """Every choice between a document and a masked example; the defaults are the recipe `paper`."""

    #: What the order label says: `sop` A and B swapped (0 = right order, 1 = swapped), `nsp` B from another
    #: document (0 = next, 1 = random), `none` no label.
    objective: Objective = "sop"
    #: With objective `none`: keep the form [CLS] A [SEP] B [SEP] instead of one segment [CLS] A [SEP].
    pairs_without_objective: bool = False

    #: Tokens of a sequence at most, [CLS] and [SEP] counted.
    max_length: int = 512
    #: Share of targets drawn uniformly from 2 .. max_length - 3 instead of full length (Sec. 4.1: 10 %).
    short_probability: float = 0.1
    #: Draw that for every `example` (the paper), or once per `document` and epoch (the released script).
    short_draw: Literal["example", "document"] = "example"
    #: `whole`: as many whole sentences as fit the target; two that do not fit together lose their outer ends. `trim`:
    #: sentences until the target is reached, then single tokens popped from the longer segment, front or back at
    #: random, down to max_length (released).
    truncation: Literal["whole", "trim"] = "whole"
    #: A sentence longer than a whole sequence is `split` into equal parts that count as sentences (nothing is lost,
    #: and text without sentence ends still gives pairs), or cut like any other excess, with `trim` (released).
    long_sentences: Literal["split", "trim"] = "split"
    #: What to do with one sentence left alone, which cannot be cut into A and B: `skip` it, make a `single`
    #: segment without an order label, or pair it with a random document and label it 1, as `nsp` (released).
    one_sentence: Literal["skip", "single", "nsp"] = "skip"

    #: What is masked as one: an `ngram` of whole words, a whole `word`, or a single `token`.
    masking: Literal["ngram", "word", "token"] = "ngram"
    #: Where words begin: `spaces` where the language has spaces, `google` as released, where every piece with a
    #: character outside ASCII letters and punctuation (a digit, Hangul, Han) is a word.
    word_style: Literal["spaces", "google"] = "spaces"
    #: Longest n-gram, in words; p(n) is proportional to 1/n, so 6/11, 3/11, 2/11 for 3.
    max_ngram: int = 3
    #: n is drawn for each `span` and kept until it has found a place, so that the masks have the shares of p(n); or
    #: for each `start` that is tried and lost with it, so that long n-grams, which collide more, are rarer (released).
    ngram_draw: Literal["span", "start"] = "span"
    #: An n-gram may go on in B where A ends (released); otherwise it ends with its segment.
    ngram_across_separator: bool = False
    #: Share of a sequence's tokens to predict, specials counted: max(1, round(length * mask_rate)).
    mask_rate: float = 0.15
    #: Predictions per sequence at most; null = mask_rate alone decides. The released script says 20.
    max_predictions: int | None = None
    #: 80/10/10 is drawn for each `token` (paper and released) or once for each `span`.
    replacement: Literal["token", "span"] = "token"
    #: Share of predicted tokens replaced by [MASK]; by a random token; the rest stay as they are.
    replace_with_mask: float = 0.8
    replace_with_random: float = 0.1
    #: Random tokens are never special ones (the released script draws from the whole vocabulary).
    random_excludes_special: bool = True

    def __post_init__(self) -> None:
        check_numbers(self, "between 8 and 4096", "max_length")
        check_numbers(self, "between 1 and 16", "max_ngram")
        if self.max_predictions is not None and self.max_predictions < 1:
            raise ConfigError(f"max_predictions: must be >= 1, or null (mask_rate decides), got {self.max_predictions}")
        check_numbers(self, "between 0 and 1", "short_probability", "replace_with_mask", "replace_with_random")
        check_numbers(self, "> 0 and <= 1", "mask_rate")
        if self.replace_with_mask + self.replace_with_random > 1 + 1e-9:
            raise ConfigError("replace_with_mask + replace_with_random: must be <= 1")
        if self.pairs_without_objective and self.objective != "none":
            raise ConfigError(f"pairs_without_objective: objective {self.objective} always has pairs; leave it false")

    @property
    def pairs(self) -> bool:
        """Whether examples have two segments."""
        return self.objective != "none" or self.pairs_without_objective

    @property
    def max_content(self) -> int:
        """Tokens of text in a sequence at most: what [CLS] and [SEP] leave over."""
        return self.max_length - (3 if self.pairs else 2)

    def num_to_predict(self, length: int) -> int:
        """The budget of one sequence: 512 -> 77 at 15 %, 20 as released."""
        budget = max(1, round(length * self.mask_rate))
        return budget if self.max_predictions is None else min(budget, self.max_predictions)


#: The paper's text (Sec. 3.1 and 4.1): sentence order without random documents in it, 15 % of the tokens predicted.
PAPER = Recipe()

#: The released script with its flags' defaults: 20 predictions, random documents for lone sentences, n-grams across
#: [SEP]. Its random tokens may be special ones; ours are not unless `random_excludes_special` is set to false.
GOOGLE = Recipe(
    short_draw="document",
    truncation="trim",
    long_sentences="trim",
    one_sentence="nsp",
    word_style="google",
    ngram_draw="start",
    ngram_across_separator=True,
    max_predictions=20,
)

RECIPES = {"paper": PAPER, "google": GOOGLE}


def named_recipe(name: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by name, with single fields changed: named_recipe("paper", {"objective": "nsp"})."""
    check_choice("recipe", name, RECIPES)
    return build(Recipe, {**to_dict(RECIPES[name]), **(overrides or {})})
