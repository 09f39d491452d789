"""TensorFlow's V2 bundles: what real TensorFlow wrote is read exactly; anything else ends in a CheckpointError."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import CheckpointError
from litebert.model.tf_checkpoint import find_bundle, read_bundle
from litebert.model.tf_index import crc32c, mask_crc

FIXTURES = Path(__file__).parent / "fixtures" / "tf"
MODELS = sorted(path.parent.name for path in FIXTURES.glob("*/expected.npz"))
T = TypeVar("T")
KERNEL = "bert/encoder/transformer/group_0/inner_group_0/attention_1/self/query/kernel"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A copy of the base checkpoint that a test may damage; its prefix."""
    shutil.copytree(FIXTURES / "base", tmp_path / "base")
    return tmp_path / "base" / "model.ckpt-best"


def index_of(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".index")


def data_of(prefix: Path, shard: int = 0, shards: int = 1) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")


def read_all(source: Path | str) -> dict[str, np.ndarray]:
    return dict(read_bundle(source).items())


def check_read_or_refused(read: Callable[[], T]) -> T | str:
    try:
        return read()
    except CheckpointError as error:
        return str(error)


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, strict=True, err_msg=name)


# --- what TensorFlow wrote ---


def test_every_fixture_is_tested() -> None:
    assert len(MODELS) == 14
    assert {path.parent.name for path in FIXTURES.glob("*/*.index")} == {*MODELS, "several"}


@pytest.mark.parametrize("model", MODELS)
def test_equals_what_tensorflow_held(model: str) -> None:
    with np.load(FIXTURES / model / "expected.npz") as expected:
        assert_equal(read_all(FIXTURES / model), dict(expected))


@pytest.mark.parametrize("model", MODELS)
def test_shapes_and_dtypes_come_from_the_index(model: str) -> None:
    checkpoint = read_bundle(FIXTURES / model)
    with np.load(FIXTURES / model / "expected.npz") as expected:
        assert checkpoint.shapes == {name: expected[name].shape for name in expected}
        dtypes = {name: str(expected[name].dtype) for name in expected}
    if model == "dtypes":
        dtypes["bfloat16"] = "bfloat16"  # the reference is float32, as is what we return
    assert checkpoint.dtypes == dtypes


def test_two_shards_hold_the_same_as_one() -> None:
    assert_equal(read_all(FIXTURES / "two_shards"), read_all(FIXTURES / "base"))


def test_slices_are_assembled() -> None:
    assert_equal(read_all(FIXTURES / "partitioned"), read_all(FIXTURES / "base"))


def test_strings_are_skipped_with_the_reason() -> None:
    checkpoint = read_bundle(FIXTURES / "dtypes")
    assert checkpoint.skipped == {"string": "holds strings, not numbers"}
    assert "string" not in checkpoint
    with pytest.raises(CheckpointError, match="'string' holds strings"):
        checkpoint.tensor("string")


def test_behaves_like_a_collection_of_names() -> None:
    checkpoint = read_bundle(FIXTURES / "base")
    assert len(checkpoint) == 32 == len(list(checkpoint))
    assert list(checkpoint) == list(checkpoint.names) == sorted(checkpoint.names)
    assert KERNEL in checkpoint
    assert f"{KERNEL}/adam_m" not in checkpoint
    assert "32 tensors" in repr(checkpoint)


def test_arrays_belong_to_the_caller() -> None:
    checkpoint = read_bundle(FIXTURES / "base")
    array = checkpoint.tensor(KERNEL)
    assert array.flags.writeable
    assert array.flags.aligned
    array += 1
    np.testing.assert_allclose(checkpoint.tensor(KERNEL), array - 1, atol=1e-6)


def test_unknown_name_shows_the_nearest() -> None:
    with pytest.raises(CheckpointError, match="no tensor 'bert/pooler/dense/kernl'; did you mean 'bert/pooler"):
        read_bundle(FIXTURES / "base").tensor("bert/pooler/dense/kernl")


# --- finding the bundle ---


@pytest.mark.parametrize("suffix", ["", ".index", ".data-00000-of-00001", ".meta"])
def test_found_by_prefix_and_by_any_file(suffix: str) -> None:
    source = FIXTURES / "base" / f"model.ckpt-best{suffix}"
    assert find_bundle(source) == find_bundle(str(source)) == FIXTURES / "base" / "model.ckpt-best"


