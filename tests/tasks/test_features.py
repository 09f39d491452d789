"""Sequences against the facts: what BERT's loop cuts, RACE's rules, sliding windows, answers as token positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import english, wordpiece

from litebert.tasks.features import IGNORE, cut_pair, make_features, text_sequence
from litebert.tasks.kinds.multiple_choice import choice_sequences, fill_gap
from litebert.tasks.kinds.question_answering import question_windows
from litebert.tasks.kinds.token_classification import tag_windows
from litebert.tasks.read import named_tasks
from litebert.tasks.task import ChoiceExample, QuestionExample, TagExample, Task, TextExample, kind_of

WORDS = ["the", "quick", "brown", "fox", "jumped", "over", "lazy", "dogs", "running", "unwantable", "café", "!"]


def pieces(tokenizer, sequence):
    return [tokenizer.piece(int(number)) for number in sequence.ids]


# ---------------------------------------------------------------------------------------------------------------------
# Texts and pairs


@pytest.mark.parametrize("room", range(12))
def test_cut_pair_is_berts_loop(room):
    for first in range(14):
        for second in range(14):
            a, b = list(range(first)), list(range(second))
            while len(a) + len(b) > room:
                (a if len(a) > len(b) else b).pop()
            assert cut_pair(first, second, room) == (len(a), len(b))


def test_text_sequence_frames_one_text_and_a_pair():
    tokenizer = wordpiece()
    one = text_sequence(tokenizer, "the quick fox", None, 128)
    assert pieces(tokenizer, one) == ["[CLS]", "the", "quick", "fox", "[SEP]"]
    assert one.segments.tolist() == [0] * 5
    two = text_sequence(tokenizer, "the fox", "lazy dog", 128)
    assert pieces(tokenizer, two) == ["[CLS]", "the", "fox", "[SEP]", "lazy", "dog", "[SEP]"]
    assert two.segments.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert (one.cut, two.cut) == (0, 0)


def test_a_pair_loses_the_tail_of_its_longer_side():
    tokenizer = wordpiece()
    sequence = text_sequence(tokenizer, "the quick brown fox jumped", "a dog", 8)
    assert pieces(tokenizer, sequence) == ["[CLS]", "the", "quick", "brown", "[SEP]", "a", "dog", "[SEP]"]
    assert sequence.cut == 3  # fox, jump, ##ed


def test_an_empty_text_is_a_sequence_too():
    tokenizer = wordpiece()
    assert pieces(tokenizer, text_sequence(tokenizer, "", "", 16)) == ["[CLS]", "[SEP]", "[SEP]"]


@pytest.mark.parametrize("kind", ["classification", "regression", "multi-label"])
def test_a_whole_split_equals_its_single_texts(kind):
    tokenizer = english()
    texts = [("Anna slept.", None), ("Ben bought 1,000 apples in 2010, and was happy.", "A farmer slept"), ("", "x")]
    label = {"classification": 1, "regression": 2.5, "multi-label": (0, 2)}[kind]
    examples = [TextExample(str(i), a, b, label, f"f:{i}") for i, (a, b) in enumerate(texts)]
    task = Task("t", kind, labels=("a", "b", "c"), max_length=12)
    features = make_features(task, examples, tokenizer)
    for number, (sequence, (a, b)) in enumerate(zip(features, texts, strict=True)):
        alone = text_sequence(tokenizer, a, b, 12)
        assert sequence.ids.tolist() == alone.ids.tolist()
        assert sequence.segments.tolist() == alone.segments.tolist()
        assert (sequence.example, sequence.cut) == (number, alone.cut)
        wanted = [1.0, 0.0, 1.0] if kind == "multi-label" else label
        assert np.array_equal(sequence.target, wanted)


def test_an_unlabelled_text_has_no_target():
    examples = [TextExample("0", "the fox", None, None, "f:1")]
    assert make_features(Task("t", "classification", labels=("a", "b")), examples, wordpiece())[0].target is None


# ---------------------------------------------------------------------------------------------------------------------
# RACE


def test_the_option_replaces_the_gap_or_follows_the_question():
    assert fill_gap("He is _ .", r"old \1") == r"He is old \1 ."
    assert fill_gap("He ____ now", "runs") == "He runs now"
    assert fill_gap("_ and _", "so") == "so and so"
    assert fill_gap("Who is he?", "a fox") == "Who is he? a fox"
    assert fill_gap("", "a fox") == "a fox"


def test_choices_keep_the_tail_of_the_option_and_the_head_of_the_passage():
    tokenizer = wordpiece()
    passage = "the quick brown fox jumped over the lazy dog " * 4  # 40 pieces
    question = "hello world " * 5
    task = Task("t", "multiple-choice", max_length=20, max_option=6)
    one, two = choice_sequences(task, tokenizer, passage, question, ["a dog", "fox"])
    expected = ["world", "hello", "world", "hello", "world", "a", "dog"]
    assert pieces(tokenizer, one)[-7:-1] == expected[-6:]
    assert pieces(tokenizer, two)[-7:-1] == ["world", "hello", "world", "hello", "world", "fox"]
    for sequence in (one, two):
        assert len(sequence.ids) == 20
        assert pieces(tokenizer, sequence)[:6] == ["[CLS]", "the", "quick", "brown", "fox", "jump"]
        assert sequence.segments.tolist() == [0] * 13 + [1] * 7  # [CLS] 11 pieces [SEP] | 6 pieces [SEP]
    assert one.cut == 40 - 11 + 12 - 6


def test_at_512_the_option_has_128_tokens_and_the_passage_the_rest():
    tokenizer = wordpiece()
    sequence = choice_sequences(named_tasks()["race"], tokenizer, "the " * 600, "quick " * 200, ["fox"])[0]
    shown = pieces(tokenizer, sequence)
    assert len(shown) == 512
    assert shown[1:382] == ["the"] * 381
    assert shown[382:] == ["[SEP]", *["quick"] * 127, "fox", "[SEP]"]


def test_choice_features_lie_option_by_option():
    tokenizer = wordpiece()
    examples = [
        ChoiceExample("q1", "the fox", "who _ ?", ("runs", "jumped"), 1, "f:1"),
        ChoiceExample("q2", "the fox", "the dog", ("a", "the"), None, "f:2"),
    ]
    task = Task("t", "multiple-choice", num_choices=2, max_length=32)
    features = make_features(task, examples, tokenizer)
    assert [(f.example, f.target) for f in features] == [(0, 1), (0, 1), (1, None), (1, None)]
    alone = [s for e in examples for s in choice_sequences(task, tokenizer, e.passage, e.question, e.options)]
    assert [f.ids.tolist() for f in features] == [s.ids.tolist() for s in alone]


# ---------------------------------------------------------------------------------------------------------------------
# Tags


def test_a_word_is_tagged_at_its_first_piece():
    tokenizer = wordpiece()
    examples = [TagExample("0", ("the", "foxes", "jumped"), (0, 1, 2), "f:1")]
    (sequence,) = make_features(Task("t", "token-classification", labels=("O", "B-A", "I-A")), examples, tokenizer)
    assert pieces(tokenizer, sequence) == ["[CLS]", "the", "fox", "##es", "jump", "##ed", "[SEP]"]
    assert sequence.words.tolist() == [-1, 0, 1, -1, 2, -1, -1]
    assert sequence.target.tolist() == [IGNORE, 0, 1, IGNORE, 2, IGNORE, IGNORE]
    assert sequence.offsets.tolist() == [[0, 0], [0, 3], [4, 7], [7, 9], [10, 14], [14, 16], [0, 0]]


def test_a_lone_space_piece_does_not_take_the_place_of_its_word():
    tokenizer = english()
    (sequence,) = tag_windows(tokenizer, ["Anna", "쀍", "slept"], 32)  # unknown to the vocabulary: "▁" and <unk>
    for word, text in enumerate(["Anna", "쀍", "slept"]):
        start, end = sequence.offsets[list(sequence.words).index(word)]
        assert end > start
        assert "Anna 쀍 slept"[start] == text[0]


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40), st.integers(8, 20))
@settings(max_examples=60)
def test_windows_of_tags_decide_every_word_once(words, max_length):
    windows = tag_windows(wordpiece(), words, max_length)
    assert all(len(window.ids) <= max_length for window in windows)
    decided = [int(word) for window in windows for word in window.words if word >= 0]
    assert sorted(decided) == list(range(len(words)))


# ---------------------------------------------------------------------------------------------------------------------
# Question answering


def slow_windows(num_tokens, room, stride):
    """BERT's published loop."""
    spans, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, room)
        spans.append((start, length))
        if start + length == num_tokens:
            break
        start += min(length, stride)
    return spans


