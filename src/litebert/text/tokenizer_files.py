"""Tokenizers on disk: their files, how each is read, and what is written for transformers.

spiece.model            SentencePiece's own file            vocab.txt    WordPiece, one piece per line
tokenizer.json          the same for the `tokenizers` library
tokenizer_config.json   special tokens, token_type_ids, and under "litebert" what the other files cannot express
"""

from __future__ import annotations

import base64
import binascii
import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from litebert import config
from litebert.errors import ConfigError, DataError
from litebert.files import staged_folder
from litebert.folders import folder_hint
from litebert.parse import read_object
from litebert.text.normalize import ACCENTS, Normalization, character_class, is_latin
from litebert.text.spiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    Piece,
    SentencePieceTokenizer,
    SpieceModel,
    list_pieces,
    open_model,
    read_model,
    write_model,
)
from litebert.text.tokenizer import Specials, Tokenizer
from litebert.text.wordpiece import CONTINUES, MAX_WORD, BasicRule, WordPieceTokenizer
from litebert.text.words import SPACE, is_symbol

SPIECE, VOCAB, TOKENIZER, CONFIG = "spiece.model", "vocab.txt", "tokenizer.json", "tokenizer_config.json"
FILES = (SPIECE, VOCAB, TOKENIZER, CONFIG)
SECTION = "litebert"
NO_LIMIT = 1_000_000  # transformers writes a huge number for "no limit"

Rule = TypeVar("Rule", Normalization, BasicRule)

# How vocabularies spell what ALBERT calls <pad> <unk> [CLS] [SEP] [MASK].
SPELLINGS = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


