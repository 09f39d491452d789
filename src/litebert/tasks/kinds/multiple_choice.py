"""Multiple choice: which of two or more options answers a question, with or without a passage (RACE, C3, ARC).

[CLS] passage [SEP] question + option [SEP], once per option; the number of options can vary between questions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from litebert.errors import DataError
from litebert.tasks.decode import Outputs, Prediction, softmax
from litebert.tasks.features import Arrays, Feature, Ids, Places, join
from litebert.tasks.kinds.classification import MEASURES, likeliest, mean_probabilities
from litebert.tasks.kinds.kind import (
    Constant,
    Forward,
    Fragment,
    Kind,
    Line,
    Losses,
    Targets,
    minus_log,
    most_common,
    row_logsumexp,
    shorten,
    to_json,
)
from litebert.tasks.metrics import Measure, share
from litebert.tasks.own import Cells, Column, Columns, Reader, first_column, free_columns, plain_name
from litebert.tasks.tables import Table, text_cell
from litebert.tasks.task import ChoiceExample, Task
from litebert.text.tokenizer import Tokenizer

_CHOICE = ("choice", "option")
_ONE_OF_SEVERAL = re.compile(r"(option|choice|ending|answer|보기|선택지|선지|选项|選項|)([0-9a-h])")
_GAP = re.compile("_+")  # a run of underscores is one gap


class ChoiceReader(Reader[ChoiceExample]):
    """Reads options from several columns or one, and the correct one by number, letter or text."""

    def look_at(self, first: Table) -> None:
        """Option numbers start at 1 if no row has 0 and some row has the number of its options."""
        self.first_option = 0
        column = next(iter(self.roles.get("label", ())), None)
        if column is None or column not in first.columns:
            return
        places = [first.columns.index(name) for name in self.roles["options"]]
        counts = [len(_options([row[place] for place in places], first.path)) for row in first.rows]
        said = zip((str(value).strip() for value in first.values(column)), counts, strict=True)
        numbers = [(int(text), count) for text, count in said if re.fullmatch(r"\d+", text)]
        if all(number > 0 for number, _ in numbers) and any(number >= count for number, count in numbers):
            self.notes.append(f"{first.path}: option numbers in column {column!r} start at 1")
            self.first_option = 1

    def example(self, cells: Cells, id: str, where: str) -> ChoiceExample:
        options = _options(cells["options"], where)
        if len(options) < 2:
            raise DataError(f"{where}: a question needs at least two options, got {len(options)}")
        label = None
        if "label" in cells:
            label = _option_number(cells["label"][0], options, self.first_option, where)
        passage = text_cell(cells["passage"][0], where) if "passage" in cells else ""
        return ChoiceExample(id, passage, text_cell(cells["question"][0], where), options, label, where)

    def settings(self, train: Sequence[ChoiceExample]) -> dict[str, Any]:
        return {"num_choices": max((len(example.options) for example in train), default=0)}

    def notes_on(self, table: Table, examples: Sequence[ChoiceExample]) -> list[str]:
        counts = sorted({len(example.options) for example in examples})
        return [f"{counts[0]} to {counts[-1]} options per question"] if len(counts) > 1 else []


class MultipleChoice(Kind[ChoiceExample]):
    """One score per option, softmax over the options of a question."""

    name = "multiple-choice"
    aliases = ("mc", "mcq", "choice", "choose", "choices", "multichoice")
    says = "option"
    columns = (
        Column(
            role="passage",
            names="passage article context document story premise text 지문 본문 문맥 문서 文章 材料 短文",
            required=False,
        ),
        Column("question", "question query sent1 stem ask startphrase 질문 문제 发问 问题 題目 题目"),
        Column("options", "options choices endings answers candidates 선택지 보기 选项 選項"),
        Column("label", "label answer answerkey correct gold target 정답 답 答案 标签", predicted=True),
    )
    reader = ChoiceReader
    metrics = ("accuracy",)
    max_length = 512
    whole_examples = True
    pipeline = "multiple-choice"

    def guess_columns(self, table: Table, found: Columns, named: Mapping[str, str]) -> None:
        """Find options in several columns: option1, option2, ... or A, B, C, D."""
        if "options" in found:
            return
        columns = _largest_family(table, found)
        if len(columns) > 1:
            found["options"] = columns
        # A column "choice" has all options or, beside A, B, C, D, the correct one.
        role = "label" if len(columns) > 1 else "options"
        if role not in found and (column := first_column(table, _CHOICE, found)):
            found[role] = (column,)

    def head(self, task: Task) -> str:
        return "multiple-choice"

    def fits(self, head: str, problem_type: str | None, num_outputs: int) -> bool:
        return head == "multiple-choice"

    def features(
        self, task: Task, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, num_threads: int = 1
    ) -> list[Feature]:
        """One sequence per option; those of a question are consecutive."""
        passages = dict.fromkeys(example.passage for example in examples)  # a passage has several questions
        encoded_passages = dict(zip(passages, tokenizer.encode_batch(list(passages), num_threads), strict=True))
        texts = [fill_gap(example.question, option) for example in examples for option in example.options]
        encoded = iter(tokenizer.encode_batch(texts, num_threads))
        return [
            _join_option(task, tokenizer, encoded_passages[e.passage], next(encoded), place, number, e.label)
            for number, e in enumerate(examples)
            for place in range(len(e.options))
        ]

    def targets(self, task: Task, sequences: Sequence[Feature], places: Places) -> tuple[Arrays, int]:
        """The question of each option [N] (N for filler), and 1 for correct options."""
        # Each first option starts a question, even if the same one ends an epoch and starts the next.
        option = np.array([sequence.option for sequence in sequences])
        group = np.cumsum(option == 0) - 1
        gold = (option == np.array([sequence.target for sequence in sequences])).astype(np.float32)
        made = {"group": places.per_row(group, places.num_rows), "gold": places.per_row(gold, 0.0, np.float32)}
        return made, int(gold.sum())

    def loss(self, head: str, forward: Forward, targets: Targets, num_rows: int) -> Losses:
        """Cross-entropy over the options of each question."""
        import torch

        scores, group, gold = forward().float().flatten(), targets["group"], targets["gold"]
        total = row_logsumexp(scores, group, num_rows)[group]
        loss = ((total - scores) * gold).sum()
        best = torch.full((num_rows + 1,), -torch.inf, device=scores.device).scatter_reduce(
            0, group, scores.detach(), "amax"
        )
        return loss, ((scores.detach() == best[group]) * gold).sum()

    def predict(
        self, task: Task, example: ChoiceExample, windows: Sequence[Feature], outputs: Sequence[Outputs]
    ) -> Prediction:
        return likeliest(softmax(np.array([np.ravel(output["logits"])[0] for output in outputs])))

    def average(self, task: Task, votes: Sequence[Prediction]) -> Prediction:
        return likeliest(mean_probabilities(votes))

    def measures(self, task: Task, examples: Sequence[ChoiceExample], values: Sequence[Any]) -> dict[str, Measure]:
        """Accuracy, for RACE also by level."""
        gold, found = np.array([example.label for example in examples]), np.array(values, dtype=int)
        measures = {name: MEASURES[name](gold, found) for name in task.metrics}
        groups = [example.group for example in examples]
        if len(set(groups) - {""}) > 1:
            for group in sorted(set(groups), reverse=True):  # middle, high
                measures[f"{group}_accuracy"] = share(gold == found, np.array([each == group for each in groups]))
        return measures

    def constant(self, task: Task, train: Sequence[ChoiceExample], examples: Sequence[ChoiceExample]) -> Constant:
        """The most common option; a question without it gets the most common one it has."""
        counts = Counter(example.label for example in train)
        values = [max(range(len(example.options)), key=counts.__getitem__) for example in examples]
        return f"always option {option_letter(most_common(counts))}", values

    def call(self, task: Task) -> str:
        return 'choose("a passage", "a question", ["one option", "another"])'

    def submission(
        self, task: Task, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]
    ) -> dict[str, str]:
        letters = {e.id: option_letter(p.value) for e, p in zip(examples, predictions, strict=True)}
        return {".json": to_json(letters)}

    def describe(self, example: ChoiceExample) -> tuple[Line, Any]:
        line = {"passage": example.passage, "question": example.question, "options": list(example.options)}
        return line, example.label

    def say(self, task: Task, example: ChoiceExample, value: Any) -> Any:
        return example.options[value]

    def badness(self, task: Task, example: ChoiceExample, gold: Any, prediction: Prediction) -> float:
        assert prediction.probabilities is not None
        return float(minus_log(prediction.probabilities[gold]))

    def show(self, line: Line) -> list[list[Fragment]]:
        return [[Fragment(shorten(line["passage"]))], [Fragment(f"{line['question']} — {' · '.join(line['options'])}")]]


def choice_sequences(
    task: Task, tokenizer: Tokenizer, passage: str, question: str, options: Sequence[str]
) -> list[Feature]:
    """One sequence per option; the end of question + option is kept, the passage is cut."""
    encoded = tokenizer.encode_batch([passage, *(fill_gap(question, option) for option in options)])
    return [_join_option(task, tokenizer, encoded[0], ids, number) for number, ids in enumerate(encoded[1:])]


def fill_gap(question: str, option: str) -> str:
    """RACE's rule: ("He is _ .", "old") -> "He is old ."; without a gap, the option follows the question.

    As in the released code, every gap is filled; unlike there, a run of `_` is one gap.
    """
    if "_" in question:
        return _GAP.sub(lambda _: option, question)
    return f"{question} {option}".strip()


def option_letter(number: int) -> str:
    """The letter of an option: 0 -> "A"; after Z, its number: 26 -> "27"."""
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _join_option(
    task: Task,
    tokenizer: Tokenizer,
    passage: Ids,
    option: Ids,
    number: int,
    example: int = 0,
    target: int | None = None,
) -> Feature:
    # At the paper's length of 512 the option gets 128 tokens; in shorter models the passage gets at least half.
    room = task.max_length - 3
    kept = option[-min(task.max_option, room - min(len(passage), room // 2)) :]
    sequence = join(tokenizer, passage[: room - len(kept)], kept, task.max_length, example, target)
    lost = len(passage) + len(option) + 3 - len(sequence.ids)
    return Feature(sequence.ids, sequence.segments, example, target, lost, number)


def _largest_family(table: Table, found: Columns) -> tuple[str, ...]:
    """The largest family of columns such as option1, option2, ... or A, B, C, D."""
    families: dict[str, list[str]] = {}
    for column in free_columns(table, found):
        if match := _ONE_OF_SEVERAL.fullmatch(plain_name(column)):
            families.setdefault(match[1], []).append(column)
    largest: list[str] = max(families.values(), key=len, default=[])
    return tuple(largest)


def _options(cells: list[Any], where: str) -> tuple[str, ...]:
    """Options from several columns, or from one: ["x", "y"], {"text": ["x", "y"]} or "x|y".

    Empty columns at the end are not options: with columns A to D, a question can have three.
    """
    if len(cells) > 1:
        texts = [text_cell(cell, where).strip() for cell in cells]
        return tuple(texts[: max((place for place, text in enumerate(texts, start=1) if text), default=0)])
    options = cells[0]
    if isinstance(options, Mapping):
        options = options.get("text", list(options.values()))
    if not isinstance(options, list | tuple):
        options = text_cell(options, where).split("|")
    return tuple(text_cell(option, where).strip() for option in options)


def _option_number(value: Any, options: tuple[str, ...], first: int, where: str) -> int:
    """The index of the correct option, given as a number, a letter or its text."""
    text = text_cell(value, where).strip()
    if re.fullmatch(r"\d+", text) and text not in options:
        number = int(text) - first
    elif len(text) == 1 and "A" <= text.upper() <= "Z" and text not in options:
        number = ord(text.upper()) - ord("A")
    else:
        number = options.index(text) if text in options else -1
    if not 0 <= number < len(options):
        raise DataError(f"{where}: {text!r} is not one of the {len(options)} options; give its number, letter or text")
    return number
