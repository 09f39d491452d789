"""Question answering: the span of a context that answers a question, or no answer (SQuAD 1.1 and 2.0).

[CLS] question [SEP] a window of the context [SEP]; `litebert.tasks.spans` finds answers in the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litebert.parse import parse_json
from litebert.tasks.decode import Outputs, Prediction
from litebert.tasks.features import (
    IGNORE,
    Arrays,
    Feature,
    Ids,
    Places,
    best_windows,
    cut_windows,
    pad_offsets,
    stride_for,
)
from litebert.tasks.kinds.kind import Constant, Forward, Fragment, Kind, Line, Losses, Targets, row_logsumexp, to_json
from litebert.tasks.metrics import Measure, share
from litebert.tasks.own import Cells, Column, Columns, Reader
from litebert.tasks.spans import FIXED_THRESHOLD, Answers, average_answers, best_spans, best_threshold
from litebert.tasks.squad import Repairs, is_squad, make_question, parse_answers, score_answer, squad_table, trainable
from litebert.tasks.tables import Table, format_of, number_cell, read_text, text_cell, truth_cell
from litebert.tasks.task import QuestionExample, Task
from litebert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

FIRST_WORDS = 3  # of the context: the constant answer to every question
NEAR = 160  # characters that a table of errors shows on each side of an answer


class QuestionReader(Reader[QuestionExample]):
    """Reads answers by text, with or without their start; misplaced answers are moved and counted."""

    def __init__(self, kind: Kind[Any], roles: Columns, known: Task | None, first: Table, notes: list[str]):
        super().__init__(kind, roles, known, first, notes)
        self.repairs = Repairs()

    def example(self, cells: Cells, id: str, where: str) -> QuestionExample:
        answers = parse_answers(cells.get("answers", [None])[0], where)
        if len(answers) == 1 and "start" in cells and cells["start"][0] not in (None, ""):
            answers = [(answers[0][0], int(number_cell(cells["start"][0], where, self.roles["start"][0])))]
        impossible = "answers" in cells and not answers
        if "impossible" in cells:  # this column decides; without it, an empty answer means "no answer"
            impossible = truth_cell(cells["impossible"][0], where, self.roles["impossible"][0])
        answers = [] if impossible else answers
        question, context = (text_cell(cells[role][0], where) for role in ("question", "context"))
        return make_question(id, question, context, answers, impossible, where, self.repairs)

    def settings(self, train: Sequence[QuestionExample]) -> dict[str, Any]:
        """Questions without an answer need the answer head."""
        return {"answerable_head": any(example.impossible for example in train)}

    def trainable(self, train: list[QuestionExample]) -> list[QuestionExample]:
        return trainable(train, self.notes)

    def late_notes(self) -> list[str]:
        return self.repairs.notes()


class QuestionAnswering(Kind[QuestionExample]):
    """Start and end tokens in the context; with the answer head, also whether there is an answer."""

    name = "question-answering"
    aliases = ("qa", "questionanswer", "questions", "mrc", "extractiveqa")
    says = "text"
    columns = (
        Column("question", "question query 질문 문제 问题 問題 提问"),
        Column("context", "context passage paragraph document article text 지문 본문 문맥 문단 上下文 文章 段落 原文"),
        Column("answers", "answers answer answertext 정답 답변 답 答案 回答", predicted=True),
        Column("start", "answerstart start 시작 起始", required=False, predicted=True),
        Column("impossible", "isimpossible impossible unanswerable", required=False, predicted=True),
    )
    reader = QuestionReader
    metrics = ("f1", "exact_match")
    max_length = 384
    unit = "Windows"
    counts_right = False
    pipeline = "question-answering"

    def open_table(self, path: Path | str, columns: Mapping[str, str], encoding: str) -> Table:
        if format_of(str(path)) == "json":
            data = parse_json(read_text(path, encoding), str(path))
            if is_squad(data):
                return squad_table(str(path), data)
        return super().open_table(path, columns, encoding)

    def head(self, task: Task) -> str:
        """The span head, or the answer head of SQuAD 2.0."""
        return "answer" if task.answerable_head else "span"

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        return head in ("span", "answer")

    def infer(self, head: str, labels: tuple[str, ...], max_length: int) -> Task:
        length = min(self.max_length, max_length)
        return Task(self.name, self.name, max_length=length, answerable_head=head == "answer")

    def features(
        self, task: Task, examples: Sequence[QuestionExample], tokenizer: Tokenizer, num_threads: int = 1
    ) -> list[Feature]:
        """One or more windows per question; each context is tokenised once."""
        questions = tokenizer.encode_batch([example.question for example in examples], num_threads)
        contexts: dict[str, Context] = {}
        features = []
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            context = contexts.get(example.context)
            if context is None:
                context = contexts[example.context] = Context(tokenizer, example.context)
            answer = None
            labelled = example.impossible
            for text, start in zip(example.answers, example.starts, strict=True):
                if start >= 0 and text and not example.impossible:
                    answer = context.tokens_of(start, start + len(text))
                    labelled = True
                    break
            features += _windows(task, tokenizer, question, context, number, answer, labelled)
        return features

    def notes(self, task: Task, examples: Sequence[QuestionExample], features: Sequence[Feature]) -> list[str]:
        """Answers that fit in no window are trained as "no answer"."""
        answered = {number for number, e in enumerate(examples) if not e.impossible and max(e.starts, default=-1) >= 0}
        whole = {window.example for window in features if isinstance(window.target, tuple) and not window.target[2]}
        if not (lost := len(answered - whole)):
            return []
        note = f'{lost:,} of {len(answered):,} answers fit in no window and count as "no answer" (max_length, stride)'
        return [note]

    def inputs(self, task: Task, sequences: Sequence[Feature], places: Places) -> Arrays:
        """The answer head needs to know which tokens are excluded."""
        if not task.answerable_head:
            return {}
        return {"outside": places.per_token(sequences, lambda sequence: sequence.outside, rest=1)}

    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """Start and end in each window [N], its offset in the flat view, and whether it has no answer."""
        targets: list[Any] = [sequence.target for sequence in sequences]
        made = {"start": places.per_row([t[0] for t in targets]), "end": places.per_row([t[1] for t in targets])}
        made["first"] = places.per_row(places.first, 0)
        made["impossible"] = places.per_row([float(t[2]) for t in targets], 0.0, np.float32)
        made["used"] = places.per_row(np.ones(len(targets)), 0.0, np.float32)
        return made, len(targets)

    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        if head == "answer":
            # In training the end is conditioned on the gold start; unused rows take their first token.
            return _answer_loss(forward(start_positions=targets["start"].clamp(min=0)), targets)
        start, end = (logits.float().flatten() for logits in forward()[:2])
        return _span_loss(start, end, targets, num_rows)

    def predict(
        self, task: Task, example: QuestionExample, windows: Sequence[Feature], outputs: Sequence[Outputs]
    ) -> Prediction:
        limits = window_thresholds(task, outputs)
        return _best(task, best_spans(windows, outputs, example.context, max_answer=task.max_answer, thresholds=limits))

    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        return _best(task, average_answers(_answers(votes))._replace(threshold=task.null_threshold))

    def tune(
        self, task: Task, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> tuple[Task, list[Prediction]]:
        """Tune the no-answer threshold for F1, as the authors do."""
        if not task.answerable_head:
            return task, list(predictions)
        threshold, _ = best_threshold(examples, _answers(predictions))
        return replace(task, null_threshold=threshold), self.at_threshold(predictions, threshold)

    def thresholds(
        self, task: Task, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        if not task.answerable_head:
            return {}
        answers = _answers(predictions)
        tuned = {}
        if task.null_threshold != FIXED_THRESHOLD or task.exit_thresholds:
            used = {each.threshold for each in answers}
            tuned["tuned"] = used.pop() if len(used) == 1 else task.null_threshold  # several: of several exits
        return {"fixed": FIXED_THRESHOLD, **tuned, "best": best_threshold(examples, answers)[0]}

    def at_threshold(self, predictions: Sequence[Prediction], threshold: float) -> list[Prediction]:
        return [
            replace(p, value=p.answers.best(threshold), answers=p.answers._replace(threshold=threshold))
            if p.answers is not None
            else p
            for p in predictions
        ]

    def measures(self, task: Task, examples: Sequence[QuestionExample], values: Sequence[Any]) -> dict[str, Measure]:
        """SQuAD's scores; if some questions have no answer, also separately."""
        scores = np.array([score_answer(v, q.answers) for q, v in zip(examples, values, strict=True)])  # [N, 2]
        exact, f1 = scores.T
        measures = {"f1": share(f1), "exact_match": share(exact)}
        impossible = np.array([question.impossible for question in examples])
        if impossible.any():
            measures["answerable_f1"] = share(f1, ~impossible)
            measures["answerable_exact_match"] = share(exact, ~impossible)
            measures["unanswerable_accuracy"] = share(exact, impossible)
        return measures

    def constant(self, task: Task, train: Sequence[QuestionExample], examples: Sequence[QuestionExample]) -> Constant:
        """No text answers all questions; if training has questions without an answer, the constant is "no answer"."""
        if task.answerable_head or any(example.impossible for example in train):
            return "never an answer", [""] * len(examples)
        return "the first words of the text", [" ".join(q.context.split()[:FIRST_WORDS]) for q in examples]

    def call(self, task: Task) -> str:
        return 'answer("a question?", "a text that answers it")'

    def submission(
        self, task: Task, examples: Sequence[QuestionExample], predictions: Sequence[Prediction]
    ) -> dict[str, str]:
        """Answers by question id in SQuAD's format, with no-answer scores and n-best lists."""
        texts, odds, n_best = {}, {}, {}
        for example, prediction in zip(examples, predictions, strict=True):
            texts[example.id] = prediction.value
            if prediction.answers is not None:
                spans, odds[example.id], _ = prediction.answers
                shown = zip(spans, prediction.answers.probabilities(), strict=True)
                n_best[example.id] = [
                    {"text": s.text, "probability": p, "score": s.score, "start": s.start, "end": s.end}
                    for s, p in shown
                ]
        files = {"-predictions.json": to_json(texts)}
        if task.answerable_head:
            files["-null-odds.json"] = to_json(odds)
        return {**files, "-nbest.json": to_json(n_best)}

    def describe(self, example: QuestionExample) -> tuple[Line, Any]:
        return {"question": example.question, "context": example.context}, list(example.answers)

    def sureness(self, prediction: Prediction) -> float | None:
        return None if prediction.answers is None else next(iter(prediction.answers.probabilities()), None)

    def badness(self, task: Task, example: QuestionExample, gold: Any, prediction: Prediction) -> float:
        """1 - F1, weighted by the model's confidence."""
        wrong = 1 - score_answer(str(prediction.value), example.answers)[1]
        return wrong * (1 + (self.sureness(prediction) or 0.0))

    def is_wrong(self, line: Line) -> bool:
        return score_answer(line["prediction"], line["gold"])[0] < 1

    def show(self, line: Line) -> list[list[Fragment]]:
        """The question, and the context around the gold answer (or the prediction) with both marked."""
        context: str = line["context"]
        gold, said = next(iter(line["gold"]), ""), str(line["prediction"])
        center = context.find(gold) if gold else context.find(said) if said else 0
        begin, end = max(0, center - NEAR), min(len(context), max(center, 0) + len(gold or said) + NEAR)
        text = context[begin:end]
        parts = [Fragment("…" if begin else "")]
        place = 0
        marks = sorted((text.find(t), t, mark) for t, mark in ((gold, "right"), (said, "wrong")) if t and t in text)
        for at, marked, mark in marks:
            if at >= place:
                parts += [Fragment(text[place:at]), Fragment(marked, "right" if mark == "right" else "wrong")]
                place = at + len(marked)
        return [
            [Fragment(line["question"])],
            [*parts, Fragment(text[place:]), Fragment("…" if end < len(context) else "")],
        ]

    def show_value(self, line: Line, key: Any) -> str:
        answers = line[key] if isinstance(line[key], list) else [line[key]]
        return " / ".join(dict.fromkeys(answer for answer in answers if answer)) or "(no answer)"


