"""Small vocabularies for the tests, trained on text written here; each is trained once per test process."""

from __future__ import annotations

import functools
import io
import itertools
import tempfile
from pathlib import Path

import sentencepiece

from litebert.text.normalize import Normalization
from litebert.text.spiece import SentencePieceTokenizer
from litebert.text.train_vocab import VocabConfig, train_vocab
from litebert.text.wordpiece import BasicRule, WordPieceTokenizer

PEOPLE = ["Anna", "Ben", "The teacher", "Her brother", "Zoë", "A farmer"]
ACTIONS = ["bought 1,000 apples", "read the old book (twice)", "walked to the café", 'said "good morning"', "slept"]
TIMES = ["in 2010,", "in 1999,", "on Monday", "before 3.5 hours were over", "for £5 – no more –"]
ENDINGS = ["and was happy.", "but it didn't help.", "while the rain fell.", "and the well-known song ended!"]


def _with_words_alone(lines: list[str], separator: str = " ") -> list[str]:
    """And each word once with something else after it: older SentencePieces never make a piece of a word otherwise."""
    words = dict.fromkeys(word for line in lines for word in line.split(separator))
    return [*lines, *words, *(f"{word}!" for word in words)]


# Rare words, from which newer SentencePieces, which find fewer pieces, make up the number.
RARE = """garden window kitchen mountain river summer winter letter paper question answer number village island station
    bridge market doctor farmer sailor painter singer writer runner corner dinner hammer ladder rabbit butter pepper
    yellow purple orange silver golden simple little middle bottle castle needle candle table apple people
    evening morning feeling meeting reading writing singing walking talking waiting nothing""".split()

ENGLISH = _with_words_alone(
    [*(" ".join(parts) for parts in itertools.product(PEOPLE, ACTIONS, TIMES, ENDINGS)), " ".join(RARE)]
)

SUBJECTS = ["나", "그", "저", "우리", "친구", "선생님", "아이"]
PLACES = ["식당", "학교", "서울", "시장", "도서관", "회사", "병원", "공원", "바다", "집"]
THINGS = ["밥", "책", "물", "지도", "선물", "사과", "편지", "그림"]
VERBS = ["먹었다", "읽었다", "보았다", "샀다", "마셨다", "받았다", "찾았다"]


def _josa(word: str, after_consonant: str, after_vowel: str) -> str:
    return word + (after_consonant if (ord(word[-1]) - 0xAC00) % 28 else after_vowel)


KOREAN = _with_words_alone(
    [
        f"{_josa(who, '은', '는')} 오늘 {place}에 가서 {_josa(thing, '을', '를')} {verb}."
        f" {place}에서는 {_josa(thing, '이', '가')} 좋다."
        for i, (who, place, thing, verb) in enumerate(itertools.product(SUBJECTS, PLACES, THINGS, VERBS))
        if i % 3 == 0
    ]
    + [" ".join(words) for words in (SUBJECTS, PLACES, THINGS, VERBS)]
)
CHINESE = [
    f"{who}{when}在{place}{what}。"
    for who, when, place, what in itertools.product(
        ["我", "你", "老师", "他的朋友"],
        ["今天", "昨天", "每天早上"],
        ["北京", "学校", "图书馆"],
        ["吃饭", "看书", "写信"],
    )
]


JAPANESE = [
    f"{who}は{when}{place}で{what}。"
    for who, when, place, what in itertools.product(
        ["私", "友だち", "先生", "あの人"],
        ["今日", "昨日", "毎朝"],
        ["東京", "学校", "カフェ"],
        ["ご飯を食べます", "本を読みました", "手紙を書きます"],
    )
]


def train_on(lines: list[str], config: VocabConfig) -> SentencePieceTokenizer:
    """A vocabulary trained on some lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return train_vocab([path], config).tokenizer


def train_spiece(lines: list[str], **options: object) -> bytes:
    """A model file with ALBERT's special pieces, made by sentencepiece itself."""
    model = io.BytesIO()
    specials = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, **{**specials, **options}
    )
    return model.getvalue()


@functools.cache
def english() -> SentencePieceTokenizer:
    """As the released vocabulary: `google` normalisation, with pieces such as "▁2010,"."""
    return train_on(ENGLISH, VocabConfig(vocab_size=130, normalization=Normalization.named("google")))


@functools.cache
def mixed() -> SentencePieceTokenizer:
    """English, Korean and Chinese, cased, normalised by the multilingual rule."""
    return train_on(ENGLISH + KOREAN + CHINESE, VocabConfig(vocab_size=300, character_coverage=1.0))


@functools.cache
def korean() -> SentencePieceTokenizer:
    """Korean alone."""
    return train_on(KOREAN, VocabConfig(vocab_size=100, character_coverage=1.0))


@functools.cache
def chinese() -> SentencePieceTokenizer:
    """Chinese alone."""
    return train_on(CHINESE, VocabConfig(vocab_size=70, character_coverage=1.0))


@functools.cache
def japanese() -> SentencePieceTokenizer:
    """Japanese alone."""
    return train_on(JAPANESE, VocabConfig(vocab_size=70, character_coverage=1.0))


# fmt: off
WORDPIECES = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "brown", "fox", "##es", "jump", "##ed", "##s", "over",
    "lazy", "dog", "un", "##want", "##able", "run", "##ning", "caf", "##e", ",", ".", "!", "'", '"', "-", "(", ")", "$",
    "2", "##0", "##1", "20", "中", "国", "人", "##国", "日本", "나", "##는", "ᄂ", "##ᅡ", "οδος", "hello", "world",
    "a", "##b",
]
# fmt: on


@functools.cache
def wordpiece(lower: bool = True) -> WordPieceTokenizer:
    """A BERT vocabulary written by hand."""
    pieces = WORDPIECES if lower else [*WORDPIECES, "Hello", "World"]
    return WordPieceTokenizer(pieces, BasicRule(lower=lower, strip_accents=lower))
