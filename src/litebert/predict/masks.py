"""fill_mask: the words behind each [MASK] of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from litebert.errors import InputError
from litebert.predict.ability import Applied, Limits, Probability, Result, ability
from litebert.predict.job import Ids, Inputs, Steps
from litebert.predict.runtime import Request
from litebert.tasks.decode import best_of, log_softmax
from litebert.text.words import SPACE, readable

if TYPE_CHECKING:
    from litebert.tasks.task import Task
    from litebert.text.tokenizer import Tokenizer

MOST_MASKS = 1000
MOST_CANDIDATES = 100_000
# Candidates carry the whole filled text while all of them together have at most this many characters; otherwise what is
# beside the mask, less of it the more candidates there are.
MOST_CHARACTERS = 100_000
LEAST_BESIDE, MOST_BESIDE = 20, 200
MOST_JOINT, MOST_BEAMS = 16, 200  # masks of a joint fill, which costs one sequence per mask and beam


@dataclass(frozen=True)
class Candidate:
    """A candidate for one mask."""

    word: Annotated[str, "The piece as a readable word."]  # "▁paris" -> "paris"
    piece: Annotated[str, "The piece as the vocabulary has it."]
    probability: Probability
    text: Annotated[str, "The text with this word filled in; for a long text, only the part around the mask."]


@dataclass(frozen=True)
class Mask:
    """One mask and its candidates, the most probable first."""

    start: Annotated[int, "First character."]
    end: Annotated[int, "One past the last character."]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class JointFill:
    """One way to fill all masks of a text together."""

    words: tuple[str, ...]
    probability: Annotated[Probability, "Of choosing these words one after another."]
    text: str


@dataclass(frozen=True)
class FilledMasks(Result):
    """A text with the candidates for each of its masks."""

    text: str
    masks: tuple[Mask, ...]
    joint: Annotated[tuple[JointFill, ...], "All masks filled together, if requested."] = ()
    depth: Applied = None

    def as_row(self, task: Task | None = None) -> dict[str, Any]:
        """The best word of each mask, of a joint fill the best words together."""
        if self.joint:
            return {"words": "|".join(self.joint[0].words), "probability": self.joint[0].probability}
        best = [mask.candidates[0] for mask in self.masks]
        return {
            "words": "|".join(each.word for each in best),
            "probability": best[0].probability
            if len(best) == 1
            else "|".join(f"{each.probability:g}" for each in best),
        }


@ability(
    outputs=["masked_lm"], examples=[{"text": "the band released their first [MASK] in 1994."}], also=["mask", "mlm"]
)
def fill_mask(
    inputs: Inputs,
    text: Annotated[str, "A text with one or more [MASK]."],
    top: Annotated[int, "How many candidates per mask.", Limits(1, served=100)] = 5,
    joint: Annotated[bool, "Also fill several masks together."] = False,
) -> Steps[FilledMasks]:
    """Predict the words behind each [MASK].

    Each mask is filled independently; `joint` also searches for the best combined fills, with a beam of `top`.
    """
    tokenizer = inputs.tokenizer
    top = min(top, tokenizer.vocab_size)
    mask = tokenizer.specials.mask  # as the vocabulary spells it
    ids = inputs.encode(text, allow_special=(mask,))
    places = np.flatnonzero(ids == tokenizer.mask_id)
    if not places.size:
        raise InputError(f"text: contains no {mask}; put {mask} where you want a word")
    spans = _mask_spans(text, mask)
    assert len(spans) == len(places), (len(spans), len(places))
    if len(places) > MOST_MASKS:
        raise InputError(f"text: has {len(places):,} masks, the limit is {MOST_MASKS:,}; split the text")
    if len(places) * top > MOST_CANDIDATES:
        raise InputError(f"top: {len(places):,} masks with {top:,} candidates exceed the limit of {MOST_CANDIDATES:,}")
    if joint and not 2 <= len(places) <= MOST_JOINT:
        raise InputError(f"joint: needs a text with 2 to {MOST_JOINT} masks, this one has {len(places)}")
    if joint and top > MOST_BEAMS:
        raise InputError(f"top: must be <= {MOST_BEAMS} with joint, not {top}")

    windows = _windows_around(ids, places, inputs.max_length - 2)
    if joint and len(windows) > 1:
        raise InputError("joint: the masks are too far apart to fit into one window of the model")
    later = top * (len(places) - 1) if joint else 0  # a sequence per beam for each mask after the first
    outputs = yield [_request(inputs, ids[begin:end], places[group] - begin, later) for begin, end, group in windows]
    room = _room(len(text), len(places) * top)
    masks: list[Mask] = []
    for (_, _, group), output in zip(windows, outputs, strict=True):
        for number, logits in zip(group, output["masked_lm"], strict=True):
            log_probs = _log_probs(logits, tokenizer)
            nearby, span = _nearby(text, [spans[number]], room)
            candidates = []
            for best in _best_words(log_probs, top, tokenizer):
                filled = _fill(nearby, span, [best], tokenizer)
                probability = float(np.exp(log_probs[best]))
                piece = tokenizer.piece(best)
                candidates.append(Candidate(readable(piece), piece, probability, filled))
            start, end = spans[number]
            masks.append(Mask(start, end, tuple(candidates)))
    fills: tuple[JointFill, ...] = ()
    if joint:
        begin, end, _ = windows[0]
        beams = yield from _search(inputs, ids[begin:end], places - begin, top, outputs[0]["masked_lm"][0])
        nearby, span = _nearby(text, spans, room)
        fills = tuple(
            JointFill(
                tuple(readable(tokenizer.piece(piece)) for piece in pieces),
                float(np.exp(log_prob)),
                _fill(nearby, span, pieces, tokenizer),
            )
            for pieces, log_prob in beams
        )
    return FilledMasks(text, tuple(masks), fills)


def _search(
    inputs: Inputs, ids: Ids, places: NDArray[np.int64], beams: int, first: NDArray[np.float32]
) -> Steps[list[tuple[list[int], float]]]:
    """The best fills from left to right: each mask given those before it, the later ones still masked."""
    tokenizer = inputs.tokenizer
    log_probs = _log_probs(first, tokenizer)
    found = [([piece], float(log_probs[piece])) for piece in _best_words(log_probs, beams, tokenizer)]
    for step in range(1, len(places)):
        requests = []
        for pieces, _ in found:
            filled = ids.copy()
            filled[places[:step]] = pieces
            requests.append(_request(inputs, filled, places[step : step + 1]))
        outputs = yield requests
        longer = []
        for (pieces, score), output in zip(found, outputs, strict=True):
            log_probs = _log_probs(output["masked_lm"][0], tokenizer)
            best = _best_words(log_probs, beams, tokenizer)
            longer += [([*pieces, piece], score + float(log_probs[piece])) for piece in best]
        found = sorted(longer, key=lambda beam: -beam[1])[:beams]
    return found


def _log_probs(logits: NDArray[np.float32], tokenizer: Tokenizer) -> NDArray[np.float64]:
    # Some models have more rows than pieces, to reach a round number: these rows mean nothing.
    return log_softmax(logits[: tokenizer.vocab_size])


def _best_words(log_probs: NDArray[np.float64], top: int, tokenizer: Tokenizer) -> list[int]:
    """The most probable pieces that one can read: no special piece, and no bare space, which only begins a word."""
    silent = {*asdict(tokenizer.specials).values(), SPACE}
    best = best_of(log_probs, min(top + len(silent), len(log_probs)))
    return [piece for piece in best if tokenizer.piece(piece) not in silent][:top]


def _request(inputs: Inputs, ids: Ids, places: NDArray[np.int64], later: int = 0) -> Request:
    return inputs.request(ids, want=("masked_lm",), positions=places, later=later)


def _windows_around(ids: Ids, places: NDArray[np.int64], most: int) -> list[tuple[int, int, NDArray[np.int64]]]:
    """(begin, end, which masks) of stretches of at most `most` tokens that have the masks in their middle."""
    if len(ids) <= most:
        return [(0, len(ids), np.arange(len(places)))]
    windows = []
    number = 0
    while number < len(places):
        # Masks share a window while each still has a quarter of it on either side.
        group = np.flatnonzero((places >= places[number]) & (places <= places[number] + most // 2))
        middle = int(places[group[0]] + places[group[-1]]) // 2
        begin = min(max(0, middle - most // 2), len(ids) - most)
        windows.append((begin, begin + most, group))
        number = int(group[-1]) + 1
    return windows


def _mask_spans(text: str, mask: str) -> list[tuple[int, int]]:
    spans, position = [], text.find(mask)
    while position >= 0:
        spans.append((position, position + len(mask)))
        position = text.find(mask, position + len(mask))
    return spans


def _room(length: int, count: int) -> int:
    """How many characters on either side of a mask each of `count` filled texts has room for."""
    if length * count <= MOST_CHARACTERS:
        return length
    return min(max(MOST_CHARACTERS // (2 * count), LEAST_BESIDE), MOST_BESIDE)


def _nearby(text: str, spans: Sequence[tuple[int, int]], room: int) -> tuple[str, list[tuple[int, int]]]:
    """The text within `room` characters of the masks, and where they lie in it; " … " is what was left out between.

    ("aaaa[MASK]bbbbb[MASK]cc", [(4, 10), (15, 21)], 2) -> ("aa[MASK]bb … bb[MASK]cc", [(2, 8), (15, 21)])
    """
    kept, position = "", max(0, spans[0][0] - room)
    found: list[tuple[int, int]] = []
    for start, end in spans:
        between = text[position:start]
        if found and len(between) > 2 * room:
            between = f"{between[:room]} … {between[-room:]}"
        kept += between
        found.append((len(kept), len(kept) + end - start))
        kept += text[start:end]
        position = end
    return kept + text[position : position + room], found


def _fill(text: str, spans: Sequence[tuple[int, int]], pieces: Sequence[int], tokenizer: Tokenizer) -> str:
    """The text with pieces in place of masks; a piece that continues a word is appended to it without a space."""
    filled, position = "", 0
    for (start, end), number in zip(spans, pieces, strict=True):
        before, piece = text[position:start], tokenizer.piece(number)
        word = readable(piece)
        if begins_word(piece, tokenizer.kind):
            filled += before
            # Not after an ideograph or a bracket: only between letters does a new word need its space.
            if filled[-1:].isalnum() and word[:1].isalnum() and (filled + word[0]).isascii():
                filled += " "
        else:
            filled += before.rstrip()
        filled += word
        position = end
    return filled + text[position:]


def begins_word(piece: str, kind: str) -> bool:
    """Whether a piece begins a word: "▁ca" yes, "ts" no; WordPiece: "ca" yes, "##ts" no."""
    return piece.startswith("▁") if kind == "sentencepiece" else not piece.startswith("##")
