"""Training vocabularies: the paper's options, sampling, Korean particles, and what can go wrong."""

from __future__ import annotations

import gzip
import json
import lzma
import re
from collections import Counter

import pytest
import small_vocabularies
from sentencepiece import sentencepiece_model_pb2
from small_vocabularies import CHINESE, ENGLISH, KOREAN, train_on

from litebert.errors import ConfigError, DataError
from litebert.text import train_vocab as module
from litebert.text.normalize import Normalization
from litebert.text.train_vocab import VocabConfig, find_particles, train_vocab

SENTENCE = "나는 오늘 식당에 가서 밥을 먹었다"


def write(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("lines", [ENGLISH, KOREAN])
def test_the_papers_options_are_in_the_model(lines):
    tokenizer = train_on(lines, VocabConfig(vocab_size=100))
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(tokenizer.model)
    spec = model.trainer_spec
    assert spec.model_type == spec.UNIGRAM
    assert list(spec.control_symbols) == ["[CLS]", "[SEP]", "[MASK]"]
    assert list(spec.user_defined_symbols) == ["(", ")", '"', "-", ".", "–", "£", "€"]
    assert (spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id) == (0, 1, -1, -1)
    assert spec.character_coverage == pytest.approx(0.99995)
    assert (spec.max_sentencepiece_length, spec.shrinking_factor, spec.num_sub_iterations) == (16, 0.75, 2)
    assert (spec.seed_sentencepiece_size, spec.max_sentence_length) == (1_000_000, 4192)
    assert (spec.split_by_unicode_script, spec.split_by_whitespace, spec.split_by_number) == (True, True, True)
    assert (spec.hard_vocab_limit, spec.use_all_vocab, spec.num_threads) == (True, False, 16)
    assert spec.vocab_size == len(model.pieces) == tokenizer.vocab_size == 100
    assert model.normalizer_spec.name == "nmt_nfkc"
    # As in the released model: ids 0 to 4 special, then the symbols, then pieces by score.
    first = [*("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), *("(", ")", '"', "-", ".", "–", "£", "€")]
    assert [piece.piece for piece in model.pieces[:13]] == first
    types = [piece.type for piece in model.pieces]
    assert types == [3, 2, 3, 3, 3] + [4] * 8 + [1] * 87
    assert (model.normalizer_spec.add_dummy_prefix, model.normalizer_spec.remove_extra_whitespaces) == (True, True)


def test_the_papers_size_is_the_default():
    assert (VocabConfig().vocab_size, VocabConfig().character_coverage) == (30_000, 0.99995)


def test_text_is_normalized_before_training_as_at_encoding():
    google = small_vocabularies.english()
    assert not any(character.isupper() for piece in google.pieces[5:] for character in piece)
    assert "▁cafe" in google.pieces
    mixed = small_vocabularies.mixed()
    assert {"▁Anna", "▁cafe", "▁Zoe"} <= set(mixed.pieces)
    kept = train_on(ENGLISH, VocabConfig(vocab_size=100, normalization=Normalization("multilingual", False, False)))
    assert any("é" in piece for piece in kept.pieces)


def test_korean_particles_become_pieces_of_their_own():
    config = VocabConfig(vocab_size=100)
    tokenizer = train_on(KOREAN, config)
    pieces = tokenizer.encode_offsets(SENTENCE).pieces
    assert {"는", "에", "을"} <= set(pieces)
    assert tokenizer.decode(tokenizer.encode(SENTENCE)) == SENTENCE
    # It is the cut that does it: without, the same text gives pieces that hold word and particle.
    glued = train_on(KOREAN, VocabConfig(vocab_size=100, korean_particles=False))
    assert not {"는", "에", "을"} <= set(glued.encode_offsets(SENTENCE).pieces)
    assert glued.decode(glued.encode(SENTENCE)) == SENTENCE


def test_particles_are_told_from_nouns_by_the_text_itself():
    particles = find_particles(KOREAN)
    assert particles is not None
    assert particles.split("식당에") == ["식당", "에"]
    assert particles.split("식당에서는") == ["식당", "에서", "는"]
    assert particles.split("밥을") == ["밥", "을"]
    assert particles.split("지도") == ["지도"]  # a noun, for there is 지도를
    assert particles.split("지도를") == ["지도", "를"]
    assert particles.split("도서관으로") == ["도서관", "으로"]
    assert particles.split("서울로") == ["서울", "로"]  # 로 after ㄹ
    assert particles.split("가을") == ["가을"]  # 을 does not follow a vowel
    assert particles.split("에서") == ["에서"]
    assert particles.cut("A 나는 (밥을), 2010년에!") == ["A 나", "는 (밥", "을), 2010년", "에!"]
    assert find_particles(ENGLISH + CHINESE) is None


def test_the_same_text_and_seed_give_the_same_model(tmp_path):
    path = write(tmp_path / "text.txt", ENGLISH)
    config = VocabConfig(vocab_size=90, sample_lines=200, seed=3)
    first, again = train_vocab([path], config), train_vocab([path], config)
    assert first.tokenizer.model == again.tokenizer.model
    assert (first.lines_read, first.lines_used) == (len(ENGLISH), 200)
    other = train_vocab([path], VocabConfig(vocab_size=90, sample_lines=200, seed=4))
    assert other.tokenizer.model != first.tokenizer.model


def test_every_line_has_the_same_chance():
    lines = [str(i) for i in range(40)]
    counts: Counter[str] = Counter()
    for seed in range(500):
        kept, seen = module._sample(lines, VocabConfig(sample_lines=10, seed=seed))
        assert (len(kept), seen) == (10, 40)
        counts.update(kept)
    # 500 draws of 1 in 4: 125 +- 9.7; 5 standard deviations.
    assert all(76 < counts[line] < 174 for line in lines)


def test_long_lines_are_cut_and_not_passed_over(tmp_path):
    path = write(tmp_path / "text.txt", [" ".join(ENGLISH), "가" * 5000])
    trained = train_vocab([path], VocabConfig(vocab_size=90, character_coverage=1.0))
    assert trained.lines_read > 20
    assert trained.tokenizer.piece_id("가") is not None
    lines = list(module._cut_line("word " * 1000))
    assert all(len(line) <= module.MAX_CHARACTERS for line in lines)
    assert " ".join(lines).split() == ["word"] * 1000


def test_compressed_files_and_json_lines(tmp_path):
    third = len(ENGLISH) // 3
    plain = write(tmp_path / "a.txt", ENGLISH[:third])
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(ENGLISH[third : 2 * third]) + "\n")
    with lzma.open(tmp_path / "c.jsonl.xz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": line}) + "\n" for line in ENGLISH[2 * third :])
    stages = []
    trained = train_vocab(
        [plain, tmp_path / "b.txt.gz", tmp_path / "c.jsonl.xz"],
        VocabConfig(vocab_size=100),
        progress=lambda *stage: stages.append(stage),
    )
    whole = train_on(ENGLISH, VocabConfig(vocab_size=100))
    assert trained.tokenizer.model == whole.model
    assert [stage for stage, _, _ in stages] == ["reading"] * 3 + ["training"]
    reading = stages[:3]
    assert [done for _, done, _ in reading] == sorted(done for _, done, _ in reading)
    assert reading[-1][1] == reading[-1][2]


