"""Pretrain an ALBERT on a folder of text files, and see what it learned.

    python examples/pretrain_on_text.py                                 stories made by code, about half a minute
    python examples/pretrain_on_text.py --texts FOLDER --steps 20000    your own .txt, .jsonl, .parquet, .gz ... files

Kill it at any time and run it again: it goes on where it was. The other examples use the model that it leaves in
runs/example/model. The same on the command line: litebert tokenizer train, litebert corpus build, litebert pretrain.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from litebert import VocabConfig, build_store, count_parameters, load_config, pretrain, run_config, train_vocab
from litebert.text.generate import generate_documents

KINDS = ("baking", "repair", "growing")  # a small world, so that half a minute is enough
MODEL = {
    "embedding_size": 96,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "max_position_embeddings": 32,  # as many as are trained (max_length below): the others would stay random
    "initializer_range": 0.1,  # about 1 / sqrt(hidden_size): narrow models start sooner than from 0.02
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="a folder of text; made by code where there is none")
    parser.add_argument("--out", type=Path, default=Path("runs/example"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--vocab-size", type=int, default=600)
    options = parser.parse_args(arguments)
    out, texts = options.out, options.texts or write_stories(options.out / "texts")

    vocabulary = out / "vocabulary"
    if not vocabulary.exists():
        train_vocab([texts], VocabConfig(vocab_size=options.vocab_size)).tokenizer.save(vocabulary)
    store = build_store([texts], vocabulary, out / "store")
    print(f"{store.documents:,} documents, {store.sentences:,} sentences, {store.tokens:,} tokens")

    config = run_config(
        {
            "model": MODEL,
            "data": {"stores": [str(out / "store")], "tokenizer": str(vocabulary), "held_out": 0.05, "workers": 0},
            "recipe": {"name": "paper", "max_length": 32},  # n-gram masks and sentence order, as in the paper
            "optim": {"name": "adamw", "lr": 2e-3, "beta2": 0.98, "bias_correction": True},
            # The shared layer learns soonest when it is applied once; the second application comes late.
            "depth": [{"until": 0.85, "value": 1}, {"until": 1.0, "value": 2}],
            "steps": options.steps,
            "batch_tokens": 1024,
            "micro_batch_tokens": 1024,
            "device": {"threads": 1},  # more do not help a model this small
            "log": {"report_every": 50, "evaluate_every": 0, "checkpoint_every": 100},
        }
    )
    result = pretrain(config, out)
    if not result.completed or result.scores is None:
        raise SystemExit("interrupted; the same command goes on from here")
    print(f"model: {result.model}, {count_parameters(load_config(result.model)).total:,} parameters")
    print(f"on documents that were held out: masked words guessed {result.scores.mlm_accuracy:.1%}")
    print(f"sentence order told {result.scores.sentence_accuracy:.1%} (a coin: 50 %)")


def write_stories(folder: Path, files: int = 10, stories: int = 200) -> Path:
    """A folder as people have them: text files, one sentence per line, an empty line between documents."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    for number in range(files):
        documents = generate_documents(stories, seed=number, kinds=KINDS, excerpts=True)
        (folder / f"{number}.txt").write_text("\n\n".join("\n".join(document) for document in documents))
    return folder


if __name__ == "__main__":
    main()
