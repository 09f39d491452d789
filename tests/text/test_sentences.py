"""Sentence splitting, against gold sets written by people and against what must hold for any text."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import InputError
from litebert.text import sentences
from litebert.text.sentences import sentence_spans, split_sentences

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "sentence_splitting.py"))
GOLD = Path(__file__).parent / "gold"


@pytest.mark.parametrize("language", ["en", "ko", "zh", "ja"])
def test_boundaries_agree_with_the_gold_set(language):
    paragraphs = BENCHMARK["read_gold"](GOLD / f"{language}.txt")
    assert sum(len(paragraph.ends) for paragraph in paragraphs) >= 200
    assert {paragraph.part for paragraph in paragraphs} == {"tuning", "held out"}
    for part in ("tuning", "held out"):
        score = BENCHMARK["score"]([paragraph for paragraph in paragraphs if paragraph.part == part], sentence_spans)
        assert score.f1 >= 0.97, f"{language} {part}: {score}\n" + "\n".join(score.wrong)


def test_the_score_counts_extra_and_missed_boundaries():
    paragraph = BENCHMARK["Paragraph"]("tuning", "tuning: x", "A b. C d. E f.", frozenset({4}))
    score = BENCHMARK["score"]([paragraph], lambda text: [(0, 9), (10, 14)])
    assert score[:3] == (0, 1, 1)
    assert score.wrong == ["tuning: x: missed A b.| C d. E f.", "tuning: x: extra A b. C d.| E f."]
    assert BENCHMARK["score"]([paragraph], lambda text: [(0, 4), (5, 14)]).f1 == 1


# One line per rule; "|" marks a boundary and is not part of the text.
RULES = {
    "titles": "Mr. Pym met Dr. Ito.| MRS. GREY did not.",
    "names that may end a sentence": "The U.S. Army left the U.S.| It never came back.| Pike Ltd. (1927) grew.",
    "numbers": "It costs $3.50 in v2.1.| See No. 5, Vol. IV, p. 12.| No.| I won't.",
    "initials": "J. R. R. Tolkien and George W. Bush took vitamin C.| It helped neither.| So did I.| Peter too.",
    "a small letter goes on": "Yahoo! is old.| Wait... what?| iPhone sales fell.",
    "who says it": '"Where?" Anna Weber asked.| "Stop!" he cried.| "Never."| The crowd roared.',
    "list items": "1. Open it.| 2. Close it, etc.| 3. Go.",
    "brackets": "He left (it was late).| (See Fig. 3.)| We stayed.",
    "footnote marks": "It burned in 1804.[12]| It was rebuilt.",
    "no space": "It burned in 1804.|The town moved.",
    "addresses": "Ask help@example.org or see www.example.org/a.b?c=D.e now.| Thanks.",
    "ellipsis": "The end...| The rest is lost.| On and on . . . and on.",
    "Korean endings": "갔다.| 왔어요!| 정말일까?| 3.1 운동은 2023. 5. 12. 서울에서 기념했다.| 끝.",
    "Korean quotes": '그는 "간다. 꼭 간다."라고 했다.| "왜?" 하고 물었다.| "네."| "가자!" 그가 외쳤다.',
    "Korean without spaces": "비가 왔다.|그래도 갔어요.|초.중.고는 쉬었다.",
    "Chinese": "他走了。|“去哪儿？”她问。|没有人知道……也许他自己也不知道。|花了3.5元；不贵！",
    "Chinese quotes": "他写下“加油！”两个字。|他说：“我累了。|我要回家。”|门关了。",
    "Japanese": "「行くよ。」と彼は言った。|彼は「疲れた。もう帰る。」とつぶやいた。|本当？！|でも、行った。",
    "titles of works": "《누구세요? 2》는 속편이다.| 续集《你是谁？》上映了。",
    "Latin in CJK": "W. 洛克写了config.yaml。|설정은 있다.| timeout 값은 2이다.",
    "German": "Am 3. Oktober kam z. B. Dr. Müller.| „Ich gehe.“| Er ging.",
    "French": "« Oui. »| M. Dupont part !| Où va-t-il ?",
    "Spanish": "¿Está el Sr. Paz?| ¡No!| Vive en EE.UU. desde 1990.",
    "Russian": "Это было в XIX в.| Он ушёл.| — Да! — крикнул А. С. Пушкин.",
    "Hindi and Arabic": "यह एक वाक्य है।| ठीक है।| هل هذا سؤال؟| نعم.",
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule):
    marked = RULES[rule]
    assert split_sentences(marked.replace("|", "")) == [sentence.strip() for sentence in marked.split("|")]


def test_language_narrows_what_is_known():
    text = "Das ist der 2. Versuch. Er gelang."
    assert split_sentences(text, "de") == ["Das ist der 2. Versuch.", "Er gelang."]
    assert split_sentences(text, "en") == ["Das ist der 2.", "Versuch.", "Er gelang."]
    with pytest.raises(InputError, match=r"'autom' is not one of: auto, en, ko, .*did you mean 'auto'"):
        split_sentences(text, "autom")


@pytest.mark.parametrize("text", ["", " ", "\n\n \t\u3000"])
def test_white_space_holds_no_sentence(text):
    assert sentence_spans(text) == []


def test_a_blank_line_ends_a_sentence_and_a_line_break_does_not():
    assert split_sentences("A title\r\n\r\nOne line\nand the next.  \n \nThe end") == [
        "A title",
        "One line\nand the next.",
        "The end",
    ]


def test_lone_surrogates_are_text_like_any_other():
    assert split_sentences("On \ud800 up. To \udfff go. \udc00.") == ["On \ud800 up.", "To \udfff go.", "\udc00."]


# Text that meets the rules more often than st.text() does.
SIGNS = ".!?…。！？．।\"'“”‘’「」『』《》（）()[]«» \n\t-—,;:\u3000\x00\ud8001Aé"
WORDS = "... Mr No that Then iPod I U.S 1990 xxiv approx [1] 다 요 갔다 라고 하고 말했다 他 说 的 と 言った カ で Я"
PIECES = st.sampled_from([*SIGNS, *WORDS.split()])
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join))


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from(["auto", "en", "de", "ko"]))
def test_spans_restore_the_text(text, language):
    position = 0
    for begin, end in sentence_spans(text, language):
        assert not text[position:begin].strip()
        assert text[begin:end]
        assert text[begin:end] == text[begin:end].strip()
        position = end
    assert not text[position:].strip()


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_shortcuts_change_nothing(text):
    assert_shortcuts_change_nothing(text)


def test_shortcuts_change_nothing_in_the_gold_sets():
    for path in GOLD.glob("*.txt"):
        for paragraph in BENCHMARK["read_gold"](path):
            assert_shortcuts_change_nothing(paragraph.text)


def assert_shortcuts_change_nothing(text):
    rules = sentences.find_rules("auto")
    abbreviations = rules.never_end | rules.before_number | rules.ask_next
    plain = rules._replace(candidate=sentences.make_candidates(abbreviations, shortcuts=False))
    results = []
    for used in (rules, plain):
        spans: list[tuple[int, int]] = []
        sentences._split_paragraph(text.strip(), 0, len(text.strip()), used, spans)
        results.append(spans)
    assert results[0] == results[1]


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS)
def test_paragraphs_do_not_see_each_other(one, other):
    assert split_sentences(f"{one}\n\n{other}") == split_sentences(one) + split_sentences(other)


ADVERSARIES = {
    "dots and spaces": ". ",
    "initials": "J. ",
    "abbreviations": "Mr. ",
    "list labels": "1. ",
    "closing quotes": '."',
    "straight quotes never closed": '그는 "갔다. ',
    "quotes never closed": "「あ。",
    "quotes closed": "「あ。」",
    "nearly somebody who says it": "“好。”他他他他他他他他他他他他他他他他",
    "nearly an English one": '"Xx?" Aaaaaaaa Bbbbbbbbb Ccccccc ',
    "nearly a Korean one": '"네." 가나다 라마바 사아자 차카타 ',
    "footnote marks": ".[1]",
    "blank lines": ".\n\n",
    "line breaks": "\n ",
}


def count_steps(text: str) -> int:
    """How many calls, of Python functions and of built-in ones, a split makes."""
    steps = 0

    def count(frame, event, argument):
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        sentence_spans(text)
    finally:
        sys.setprofile(None)
    return steps


@pytest.mark.parametrize("name", ADVERSARIES)
def test_steps_grow_with_the_length_only(name):
    once, fourfold = (count_steps(ADVERSARIES[name] * size) for size in (500, 2000))
    assert fourfold <= 4 * once + 100


# No clock here: with anything quadratic inside, these would run for hours.
@pytest.mark.parametrize(
    ("text", "num_sentences"),
    [
        ("." * 100_000_000, 1),
        ("word " * 2_000_000, 1),
        ("x." + '"' * 1_000_000 + " Then.", 2),
        ("x." + "[1]" * 1_000_000 + " Then.", 2),
        ("“" * 1_000_000 + "x.", 1),
        ("\n" + " " * 1_000_000 + "x" + "\n " * 1_000_000, 1),
        ("x" * 5_000_000 + ". Then.", 2),
    ],
    ids=["dots", "no terminator", "quotes", "footnotes", "open quotes", "white space", "one word"],
)
def test_huge_inputs(text, num_sentences):
    assert len(sentence_spans(text)) == num_sentences
