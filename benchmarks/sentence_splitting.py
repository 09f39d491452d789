"""Sentence splitting: boundary F1 on the gold sets, and speed and sentence lengths on text files.

    python benchmarks/sentence_splitting.py [FILES.txt .txt.gz .txt.xz ...] [--megabytes 20] [--show 0]

Each line of a file is split as one paragraph. Beside the F1 of the rules stands that of cutting after every
terminator: what the rules bring.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import lzma
import platform
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from litebert.text.sentences import sentence_spans, split_sentences

GOLD = Path(__file__).parent.parent / "tests" / "text" / "gold"
# How the sentences of a gold paragraph are joined to a text.
JOIN = {"en": " ", "ko": " ", "zh": "", "ja": ""}
Spans = list[tuple[int, int]]


class Paragraph(NamedTuple):
    part: str  # "tuning" or "held out"
    section: str
    text: str
    ends: frozenset[int]  # where its sentences end, without the end of the paragraph, which is no decision


class Score(NamedTuple):
    right: int
    extra: int
    missed: int
    wrong: list[str]

    @property
    def f1(self) -> float:
        return 2 * self.right / (2 * self.right + self.extra + self.missed)

    def __str__(self) -> str:
        precision, recall = self.right / (self.right + self.extra), self.right / (self.right + self.missed)
        return f"{self.right + self.missed:4} boundaries  P {precision:.4f}  R {recall:.4f}  F1 {self.f1:.4f}"


def read_gold(path: Path) -> list[Paragraph]:
    """The paragraphs of a gold file: one sentence per line, a blank line in between, "== part: name" over sections."""
    paragraphs, section = [], ""
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        sentences = []
        for line in block.splitlines():
            if line.startswith("== "):
                section = line.removeprefix("== ")
            elif line and not line.startswith("#"):
                sentences.append(line)
        if sentences:
            join = "" if section.endswith("no space") else JOIN[path.stem]
            ends, position = [], -len(join)
            for sentence in sentences:
                position += len(join) + len(sentence)
                ends.append(position)
            part = section.partition(":")[0]
            paragraphs.append(Paragraph(part, section, join.join(sentences), frozenset(ends[:-1])))
    return paragraphs


def score(paragraphs: list[Paragraph], spans: Callable[[str], Spans]) -> Score:
    """Boundary counts over paragraphs, and each wrong place as people see it: "... the U.S.|Army" """
    right = extra = missed = 0
    wrong = []
    for paragraph in paragraphs:
        text = paragraph.text
        found = {end for _, end in spans(text)} - {len(text)}
        right += len(found & paragraph.ends)
        extra += len(found - paragraph.ends)
        missed += len(paragraph.ends - found)
        for end in sorted(found ^ paragraph.ends):
            kind = "extra" if end in found else "missed"
            wrong.append(f"{paragraph.section}: {kind} {text[max(0, end - 30) : end]}|{text[end : end + 30]}")
    return Score(right, extra, missed, wrong)


def cut_everywhere(text: str) -> Spans:
    """The baseline: a boundary after each terminator and its closing quotes."""
    cuts = re.finditer(r"(?:[.!?…]+[\"'”’)]*\s+|[。！？]+[」』”’）]*\s*)(?=\S)", text)
    ends = [(len(cut[0].rstrip()) + cut.start(), cut.end()) for cut in cuts]
    starts = [0, *(after for _, after in ends)]
    return list(zip(starts, [*(end for end, _ in ends), len(text)], strict=True))


def measure_speed(texts: list[str]) -> float:
    """Megabytes of UTF-8 per second of one core, best of three."""
    megabytes = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
    seconds = []
    for _ in range(3):
        start = time.process_time()
        for text in texts:
            sentence_spans(text)
        seconds.append(time.process_time() - start)
    return megabytes / min(seconds)


def report_gold(folder: Path) -> None:
    for path in sorted(folder.glob("*.txt")):
        paragraphs = read_gold(path)
        for part in ("tuning", "held out"):
            chosen = [paragraph for paragraph in paragraphs if paragraph.part == part]
            print(f"{path.stem} {part:8}  {score(chosen, sentence_spans)}", end="  ")
            print(f"(cut everywhere: {score(chosen, cut_everywhere).f1:.4f})")
        for place in score(paragraphs, sentence_spans).wrong:
            print(f"    {place}")
        speed = measure_speed([paragraph.text for paragraph in paragraphs] * 50)
        print(f"    {speed:.1f} MB/s on the gold text, which is harder than prose")


def read_lines(path: Path, limit: int) -> Iterator[str]:
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    size = 0
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        for line in file:
            size += len(line.encode("utf-8", "replace"))
            if size > limit:
                return
            yield line


def report_file(path: Path, limit: int, show: int) -> None:
    lines = list(read_lines(path, limit))
    lengths = [end - begin for line in lines for begin, end in sentence_spans(line)]
    mean = sum(lengths) / len(lengths)
    print(f"\n{path.name}: {measure_speed(lines):.1f} MB/s, {len(lengths)} sentences of {mean:.0f} characters")
    for power in range(3, 12):
        low, high = (0 if power == 3 else 2 ** (power - 1)), (2**power if power < 11 else 10**12)
        share = sum(low < length <= high for length in lengths) / len(lengths)
        label = f"{low + 1}-{high}" if power < 11 else f"over {low}"
        print(f"  {label:>10} {share:7.2%} {'#' * round(60 * share)}")
    # Boundaries drawn with a fixed seed, to be looked at.
    draw = random.Random(0)
    for line in draw.sample([line for line in lines if len(split_sentences(line)) > 1], show):
        begin, end = draw.choice(sentence_spans(line)[:-1])
        print(f"  ...{line[max(begin, end - 60) : end]} | {line[end : end + 50].strip()}...")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="text files, one paragraph per line")
    parser.add_argument("--megabytes", type=float, default=20, help="read at most this much of each file")
    parser.add_argument("--show", type=int, default=0, help="print this many random boundaries of each file")
    arguments = parser.parse_args()
    print(f"python {platform.python_version()}, {platform.machine()}, {datetime.date.today()}")
    report_gold(GOLD)
    for path in arguments.files:
        report_file(path, int(arguments.megabytes * 1e6), arguments.show)


if __name__ == "__main__":
    main()
