"""How fast is text turned into ids on one core, beside transformers' AutoTokenizer in batch mode?

    python benchmarks/tokenizer_speed.py --model spiece.model TEXT... [--megabytes 4] [--rounds 7]

TEXT: text files (compressed or not), one paragraph per line. Everything from raw paragraph to ids counts,
normalisation included; one thread each, in turns, round by round. Seconds are processor time, so that other work on
the machine matters little; figures are medians over the rounds, and a ratio is the median of the rounds' ratios.

transformers is measured twice: as it opens the bare spiece.model (its own pipeline, whose ids differ), and as it opens
our folder (the same ids, but for the handful that tokenizer_check.py explains). For WordPiece the same pieces are
written as a BERT vocabulary.
"""

from __future__ import annotations

import os

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import itertools
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import transformers

import litebert
from litebert.text.readers import open_text
from litebert.text.sentences import split_sentences
from litebert.text.tokenizer import Tokenizer
from litebert.text.wordpiece import CONTINUES, BasicRule, WordPieceTokenizer
from litebert.text.words import SPACE

Encode = Callable[[list[str]], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=4.0, help="of text, from each file")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()

    ours = Tokenizer.load(options.model)
    wordpiece = as_wordpiece(ours)
    plain = sentencepiece.SentencePieceProcessor(model_file=str(options.model))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        ours.save(Path(folder, "spiece"))
        wordpiece.save(Path(folder, "wordpiece"))
        Path(folder, "bare").mkdir()
        Path(folder, "bare", "spiece.model").write_bytes(options.model.read_bytes())
        Path(folder, "bare", "config.json").write_text(json.dumps({"model_type": "albert"}))
        contestants: dict[str, Encode] = {
            "litebert": ours.encode_batch,
            "AutoTokenizer, bare spiece.model": batch_mode(Path(folder, "bare")),
            "AutoTokenizer, our folder": batch_mode(Path(folder, "spiece")),
            "normalisation alone": lambda texts: list(map(ours.normalization, texts)),
            "sentencepiece alone": lambda texts: plain.encode(texts, num_threads=1),
            "litebert, WordPiece": wordpiece.encode_batch,
            "AutoTokenizer, WordPiece": batch_mode(Path(folder, "wordpiece")),
        }
        for path in options.texts:
            paragraphs = read_paragraphs(path, options.megabytes)
            sentences = [sentence for text in paragraphs for sentence in split_sentences(text)]
            for unit, texts in (("paragraphs", paragraphs), ("sentences", sentences)):
                results.append({"text": path.name, "unit": unit, **race(contestants, texts, options.rounds)})
                print(json.dumps(results[-1], indent=1, ensure_ascii=False), flush=True)
    versions = {module.__name__: module.__version__ for module in (litebert, sentencepiece, tokenizers, transformers)}
    print(json.dumps({"python": platform.python_version(), "machine": processor(), **versions}))


def race(contestants: dict[str, Encode], texts: list[str], rounds: int) -> dict[str, Any]:
    """MB/s of each, and the ratios that matter."""
    size = sum(len(text.encode("utf-8")) for text in texts) / 1e6
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for encode in contestants.values():
        encode(texts[: len(texts) // 10])  # warm
    for _ in range(rounds):
        for name, encode in contestants.items():
            start = time.process_time()
            encode(texts)
            seconds[name].append(time.process_time() - start)

    def ratio(fast: str, slow: str) -> float:
        return round(statistics.median(s / f for f, s in zip(seconds[fast], seconds[slow], strict=True)), 1)

    return {
        "texts": len(texts),
        "MB": round(size, 2),
        "MB per second": {name: round(size / statistics.median(values), 2) for name, values in seconds.items()},
        "litebert / AutoTokenizer, bare spiece.model": ratio("litebert", "AutoTokenizer, bare spiece.model"),
        "litebert / AutoTokenizer, our folder": ratio("litebert", "AutoTokenizer, our folder"),
        "WordPiece: litebert / AutoTokenizer": ratio("litebert, WordPiece", "AutoTokenizer, WordPiece"),
    }


def batch_mode(folder: Path) -> Encode:
    """A transformers tokenizer that returns ids and nothing else."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    settings = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    return lambda texts: tokenizer(texts, **settings)["input_ids"]


def as_wordpiece(tokenizer: Tokenizer) -> WordPieceTokenizer:
    """The same pieces as a BERT vocabulary: "▁the" -> "the", "ing" -> "##ing"."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rest = tokenizer.pieces[len(specials) :]
    words = [piece.removeprefix(SPACE) if piece.startswith(SPACE) else CONTINUES + piece for piece in rest]
    characters = sorted({character for piece in rest for character in piece} - {SPACE})
    return WordPieceTokenizer(list(dict.fromkeys(filter(None, specials + words + characters))), BasicRule())


def read_paragraphs(path: Path, megabytes: float) -> list[str]:
    """The first paragraphs of a file."""

    def within(lines: Iterable[str]) -> Iterable[str]:
        left = megabytes * 1e6
        for line in lines:
            left -= len(line.encode("utf-8"))
            if left < 0:
                return
            yield line

    return list(within(filter(str.strip, itertools.chain(open_text(path)))))


def processor() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
