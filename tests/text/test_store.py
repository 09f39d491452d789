"""The token store: what is written is read back, as views; incomplete and foreign folders are refused."""

from __future__ import annotations

import json
import os
import pickle
from types import SimpleNamespace

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DataError, InputError
from litebert.text import store as store_module
from litebert.text import store_writer
from litebert.text.store import TokenStore, find_damage, read_manifest


def random_documents(count, vocab_size=30_000, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(0, vocab_size, rng.integers(1, 12)).tolist() for _ in range(rng.integers(1, 8))]
        for _ in range(count)
    ]


@pytest.fixture
def documents():
    return random_documents(200)


@pytest.fixture
def store(tmp_path, monkeypatch, documents):
    """A store of many small record batches."""
    monkeypatch.setattr(store_writer, "BATCH_TOKENS", 300)
    return TokenStore.write(tmp_path / "store", documents, "a" * 64, 30_000)


def flat(documents):
    return [token for document in documents for sentence in document for token in sentence]


def test_round_trip(store, documents):
    assert [[sentence.tolist() for sentence in document] for document in store.documents()] == documents
    assert len(store) == store.num_documents == 200
    assert store.num_sentences == sum(map(len, documents))
    assert store.num_tokens == len(flat(documents))
    lengths = [len(sentence) for document in documents for sentence in document]
    assert store.sentence_offsets.tolist() == np.cumsum([0, *lengths]).tolist()
    assert store.document_offsets.tolist() == np.cumsum([0, *map(len, documents)]).tolist()
    assert store.sentence_offsets.dtype == store.document_offsets.dtype == np.int64
    assert store.read(0, store.num_tokens).tolist() == flat(documents)


def test_many_record_batches_and_no_document_across_them(store):
    table = store.table()
    assert table.column("sentences").num_chunks > 10
    assert sum(len(chunk) for chunk in table.column("sentences").chunks) == store.num_documents


