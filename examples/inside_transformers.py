"""A model of ours inside transformers: the same ids, the same numbers, and back again.

    python examples/inside_transformers.py                after examples/pretrain_on_text.py
    python examples/inside_transformers.py --model FOLDER

Needs pip install "litebert[hf]". A model folder is a Hub folder, so everything that loads one can use it.
On the command line: litebert verify FOLDER
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from transformers import AutoModelForPreTraining, AutoTokenizer

from litebert import Tokenizer, load_model

A, B = "She poured the flour into a large bowl.", "The sticky dough was kneaded for ten minutes."


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="runs/example/model")
    options = parser.parse_args(arguments)

    ours, theirs = Tokenizer.load(options.model), AutoTokenizer.from_pretrained(options.model)
    batch = theirs(A, B, return_tensors="pt")
    ids = [ours.cls_id, *ours.encode(A), ours.sep_id, *ours.encode(B), ours.sep_id]
    print(f"{type(theirs).__name__}: the same {len(ids)} ids: {batch.input_ids[0].tolist() == ids}")

    model = load_model(options.model).eval()
    other = AutoModelForPreTraining.from_pretrained(options.model).eval()
    with torch.no_grad():
        mine = model(batch.input_ids, attention_mask=batch.attention_mask, segment_ids=batch.token_type_ids)
        its = other(**batch)
    print(
        f"{type(other).__name__}: largest difference of a word score {gap(mine.masked_lm, its.prediction_logits):.0e}"
    )
    print(f"largest difference of a sentence-order score {gap(mine.sentence, its.sop_logits):.0e}")

    # Train it there, save it there, and open it here again.
    with torch.no_grad():
        other.albert.embeddings.word_embeddings.weight.mul_(1.01)
        its = other(**batch)
    with tempfile.TemporaryDirectory() as folder:
        other.save_pretrained(folder)
        again = load_model(folder).eval()
    with torch.no_grad():
        mine = again(batch.input_ids, attention_mask=batch.attention_mask, segment_ids=batch.token_type_ids)
    print(f"changed there, opened here: largest difference {gap(mine.masked_lm, its.prediction_logits):.0e}")


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


if __name__ == "__main__":
    main()
