"""The token store: what goes in comes out, as views; nothing half or foreign is opened."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DataError, InputError
from litebert.text import store_writer
from litebert.text.store import TokenStore


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
    with pytest.raises(InputError, match="document 200 of 200"):
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
    with pytest.raises(DataError, match="unfinished; run the same litebert corpus build again"):
        TokenStore.open(store.path)
    for content in ("", "{", "[]", "{}", json.dumps({"format": "litebert-token-store", "version": 99})):
        manifest.write_text(content)
        with pytest.raises(DataError, match=r"manifest\.json"):
            TokenStore.open(store.path)
    manifest.write_text(text)
    TokenStore.open(store.path).verify()


def test_damage_is_noticed(store):
    part = store.part_paths[0]
    whole = part.read_bytes()
    part.write_bytes(whole[:-10])
    with pytest.raises(DataError, match="the store is damaged"):
        TokenStore.open(store.path)
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    part.write_bytes(changed)
    with pytest.raises(DataError, match="its bytes have changed"):
        TokenStore.open(store.path).verify()
    part.unlink()
    with pytest.raises(DataError, match="is missing"):
        TokenStore.open(store.path)
    part.write_bytes(whole)
    index = store.path / "index" / "sentence_offsets.npy"
    index.write_bytes(index.read_bytes()[:-8])
    with pytest.raises(DataError, match="the store is damaged"):
        TokenStore.open(store.path)
