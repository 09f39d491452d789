"""The paper's vocabulary recipe: a SentencePiece unigram model with ALBERT's special ids, on text of any size.

The text is read once, in constant memory: a seeded sample of its lines is kept, normalised as for encoding, and given
to SentencePiece. The same files, options and seed give the same vocabulary.

Korean writes particles onto the word: 식당에 is 식당 (restaurant) and 에 (in). A unigram vocabulary would fill up with
frequent combinations (▁나는, ▁학교에서) and miss what they share. So for training, Korean text is cut before each
particle, and no piece spans the cut; encoding needs no extra rule.
"""

from __future__ import annotations

import io
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece

from litebert.errors import ConfigError, DataError
from litebert.text.normalize import Normalization
from litebert.text.readers import Problem, parse_block, read_blocks
from litebert.text.sources import find_sources
from litebert.text.spiece import SentencePieceTokenizer, with_usual_spaces
from litebert.text.tokenizer import Specials

# As the authors trained theirs (their README, and the options stored in the released model).
PAPER_OPTIONS: dict[str, Any] = {
    "model_type": "unigram",
    "normalization_rule_name": "nmt_nfkc",
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
    "user_defined_symbols": ["(", ")", '"', "-", ".", "–", "£", "€"],
    "seed_sentencepiece_size": 1_000_000,
    "shrinking_factor": 0.75,
    "num_sub_iterations": 2,
    "max_sentence_length": 4192,
    "max_sentencepiece_length": 16,
    "split_by_unicode_script": True,
    "split_by_whitespace": True,
    "split_by_number": True,
    "hard_vocab_limit": True,
    # Not the number of cores: sums are shared out by thread, so this decides the last digits of the scores.
    "num_threads": 16,
}
MAX_CHARACTERS = 1000  # per line: SentencePiece skips lines of more than max_sentence_length bytes
LARGE = 1 << 30  # characters; from here on SentencePiece needs train_extremely_large_corpus

Progress = Callable[[str, int, int], None]  # stage, done, total (0: unknown)


@dataclass(frozen=True)
class VocabConfig:
    """Everything that determines a vocabulary besides the text."""

    vocab_size: int = 30_000
    normalization: Normalization = field(default_factory=lambda: Normalization("multilingual"))
    character_coverage: float = 0.99995
    sample_lines: int = 500_000
    seed: int = 0
    korean_particles: bool = True

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise ConfigError(f"vocab_size must be > 0 (usually thousands), got {self.vocab_size}")
        if not 0.9 <= self.character_coverage <= 1.0:
            raise ConfigError(f"character_coverage must be between 0.9 and 1, got {self.character_coverage}")
        if self.sample_lines < 1:
            raise ConfigError(f"sample_lines must be > 0, got {self.sample_lines}")


@dataclass(frozen=True)
class TrainedVocab:
    """A new vocabulary, and how much text it was trained on."""

    tokenizer: SentencePieceTokenizer
    lines_read: int
    lines_used: int
    characters_used: int


def train_vocab(
    paths: Path | str | Iterable[Path | str],
    config: VocabConfig | None = None,
    text_field: str = "text",
    progress: Progress = lambda what, done, total: None,
) -> TrainedVocab:
    """Train a vocabulary on text, JSON lines or Parquet files, compressed or not."""
    config = config or VocabConfig()
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    lines, seen = _sample(_read_lines(paths, text_field, progress), config)
    for i, line in enumerate(lines):  # in place, so that there is one copy
        lines[i] = config.normalization(line)
    lines = [line for line in lines if line]
    if not lines:
        raise DataError(f"no text to train on in {', '.join(map(str, paths))}")
    characters = sum(map(len, lines))
    progress("training", 0, 0)
    model = _train(lines, characters, config)
    tokenizer = SentencePieceTokenizer(model, config.normalization, Specials())
    return TrainedVocab(tokenizer, seen, len(lines), characters)


def _read_lines(paths: list[Path | str], text_field: str, progress: Progress) -> Iterator[str]:
    sources = find_sources(paths)
    total = sum(source.size for source in sources)
    before = 0
    for source in sources:
        for block in read_blocks(source.path, text_field=text_field):
            progress("reading", before + block.position, total)
            for document in parse_block(block, text_field):
                if isinstance(document, Problem):
                    raise DataError(document.message)
                for line in document.lines:
                    yield from _cut_line(line)
        before += source.size


def _cut_line(line: str) -> Iterator[str]:
    """A line as it is, or in parts short enough for SentencePiece."""
    while len(line) > MAX_CHARACTERS:
        end = line.rfind(" ", 1, MAX_CHARACTERS)
        end = end if end > 0 else MAX_CHARACTERS
        yield line[:end]
        line = line[end:].lstrip()
    if line:
        yield line


def _sample(lines: Iterable[str], config: VocabConfig) -> tuple[list[str], int]:
    """`sample_lines` of the lines, each with the same chance (reservoir sampling), and how many there were."""
    draw = random.Random(config.seed)
    kept: list[str] = []
    seen = 0
    for line in lines:
        seen += 1
        if len(kept) < config.sample_lines:
            kept.append(line)
        else:
            place = draw.randrange(seen)
            if place < config.sample_lines:
                kept[place] = line
    return kept, seen


