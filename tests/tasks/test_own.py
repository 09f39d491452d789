"""A user's own files of every kind: columns guessed, named or refused; labels from the training file."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from litebert.errors import DataError
from litebert.finetuning.config import finetune_config
from litebert.tasks.read import canonical_name, read_task
from litebert.tasks.task import ChoiceExample, TagExample, TextExample, load_task, save_task


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def write_jsonl(folder, name, rows):
    return write(folder, name, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


# ---------------------------------------------------------------------------------------------------------------------
# Classification


def test_classification_from_csv(tmp_path):
    train = write(tmp_path, "train.csv", "id,review,sentiment\na1,good film,pos\na2,bad film,neg\n")
    dev = write(tmp_path, "dev.csv", "sentiment,review\npos,fine\n")  # another order, and no ids
    test = write(tmp_path, "test.csv", "id,review\nc1,hmm\n")
    data = read_task("classification", train=train, dev=dev, test=test)
    assert data.task.labels == ("neg", "pos")
    assert data.task.metrics[0] == "accuracy"
    assert not data.task.pair
    assert data.task.columns == {"text": "review", "label": "sentiment", "id": "id"}
    assert data.train[0] == TextExample("a1", "good film", None, 1, f"{train}:2")
    assert data.dev == {"dev": [TextExample("0", "fine", None, 1, f"{dev}:2")]}
    assert data.test["test"][0].label is None
    assert data.notes == [f"{train}: text = 'review', label = 'sentiment', id = 'id' (guessed)"]


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("문장\t라벨", {"text": "문장", "label": "라벨"}),
        ("번호\t리뷰\t감성", {"text": "리뷰", "label": "감성", "id": "번호"}),
        ("标签\t文本", {"text": "文本", "label": "标签"}),
        ("id\tdocument\tlabel", {"text": "document", "label": "label", "id": "id"}),
        ("Text\tCLASS", {"text": "Text", "label": "CLASS"}),
        ("premise\thypothesis\tgold_label", {"text": "premise", "pair": "hypothesis", "label": "gold_label"}),
        ("문장1\t문장2\t라벨", {"text": "문장1", "pair": "문장2", "label": "라벨"}),
        ("前提\t假设\t标签", {"text": "前提", "pair": "假设", "label": "标签"}),
        ("question\tsentence\tlabel", {"text": "question", "pair": "sentence", "label": "label"}),
        ("what was said\tlabel", {"text": "what was said", "label": "label"}),
        ("text\twhether angry", {"text": "text", "label": "whether angry"}),
    ],
)
def test_columns_are_told_by_their_names_in_three_languages(tmp_path, header, columns):
    names = header.split("\t")
    rows = ["\t".join(f"{name} {i}" if name != columns["label"] else str(i) for name in names) for i in range(2)]
    data = read_task("classification", train=write(tmp_path, "a.tsv", "\n".join([header, *rows]) + "\n"))
    assert data.task.columns == columns
    assert data.train[0].a == f"{columns['text']} 0"
    assert data.train[0].b == (f"{columns['pair']} 0" if "pair" in columns else None)
    assert data.task.pair == ("pair" in columns)


def test_two_columns_without_telling_names_are_told_by_their_content(tmp_path):
    train = write(tmp_path, "a.csv", "x1,x2\n1,a long sentence\n0,another long sentence\n")
    data = read_task("classification", train=train)
    assert data.task.columns == {"text": "x2", "label": "x1"}


def test_columns_that_cannot_be_told_are_shown(tmp_path):
    train = write(tmp_path, "a.csv", "comments,bias,hate\nso so,none,none\nno,gender,hate\n")
    with pytest.raises(
        DataError,
        match=r"which column is the label; the columns are 'comments', 'bias', 'hate'. Set columns to name it: label=",
    ):
        read_task("classification", train=train)
    data = read_task("classification", train=train, columns={"label": "hate"})
    assert data.task.labels == ("hate", "none")
    with pytest.raises(DataError, match=r"no column 'hats'; did you mean .* It has: 'comments', 'bias', 'hate'"):
        read_task("classification", train=train, columns={"label": "hats"})
    with pytest.raises(DataError, match="classification has no column 'labl'; did you mean 'label'"):
        read_task("classification", train=train, columns={"labl": "hate"})


def test_numbers_for_columns_mean_that_there_is_no_header(tmp_path):
    train = write(tmp_path, "a.tsv", "gj04\t1\t\tgood\ngj04\t0\t*\tbad\n")
    data = read_task("classification", train=train, columns={"text": "4", "label": "2"})
    assert [(e.a, e.label, e.where) for e in data.train] == [("good", 1, f"{train}:1"), ("bad", 0, f"{train}:2")]


def test_a_label_unseen_in_training_names_its_row(tmp_path):
    train = write(tmp_path, "a.csv", "text,label\nx,pos\ny,neg\n")
    dev = write(tmp_path, "b.csv", "text,label\nx,pos\ny,positive\n")
    with pytest.raises(DataError, match=r"b\.csv:3: unknown label 'positive'.* The labels of .*a\.csv: neg, pos"):
        read_task("classification", train=train, dev=dev)


def test_labels_that_cannot_be_learnt(tmp_path):
    same = write(tmp_path, "a.csv", "text,label\nx,pos\ny,pos\n")
    with pytest.raises(DataError, match="needs at least 2 different labels, found"):
        read_task("classification", train=same)
    missing = write(tmp_path, "b.csv", "text,label\nx,pos\ny,\nz,neg\n")
    with pytest.raises(DataError, match=r"b\.csv:3: no label in column 'label'; fill it in or delete the row"):
        read_task("classification", train=missing)
    numbers = write(tmp_path, "c.csv", "text,label\n" + "".join(f"x,{i / 7}\n" for i in range(60)))
    with pytest.raises(DataError, match="60 different labels in 60 rows; for numbers use regression"):
        read_task("classification", train=numbers)


def test_texts_with_two_labels_are_counted(tmp_path):
    rows = [f"text {i},{i % 2}\n" for i in range(36)]
    torn = write(tmp_path, "a.csv", "text,label\n" + "".join([*rows, "same,0\n", "same,1\n"]))
    told = "a.csv: 2 of 38 examples have a text that also occurs with another label; the first is "
    assert any(told in note and note.endswith("a.csv:38") for note in read_task("classification", train=torn).notes)
    few = write(tmp_path, "b.csv", "text,label\n" + "".join([*rows, *rows, "same,0\n", "same,1\n"]))
    assert len(read_task("classification", train=few).notes) == 1


def test_a_training_file_without_a_header(tmp_path):
    train = write(tmp_path, "a.csv", "nice film,pos\ndull film,neg\nfine film,pos\n")
    dev = write(tmp_path, "b.csv", "text,label\nx,pos\n")
    with pytest.raises(
        DataError,
        match=r"b\.csv: no column 'nice film'.*a\.csv has it as its text; .* name columns by number: text=1",
    ):
        read_task("classification", train=train, dev=dev)


def test_a_dev_file_that_stands_in_the_training_file(tmp_path):
    rows = [f"text {i},{i % 2}\n" for i in range(40)]
    train = write(tmp_path, "a.csv", "text,label\n" + "".join(rows))
    notes = read_task("classification", train=train, dev=train).notes
    assert any("a.csv: 40 of 40 examples are also in the training file" in note for note in notes)
    other = write(tmp_path, "b.csv", "text,label\n" + "".join([*rows[:2], *(f"new {i},1\n" for i in range(38))]))
    assert len(read_task("classification", train=train, dev=other).notes) == 1  # one in twenty is nothing unusual


def test_an_empty_dev_file_and_a_missing_training_file(tmp_path):
    train = write(tmp_path, "a.csv", "text,label\nx,1\ny,0\n")
    with pytest.raises(DataError, match=r"b\.csv: the file is empty"):
        read_task("classification", train=train, dev=write(tmp_path, "b.csv", ""))
    with pytest.raises(DataError, match=r"c\.csv: no column 'label'"):
        read_task("classification", train=train, dev=write(tmp_path, "c.csv", "text,kind\nx,1\n"))
    with pytest.raises(DataError, match="labels come from a training file"):
        read_task("classification", dev=train)


def test_a_trained_model_brings_its_labels_and_columns(tmp_path):
    train = write(tmp_path, "a.csv", "body,kind,other\nx,red,1\ny,blue,2\n")
    task = read_task("classification", train=train, columns={"text": "body", "label": "kind"}).task
    save_task(task, tmp_path)
    known = load_task(tmp_path)
    assert known == task
    data = read_task("classification", dev=write(tmp_path, "b.csv", "other,kind,body\n9,red,z\n"), task=known)
    assert data.dev["dev"][0] == TextExample("0", "z", None, 1, str(tmp_path / "b.csv:2"))
    assert data.task is known


def test_a_trained_model_reads_files_without_labels_or_header(tmp_path):
    train = write(tmp_path, "a.csv", "text,labels\nx,red|big\ny,red\n")
    known = read_task("multi-label", train=train).task
    data = read_task("multi-label", test=write(tmp_path, "b.csv", "text\nz\n"), task=known)
    assert [(e.a, e.label) for e in data.test["test"]] == [("z", None)]
    train = write(tmp_path, "c.tsv", "1\tx\n0\ty\n")
    known = read_task("classification", train=train, columns={"text": "2", "label": "1"}).task
    data = read_task("classification", dev=write(tmp_path, "d.tsv", "1\tz\n"), task=known)
    assert [(e.a, e.label) for e in data.dev["dev"]] == [("z", 1)]


def test_labels_keep_their_order_and_their_spelling(tmp_path):
    rows = [{"text": "a", "label": value} for value in (10, 9, 2.0, 10)]
    assert read_task("classification", train=write_jsonl(tmp_path, "a.jsonl", rows)).task.labels == ("2", "9", "10")
    rows = [{"text": "a", "label": value} for value in (True, False)]
    data = read_task("classification", train=write_jsonl(tmp_path, "b.jsonl", rows))
    assert data.task.labels == ("false", "true")
    assert [example.label for example in data.train] == [1, 0]


def test_parquet_equals_csv(tmp_path):
    train = write(tmp_path, "a.csv", "text,label\nx,1\ny,0\n")
    pq.write_table(pa.table({"text": ["x", "y"], "label": [1, 0]}), tmp_path / "a.parquet")
    one, two = (read_task("classification", train=path) for path in (train, tmp_path / "a.parquet"))
    assert one.task == two.task
    assert [(e.a, e.label) for e in one.train] == [(e.a, e.label) for e in two.train]


def test_empty_texts_are_kept_and_counted(tmp_path):
    data = read_task("classification", train=write(tmp_path, "a.tsv", "text\tlabel\n \t1\nx\t0\n"))
    assert len(data.train) == 2
    assert data.notes[-1].endswith(f"a.tsv: 1 of 2 texts are empty; the first is {tmp_path / 'a.tsv'}:2")


@pytest.mark.parametrize(
    ("kind", "good", "odd"),
    [
        ("classification", {"text": "a", "label": "x"}, {"text": "b\0", "label": "y"}),
        ("classification", {"text": "a", "pair": "b", "label": "x"}, {"text": "a", "pair": "\0", "label": "y"}),
        ("token-classification", {"words": ["a"], "tags": ["O"]}, {"words": ["b", "\0c"], "tags": ["O", "B-X"]}),
        (
            "multiple-choice",
            {"question": "a", "options": ["b", "c"], "label": 0},
            {"question": "a", "options": ["b\0", "c"], "label": 1},
        ),
    ],
)
def test_nul_characters_are_told(tmp_path, kind, good, odd):
    path = write_jsonl(tmp_path, "a.jsonl", [good, odd, good])
    data = read_task(kind, train=path)
    assert f"{path}: 1 of 3 texts contain NUL characters (is the file damaged?); the first is {path}:2" in data.notes


def test_ids_that_repeat_are_replaced_by_row_numbers(tmp_path):
    data = read_task("classification", train=write(tmp_path, "a.csv", "id,text,label\nq,x,1\nq,y,0\n"))
    assert [e.id for e in data.train] == ["0", "1"]
    assert "ids in column 'id' are missing or repeated; rows are numbered" in data.notes[-1]


def test_a_folder_with_train_and_dev(tmp_path):
    write(tmp_path, "train.tsv", "text\tlabel\nx\t1\ny\t0\n")
    write(tmp_path, "validation.tsv", "text\tlabel\nz\t1\n")
    data = read_task("classification", folder=tmp_path)
    assert (len(data.train), list(data.dev)) == (2, ["dev"])
    write(tmp_path, "dev.csv", "text,label\nz,1\n")
    with pytest.raises(DataError, match="several files for dev"):
        read_task("classification", folder=tmp_path)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("sst2", "sst-2"),
        ("SST-2", "sst-2"),
        ("stsb", "sts-b"),
        ("race_high", "race-high"),
        ("squad", "squad-1.1"),
        ("squad_v2", "squad-2.0"),
        ("nli", "classification"),
        ("sentiment", "classification"),
        ("text-classification", "classification"),
        ("cls", "classification"),
        ("STS", "similarity"),
        ("embeddings", "similarity"),
        ("multilabel", "multi-label"),
        ("ner", "token-classification"),
        ("mcq", "multiple-choice"),
        ("qa", "question-answering"),
        ("question_answering", "question-answering"),
        ("mine", "mine"),
    ],
)
def test_a_task_may_be_called_as_people_call_it(said, meant):
    assert canonical_name(said) == finetune_config({"task": said}).task == meant


def test_similarity_is_learnt_from_scored_pairs(tmp_path):
    train = write(tmp_path, "a.csv", "sentence1,sentence2,score\na plane,an aircraft,4.8\na cat,a plane,0.2\n")
    data = read_task("similarity", train=train)
    assert (data.task.kind, data.task.scale, [e.score for e in data.train]) == ("similarity", (0.2, 4.8), [4.8, 0.2])


def test_an_unknown_task_shows_the_known():
    with pytest.raises(DataError, match="unknown task 'ssst-2'; did you mean 'sst-2'"):
        read_task("ssst-2")
    with pytest.raises(DataError, match="unknown task 'sentimnt'; did you mean 'sentiment'"):
        read_task("sentimnt")
    with pytest.raises(DataError, match=r"unknown task 'translation'.* Known: cola, sst-2, .*, question-answering"):
        read_task("translation")
    with pytest.raises(DataError, match="no such folder"):
        read_task("sst-2", folder="/no/such/folder")


# ---------------------------------------------------------------------------------------------------------------------
# Regression and multi-label


def test_regression(tmp_path):
    data = read_task("regression", train=write(tmp_path, "a.csv", "sentence1,sentence2,score\na,b,4.5\nc,d,1\n"))
    assert [(e.a, e.b, e.label) for e in data.train] == [("a", "b", 4.5), ("c", "d", 1.0)]
    assert (data.task.labels, data.task.pair, data.task.scale) == ((), True, (1.0, 4.5))
    for bad in ("many", "nan", ""):
        with pytest.raises(DataError, match=rf"b\.csv:2: column 'score': expected a number, got '{bad}'"):
            read_task("regression", train=write(tmp_path, "b.csv", f"text,score\na,{bad}\n"))
    with pytest.raises(DataError, match=r"expected a number, got '4,5'; write 4\.5"):
        read_task("regression", train=write(tmp_path, "b.csv", "text;score\na;4,5\n"))


FLAT = '{"text": "x", %s}\n{"text": "y", %s}\n{"text": "z", %s}\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "text,labels\nx,red|big\ny,\nz,red\n"),
        ("b.csv", 'text,labels\nx,"big, red"\ny,\nz,red\n'),
        ("c.jsonl", FLAT % ('"labels": ["big", "red"]', '"labels": []', '"labels": ["red"]')),
        ("d.csv", "text,big,red\nx,1,1\ny,0,0\nz,0,1\n"),
        ("e.jsonl", FLAT % ('"big": true, "red": true', '"big": false, "red": false', '"red": 1')),
    ],
)
def test_multi_label_in_one_column_or_in_several(tmp_path, name, text):
    data = read_task(
        "multi-label", train=write(tmp_path, name, text), columns=None if name[0] != "e" else {"label": "big,red"}
    )
    assert data.task.labels == ("big", "red")
    assert [e.label for e in data.train] == [(0, 1), (), (1,)]


def test_multi_label_flags_are_zero_or_one(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv:2: column 'red': expected 0 or 1, got 'maybe'"):
        read_task(
            "multi-label", train=write(tmp_path, "a.csv", "text,big,red\nx,1,maybe\n"), columns={"label": "big,red"}
        )


# ---------------------------------------------------------------------------------------------------------------------
# Tags


CONLL = """-DOCSTART- -X- -X- O