def slow_owner(spans, token):
    """BERT's rule: most context on the poorer side, plus a hundredth of the length; the first of equals."""
    scores = []
    for start, length in spans:
        end = start + length - 1
        scores.append(min(token - start, end - token) + 0.01 * length if start <= token <= end else -1)
    return scores.index(max(scores))


@given(st.integers(1, 60), st.integers(12, 30), st.integers(1, 20), st.integers(0, 12))
@settings(max_examples=100)
def test_windows_slide_as_in_bert(num_words, max_length, stride, question_words):
    tokenizer = wordpiece()
    context = " ".join(WORDS[i % 4] for i in range(num_words))  # one piece per word
    task = Task("t", "question-answering", max_length=max_length, stride=stride, max_question=5)
    windows = question_windows(task, tokenizer, "hello " * question_words, context)
    question = min(question_words, 5, (max_length - 3) // 2)
    spans = slow_windows(num_words, max_length - question - 3, stride)
    assert len(windows) == len(spans)
    for number, (window, (start, length)) in enumerate(zip(windows, spans, strict=True)):
        shown = context.split()[start : start + length]
        assert pieces(tokenizer, window) == ["[CLS]", *["hello"] * question, "[SEP]", *shown, "[SEP]"]
        assert window.segments.tolist() == [0] * (question + 2) + [1] * (length + 1)
        assert window.inside.tolist() == [False] * (question + 2) + [True] * length + [False]
        owners = [slow_owner(spans, token) == number for token in range(start, start + length)]
        assert window.max_context.tolist() == [False] * (question + 2) + owners + [False]
        assert [context[a:b] for a, b in window.offsets[window.inside]] == shown


def question(context, answer, start, impossible=False):
    answers, starts = ((), ()) if impossible else ((answer,), (start,))
    return QuestionExample("q", "who?", context, answers, starts, impossible, "f:1")


@given(st.lists(st.sampled_from(WORDS), min_size=4, max_size=40), st.data())
@settings(max_examples=60)
def test_an_answer_is_found_again_from_its_token_positions(words, data):
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, min(first + 4, len(words) - 1)))
    context = " ".join(words)
    answer, start = " ".join(words[first : last + 1]), len(" ".join(words[:first])) + (first > 0)
    task = Task("t", "question-answering", max_length=24, stride=6)
    windows = make_features(task, [question(context, answer, start)], wordpiece())
    hits = 0
    for window in windows:
        begin, end, impossible = window.target
        tokens = window.offsets[window.inside]
        holds = len(tokens) and tokens[0][0] <= start and tokens[-1][1] >= start + len(answer)
        assert impossible == (not holds)
        if impossible:
            assert (begin, end) == (0, 0)
        else:
            hits += 1
            assert context[window.offsets[begin, 0] : window.offsets[end, 1]] == answer
            assert window.inside[begin]
            assert window.inside[end]
    assert hits or len(windows) > 1


