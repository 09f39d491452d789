"""Does AutoTokenizer, opened on the folder we save, give our ids for any text?

    python benchmarks/tokenizer_fuzz.py [TOKENIZER ...] [--texts 20000] [--seed 1]

Short texts are drawn from letters, marks, spaces and signs of many scripts. One whose ids differ is cut down to the
fewest characters that still differ, and filed under its reason; "other" is a bug of ours. TOKENIZER is as for
`Tokenizer.load`; without one, the default model's is tried, and two in which every character is a piece of its own, so
that no difference hides behind an unknown piece: SentencePiece under every normalisation, and WordPiece.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import functools
import itertools
import json
import platform
import random
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator

import tokenizers
import transformers
from tokenizers import normalizers, pre_tokenizers

import litebert
from litebert.text.normalize import Normalization, is_latin
from litebert.text.spiece import (
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    Piece,
    SentencePieceTokenizer,
    SpieceModel,
    read_model,
    write_model,
)
from litebert.text.tokenizer import Specials, Tokenizer
from litebert.text.wordpiece import BasicRule, WordPieceTokenizer

# With and without accents, of scripts with marks, without case, without spaces; Σ, which looks at its neighbours.
LETTERS = [*"aeioszABCéÉÅøłđßæİıŒΣσςΑΟйиあか한국中文日हिกאب", "Σ", "Σ"]
SIGNS = [
    *(
        "  ,.'…▁0123456789½①ﬁﷺ",
        "\t",
        "\n",
        "\u00a0",
        "\u200b",
        "\u200c",
        "\u200d",
        "\u200e",
        "\u2028",
        "\ufeff",
        "\ufffd",
    ),
    *("1,", "2010,", "\u00ad", "\x07", "\x1c"),
]
MARKS = [chr(code) for code in range(0x300, 0x1F000) if unicodedata.category(chr(code))[0] == "M"]
REST = [
    *((0x21, 0x7F), (0xA1, 0x590), (0x5D0, 0x700), (0x904, 0x980), (0xE00, 0x1000), (0x1100, 0x1200), (0x1E00, 0x2000)),
    *((0x2010, 0x2200), (0x2460, 0x2500), (0x3000, 0x3200), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xF900, 0xFE70)),
    *((0xFE70, 0xFFF0), (0x10000, 0x10400), (0x1D400, 0x1D800), (0x1F300, 0x1F700), (0x20000, 0x20100)),
]
STRIP = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
TIE = 1e-4  # of log-probability: SentencePiece adds scores up in single precision, the tokenizers library in double


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = ((name, Tokenizer.load(name)) for name in options.tokenizers) if options.tokenizers else all_tokenizers()
    for name, tokenizer in found:
        reasons, examples = fuzz(tokenizer, options.texts, options.seed)
        result = {"tokenizer": name, "texts": options.texts, "differ": reasons.total(), "why": dict(reasons)}
        print(json.dumps({**result, "examples": examples}, ensure_ascii=False), flush=True)
    versions = {module.__name__: module.__version__ for module in (litebert, tokenizers, transformers)}
    print(json.dumps({"python": platform.python_version(), "unicode": unicodedata.unidata_version, **versions}))


def fuzz(tokenizer: Tokenizer, count: int, seed: int) -> tuple[Counter[str], dict[str, str]]:
    """How many texts differ for which reason, and the shortest text for each."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)

    def ids_of(text: str) -> list[int]:
        ids: list[int] = theirs(text, add_special_tokens=False)["input_ids"]
        return ids

    def differs(text: str) -> bool:
        return ids_of(text) != tokenizer.encode(text)

    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    source = random.Random(seed)
    for text in (draw_text(source) for _ in range(count)):
        if differs(text):
            least = cut_down(text, differs)
            why = explain(tokenizer, least, ids_of(least))
            reasons[why] += 1
            examples[why] = min(examples.get(why, least), least, key=len)
    return reasons, {why: " ".join(f"U+{ord(character):04X}" for character in text) for why, text in examples.items()}


def draw_text(source: random.Random) -> str:
    """One to seven characters or signs that are likely to be in each other's way."""
    kinds: list[Callable[[], str]] = [
        lambda: source.choice(LETTERS),
        lambda: source.choice(MARKS),
        lambda: source.choice(SIGNS),
        lambda: chr(source.randrange(*source.choice(REST))),
    ]
    return "".join(source.choice(kinds)() for _ in range(source.randint(1, 7)))


