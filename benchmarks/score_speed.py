"""`litebert score` from Parquet to Parquet, beside the bare model, a loop around Predictor and transformers' pipeline.

On a CPU, with the int8 export of a model (the other sides: the same export in one process, and transformers in fp32):
    python benchmarks/score_speed.py --model MODEL-onnx --runtime onnx-int8 --hub MODEL --rows 3000 --pipeline-rows 300
On a GPU, embedding 50-token texts in bf16 with random weights of ALBERT-base (about two minutes on an H200):
    python benchmarks/score_speed.py --device cuda --rows 1500000 --distinct 65536 --rounds 2 --sides bare score
A small setting that runs anywhere:
    python benchmarks/score_speed.py --device cpu --preset albert-tiny --rows 500 --rounds 1

Sides: `bare`, the runtime on token ids that are made already, as many at a time as `score` plans together (no text, no
files; at most 65,536 texts, its time scaled up); `feed`, `score` as beside a GPU but with a model that answers zeros at
once; `loop`, Parquet in, `Predictor.embed` over 256 texts at a time, Parquet out; `score`; `pipeline`, transformers'
feature-extraction, batches of 32, mean over the tokens (with --pipeline-rows on fewer texts, its time scaled up).
Loading the model is not timed, starting the workers of `score` is. The sides take turns; a figure is the best of the
rounds, a ratio is of the same round, the median.

--distinct makes so many texts and repeats them (nothing is computed once for equal texts). Beside the rates of `score`
stand the processor time per text of this process, which has the model, and of the workers; and how fast the disk takes
files: on a GPU some 150 MB/s of vectors are written (--folder names another place, such as a memory disk).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def make_model(folder: Path, preset_name: str) -> Path:
    """Random weights with the default model's vocabulary."""
    import dataclasses

    import torch

    from litebert.model.config import preset
    from litebert.model.heads import MODELS
    from litebert.model.hub import save_model
    from litebert.remote import find_folder
    from litebert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(find_folder("default"))
    torch.manual_seed(0)
    config = dataclasses.replace(preset(preset_name), vocab_size=tokenizer.vocab_size)
    save_model(MODELS["encoder"](config), folder)
    tokenizer.save(folder)
    return folder


def make_texts(tokenizer, rows: int, tokens: int) -> list[str]:
    """Texts of about this many tokens with [CLS] and [SEP], from the vocabulary's own words, spread by a fifth."""
    draw = np.random.default_rng(0)
    words = [
        piece[1:] for piece in tokenizer.pieces if piece.startswith("▁") and piece[1:].isascii() and piece[1:].isalpha()
    ]
    lengths = np.clip(draw.normal(tokens - 2, tokens / 5, rows).round().astype(int), 4, None)
    picks = np.array(words)[draw.integers(0, len(words), lengths.sum())].tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(picks[end - size : end]) for end, size in zip(ends, lengths.tolist(), strict=True)]


def disk_speed(folder: Path, size: int = 1 << 28) -> float:
    """MB/s of one file, until it is safe."""
    data = np.random.default_rng(0).bytes(1 << 24)
    begin = time.perf_counter()
    with open(folder / "speed", "wb") as file:
        for _ in range(size >> 24):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - begin
    (folder / "speed").unlink()
    return size / seconds / 1e6


def processor_time() -> tuple[float, float]:
    """Seconds of this process, and of its children that have ended."""
    mine, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime, theirs.ru_utime + theirs.ru_stime


def run_bare(predictor, texts: list[str]) -> float:
    """The runtime alone: sequences are ready, results stay in memory."""
    from litebert.bulk.part import GROUP_ROWS

    whole, texts = len(texts), texts[:65_536]
    requests = predictor.many_job("embed", predictor.encode_texts("embed", texts))._requests
    begin = time.perf_counter()
    for start in range(0, len(requests), GROUP_ROWS):
        predictor.runtime.run(requests[start : start + GROUP_ROWS])
    return (time.perf_counter() - begin) * whole / len(texts)


