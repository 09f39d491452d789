"""Pretrain or fine-tune on the machines of a Ray cluster, and go on by itself when a worker or a node dies.

    python examples/cluster/ray_pretrain.py CONFIG.yaml --out /shared/RUN --workers 8 --gpu

Ray Train starts the processes and tells them where they meet, as torchrun does; the run itself is `litebert pretrain`
(`--finetune`: `litebert finetune`). After a failure Ray starts all of them again, up to `--failures` times, and the run
goes on from its last checkpoint in the folder, which all machines must see. Needs `pip install "ray[train]"`.
"""

from __future__ import annotations

import argparse
import os
from typing import Any


def train(settings: dict[str, Any]) -> None:
    """What each process does."""
    import torch.distributed as dist
    from ray.train import get_context

    from litebert.cli import main

    context = get_context()
    # Ray has opened a group of its own to tell the processes about each other; litebert opens one that ends in an
    # error, instead of a hang, when a process is lost.
    dist.destroy_process_group()
    os.environ |= {
        "RANK": str(context.get_world_rank()),
        "WORLD_SIZE": str(context.get_world_size()),
        "LOCAL_RANK": str(context.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
        "MASTER_PORT": str(int(os.environ["MASTER_PORT"]) + 1),
    }
    command = ["finetune", "--config"] if settings["finetune"] else ["pretrain"]
    try:
        main([*command, settings["config"], "--out", settings["out"], *settings["options"]])
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"process {context.get_world_rank()} ended with {stop.code}") from None


def run(config: str, out: str, workers: int, gpu: bool, failures: int, finetune: bool, options: list[str]) -> None:
    """Train on so many processes."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    settings = {"config": config, "out": out, "finetune": finetune, "options": options}
    trainer = TorchTrainer(
        train,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(
            storage_path=os.path.join(out, "ray"), failure_config=FailureConfig(max_failures=failures)
        ),
    )
    trainer.fit()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="the run's YAML file")
    parser.add_argument("--out", required=True, help="the run's folder, which all machines see")
    parser.add_argument("--workers", type=int, default=2, help="processes: one for each GPU")
    parser.add_argument("--gpu", action="store_true", help="each process has a GPU")
    parser.add_argument("--failures", type=int, default=3, help="how often to start again")
    parser.add_argument("--finetune", action="store_true", help="the config is one of `litebert finetune`")
    arguments, options = parser.parse_known_args()  # the rest is for litebert: --set optim.lr=1e-3
    run(
        os.path.abspath(arguments.config),
        os.path.abspath(arguments.out),
        arguments.workers,
        arguments.gpu,
        arguments.failures,
        arguments.finetune,
        options,
    )


if __name__ == "__main__":
    main()
