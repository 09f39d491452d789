"""Answers in a terminal or notebook, drawn with rich: bars, marked spans, small maps."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from typing import Annotated, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from litebert.errors import InputError
from litebert.predict.ability import Result
from litebert.predict.masks import FilledMasks
from litebert.predict.order import Coherence, SentenceOrder
from litebert.predict.questions import Answer, Choice
from litebert.predict.similarity import Found, Similarity
from litebert.predict.tags import Tagging
from litebert.predict.texts import Attention, Classification, Embedding

BAR = 24
_EIGHTHS = "█▏▎▍▌▋▊▉"
_SHADES = " ░▒▓█"
_PLAIN_SHADES = " .:+#"


def bar(share: float, width: int = BAR) -> Text:
    """A share of 1 as a bar of eighths of a cell, or of "#" if the terminal lacks them."""
    if not stdout_shows(_EIGHTHS):
        return Text(("#" * round(max(0.0, min(1.0, share)) * width)).ljust(width), style="cyan")
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return Text(("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width), style="cyan")


def show_masks(row: dict[str, Any], result: FilledMasks) -> RenderableType:
    """Each mask with its candidates, and the joint fills."""
    parts: list[RenderableType] = []
    for number, mask in enumerate(result.masks, 1):
        title = _around(result.text, mask.start, mask.end, "bold yellow")
        if len(result.masks) > 1:
            title = Text(f"{number}  ", style="dim") + title
        parts += [title, _bars([(c.word, c.probability) for c in mask.candidates])]
    if result.joint:
        parts += [Text("together", style="dim"), _bars([(" ".join(f.words), f.probability) for f in result.joint])]
    return Group(*parts)


def show_order(row: dict[str, Any], result: SentenceOrder) -> RenderableType:
    """The probability of each order."""
    return _bars([("a, then b", result.probability), ("b, then a", 1 - result.probability)])


def show_coherence(row: dict[str, Any], result: Coherence) -> RenderableType:
    """The sentences with the score of each boundary between them."""
    parts: list[RenderableType] = []
    for number, sentence in enumerate(result.sentences):
        parts.append(Text(sentence.text))
        if number < len(result.boundaries):
            score = result.boundaries[number]
            style = "green" if score >= 0.5 else "red"
            parts.append(Text.assemble("  ", ("│ ", style), bar(score, 12), (f" {score:6.1%}", style)))
    return Group(*parts, Text(f"coherence {result.score:.1%}", style="bold"))


def show_embeddings(found: list[tuple[dict[str, Any], Embedding]]) -> RenderableType:
    """The size of a vector, and how similar several are to each other (cosine)."""
    import numpy as np

    vectors = np.stack([result.vector for _, result in found]).astype(np.float64)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", style="dim", justify="right")
    table.add_column("text", overflow="ellipsis", no_wrap=True, max_width=40)
    table.add_column("first values" if len(found) == 1 else "cosine to")
    columns = range(min(len(found), 12)) if len(found) > 1 else ()
    for number, (row, _) in enumerate(found):
        cells = [f"{x:+.3f}" for x in vectors[number][:6]] if len(found) == 1 else []
        cells += [f"{unit[number] @ unit[other]:+.2f}" for other in columns]
        table.add_row(str(number + 1), Text(str(row["text"])), "  ".join(cells))
    return Group(table, Text(f"{vectors.shape[1]} numbers each; JSON has them all", style="dim"))


def show_similarity(row: dict[str, Any], result: Similarity) -> RenderableType:
    """The score as a bar."""
    return _bars([(f"{_short(str(row['a']), 20)}  /  {_short(str(row['b']), 20)}", result.score)])


def show_found(row: dict[str, Any], result: Found) -> RenderableType:
    """The hits with their scores."""
    hits = _bars([(hit.text, hit.score) for hit in result.hits])
    return Group(Text(_short(str(row["query"])), style="bold"), hits)


def show_labels(row: dict[str, Any], result: Classification) -> RenderableType:
    """The labels with their probabilities, or the number of a regression."""
    text = Text(_short(str(row["text"])), style="bold")
    if row.get("pair") is not None:
        text += Text("  /  ", style="dim") + Text(_short(str(row["pair"])), style="bold")
    if result.value is not None:
        return Group(text, _score(result.value, result.scale))
    return Group(text, _bars(list(result.probabilities.items()), chosen=set(result.labels)))


def show_tags(row: dict[str, Any], result: Tagging) -> RenderableType:
    """The text with its entities marked; without entities, every word with its tag."""
    text = Text(result.text)
    labels = list(dict.fromkeys(entity.label for entity in result.entities))
    colours = ("cyan", "magenta", "yellow", "green", "blue", "red")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for entity in result.entities:
        colour = colours[labels.index(entity.label) % len(colours)]
        text.stylize(f"bold reverse {colour}", entity.start, entity.end)
        table.add_row(Text(entity.label, style=colour), Text(entity.text), f"{entity.probability:.1%}")
    if not result.entities:
        for word in result.words:
            table.add_row(Text(word.tag, style="cyan"), Text(word.text), f"{word.probability:.1%}")
    return Group(text, table)


def show_answer(row: dict[str, Any], result: Answer) -> RenderableType:
    """The context around the answer with the answer marked, and the candidates."""
    head: Text
    if result.start is None or result.end is None:
        head = Text("no answer", style="bold red")
    else:
        head = _around(str(row["context"]), result.start, result.end, "bold reverse green")
    rows = [(candidate.text, candidate.probability) for candidate in result.candidates]
    if result.no_answer is not None:
        rows.append(("(no answer)", result.no_answer))
    return Group(Text(str(row["question"]), style="bold"), Padding(head, (0, 2)), _bars(rows))


def show_choice(row: dict[str, Any], result: Choice) -> RenderableType:
    """The options with their probabilities, the chosen one marked."""
    pairs = list(zip(row["options"], result.probabilities, strict=True))
    question = [Text(_short(str(row["question"])), style="bold")] if row["question"] else []
    return Group(*question, _bars(pairs, chosen={result.option}))


def show_attention(
    row: dict[str, Any],
    result: Attention,
    *,
    application: Annotated[int, "Which application of a layer to show; -1: the last."] = -1,
    attention_head: Annotated[int | None, "Which attention head to show; by default the mean of all."] = None,
) -> RenderableType:
    """A map of one head (or the mean of all) in one application: from rows to columns."""
    layers, heads = result.weights.shape[:2]
    if not -layers <= application < layers:
        raise InputError(f"application: must be 0 to {layers - 1}, or -1 for the last; got {application}")
    if attention_head is not None and not 0 <= attention_head < heads:
        raise InputError(f"attention_head: must be 0 to {heads - 1}, got {attention_head}")
    maps = result.weights[application]
    weights = maps.mean(0) if attention_head is None else maps[attention_head]
    width = max(map(len, result.pieces))
    shades = _SHADES if stdout_shows(_SHADES) else _PLAIN_SHADES
    lines = []
    for piece, shares in zip(result.pieces, weights, strict=True):
        cells = "".join(shades[min(4, int(share / max(shares.max(), 1e-9) * 4.999))] for share in shares)
        best = result.pieces[int(shares.argmax())]
        lines.append(Text.assemble(piece.rjust(width), " ", (cells, "cyan"), f"  {best} {shares.max():.0%}"))
    shown = "mean of all heads" if attention_head is None else f"head {attention_head}"
    title = Text(f"application {application % layers} (0 to {layers - 1}), {shown}", style="dim")
    left = [Text(f"{result.left_out} tokens left out", style="dim")] if result.left_out else []
    return Group(title, *lines, *left)


def show_fields(row: dict[str, Any], result: Result) -> RenderableType:
    """Any other result: its fields, one per line."""
    return Group(*(Text(f"{name}: {value}") for name, value in result.as_dict().items()))


# By ability; keyword-only parameters of these are options of its command.
_EACH: dict[str, Callable[..., RenderableType]] = {
    "fill_mask": show_masks,
    "sentence_order": show_order,
    "coherence": show_coherence,
    "similarity": show_similarity,
    "search": show_found,
    "classify": show_labels,
    "tag": show_tags,
    "answer": show_answer,
    "choose": show_choice,
    "attention": show_attention,
}
_TOGETHER = {"embed": show_embeddings}


def show_each(ability: str) -> Callable[..., RenderableType]:
    """The function that shows one answer of an ability."""
    return _EACH.get(ability, show_fields)


def show_together(ability: str) -> Callable[[list[tuple[dict[str, Any], Any]]], RenderableType] | None:
    """The function that shows all answers of an ability together, if they are worth comparing."""
    return _TOGETHER.get(ability)


def show_options(ability: str) -> dict[str, tuple[Any, Any]]:
    """The options for showing an ability's answers: name -> (annotation, default)."""
    show = show_each(ability)
    names = [each for each in inspect.signature(show).parameters.values() if each.kind is each.KEYWORD_ONLY]
    if not names:
        return {}
    hints = typing.get_type_hints(show, include_extras=True)
    return {each.name: (hints[each.name], each.default) for each in names}


def stdout_shows(text: str) -> bool:
    """Whether standard output can encode all characters of a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _score(value: float, scale: tuple[float, float] | None) -> Text:
    """A score and its place on its scale: "3.2000  ███████████████▎          on a scale of 0 to 5"."""
    if scale is None:
        return Text(f"  {value:.4f}")
    low, high = scale
    share = (value - low) / (high - low) if high > low else 0.5
    return Text.assemble(f"  {value:.4f}  ", bar(share), (f"  on a scale of {low:g} to {high:g}", "dim"))


def _bars(rows: list[tuple[str, float]], chosen: set[str] | None = None) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(max_width=48, overflow="ellipsis", no_wrap=True)
    for name, share in rows:
        style = "bold green" if chosen and name in chosen else ""
        table.add_row(Text(name, style=style), bar(share), f"{share:6.1%}")
    return table


def _around(text: str, start: int, end: int, style: str, margin: int = 200) -> Text:
    """A stretch of a text marked in its surroundings."""
    before, after = text[max(0, start - margin) : start], text[end : end + margin]
    return Text.assemble(
        "…" if start > margin else "", before, (text[start:end], style), after, "…" if end + margin < len(text) else ""
    )


def _short(text: str, most: int = 200) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