def run_loop(predictor, source: Path, out: Path) -> float:
    """What people write: read, ask, write."""
    begin = time.perf_counter()
    writer = None
    for batch in pq.ParquetFile(source).iter_batches(256):
        vectors = predictor.embed(batch.column("text").to_pylist())
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        table = pa.Table.from_batches([batch]).append_column("vector", column)
        writer = writer or pq.ParquetWriter(out, table.schema)
        writer.write_table(table)
    writer.close()
    return time.perf_counter() - begin


def run_score(model: Path, source: Path, out: Path, options: argparse.Namespace, steady: list[float]) -> float:
    """`litebert.score` with starting its workers; `steady` gets its texts/s after the first fifth of them."""
    import litebert

    shutil.rmtree(out, ignore_errors=True)
    before = processor_time()
    marks: list[tuple[float, int]] = []
    summary = litebert.score(
        model,
        source,
        out,
        ability="embed",
        device=options.device,
        runtime=options.runtime,
        workers=options.workers,
        part_rows=options.part_rows,
        max_tokens=options.max_tokens,
        progress=lambda state: marks.append((time.perf_counter(), state.rows)),
    )
    assert summary.errors == 0, summary
    costs = [1e6 * (now - then) / options.rows for now, then in zip(processor_time(), before, strict=True)]
    print(f"score, processor time per text: this process {costs[0]:.1f} us, workers {costs[1]:.1f} us", flush=True)
    late = [mark for mark in marks if mark[1] >= options.rows / 5]
    (begin, first), (end, last) = late[0], late[-1]
    steady.append((last - first) / (end - begin) if end > begin else 0.0)
    return summary.seconds


