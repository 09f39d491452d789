"""Texts as the batch that models take: what `tokenizer(texts, padding=True, return_tensors="pt")` gives.

Ids, lengths and padding are those of transformers' AutoTokenizer for the same files, "[MASK]" in a text included.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from litebert.errors import InputError, check_choice

if TYPE_CHECKING:
    from litebert.text.tokenizer import Tokenizer

Padding = bool | Literal["longest", "max_length", "do_not_pad"]
Truncation = bool | Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
TensorKind = Literal["pt", "np"]


class TokenBatch(dict[str, Any]):
    """input_ids, token_type_ids and attention_mask, also as attributes: model(**batch), batch.input_ids."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a TokenBatch has {', '.join(self)}, not {name!r}") from None

    def to(self, device: Any) -> TokenBatch:
        """The same batch on a torch device."""
        return TokenBatch({name: value.to(device) if hasattr(value, "to") else value for name, value in self.items()})


def make_batch(
    tokenizer: Tokenizer,
    text: str | Sequence[str],
    text_pair: str | Sequence[str] | None = None,
    *,
    padding: Padding = False,
    truncation: Truncation = False,
    max_length: int | None = None,
    return_tensors: TensorKind | None = None,
    add_special_tokens: bool = True,
    allow_special: bool | Collection[str] = True,
) -> TokenBatch:
    """The batch of one text or many, alone or in pairs; see Tokenizer.__call__."""
    check_choice("padding", padding, (False, True, "longest", "max_length", "do_not_pad"), InputError)
    strategies = (False, True, "longest_first", "only_first", "only_second", "do_not_truncate")
    check_choice("truncation", truncation, strategies, InputError)
    check_choice("return_tensors", return_tensors, (None, "pt", "np"), InputError)
    truncate, pad = truncation not in (False, "do_not_truncate"), padding not in (False, "do_not_pad")
    max_length = max_length or tokenizer.max_length
    if max_length is None and (truncate or padding == "max_length"):
        raise InputError("max_length: needed, since this tokenizer's folder does not say how long sequences may be")
    single = isinstance(text, str)
    firsts = _encode(tokenizer, [text] if isinstance(text, str) else text, allow_special)
    seconds: list[list[int]] | list[None] = [None] * len(firsts)
    if text_pair is not None:
        if isinstance(text_pair, str) != single:
            raise InputError("text_pair: must be a str where text is one, and a list where text is a list")
        seconds = _encode(tokenizer, [text_pair] if isinstance(text_pair, str) else text_pair, allow_special)
    if len(seconds) != len(firsts):
        raise InputError(f"text_pair: {len(seconds)} texts for {len(firsts)}; each text needs one")

    rows, types = [], []
    for a, b in zip(firsts, seconds, strict=True):
        if truncate:
            assert max_length is not None
            specials = (2 if b is None else 3) if add_special_tokens else 0
            a, b = _truncate(a, b, max_length - specials, truncation)
        if add_special_tokens:
            a = [tokenizer.cls_id, *a, tokenizer.sep_id]
            b = b if b is None else [*b, tokenizer.sep_id]
        rows.append(a + (b or []))
        types.append([0] * len(a) + [1] * len(b or []))
    width = max(map(len, rows), default=0)
    if padding == "max_length":
        assert max_length is not None
        width = max(width, max_length)
    missing = [width - len(row) if pad else 0 for row in rows]
    batch = {
        "input_ids": [row + [tokenizer.pad_id] * more for row, more in zip(rows, missing, strict=True)],
        "token_type_ids": [row + [0] * more for row, more in zip(types, missing, strict=True)],
        "attention_mask": [[1] * len(row) + [0] * more for row, more in zip(rows, missing, strict=True)],
    }
    if return_tensors is None:
        return TokenBatch({name: values[0] for name, values in batch.items()} if single else batch)
    if len({len(row) for row in batch["input_ids"]}) > 1:
        raise InputError("the texts have different lengths, so they make no tensor; add padding=True")
    arrays = {name: np.array(values, np.int64).reshape(len(rows), -1) for name, values in batch.items()}
    if return_tensors == "np":
        return TokenBatch(arrays)
    import torch  # only for who asks for its tensors

    return TokenBatch({name: torch.from_numpy(array) for name, array in arrays.items()})


def _encode(tokenizer: Tokenizer, texts: Sequence[str], allow_special: bool | Collection[str]) -> list[list[int]]:
    if not allow_special:
        return [ids.tolist() for ids in tokenizer.encode_batch(texts)]
    return [tokenizer.encode(text, allow_special) for text in texts]


def _truncate(
    a: list[int], b: list[int] | None, room: int, truncation: Truncation
) -> tuple[list[int], list[int] | None]:
    """Both within `room`, the longer one cut first: (5, 9) tokens in 10 -> (5, 5)."""
    excess = len(a) + len(b or []) - room
    if excess <= 0:
        return a, b
    if b is None:
        return a[: max(0, room)], None
    if truncation in ("only_first", "only_second"):
        which = a if truncation == "only_first" else b
        if room < 0 or excess > len(which):
            name = "text" if truncation == "only_first" else "text_pair"
            raise InputError(f"truncation {truncation!r}: {name} has {len(which)} tokens, and {excess} are too many")
        return (a[: len(a) - excess], b) if truncation == "only_first" else (a, b[: len(b) - excess])
    short = min(len(a), len(b), max(0, room) // 2)
    long = max(0, room) - short
    return (a[:long], b[:short]) if len(a) > len(b) else (a[:short], b[:long])