@given(st.integers(1, 200), st.integers(8, 130), st.integers(0, 80), st.integers(1, 40), st.data())
@settings(max_examples=200)
def test_every_answer_that_fits_is_whole_in_some_window(num_words, max_length, question_words, max_answer, data):
    """Whatever the lengths: as long as decoding could find it, and as a window has room for."""
    task = Task("t", "question-answering", max_length=max_length, max_answer=max_answer)
    room = max_length - 3 - min(question_words, task.max_question, (max_length - 3) // 2)
    size = data.draw(st.integers(1, min(num_words, room, max_answer)))
    first = data.draw(st.integers(0, num_words - size))
    words = [WORDS[i % 4] for i in range(num_words)]  # one piece per word
    start = sum(len(word) + 1 for word in words[:first])
    answer = " ".join(words[first : first + size])
    asked = QuestionExample("q", "hello " * question_words, " ".join(words), (answer,), (start,), False, "f:1")
    assert any(not window.target[2] for window in make_features(task, [asked], wordpiece()))


def test_windows_move_by_what_is_set_or_by_as_much_as_answers_allow():
    context, ask = " ".join(["fox"] * 400), question("fox", "fox", 0)
    for task, expected in [
        (Task("t", "question-answering", max_length=384), 128),  # the paper's
        (Task("t", "question-answering", max_length=128), 128 - 3 - 2 - 29),  # 2: "who?"
        (Task("t", "question-answering", max_length=128, stride=128), 128 - 3 - 2),  # an old folder's: no overlap
        (Task("t", "question-answering", max_length=384, stride=50), 50),
    ]:
        _, second, *_ = make_features(task, [replace(ask, context=context)], wordpiece())
        assert second.offsets[second.inside][0][0] == len("fox ") * expected


def test_answers_that_no_window_holds_are_counted():
    words = ["fox"] * 60
    long, short = question(" ".join(words), " ".join(words[:40]), 0), question(" ".join(words), "fox", 0)
    task = Task("t", "question-answering", max_length=32)
    features = make_features(task, [long, short], wordpiece())
    (note,) = kind_of(task).notes(task, [long, short], features)
    assert note == '1 of 2 answers fit in no window and count as "no answer" (max_length, stride)'
    assert kind_of(task).notes(task, [short], make_features(task, [short], wordpiece())) == []


def test_an_answer_inside_a_piece_takes_the_whole_piece():
    task = Task("t", "question-answering", max_length=32)
    (window,) = make_features(task, [question("the foxes run", "oxe", 5)], wordpiece())
    begin, end, _ = window.target
    assert "the foxes run"[window.offsets[begin, 0] : window.offsets[end, 1]] == "foxes"


def test_impossible_and_unlabelled_questions():
    task = Task("t", "question-answering", max_length=32)
    unlabelled = QuestionExample("q", "who?", "the fox", (), (), False, "f:1")
    no, unknown = make_features(task, [question("the fox", "", 0, impossible=True), unlabelled], wordpiece())
    assert no.target == (0, 0, True)
    assert unknown.target is None


def test_a_context_is_tokenised_once_for_all_of_its_questions(monkeypatch):
    tokenizer = wordpiece()
    seen = []
    plain = type(tokenizer).encode_arrays
    monkeypatch.setattr(type(tokenizer), "encode_arrays", lambda self, text: seen.append(text) or plain(self, text))
    examples = [question("the fox", "fox", 4)] * 5 + [question("a dog", "dog", 2)] * 3
    assert len(make_features(Task("t", "question-answering"), examples, tokenizer)) == 8
    assert seen == ["the fox", "a dog"]
