"""Are ids, offsets and transformers' reading of our folder right, on real paragraphs?

    python benchmarks/tokenizer_check.py --model spiece.model TEXT... [--paragraphs 10000]

For each text file (compressed or not, one paragraph per line), over its first paragraphs:
  ids       differ from plain SentencePiece and the released comma rule, written out below, in how many?
  offsets   in how many does a piece cover other characters than its own, or a character that counts stay uncovered?
  theirs    in how many does AutoTokenizer, opened on the folder we save, give other ids, and why?
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import itertools
import json
import platform
import tempfile
from collections import Counter
from pathlib import Path

import sentencepiece
import tokenizers
import transformers

import litebert
from litebert.text.readers import open_text
from litebert.text.tokenizer import Tokenizer
from litebert.text.words import SPACE

TIE = 1e-4  # of log-probability: SentencePiece adds scores up in single precision, the tokenizers library in double


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--paragraphs", type=int, default=10_000)
    options = parser.parse_args()
    tokenizer = Tokenizer.load(options.model)
    plain = sentencepiece.SentencePieceProcessor(model_file=str(options.model))
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for path in options.texts:
        paragraphs = list(itertools.islice(filter(str.strip, open_text(path)), options.paragraphs))
        encoded = [ids.tolist() for ids in tokenizer.encode_batch(paragraphs)]
        reasons: Counter[str] = Counter()
        wrong_ids = wrong_offsets = 0
        for text, ids, other in zip(
            paragraphs, encoded, theirs(paragraphs, add_special_tokens=False)["input_ids"], strict=True
        ):
            wrong_ids += ids != by_the_released_rule(plain, tokenizer, text)
            wrong_offsets += not offsets_hold(plain, tokenizer, text, ids)
            if ids != other:
                reasons.update([explain(plain, ids, other)])
        result = {
            "text": path.name,
            "paragraphs": len(paragraphs),
            "ids differ": wrong_ids,
            "offsets wrong": wrong_offsets,
            "AutoTokenizer differs": sum(reasons.values()),
            "why": dict(reasons),
        }
        print(json.dumps(result, ensure_ascii=False, indent=1), flush=True)
    versions = {module.__name__: module.__version__ for module in (litebert, sentencepiece, tokenizers, transformers)}
    print(json.dumps({"python": platform.python_version(), **versions}))


def by_the_released_rule(plain: sentencepiece.SentencePieceProcessor, tokenizer: Tokenizer, text: str) -> list[int]:
    """Plain SentencePiece; then a piece that ends in a digit and a comma is encoded again without the comma."""
    pieces: list[str] = []
    for piece in plain.encode(tokenizer.normalization(text), out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            again = plain.encode(piece[:-1].replace(SPACE, ""), out_type=str)
            if piece[0] != SPACE and again[0][0] == SPACE:
                again[0] = again[0][1:]
            pieces += [part for part in again if part] + [","]
        else:
            pieces.append(piece)
    return [plain.piece_to_id(piece) for piece in pieces]


def offsets_hold(plain: sentencepiece.SentencePieceProcessor, tokenizer: Tokenizer, text: str, ids: list[int]) -> bool:
    """Whether each piece lies where its characters came from, in order, with nothing but whitespace left over."""

    def normalized(part: str) -> str:
        whole: str = plain.normalize(tokenizer.normalization(part))
        return whole.replace(SPACE, "")

    encoding = tokenizer.encode_offsets(text)
    if encoding.ids != ids or encoding.offsets != sorted(encoding.offsets):
        return False
    position = 0
    for number, piece, (start, end) in zip(encoding.ids, encoding.pieces, encoding.offsets, strict=True):
        if start > position and normalized(text[position:start]):
            return False
        position = max(position, end)
        if number != tokenizer.unk_id and piece.replace(SPACE, "") not in normalized(text[start:end]):
            return False
    return not normalized(text[position:])


def explain(plain: sentencepiece.SentencePieceProcessor, ours: list[int], theirs: list[int]) -> str:
    """Why two encodings of one text differ, by the stretch in which they do."""
    first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    last = -1
    while min(len(ours), len(theirs)) + last >= first and ours[last] == theirs[last]:
        last -= 1
    stretches = [ids[first : len(ids) + last + 1] for ids in (ours, theirs)]
    shown = " | ".join(" ".join(plain.id_to_piece(ids)) for ids in stretches)
    if "," in plain.id_to_piece(ours[max(0, first - 1) : len(ours) + last + 2]):
        return f"digit and comma re-encoded, not scored lower: {shown}"
    scores = [sum(plain.get_score(ids)) for ids in stretches]
    if abs(scores[0] - scores[1]) < TIE:
        return f"a tie within rounding ({scores[0] - scores[1]:.1e}): {shown}"
    return f"other: {shown}"


if __name__ == "__main__":
    main()
