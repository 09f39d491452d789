"""GLUE from small files of each official shape, written here as the real ones begin."""

from __future__ import annotations

import json

import pytest

from litebert.errors import DataError
from litebert.tasks.glue import TASKS
from litebert.tasks.read import named_tasks, read_task

BOM = "\ufeff"
MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
)
# Task -> file -> its text; every quirk that the official files have.
FILES = {
    "cola": {
        "train.tsv": "gj04\t1\t\tOur friends won't buy it.\ngj04\t0\t*\tThey drank the pub.\n",
        "dev.tsv": "gj04\t1\t\tThe sailors rode the breeze.\n",
        "test.tsv": "index\tsentence\n0\tBill whistled past the house.\n",
    },
    "sst-2": {
        "train.tsv": 'sentence\tlabel\nhide new secretions \t0\nthe " best " film \t1\n',
        "dev.tsv": "sentence\tlabel\na charming journey . \t1\n",
        "test.tsv": "index\tsentence\n0\tuneasy mishmash\n",
    },
    "mrpc": {
        "train.tsv": f'{BOM}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\t"He said .\tHe said "yes .\r\n',
        "dev.tsv": f"{BOM}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t70\t71\tA .\tB .\n",
        "test.tsv": f"{BOM}index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t70\t71\tA .\tB .\n",
    },
    "sts-b": {
        "train.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tmain\tMSRvid\t2012\t0001\tnone\tnone\tA plane.\tAn air plane.\t5.000\n",
        "dev.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "7\tmain\tMSRvid\t2012\t0001\tnone\tnone\tA man.\tA boy.\t4.75\n",
        "test.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
        "0\tmain\tMSRvid\t2012\t0001\tnone\tnone\tA girl.\tA girl.\n",
    },
    "qqp": {
        "train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        "133\t213\t214\tHow is life?\tHow are you?\t0\n402\t9\t8\tWhat is 1?\n360\t1\t2\tWhy?\tHow so?\t1\n",
        "dev.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n201\t3\t4\tA?\tB?\t0\n",
        "test.tsv": "id\tquestion1\tquestion2\n0\tWould?\tCould?\n1\tShort?\n",
    },
    "mnli": {
        "train.tsv": f"{MNLI}\tsentence1\tsentence2\tlabel1\tgold_label\n"
        "0\t31\t31n\tgov\t( a )\t( b )\t(R a)\t(R b)\tCream.\tProduct.\tneutral\tneutral\n",
        "dev_matched.tsv": f"{MNLI}\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
        "0\t63\t63n\tslate\t( a )\t( b )\t(R a)\t(R b)\tNew.\tOld.\tneutral\tn\tn\tn\tn\tentailment\n"
        "1\t63\t63n\tslate\t( a )\t( b )\t(R a)\t(R b)\tNew.\tOld.\tneutral\tn\tn\tn\tn\t-\n",
        "dev_mismatched.tsv": f"{MNLI}\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"
        "0\t63\t63n\tletters\ta\tb\ta\tb\tYour gift.\tA gift.\tneutral\tn\tn\tn\tn\tcontradiction\n",
        "test_matched.tsv": f"{MNLI}\tsentence1\tsentence2\n0\t31\t31n\ttravel\ta\tb\ta\tb\tHill.\tMountain.\n",
        "test_mismatched.tsv": f"{MNLI}\tsentence1\tsentence2\n5\t31\t31n\tverbatim\ta\tb\ta\tb\tIt.\tThat.\n",
    },
    "qnli": {
        "train.tsv": "index\tquestion\tsentence\tlabel\n0\tWhen?\tIn 1999.\tentailment\n1\tWho?\tX.\tnot_entailment\n",
        "dev.tsv": "index\tquestion\tsentence\tlabel\n0\tWhat?\tThat.\tentailment\n",
        "test.tsv": "index\tquestion\tsentence\n0\tWhat?\tThat.\n",
    },
    "rte": {
        "train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tNo.\tYes.\tnot_entailment\n1\tA.\tA.\tentailment\n",
        "dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n",
        "test.tsv": "index\tsentence1\tsentence2\n0\tA.\tB.\n",
    },
    "wnli": {
        "train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA pin.\tThe pin.\t1\n",
        "dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA pin.\tThe pin.\t0\n",
        "test.tsv": "index\tsentence1\tsentence2\n0\tA.\tB.\n",
    },
    "ax": {"diagnostic.tsv": "index\tsentence1\tsentence2\n0\tThe cat sat.\tThe cat did not sit.\n"},
}
FOLDERS = {"cola": "CoLA", "mrpc": "MRPC", "sts-b": "STS-B", "sst-2": "SST-2", "ax": "."}


@pytest.fixture
def glue(tmp_path):
    for name, files in FILES.items():
        folder = tmp_path / FOLDERS.get(name, name.upper())
        folder.mkdir(exist_ok=True)
        for file, text in files.items():
            (folder / file).write_bytes(text.encode("utf-8"))
    return tmp_path


def read(glue, name):
    return read_task(name, folder=glue)


def first(example):
    return example.a, example.b, example.label


