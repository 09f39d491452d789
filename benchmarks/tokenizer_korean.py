"""Do Korean particles become separate pieces, for vocabularies of any size, and what does it cost in length?

    python benchmarks/tokenizer_korean.py TEXT [--sizes 8000 16000 32000] [--sample 30000] [--coverage 0.9995]

TEXT: Korean text, one paragraph per line. For each size a vocabulary is trained with the cut before particles and one
without, on the same sample; both encode the last 2,000 paragraphs of the text.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from pathlib import Path

from litebert.text.readers import open_text
from litebert.text.train_vocab import VocabConfig, train_vocab

SENTENCES = {
    "나는 오늘 식당에 가서 밥을 먹었다": ["는", "에", "을"],
    "그는 학교에서 책을 읽었다": ["는", "에서", "을"],
    "친구가 서울에 있는 회사로 갔다": ["가", "에", "로"],
    "우리는 바다를 보고 집으로 돌아왔다": ["는", "를", "으로"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8_000, 16_000, 32_000])
    parser.add_argument("--sample", type=int, default=30_000, help="lines to train on")
    parser.add_argument("--coverage", type=float, default=0.9995)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    held_out = list(deque(filter(str.strip, open_text(options.text)), maxlen=2_000))
    for size in options.sizes:
        for seed in options.seeds:
            for cut in (True, False):
                config = VocabConfig(
                    vocab_size=size,
                    character_coverage=options.coverage,
                    sample_lines=options.sample,
                    seed=seed,
                    korean_particles=cut,
                )
                start = time.process_time()
                tokenizer = train_vocab([options.text], config).tokenizer
                encodings = {text: tokenizer.encode_offsets(text) for text in SENTENCES}
                result = {
                    "vocab_size": size,
                    "seed": seed,
                    "cut before particles": cut,
                    "particles apart": {
                        " ".join(encodings[text].pieces): set(particles) <= set(encodings[text].pieces)
                        for text, particles in SENTENCES.items()
                    },
                    "lossless": all(tokenizer.decode(encodings[text].ids) == text for text in SENTENCES),
                    "pieces of the held-out text": sum(map(len, tokenizer.encode_batch(held_out))),
                    "seconds of training": round(time.process_time() - start),
                }
                print(json.dumps(result, ensure_ascii=False, indent=1), flush=True)


if __name__ == "__main__":
    main()
