"""Run by test_contrast.py: two processes joined by gloo, or one, on the same batches; prints losses and gradients."""

from __future__ import annotations

import json
import os
import socket
import sys

import torch

from litebert.finetuning.batches import make_batch
from litebert.finetuning.contrast import Contrast, Whole, cosent_loss, ranking_loss
from litebert.finetuning.model import to_device
from litebert.finetuning.run import Inputs
from litebert.model.hub import load_model
from litebert.tasks.kinds import KINDS
from litebert.tasks.read import read_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.processes import World, connect, sum_gradients, world_from_environment

SHARES = {1: [range(5)], 2: [range(3), range(3, 5)]}  # of the examples: the processes have different numbers


def steps(world: World, model_folder: str, files: list[str]) -> dict:
    """The loss and the gradients of one step, for pairs, triplets and scored pairs."""
    found = {}
    tokenizer = Tokenizer.load(model_folder)
    for file in files:
        data = read_task("similarity", train=file)
        kind, form = KINDS["similarity"], data.train[0].form
        texts = len(data.train[0].texts)
        losses = {
            "scored": lambda vectors, texts, scores: cosent_loss(vectors, scores),
            "pairs": lambda vectors, texts, scores: ranking_loss(vectors, texts, symmetric=True),
            "triplets": lambda vectors, texts, scores: ranking_loss(vectors, texts),
        }
        model = load_model(model_folder, "encoder").eval()
        features = kind.features(data.task, data.train, tokenizer)
        mine = SHARES[world.size][world.rank]
        own = [feature for feature in features if feature.example in mine]
        cuts = [own[: 2 * texts], own[2 * texts :]]  # two micro-batches where there are enough examples
        batches = [make_batch(data.task, part) for part in cuts if part]
        parts = [Inputs(*to_device(b, torch.device("cpu")), b.max_length, b.num_rows) for b in batches]
        contrast = Contrast("mean", texts, losses[form], (8,), world)
        loss, sums = contrast(model, Whole(tuple(parts)))
        loss.backward()
        totals = sum_gradients(model.parameters(), sums, world)
        gradients = [param.grad.flatten().tolist() for param in model.parameters() if param.grad is not None]
        found[form] = {"loss": loss.item(), "totals": totals.tolist(), "gradients": gradients}
    return found


def main(model_folder: str, files: list[str]) -> None:
    torch.set_num_threads(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    pipes = []
    for rank in range(2):
        receive, send = os.pipe()
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            with connect(world_from_environment(), "cpu", timeout=60) as world:
                answer = steps(world, model_folder, files)
            with os.fdopen(send, "w") as pipe:
                pipe.write(json.dumps(answer))
            os._exit(0)
        os.close(send)
        pipes.append(os.fdopen(receive))
    answers = [json.loads(pipe.read()) for pipe in pipes]
    os.wait(), os.wait()
    json.dump({"two": answers, "one": steps(World(), model_folder, files)}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
