"""Does a small ALBERT learn from the generated corpus? Plain PyTorch and transformers' model, two CPU threads.

    python benchmarks/generated_corpus_learns.py [--documents 20000] [--steps 3000] [--seed 0]

Prints MLM accuracy on held-out documents beside unigram and trigram guesses, and sentence order beside what
connectives alone give. Order is cut at sentence boundaries; 15 % of the tokens are masked.
"""

from __future__ import annotations

import argparse
import io
import random
import time

import numpy as np
import sentencepiece
import torch
from transformers import AlbertConfig, AlbertForPreTraining

from litebert.text.generate import generate_documents
from litebert.text.ngram import ConnectiveOrder, NgramModel

LENGTH, BATCH, DEPTHS = 64, 16, (1, 2, 4)
PAD, CLS, SEP, MASK = 0, 2, 3, 4


def train_vocabulary(documents, size):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(sentence for document in documents for sentence in document),
        model_writer=model, vocab_size=size, model_type="unigram", normalization_rule_name="nmt_nfkc_cf",
        pad_id=PAD, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        hard_vocab_limit=False, num_threads=2, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def make_examples(documents, pieces, rng):
    """Windows of whole sentences, cut in two at a sentence boundary: (A, B, swapped) as ids and as text."""
    examples = []
    for document in documents:
        ids = pieces.encode(document)
        start = 0
        while start < len(document) - 1:
            end, room = start, LENGTH - 3
            while end < len(document) and len(ids[end]) <= room:
                room -= len(ids[end])
                end += 1
            if end - start >= 2:
                cut = rng.randrange(start + 1, end)
                parts = [(sum(ids[a:b], []), " ".join(document[a:b])) for a, b in ((start, cut), (cut, end))]
                swapped = rng.random() < 0.5
                examples.append((parts[swapped], parts[1 - swapped], int(swapped)))
            start = max(end, start + 1)
    return examples


def make_batch(examples, rng, vocab_size):
    """Padded arrays: tokens (masked), segments, attention, labels, order."""
    tokens = np.zeros((len(examples), LENGTH), np.int64)
    segments, labels = np.zeros_like(tokens), np.full_like(tokens, -100)
    for row, ((a, _), (b, _), _) in enumerate(examples):
        sequence = [CLS, *a, SEP, *b, SEP]
        tokens[row, : len(sequence)] = sequence
        segments[row, len(a) + 2 : len(sequence)] = 1
    chosen = (tokens > MASK) & (rng.random(tokens.shape) < 0.15)
    labels[chosen] = tokens[chosen]
    how = rng.random(tokens.shape)
    attention = tokens != PAD
    tokens = np.where(chosen & (how < 0.8), MASK, tokens)
    tokens = np.where(chosen & (how >= 0.9), rng.integers(MASK + 1, vocab_size, tokens.shape), tokens)
    order = np.array([swapped for _, _, swapped in examples])
    return [torch.from_numpy(array) for array in (tokens, segments, attention.astype(np.int64), labels, order)]


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    filled, ordered = [], []
    for tokens, segments, attention, labels, order in batches:
        out = model(tokens, attention_mask=attention, token_type_ids=segments)
        chosen = labels != -100
        filled.append(out.prediction_logits[chosen].argmax(-1) == labels[chosen])
        ordered.append(out.sop_logits.argmax(-1) == order)
    model.train()
    return torch.cat(filled).float().mean().item(), torch.cat(ordered).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--vocabulary", type=int, default=2500)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(arguments.seed)
    began = time.process_time()
    train = list(generate_documents(arguments.documents, seed=arguments.seed))
    held_out = list(generate_documents(500, seed=arguments.seed, split="held-out"))
    print(f"{len(train)} documents generated in {time.process_time() - began:.1f} s of CPU time")
    pieces = train_vocabulary(train[:4000], arguments.vocabulary)
    vocab_size = pieces.vocab_size()
    shuffler, rng = random.Random(arguments.seed), np.random.default_rng(arguments.seed)
    examples = make_examples(train, pieces, shuffler)
    tests = make_examples(held_out, pieces, shuffler)
    print(f"vocabulary {vocab_size}, {len(examples)} training windows, {len(tests)} held-out windows")

    test_batches = [make_batch(tests[i : i + 64], rng, vocab_size) for i in range(0, len(tests), 64)]
    # The n-gram guesses see the true text on the left of each masked position.
    asked = [
        (np.where(row == -100, token, row), np.flatnonzero(row != -100))
        for tokens, _, _, labels, _ in test_batches
        for token, row in zip(tokens.numpy(), labels.numpy(), strict=True)
    ]
    sequences = [np.array([CLS, *a, SEP, *b, SEP]) for (a, _), (b, _), _ in examples]
    guesses = {n: NgramModel.fit(sequences, vocab_size, order=n).accuracy(asked) for n in (1, 3)}
    texts = [[((a, b), swapped) for (_, a), (_, b), swapped in group] for group in (examples[:10_000], tests)]
    connectives = ConnectiveOrder.fit(*zip(*texts[0], strict=True)).accuracy(*zip(*texts[1], strict=True))
    print(f"unigram {guesses[1]:.1%}  trigram {guesses[3]:.1%}  order from connectives {connectives:.1%}")

    config = AlbertConfig(
        vocab_size=vocab_size, embedding_size=128, hidden_size=128, intermediate_size=512, num_attention_heads=4,
        num_hidden_layers=DEPTHS[0], max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = AlbertForPreTraining(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.01, betas=(0.9, 0.98))
    warm_up = 100
    began, wall = time.process_time(), time.time()
    for step in range(arguments.steps):
        depth = DEPTHS[min(step * len(DEPTHS) // arguments.steps, len(DEPTHS) - 1)]
        model.albert.encoder.config.num_hidden_layers = depth
        rate = arguments.rate * min((step + 1) / warm_up, (arguments.steps - step) / (arguments.steps - warm_up))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = make_batch(shuffler.sample(examples, BATCH), rng, vocab_size)
        tokens, segments, attention, labels, order = batch
        loss = model(tokens, attention_mask=attention, token_type_ids=segments, labels=labels,
                     sentence_order_label=order).loss  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % (arguments.steps // 10) == 0:
            filled, ordered = evaluate(model, test_batches)
            print(
                f"step {step + 1:5d}  depth {depth}  loss {loss.item():.2f}  masks {filled:.1%}  order {ordered:.1%}  "
                f"cpu {time.process_time() - began:.0f} s  wall {time.time() - wall:.0f} s",
                flush=True,
            )
    print(f"masks: unigram {guesses[1]:.1%}, trigram {guesses[3]:.1%}, model {filled:.1%}")
    print(f"order: connectives {connectives:.1%}, model {ordered:.1%}")


if __name__ == "__main__":
    main()