# sentence 1
민수 NNP B-PER
는 JX O
서울 NNP B-LOC

# EX O
End NN I-LOC
"""


def test_tags_from_conll(tmp_path):
    train = write(tmp_path, "train.conll", CONLL)
    data = read_task("token-classification", train=train)
    assert data.task.labels == ("O", "B-LOC", "I-LOC", "B-PER")
    assert data.task.metrics == ("entity_f1", "accuracy")
    assert data.train == [
        TagExample("0", ("민수", "는", "서울"), (3, 0, 1), f"{train}:4"),
        TagExample("1", ("#", "End"), (0, 2), f"{train}:8"),
    ]
    pos = read_task("token-classification", train=train, columns={"words": "1", "tags": "2"})
    assert pos.task.labels == ("EX", "JX", "NN", "NNP")
    assert pos.task.metrics == ("accuracy",)
    test = write(tmp_path, "test.conll", "한\n둘\n")
    assert read_task("token-classification", train=train, test=test).test["test"][0].tags is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"tokens": ["Anna", "slept"], "ner_tags": ["B-PER", "O"]}\n'),
        ("b.csv", "words,tags\nAnna slept,B-PER O\n"),
        ("c.txt", "Anna\tB-PER\nslept\tO\n"),
    ],
)
def test_tags_from_tables(tmp_path, name, text):
    data = read_task("token-classification", train=write(tmp_path, name, text))
    assert data.task.labels == ("O", "B-PER")
    assert [(e.words, e.tags) for e in data.train] == [(("Anna", "slept"), (1, 0))]


def test_words_and_tags_must_match(tmp_path):
    with pytest.raises(DataError, match=r"a\.csv:2: 2 words but 1 tag; each"):
        read_task("token-classification", train=write(tmp_path, "a.csv", "words,tags\na b,O\nc,B\n"))
    with pytest.raises(DataError, match=r"b\.conll:2: 1 column, but the lines before have 2"):
        read_task("token-classification", train=write(tmp_path, "b.conll", "a O\nb\n"))
    with pytest.raises(DataError, match=r"e\.conll:1: no column 2; the line has 1 column$"):
        read_task("token-classification", train=write(tmp_path, "e.conll", "a\n"), columns={"words": "2"})
    train = write(tmp_path, "c.conll", "a O\nb B-X\n")
    with pytest.raises(DataError, match=r"d\.conll:1: unknown label 'B-Y'"):
        read_task("token-classification", train=train, dev=write(tmp_path, "d.conll", "a B-Y\n"))


# ---------------------------------------------------------------------------------------------------------------------
# Multiple choice


ARC = '{"context": "p", "question": "%s", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "%s"}\n'
RACE = '{"article": "p", "question": "%s", "options": ["x", "y"], "answer": "%s"}\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "passage,question,option1,option2,label\np,q,x,y,1\np,r,x,y,0\n"),
        ("b.csv", "passage,question,A,B,answer\np,q,x,y,B\np,r,x,y,a\n"),
        ("c.csv", "지문,질문,보기1,보기2,정답\np,q,x,y,2\np,r,x,y,1\n"),
        ("d.jsonl", RACE % ("q", "y") + RACE % ("r", "x")),
        ("e.jsonl", ARC % ("q", "B") + ARC % ("r", "A")),
        ("f.jsonl", RACE.replace("options", "choice") % ("q", "y") + RACE.replace("options", "choice") % ("r", "x")),
        ("g.csv", "passage,question,A,B,choice\np,q,x,y,B\np,r,x,y,A\n"),  # beside A and B, "choice" is the answer
    ],
)
def test_multiple_choice(tmp_path, name, text):
    train = write(tmp_path, name, text)
    data = read_task("multiple-choice", train=train)
    assert data.task.num_choices == 2
    first = data.train[0]
    assert isinstance(first, ChoiceExample)
    assert (first.passage, first.question, first.options) == ("p", "q", ("x", "y"))
    assert [e.label for e in data.train] == [1, 0]


def test_options_that_do_not_fit(tmp_path):
    rows = [{"question": "q", "options": ["x", "y"], "label": 0}, {"question": "q", "options": ["x"], "label": 0}]
    with pytest.raises(DataError, match=r"a\.jsonl:2: a question needs at least two options, got 1"):
        read_task("multiple-choice", train=write_jsonl(tmp_path, "a.jsonl", rows))
    with pytest.raises(DataError, match=r"b\.csv:2: 'z' is not one of the 2 options"):
        read_task("multiple-choice", train=write(tmp_path, "b.csv", "question,A,B,answer\nq,xx,yy,z\n"))


def test_questions_may_have_different_numbers_of_options(tmp_path):
    """As in C3, where a sixth of the questions have three options and the rest four."""
    rows = [
        {"question": "q", "choice": ["x", "y", "z"], "answer": "z"},
        {"question": "r", "choice": ["x", "y", "z", "u"], "answer": "x"},
        {"question": "s", "choice": ["x", "y"], "answer": "y"},
    ]
    data = read_task("multiple-choice", train=write_jsonl(tmp_path, "a.jsonl", rows))
    assert [(len(e.options), e.label) for e in data.train] == [(3, 2), (4, 0), (2, 1)]
    assert data.task.num_choices == 4
    assert data.notes[-1] == f"{tmp_path / 'a.jsonl'}: 2 to 4 options per question"
    more = write_jsonl(tmp_path, "b.jsonl", [{"question": "q", "choice": list("vwxyz"), "answer": "v"}])
    assert len(read_task("multiple-choice", dev=more, task=data.task).dev["dev"][0].options) == 5
    table = "question,A,B,C,D,answer\nq,x,y,z,,3\nr,x,y,z,u,1\ns,x,,z,,3\n"  # 3 of 3: they count from 1
    data = read_task("multiple-choice", train=write(tmp_path, "c.csv", table))
    assert [(e.options, e.label) for e in data.train] == [
        (("x", "y", "z"), 2),
        (("x", "y", "z", "u"), 0),
        (("x", "", "z"), 2),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Question answering


SQUAD = {"data": [{"paragraphs": [{"context": "Anna lives in Rome.", "qas": [
    {"id": "q1", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 14}]},
    {"id": "q2", "question": "Who?", "answers": [{"text": "Anna", "answer_start": 3}]},
    {"id": "q3", "question": "Why?", "answers": [{"text": "love", "answer_start": 0}]},
]}]}]}  # fmt: skip


def test_questions_in_squads_shape_are_repaired_and_counted(tmp_path):
    path = write(tmp_path, "a.json", json.dumps(SQUAD))
    data = read_task("question-answering", train=path, dev=path)
    assert [(e.id, e.starts) for e in data.train] == [("q1", (14,)), ("q2", (0,))]  # q3's answer is nowhere
    assert [e.id for e in data.dev["dev"]] == ["q1", "q2", "q3"]
    assert data.notes[1:] == [
        "1 questions skipped in training: their answer is not in their context",
        f"2 answers moved to where their text is, first: {path}:2",
        f"2 answers not in their context, first: {path}:3",
        f"{path}: 2 of 3 examples are also in the training file; "
        "the scores overestimate how well the model does on new texts",
    ]
    assert not data.task.answerable_head


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Where?", "context": "Anna lives in Rome.", "answer": "Rome"},
        {"question": "Where?", "context": "Anna lives in Rome.", "answer": "Rome", "answer_start": 14},
        {"질문": "Where?", "지문": "Anna lives in Rome.", "정답": ["Rome"]},
        {"question": "Where?", "context": "Anna lives in Rome.", "answers": {"text": ["Rome"], "answer_start": [14]}},
        {"question": "Where?", "context": "Anna lives in Rome.", "answers": [{"text": "Rome", "answer_start": 14}]},
    ],
)
def test_questions_from_tables(tmp_path, row):
    (example,) = read_task("question-answering", train=write_jsonl(tmp_path, "a.jsonl", [row])).train
    assert (example.question, example.context) == ("Where?", "Anna lives in Rome.")
    assert (example.answers, example.starts, example.impossible) == (("Rome",), (14,), False)


def test_no_answer_asks_for_the_head_that_knows_it(tmp_path):
    train = write(tmp_path, "a.csv", "question,context,answer\nWhere?,In Rome.,Rome\nWhy?,In Rome.,\n")
    data = read_task("question-answering", train=train)
    assert data.task.answerable_head
    assert [(e.impossible, e.answers) for e in data.train] == [(False, ("Rome",)), (True, ())]
    nowhere = write(tmp_path, "b.csv", "question,context,answer\nWhere?,In Rome.,Paris\n")
    with pytest.raises(DataError, match=r"b\.csv:2: no question in the training file has its answer in its context"):
        read_task("question-answering", train=nowhere)


# ---------------------------------------------------------------------------------------------------------------------
# Cells of the wrong type


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("classification", {"text": ["a"], "label": 1}, "expected text, got"),
        ("multiple-choice", {"question": {}, "options": ["x", "y"], "label": 0}, "expected text, got"),
        (
            "multiple-choice",
            {"question": "q", "options": True, "label": 0},
            "a question needs at least two options, got 1",
        ),
        ("multiple-choice", {"question": "q", "options": [["x"], "y"], "label": 0}, "expected text, got"),
        ("token-classification", {"tokens": [["a"]], "tags": ["O"]}, "expected text, got"),
        ("question-answering", {"question": "q", "context": "c", "answers": {"text": ["c"]}, "id": "x"}, None),
        ("question-answering", {"question": "q", "context": "c", "answers": {"text": [""]}}, None),
        ("question-answering", {"question": "q", "context": [], "answers": "c"}, "expected text, got"),
        (
            "question-answering",
            {"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": []}},
            "expected answers as text",
        ),
        (
            "question-answering",
            {"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": [[0]]}},
            "column 'answer_start': expected a number",
        ),
    ],
)
def test_a_cell_of_the_wrong_type_names_its_row(tmp_path, kind, row, message):
    good = {
        "classification": {"text": "a", "label": 0},
        "multiple-choice": {"question": "q", "options": ["x", "y"], "label": 1},
        "token-classification": {"tokens": ["a", "b"], "tags": ["O", "B-X"]},
        "question-answering": {"question": "q", "context": "c", "answers": "c"},
    }[kind]
    train = write_jsonl(tmp_path, "good.jsonl", [good, {**good, "label": 1}])
    dev = write_jsonl(tmp_path, "bad.jsonl", [good, row])
    if message is None:
        assert len(read_task(kind, train=train, dev=dev).dev["dev"]) == 2
        return
    with pytest.raises(DataError, match=rf"bad\.jsonl:2: {message}"):
        read_task(kind, train=train, dev=dev)
