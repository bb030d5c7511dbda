"""The index against a float64 reference, and its kernels against one another."""

import math
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lantern_proxy import bm25
from lantern_proxy.bm25 import PARTITION_S, Index, best_kernel, kernels

KERNELS = kernels()
WORDS = [f"w{i}" for i in range(12)]


@pytest.fixture(params=KERNELS)
def index(request):
    with Index(kernel=request.param) as index:
        yield index


def reference(docs, query, *, k1=0.9, b=0.4, weights=None):
    """doc id -> BM25 score in float64, straight from the formula; docs: id -> terms, weights: id -> {term: weight}."""
    mean = sum(map(len, docs.values())) / max(1, len(docs)) or 1
    counts = {doc_id: Counter(terms) for doc_id, terms in docs.items()}
    scores = dict.fromkeys(docs, 0.0)
    for term in query:
        df = sum(term in c for c in counts.values())
        idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
        for doc_id, terms in docs.items():
            tf = counts[doc_id][term]
            norm = k1 * (1 - b + b * len(terms) / mean)
            scores[doc_id] += (idf * tf / (tf + norm) if tf else 0.0) + (weights or {}).get(doc_id, {}).get(term, 0.0)
    return scores


def assert_best(result, scores, k):
    """The result is the top k of the float64 scores; only scores within float32 rounding may stand in another order."""
    ids, found = result
    assert (ids.dtype, found.dtype) == (np.int64, np.float32)
    best = sorted((s for s in scores.values() if s > 0), reverse=True)[:k]
    np.testing.assert_allclose(found, best, rtol=1e-5)
    np.testing.assert_allclose([scores[i] for i in ids.tolist()], best, rtol=1e-5)
    assert len(set(ids.tolist())) == len(ids)
    for (score, doc_id), (next_score, next_id) in zip(
        zip(found, ids, strict=True), zip(found[1:], ids[1:], strict=True), strict=False
    ):
        assert score > next_score or (score == next_score and doc_id > next_id)


def corpus(n, seed=0, vocabulary=300, words=30):
    """n documents of Zipf-distributed terms: id -> terms; ids are not in order of arrival."""
    draw = np.random.default_rng(seed)
    weights = 1 / np.arange(1, vocabulary + 1)
    ids = draw.permutation(3 * n)[:n]
    return {
        int(i): [f"t{t}" for t in draw.choice(vocabulary, draw.integers(1, words + 1), p=weights / weights.sum())]
        for i in ids
    }


def made(kernel, way="auto"):
    """An index; way: "all" scores every document, "bounds" those whose upper bound is large enough, "auto" chooses."""
    index = Index(kernel=kernel)
    if kernel != "numpy":
        index._engine.choose(way)
    return index


WAYS = [(kernel, way) for kernel in KERNELS for way in (("auto",) if kernel == "numpy" else ("all", "bounds"))]


def bits(result):
    return result[0].tolist(), result[1].view(np.int32).tolist()


def run(kernel, n, k, query):
    with Index(kernel=kernel) as index:
        for doc_id, terms in corpus(n).items():
            index.add(doc_id, terms)
        return bits(index.search(query, k))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 128, 1000])  # around the vector width and growth
@pytest.mark.parametrize("k", [1, 8, 100])
def test_all_kernels_agree_bit_for_bit(n, k):
    query = ["t0", "t3", "t0", "t7", "t200", "unknown", "t1"]
    results = [run(kernel, n, k, query) for kernel in KERNELS]
    assert all(result == results[0] for result in results)
    assert len(results[0][0]) <= k
    assert n < 8 or results[0][0]


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (0, 0.4), (2.0, 0), (1.5, 1)])
def test_the_top_k_equals_a_float64_reference(k1, b):
    docs = corpus(800, seed=1)
    for kernel in KERNELS:
        with Index(k1, b, kernel) as index:
            for doc_id, terms in docs.items():
                index.add(doc_id, terms)
            for k, query in [(1, ["t5"]), (10, ["t0", "t1", "t2"]), (100, ["t9", "t9", "t40", "t0"]), (2000, ["t0"])]:
                assert_best(index.search(query, k), reference(docs, query, k1=k1, b=b), k)


