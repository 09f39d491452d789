"""`litebert calibrate`: how early a model may answer, for `--depth auto`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from litebert.cli import app
from litebert.cli.options import (
    Columns,
    Device,
    Encoding,
    Json,
    Threads,
    as_option,
    check_data,
    check_models,
    column_pairs,
)

if TYPE_CHECKING:
    from litebert.finetuning.calibrate import By


@app.command()
def calibrate(
    model: Annotated[str, typer.Argument(help="Model folder, fine-tuned with exits.", metavar="MODEL")],
    data: Annotated[str, typer.Option(help="Labelled data that the model was not trained on.")],
    max_loss: Annotated[
        float | None, typer.Option(help="Points (of 100) that the score may lose against full depth.")
    ] = None,
    speed_up: Annotated[float | None, typer.Option(help="How many times fewer layers to apply on average.")] = None,
    rule: Annotated[
        str, typer.Option(help="Kind of rule: confidence, patience, gate; any: the best of all three.")
    ] = "any",
    task: Annotated[str | None, typer.Option(help="Task of the data; by default the model's own.")] = None,
    column: Columns = None,
    encoding: Encoding = "utf-8",
    device: Device = "auto",
    threads: Threads = 0,
    as_json: Json = False,
) -> None:
    """Choose when a model answers early, and save the rule with it: --depth auto uses it.

    Example: litebert calibrate runs/reviews/best --data dev.csv --max-loss 0.3
    """
    check_data(data)
    check_models(model)
    from litebert.finetuning.calibrate import FEW_EXAMPLES, check_limits
    from litebert.finetuning.calibrate import calibrate as choose

    check_limits(max_loss, speed_up, rule, as_option)
    found = choose(
        model,
        data,
        max_loss=max_loss,
        speed_up=speed_up,
        rule=cast("By", rule),
        task=task,
        columns=column_pairs(column or []),
        encoding=encoding,
        device=device,
        threads=threads,
    )
    chosen = found.chosen
    if as_json:
        numbers = {"score": chosen.score, "full_score": found.full_score, "mean_depth": chosen.mean_depth}
        facts = {"loss": found.loss.as_dict(), "margin": found.margin, "examples": found.examples}
        print(json.dumps({"metric": found.metric, "rule": chosen.rule.as_dict(), **numbers, **facts}, indent=2))
        return
    early = chosen.mean_depth < found.full_depth
    print(f"{model}: {chosen.rule.describe() if early else 'never stops early: no rule tried keeps to the limit'}")
    print(
        f"{found.metric} {100 * chosen.score:.2f} (full depth {100 * found.full_score:.2f}) on {found.examples:,} "
        f"examples, {chosen.mean_depth:.2f} of {found.full_depth} layers on average ({found.speed_up:.2f}x fewer)"
    )
    if early:
        most = max(found.loss.value + found.margin, 0.0)
        print(f"loss {found.loss.value:.2f} points here; on as many other examples at most {most:.2f} (19 of 20 cases)")
    if found.examples < FEW_EXAMPLES:
        print(f"{found.examples} examples are few: use {FEW_EXAMPLES} or more", file=sys.stderr)
