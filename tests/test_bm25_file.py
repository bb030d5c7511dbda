"""Snapshots: equal to what was kept, and refused, never believed, when a byte of them is wrong."""

import errno
import os
import random
import stat
import struct
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lantern_proxy import mapped
from lantern_proxy.analyze import native as analyze_native
from lantern_proxy.analyze import terms
from lantern_proxy.archive.snapshots import drop_snapshots, folder, snapshot_path
from lantern_proxy.bm25 import BUILT, Index
from lantern_proxy.bm25 import file as bm25_file
from lantern_proxy.bm25.file import Snapshot

native = pytest.mark.skipif(not BUILT, reason="the numpy twin makes no snapshots")
maps = pytest.mark.skipif(not BUILT or os.name == "nt", reason="no snapshots, or none is mapped here")
KERNELS = ["numpy", *(["scalar", None] if BUILT else [])]

WORDS = ("retry", "policy", "port 9443", "src/a.py", "caf\u00e9", "\u6771\u4eac", "x")
texts = st.lists(
    st.lists(
        st.sampled_from(["retry", "policy", "port 9443", "src/a.py", "caf\u00e9", "\u6771\u4eac", "x"]), max_size=9
    ),
    max_size=30,
)


def same(*indexes: Index) -> bool:
    queries = (["retri"], ["retri", "polici", "x"], ["9443", "\u6771\u4eac"], ["nothing"])
    one = [indexes[0].search(q, 20) for q in queries]
    return all(
        len(each) == len(indexes[0])
        and all(
            np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])
            for a, b in zip(one, [each.search(q, 20) for q in queries], strict=True)
        )
        for each in indexes
    )


def filled(documents: list[list[str]], kernel: str | None = None) -> Index:
    index = Index(kernel=kernel)
    for n, words in enumerate(documents):
        index.add(n, terms(" ".join(words)), n * 1e5)
    return index


@pytest.mark.skipif(not analyze_native.AVAILABLE, reason="only C counts, and only what it reads itself")
def test_what_is_known_of_words_counts_in_the_size():
    with Index() as index:
        index.add(1, ["word"])
        before = index.size_bytes
        index.add_text(2, "a word that is met again")
        assert index.size_bytes - before > 1_000_000  # 65,536 places


@pytest.mark.parametrize("kernel", KERNELS)
@given(documents=texts)
@settings(max_examples=60, deadline=None)
def test_documents_from_text_and_from_lines_are_those_from_terms(kernel, documents):
    expected, by_text, by_lines = filled(documents, kernel), Index(kernel=kernel), Index(kernel=kernel)
    for n, words in enumerate(documents):
        by_text.add_text(n, " ".join(words), n * 1e5)
    lines = ["\n".join(terms(" ".join(words))).encode() for words in documents]
    by_lines.add_lines(range(len(lines)), [n * 1e5 for n in range(len(lines))], lines)
    for index in (by_text, by_lines):
        assert same(expected, index)
        assert [index.df(t) for t in ("retri", "x", "9443")] == [expected.df(t) for t in ("retri", "x", "9443")]
        assert np.array_equal(index.search(["retri"], 9, newest=1)[0], expected.search(["retri"], 9, newest=1)[0])


@pytest.mark.parametrize("kernel", KERNELS)
def test_df_counts_the_documents_that_are_there(kernel):
    with filled([["retry"], ["retry", "retry"], ["policy"]], kernel) as index:
        assert [index.df("retri"), index.df("polici"), index.df("none"), index.df("a\0b")] == [2, 1, 0, 0]
        index.remove(0)
        assert index.df("retri") == 1


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("text", ["http://a\0b", "\ud800 lone", "\U00020000 wide", ""])
def test_text_that_only_the_reference_can_read_is_indexed_all_the_same(kernel, text):
    with Index(kernel=kernel) as index, Index(kernel=kernel) as lines:
        index.add_text(1, text + " port")
        lines.add_lines([1], [0], ["\n".join(terms(text + " port")).encode("utf-8", "surrogatepass")])
        for term in terms(text + " port"):
            assert index.search([term], 1)[0].tolist() == lines.search([term], 1)[0].tolist() == [1]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_document_that_is_refused_leaves_those_before_it(kernel):
    with Index(kernel=kernel) as index:
        with pytest.raises(ValueError, match="document 1 is in the index"):
            index.add_lines([1, 2, 1, 3], [0, 0, 0, 0], [b"a", b"b", b"c", b"d"])
        assert [index.df(t) for t in "abcd"] == [1, 1, 0, 0]
        with pytest.raises(ValueError, match="must agree"):
            index.add_lines([1], [0], [])
        with pytest.raises(ValueError, match="document 2"):
            index.add_text(2, "again")


