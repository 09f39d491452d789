"""Tokenizers on disk: the files of one, how each is read, and what is written for transformers.

spiece.model            SentencePiece's own file            vocab.txt    WordPiece, one piece per line
tokenizer.json          the same for the `tokenizers` library (see tokenizer_json.py)
tokenizer_config.json   special tokens, token_type_ids, and under "litebert" what the other files cannot express
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from litebert import config
from litebert.errors import ConfigError, DataError
from litebert.files import staged_folder
from litebert.folders import folder_hint
from litebert.parse import read_object
from litebert.text.normalize import Normalization, is_latin
from litebert.text.spiece import SentencePieceTokenizer, list_pieces, open_model
from litebert.text.tokenizer import Specials, Tokenizer
from litebert.text.tokenizer_json import (
    read_tokenizer_json,
    spiece_tokenizer_json,
    wordpiece_tokenizer_json,
)
from litebert.text.wordpiece import BasicRule, WordPieceTokenizer
from litebert.text.words import is_symbol

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
    raise DataError(f"{folder}: contains no tokenizer; expected {SPIECE}, {VOCAB} or {TOKENIZER}{folder_hint(folder)}")


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