def test_found_in_a_folder() -> None:
    assert find_bundle(FIXTURES / "base") == FIXTURES / "base" / "model.ckpt-best"


def test_found_in_a_hub_module(base: Path, tmp_path: Path) -> None:
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "saved_model.pb").write_bytes(b"graph")
    base.parent.rename(tmp_path / "module" / "variables")
    assert KERNEL in read_bundle(tmp_path / "module")


def test_several_checkpoints_the_file_of_tensorflow_decides() -> None:
    for source in (FIXTURES / "several", FIXTURES / "several" / "checkpoint"):
        assert read_bundle(source).tensor("global_step") == 200
    assert read_bundle(FIXTURES / "several" / "model.ckpt-100").tensor("global_step") == 100


@pytest.mark.parametrize("path", ["/home/trainer/run/model.ckpt-100", "C:\\\\run\\\\model.ckpt-100", "model.ckpt-100"])
def test_several_checkpoints_the_hint_may_name_another_machine(tmp_path: Path, path: str) -> None:
    shutil.copytree(FIXTURES / "several", tmp_path / "several")
    (tmp_path / "several" / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
    assert find_bundle(tmp_path / "several").name == "model.ckpt-100"


@pytest.mark.parametrize("hint", [None, 'model_checkpoint_path: "model.ckpt-300"', "nonsense"])
def test_several_checkpoints_without_a_hint_are_listed(tmp_path: Path, hint: str | None) -> None:
    shutil.copytree(FIXTURES / "several", tmp_path / "several")
    (tmp_path / "several" / "checkpoint").unlink()
    if hint is not None:
        (tmp_path / "several" / "checkpoint").write_text(hint)
    with pytest.raises(CheckpointError, match=r"several checkpoints.*: model.ckpt-100, model.ckpt-200"):
        read_bundle(tmp_path / "several")


def test_no_such_checkpoint(base: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no such TensorFlow checkpoint; did you mean 'model.ckpt-best'"):
        read_bundle(base.with_name("model.ckpt-bets"))
    with pytest.raises(CheckpointError, match="no such TensorFlow checkpoint"):
        read_bundle(tmp_path / "nowhere" / "model.ckpt")


def test_folder_without_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".index").write_text("a name without a prefix")
    (tmp_path / "folder.index").mkdir()
    with pytest.raises(CheckpointError, match=r"not a TensorFlow checkpoint; expected NAME.index .* \.tar\.gz"):
        read_bundle(tmp_path)


@pytest.mark.parametrize("name", ["albert.tar.gz", "model.safetensors", ".index"])
def test_another_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(CheckpointError, match=f"{name}: not a TensorFlow checkpoint; expected"):
        read_bundle(tmp_path / name)


@pytest.mark.parametrize("source", ["v1_format", "v1_format/model.ckpt-best"])
def test_old_format_is_named(source: str) -> None:
    with pytest.raises(CheckpointError, match=r"model.ckpt-best: a checkpoint in TensorFlow's old V1 format.*Saver"):
        read_bundle(FIXTURES / source)


def test_old_format_with_the_suffix_of_the_new(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "v1_format" / "model.ckpt-best", tmp_path / "model.ckpt.index")
    with pytest.raises(CheckpointError, match=r"model.ckpt.index: a field should be a number"):
        read_bundle(tmp_path)


def test_data_without_index(base: Path) -> None:
    index_of(base).unlink()
    for source in (base, data_of(base), index_of(base)):
        with pytest.raises(CheckpointError, match=r"model.ckpt-best.index: missing; data files cannot be read"):
            read_bundle(source)


def test_unreadable_index_is_a_message(base: Path) -> None:
    long_name = base.with_name("x" * 5000)
    with pytest.raises(CheckpointError, match="cannot be read: File name too long"):
        read_bundle(long_name)


# --- damage ---


def test_missing_shard(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "two_shards", tmp_path / "two")
    data_of(tmp_path / "two" / "model.ckpt-best", 1, 2).unlink()
    with pytest.raises(CheckpointError, match=r"data-00001-of-00002: missing; it holds 'bert/.*Put all 2 data file"):
        read_bundle(tmp_path / "two")


def test_shard_lost_after_opening(base: Path) -> None:
    checkpoint = read_bundle(base)
    data_of(base).unlink()
    with pytest.raises(CheckpointError, match=f"data-00000-of-00001: tensor '{KERNEL}' cannot be read"):
        checkpoint.tensor(KERNEL)


def test_shard_cut_after_opening(base: Path) -> None:
    checkpoint = read_bundle(base)
    data_of(base).write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"tensor '{KERNEL}': does not match its checksum"):
        checkpoint.tensor(KERNEL)


