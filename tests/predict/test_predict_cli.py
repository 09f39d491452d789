"""`litebert predict`: every ability through arguments, files and pipes, as a person and as a machine reads it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import unicodedata

import pytest
from small_models import LABELS, small_model
from small_vocabularies import english

import litebert.remote
from litebert.cli import main
from litebert.errors import InputError
from litebert.model.hub import save_model
from litebert.predict.abilities import ABILITIES
from litebert.predict.files import Source, read_rows
from litebert.predict.predictor import Predictor
from litebert.tasks.task import Task, save_task

CHANGES = {"classification": {"labels": ("bad", "good")}, "token-classification": {"labels": LABELS}}
CONTEXT = "The teacher walked to the café. Anna bought 1,000 apples in 2010."


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")

    def make(head):
        if not (base / head).exists():
            save_model(small_model(head, **CHANGES.get(head, {})), base / head)
            english().save(base / head)
        return base / head

    return make


@pytest.fixture
def ask(cli, folder):
    """Run `litebert predict` with a small model: ask("pretraining", "embed", "anna")."""

    def run(head, command, *arguments):
        return cli("predict", command, *arguments, "--model", folder(head), "--device", "cpu", "--threads", 1)

    return run


@pytest.fixture
def pipe(monkeypatch):
    def fill(text):
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return fill


COMMANDS = {
    "fill-mask": ("pretraining", ["anna [MASK]"], {"text": "anna [MASK]"}, "%"),
    "sentence-order": (
        "pretraining",
        ["Anna slept.", "Ben slept."],
        {"a": "Anna slept.", "b": "Ben slept."},
        "b, then",
    ),
    "coherence": ("pretraining", ["Anna slept. Ben slept."], {"text": "Anna slept. Ben slept."}, "coherence "),
    "embed": ("pretraining", ["anna slept"], {"text": "anna slept"}, "24 numbers"),
    "classify": ("classification", ["anna slept"], {"text": "anna slept"}, "good"),
    "tag": ("token-classification", ["anna slept"], {"text": "anna slept"}, "anna"),
    "answer": ("span", ["who?", CONTEXT], {"question": "who?", "context": CONTEXT}, "who?"),
    "choose": (
        "multiple-choice",
        [CONTEXT, "who?", "anna", "ben"],
        {"passage": CONTEXT, "question": "who?", "options": ["anna", "ben"]},
        "anna",
    ),
    "attention": ("pretraining", ["anna slept"], {"text": "anna slept"}, "application 1 (0 to 1)"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_ability(ask, folder, pipe, tmp_path, command):
    head, arguments, fields, shown = COMMANDS[command]
    predictor = Predictor(folder(head), device="cpu", threads=1)
    expected = predictor.run([predictor.job(command.replace("-", "_"), **fields)])[0].as_dict()

    done = ask(head, command, *arguments)
    assert done.code == 0, done
    assert shown in done.out

    done = ask(head, command, *arguments, "--json")
    assert json.loads(done.out) == expected

    lines = tmp_path / "input.jsonl"
    lines.write_text(json.dumps(fields) + "\n\n" + json.dumps(fields) + "\n", encoding="utf-8")
    done = ask(head, command, "--file", lines, "--json")
    assert len(done.out.splitlines()) == 2, done

    plain = len(arguments) == 1
    pipe(arguments[0] + "\n" if plain else json.dumps(fields))
    done = ask(head, command, "--json")
    assert json.loads(done.out) == expected


@pytest.mark.parametrize("name", ["texts.txt", "texts.jsonl", "texts.csv"])
def test_files_of_any_encoding_and_compression(ask, tmp_path, name):
    content = {
        "texts.txt": "anna slept\nben slept\n",
        "texts.jsonl": '{"text": "anna slept"}\n{"text": "ben slept"}\n',
        "texts.csv": "text\nanna slept\nben slept\n",
    }[name]
    expected = ask("classification", "classify", "anna slept", "ben slept", "--json").out
    for encoding, options in (("utf-8-sig", ()), ("utf-16", ()), ("utf-16-le", ("--encoding", "utf-16-le"))):
        for suffix, write in (("", bytes), (".gz", gzip.compress)):
            path = tmp_path / (name + suffix)
            path.write_bytes(write(content.encode(encoding)))
            assert ask("classification", "classify", "--file", path, "--json", *options).out == expected


def test_a_dash_is_the_pipe(ask, pipe):
    pipe("anna slept\n")
    done = ask("classification", "classify", "--file", "-", "--json")
    assert done.out == ask("classification", "classify", "anna slept", "--json").out
    pipe("anna slept and ben slept")
    assert json.loads(ask("span", "answer", "who?", "--file", "-", "--json").out)["text"] in "anna slept and ben slept"
    both = ask("classification", "classify", "anna slept", "--file", "-")
    assert (both.code, both.err) == (2, "error: file: texts are also given as arguments; choose one\n")


def test_a_question_with_its_context_in_a_file(ask, tmp_path):
    (tmp_path / "page.txt").write_text(f"{CONTEXT}\n{CONTEXT}\n", encoding="utf-8")
    done = ask("span", "answer", "who?", "--file", tmp_path / "page.txt", "--json")
    answer = json.loads(done.out)
    assert f"{CONTEXT}\n{CONTEXT}\n"[answer["start"] : answer["end"]] == answer["text"]


def test_a_passage_without_a_question_shows_the_options_alone(ask):
    lines = ask("multiple-choice", "choose", CONTEXT, "", "anna", "ben").out.splitlines()
    assert len(lines) == 2
    assert "anna" in lines[0]


def test_a_whole_file_is_one_text(ask, tmp_path):
    (tmp_path / "essay.txt").write_text("Anna slept.\nBen slept.\n", encoding="utf-8")
    done = ask("pretraining", "coherence", "--file", tmp_path / "essay.txt", "--whole", "--json")
    assert len(json.loads(done.out)["boundaries"]) == 1


def test_several_texts_and_options(ask):
    done = ask("pretraining", "fill-mask", "a [MASK]", "b [MASK] [MASK]", "--top", 2, "--json")
    first, second = map(json.loads, done.out.splitlines())
    assert (len(first["masks"]), len(second["masks"])) == (1, 2)
    assert len(first["masks"][0]["candidates"]) == 2
    done = ask("pretraining", "fill-mask", "b [MASK] [MASK]", "--joint")
    assert "together" in done.out
    done = ask("classification", "classify", "anna", "--pair", "ben")
    assert "good" in done.out
    done = ask("pretraining", "embed", "anna", "ben")
    assert "+1.00" in done.out
    done = ask("pretraining", "attention", "anna", "--application", 0, "--attention-head", 2)
    assert "application 0 (0 to 1), head 2" in done.out
    done = ask("pretraining", "sentence-order", "Anna.", "Ben.", "--symmetric", "--json")
    assert json.loads(done.out)["backward"] is not None


@pytest.fixture(scope="session")
def scored(folder):
    """A regression model of pairs, as fine-tuning leaves it."""
    path = folder("classification").parent / "sts-b"
    if not path.exists():
        save_model(small_model("classification", problem_type="regression"), path)
        english().save(path)
        save_task(Task("sts-b", "regression", pair=True, scale=(0.0, 5.0)), path)
    return path


def test_a_model_of_pairs_asks_for_pairs(cli, scored, tmp_path):
    for arguments in (["anna slept"], ["anna slept", "ben slept"]):
        done = cli("predict", "classify", *arguments, "--model", scored, "--device", "cpu")
        assert done.code == 2, done
        assert "pair: missing; this model (sts-b) takes two texts" in done.err
    lines = tmp_path / "pairs.jsonl"
    lines.write_text('{"text": "anna", "pair": "ben"}\n{"text": "anna"}\n', encoding="utf-8")
    done = cli("predict", "classify", "--file", lines, "--model", scored, "--device", "cpu")
    assert done.code == 2, done
    assert f"{lines}, line 2: pair: missing" in done.err
    done = cli("predict", "classify", "anna slept", "--pair", "ben slept", "--model", scored, "--device", "cpu")
    assert done.code == 0, done
    assert "anna slept  /  ben slept" in done.out
    assert "on a scale of 0 to 5" in done.out


MISTAKES = {
    "no text": (["fill-mask"], "", "stdin: no text; give it as an argument"),
    "no mask": (["fill-mask", "anna"], None, "text: contains no [MASK]"),
    "empty": (["embed", ""], None, "text: is empty"),
    "half a pair": (["sentence-order", "Anna slept."], "", "b: missing; give a, b, in this order"),
    "not JSON": (["sentence-order"], "Anna slept.\n", "stdin, line 1: not JSON"),
    "not an object": (["sentence-order"], "[1]\n", 'expected {"a": "...", "b": "..."}'),
    "no field": (["sentence-order"], '\n{"a": "x"}\n', "stdin, line 2: no 'b'"),
    "no string": (["sentence-order"], '{"a": "x", "b": 5}\n', "stdin, line 1: b: expected a str, got int"),
    "not UTF-8": (
        ["embed"],
        "나는 밥을 먹었다.\n".encode("cp949"),
        "it looks like cp949",
    ),
    "bad line": (["fill-mask"], "a [MASK]\nb\n", "stdin, line 2: text: contains no [MASK]"),
    "cannot": (["answer", "who?", "anna"], None, "litebert finetune --task question-answering"),
    "head": (["attention", "anna", "--attention-head", "7"], None, "attention_head: must be 0 to 2, got 7"),
    "application": (
        ["attention", "anna", "--application", "2"],
        None,
        "application: must be 0 to 1, or -1 for the last; got 2",
    ),
    "runtime": (["embed", "anna", "--runtime", "tf"], None, "runtime: 'tf' is not one of"),
    "both": (["embed", "anna", "--file", "x.txt"], None, "choose one"),
    "no file": (["embed", "--file", "no.txt"], None, "no.txt: no such file"),
    "a column of an argument": (["embed", "anna", "--column", "x"], None, "column x: goes with a file or a pipe"),
    "a pair of nothing": (["attention", "--pair", "x"], None, "--pair: goes with a text given as an argument"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_one_message(ask, pipe, mistake):
    arguments, piped, message = MISTAKES[mistake]
    if piped is not None:
        pipe(piped)
    ask("pretraining", *arguments).assert_refused(message)


def test_without_a_model_the_default_is_asked_for(cli, folder, monkeypatch, tmp_path):
    monkeypatch.setattr(litebert.remote, "DEFAULT_FOLDER", folder("pretraining"))
    done = cli("predict", "fill-mask", "anna [MASK]", "--device", "cpu", "--threads", 1, "--json")
    assert json.loads(done.out)["masks"]
    monkeypatch.setattr(litebert.remote, "DEFAULT_FOLDER", tmp_path)
    done = cli("predict", "fill-mask", "anna [MASK]")
    assert done.code == 2
    assert "contains no model" in done.err


def test_lines_of_a_pipe_are_texts_or_objects(pipe):
    """The first line says which; a gap would move the answers away from their texts."""

    def read(text: str) -> list[dict]:
        pipe(text)
        return [row.fields for row in read_rows(ABILITIES["classify"], [], Source())]

    assert read('{"text": "a", "pair": "b"}\n{"text": "c"}\n') == [{"text": "a", "pair": "b"}, {"text": "c"}]
    assert read('{"other": 1}\nplain\n') == [{"text": '{"other": 1}'}, {"text": "plain"}]
    assert read("a\nb\n\n\n") == [{"text": "a"}, {"text": "b"}]
    with pytest.raises(InputError, match="stdin, line 2: empty"):
        read("a\n\nb\n")
    with pytest.raises(InputError, match="stdin: no text; give it as an argument"):
        read("\n\n")


TABLE = 'id,review,label\n7,"anna slept, ben too",x\n8,"a\nb",y\n'
ROWS = [{"id": "7", "review": "anna slept, ben too", "label": "x"}, {"id": "8", "review": "a\nb", "label": "y"}]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "csv.gz"])
def test_tables_in_and_out(ask, tmp_path, ending):
    source = tmp_path / f"in.{ending}"
    if ending == "jsonl":
        source.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif ending == "json":
        source.write_text(json.dumps(ROWS))
    elif ending == "csv.gz":
        source.write_bytes(gzip.compress(TABLE.encode()))
    else:
        with source.open("w", newline="") as file:
            writer = csv.DictWriter(file, ROWS[0], delimiter="\t" if ending == "tsv" else ",", quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(ROWS)
    for out in ("new/out.csv", "new/out.tsv", "new/out.jsonl"):
        done = ask("classification", "classify", "--file", source, "--column", "review", "--out", tmp_path / out)
        assert done.code == 0, done
        assert done.out == f"{tmp_path / out}: 2 rows\n"
    with open(tmp_path / "new/out.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS, "what was there stays"
    assert list(found[0]) == ["id", "review", "label", "predicted_label", "probability"], "a label that is there stays"
    with open(tmp_path / "new/out.tsv", newline="") as file:
        assert list(csv.DictReader(file, delimiter="\t")) == found
    lines = [json.loads(line) for line in (tmp_path / "new/out.jsonl").read_text().splitlines()]
    assert [{name: row[name] for name in ROWS[0]} for row in lines] == ROWS
    assert [row["prediction"]["label"] for row in lines] == [row["predicted_label"] for row in found]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["out.csv", "out.jsonl", "out.tsv"]


def test_a_text_file_becomes_a_table(ask, tmp_path):
    (tmp_path / "texts.txt").write_text("anna slept\nben, too\n")
    done = ask("token-classification", "tag", "--file", tmp_path / "texts.txt", "--out", tmp_path / "y.csv")
    assert done.code == 0, done
    with open(tmp_path / "y.csv", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["text"], first["words"], len(first["tags"].split())) == ("anna slept", "anna slept", 2)
    assert second["text"] == "ben, too"


COLUMNS = {
    "fill-mask": ["words", "probability"],
    "sentence-order": ["probability"],
    "coherence": ["score", "boundaries"],
    "embed": ["vector"],
    "classify": ["label", "probability"],
    "tag": ["words", "tags", "entities"],
    "answer": ["answer", "start", "end", "probability"],
    "choose": ["index", "option", "probability"],
}


@pytest.mark.parametrize("command", COLUMNS)
def test_every_ability_fills_a_table(ask, tmp_path, command):
    head, _, fields, _ = COMMANDS[command]
    (tmp_path / "x.jsonl").write_text(json.dumps(fields) + "\n")
    done = ask(head, command, "--file", tmp_path / "x.jsonl", "--out", tmp_path / "y.csv")
    assert done.code == 0, done
    with open(tmp_path / "y.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert list(row) == [*fields, *COLUMNS[command]]
    assert all(row[name] for name in COLUMNS[command] if name != "entities")


def test_pairs_and_options_in_columns(cli, ask, scored, tmp_path):
    (tmp_path / "pairs.tsv").write_text("one\ttwo\nanna slept\tben slept\n")
    arguments = ["--column", "one", "--column", "pair=two", "--out", tmp_path / "y.csv", "--device", "cpu"]
    done = cli("predict", "classify", "--file", tmp_path / "pairs.tsv", *arguments, "--model", scored)
    assert done.code == 0, done
    assert (tmp_path / "y.csv").read_text().splitlines()[0] == "one,two,value"
    (tmp_path / "quiz.csv").write_text("passage,question,A,B,C\nanna slept,who?,anna,ben,\n")
    done = ask("multiple-choice", "choose", "--file", tmp_path / "quiz.csv", "--column", "options=A,B,C", "--json")
    assert len(json.loads(done.out)["probabilities"]) == 2, "an empty cell at the end is no option"


TABLE_MISTAKES = {
    "no such column": (["--column", "revew"], "no column 'revew'; did you mean 'review'?"),
    "no column named": ([], "no column 'text'; it has 'id', 'review', 'label'. Name it: column text=NAME"),
    "named twice": (["--column", "review", "--column", "text=id"], "column: text is named twice"),
    "no such input": (["--column", "txt=review"], "classify takes text, pair; did you mean 'text'?"),
    "ending": (["--column", "review", "--out", "y.xlsx"], "out: 'y.xlsx' must end in .csv, .tsv or .jsonl"),
    "both": (["--column", "review", "--out", "y.csv", "--json"], "choose one"),
    "encoding": (["--column", "review", "--encoding", "utf-9"], "encoding: 'utf-9' is unknown to Python"),
}


@pytest.mark.parametrize("mistake", TABLE_MISTAKES)
def test_mistakes_about_tables(ask, tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text(TABLE)
    arguments, message = TABLE_MISTAKES[mistake]
    done = ask("classification", "classify", "--file", "x.csv", *arguments)
    assert done.code == 2, done
    assert message in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_an_empty_cell_is_told_before_a_model_is_loaded(cli, tmp_path):
    (tmp_path / "x.csv").write_text("text,id\nanna,1\n,2\n")
    done = cli("predict", "embed", "--file", tmp_path / "x.csv", "--model", "./none")
    assert f"{tmp_path / 'x.csv'}:3: column 'text' is empty" in done.err


def test_a_failing_row_leaves_no_file(ask, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a [MASK]"}\n{"text": "b"}\n')
    done = ask("pretraining", "fill-mask", "--file", tmp_path / "x.jsonl", "--out", tmp_path / "y.csv")
    assert done.code == 2
    assert "x.jsonl, line 2: text: contains no [MASK]" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


NEAREST = {
    "predict order a b": "no command 'order' in `litebert predict`; did you mean 'sentence-order'?",
    "predict fillmask": "did you mean 'fill-mask'?",
    "predict qa": "did you mean 'answer'?",
    "predict ner": "did you mean 'tag'?",
    "predict xyz": "no command 'xyz' in `litebert predict`; `litebert predict --help` lists them",
    "predcit": "no command 'predcit' in `litebert`; did you mean 'predict'",
    "fill-mask x": "did you mean 'predict fill-mask'?",
    "build": "did you mean 'corpus build'?",
    "corpus bulid": "did you mean 'build'?",
}


@pytest.mark.parametrize("line", NEAREST)
def test_a_mistyped_command_is_answered_with_the_nearest_one(cli, line):
    done = cli(*line.split())
    assert done.code == 2, done
    assert NEAREST[line] in done.err


def test_text_of_a_language_that_the_model_does_not_know(ask):
    done = ask("pretraining", "embed", "나는 밥을 먹었다", "--json")
    assert done.code == 0, done
    assert "tokens are unknown to the model's vocabulary" in done.err
    assert "unknown" not in ask("pretraining", "fill-mask", "anna [MASK]", "--json").err


CONTROLS = "\x1b]0;title\x07 anna\x9b31m \x7f\x00"


@pytest.mark.parametrize("command", COMMANDS)
def test_control_characters_of_a_text_do_nothing_to_the_terminal(ask, command):
    head, given, *_ = COMMANDS[command]
    arguments = [argument if argument.startswith("-") else f"{CONTROLS} {argument}" for argument in given]
    done = ask(head, command, *arguments)
    assert done.code == 0, done
    as_json = ask(head, command, *arguments, "--json")
    assert as_json.code == 0, as_json
    assert {c for c in done.out + as_json.out if unicodedata.category(c) == "Cc"} == {"\n"}


def test_json_keeps_control_characters(ask):
    text = f"{CONTROLS} [MASK]"
    assert json.loads(ask("pretraining", "fill-mask", text, "--json").out)["text"] == text


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_output_in_an_encoding_without_the_characters(folder, monkeypatch, more):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    text = "anna é 😀 [MASK]"
    with pytest.raises(SystemExit) as stop:
        main(["predict", "fill-mask", text, "--model", str(folder("pretraining")), "--device", "cpu", *more])
    assert stop.value.code == 0
    out.flush()
    shown = out.buffer.getvalue().decode("ascii")
    assert "anna \\u00e9 \\ud83d\\ude00 [MASK]" in shown
    assert "\\u2588" not in shown  # bars are drawn with what there is
    if more:
        assert json.loads(shown)["text"] == text


def test_a_mistake_with_control_characters_in_it(cli):
    done = cli("predict", "embed", "anna", "--model", "./\x1b[31mx")
    assert done.code == 2
    assert "./␛[31mx: no such folder" in done.err