@native
@given(documents=texts, removed=st.sets(st.integers(0, 29)), later=texts, gone=st.sets(st.integers(0, 129)))
@settings(max_examples=100, deadline=None)
def test_an_index_comes_back_equal_and_goes_on_growing(documents, removed, later, gone):
    """Copied, and searched where it lies in a mapped file, beside the one that was kept."""
    index, copied = filled(documents), Index()
    for n in removed & set(range(len(documents))):
        index.remove(n)
    assert copied.load(index.dump())
    with tempfile.TemporaryDirectory() as folder:
        n, path = len(index), Path(folder) / "x"
        zeros = np.zeros(n, np.int32)
        bm25_file.write(path, Snapshot("a", "s", index, ("s0",), zeros, zeros.astype(np.int64), zeros))
        lying = bm25_file.read(path, archive="a", scope="s").index
    all_of_them = (index, copied, lying)
    assert same(*all_of_them)
    for n, words in enumerate(later):
        for each in all_of_them:
            each.add(100 + n, terms(" ".join(words)), n * 1e5)
    assert same(*all_of_them)
    for n in gone:
        if n in index:
            for each in all_of_them:
                each.remove(n)
    assert same(*all_of_them)
    assert index.search(["retri"], 9, newest=1)[0].tolist() == lying.search(["retri"], 9, newest=1)[0].tolist()


@native
def test_columns_and_counts_above_255_come_back():
    chance, index, again = random.Random(4), Index(), Index()
    for n in range(40_000):
        words = [f"w{int(60 * chance.random() ** 3)}" for _ in range(chance.randint(1, 30))]
        index.add(n, words * 20 if n % 1000 == 7 else words)
    index.add(50_000, ["w0"] * 300 + ["w1"] * 255)
    assert again.load(index.dump())
    for query in (["w0"], ["w1", "w9"], ["w59", "w3", "w0"]):
        (ids, scores), (ids_again, scores_again) = index.search(query, 50), again.search(query, 50)
        assert np.array_equal(ids, ids_again)
        assert np.array_equal(scores, scores_again)


@native
def test_an_index_that_is_not_empty_takes_no_snapshot_and_weights_are_not_kept():
    with filled([["retry"]]) as index, pytest.raises(ValueError, match="not empty"):
        index.load(index.dump())
    with filled([["retry"]]) as index:
        index.add_weights(0, {"splade": 0.5})
        assert index.dump() is None


def snapshot_of(documents: list[list[str]]) -> Snapshot:
    n = len(documents)
    codes, positions = np.arange(n, dtype=np.int32) % 3, np.arange(n, dtype=np.int64)
    return Snapshot("archive", "scope", filled(documents), ("s0", "s1", "s2"), codes, positions, codes + 5, 7)


DOCUMENTS = [["retry", "policy"], ["port 9443", "retry"], ["src/a.py"], []]


@native
def test_a_snapshot_file_holds_all_that_was_kept_and_only_its_owner_reads_it(tmp_path):
    path, kept = tmp_path / "x.index", snapshot_of(DOCUMENTS)
    assert bm25_file.write(path, kept)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = bm25_file.read(path, archive="archive", scope="scope")
    assert same(found.index, kept.index)
    assert (found.sessions, found.last_edit, found.ids.tolist()) == (kept.sessions, 7, [0, 1, 2, 3])
    assert found.codes.tolist() == kept.codes.tolist()
    assert found.times.tolist() == [0, 1e5, 2e5, 3e5]
    assert list(tmp_path.iterdir()) == [path]