@pytest.mark.parametrize(
    ("name", "train", "dev", "test"),
    [
        ("cola", ("Our friends won't buy it.", None, 1), ("The sailors rode the breeze.", None, 1), "Bill whistled"),
        ("sst-2", ("hide new secretions ", None, 0), ("a charming journey . ", None, 1), "uneasy mishmash"),
        ("mrpc", ('"He said .', 'He said "yes .', 1), ("A .", "B .", 0), "A ."),
        ("sts-b", ("A plane.", "An air plane.", 5.0), ("A man.", "A boy.", 4.75), "A girl."),
        ("qqp", ("How is life?", "How are you?", 0), ("A?", "B?", 0), "Would?"),
        ("qnli", ("When?", "In 1999.", 0), ("What?", "That.", 0), "What?"),
        ("rte", ("No.", "Yes.", 1), ("A.", "B.", 0), "A."),
        ("wnli", ("A pin.", "The pin.", 1), ("A pin.", "The pin.", 0), "A."),
    ],
)
def test_official_files(glue, name, train, dev, test):
    data = read(glue, name)
    assert first(data.train[0]) == train
    assert first(data.dev["dev"][0]) == dev
    assert data.test["test"][0].a.startswith(test)
    assert all(example.label is None for example in data.test["test"])
    assert data.task.pair == (train[1] is not None)
    # The same when the task's own folder is named.
    assert read_task(name, folder=glue / FOLDERS.get(name, name.upper())).train == data.train


def test_mnli_has_two_dev_and_two_test_sets(glue):
    data = read(glue, "mnli")
    assert data.task.labels == ("contradiction", "entailment", "neutral")
    assert first(data.train[0]) == ("Cream.", "Product.", 2)
    assert {name: [first(e) for e in rows] for name, rows in data.dev.items()} == {
        "matched": [("New.", "Old.", 1)],  # the second row has no gold label
        "mismatched": [("Your gift.", "A gift.", 0)],
    }
    assert {name: [e.id for e in rows] for name, rows in data.test.items()} == {
        "test-matched": ["0"],
        "test-mismatched": ["5"],
    }
    assert "1 damaged or unlabelled rows skipped" in data.notes[0]


def test_ax_is_a_test_set_for_a_model_of_mnli(glue):
    data = read(glue, "ax")
    assert data.task.labels == TASKS["mnli"].labels
    assert (data.train, data.dev) == ([], {})
    assert first(data.test["test"][0]) == ("The cat sat.", "The cat did not sit.", None)


def test_qqp_rows_without_all_columns_are_left_out_of_training_but_not_of_test(glue):
    data = read(glue, "qqp")
    assert [e.id for e in data.train] == ["133", "360"]
    assert [(e.id, e.a, e.b) for e in data.test["test"]] == [("0", "Would?", "Could?"), ("1", "Short?", "")]
    assert "1 damaged or unlabelled rows skipped, first:" in data.notes[0]
    assert "train.tsv:3" in data.notes[0]


def test_a_stray_tab_is_a_damaged_row_and_a_missing_label_an_error(glue):
    path = glue / "RTE" / "dev.tsv"
    path.write_text("index\tsentence1\tsentence2\tlabel\n0\tA\t.\tB.\tentailment\n1\tA.\tB.\tentailment\n")
    data = read(glue, "rte")
    assert [e.id for e in data.dev["dev"]] == ["1"]
    assert "1 damaged or unlabelled rows skipped" in data.notes[0]
    path.write_text("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t\n")
    with pytest.raises(DataError, match=r"dev\.tsv:2: no label"):
        read(glue, "rte")


def test_ids_are_those_of_the_file(glue):
    assert read(glue, "sts-b").dev["dev"][0].id == "7"
    assert [e.id for e in read(glue, "sst-2").train] == ["0", "1"]


def test_a_wrong_label_names_its_row(glue):
    (glue / "RTE" / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tneutral\n")
    with pytest.raises(DataError, match=r"dev\.tsv:2: unknown label 'neutral'. The labels of GLUE"):
        read(glue, "rte")
    (glue / "STS-B" / "dev.tsv").write_text("index\tsentence1\tsentence2\tscore\n0\tA.\tB.\thigh\n")
    with pytest.raises(DataError, match=r"dev\.tsv:2: column 'score': expected a number, got 'high'"):
        read(glue, "sts-b")


def test_a_wrong_folder_or_file(glue, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"no files of rte \(train\.tsv, dev\.tsv, test\.tsv\) here or in"):
        read_task("rte", folder=empty)
    (glue / "RTE" / "dev.tsv").write_text("")
    with pytest.raises(DataError, match=r"dev\.tsv: the file is empty"):
        read(glue, "rte")
    (glue / "WNLI" / "dev.tsv").write_text("index\tpremise\tsentence2\tlabel\n")
    with pytest.raises(DataError, match=r"no column 'sentence1'; it has 'index', 'premise'"):
        read(glue, "wnli")
    with pytest.raises(DataError, match="the public task rte has fixed columns"):
        read_task("rte", folder=glue, columns={"text": "sentence1"})


def test_the_same_data_as_jsonl_in_the_hubs_columns(tmp_path):
    rows = [
        {"premise": "A.", "hypothesis": "B.", "label": 0, "idx": 3},
        {"premise": "A.", "hypothesis": "C.", "label": "contradiction", "idx": 4},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = read_task("mnli", train=path, dev=path)
    # The Hub counts entailment as 0; here, as in the released code, it is 1.
    assert [(e.id, e.label) for e in data.train] == [("3", 1), ("4", 0)]
    assert list(data.dev) == ["dev"]
    path.write_text('{"sentence": "x", "label": "positive"}\n')
    assert read_task("sst-2", train=path).train[0].label == 1


def test_the_metrics_of_glue():
    tasks = named_tasks()
    assert tasks["cola"].metrics[0] == "matthews"
    assert tasks["sts-b"].metrics == ("pearson", "spearman")
    assert {name: task.scale for name, task in tasks.items() if task.scale} == {"sts-b": (0.0, 5.0)}
    assert tasks["mrpc"].metrics == tasks["qqp"].metrics == ("accuracy", "f1")
    assert {name for name in tasks if name in FILES} == set(FILES)
