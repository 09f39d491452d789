"""Any text: AutoTokenizer gives our ids, except as docs/tokenizer.md lists, and offsets never step back."""

from __future__ import annotations

import functools
import json
import random
import re
import runpy
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from litebert.remote import resolve_default
from litebert.text.normalize import Normalization
from litebert.text.tokenizer import Tokenizer
from litebert.text.wordpiece import BasicRule

ROOT = Path(__file__).parents[2]
FUZZ = runpy.run_path(str(ROOT / "benchmarks" / "tokenizer_fuzz.py"))
GOOGLE = f"characters, {Normalization.named('google')}"
MULTILINGUAL = f"characters, {Normalization.named('multilingual', lower=True)}"
WORDPIECE = f"characters, {BasicRule()}"
CASED = f"characters, {BasicRule(lower=False, strip_accents=False)}"


@functools.cache
def tokenizers() -> dict[str, Tokenizer]:
    return dict(FUZZ["all_tokenizers"]())


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    @functools.cache
    def load(name):
        folder = tmp_path_factory.mktemp("tokenizer")
        tokenizers()[name].save(folder)
        return AutoTokenizer.from_pretrained(folder)

    return load


@pytest.mark.parametrize("name", ["default", GOOGLE, MULTILINGUAL, WORDPIECE, CASED])
def test_no_difference_without_a_reason(name):
    reasons, examples = FUZZ["fuzz"](tokenizers()[name], 300, seed=7)
    assert "other" not in reasons, examples


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((GOOGLE, text) for text in ("\u0327u", "\u0301\u0302a", "\u0301", "a \u0301b", "\U00010f46a")),
        *(
            (MULTILINGUAL, text)
            for text in (
                "é\u05a6",
                "Å\u08e3b",
                "đ\u0308",
                "x\u05a6\u0301",
                "\u0301é",
                "s\u0730\u0301",
                "ⅎ\u0350",
                "e\u05a6\u0301",
            )
        ),
        *((MULTILINGUAL, text) for text in ("한Σ", "йΣ", "ΟΔΟΣ", "ΟΣ\u0301ı", "zΣ日", "ΑΣΣ", "Σ", "ΑΣ'Σ b")),
        *((MULTILINGUAL, text) for text in ("▁\u0365", "\ufffd\u0340", "a\u200c\u0301b", "می\u200cخواهم")),
        *((WORDPIECE, text) for text in ("ΟΔΟΣ ΣΑΣ", "Ο\x1cΣ", "한Σ", "Ο\u200bΣ")),
    ],
)
def test_texts_that_once_differed(name, text, theirs):
    assert theirs(name)(text, add_special_tokens=False)["input_ids"] == tokenizers()[name].encode(text)


def test_the_default_models_folder_is_as_saved_today(tmp_path):
    folder = Path(resolve_default("default"))
    Tokenizer.load(folder).save(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert json.loads((folder / name).read_text()) == json.loads((tmp_path / name).read_text())


@pytest.mark.parametrize("name", ["default", GOOGLE, MULTILINGUAL, WORDPIECE])
def test_offsets_never_step_back(name):
    tokenizer, source = tokenizers()[name], random.Random(11)
    for text in ["ﷺ", "aﷺ b", *(FUZZ["draw_text"](source) for _ in range(400))]:
        offsets = tokenizer.encode_offsets(text).offsets
        starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
        assert starts == sorted(starts), text
        assert ends == sorted(ends), text
        assert all(0 <= start <= end <= len(text) for start, end in offsets), text


def test_the_page_lists_every_reason():
    source = (ROOT / "benchmarks" / "tokenizer_fuzz.py").read_text(encoding="utf-8")
    named = set(re.findall(r'return "(.+)"', source)) - {"other"}
    page = (ROOT / "docs" / "tokenizer.md").read_text(encoding="utf-8")
    assert len(named) == 6
    assert not [reason for reason in named if reason not in page]
