"""The paper's vocabulary recipe: a SentencePiece unigram model with ALBERT's special ids, on text of any size.

The text is read once, in flat memory: a seeded sample of its lines is kept, normalised as it will be at encoding,
and handed to SentencePiece. The same files, options and seed give the same vocabulary.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece

from litebert.errors import ConfigError, DataError
from litebert.text.blocks import read_blocks
from litebert.text.korean import find_particles
from litebert.text.normalize import Normalization
from litebert.text.readers import Problem, parse_block
from litebert.text.sources import find_sources
from litebert.text.spiece import SentencePieceTokenizer
from litebert.text.spiece_proto import with_usual_spaces
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
MAX_CHARACTERS = 1000  # of one line: SentencePiece passes over what is longer than max_sentence_length bytes
LARGE = 1 << 30  # characters, from which on SentencePiece must be told

Progress = Callable[[str, int, int], None]  # what is done, how far, out of how much (0: not known)


@dataclass(frozen=True)
class VocabConfig:
    """What decides a vocabulary besides the text."""

    vocab_size: int = 30_000
    normalization: Normalization = field(default_factory=lambda: Normalization("multilingual"))
    character_coverage: float = 0.99995
    sample_lines: int = 500_000
    seed: int = 0
    korean_particles: bool = True

    def __post_init__(self) -> None:
        if self.vocab_size < 1:
            raise ConfigError(f"vocab_size is {self.vocab_size}; at least a few hundred pieces are needed")
        if not 0.9 <= self.character_coverage <= 1.0:
            raise ConfigError(f"character_coverage is {self.character_coverage}; it lies between 0.9 and 1")
        if self.sample_lines < 1:
            raise ConfigError(f"sample_lines is {self.sample_lines}; it must be positive")


@dataclass(frozen=True)
class TrainedVocab:
    """A new vocabulary and the text behind it."""

    tokenizer: SentencePieceTokenizer
    lines_read: int
    lines_used: int
    characters_used: int


def train_vocab(
    paths: Iterable[Path | str],
    config: VocabConfig | None = None,
    text_field: str = "text",
    progress: Progress = lambda what, done, total: None,
) -> TrainedVocab:
    """Train a vocabulary on files of any kind that the readers know: text, JSON lines, Parquet, compressed or not."""
    config = config or VocabConfig()
    paths = list(paths)
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
    """A line as it is, or in parts that SentencePiece does not pass over for their length."""
    while len(line) > MAX_CHARACTERS:
        end = line.rfind(" ", 1, MAX_CHARACTERS)
        end = end if end > 0 else MAX_CHARACTERS
        yield line[:end]
        line = line[end:].lstrip()
    if line:
        yield line


def _sample(lines: Iterable[str], config: VocabConfig) -> tuple[list[str], int]:
    """Every line with the same chance, in memory for `sample_lines` of them (reservoir sampling)."""
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
        # What comes after a cut goes on in the middle of a word, so the space before the first word is put here, and
        # SentencePiece is kept from putting or taking any.
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
        if "KeyboardInterrupt" in str(error):  # Ctrl-C while it asked for the next line, which it wraps like any error
            raise KeyboardInterrupt from None
        raise _explained(error, config) from None
    return model.getvalue() if particles is None else with_usual_spaces(model.getvalue())


def _explained(error: RuntimeError, config: VocabConfig) -> Exception:
    message = str(error)
    if match := re.search(r"too high .*<= (\d+)", message):
        return ConfigError(
            f"vocab_size {config.vocab_size} is too large for this text: at most {match[1]} pieces can be made of it; "
            "give more text or a smaller --vocab-size"
        )
    if match := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return ConfigError(
            f"vocab_size {config.vocab_size} is too small: the text needs more than {match[1]} pieces "
            "for its characters and symbols alone; give a larger --vocab-size or a lower --character-coverage"
        )
    return DataError(f"SentencePiece could not train on this text: {message}")
