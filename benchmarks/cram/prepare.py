"""Corpora -> token stores, with the last documents of some files kept aside as text that no run sees.

    python benchmarks/cram/prepare.py CORPUS... --tokenizer VOCAB --out DATA [--unseen 150000]

Each file NAME.txt.xz (one paragraph per line, an empty line between documents) becomes the store DATA/NAME. From files
whose number is the highest of their kind (wiki-en-02, simplewiki-01, books-en-01) the last documents that hold
`--unseen` bytes are cut off first and written to DATA/unseen/NAME.txt (that many bytes, whole paragraphs). Files that
are done already are skipped, so that corpora may arrive one after the other.
"""

from __future__ import annotations

import argparse
import lzma
import time
from pathlib import Path

from litebert.text.build import build_store

SPLIT = ("wiki-en-02", "simplewiki-01", "books-en-01", "wiki-ko-02", "wiki-zh-00")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--unseen", type=int, default=150_000, help="bytes kept aside per kind of text")
    options = parser.parse_args()
    (options.out / "unseen").mkdir(parents=True, exist_ok=True)
    for corpus in options.corpora:
        name = corpus.name.split(".")[0]
        if (options.out / name / "manifest.json").exists():
            continue
        began = time.monotonic()
        source = corpus
        if name in SPLIT:
            seen, unseen = cut(lzma.decompress(corpus.read_bytes()).decode("utf-8"), options.unseen)
            (options.out / "unseen" / f"{name}.txt").write_text(unseen, encoding="utf-8")
            source = options.out / f"{name}.txt"
            source.write_text(seen, encoding="utf-8")
        build_store([str(source)], options.tokenizer, options.out / name)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def cut(text: str, num_bytes: int) -> tuple[str, str]:
    """The text without its last documents, and the first `num_bytes` or so of those."""
    documents = text.strip("\n").split("\n\n")
    size, first = 0, len(documents)
    while size < num_bytes and first > 1:
        first -= 1
        size += len(documents[first].encode("utf-8")) + 2
    kept: list[str] = []
    size = 0
    for paragraph in "\n\n".join(documents[first:]).split("\n"):
        if size >= num_bytes:
            break
        kept.append(paragraph)
        size += len(paragraph.encode("utf-8")) + 1
    return "\n\n".join(documents[:first]) + "\n", "\n".join(kept) + "\n"


if __name__ == "__main__":
    main()
