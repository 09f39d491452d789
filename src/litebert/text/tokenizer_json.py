"""tokenizer.json: write our tokenizers for the `tokenizers` library, and read that library's files.

Two things have no exact equivalent there: the re-encoding of "2010," (its score is lowered instead, so that "2010"
and "," win), and that "[MASK]" in a text is plain text (there it is always the special piece).
"""

from __future__ import annotations

import base64
import binascii
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from litebert.errors import DataError
from litebert.text.normalize import ACCENTS, Normalization, character_class, is_latin
from litebert.text.spiece import SentencePieceTokenizer
from litebert.text.spiece_proto import (
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    Piece,
    SpieceModel,
    read_model,
    write_model,
)
from litebert.text.tokenizer import Tokenizer
from litebert.text.wordpiece import CONTINUES, MAX_WORD, BasicRule, WordPieceTokenizer
from litebert.text.words import SPACE

COMMA_PENALTY = 100.0  # more than any other way through a word costs
_MARKS = 9  # on one letter; patterns look no further, so that no text is slow

Json = dict[str, Any]


def spiece_tokenizer_json(tokenizer: SentencePieceTokenizer) -> Json | None:
    """The content of tokenizer.json for a unigram model; None for other kinds, which it cannot express."""
    model = read_model(tokenizer.model)
    if model.model_type != UNIGRAM:
        return None
    metaspace = {
        "type": "Metaspace",
        "replacement": SPACE,
        # Only the first word of the text gets a leading space: "[MASK]." stays without one.
        "prepend_scheme": "first" if model.add_dummy_prefix else "never",
        "split": True,
    }
    unigram = {
        "type": "Unigram",
        "unk_id": tokenizer.unk_id,
        "vocab": [[piece.text, score] for piece, score in zip(model.pieces, _scores(tokenizer, model), strict=True)],
        "byte_fallback": any(piece.kind == BYTE for piece in model.pieces),
    }
    normalizers = _normalizers(tokenizer.normalization) + _own_normalizers(tokenizer, model)
    return _tokenizer_json(tokenizer, {"type": "Sequence", "normalizers": normalizers}, metaspace, unigram, metaspace)


def wordpiece_tokenizer_json(tokenizer: WordPieceTokenizer) -> Json:
    """The content of tokenizer.json for a WordPiece vocabulary."""
    normalizer: Json = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": tokenizer.rule.split_cjk,
        "strip_accents": tokenizer.rule.strip_accents,
        "lowercase": tokenizer.rule.lower,
    }
    if tokenizer.rule.lower:
        dropped = r"\p{Cf}\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd"
        normalizer = {"type": "Sequence", "normalizers": [_final_sigma(dropped), normalizer]}
    wordpiece = {
        "type": "WordPiece",
        "unk_token": tokenizer.specials.unk,
        "continuing_subword_prefix": CONTINUES,
        "max_input_chars_per_word": tokenizer.rule.max_word,
        "vocab": {piece: number for number, piece in enumerate(tokenizer.pieces)},
    }
    decoder = {"type": "WordPiece", "prefix": CONTINUES, "cleanup": False}
    return _tokenizer_json(tokenizer, normalizer, {"type": "BertPreTokenizer"}, wordpiece, decoder)


def read_tokenizer_json(content: Mapping[str, Any], where: str) -> bytes | tuple[list[str], BasicRule]:
    """Read a tokenizer.json: a SentencePiece model file for Unigram, the pieces and the rule for WordPiece."""
    try:
        kind = content["model"].get("type")
        if kind == "Unigram":
            return write_model(_read_unigram(content))
        if kind == "WordPiece":
            return _read_wordpiece(content)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, binascii.Error) as error:
        raise DataError(f"{where}: not a valid tokenizer.json: {type(error).__name__} {error}") from None
    raise DataError(f"{where}: unsupported model type {kind!r} (only Unigram and WordPiece); use spiece.model instead")


def _tokenizer_json(tokenizer: Tokenizer, normalizer: Json, pre_tokenizer: Json, model: Json, decoder: Json) -> Json:
    specials = asdict(tokenizer.specials)
    added = [
        {
            "id": tokenizer.piece_id(piece),
            "content": piece,
            "single_word": False,
            # The space before [MASK] belongs to the masked word.
            "lstrip": name == "mask",
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for name, piece in specials.items()
    ]

    def special(name: str, segment: int) -> Json:
        return {"SpecialToken": {"id": specials[name], "type_id": segment}}

    a = [special("cls", 0), {"Sequence": {"id": "A", "type_id": 0}}, special("sep", 0)]
    b = [{"Sequence": {"id": "B", "type_id": 1}}, special("sep", 1)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": a,
            "pair": a + b,
            "special_tokens": {
                specials[name]: {
                    "id": specials[name],
                    "ids": [tokenizer.piece_id(specials[name])],
                    "tokens": [specials[name]],
                }
                for name in ("cls", "sep")
            },
        },
        "decoder": decoder,
        "model": model,
    }


def _scores(tokenizer: SentencePieceTokenizer, model: SpieceModel) -> list[float]:
    normal = [piece.score for piece in model.pieces if piece.kind == NORMAL] or [0.0]
    best, worst = max(normal), min(normal)
    scores = []
    for number, piece in enumerate(model.pieces):
        if piece.kind == USER_DEFINED:
            # The scores SentencePiece gives them while encoding.
            scores.append(len(piece.text.encode("utf-8")) * best - 0.1)
        elif number in tokenizer.comma_pieces:
            scores.append(piece.score - COMMA_PENALTY)
        else:
            scores.append(piece.score if piece.kind in (NORMAL, BYTE) else worst)
    return scores