terms_of = st.lists(st.sampled_from(WORDS), max_size=12)
ids_of = st.integers(-3, 12) | st.sampled_from([-(2**63), 2**63 - 1])
weights_of = st.dictionaries(st.sampled_from(WORDS), st.floats(-2, 2, width=32), max_size=4)
steps_of = st.lists(
    st.tuples(st.just("add"), ids_of, terms_of, st.integers(0, 5))
    | st.tuples(st.just("remove"), ids_of)
    | st.tuples(st.just("weigh"), ids_of, weights_of)
    | st.tuples(
        st.just("search"), terms_of, st.integers(0, 9), st.none() | st.lists(ids_of), st.none() | st.integers(0, 5),
        st.none() | st.integers(1, 4),
    )
    | st.tuples(st.just("scores"), terms_of),
    max_size=40,
)  # fmt: skip


@given(steps=steps_of)
@settings(max_examples=150, deadline=None)
def test_kernels_agree_and_follow_the_reference_through_adds_removals_weights_and_filters(steps):
    indexes = [made(*way) for way in WAYS]
    docs, weights, weeks = {}, {}, {}
    for name, *given_ in steps:
        if name == "scores":
            check_scores(indexes, docs, weights, *given_)
            continue
        if name == "search":
            check_search(indexes, docs, weights, weeks, *given_)
            continue
        doc_id, rest = given_[0], given_[1:]
        expected = (doc_id in docs) != (name == "add")
        for index in indexes:
            if not expected:
                with pytest.raises(ValueError, match=f"document {doc_id} "):
                    apply(index, name, doc_id, *rest)
            else:
                apply(index, name, doc_id, *rest)
        if expected:
            follow(docs, weights, weeks, name, doc_id, *rest)
        assert {len(index) for index in indexes} == {len(docs)}
        assert {doc_id in index for index in indexes} == {doc_id in docs}
    for index in indexes:
        index.close()


def apply(index, name, doc_id, *rest):
    if name == "add":
        index.add(doc_id, rest[0], time=rest[1] * PARTITION_S)
    elif name == "remove":
        index.remove(doc_id)
    else:
        index.add_weights(doc_id, rest[0])


def follow(docs, weights, weeks, name, doc_id, *rest):
    if name == "add":
        docs[doc_id], weights[doc_id], weeks[doc_id] = rest[0], Counter(), rest[1]
    elif name == "remove":
        del docs[doc_id], weights[doc_id], weeks[doc_id]
    else:
        for term, weight in rest[0].items():
            weights[doc_id][term] += weight


def check_scores(indexes, docs, weights, query):
    """Of each document that is there, in order of arrival (as `docs` has them), the score that a search gives it."""
    expected, exact = reference(docs, query, weights=weights), [index.scores(query) for index in indexes]
    assert all(scores.tobytes() == exact[0].tobytes() for scores in exact)
    assert exact[0].tolist() == pytest.approx([expected.get(doc_id, 0.0) for doc_id in docs], abs=1e-4)
    above = {doc_id: score for doc_id, score in zip(docs, exact[0].tolist(), strict=True) if score > 0}
    ids, best = indexes[0].search(query, len(docs))
    assert dict(zip(ids.tolist(), best.tolist(), strict=True)) == above


def check_search(indexes, docs, weights, weeks, query, k, allow, since, newest):
    bound = None if since is None else since * PARTITION_S
    results = [bits(index.search(query, k, allow=allow, since=bound, newest=newest)) for index in indexes]
    assert all(result == results[0] for result in results)
    newest_weeks = sorted(set(weeks.values()), reverse=True)[:newest]
    scores = {
        doc_id: score
        for doc_id, score in reference(docs, query, weights=weights).items()
        if (allow is None or doc_id in allow) and weeks[doc_id] >= (since or 0) and weeks[doc_id] in newest_weeks
    }
    found = dict(zip(results[0][0], np.array(results[0][1], np.int32).view(np.float32), strict=True))
    assert all(scores[doc_id] == pytest.approx(float(score), abs=1e-4) for doc_id, score in found.items())
    missed = [score for doc_id, score in scores.items() if doc_id not in found]
    least = min(found.values(), default=0.0) if len(found) == k and k else 0.0
    assert k == 0 or all(score <= least + 1e-4 for score in missed)