def test_data_cut_anywhere(base: Path) -> None:
    whole = data_of(base).read_bytes()
    for size in (0, 1, *range(7, len(whole), 997), len(whole) - 1):
        data_of(base).write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"data-00000-of-00001: cut short: tensor '.*' ends at byte"):
            read_bundle(base)


def test_data_changed_anywhere(base: Path) -> None:
    whole = data_of(base).read_bytes()
    expected = read_all(base)
    for position in range(0, len(whole), 911):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        data_of(base).write_bytes(changed)
        checkpoint = read_bundle(base)
        damaged = set()
        for name in checkpoint:
            found = check_read_or_refused(lambda read=checkpoint.tensor, name=name: read(name))
            if isinstance(found, str):
                assert f"{data_of(base)}: tensor {name!r}: does not match its checksum" in found
                damaged.add(name)
            else:
                np.testing.assert_array_equal(found, expected[name])
        assert len(damaged) == 1


def test_index_cut_anywhere(base: Path) -> None:
    whole = index_of(base).read_bytes()
    for size in (*range(0, len(whole) - 60, 3), *range(len(whole) - 60, len(whole))):
        index_of(base).write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"model.ckpt-best.index: .*; copy or download"):
            read_bundle(base)


def test_index_changed_anywhere(base: Path) -> None:
    """A changed byte is noticed, or it is one of the few that mean nothing and then every value is still right."""
    whole = index_of(base).read_bytes()
    expected = read_all(base)
    unnoticed = 0
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        index_of(base).write_bytes(changed)
        found = check_read_or_refused(lambda: read_all(base))
        if isinstance(found, str):
            assert str(base) in found
        else:
            assert_equal(found, expected)
            unnoticed += 1
    # Only the footer has no checksum: the handle of the unused meta block and the filling up to 40 bytes. The empty
    # meta block (8 bytes and its trailer of 5) is never read either.
    assert unnoticed <= 40 + 13


# --- indexes of our own making: layouts that TensorFlow may write but did not, and lies with a valid checksum ---

FLOAT, UINT8, BFLOAT16 = 1, 4, 14


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def header(num_shards: int = 1, endianness: int = 0, needed_version: int = 0) -> bytes:
    return field(1, num_shards) + field(2, endianness) + field(3, field(1, 1) + field(2, needed_version))


def entry(data: bytes, shape: tuple[int, ...], dtype: int = FLOAT, shard: int = 0, offset: int = 0) -> bytes:
    dims = b"".join(field(2, field(1, size)) for size in shape)
    crc = varint(6 << 3 | 5) + mask_crc(crc32c(data)).to_bytes(4, "little")
    places = field(3, shard) + field(4, offset) + field(5, len(data))
    return field(1, dtype) + field(2, dims) + places + crc


def block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """Entries with compressed keys: each says how much of the key before it repeats."""
    content, before = b"", b""
    for key, value in entries:
        shared = next((i for i, (a, b) in enumerate(zip(key, before, strict=False)) if a != b), None)
        shared = min(len(key), len(before)) if shared is None else shared
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return content + (0).to_bytes(4, "little") + (1).to_bytes(4, "little")


def table(blocks: list[tuple[bytes, bytes]], compression: int = 0) -> bytes:
    """A sorted table of (last key, content) blocks, all with valid checksums."""
    file, handles = b"", []
    index_and_blocks = [*blocks, (b"", b"")]
    for last_key, content in index_and_blocks:
        content = content or block(handles)
        if compression == 1:
            content = pyarrow.compress(content, codec="snappy", asbytes=True)
        handles.append((last_key, varint(len(file)) + varint(len(content))))
        content += bytes([compression])
        file += content + mask_crc(crc32c(content)).to_bytes(4, "little")
    footer = varint(0) + varint(0) + handles[-1][1]
    return file + footer.ljust(40, b"\0") + 0xDB4775248B80FB57.to_bytes(8, "little")