def _normalizers(rule: Normalization) -> list[Json]:
    """Normalization.__call__ in terms of the library's steps, which do not match ours one to one."""
    if rule.rule == "none":
        return []
    steps = [_replace(r"[\s\x1c-\x1f]+", " ")]
    if rule.rule == "multilingual":
        steps.append({"type": "NFKD"})
        if rule.strip_accents:
            steps.append(_replace(rf"(?<={character_class(is_latin, 0x41, 0x20000)})[{ACCENTS}]+", ""))
            steps.append(_accents_after_other_marks())
    elif rule.strip_accents:
        steps.append({"type": "NFKD"})
        # Its StripAccents drops all of category M, including the vowels of Hindi.
        marks = [character_class(unicodedata.combining, *span) for span in ((0x300, 0x10000), (0x10000, 0x1F000))]
        # A text whose first character is dropped would not get its leading space; an explicit space does the same.
        steps.append(_replace(rf"\A(?:{'|'.join(marks)})+", " "))
        steps += [_replace(mark, "") for mark in marks]
    if rule.lower:
        steps += [_final_sigma(), {"type": "Lowercase"}]
    return steps


def _own_normalizers(tokenizer: SentencePieceTokenizer, model: SpieceModel) -> list[Json]:
    """SentencePiece's own normalisation."""
    steps: list[Json] = []
    if model.charsmap:
        # The library applies the table to one cluster at a time. That never composes Hangul, so compose first, and it
        # loses a mark on a character that becomes a space.
        steps.append({"type": "NFC"})
        if spaces := tokenizer.spaces():
            steps.append(_replace(f"[{spaces}]", " "))
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.charsmap).decode("ascii")})
    if model.remove_extra_whitespaces:
        # A leading space stays: it marks the beginning of a word after a special piece.
        steps += [_replace(f"[ {SPACE}]+", " "), {"type": "Strip", "strip_left": False, "strip_right": True}]
    return steps


def _final_sigma(dropped: str = "") -> Json:
    """Σ at the end of a word becomes ς by Unicode's rule, which the library's lower-casing lacks.

    dropped: characters that are removed before.
    """
    between = rf"[\p{{Case_Ignorable}}{dropped}]{{0,{_MARKS}}}"
    return _replace(rf"\p{{Cased}}{between}\KΣ(?!{between}\p{{Cased}})", "ς")


def _accents_after_other_marks() -> Json:
    """Drops the accent of "é" if a mark of another script precedes it once the letter is decomposed."""
    letters: dict[str, set[str]] = {}  # of each accent
    for letter in filter(is_latin, map(chr, range(0xC0, 0x1F00))):
        parts = unicodedata.normalize("NFD", letter)
        for accent in parts[1:]:
            letters.setdefault(accent, set()).add(parts[0])
    # A mark lets the accent reach the letter only if its class is lower: a group for each, called by name below.
    groups = ""
    for order in sorted(set(map(unicodedata.combining, letters))):
        lower = character_class(_combines_below(order), 0x300, 0x1F000)
        groups += f"(?<below{order}>[{lower}&&[^{ACCENTS}]]{{1,{_MARKS}}}){{0}}"
    ways = "|".join(
        rf"[{''.join(sorted(bases))}]\g<below{unicodedata.combining(accent)}>\K{accent}"
        for accent, bases in sorted(letters.items())
    )
    return _replace(rf"{groups}(?=\p{{Latin}}\p{{M}})(?:{ways})", "")


def _combines_below(order: int) -> Callable[[str], bool]:
    return lambda character: 0 < unicodedata.combining(character) < order


def _replace(pattern: str, content: str) -> Json:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _read_unigram(content: Mapping[str, Any]) -> SpieceModel:
    model = content["model"]
    special = {token["content"] for token in content.get("added_tokens") or [] if token.get("special")}
    unk_id = model.get("unk_id")
    pieces = []
    for number, (text, score) in enumerate(model["vocab"]):
        if number == unk_id:
            kind = UNKNOWN
        elif text in special:
            kind = CONTROL
        elif model.get("byte_fallback") and len(text) == 6 and text.startswith("<0x"):
            kind = BYTE
        else:
            # User-defined symbols have no score; every other piece has a log-probability.
            kind = USER_DEFINED if score == 0.0 else NORMAL
        pieces.append(Piece(text, float(score), kind))
    steps = _steps(content.get("normalizer"), "normalizers")
    charsmap = next((step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"), "")
    metaspace = [step for step in _steps(content.get("pre_tokenizer"), "pretokenizers") if step["type"] == "Metaspace"]
    prefix = bool(metaspace) and metaspace[0].get("prepend_scheme", "always") != "never"
    return SpieceModel(pieces, UNIGRAM, base64.b64decode(charsmap), prefix, remove_extra_whitespaces=True)


def _read_wordpiece(content: Mapping[str, Any]) -> tuple[list[str], BasicRule]:
    vocabulary = content["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise ValueError("the ids of the vocabulary are not 0, 1, 2, ...")
    bert = [step for step in _steps(content.get("normalizer"), "normalizers") if step["type"] == "BertNormalizer"]
    settings = bert[0] if bert else {"lowercase": False, "handle_chinese_chars": False}
    lower = settings.get("lowercase") is not False
    strip = settings.get("strip_accents")
    return pieces, BasicRule(
        lower=lower,
        strip_accents=strip if isinstance(strip, bool) else lower,
        split_cjk=settings.get("handle_chinese_chars") is not False,
        max_word=int(content["model"].get("max_input_chars_per_word", MAX_WORD)),
    )


def _steps(part: Mapping[str, Any] | None, inside: str) -> list[Mapping[str, Any]]:
    """A normalizer or pre-tokenizer as its list of steps."""
    if not part:
        return []
    return list(part[inside]) if part["type"] == "Sequence" else [part]