def test_ways_agree_bit_for_bit_where_columns_bounds_and_chunks_come_into_play():
    """18,000 documents fill one chunk and begin another; a few words are in most of them, most words in few."""
    indexes = [made(*way) for way in WAYS]
    draw = np.random.default_rng(8)
    words = np.array([f"t{i}" for i in range(400)])
    for doc_id in range(18_000):
        terms = words[(400 * draw.random(draw.integers(1, 12)) ** 3).astype(int)].tolist()
        if doc_id % 5 == 0:
            terms += ["t1"] * draw.integers(1, 9)
        for index in indexes:
            index.add(doc_id, terms, time=doc_id)
            if doc_id % 40 == 39:
                index.remove(doc_id - 17)
        if doc_id in (600, 1_500, 2_500, 9_000, 16_500, 17_999):
            agree_on_queries(indexes, draw, words, doc_id)
    for index in indexes:
        index.close()


@pytest.mark.parametrize(("n", "k1", "b"), [(28_089, 0.9, 0.4), (20_000, 1e9, 1), (20_000, 1e36, 0.4)])
def test_a_rare_term_beside_one_that_almost_all_documents_have_finds_its_document(n, k1, b):
    """It is worth any multiple of the k-th best score: here more than 2^16, 2^31, and almost what floats hold."""
    results = []
    for kernel, way in WAYS:
        with Index(k1=k1, b=b, kernel=kernel) as index:
            if kernel != "numpy":
                index._engine.choose(way)
            for doc_id in range(20):
                index.add(doc_id, ["a"])
            index.add_lines(range(20, n), [0] * (n - 20), [b"a" + 60 * b"\nb"] * (n - 20))
            index.add(n, ["rare", "x"])
            results.append(bits(index.search(["a", "rare"], 10)))
    assert results[0][0][0] == n
    assert all(result == results[0] for result in results)


