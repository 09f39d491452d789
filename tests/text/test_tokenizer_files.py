"""Tokenizer folders: read back the same, and read by transformers' AutoTokenizer with the same ids."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sentencepiece
import small_vocabularies
from sentencepiece import sentencepiece_model_pb2
from transformers import AutoTokenizer

from litebert.errors import DataError
from litebert.text.normalize import Normalization
from litebert.text.spiece import SentencePieceTokenizer, read_model, with_usual_spaces, write_model
from litebert.text.tokenizer import Specials, Tokenizer
from litebert.text.tokenizer_files import guess_normalization

# With a digit and comma (▁1,000 stays whole), quotes that must not become others, odd spaces, marks of many scripts,
# user-defined symbols, unknown characters, jamo, final sigma.
SAMPLES = [
    *small_vocabularies.ENGLISH[::37],
    *small_vocabularies.KOREAN[::97],
    *small_vocabularies.CHINESE[::11],
    "  Anna\tslept \n\n in  1999 ",
    "``Anna'' said ''no''",
    "Zoe\u0308 walked to the cafe\u0301, x\u0302y",
    '(twice) - "good" £5 – €5...',
    "ΟΔΟΣ Σ İstanbul ﬁne ½ ① ｗｉｄｅ",
    "が й हिन्दी ไทย ＾ ¨ \u200b \u00ad \x07 ▁ ▁▁a",
    "나는 \u1102\u1161\u1102\u1173\u11ab 밥을",
    "😀 unknown ☃ 漢字",
    "",
]


@pytest.mark.parametrize("vocabulary", ["english", "mixed", "wordpiece"])
def test_autotokenizer_gives_the_same_ids(vocabulary, tmp_path):
    tokenizer = getattr(small_vocabularies, vocabulary)()
    tokenizer.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    samples = [text for text in SAMPLES if vocabulary != "wordpiece" or "Σ" not in text]
    for text in samples:
        assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text), text
    assert theirs("Anna [MASK]. [MASK]slept", add_special_tokens=False)["input_ids"] == tokenizer.encode(
        "Anna [MASK]. [MASK]slept", allow_special=True
    )


@pytest.mark.parametrize("vocabulary", ["english", "wordpiece"])
@pytest.mark.parametrize("model_type", [None, "albert"])
def test_autotokenizer_gives_pairs_with_segments(vocabulary, model_type, tmp_path):
    tokenizer = getattr(small_vocabularies, vocabulary)()
    tokenizer.save(tmp_path)
    if model_type:  # as in the folder of a model
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    a, b = tokenizer.encode("the fox"), tokenizer.encode("a brown dog")
    pair = theirs("the fox", "a brown dog")
    assert pair["input_ids"] == [tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert theirs.mask_token_id == tokenizer.mask_id
    assert theirs.pad_token_id == tokenizer.pad_id


def test_offsets_agree_with_transformers(tmp_path):
    tokenizer = small_vocabularies.mixed()
    tokenizer.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in small_vocabularies.ENGLISH[::29] + small_vocabularies.KOREAN[::61]:
        spans = theirs(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        ours = tokenizer.encode_offsets(text)
        # The library counts the space before a word as its part, and a "▁" alone as the character behind it.
        assert [text[a:b] for a, b in ours.offsets] == [
            "" if piece == "▁" else text[a:b].strip() for piece, (a, b) in zip(ours.pieces, spans, strict=True)
        ]


@pytest.mark.parametrize("vocabulary", ["english", "mixed", "wordpiece"])
def test_a_saved_folder_loads_as_it_was(vocabulary, tmp_path):
    tokenizer = getattr(small_vocabularies, vocabulary)()
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"kept")
    tokenizer.save(folder)
    tokenizer.save(folder)  # over itself
    again = Tokenizer.load(folder)
    assert type(again) is type(tokenizer)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.normalization == tokenizer.normalization
    assert (folder / "weights.bin").read_bytes() == b"kept"
    names = {"tokenizer.json", "tokenizer_config.json", "vocab.txt" if vocabulary == "wordpiece" else "spiece.model"}
    assert {file.name for file in folder.iterdir()} == names | {"weights.bin"}


@pytest.mark.parametrize("vocabulary", ["english", "mixed", "wordpiece"])
def test_what_transformers_saves_loads_with_the_same_ids(vocabulary, tmp_path):
    """transformers 5 writes tokenizer.json and no spiece.model."""
    tokenizer = getattr(small_vocabularies, vocabulary)()
    tokenizer.save(tmp_path / "ours")
    AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "spiece.model").exists()
    again = Tokenizer.load(tmp_path / "theirs")
    assert again.pieces == tokenizer.pieces
    for text in SAMPLES:
        assert again.encode(text) == tokenizer.encode(text)
    (tmp_path / "theirs" / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path / "theirs" / "tokenizer.json").encode("the fox") == tokenizer.encode("the fox")


def test_a_bare_model_under_any_name(tmp_path):
    tokenizer = small_vocabularies.english()
    (tmp_path / "30k-clean.model").write_bytes(tokenizer.model)
    (tmp_path / "30k-clean.vocab").write_text("not needed")
    for path in (tmp_path, tmp_path / "30k-clean.model", str(tmp_path / "30k-clean.model")):
        loaded = Tokenizer.load(path)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert loaded.encode("In 2010, Zoë") == tokenizer.encode("In 2010, Zoë")


def test_a_transformers_folder_tells_its_normalization(tmp_path):
    tokenizer = small_vocabularies.mixed()
    (tmp_path / "spiece.model").write_bytes(tokenizer.model)
    config = {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False, "keep_accents": True}
    config["mask_token"] = {"content": "[MASK]", "lstrip": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(tmp_path).normalization == Normalization("google", lower=False, strip_accents=False)
    named = Normalization.named("multilingual")
    assert Tokenizer.load(tmp_path, normalization=named).normalization == named


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["▁the", "ing", "€", "[MASK]", "<unk>"], Normalization("google", lower=True)),
        (["▁The", "ing", "[MASK]"], Normalization("google")),
        (["▁the", "が", "に"], Normalization("multilingual", lower=True)),
        (["▁나", "는", "A"], Normalization("multilingual")),
        (["▁é", "e"], Normalization("multilingual", lower=True, strip_accents=False)),
        (["▁É", "e"], Normalization("none")),
    ],
)
def test_normalization_told_from_the_pieces(pieces, expected):
    assert guess_normalization(pieces) == expected


def test_wordpiece_vocabularies_alone(tmp_path):
    tokenizer = small_vocabularies.wordpiece()
    (tmp_path / "vocab_chinese.txt").write_text("\n".join(tokenizer.pieces) + "\n", encoding="utf-8")
    for path in (tmp_path, tmp_path / "vocab_chinese.txt"):
        assert Tokenizer.load(path).fingerprint == tokenizer.fingerprint
    (tmp_path / "vocab_chinese.txt").write_text("\r\n".join([*tokenizer.pieces, "Hello"]), encoding="utf-8")
    cased = Tokenizer.load(tmp_path)
    assert cased.encode_offsets("Hello hello").pieces == ["Hello", "hello"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "strip_accents": False}))
    assert Tokenizer.load(tmp_path).encode_offsets("Hello Café").pieces == ["hello", "[UNK]"]


def test_model_files_are_read_and_written_as_sentencepiece_has_them():
    tokenizer = small_vocabularies.mixed()
    theirs = sentencepiece_model_pb2.ModelProto()
    theirs.ParseFromString(tokenizer.model)
    ours = read_model(tokenizer.model)
    assert [(p.text, p.score, p.kind) for p in ours.pieces] == [(p.piece, p.score, p.type) for p in theirs.pieces]
    assert ours.charsmap == theirs.normalizer_spec.precompiled_charsmap
    assert (ours.add_dummy_prefix, ours.remove_extra_whitespaces) == (True, True)
    assert theirs.trainer_spec.vocab_size == len(theirs.pieces) == 300

    written = sentencepiece.SentencePieceProcessor(model_proto=write_model(ours))
    for text in SAMPLES:
        assert written.encode(text) == sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model).encode(text)
    bare = write_model(replace(ours, add_dummy_prefix=False, remove_extra_whitespaces=False))
    assert sentencepiece.SentencePieceProcessor(model_proto=bare).normalize("a  b") == "a▁▁b"
    assert read_model(with_usual_spaces(bare)) == ours


def test_folders_and_files_that_are_no_tokenizer(tmp_path):
    tokenizer = small_vocabularies.english()

    def refuses(name: str, content: bytes, message: str) -> None:
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(DataError, match=message):
            Tokenizer.load(file)
        file.unlink()

    with pytest.raises(DataError, match="nowhere: no such tokenizer file or folder"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no tokenizer here \(spiece.model, vocab.txt or tokenizer.json\)"):
        Tokenizer.load(tmp_path)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "config.json").touch()
    with pytest.raises(DataError, match=r"no tokenizer here .*; it is a run folder, its model is .*run/model"):
        Tokenizer.load(tmp_path / "run")
    refuses("spiece.model", tokenizer.model[:-1000], r"spiece.model: not a SentencePiece model, or truncated")
    refuses("spiece.model", b"hello", r"spiece.model: not a SentencePiece model")
    refuses("spiece.model", b"", r"spiece.model: not a SentencePiece model")
    refuses("spiece.model", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull")
    refuses("vocab.txt", b"", "vocab.txt: empty")
    refuses("vocab.txt", b"[PAD]\n[UNK]\na\n\nb\n", "vocab.txt:4: empty line")
    refuses("vocab.txt", b"[PAD]\n[UNK]\na\nb\na\n", "vocab.txt:5: 'a' is already on line 3")
    refuses("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nb\n", r"vocab.txt: no piece \[MASK\] among its 5")
    refuses("vocab.txt", b"[PAD]\n\xff\n", "vocab.txt:2: not valid UTF-8")
    refuses("tokenizer.json", b"{", "tokenizer.json:1: not valid JSON")
    refuses("tokenizer.json", b"[]", "tokenizer.json: expected a JSON object")
    refuses("tokenizer.json", b"{}", "tokenizer.json: not a valid tokenizer.json")
    refuses("tokenizer.json", b'{"model": {"type": "BPE"}}', "unsupported model type 'BPE'")
    for name in ("a.model", "b.model"):
        (tmp_path / name).write_bytes(tokenizer.model)
    with pytest.raises(DataError, match=r"contains a.model, b.model; name the file to use"):
        Tokenizer.load(tmp_path)


def test_a_model_without_special_pieces_is_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(small_vocabularies.ENGLISH),
        model_prefix=str(tmp_path / "plain"),
        vocab_size=100,
        minloglevel=2,
    )
    with pytest.raises(DataError, match=r"plain.model: no piece <pad>, \[MASK\] among its 100"):
        Tokenizer.load(tmp_path / "plain.model")


def test_damaged_configs_are_named(tmp_path):
    tokenizer = small_vocabularies.english()
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    saved = json.loads(path.read_text())
    for change, message in (
        ({"litebert": {}}, "damaged section 'litebert'"),
        ({"litebert": {"normalization": {"rule": "gogle"}}}, "gogle"),
        ({"mask_token": "<none>"}, "no piece '<none>', which tokenizer_config.json names as the mask token"),
    ):
        path.write_text(json.dumps({**saved, **change}))
        with pytest.raises(DataError, match=message):
            Tokenizer.load(tmp_path)


def test_other_kinds_of_model_are_saved_without_tokenizer_json(tmp_path):
    model = small_vocabularies.train_spiece(small_vocabularies.ENGLISH, vocab_size=100, model_type="bpe")
    tokenizer = SentencePieceTokenizer(model, Normalization("google"), Specials())
    tokenizer.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "tokenizer.json").exists()
    assert Tokenizer.load(tmp_path / "saved").fingerprint == tokenizer.fingerprint