def _train(lines: list[str], characters: int, config: VocabConfig) -> bytes:
    particles = find_particles(lines) if config.korean_particles else None
    options = PAPER_OPTIONS | {"vocab_size": config.vocab_size, "character_coverage": config.character_coverage}
    text: Iterator[str] = iter(lines)
    if particles is not None:
        # The part after a cut continues a word, so the space before the first word is added here, and SentencePiece
        # must neither add nor remove any.
        text = (part for line in lines for part in particles.cut(" " + line))
        options |= {"add_dummy_prefix": False, "remove_extra_whitespaces": False}
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=text,
            model_writer=model,
            train_extremely_large_corpus=characters > LARGE,
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        if "KeyboardInterrupt" in str(error):  # Ctrl-C while it fetched the next line
            raise KeyboardInterrupt from None
        raise _explained(error, config) from None
    return model.getvalue() if particles is None else with_usual_spaces(model.getvalue())


def _explained(error: RuntimeError, config: VocabConfig) -> Exception:
    message = str(error)
    if match := re.search(r"too high .*<= (\d+)", message):
        return ConfigError(
            f"vocab_size {config.vocab_size} is too large for this text, which yields at most {match[1]} pieces; "
            "use more text or a smaller vocab_size"
        )
    if match := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return ConfigError(
            f"vocab_size {config.vocab_size} is too small: this text needs more than {match[1]} pieces "
            "for its characters and symbols alone; use a larger vocab_size or a lower character_coverage"
        )
    return DataError(f"SentencePiece could not train on this text: {message}")


# -- Korean particles -------------------------------------------------------------------------------------------------

AFTER_VOWEL = frozenset({"는", "가", "를", "와"})
AFTER_CONSONANT = frozenset({"은", "이", "을", "과"})
AFTER_ANY = frozenset({"에", "에서", "에게", "의", "도"})
TO = frozenset({"로", "으로"})  # 로 after a vowel or ㄹ, 으로 after the other consonants
PARTICLES = sorted(AFTER_VOWEL | AFTER_CONSONANT | AFTER_ANY | TO, key=lambda particle: (-len(particle), particle))

MAX_PARTICLES = 2  # 에서는, 에게도
MIN_SHARE = 0.01  # of a word's count: seen this often with a subject or object particle, it is a noun
MIN_COUNT = 3
REMEMBERED_WORDS = 1 << 20

_WORD = re.compile(r"[가-힣]+(?![^\W\d_])")
_FIRST_SYLLABLE, _FINALS, _RIEUL = 0xAC00, 28, 8


class Particles:
    """Cuts Korean words before their particles, using the word counts of a text.

    A word ends in a particle if the syllable before it allows that one (는 follows a vowel, 은 a consonant), unless
    the whole word itself occurs with a subject or object particle: 지도 is "map", not 지 + 도, since 지도를 occurs.
    """

    def __init__(self, counts: Counter[str]):
        self._counts = counts
        self._known: dict[str, list[str]] = {}

    def cut(self, line: str) -> list[str]:
        """Cut a line before every particle: "나는 밥을 먹었다" -> ["나", "는 밥", "을 먹었다"]."""
        if line.isascii():
            return [line]
        return _WORD.sub(lambda word: "\n".join(self.split(word[0])), line).split("\n")

    def split(self, word: str) -> list[str]:
        """A word and its particles: "식당에는" -> ["식당", "에", "는"]."""
        parts = self._known.get(word)
        if parts is None:
            if len(self._known) >= REMEMBERED_WORDS:
                self._known.clear()
            parts = self._known[word] = self._split(word, MAX_PARTICLES)
        return parts

    def _split(self, word: str, most: int) -> list[str]:
        if most == 0 or word in PARTICLES or self._is_noun(word):
            return [word]
        for particle in PARTICLES:
            stem = word.removesuffix(particle)
            if stem and stem != word and _fits(stem, particle):
                return [*self._split(stem, most - 1), particle]
        return [word]

    def _is_noun(self, word: str) -> bool:
        after = ("이", "을") if _final(word) else ("가", "를")
        met = sum(self._counts[word + particle] for particle in after)
        return met >= MIN_COUNT and met >= MIN_SHARE * self._counts[word]


def find_particles(texts: Iterable[str]) -> Particles | None:
    """Count the Korean words of some texts; None if there are none."""
    counts: Counter[str] = Counter()
    for text in texts:
        if not text.isascii():
            counts.update(_WORD.findall(text))
            if len(counts) > REMEMBERED_WORDS:  # constant memory: rare words decide nothing
                counts = Counter({word: count for word, count in counts.items() if count > 1})
    return Particles(counts) if counts else None


def _fits(stem: str, particle: str) -> bool:
    final = _final(stem)
    if particle in AFTER_VOWEL:
        return final == 0
    if particle in AFTER_CONSONANT:
        return final != 0
    if particle in TO:
        return (final in (0, _RIEUL)) == (particle == "로")
    return True


def _final(word: str) -> int:
    """The number of the consonant that ends a word's last syllable; 0 for none."""
    return (ord(word[-1]) - _FIRST_SYLLABLE) % _FINALS