def agree_on_queries(indexes, draw, words, n):
    for k, allow, since in [
        (10, None, None), (100, None, None), (10, None, n * 0.9), (10, draw.integers(0, n, 5), None),
        (10, draw.integers(0, n, n // 2), None), (n, None, None),
    ]:  # fmt: skip
        query = words[(400 * draw.random(7) ** 2).astype(int)].tolist()
        results = [bits(index.search(query, k, allow=allow, since=since)) for index in indexes]
        assert all(result == results[0] for result in results), (n, k, query)
        assert results[0][0] or allow is not None


def test_removals_by_the_thousand_leave_the_index_as_if_the_documents_had_never_been(index):
    docs = corpus(1500, seed=2)
    for doc_id, terms in docs.items():
        index.add(doc_id, terms)
        index.add_weights(doc_id, {terms[0]: 0.5})
    gone = [doc_id for doc_id in docs if doc_id % 3]
    for doc_id in gone:
        index.remove(doc_id)
    kept = {doc_id: terms for doc_id, terms in docs.items() if doc_id % 3 == 0}
    with Index(kernel=index.kernel) as fresh:
        for doc_id, terms in kept.items():
            fresh.add(doc_id, terms)
            fresh.add_weights(doc_id, {terms[0]: 0.5})
        for query in (["t0"], ["t1", "t4", "t30"]):
            assert bits(index.search(query, 50)) == bits(fresh.search(query, 50))
    for doc_id in gone:
        index.add(doc_id, docs[doc_id])
    assert len(index) == len(docs)


def test_ties_go_to_the_newer_id_whatever_the_order_of_arrival(index):
    for doc_id in (5, 2, 9, 7, 1, 8):
        index.add(doc_id, ["same", "words"])
    assert index.search(["same"], 4)[0].tolist() == [9, 8, 7, 5]


def test_thousands_of_ties_are_cut_at_the_newest_k(index):
    for doc_id in np.random.default_rng(3).permutation(3000).tolist():
        index.add(doc_id, ["same"])
    assert index.search(["same"], 10)[0].tolist() == list(range(2999, 2989, -1))


def test_a_repeated_query_term_counts_as_often_as_it_stands_there(index):
    index.add(1, ["a", "b"])
    index.add(2, ["b", "c"])
    once, thrice = index.search(["a"], 1)[1][0], index.search(["a", "a", "a"], 1)[1][0]
    assert thrice == pytest.approx(3 * once)


def test_only_documents_that_share_a_term_are_returned(index):
    index.add(1, ["a"])
    index.add(2, ["b"])
    index.add(3, [])
    assert index.search(["a", "zebra"], 10)[0].tolist() == [1]
    assert [len(part) for part in index.search(["zebra"], 10)] == [0, 0]
    assert [len(part) for part in index.search([], 10)] == [0, 0]


@pytest.mark.parametrize("shape", [list, set, tuple, np.array, iter, lambda ids: np.array(ids, np.uint16)[::2]])
def test_allow_filters_exactly_and_leaves_the_statistics_alone(index, shape):
    docs = corpus(300, seed=4)
    for doc_id, terms in docs.items():
        index.add(doc_id, terms)
    chosen = sorted(docs)[::5]
    allowed = {int(i) for i in shape(chosen)}
    scores = {i: s for i, s in reference(docs, ["t0", "t2"]).items() if i in allowed}
    assert_best(index.search(["t0", "t2"], 20, allow=shape(chosen)), scores, 20)
    assert len(index.search(["t0"], 20, allow=[])[0]) == 0
    assert len(index.search(["t0"], 20, allow=[10**9, -1])[0]) == 0


def test_since_keeps_what_is_as_new_or_newer(index):
    for doc_id, time in [(1, 100.0), (2, 200.5), (3, 200.25), (4, -5.0)]:
        index.add(doc_id, ["a"], time=time)
    assert index.search(["a"], 9, since=200.25)[0].tolist() == [3, 2]
    assert index.search(["a"], 9, since=-5)[0].tolist() == [4, 3, 2, 1]
    assert index.search(["a"], 9, since=math.inf)[0].tolist() == []


def test_newest_counts_the_partitions_that_hold_documents(index):
    for doc_id, week in [(1, 0), (2, 3), (3, 3), (4, 9)]:
        index.add(doc_id, ["a"], time=week * PARTITION_S + 17)
    assert index.search(["a"], 9, newest=1)[0].tolist() == [4]
    assert index.search(["a"], 9, newest=2)[0].tolist() == [4, 3, 2]
    assert index.search(["a"], 9, newest=7)[0].tolist() == [4, 3, 2, 1]
    index.remove(4)
    assert index.search(["a"], 9, newest=1)[0].tolist() == [3, 2]
    assert index.search(["a"], 9, newest=1, since=4 * PARTITION_S)[0].tolist() == []


def test_weights_add_query_count_times_weight(index):
    docs = corpus(200, seed=5)
    draw = np.random.default_rng(6)
    weights = {i: {f"t{t}": float(np.float32(w)) for t, w in enumerate(draw.random(9))} for i in docs}
    for doc_id, terms in docs.items():
        index.add(doc_id, terms)
        index.add_weights(doc_id, weights[doc_id])
    query = ["t1", "t8", "t1", "t30"]
    assert_best(index.search(query, 50), reference(docs, query, weights=weights), 50)


def test_weights_alone_make_a_learned_sparse_index(index):
    index.add(1, [])
    index.add(2, [])
    index.add_weights(1, {"cat": 1.5, "animal": 0.25})
    index.add_weights(2, {"animal": 1.0, "cat": -3})
    index.add_weights(2, {"animal": 0.5})
    assert index.search(["animal", "animal"], 9)[1].tolist() == [3.0, 0.5]
    assert index.search(["cat"], 9)[0].tolist() == [1]


def test_weights_sum_as_scipy_sparse_does_to_the_bit(index):
    """A learned-sparse index is the product of two sparse matrices; k1 and b have no part in it."""
    sparse = pytest.importorskip("scipy.sparse")
    draw = np.random.default_rng(7)
    matrix = sparse.random_array((300, 40), density=0.2, format="csr", dtype=np.float32, rng=draw)
    for row in range(300):
        index.add(row, [])
        start, end = matrix.indptr[row : row + 2]
        named = zip(matrix.indices[start:end], matrix.data[start:end], strict=True)
        index.add_weights(row, {f"t{term}": float(value) for term, value in named})
    for _ in range(20):
        chosen = np.sort(draw.choice(40, 6, replace=False))
        times = draw.integers(1, 4, 6)
        query = np.zeros(40, np.float32)
        query[chosen] = times
        expected = (sparse.csr_array(matrix) @ sparse.csr_array(query[:, None])).toarray().ravel()
        terms = [f"t{term}" for term, n in zip(chosen, times, strict=True) for _ in range(n)]
        assert index.scores(terms).view(np.int32).tolist() == expected.astype(np.float32).view(np.int32).tolist()
        ids, scores = index.search(terms, 300)
        assert (expected[ids] == scores).all()
        assert len(ids) == np.count_nonzero(expected)


def test_scores_are_those_of_a_search_in_order_of_arrival(index):
    docs = corpus(1500, seed=9)
    for doc_id, terms in docs.items():
        index.add(doc_id, terms)
    gone = list(docs)[3::10]
    for doc_id in gone:
        index.remove(doc_id)
        del docs[doc_id]
    for query in (["t0", "t5", "t0"], ["t1", "t200"], ["a\0b"], []):
        scores = index.scores(query)
        assert (scores.dtype, len(scores)) == (np.float32, len(index))
        ids, best = index.search(query, len(index))
        found = {doc_id: score for doc_id, score in zip(docs, scores.tolist(), strict=True) if score}
        assert found == dict(zip(ids.tolist(), best.tolist(), strict=True))


def test_scores_of_an_empty_index_are_empty(index):
    assert index.scores(["a"]).tolist() == []


@pytest.mark.skipif(not bm25.BUILT, reason="the twin keeps no arrays")
@pytest.mark.parametrize("k", [20, 100])  # as many as there are, and more
def test_another_search_between_any_two_steps_changes_no_result(k):
    class Switching(list):
        """What is put back is taken at once, as by another thread."""

        def append(self, item):
            super().append(item)
            index._engine._spare = []
            index._engine._spare.append(item)
            index.search(["b"], k)
            index._engine._spare = self

    with Index() as index:
        for doc_id in range(40):
            index.add(doc_id, ["a" if doc_id < 20 else "b"] + ["x"] * doc_id)
        expected = [part.tolist() for part in index.search(["a"], k)]
        index._engine._spare = Switching()
        assert [part.tolist() for part in index.search(["a"], k)] == expected


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_queries_by_many_threads_give_what_each_gives_alone(index, threads):
    for doc_id, terms in corpus(1000, seed=10).items():
        index.add(doc_id, terms)
    queries = [[f"t{i % 7}", f"t{i}"] for i in range(23)]
    for allow in (None, range(0, 900)):
        with ThreadPoolExecutor(threads) as pool:
            many = [*pool.map(lambda query, allow=allow: index.search(query, 10, allow=allow), queries)]
        assert [bits(one) for one in many] == [bits(index.search(query, 10, allow=allow)) for query in queries]


def test_terms_of_any_text_are_kept_apart(index):
    words = ["", "\0", "a\0", "a", "a\nb", "é", "e\u0301", "\ud800", "🦊"]
    for doc_id, word in enumerate(words):
        index.add(doc_id, [word])
    assert [index.search([word], 9)[0].tolist() for word in words] == [[i] for i in range(len(words))]


def test_errors_name_the_value_and_the_way_out(index):
    index.add(7, ["a"])
    for call, message in [
        (lambda: index.add(7, ["b"]), "document 7 is in the index already; remove it first"),
        (lambda: index.remove(8), "document 8 is not in the index"),
        (lambda: index.add_weights(8, {"a": 1.0}), "document 8 is not in the index; add it first"),
        (lambda: index.add_weights(7, {"a": 1e300}), "weight of 'a' in document 7 is 1e\\+300"),
        (lambda: index.add(8, ["a"], time=math.nan), "time of document 8 is nan; use Unix seconds"),
        (lambda: index.search(["a"], -1), "k is -1; use 0 or more"),
        (lambda: index.search(["a"], 1, newest=0), "newest is 0; use 1 or more"),
        (lambda: index.search(["a"], 1, since=math.nan), "since is nan"),
        (lambda: Index(k1=-1), "k1 is -1; use a finite number of 0 or more"),
        (lambda: Index(b=1.5), "b is 1.5; use 0 to 1"),
        (lambda: Index(kernel="sse"), "kernel is 'sse'; use avx512, avx2, neon, scalar, numpy, or None"),
    ]:
        with pytest.raises(ValueError, match=f"^bm25: {message}"):
            call()
    for call, message in [
        (lambda: index.search("words", 1), "terms is the string 'words'; give a list of terms"),
        (lambda: index.add(8, "words"), "terms is the string 'words'"),
        (lambda: index.search(["a"], 1, allow=np.array([True])), "allow has dtype bool"),
        (lambda: index.add("x", ["a"]), "doc_id is 'x'; give a whole number"),
        (lambda: index.add_text(7.5, "words"), "doc_id is 7.5; give a whole number"),
        (lambda: index.remove(None), "doc_id is None; give a whole number"),
        (lambda: index.add_weights("x", {"a": 1.0}), "doc_id is 'x'; give a whole number"),
    ]:
        with pytest.raises(TypeError, match=f"^bm25: {message}"):
            call()
    for wrong in (2**63, -(2**63) - 1):
        for call in (index.add, index.add_weights):
            with pytest.raises(OverflowError, match=f"doc_id is {wrong}; give one of 64 bits"):
                call(wrong, {"a": 1.0})
        assert wrong not in index
    assert index.search(["a"], 9)[0].tolist() == [7]  # none of it left a trace


def test_a_closed_index_says_so(index):
    index.close()
    index.close()
    for call in (lambda: index.add(1, []), lambda: index.search([], 1), lambda: len(index), lambda: 1 in index):
        with pytest.raises(ValueError, match="the index is closed"):
            call()


def test_threads_that_search_while_one_appends_see_whole_documents_in_order(index):
    stop, faults = threading.Event(), []

    def watch():
        seen = 0
        while not stop.is_set():
            ids, scores = index.search(["always", "twice"], 10**6)
            if set(ids.tolist()) != set(range(len(ids))) or len(ids) < seen or len(set(scores.tolist())) > 1:
                faults.append(ids)
            seen = len(ids)

    threads = [threading.Thread(target=watch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for doc_id in range(600):
        index.add(doc_id, ["always", "twice", "twice"])
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(index.search(["always"], 10**6)[0]) == 600


def test_the_kernel_is_the_best_there_is_and_the_reason_for_less_is_told():
    with Index() as index:
        assert index.kernel == best_kernel() == KERNELS[-1]
    assert (bm25.WHY == "") == (best_kernel() in ("avx512", "avx2", "neon"))
    assert (best_kernel() == "numpy") is not bm25.BUILT


def test_nobody_waits_to_know_how_large_an_index_is_that_is_being_written_down():
    """A page of metrics asks within the event loop, and a snapshot of a large index takes seconds."""
    with Index() as index, ThreadPoolExecutor(1) as other:
        index.add(1, ["gate", "port"])
        known = index.size_bytes
        with index._lock:
            assert other.submit(lambda: index.size_bytes).result(30) == known
