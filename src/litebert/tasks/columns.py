"""Which column of a user's file plays which role: named by the user, else told by its name, else by its content.

    find_columns("classification", table, {})  -> {"text": ("review",), "label": ("sentiment",)}

A role may take several columns (the options of a question, one 0/1 column per label): "A,B,C,D".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from litebert.errors import DataError, did_you_mean
from litebert.tasks.tables import Table
from litebert.tasks.task import Kind

Columns = dict[str, tuple[str, ...]]

# Role -> whether every row needs it. A test file may lack what is to be predicted.
ROLES: dict[Kind, dict[str, bool]] = {
    "classification": {"text": True, "pair": False, "label": True, "id": False},
    "regression": {"text": True, "pair": False, "label": True, "id": False},
    "multi-label": {"text": True, "pair": False, "label": True, "id": False},
    "token-classification": {"words": True, "tags": True, "id": False},
    "multiple-choice": {"passage": False, "question": True, "options": True, "label": True, "id": False},
    "question-answering": {
        "question": True,
        "context": True,
        "answers": True,
        "start": False,
        "impossible": False,
        "id": False,
    },
}
PREDICTED = {"label", "tags", "answers", "start", "impossible"}

# Names are compared without case, spaces and punctuation; the first that a file has is taken.
_LABELS = """label labels class category target sentiment goldlabel intent topic y
    라벨 레이블 감성 감정 분류 카테고리 标签 標籤 类别 類別 分类 情感""".split()
_SCORES = "score value rating similarity stars 점수 평점 별점 유사도 分数 分數 得分 评分 相似度".split()
_NAMES: dict[Kind, dict[str, list[str]]] = {
    "classification": {"label": _LABELS},
    "regression": {"label": [*_SCORES, *_LABELS]},
    "multi-label": {"label": [*_LABELS, "tags", "categories", "classes", "태그"]},
    "token-classification": {
        "words": "words tokens word token text sentence 단어 토큰 문장 词 字 单词 文本".split(),
        "tags": "tags nertags labels ner tag label postags 태그 개체명 라벨 레이블 标签 标注".split(),
    },
    "multiple-choice": {
        "passage": "passage article context document story premise text 지문 본문 문맥 문서 文章 材料 短文".split(),
        "question": "question query sent1 stem ask startphrase 질문 문제 发问 问题 題目 题目".split(),
        "options": "options choices endings answers candidates 선택지 보기 选项 選項".split(),
        "label": ["label", "answer", "answerkey", "correct", "gold", "target", "정답", "답", "答案", "标签"],
    },
    "question-answering": {
        "question": "question query 질문 문제 问题 問題 提问".split(),
        "context": "context passage paragraph document article text 지문 본문 문맥 문단 上下文 文章 段落 原文".split(),
        "answers": "answers answer answertext 정답 답변 답 答案 回答".split(),
        "start": "answerstart start 시작 起始".split(),
        "impossible": "isimpossible impossible unanswerable".split(),
    },
}
_IDS = "id idx index guid uid qid exampleid rowid 번호 아이디 编号 序号".split()
_TEXTS = """text sentence document review comment comments content body tweet message title utterance sentence1 text1
    문장 텍스트 본문 내용 리뷰 댓글 문서 발화 제목 文本 句子 内容 內容 评论 評論 正文 标题""".split()
_PAIRS = [
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("texta", "textb"),
    ("sentencea", "sentenceb"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("query", "document"),
    ("string1", "string2"),
    ("1string", "2string"),
    ("text", "textpair"),
    ("text", "pair"),
    ("a", "b"),
    ("문장1", "문장2"),
    ("전제", "가설"),
    ("질문1", "질문2"),
    ("句子1", "句子2"),
    ("文本1", "文本2"),
    ("前提", "假设"),
]
_CHOICE = ("choice", "option")
_ONE_OF_SEVERAL = re.compile(r"(option|choice|ending|answer|보기|선택지|선지|选项|選項|)([0-9a-h])")
_TRUTH = {"0", "1", "0.0", "1.0", "true", "false"}


def find_columns(kind: Kind, table: Table, named: Mapping[str, str]) -> Columns:
    """The columns of each role; what was not named is guessed, and what cannot be guessed is an error."""
    found: Columns = {}
    for role, value in named.items():
        if role not in ROLES[kind]:
            known = ", ".join(ROLES[kind])
            raise DataError(
                f"{role}={value}: {kind} has no such column{did_you_mean(role, ROLES[kind]) or '.'} It has: {known}"
            )
        found[role] = _split_names(table, value)
    for role, names in _NAMES[kind].items():
        if role not in found and (column := _first(table, names, found)):
            found[role] = (column,)
    if "id" not in found and (column := _first(table, _IDS, found)):
        found["id"] = (column,)
    if kind == "multiple-choice" and "options" not in found:
        columns = _several(table, found)
        if len(columns) > 1:
            found["options"] = columns
        # A column "choice" holds all options, or beside A, B, C, D the one that is right.
        role = "label" if len(columns) > 1 else "options"
        if role not in found and (column := _first(table, _CHOICE, found)):
            found[role] = (column,)
    if "text" in ROLES[kind]:
        _guess_texts(kind, table, found, single="text" in named)
    for role, required in ROLES[kind].items():
        if required and role not in found and role not in PREDICTED:
            raise DataError(f"{table.path}: {_cannot_tell(table, role)}")
    return {role: found[role] for role in ROLES[kind] if role in found}


def need_column(table: Table, columns: Columns, role: str) -> None:
    """Refuse a table to learn or to score from that does not say what is right."""
    if role not in columns:
        raise DataError(f"{table.path}: {_cannot_tell(table, role)}")
    for column in columns[role]:
        table.values(column)


def _cannot_tell(table: Table, role: str) -> str:
    shown = ", ".join(map(repr, table.columns))
    name = f"Name it: --column {role}=COLUMN (by number, if there is no header)"
    return f"cannot tell which column is the {role}; it has {shown}. {name}"


def _split_names(table: Table, value: str) -> tuple[str, ...]:
    names = (value,) if value in table.columns else tuple(name.strip() for name in value.split(","))
    for name in names:
        table.values(name)  # a wrong name shows the columns
    return names


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _first(table: Table, names: Sequence[str], found: Columns) -> str | None:
    taken = {column for columns in found.values() for column in columns}
    for name in names:
        for column in table.columns:
            if _plain(column) == name and column not in taken:
                return column
    return None


def _several(table: Table, found: Columns) -> tuple[str, ...]:
    """Columns such as option1, option2, ... or A, B, C, D: the largest family of that kind."""
    taken = {column for columns in found.values() for column in columns}
    families: dict[str, list[str]] = {}
    for column in table.columns:
        match = _ONE_OF_SEVERAL.fullmatch(_plain(column))
        if match and column not in taken:
            families.setdefault(match[1], []).append(column)
    sizes = {prefix: len(family) for prefix, family in families.items()}
    return tuple(families[max(sizes, key=sizes.__getitem__)]) if families else ()


def _guess_texts(kind: Kind, table: Table, found: Columns, single: bool) -> None:
    plain = {_plain(column): column for column in reversed(table.columns)}
    taken = {column for columns in found.values() for column in columns}
    if not single:
        for a, b in _PAIRS:
            if {a, b} <= plain.keys() and not {plain[a], plain[b]} & taken:
                found["text"], found["pair"] = (plain[a],), (plain[b],)
                break
        else:
            if column := _first(table, _TEXTS, found):
                found["text"] = (column,)
    rest = [column for column in table.columns if column not in {c for columns in found.values() for c in columns}]
    if "text" not in found and rest:
        texts = {column: _mean_length(table.values(column)) for column in rest}
        longest = max(rest, key=texts.__getitem__)
        if len(rest) == 1 or "label" in found or len(rest) == 2:  # two columns: the long one is the text
            found["text"] = (longest,)
            rest.remove(longest)
    if "label" not in found:
        if kind == "multi-label":
            truths = tuple(c for c in rest if all(_is_truth(value) for value in table.values(c)))
            found |= {"label": truths} if truths else {}
        elif len(rest) == 1:
            found["label"] = (rest[0],)


def _mean_length(values: list[Any]) -> float:
    return sum(len(value) for value in values if isinstance(value, str)) / max(1, len(values))


def _is_truth(value: object) -> bool:
    return str(value).strip().casefold() in _TRUTH