@native
@pytest.mark.parametrize(("archive", "scope"), [("other", "scope"), ("archive", "other")])
def test_a_snapshot_of_something_else_is_none(tmp_path, archive, scope):
    bm25_file.write(tmp_path / "x", snapshot_of(DOCUMENTS))
    assert bm25_file.read(tmp_path / "x", archive=archive, scope=scope) is None
    assert bm25_file.read(tmp_path / "absent", archive="archive", scope="scope") is None


@maps
def test_a_damaged_snapshot_is_none_where_files_cannot_be_locked(tmp_path, monkeypatch):
    """As on some network file systems: such a file is read into memory."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    path = tmp_path / "x"
    bm25_file.write(path, snapshot_of(DOCUMENTS))
    monkeypatch.setattr("fcntl.flock", no_locks)
    assert same(opened(path), snapshot_of(DOCUMENTS).index)
    assert bm25_file.read(path, archive="other", scope="scope") is None
    path.write_bytes(path.read_bytes()[:-1])
    assert bm25_file.read(path, archive="archive", scope="scope") is None


@maps
def test_columns_of_one_snapshot_with_the_index_of_another_are_none(tmp_path):
    path = tmp_path / "x"
    bm25_file.write(path, snapshot_of(DOCUMENTS))
    whole, dumped = path.read_bytes(), snapshot_of(DOCUMENTS).index.dump()
    path.write_bytes(whole.removesuffix(dumped) + snapshot_of(DOCUMENTS[:2]).index.dump())
    assert bm25_file.read(path, archive="archive", scope="scope") is None


def opened(path: Path) -> Index:
    found = bm25_file.read(path, archive="archive", scope="scope")
    assert found is not None
    return found.index


@maps
def test_what_is_removed_while_it_is_mapped_stays_searchable_and_is_overwritten_by_the_last_who_lets_go(tmp_path):
    path, kept = tmp_path / "x", snapshot_of(DOCUMENTS)
    bm25_file.write(path, kept)
    one, two = opened(path), opened(path)
    with path.open("rb") as file:
        mapped.remove(path)
        assert not path.exists()
        assert same(kept.index, one, two)
        one.close()
        assert any(file.read())
        assert same(kept.index, two)
        two.close()
        file.seek(0)
        assert not any(file.read())


@maps
def test_a_snapshot_that_another_takes_the_place_of_is_not_touched(tmp_path):
    path, kept = tmp_path / "x", snapshot_of(DOCUMENTS)
    bm25_file.write(path, kept)
    with opened(path) as one, path.open("rb") as file:
        bm25_file.write(path, snapshot_of(DOCUMENTS[:1]))
        assert same(kept.index, one)
        one.close()
        assert any(file.read(8))
    with opened(path) as one:
        assert len(one) == 1


def test_what_nobody_has_mapped_is_overwritten_at_once_and_opens_no_more(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"what was said")
    with path.open("rb") as file:
        mapped.remove(path)
        assert file.read() == bytes(13)
    assert mapped.open_file(path) is None
    mapped.remove(path)
    path.touch()
    assert mapped.open_file(path) is None
    mapped.remove(path)
    assert not path.exists()


@maps
def test_searches_go_on_while_a_mapped_index_grows(tmp_path):
    path, done = tmp_path / "x", threading.Event()
    bm25_file.write(path, snapshot_of(DOCUMENTS * 300))
    expected, index = filled(DOCUMENTS * 300), opened(path)
    wrong: list[object] = []

    def watch() -> None:
        while not done.is_set():
            ids, scores = index.search(["retri", "9443"], 50)
            if not 40 <= len(ids) <= 50 or (scores[1:] > scores[:-1]).any():
                wrong.append((ids, scores))

    threads = [threading.Thread(target=watch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(2000):
        for each in (expected, index):
            each.add(10_000 + n, terms(" ".join(DOCUMENTS[n % 4])))
            if n % 3 == 0:
                each.remove(n // 3)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert same(expected, index)


def bytes_of(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("kept") / "x"
    bm25_file.write(path, snapshot_of(DOCUMENTS * 5))
    return path.read_bytes()


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> bytes:
    return bytes_of(tmp_path_factory)


@native
def test_every_bit_that_flips_and_every_cut_is_noticed(kept):
    assert bm25_file.unpack(kept, archive="archive", scope="scope") is not None
    for place in range(len(kept)):
        flipped = bytearray(kept)
        flipped[place] ^= 1 << place % 8
        assert bm25_file.unpack(bytes(flipped), archive="archive", scope="scope") is None
        assert bm25_file.unpack(kept[:place], archive="archive", scope="scope") is None


@native
@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_no_snapshot(data):
    assert bm25_file.unpack(data, archive="archive", scope="scope") is None
    assert not Index().load(data)
    assert not Index().load(b"LNTRBM25" + struct.pack("<II", 2, 0x01020304) + data)


def checked(data: bytearray) -> bytes:
    """With the checksum that belongs to it, so that what is wrong must be noticed by itself."""
    mask, lanes, total = (1 << 64) - 1, list(range(1, 9)), len(data)
    data[88:96] = bytes(8)
    for i in range(0, len(data), 8):
        mixed = ((lanes[i >> 3 & 7] ^ int.from_bytes(data[i : i + 8], "little")) * 0x9E3779B97F4A7C15) & mask
        lanes[i >> 3 & 7] = (mixed << 31 | mixed >> 33) & mask
    for lane in lanes:
        total = ((total ^ lane) * 0xD6E8FEB86659FD93) & mask
        total ^= total >> 32
    data[88:96] = total.to_bytes(8, "little")
    return bytes(data)


@native
@given(st.data())
@settings(max_examples=500, deadline=None)
def test_a_forged_snapshot_with_a_right_checksum_is_refused_or_searchable(data):
    """Whatever stands in it, nothing outside of it is read: see also native/bm25_test.c under the sanitizers."""
    forged = bytearray(filled(DOCUMENTS * 3).dump())
    assert checked(bytearray(forged)) == bytes(forged)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(forged) - 1))
        forged[at] = data.draw(st.integers(0, 255))
    index = Index()
    if index.load(checked(forged), data.draw(st.sampled_from([None, lambda: None]))):
        index.add(99, ["retri"])
        ids, _ = index.search(["retri", "9443", "polici"], 50)
        assert len(set(ids.tolist())) == len(ids) <= len(index)


@native
def test_a_head_that_is_no_json_object_is_refused(kept):
    for head in (
        b"[]",
        b"{}",
        b'{"archive":"archive","scope":"scope","sessions":[1],"last_edit":1}',
        b"\xff",
        b"[" * 9999,
    ):
        crc = zlib.crc32(head)
        data = struct.pack("<8sIIII", b"LNTRSNAP", bm25_file._VERSION, len(head), 0, crc) + head + Index().dump()
        assert bm25_file.unpack(data, archive="archive", scope="scope") is None


def test_names_tell_nothing_of_a_tenant_and_each_tenants_go_alone(tmp_path):
    archive = tmp_path / "lantern.db"
    assert snapshot_path(archive, "alice", "all", make=False) is None
    paths = {(t, s): snapshot_path(archive, t, s) for t in ("alice", "bob") for s in ("all", "project p")}
    assert len(set(paths.values())) == 4
    for path in paths.values():
        path.write_bytes(b"what alice said")
        assert path.parent == folder(archive)
        assert not any(word in str(path.relative_to(tmp_path)) for word in ("alice", "bob", "all-", "project"))
    assert stat.S_IMODE(folder(archive).stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in folder(archive).iterdir() if p.name == "salt")
    assert drop_snapshots(archive, "alice") == 2
    assert [path.exists() for path in paths.values()] == [False, False, True, True]
    assert drop_snapshots(archive) == 2
    assert drop_snapshots(tmp_path / "none.db") == 0