def load_tokenizer(path: Path, normalization: Normalization | None = None) -> Tokenizer:
    """Open a tokenizer of any kind."""
    if path.is_dir():
        file = _find_vocabulary(path)
        settings = read_object(path / CONFIG) if (path / CONFIG).exists() else {}
    elif path.exists():
        file, settings = path, {}
    else:
        raise DataError(f"{path}: no such tokenizer file or folder")
    tokenizer: Tokenizer
    if file.suffix == ".txt":
        tokenizer = _load_wordpiece(file, settings)
    elif file.suffix == ".json":
        tokenizer = _load_tokenizer_json(file, settings, normalization)
    else:
        tokenizer = _load_spiece(_read(file), str(file), settings, normalization)
    longest = settings.get("model_max_length")
    if isinstance(longest, int) and 0 < longest < NO_LIMIT:
        tokenizer.max_length = longest
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, max_length: int | None = None) -> None:
    """Write a tokenizer's files into a folder, all or none; other files there are kept."""
    with staged_folder(folder, keep=lambda name: name not in FILES) as staging:
        settings: dict[str, Any] = {
            # The generic class reads tokenizer.json as it is; transformers' AlbertTokenizer would rebuild it.
            "tokenizer_class": "PreTrainedTokenizerFast",
            # Without this, transformers 5 gives no token_type_ids for ALBERT.
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            **{f"{name}_token": piece for name, piece in asdict(tokenizer.specials).items()},
            "clean_up_tokenization_spaces": False,
        }
        if max_length is not None:
            settings["model_max_length"] = max_length
        if isinstance(tokenizer, SentencePieceTokenizer):
            rule = tokenizer.normalization
            settings |= {"do_lower_case": rule.lower, "keep_accents": not rule.strip_accents}
            settings[SECTION] = {"kind": tokenizer.kind, "normalization": asdict(rule)}
            (staging / SPIECE).write_bytes(tokenizer.model)
            content = spiece_tokenizer_json(tokenizer)
        elif isinstance(tokenizer, WordPieceTokenizer):
            settings |= {"do_lower_case": tokenizer.rule.lower, "strip_accents": tokenizer.rule.strip_accents}
            settings["tokenize_chinese_chars"] = tokenizer.rule.split_cjk
            settings[SECTION] = {"kind": tokenizer.kind, "rule": asdict(tokenizer.rule)}
            (staging / VOCAB).write_text("".join(f"{piece}\n" for piece in tokenizer.pieces), encoding="utf-8")
            content = wordpiece_tokenizer_json(tokenizer)
        else:
            raise TypeError(f"no file format for {type(tokenizer).__name__}")
        if content is not None:
            (staging / TOKENIZER).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        (staging / CONFIG).write_text(json.dumps(settings, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def guess_normalization(pieces: list[str]) -> Normalization:
    """Infer the normalisation a SentencePiece vocabulary was trained with from its pieces.

    No capital letters: lower case. No letters with marks: `google`, which drops them all. Marks, but none on Latin
    letters (or Hangul, which `google` decomposes): `multilingual`. Otherwise accents are part of the vocabulary.
    """
    characters = {character for piece in pieces if not is_symbol(piece) for character in piece}
    lower = not any(character.isupper() for character in characters)
    marked = {c for c in characters if any(map(unicodedata.combining, unicodedata.normalize("NFKD", c)))}
    if any(map(is_latin, marked)):
        return Normalization("multilingual", lower=True, strip_accents=False) if lower else Normalization("none")
    hangul = any("\uac00" <= character <= "\ud7a3" for character in characters)
    return Normalization("multilingual" if marked or hangul else "google", lower)


def _load_spiece(
    model: bytes, where: str, settings: Mapping[str, Any], normalization: Normalization | None
) -> SentencePieceTokenizer:
    processor = open_model(model, where)
    pieces = list_pieces(processor)
    if normalization is None:
        normalization = _saved(Normalization, "normalization", settings, where) or _named_normalization(settings)
    return SentencePieceTokenizer(
        model, normalization or guess_normalization(pieces), _find_specials(pieces, settings, where), where, processor
    )


def _load_wordpiece(file: Path, settings: Mapping[str, Any]) -> WordPieceTokenizer:
    pieces = _read_text(file).split("\n")
    pieces = [piece.rstrip("\r") for piece in pieces]
    while pieces and not pieces[-1]:
        pieces.pop()
    if not pieces:
        raise DataError(f"{file}: empty; expected a vocabulary, one piece per line")
    lines: dict[str, int] = {}
    for line, piece in enumerate(pieces, 1):
        if not piece:
            raise DataError(f"{file}:{line}: empty line; every line is one piece, and its number is the id")
        if lines.setdefault(piece, line) != line:
            raise DataError(f"{file}:{line}: {piece!r} is already on line {lines[piece]}; ids would be ambiguous")
    return WordPieceTokenizer(
        pieces, _basic_rule(pieces, settings, str(file)), _find_specials(pieces, settings, str(file)), str(file)
    )


def _load_tokenizer_json(file: Path, settings: Mapping[str, Any], normalization: Normalization | None) -> Tokenizer:
    content = read_tokenizer_json(read_object(file), str(file))
    if isinstance(content, bytes):
        return _load_spiece(content, str(file), settings, normalization)
    pieces, rule = content
    return WordPieceTokenizer(pieces, rule, _find_specials(pieces, settings, str(file)), str(file))


def _find_vocabulary(folder: Path) -> Path:
    """The one file of a folder that contains the vocabulary."""
    for pattern in (SPIECE, "*.model", VOCAB, "vocab*.txt", TOKENIZER):
        found = sorted(file for file in folder.glob(pattern) if file.is_file())
        if len(found) > 1:
            raise DataError(f"{folder}: contains {', '.join(file.name for file in found)}; name the file to use")
        if found:
            return found[0]
    raise DataError(f"{folder}: no tokenizer here ({SPIECE}, {VOCAB} or {TOKENIZER}){folder_hint(folder)}")


def _find_specials(pieces: list[str], settings: Mapping[str, Any], where: str) -> Specials:
    """The spelling given in the config, or else the first known one in the vocabulary."""
    known = set(pieces)
    chosen = {}
    for name, spellings in SPELLINGS.items():
        named = settings.get(f"{name}_token")
        if isinstance(named, Mapping):  # as transformers 4 wrote it
            named = named.get("content")
        if isinstance(named, str):
            if named not in known:
                raise DataError(f"{where}: no piece {named!r}, which {CONFIG} names as the {name} token")
            chosen[name] = named
        else:
            # If there is none, the tokenizer reports the usual name as missing.
            chosen[name] = next((spelling for spelling in spellings if spelling in known), spellings[0])
    return Specials(**chosen)


def _saved(cls: type[Rule], key: str, settings: Mapping[str, Any], where: str) -> Rule | None:
    """A rule from the config of a folder written by litebert; None for other folders."""
    section = settings.get(SECTION)
    if section is None:
        return None
    try:
        return config.build(cls, section[key], f"{CONFIG}: {SECTION}.{key}")
    except (KeyError, TypeError, ConfigError) as error:
        raise DataError(f"{Path(where).parent / CONFIG}: damaged section {SECTION!r}: {error}") from None


def _named_normalization(settings: Mapping[str, Any]) -> Normalization | None:
    """The rule in the config of a folder written by transformers, if it is an ALBERT tokenizer."""
    if "do_lower_case" not in settings and "keep_accents" not in settings:
        return None
    return Normalization(
        "google", settings.get("do_lower_case", True) is True, settings.get("keep_accents", False) is not True
    )


def _basic_rule(pieces: list[str], settings: Mapping[str, Any], where: str) -> BasicRule:
    saved = _saved(BasicRule, "rule", settings, where)
    if saved is not None:
        return saved
    lower = settings.get("do_lower_case")
    if not isinstance(lower, bool):
        lower = not any(piece != piece.lower() for piece in pieces if not is_symbol(piece))
    strip = settings.get("strip_accents")
    rule = BasicRule(lower=lower, strip_accents=strip if isinstance(strip, bool) else lower)
    split = settings.get("tokenize_chinese_chars")
    return replace(rule, split_cjk=split) if isinstance(split, bool) else rule


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot read: {error.strerror}") from None


def _read_text(file: Path) -> str:
    data = _read(file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{file}:{data[: error.start].count(10) + 1}: not valid UTF-8: {error.reason}") from None


# ---------------------------------------------------------------------------------------------------------------------
# tokenizer.json. Two things have no exact equivalent there: the re-encoding of "2010," (its score is lowered instead,
# so that "2010" and "," win), and that "[MASK]" in a text is plain text (there it is always the special piece).

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