def write_bundle(
    folder: Path, entries: list[tuple[bytes, bytes]], data: bytes = b"", per_block: int = 99, **kw
) -> Path:
    groups = [entries[i : i + per_block] for i in range(0, len(entries), per_block)]
    (folder / "m.index").write_bytes(table([(group[-1][0], block(group)) for group in groups], **kw))
    (folder / "m.data-00000-of-00001").write_bytes(data)
    return folder / "m"


@pytest.mark.parametrize("compression", [0, 1])
@pytest.mark.parametrize("per_block", [1, 3, 100])
def test_many_blocks_and_snappy(tmp_path: Path, compression: int, per_block: int) -> None:
    arrays = {f"bert/layer_{i:03d}/kernel": np.full((i, 2), i, np.float32) for i in range(40)}
    data = b"".join(array.tobytes() for array in arrays.values())
    entries, offset = [(b"", header())], 0
    for name, array in arrays.items():
        entries.append((name.encode(), entry(array.tobytes(), array.shape, offset=offset)))
        offset += array.nbytes
    prefix = write_bundle(tmp_path, entries, data, per_block, compression=compression)
    assert_equal(read_all(prefix), arrays)


@pytest.mark.parametrize(
    ("dtype", "data"), [(FLOAT, np.float32(-1.5).tobytes()), (BFLOAT16, np.float32(-1.5).tobytes()[2:])]
)
def test_scalars_are_arrays(tmp_path: Path, dtype: int, data: bytes) -> None:
    prefix = write_bundle(tmp_path, [(b"", header()), (b"a", entry(data, (), dtype))], data)
    array = read_bundle(prefix).tensor("a")
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array, np.array(-1.5, np.float32), strict=True)


@pytest.mark.parametrize(
    ("content", "compression", "message"),
    [
        (b"\x05abc", 2, "unknown compression"),
        (b"\xff\xff\xff\xff\x0fabc", 1, "compressed block is damaged"),
        (b"\x08\xf0", 1, "compressed block is damaged"),
    ],
)
def test_unreadable_blocks(tmp_path: Path, content: bytes, compression: int, message: str) -> None:
    content += bytes([compression])
    file = content + mask_crc(crc32c(content)).to_bytes(4, "little")
    handle = varint(0) + varint(len(content) - 1)
    footer = (varint(0) + varint(0) + handle).ljust(40, b"\0") + 0xDB4775248B80FB57.to_bytes(8, "little")
    (tmp_path / "m.index").write_bytes(file + footer)
    with pytest.raises(CheckpointError, match=message):
        read_bundle(tmp_path / "m")


EIGHT = np.arange(2, dtype=np.float32).tobytes()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([(b"a", entry(EIGHT, (2,)))], "its header names 0 data files"),
        ([(b"", header(0))], "its header names 0 data files"),
        ([(b"", header(endianness=1))], "big-endian"),
        ([(b"", header(needed_version=2))], "needs a reader of format version 2"),
        ([(b"", header()), (b"a", entry(EIGHT, (3,)))], "tensor 'a': shape .3,. does not fit its 8 bytes"),
        ([(b"", header()), (b"a", entry(EIGHT, (-2, -1)))], "negative"),
        ([(b"", header()), (b"a", entry(b"", (0, 2**61)))], "does not fit its 0 bytes"),
        ([(b"", header()), (b"a", entry(b"", (0,) * 70))], "does not fit its 0 bytes"),
        ([(b"", header()), (b"a", entry(EIGHT, (2,), shard=1))], "is in m.data-00001-of-00001, which does not exist"),
        ([(b"", header()), (b"a", entry(EIGHT, (2,), offset=-8))], "negative"),
        ([(b"", header()), (b"a", entry(EIGHT, (2,), offset=2**62))], "cut short: tensor 'a' ends at"),
        ([(b"", header()), (b"\xff", entry(EIGHT, (3,)))], r"tensor '\\\\xff': shape"),
        ([(b"", header()), (b"a", b"\x0b")], "unknown kind 3"),
        ([(b"", header()), (b"a", field(1, b"1"))], "should be a number"),
        ([(b"", header()), (b"a", field(2, 1))], "should be a message"),
        ([(b"", header()), (b"a", b"\x2a\x05abc")], "runs past the end"),
        ([(b"", header()), (b"a", b"\x08")], "runs past the end"),
        ([(b"", header()), (b"a", b"\x08" + b"\xff" * 12)], "runs past the end"),
    ],
)
def test_lies_with_a_valid_checksum(tmp_path: Path, entries: list[tuple[bytes, bytes]], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_bundle(write_bundle(tmp_path, entries, EIGHT))


def extent(start: int | None = None, length: int | None = None) -> bytes:
    parts = (field(1, start) if start else b"") + (field(2, length) if length is not None else b"")
    return field(7, field(1, parts))


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        (extent(0, 1) + extent(2, 1), r"its slice \(\(2, 1\),\) is not in the index"),
        (extent(0, 1), r"its 1 slices do not fill shape \(2,\)"),
        (extent(1, 2), r"its slice \(\(1, 2\),\) does not fit shape \(2,\)"),
        (field(7, b""), r"its slice \(\) is not in the index"),
    ],
)
def test_slices_that_do_not_fit(tmp_path: Path, slices: bytes, message: str) -> None:
    # Keys of slices: 0, "a", end of the name, one axis in one byte; then start and length, one byte each.
    keys = {(0, 1): b"\0a\0\1\1\1\x80\x81", (1, 2): b"\0a\0\1\1\1\x81\x82", (1, 1): b"\0a\0\1\1\1\x81\x81"}
    parts = [(keys[0, 1], entry(b"x", (1,), UINT8)), (keys[1, 1], entry(b"y", (1,), UINT8, offset=1))]
    parts.append((keys[1, 2], entry(b"xy", (2,), UINT8)))
    whole = field(1, UINT8) + field(2, field(2, field(1, 2)))
    good = write_bundle(tmp_path, [(b"", header()), *parts, (b"a", whole + extent(0, 1) + extent(1, 1))], b"xy")
    assert read_bundle(good).tensor("a").tobytes() == b"xy"
    with pytest.raises(CheckpointError, match=f"tensor 'a': {message}"):
        read_bundle(write_bundle(tmp_path, [(b"", header()), *parts, (b"a", whole + slices)], b"xy"))