@pytest.mark.parametrize("lines", [ENGLISH, KOREAN])
def test_a_vocabulary_too_large_names_the_largest(lines):
    with pytest.raises(
        ConfigError, match="vocab_size 30000 is too large for this text, which yields at most"
    ) as caught:
        train_on(lines, VocabConfig())
    largest = int(re.search(r"at most (\d+)", str(caught.value))[1])
    assert train_on(lines, VocabConfig(vocab_size=largest)).vocab_size == largest
    with pytest.raises(ConfigError, match=f"at most {largest} pieces"):
        train_on(lines, VocabConfig(vocab_size=largest + 1))


@pytest.mark.parametrize("lines", [ENGLISH, KOREAN])
def test_a_vocabulary_too_small_names_the_smallest(lines):
    with pytest.raises(ConfigError, match="vocab_size 20 is too small: this text needs more than") as caught:
        train_on(lines, VocabConfig(vocab_size=20))
    needed = int(re.search(r"more than (\d+)", str(caught.value))[1])
    assert train_on(lines, VocabConfig(vocab_size=needed + 1)).vocab_size == needed + 1


def test_bad_input_is_named(tmp_path):
    empty = write(tmp_path / "empty.txt", ["", "  "])
    with pytest.raises(DataError, match=r"no text to train on in .*empty.txt"):
        train_vocab([empty])
    (tmp_path / "latin.txt").write_bytes("ein café\n".encode() + "noch ein café\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin.txt:2: not valid UTF-8"):
        train_vocab([tmp_path / "latin.txt"])
    with pytest.raises(DataError, match=r"nowhere.txt: no such file"):
        train_vocab([tmp_path / "nowhere.txt"])
    with pytest.raises(DataError, match=r"nowhere.txt: no such file"):
        train_vocab(str(tmp_path / "nowhere.txt"))  # one path alone
    cut = gzip.compress("\n".join(ENGLISH).encode())[:-200]
    (tmp_path / "cut.txt.gz").write_bytes(cut)
    with pytest.raises(DataError, match=r"cut.txt.gz.*damaged or truncated"):
        train_vocab([tmp_path / "cut.txt.gz"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be > 0 .*, got 0"),
        ({"character_coverage": 99.95}, "between 0.9 and 1"),
        ({"sample_lines": 0}, "sample_lines must be > 0, got 0"),
    ],
)
def test_settings_that_cannot_be(setting, message):
    with pytest.raises(ConfigError, match=message):
        VocabConfig(**setting)


def test_sentencepiece_keeps_quiet(tmp_path, capfd):
    train_vocab([write(tmp_path / "text.txt", ENGLISH)], VocabConfig(vocab_size=100))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_ctrl_c_inside_sentencepiece_is_still_ctrl_c(monkeypatch):
    class Interrupted:
        def cut(self, line):
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "find_particles", lambda lines: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        train_on(KOREAN, VocabConfig(vocab_size=100))