def cut_down(text: str, differs: Callable[[str], bool]) -> str:
    """The text without any character that the difference does not need."""
    place = 0
    while place < len(text):
        shorter = text[:place] + text[place + 1 :]
        text, place = (shorter, 0) if differs(shorter) else (text, place + 1)
    return text


def explain(tokenizer: Tokenizer, text: str, theirs: list[int]) -> str:
    """Why AutoTokenizer reads a text otherwise; docs/tokenizer.md lists these."""
    if not all(map(is_known, text)):
        return "Unicode tables"
    if any(before.isdigit() and after == "," for before, after in itertools.pairwise(text)):
        return "digit and comma"
    marks = sum(unicodedata.category(part)[0] == "M" for part in unicodedata.normalize("NFKD", text))
    rule = tokenizer.normalization
    if isinstance(tokenizer, SentencePieceTokenizer):
        if rule.rule == "none" and (marks or any(unicodedata.category(character) == "Cf" for character in text)):
            return "marks under `none`"
        if rule.lower and not rule.strip_accents and "İ" in text and marks > 1:
            return "İ with another mark"
        if rule.rule == "multilingual" and marks > 2 and any(map(is_latin, text)):
            return "two accents and a foreign mark"
        ours, score = tokenizer.encode(text), tokenizer._processor.get_score
        if tokenizer.decode(ours) == tokenizer.decode(theirs) and abs(sum(score(ours)) - sum(score(theirs))) < TIE:
            return "tie"
    return "other"


@functools.cache
def is_known(character: str) -> bool:
    """Whether Python and the library, whose tables are of other years, agree on a character as mark and punctuation."""
    if unicodedata.category(character) == "Cn":
        return False
    last = "\u0345"  # of all marks the one that is put last: what can be put in order comes before it
    if normalizers.NFD().normalize_str(last + character) != unicodedata.normalize("NFD", last + character):
        return False
    parts = unicodedata.normalize("NFD", character)
    if STRIP.normalize_str(parts) != "".join(part for part in parts if unicodedata.category(part) != "Mn"):
        return False
    alone = len(pre_tokenizers.BertPreTokenizer().pre_tokenize_str(f"a{character}a")) > 1
    return character.isascii() or character.isspace() or alone == unicodedata.category(character).startswith("P")


def all_tokenizers() -> Iterator[tuple[str, Tokenizer]]:
    """The default model's, and those that know every character."""
    default = Tokenizer.load(litebert.remote.resolve_default("default"))
    yield "default", default
    assert isinstance(default, SentencePieceTokenizer)
    charsmap = read_model(default.model).charsmap
    specials = [Piece(name, 0.0, CONTROL) for name in ("<pad>", "[CLS]", "[SEP]", "[MASK]")]
    specials.insert(1, Piece("<unk>", 0.0, UNKNOWN))
    characters = sorted({part for part in every_character() if part != "▁"})
    normal = [Piece("▁", -3.0, NORMAL), *(Piece(character, -5.0, NORMAL) for character in characters)]
    model = write_model(SpieceModel(specials + normal, UNIGRAM, charsmap, True, True))
    for rule in (
        Normalization.named("google"),
        Normalization.named("multilingual"),
        Normalization.named("multilingual", lower=True),
        Normalization.named("multilingual", lower=True, strip_accents=False),
        Normalization("none"),
    ):
        yield f"characters, {rule}", SentencePieceTokenizer(model, rule, Specials())
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += [piece for character in characters for piece in (character, f"##{character}")]
    for basic in (BasicRule(), BasicRule(strip_accents=False), BasicRule(lower=False, strip_accents=False)):
        yield f"characters, {basic}", WordPieceTokenizer(pieces, basic)


def every_character() -> Iterator[str]:
    """What the drawn texts are made of, whole, taken apart and put together, in either case."""
    drawn = [*LETTERS, *"".join(SIGNS), *MARKS, *(chr(code) for span in REST for code in range(*span))]
    for character in drawn:
        if unicodedata.category(character)[0] not in "CZ":
            for form in ("NFKC", "NFKD"):
                yield from unicodedata.normalize(form, character)
                yield from unicodedata.normalize(form, character.lower())


if __name__ == "__main__":
    main()
