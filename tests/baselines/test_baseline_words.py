"""Words of any script, and when characters are counted too."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.text.lexical import choose_analysis, split_words, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, it's 3.5!", ["don't", "stop", ",", "it's", "3", ".", "5", "!"]),
        ("走吧, go", ["走", "吧", ",", "go"]),
        ("これはペンです", list("これはペンです")),
        ("이 영화 정말 재밌다", ["이", "영화", "정말", "재밌다"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ꯃꯤꯇꯩ می\u200cخواهم", ["ꯃꯤꯇꯩ", "می\u200cخواهم"]),
        ("abc中文def", ["abc", "中", "文", "def"]),
        ("  \n ", []),
    ],
)
def test_words(text, words):
    assert split_words(text) == words


@given(st.text())
def test_spans_cover_all_but_white_space(text):
    spans = word_spans(text)
    assert all(begin < end for begin, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    covered = {place for begin, end in spans for place in range(begin, end)}
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)


@pytest.mark.parametrize(
    ("text", "characters", "said"),
    [
        ("a plain film", False, "words"),
        ("이 영화 good", True, "Korean"),
        ("这部电影很好 good", True, "without spaces"),
        ("映画はとても良い", True, "without spaces"),
        ("a story of 서울 and more words than that", False, "words"),
        ("", False, "words"),
    ],
)
def test_the_script_decides(text, characters, said):
    analysis = choose_analysis([text])
    assert analysis.characters == characters
    assert said in analysis.what