def run_feed(predictor, source: Path, out: Path, options: argparse.Namespace) -> float:
    """`score` as beside a GPU, with a model that answers zeros at once: what reading, tokenising and writing allow."""
    from unittest import mock

    from litebert.bulk.local import run_workers
    from litebert.bulk.part import Work
    from litebert.bulk.reading import find_inputs, read_parts

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    before = processor_time()
    (found,) = find_inputs([source])
    work = Work("", "embed", {}, {}, None, False, 1 << 20, "torch", options.device, 1, options.max_tokens)
    feed = ((found, part) for part in read_parts(found, options.part_rows or 8192))
    width = 768

    def zeros(runtime, sequences):
        return {name: (None, [(width,)], np.zeros((len(sequences.lengths), width), np.float32)) for name in ("mean",)}

    marks: list[tuple[float, int]] = []
    with mock.patch("litebert.predict.remote.run_rows", zeros):
        begin = time.perf_counter()
        workers = options.workers or max(2, (os.cpu_count() or 2) - 1)
        run_workers(
            work,
            predictor,
            str(out),
            feed,
            workers,
            lambda source, part, scored: marks.append((time.perf_counter(), scored.rows)),
        )
        seconds = time.perf_counter() - begin
    costs = [1e6 * (now - then) / options.rows for now, then in zip(processor_time(), before, strict=True)]
    print(f"feed, processor time per text: this process {costs[0]:.1f} us, workers {costs[1]:.1f} us", flush=True)
    late = marks[len(marks) // 5 :]
    rate = sum(rows for _, rows in late[1:]) / max(late[-1][0] - late[0][0], 1e-9)
    print(f"feed, once its workers run: {rate:,.0f} texts/s", flush=True)
    return seconds


def open_pipeline(hub: str, options: argparse.Namespace):
    """transformers' pipeline, on the same device."""
    import torch
    import transformers

    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    return transformers.pipeline("feature-extraction", model=hub, tokenizer=hub, device=options.device, dtype=dtype)


def run_pipeline(pipe, source: Path, out: Path) -> float:
    """As its documentation says: a list in, with a batch size."""
    begin = time.perf_counter()
    table = pq.read_table(source)
    texts = table["text"].to_pylist()
    vectors = np.stack(
        [np.mean(states[0], 0, dtype=np.float32) for states in pipe(texts, batch_size=32, truncation=True)]
    )
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    pq.write_table(table.append_column("vector", column), out)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model or exported folder; without it, random weights of --preset")
    parser.add_argument("--hub", help="the folder for transformers; by default the model")
    parser.add_argument("--preset", default="albert-base")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--distinct", type=int, default=0, help="make so many texts, and repeat them; 0: all differ")
    parser.add_argument("--folder", type=Path, help="where the files lie; by default where temporary ones do")
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--part-rows", type=int, default=0)
    parser.add_argument("--pipeline-rows", type=int, default=0, help="texts for transformers, if not all: it is slow")
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--sides", nargs="+", default=["bare", "loop", "score", "pipeline"])
    options = parser.parse_args()
    import torch

    from litebert.predict.predictor import Predictor

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        model = options.model or make_model(folder / "model", options.preset)
        runtime = "torch" if options.runtime == "auto" and list(model.glob("*.safetensors")) else options.runtime
        predictor = Predictor(model, device=options.device, runtime=runtime, max_tokens=options.max_tokens)
        distinct = min(options.distinct or options.rows, options.rows)
        texts = make_texts(predictor.tokenizer, distinct, options.tokens)
        sizes = np.array([len(ids) + 2 for ids in predictor.tokenizer.encode_batch(texts)])
        which = np.arange(options.rows) % distinct
        tokens = int(sizes[which].sum())
        column = pa.array(texts).take(pa.array(which))
        pq.write_table(pa.table({"id": np.arange(options.rows), "text": column}), folder / "in.parquet")
        name = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
        print(f"{name}; {predictor.runtime.name}; torch {torch.__version__}, pyarrow {pa.__version__}")
        print(f"{options.rows:,} texts, {tokens / options.rows:.1f} tokens each; {os.cpu_count()} cores", flush=True)
        print(f"the disk takes {disk_speed(folder):.0f} MB/s", flush=True)
        few = options.pipeline_rows or options.rows
        pq.write_table(pq.read_table(folder / "in.parquet").slice(0, few), folder / "few.parquet")
        pipe = open_pipeline(options.hub or str(model), options) if "pipeline" in options.sides else None
        sides = {
            "bare": lambda: run_bare(predictor, texts) * options.rows / len(texts),
            "feed": lambda: run_feed(predictor, folder / "in.parquet", folder / "fed", options),
            "loop": lambda: run_loop(predictor, folder / "in.parquet", folder / "loop.parquet"),
            "score": lambda: run_score(model, folder / "in.parquet", folder / "out", options, steady),
            "pipeline": lambda: run_pipeline(pipe, folder / "few.parquet", folder / "out.parquet") * options.rows / few,
        }
        steady: list[float] = []
        predictor.embed(texts[:512])  # kernels and graphs are ready
        seconds: dict[str, list[float]] = {side: [] for side in options.sides}
        for _ in range(options.rounds):
            for side in options.sides:
                seconds[side].append(sides[side]())
                print(f"{side}: {seconds[side][-1]:.2f} s", flush=True)  # a long run that is stopped leaves something
    if steady and max(steady):
        best = max(steady)
        rates = {"texts/s": round(best), "tokens/s": round(best * tokens / options.rows)}
        print(json.dumps({"side": "score, once its workers run", **rates}))
    for side, values in seconds.items():
        best = min(values)
        ratios = [first / second for first, second in zip(values, seconds.get("score", values), strict=True)]
        figures = {
            "side": side,
            "seconds": round(best, 2),
            "texts/s": round(options.rows / best),
            "tokens/s": round(tokens / best),
        }
        print(json.dumps({**figures, "score is faster by": round(statistics.median(ratios), 3)}))


if __name__ == "__main__":
    main()