def question_windows(task: Task, tokenizer: Tokenizer, question: str, context: str) -> list[Feature]:
    """A question with each window of its context."""
    return _windows(task, tokenizer, tokenizer.encode_batch([question])[0], Context(tokenizer, context), 0)


class Context:
    """A context tokenised once, for all of its questions."""

    def __init__(self, tokenizer: Tokenizer, text: str):
        self.ids, self.offsets = tokenizer.encode_arrays(text)

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """The first and last token of characters start to end (exclusive); None if there is no token."""
        touching = np.flatnonzero((self.offsets[:, 1] > start) & (self.offsets[:, 0] < end))
        return (int(touching[0]), int(touching[-1])) if len(touching) else None


def _windows(
    task: Task,
    tokenizer: Tokenizer,
    question: Ids,
    context: Context,
    example: int,
    answer: tuple[int, int] | None = None,
    labelled: bool = False,
) -> list[Feature]:
    # In models too short for the paper's 64, the context still gets half of the room.
    question = question[: min(task.max_question, (task.max_length - 3) // 2)]
    before = len(question) + 2  # [CLS] question [SEP]
    room = task.max_length - before - 1
    windows = cut_windows(len(context.ids), room, task.stride or stride_for(room, task.max_answer))
    owner = best_windows(windows, len(context.ids))
    sequences = []
    for number, (start, length) in enumerate(windows):
        here = slice(start, start + length)
        size = before + length + 1
        ids = np.empty(size, dtype=np.int32)
        ids[0] = tokenizer.cls_id
        ids[1 : before - 1] = question
        ids[before - 1] = ids[-1] = tokenizer.sep_id
        ids[before:-1] = context.ids[here]
        segments = np.zeros(size, dtype=np.int8)
        segments[before:] = 1
        inside = np.zeros(size, dtype=np.bool_)
        inside[before:-1] = True
        max_context = np.zeros(size, dtype=np.bool_)
        max_context[before:-1] = owner[here] == number
        target: tuple[int, int, bool] | None = None
        if labelled:
            # As in the released code, a window without the whole answer is trained to point at [CLS], not discarded.
            target = (0, 0, True)
            if answer is not None and start <= answer[0] and answer[1] < start + length:
                target = (answer[0] - start + before, answer[1] - start + before, False)
        sequences.append(
            Feature(
                ids,
                segments,
                example,
                target,
                offsets=pad_offsets(context.offsets[here], before, 1),
                inside=inside,
                max_context=max_context,
            )
        )
    return sequences


def _span_loss(start: Tensor, end: Tensor, targets: Mapping[str, Tensor], num_rows: int) -> tuple[Tensor, Tensor]:
    """(start + end) / 2, each a softmax over the tokens of the sequence."""
    rows, used = targets["rows"], targets["used"]
    loss = start.new_zeros(())
    for logits, place in ((start, targets["start"]), (end, targets["end"])):
        gold = logits[targets["first"] + place.clamp(min=0)]  # [N]
        loss = loss + ((row_logsumexp(logits, rows, num_rows)[:-1] - gold) * used).sum() / 2
    return loss, loss.new_zeros(())


def _answer_loss(output: Any, targets: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(start + end) / 2 + answerability / 2, as in the released code; [CLS] means no answer."""
    import torch.nn.functional as F

    start = F.cross_entropy(output.start.float(), targets["start"], ignore_index=IGNORE, reduction="sum")
    end = F.cross_entropy(output.end.float(), targets["end"], ignore_index=IGNORE, reduction="sum")
    no_answer = output.no_answer.float()
    null = F.binary_cross_entropy_with_logits(no_answer, targets["impossible"], reduction="none")
    right = ((no_answer > 0) == (targets["impossible"] > 0.5)) * targets["used"]
    return (start + end) / 2 + (null * targets["used"]).sum() / 2, right.sum()


def _best(task: Task, answers: Answers) -> Prediction:
    """The best answer; with the answer head, none if the no-answer score is above its threshold."""
    return Prediction(answers.best(answers.threshold if task.answerable_head else None), answers=answers)


def window_thresholds(task: Task, outputs: Sequence[Outputs]) -> list[float]:
    """The no-answer threshold of the exit that gave each of some outputs."""
    return [task.threshold_at(int(each["depth"]) if "depth" in each else None) for each in outputs]


def _answers(predictions: Sequence[Prediction]) -> list[Answers]:
    return [prediction.answers for prediction in predictions if prediction.answers is not None]