def edits(data: bytes, choices: st.DataObject) -> bytes:
    """Some bytes changed, put in or taken out."""
    changed = bytearray(data)
    for _ in range(choices.draw(st.integers(1, 3))):
        position = choices.draw(st.integers(0, max(len(changed) - 1, 0)))
        old = choices.draw(st.integers(0, 2))
        changed[position : position + old] = choices.draw(st.binary(max_size=3))
    return bytes(changed)


@pytest.fixture(scope="module")
def workshop() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@settings(max_examples=150, deadline=None)
@given(choices=st.data())
def test_damaged_messages_never_escape(workshop: Path, choices: st.DataObject) -> None:
    """Damage behind valid checksums: the parser refuses it or reads on, and raises nothing of its own."""
    entries = [
        (b"", header()),
        (b"\0s\0\1\1\1\x80\x81", entry(b"x", (1,), UINT8)),
        (b"a", entry(EIGHT, (2,))),
        (b"b", entry(EIGHT[4:], (1, 1), offset=4)),
        (b"s", field(1, UINT8) + field(2, field(2, field(1, 1))) + extent(0, 1)),
    ]
    victim = choices.draw(st.integers(0, len(entries) - 1))
    if choices.draw(st.booleans()):
        entries[victim] = (entries[victim][0], edits(entries[victim][1], choices))
    else:
        entries[victim] = (edits(entries[victim][0], choices), entries[victim][1])
    prefix = write_bundle(workshop, entries, EIGHT)
    check_read_or_refused(lambda: read_all(prefix))


@settings(max_examples=150, deadline=None)
@given(choices=st.data())
def test_damaged_blocks_never_escape(workshop: Path, choices: st.DataObject) -> None:
    content = edits(block([(b"", header()), (b"a/kernel", entry(EIGHT, (2,))), (b"a/key", entry(b"", (0,)))]), choices)
    (workshop / "m.index").write_bytes(table([(b"a", content)], compression=choices.draw(st.integers(0, 2))))
    (workshop / "m.data-00000-of-00001").write_bytes(EIGHT)
    check_read_or_refused(lambda: read_all(workshop / "m"))


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=100), footer=st.booleans())
def test_noise_never_escapes(workshop: Path, content: bytes, footer: bool) -> None:
    magic = 0xDB4775248B80FB57.to_bytes(8, "little") if footer else b""
    (workshop / "m.index").write_bytes(content + magic)
    with pytest.raises(CheckpointError):
        read_bundle(workshop / "m")
