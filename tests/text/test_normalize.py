"""Normalisation against the definition, character by character."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import ConfigError
from litebert.text.normalize import Normalization, collapse_whitespace, normal_form

GOOGLE = Normalization.named("google")
MULTILINGUAL = Normalization.named("multilingual", lower=True)

# Letters with marks of many scripts, marks alone, odd spaces, ligatures, jamo, final sigma, beyond the BMP.
ODD = "aZéÅĳﬁ½İßøŁ¨´ \t\n\xa0\u3000\u200b\u0301\u0323\u3099がﾞｶﾞйё한글ᄒ\u1161\u11abहि\u094dไํΟΣςα𝒜😀\U0001d165🇰"
texts = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=["Cs"])), max_size=40)


def released(text: str) -> str:
    """The rule as the facts about the released code state it."""
    text = " ".join(text.strip().split())
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.combining(c) == 0)
    return text.lower()


@given(texts)
@settings(max_examples=400, deadline=None)
def test_google_is_the_released_rule(text):
    assert GOOGLE(text) == released(text)


@pytest.mark.parametrize(
    ("text", "google", "multilingual"),
    [
        ("Déjà  Vu\n", "deja vu", "deja vu"),
        ("  ASCII\tonly ", "ascii only", "ascii only"),
        ("がぎぐ パン", "かきく ハン", "がぎぐ パン"),
        ("й Ё ї", "и е і", "й ё ї"),
        ("हिन्दी", "हिनदी", "हिन्दी"),
        ("ที่นี่", "ทีนี", "ที่นี่"),
        ("Ångström Łódź øre", "angstrom łodz øre", "angstrom łodz øre"),
        ("Tiê\u0301ng Việt x\u0302\u0301", "tieng viet x", "tieng viet x"),
        ("ﬁne ｗｉｄｅ ½", "fine wide 1⁄2", "fine wide 1⁄2"),
        ("İstanbul", "istanbul", "istanbul"),
        ("ΟΔΟΣ", "οδος", "οδος"),
        ("", "", ""),
        (" \n ", "", ""),
    ],
)
def test_the_two_rules(text, google, multilingual):
    assert GOOGLE(text) == google
    assert MULTILINGUAL(text) == multilingual


def test_hangul_stays_composed():
    assert MULTILINGUAL("나는 밥을 먹었다") == "나는 밥을 먹었다"
    assert MULTILINGUAL(unicodedata.normalize("NFD", "나는 밥을 먹었다")) == "나는 밥을 먹었다"


def test_case_and_accents_are_choices():
    assert Normalization.named("multilingual")("Élan") == "Elan"
    assert Normalization.named("multilingual", strip_accents=False)("E\u0301lan") == "Élan"
    assert Normalization.named("google", lower=False)("Élan") == "Elan"
    assert Normalization.named("google", strip_accents=False)("Élan ½") == "élan ½"
    assert Normalization.named("none")(" Élan  x ") == " Élan  x "


@given(texts)
@settings(max_examples=200, deadline=None)
def test_multilingual_touches_marks_of_latin_letters_only(text):
    """Taking every accent off first and normalising then must differ in Latin letters alone."""
    kept = Normalization.named("multilingual", strip_accents=False)(text)
    stripped = Normalization.named("multilingual")(text)
    latin = {c for c in kept if unicodedata.name(c, "").startswith("LATIN ")}
    if not latin:
        assert stripped == kept
    assert not any(
        len(unicodedata.normalize("NFD", c)) > 1 and unicodedata.name(c, "").startswith("LATIN ") for c in stripped
    )


@given(texts, st.sampled_from([GOOGLE, MULTILINGUAL, Normalization.named("none")]))
@settings(max_examples=400, deadline=None)
def test_alignment_gives_the_same_text_and_ordered_stretches(text, normalization):
    aligned = normalization.align(text)
    assert aligned.text == normalization(text)
    assert len(aligned.starts) == len(aligned.ends) == len(aligned.text)
    for character, start, end in zip(aligned.text, aligned.starts, aligned.ends, strict=True):
        assert 0 <= start < end <= len(text)
        # What a stretch holds is enough to make the character (final sigma looks further).
        assert character.replace("ς", "σ") in normalization(text[start:end]).replace("ς", "σ") or character == " "
    assert aligned.starts.tolist() == sorted(aligned.starts)
    assert aligned.ends.tolist() == sorted(aligned.ends)


def test_alignment_by_example():
    text = "Cafe\u0301  ½ 한"
    aligned = GOOGLE.align(text)
    spans = [text[a:b] for a, b in zip(aligned.starts, aligned.ends, strict=True)]
    assert spans == ["C", "a", "f", "e\u0301", "  ", "½", "½", "½", " ", "한", "한", "한"]
    assert aligned.text == "cafe 1⁄2 " + unicodedata.normalize("NFD", "한")


def test_half_a_surrogate_pair_is_replaced_everywhere():
    for rule in ("google", "multilingual", "none"):
        normalization = Normalization.named(rule)
        assert normalization("a\ud800b") == "a\ufffdb"
        assert normalization.align("a\ud800b").text == "a\ufffdb"


@given(st.text(st.sampled_from(" \t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u3000ab\u200b\u00ad"), max_size=12))
def test_whitespace_is_what_python_calls_whitespace(text):
    assert collapse_whitespace(text) == " ".join(text.split())


# Marks of several classes, characters that are made of marks alone (by one of the two decompositions, or both), and
# letters that end a run.
MARKS = "\u0301\u0327\u0344\u0f71\u0f72\u0f73\u0f81\uff9e\u3099\U0001e944\U0001d165aéかｶ한क"


@given(st.lists(st.tuples(st.sampled_from(MARKS), st.integers(1, 60)), min_size=1, max_size=40), st.integers(1, 3))
@settings(deadline=None)
def test_runs_of_marks_are_brought_into_order_as_unicode_says(parts, times):
    text = "".join(character * count for character, count in parts) * times + "." * 4096
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert normal_form(form, text) == unicodedata.normalize(form, text)


def test_a_long_run_of_marks_takes_no_longer_than_other_text():
    """Python's own takes seconds for these, and minutes for the megabyte that a server may be sent."""
    began = time.perf_counter()
    assert GOOGLE("a" + "\u0301\u0327" * 40_000) == "a"
    assert MULTILINGUAL("a" + "\u0f73" * 40_000) == "a" + "\u0f71" * 40_000 + "\u0f72" * 40_000
    assert time.perf_counter() - began < 2


def test_unknown_rules_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'google'"):
        Normalization.named("gogle")
    with pytest.raises(ConfigError, match="changes nothing"):
        Normalization.named("none", lower=True)
