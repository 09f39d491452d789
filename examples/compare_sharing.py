"""What sharing saves and what it costs: the same short run with each way of sharing parameters (Table 4 of the paper).

    python examples/compare_sharing.py                    after examples/pretrain_on_text.py, whose text it uses
    python examples/compare_sharing.py --steps 1000       differences grow with the length of the run

One run per row, all with the same batches in the same order. The real experiment is litebert reproduce table4
"""

from __future__ import annotations

import argparse
from pathlib import Path

from litebert import count_parameters, load_config, pretrain, run_config

MODES = {
    "all": {"sharing": "all"},  # ALBERT
    "attention": {"sharing": "attention"},
    "ffn": {"sharing": "ffn"},
    "none": {"sharing": "none"},  # BERT's way, with ALBERT's factorized embeddings
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("runs/example"), help="a folder with store/ and vocabulary/")
    parser.add_argument("--out", type=Path, default=Path("runs/example-sharing"))
    parser.add_argument("--steps", type=int, default=250)
    options = parser.parse_args(arguments)

    print(f"{'sharing':10s} {'parameters':>10s} {'masked LM loss':>15s} {'masked words':>13s} {'order':>7s}")
    for name, sharing in MODES.items():
        config = run_config(
            {
                "model": {
                    "embedding_size": 96,
                    "hidden_size": 128,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 512,
                    "max_position_embeddings": 32,
                    "initializer_range": 0.1,
                    **sharing,
                },
                "data": {
                    "stores": [str(options.data / "store")],
                    "tokenizer": str(options.data / "vocabulary"),
                    "held_out": 0.05,
                    "workers": 0,
                },
                "recipe": {"name": "paper", "max_length": 32},
                "optim": {"name": "adamw", "lr": 2e-3, "beta2": 0.98, "bias_correction": True},
                "steps": options.steps,
                "batch_tokens": 1024,
                "micro_batch_tokens": 1024,
                "device": {"threads": 1},  # more do not help a model this small
                "log": {"evaluate_every": 0},
            }
        )
        folder = options.out / f"{name}-{options.steps}"
        result = pretrain(config, folder, quiet=True)
        if not result.completed:
            raise SystemExit("interrupted; the same command goes on from here")
        parameters, scores = count_parameters(load_config(result.model)).total, result.scores
        told = f"{scores.mlm_loss:15.3f} {scores.mlm_accuracy:13.1%} {scores.sentence_accuracy:7.1%}"
        print(f"{name:10s} {parameters:10,} {told}", flush=True)


if __name__ == "__main__":
    main()
