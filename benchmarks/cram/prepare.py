"""Corpora -> token stores, with some documents kept aside as text that no run of the default model has seen.

    python benchmarks/cram/prepare.py CORPUS... --tokenizer VOCAB --out DATA [--unseen 150000]

Each file NAME.txt.xz (one paragraph per line, an empty line between documents) becomes the store DATA/NAME. From the
first file of each kind (wiki-en-00, simplewiki-00, books-en-00, ...) the documents that `held_out: 0.01` chooses are
removed: the default model's first run held out exactly these, and its second run read other files. Their beginnings,
about `--unseen` bytes in all, are written to DATA/unseen/NAME.txt. Files that are done already are skipped, so that
corpora may arrive one after the other.
"""

from __future__ import annotations

import argparse
import lzma
import time
from pathlib import Path

from litebert.pretraining.chapters import held_out_documents
from litebert.text.build import build_store


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
        if name.endswith("-00"):
            seen, unseen = split(lzma.decompress(corpus.read_bytes()).decode("utf-8"), options.unseen)
            (options.out / "unseen" / f"{name}.txt").write_text(unseen, encoding="utf-8")
            source = options.out / f"{name}.txt"
            source.write_text(seen, encoding="utf-8")
        build_store([str(source)], options.tokenizer, options.out / name)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def split(text: str, num_bytes: int) -> tuple[str, str]:
    """The text without its held-out documents; of those, the beginnings (20 kB at most unless they are few)."""
    documents = text.strip("\n").split("\n\n")
    held_out = held_out_documents(len(documents), 0.01)
    seen = [document for document, out in zip(documents, held_out, strict=True) if not out]
    unseen = [document for document, out in zip(documents, held_out, strict=True) if out]
    kept: list[str] = []
    size = 0
    for document in unseen:
        if size >= num_bytes:
            break
        kept.append(start_of(document, max(num_bytes // len(unseen), 20_000)))
        size += len(kept[-1].encode("utf-8"))
    return "\n\n".join(seen) + "\n", "\n\n".join(kept) + "\n"


def start_of(document: str, num_bytes: int) -> str:
    """The first paragraphs of a document, `num_bytes` or a little more."""
    kept: list[str] = []
    size = 0
    for paragraph in document.split("\n"):
        if size >= num_bytes:
            break
        kept.append(paragraph)
        size += len(paragraph.encode("utf-8")) + 1
    return "\n".join(kept)


if __name__ == "__main__":
    main()