def test_a_document_is_a_view_of_the_file(store):
    for index in (0, 57, 199):
        first, last = store.sentence_offsets[store.document_offsets[index : index + 2]]
        assert not store.read(int(first), int(last)).flags.owndata
        assert not store.read(int(first), int(last)).flags.writeable
    assert store.sentence_offsets.base is not None


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_read_and_gather_are_slices(tmp_path_factory, data):
    documents = random_documents(40, seed=data.draw(st.integers(0, 5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_writer, "BATCH_TOKENS", data.draw(st.integers(1, 500)))
        store = TokenStore.write(tmp_path_factory.mktemp("s") / "store", documents, "a" * 64, 30_000)
    tokens = np.array(flat(documents))
    start = data.draw(st.integers(0, len(tokens)))
    stop = data.draw(st.integers(start, len(tokens)))
    assert store.read(start, stop).tolist() == tokens[start:stop].tolist()
    # Runs of sentences within documents, in any order, some of them empty.
    slices = []
    for document in data.draw(st.lists(st.integers(0, 39), max_size=20)):
        bounds = store.sentence_offsets[store.document_offsets[document] : store.document_offsets[document + 1] + 1]
        first = data.draw(st.integers(0, len(bounds) - 1))
        slices.append((bounds[first], bounds[data.draw(st.integers(first, len(bounds) - 1))]))
    starts, stops = [a for a, _ in slices], [b for _, b in slices]
    expected = [token for a, b in slices for token in tokens[a:b].tolist()]
    assert store.gather(starts, stops).tolist() == expected
    out = np.full(len(expected) + 3, -7, np.int32)
    assert store.gather(starts, stops, out).tolist() == expected
    assert out[len(expected) :].tolist() == [-7] * 3


@pytest.mark.parametrize(("vocab_size", "dtype"), [(30_000, np.uint16), (65_536, np.uint16), (65_537, np.uint32)])
def test_the_smallest_type_that_holds_the_vocabulary(tmp_path, vocab_size, dtype):
    documents = [[[0, vocab_size - 1]], [[1], [2, 3]]]
    store = TokenStore.write(tmp_path / "store", documents, "a" * 64, vocab_size)
    assert store.dtype == dtype
    assert [[sentence.tolist() for sentence in document] for document in store.documents()] == documents


def test_other_libraries_read_the_parts(store, documents, tmp_path):
    (part,) = store.part_paths
    with pa.memory_map(str(part)) as file:
        table = pa.ipc.open_file(file).read_all()
    assert table.to_pydict() == {"sentences": documents}
    assert table.schema.metadata[b"litebert.fingerprint"] == b"a" * 64
    assert polars.read_ipc(part).to_dict(as_series=False) == {"sentences": documents}
    assert (
        polars.scan_ipc(part).select(polars.col("sentences").list.len().sum()).collect().item() == store.num_sentences
    )


def test_datasets_reads_the_parts(store, documents, tmp_path):
    import datasets  # slow to import, and used here alone

    files = [str(path) for path in store.part_paths]
    loaded = datasets.load_dataset("arrow", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["sentences"][:] == documents
    assert datasets.Dataset(store.table())[3]["sentences"] == documents[3]


def test_tables_are_not_copied(store):
    before = pa.total_allocated_bytes()
    table = store.table()
    assert pa.total_allocated_bytes() - before < 10_000 < table.nbytes


def test_pickles_as_its_path(store, monkeypatch, tmp_path):
    monkeypatch.chdir(store.path)
    relative = TokenStore.open(".")
    data = pickle.dumps(relative)
    monkeypatch.chdir(tmp_path)
    assert len(data) < 500
    assert pickle.loads(data).read(5, 9).tolist() == store.read(5, 9).tolist()


def test_out_of_range(store):
    for start, stop in ((-1, 3), (3, 2), (0, store.num_tokens + 1)):
        with pytest.raises(InputError):
            store.read(start, stop)
        with pytest.raises(InputError):
            store.gather([start], [stop])
    with pytest.raises(InputError, match="crosses a record batch"):
        store.gather([0], [store.num_tokens])
    with pytest.raises(InputError, match="do not fit"):
        store.gather([0], [3], np.empty(2, np.int32))
    with pytest.raises(InputError, match="document 200 is out of range; the store has 200"):
        store.document(200)


@pytest.mark.parametrize("documents", [[[]], [[[1], []]], [[[30_000]]], [[[-1]]]])
def test_impossible_documents(tmp_path, documents):
    with pytest.raises(InputError):
        TokenStore.write(tmp_path / "store", documents, "a" * 64, 30_000)
    assert not (tmp_path / "store").exists()


def test_another_tokenizer_is_refused(store):
    with pytest.raises(DataError, match="built with another tokenizer"):
        TokenStore.open(store.path, SimpleNamespace(fingerprint="b" * 64))
    TokenStore.open(store.path, SimpleNamespace(fingerprint="a" * 64))


def test_what_is_not_a_whole_store_is_refused(store, tmp_path):
    with pytest.raises(DataError, match="no such token store"):
        TokenStore.open(tmp_path / "nowhere")
    with pytest.raises(DataError, match="not a token store"):
        TokenStore.open(tmp_path)
    manifest = store.path / "manifest.json"
    text = manifest.read_text()
    manifest.unlink()
    with pytest.raises(DataError, match="unfinished store; rerun the same litebert corpus build to resume"):
        TokenStore.open(store.path)
    for content in ("", "{", "[]", "{}", json.dumps({"format": "litebert-token-store", "version": 99})):
        manifest.write_text(content)
        with pytest.raises(DataError, match=r"manifest\.json"):
            TokenStore.open(store.path)
    manifest.write_text(text)
    TokenStore.open(store.path).verify()


def flip(file, place, bit=0):
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)


def use(path):
    """Open a store and read all of its tokens, as training does."""
    store = TokenStore.open(path)
    starts = store.sentence_offsets
    return store.gather(starts[:-1], starts[1:]).tolist(), store.read(0, store.num_tokens).tolist()


def test_every_flipped_bit_of_what_is_used_is_noticed(store):
    """Whichever file it is in; in a part, what Arrow keeps around the tokens is for `verify`."""
    whole = use(store.path)
    tokens = np.zeros(store.part_paths[0].stat().st_size, bool)
    for begin, end in zip(store._batch_starts[:-1], store._batch_starts[1:], strict=True):
        shift = store._batch_shift[np.searchsorted(store._batch_starts, begin, side="right") - 1]
        tokens[2 * (begin + shift) : 2 * (end + shift)] = True
    draw = np.random.default_rng(0)
    files = sorted(path for path in store.path.rglob("*") if path.is_file())
    assert len(files) == 6  # a part, four indices, the manifest
    for file in files:
        content = file.read_bytes()
        for place in draw.integers(0, len(content), 60):
            flip(file, place, int(draw.integers(8)))
            store_module._whole.clear()  # a change within one tick of the file system's clock
            message = ""
            try:
                assert use(store.path) == whole
            except DataError as error:
                message = str(error)
            harmless = not message
            assert harmless or (str(file.parent) in message and "\n" not in message)
            if file.suffix == ".arrow":
                assert harmless != tokens[place]
                assert str(file) in find_damage(store.path)[0]
            elif file.suffix == ".npy":
                assert not harmless
            else:  # a space between two values of the manifest may become a line break and mean the same
                assert not harmless or read_manifest(store.path) == store.manifest
            file.write_bytes(content)
    store_module._whole.clear()
    assert find_damage(store.path) == []


def test_damage_is_named(store):
    part = store.part_paths[0]
    content = part.read_bytes()
    part.write_bytes(content[:-10])
    with pytest.raises(DataError, match=r"part-00000\.arrow: damaged: .* bytes instead of .*; restore the file"):
        TokenStore.open(store.path)
    part.unlink()
    with pytest.raises(DataError, match=r"part-00000\.arrow: missing; restore the file"):
        TokenStore.open(store.path)
    part.write_bytes(content)
    index = store.path / "index" / "sentence_offsets.npy"
    offsets = index.read_bytes()
    index.write_bytes(offsets[:-8])
    with pytest.raises(DataError, match=r"sentence_offsets\.npy: damaged: checksum mismatch"):
        TokenStore.open(store.path)
    flip(part, len(content) // 2)
    messages = find_damage(store.path)
    assert [part.name in messages[0], index.name in messages[1], len(messages)] == [True, True, 2]
    index.unlink()
    with pytest.raises(DataError, match=r"sentence_offsets\.npy: missing"):
        TokenStore.open(store.path)
    with pytest.raises(DataError, match=r"part-00000(.|\n)*sentence_offsets"):
        store.verify()


def test_tables_of_a_damaged_store_are_refused(store):
    flip(store.part_paths[0], 5000)
    with pytest.raises(DataError, match=r"part-00000\.arrow: damaged: checksum mismatch"):
        TokenStore.open(store.path).table()


def make_old(store):
    """The store as litebert 0.1 wrote it: SHA-256 alone."""
    manifest = {k: v for k, v in store.manifest.items() if k not in ("index_crc32", "sha256")}
    manifest["index"].pop("checksums.npy")
    (store.path / "index" / "checksums.npy").unlink()
    (store.path / "manifest.json").write_text(json.dumps(manifest))


def test_stores_without_checksums_of_batches(store):
    whole = use(store.path)
    make_old(store)
    assert use(store.path) == whole
    assert find_damage(store.path) == []
    flip(store.part_paths[0], 5000)
    with pytest.raises(DataError, match=r"part-00000\.arrow: damaged: checksum mismatch"):
        use(store.path)
    flip(store.part_paths[0], 5000)
    flip(store.path / "index" / "batches.npy", 200)
    with pytest.raises(DataError, match=r"batches\.npy: damaged"):
        use(store.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": 5},
        {"tokens": -1},
        {"documents": "many"},
        {"parts": []},
        {"parts": [{}]},
        {"parts": 5},
        {"dtype": "float64"},
        {"dtype": "uint32"},
        {"tokenizer": {"fingerprint": "a" * 64, "vocab_size": 10**9}},
        {"tokenizer": None},
        {"index": {}},
        {"index": {"../../x.npy": "a"}},
    ],
)
def test_manifests_that_do_not_fit_together(store, changes):
    make_old(store)  # with nothing but its own words to be checked by
    file = store.path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(DataError, match=r"manifest\.json: damaged: its entries are inconsistent; restore"):
        TokenStore.open(store.path)


def test_a_manifest_has_a_checksum_of_its_own(store):
    file = store.path / "manifest.json"
    file.write_text(file.read_text().replace('"text_bytes"', '"text_byteS"').replace("a" * 64, "a" * 63 + "b"))
    with pytest.raises(DataError, match=r"manifest\.json: damaged"):
        TokenStore.open(store.path)


def test_ids_outside_of_the_vocabulary(tmp_path):
    store = TokenStore.write(tmp_path / "store", [[[7, 8, 9]]], "a" * 64, 10)
    make_old(store)
    file = store.path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tokenizer": {"fingerprint": "a", "vocab_size": 9}}))
    with pytest.raises(DataError, match="contains token 9, but the vocabulary has only 9"):
        TokenStore.open(store.path).read(0, 1)


def test_each_file_is_checked_once_per_process(store, monkeypatch):
    read, crc32 = [], store_module._file_crc32
    monkeypatch.setattr(store_module, "_file_crc32", lambda file: read.append(file.name) or crc32(file))
    monkeypatch.setattr(store_module, "_whole", set())
    TokenStore.open(store.path)
    assert sorted(read) == ["batches.npy", "checksums.npy", "document_offsets.npy", "sentence_offsets.npy"]
    pickled = pickle.dumps(TokenStore.open(store.path))
    store_module._whole.clear()  # as in a process that is new
    assert pickle.loads(pickled).num_tokens == store.num_tokens
    assert len(read) == 4
    os.utime(store.path / "index" / "batches.npy", (1, 1))
    pickle.loads(pickled)
    assert read[4:] == ["batches.npy"]


def test_tokens_are_checked_when_they_are_first_read(store, monkeypatch):
    checked, check = [], TokenStore._check_batch
    monkeypatch.setattr(TokenStore, "_check_batch", lambda self, batch: checked.append(batch) or check(self, batch))
    fresh = TokenStore.open(store.path)
    assert checked == []
    fresh.read(0, 10)
    fresh.read(5, 10)
    assert checked == [0]
    fresh.gather([2, 700, 720, 3], [4, 710, 725, 5])
    assert checked == [0, 2]
    fresh.read(0, fresh.num_tokens)
    assert sorted(checked) == list(range(len(fresh._unchecked)))


def test_content_is_told_by_its_sum(store, documents, tmp_path):
    same = TokenStore.write(tmp_path / "same", documents, "a" * 64, 30_000)
    assert same.content_sum == store.content_sum
    documents[3][0][0] ^= 1
    other = TokenStore.write(tmp_path / "other", documents, "a" * 64, 30_000)
    assert other.content_sum != store.content_sum
