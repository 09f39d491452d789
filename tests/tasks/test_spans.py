"""Span decoding against a search that looks at everything, for both heads."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabularies import wordpiece

from litebert.tasks.kinds.question_answering import question_windows
from litebert.tasks.spans import Answers, Span, best_spans
from litebert.tasks.task import Task

WORDS = ["the", "fox", "the", "dogs", "running"]  # repeated: the same text in several places


def brute_force(windows, scored, context, n_best):
    """Every pair of tokens of every window, one by one; `scored(number, start, end)` is its score or None."""
    best = {}
    for number, window in enumerate(windows):
        for start in range(len(window.ids)):
            for end in range(len(window.ids)):
                score = scored(number, start, end)
                if score is None or not (window.inside[start] and window.inside[end] and window.max_context[start]):
                    continue
                first, last = int(window.offsets[start, 0]), int(window.offsets[end, 1])
                key = (-score, first, last)
                text = context[first:last]
                best[text] = min(best.get(text, key), key)
    ranked = sorted((key, text) for text, key in best.items())[:n_best]
    return [(text, first, last, -score) for (score, first, last), text in ranked]


@st.composite
def cases(draw):
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
    context = " ".join(words)
    task = Task("t", "question-answering", max_length=draw(st.integers(8, 16)), stride=draw(st.integers(1, 6)))
    windows = question_windows(task, wordpiece(), "a", context)
    seed, digits = draw(st.integers(0, 99)), draw(st.integers(0, 3))  # few digits: many equal scores
    return windows, context, np.random.default_rng(seed), digits, draw(st.integers(1, 8)), draw(st.integers(1, 25))


@given(cases())
@settings(max_examples=150)
def test_the_span_head_against_brute_force(case):
    windows, context, random, digits, max_answer, n_best = case
    outputs = [
        {name: random.normal(size=len(window.ids)).round(digits).astype(np.float32) for name in ("start", "end")}
        for window in windows
    ]

    def scored(number, start, end):
        if not start <= end < start + max_answer:
            return None
        return float(outputs[number]["start"][start]) + float(outputs[number]["end"][end])

    answers = best_spans(windows, outputs, context, n_best, max_answer)
    expected = brute_force(windows, scored, context, n_best)
    assert [(span.text, span.start, span.end, span.score) for span in answers.spans] == expected
    null = min(float(output["start"][0] + output["end"][0]) for output in outputs)
    assert answers.no_answer == pytest.approx(null - (expected[0][3] if expected else 0.0))


@given(cases())
@settings(max_examples=150)
def test_the_answer_head_against_brute_force(case):
    windows, context, random, digits, max_answer, n_best = case
    outputs, tables = [], []
    for window in windows:
        starts = random.choice(len(window.ids) + 2, size=5, replace=False)  # a padded batch may point behind the end
        ends = np.stack([random.choice(len(window.ids) + 2, size=5, replace=False) for _ in starts], axis=1)
        start_log_prob = -random.random(5).round(digits).astype(np.float32)
        end_log_prob = -random.random((5, 5)).round(digits).astype(np.float32)
        outputs.append(
            {
                "start_index": starts,
                "start_log_prob": start_log_prob,
                "end_index": ends,
                "end_log_prob": end_log_prob,
                "answerable": np.float32(random.normal()),
            }
        )
        tables.append(
            {
                (int(start), int(ends[j, k])): float(start_log_prob[k]) + float(end_log_prob[j, k])
                for k, start in enumerate(starts)
                for j in range(5)
            }
        )

    def scored(number, start, end):
        return tables[number].get((start, end)) if start <= end < start + max_answer else None

    answers = best_spans(windows, outputs, context, n_best, max_answer)
    found = [(span.text, span.start, span.end, span.score) for span in answers.spans]
    assert found == brute_force(windows, scored, context, n_best)
    assert answers.no_answer == min(float(output["answerable"]) for output in outputs)


def test_the_twenty_best_of_at_most_thirty_tokens_unless_told_otherwise():
    """As the released scripts: n_best_size 20, max_answer_length 30."""
    context = " ".join(chr(ord("a") + i % 26) * (1 + i // 26) for i in range(40))
    (window,) = question_windows(Task("t", "question-answering", max_length=384), wordpiece(), "a", context)
    places = np.flatnonzero(window.inside)
    start, end = (np.full(len(window.ids), -5.0, np.float32) for _ in range(2))
    start[places[0]] = end[places[29]] = 0.0
    end[places[30]] = 1.0  # one token too far
    answers = best_spans([window], [{"start": start, "end": end}], context)
    assert len(answers.spans) == 20
    assert (answers.spans[0].start, answers.spans[0].end) == (0, int(window.offsets[places[29], 1]))


def test_answers_and_their_threshold():
    answers = Answers((Span("Rome", 3, 7, 2.0), Span("In Rome", 0, 7, 1.0)), no_answer=0.5)
    spans, no_answer, _ = answers
    assert (spans[0].text, no_answer) == ("Rome", 0.5)
    assert answers.best() == "Rome"
    assert answers.best(0.5) == "Rome"
    assert answers.best(0.4) == ""
    assert answers.probabilities() == pytest.approx([np.e / (np.e + 1), 1 / (np.e + 1)])
    assert Answers((), 0.0).best() == ""


def test_a_book_takes_no_memory_for_its_pairs():
    task = Task("t", "question-answering", max_length=128, stride=64)
    windows = question_windows(task, wordpiece(), "a", "the fox running dogs " * 5000)
    random = np.random.default_rng(0)
    outputs = [{name: random.normal(size=len(window.ids)) for name in ("start", "end")} for window in windows]
    tracemalloc.start()
    best_spans(windows, outputs, "the fox running dogs " * 5000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < sum(len(window.ids) for window in windows) * 30 * 8 / 10  # a tenth of the scores of all pairs
