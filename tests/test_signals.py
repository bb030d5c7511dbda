"""Signals one by one: speakers, dates, form, late interaction, and the trees that weigh them."""

import json
from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lantern_proxy.rerank import light as rerank_light
from lantern_proxy.rerank import network as rerank_network
from lantern_proxy.rerank.light import LightError, Model, Trees
from lantern_proxy.rerank.network import Network
from lantern_proxy.signals import keywords, speaker_name, speaker_scores
from lantern_proxy.signals import late as signals_late
from lantern_proxy.signals.dates import closeness, spans
from lantern_proxy.signals.form import (
    QUESTION_FEATURES,
    TEXT_FEATURES,
    form_of,
    form_scores,
    question_features,
    questions_and_statements,
    text_features,
)
from lantern_proxy.signals.late import DIM, best_matches, in_context, maxsim, pack

MONDAY = datetime(2023, 5, 8, 13, 56, tzinfo=UTC).timestamp()


def said(text: str) -> list[tuple[str, str]]:
    epoch = date(1970, 1, 1).toordinal()
    return [(str(date.fromordinal(epoch + a)), str(date.fromordinal(epoch + b))) for a, b in spans(text, MONDAY)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("we met yesterday", "2023-05-07", "2023-05-07"),
        ("see you tomorrow", "2023-05-09", "2023-05-09"),
        ("last Friday it rained", "2023-05-05", "2023-05-05"),
        ("on Saturday", "2023-05-06", "2023-05-06"),
        ("last weekend", "2023-05-06", "2023-05-07"),
        ("last week", "2023-05-01", "2023-05-07"),
        ("next month", "2023-06-01", "2023-06-30"),
        ("last year", "2022-01-01", "2022-12-31"),
        ("7 May 2023", "2023-05-07", "2023-05-07"),
        ("May 7th, 2023", "2023-05-07", "2023-05-07"),
        ("2023-05-07", "2023-05-07", "2023-05-07"),
        ("in December", "2022-12-01", "2022-12-31"),
        ("3 days ago", "2023-05-05", "2023-05-05"),
    ],
)
def test_days_are_resolved_against_the_day_they_were_spoken_of(text, first, last):
    assert said(text) == [(first, last)]


@given(st.text(max_size=200), st.floats(0, 4e9))
def test_no_text_and_no_time_breaks_the_reading_of_days(text, at):
    assert all(first <= last for first, last in spans(text, at))


@pytest.mark.parametrize("at", [1.7e12, -1e12, 1e18])
def test_what_was_said_at_no_date_names_no_days(at):
    assert spans("yesterday, on 7 May 2023, and next year", at) == []


def test_days_beyond_the_last_are_left_out():
    last = (date.max.toordinal() - date(1970, 1, 1).toordinal()) * 86_400
    assert len(spans("tomorrow, today, next week", last)) == 1


def test_a_day_that_does_not_exist_is_no_day():
    assert said("31 June 2023, 2023-13-45") == []


def test_the_same_day_is_closest_then_a_wider_span_then_a_day_near_it():
    day, week, near, far = (100, 100), (97, 103), (107, 107), (200, 200)
    found = [closeness([day], [other]) for other in (day, week, near, far)]
    assert found[0] == 1.0
    assert found == sorted(found, reverse=True)
    assert found[3] == 0.0
    assert closeness([], [day]) == 0.0


def test_a_question_that_names_a_speaker_is_about_that_one():
    roles = ["user", "user", "assistant"]
    names = ["carolin", "melani", ""]
    assert speaker_scores(roles, names, {"melani", "paint"}, "user").tolist() == [0, 1, 0]
    assert speaker_scores(roles, names, {"paint"}, "user").tolist() == [1, 1, 0]
    assert speaker_scores(roles, names, {"paint"}, "assistant").tolist() == [0, 0, 1]
    assert speaker_scores(roles, names, {"paint"}, "").tolist() == [0, 0, 0]


def test_the_name_in_front_of_a_text_is_the_speaker():
    assert speaker_name("Caroline: we moved") == "carolin"
    assert speaker_name("note: this is no name") == ""
    assert speaker_name("We moved: it was fun") == ""


def test_keywords_are_the_share_of_the_question_among_tags():
    assert keywords(["port", "db"], [{"port"}, {"port", "db", "x"}, set()]).tolist() == [0.5, 1.0, 0.0]


def test_forms_have_one_number_for_each_name_and_see_what_they_say():
    assert len(text_features("")) == len(TEXT_FEATURES)
    statement = dict(zip(TEXT_FEATURES, text_features("I moved to Porto last week with two cats."), strict=True))
    question = dict(zip(TEXT_FEATURES, text_features("Wow! Where did you move?"), strict=True))
    assert all(statement[name] for name in ("time_words", "numbers", "capitals", "first_person"))
    assert all(question[name] for name in ("ends_asking", "filler"))
    assert not question["numbers"]
    wants = dict(
        zip(QUESTION_FEATURES, question_features("When did Ann move, and how many cats has she?"), strict=True)
    )
    assert [wants[name] for name in ("when", "number", "where")] == [1.0, 1.0, 0.0]


def test_who_asks_does_not_answer_and_a_question_about_time_wants_a_time():
    said = ("I moved to Porto last week.", "Where did you move?", "Nice! Where did you move?")
    told, asks, both = (form_of(text, "user") for text in said)
    assert (told.asking, asks.asking, both.asking) == (0.0, 1.0, 0.5)
    assert told.dated > 0 == asks.dated
    assert asks.addressed > told.addressed == 0
    when, where = (
        form_scores(text, [told, asks], answers=None) for text in ("When did Ann move?", "Where did Ann move?")
    )
    assert when[0] > where[0] > where[1] == when[1]
    assert form_scores("Where did Ann move?", [asks], answers=[False])[0] < where[1]


def test_who_speaks_of_themselves_tells_and_so_does_who_answers():
    said = ("I moved to Porto with my cat.", "Porto has a harbour and a cat cafe.")
    own, other = (form_of(text, "user") for text in said)
    assert own.own > other.own == 0
    told = form_scores("Where is the cat?", [own, other, other], answers=[False, True, False])
    assert told[2] < min(told[:2])
    assert form_of("So it is. Is it?\n", "user").ends_asking
    assert not form_of("Is it? So it is.", "user").ends_asking


def test_what_the_user_laid_down_holds_for_what_an_assistant_is_asked_but_not_among_people():
    said = ("Always run the linter first.", "We prefer tabs.", "The linter is slow.")
    rule, preference, plain = (form_of(text, "user") for text in said)
    rated = form_scores("How do I send my change?", [rule, preference, plain], answers=None)
    assert rated[0] > rated[1] > rated[2]
    is_group_chat = form_scores("How do I send my change?", [rule, plain], answers=[False, False])
    assert is_group_chat[0] == is_group_chat[1]
    assert form_of("Always run the linter first.", "assistant").standing == 0
    assert form_of('```json\n{"semi": "always"}\n```', "user").standing == 0


def units(rows: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_late_interaction_in_bytes_is_that_of_floats_to_two_digits():
    question, told = units(5, 1), [units(n, 10 + n) for n in (1, 7, 0, 30)]
    told[1][3] = question[2]
    exact = np.array([[max((float(q @ t) for t in text), default=0.0) for text in told] for q in question])
    found = best_matches(question, [pack(text) for text in told])
    assert np.abs(found - exact).max() < 0.01
    assert found[2].argmax() == 1
    weights = np.array([1.0, 0.5, 3.0, 0.0, 1.0])
    assert maxsim(found, weights) == pytest.approx(weights @ np.clip(found, 0, 1) ** 3 / weights.sum())


@pytest.mark.parametrize("words", [0, 1, 7, 8, 9, 17])  # around the words that are compared together
@pytest.mark.parametrize("kernel", signals_late.kernels())
def test_all_kernels_of_late_interaction_agree_bit_for_bit(kernel, words):
    question, told = units(words, 1), [pack(units(n, 10 + n)) for n in (0, 1, 7, 0, 30, 200, 1, 0)]
    found = best_matches(question, told, kernel=kernel)
    assert found.shape == (words, len(told))
    assert found.tolist() == best_matches(question, told, kernel="numpy").tolist()


@pytest.mark.parametrize("at_once", [1, 8, 9, 64])
def test_passages_are_compared_a_few_at_a_time_with_the_same_result(monkeypatch, at_once):
    question, told = units(5, 1), [pack(units(n, 10 + n)) for n in (0, 1, 7, 0, 30, 8, 9, 1, 0)]
    whole = best_matches(question, told, kernel="numpy")
    monkeypatch.setattr(signals_late, "TOKENS_PER_BATCH", at_once)
    assert best_matches(question, told, kernel="numpy").tolist() == whole.tolist()
    assert (whole != 0).any(axis=0).tolist() == [len(tokens) > 0 for tokens in told]


def test_a_word_may_be_found_in_the_message_before_at_a_discount_and_not_in_another_session():
    matches = np.array([[0.9, 0.2, 0.1, 0.3]])  # the last two passages open sessions of their own
    found = in_context(matches, np.array([0, 1, 10, 20]))
    assert found == pytest.approx(np.array([[0.9, 0.72, 0.1, 0.3]]))


def test_what_the_message_before_has_counts_by_how_short_both_are():
    matches = np.array([[0.8, 0.2, 0.2, 0.2]])
    places = np.array([0, 1, 2, 10])
    assert in_context(matches, places, openness=np.ones(4)) == pytest.approx(np.array([[0.8, 0.8, 0.2, 0.2]]))
    long = in_context(matches, places, openness=np.array([0.5, 1.0, 1.0, 1.0]))
    assert long == pytest.approx(np.array([[0.8, 0.4, 0.2, 0.2]]))
    longer = in_context(matches, places, openness=np.array([0.5, 0.5, 1.0, 1.0]))
    assert longer == pytest.approx(np.array([[0.8, 0.3, 0.2, 0.2]]))


def test_a_passage_without_tokens_scores_nothing():
    assert best_matches(units(2, 1), []).shape == (2, 0)
    assert best_matches(units(2, 1), [pack(units(0, 2))]).tolist() == [[0.0], [0.0]]


def learned(rounds: int = 20) -> tuple[Model, np.ndarray, np.ndarray]:
    """A model of 60 questions whose evidence is the candidate that is best in a and b together."""
    pytest.importorskip("lightgbm")
    table = np.random.default_rng(3).random((60 * 40, 3)).astype(np.float32)
    gold = np.zeros(len(table), bool)
    for start in range(0, len(table), 40):
        gold[start + np.argmax(table[start : start + 40, :2].sum(axis=1))] = True
    return rerank_light.train(("a", "b", "noise"), table, gold, [40] * 60, rounds=rounds), table, gold


def forest(leaves: int, trees: int = 40, columns: int = 5) -> Trees:
    """Trees of random shape over cells and thresholds that often are equal, or nearly."""
    pick = np.random.default_rng(leaves)

    def grown(most: int) -> dict:
        if most == 1:
            return {"leaf_value": float(pick.normal())}
        cut, near = int(pick.integers(1, most)), float(pick.choice([-1e-12, 0.0, 1e-12]))
        threshold = float(np.float32(pick.integers(9) / 7)) + near
        below = {"left_child": grown(cut), "right_child": grown(most - cut)}
        return {"split_feature": int(pick.integers(columns)), "threshold": threshold} | below

    return rerank_light._flattened_trees(tuple("abcde"), [grown(leaves) for _ in range(trees)], 1 / 3)


def flat_network(features: int) -> Network:
    """What each feature says counts once; three units that say nothing."""
    ones, nothing = np.ones(features, np.float32), np.zeros(3, np.float32)
    return Network(0 * ones, ones, np.zeros((features, 3), np.float32), nothing, nothing, ones)


@pytest.mark.skipif(not rerank_light.BUILT, reason="the C library was not built")
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 150])  # around what is looked at together
@pytest.mark.parametrize("leaves", [1, 2, 15, 32, 33, 70])  # around what fits into a set
def test_trees_in_c_and_in_numpy_agree_bit_for_bit(rows, leaves):
    model = forest(leaves)
    table = (np.random.default_rng(rows).integers(-1, 10, (rows, 5)) / 7).astype(np.float32)
    table[::7, 2] = np.inf
    assert (model.scores(table) == model.scores_in_numpy(table)).all()
    assert (model.scores(np.asfortranarray(table)) == model.scores_in_numpy(table)).all()


def test_a_changed_copy_of_trees_scores_by_its_own_leaves():
    model, table, _ = learned(2)
    before = model.trees.scores(table)
    negative = replace(model.trees, value=-model.trees.value)
    assert before.any()
    assert (negative.scores(table) == -before).all()


def test_trees_in_numpy_score_as_lightgbm_does():
    lightgbm = pytest.importorskip("lightgbm")
    table = np.random.default_rng(5).random((2_000, 4)).astype(np.float32)
    target = (table[:, 0] > 0.5) * table[:, 1]
    booster = lightgbm.train(
        {"objective": "regression", "num_leaves": 15, "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(table, target),
        30,
    )
    roots = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    ours = rerank_light._flattened_trees(("a", "b", "c", "d"), roots, 1.0).scores_in_numpy(table)
    assert np.abs(ours - booster.predict(table)).max() < 1e-9


def test_a_trained_model_finds_what_it_was_shown_and_survives_its_file(tmp_path):
    model, table, gold = learned()
    firsts = [gold[s : s + 40][np.argmax(model.scores(table[s : s + 40]))] for s in range(0, len(table), 40)]
    assert np.mean(firsts) > 0.7
    rerank_light.save(model, tmp_path / "m.npz", {"n": 60})
    again = rerank_light.load(tmp_path / "m.npz", ("noise", "b", "a"))
    assert again.features == ("a", "b", "noise")
    assert (again.scores(table) == model.scores(table)).all()


def test_a_model_that_cannot_be_used_says_why(tmp_path):
    model, _, _ = learned(2)
    rerank_light.save(model, tmp_path / "m.npz", {})
    with pytest.raises(LightError, match="wants feature noise"):
        rerank_light.load(tmp_path / "m.npz", ("a", "b"))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "m.npz").read_bytes()[:300])
    with pytest.raises(LightError, match="train one"):
        rerank_light.load(tmp_path / "torn.npz", ("a", "b", "noise"))
    for name, wrong in (("absent.npz", "no such file or directory"), ("", "is a directory")):
        with pytest.raises(LightError, match=f"{tmp_path / name}: {wrong}; name a file"):
            rerank_light.load(tmp_path / name, ("a", "b", "noise"))
    trees, network = model.trees, model.network
    for fault in ({"depth": 10**9}, {"left": trees.left + 10**6}, {"value": trees.value[:-1]}):
        rerank_light.save(Model(replace(trees, **fault), network), tmp_path / "m.npz", {})
        with pytest.raises(LightError, match="trees are damaged"):
            rerank_light.load(tmp_path / "m.npz", ("a", "b", "noise"))
    for fault in (
        {name: getattr(trees, name).reshape(-1, 1)[:, :0]} for name in ("column", "threshold", "left", "value")
    ):
        rerank_light.save(Model(replace(trees, **fault), network), tmp_path / "m.npz", {})  # as long as it should be
        with pytest.raises(LightError, match="trees are damaged"):
            rerank_light.load(tmp_path / "m.npz", ("a", "b", "noise"))
    for fault in (
        {"direct": network.direct[:-1]}, {"mean": network.mean * np.nan}, {"spread": network.spread * 0},
        {"inner": network.inner.T}, {"bias": network.bias[:-1]}, {"outer": network.outer[None]},
    ):  # fmt: skip
        rerank_light.save(Model(trees, replace(network, **fault)), tmp_path / "m.npz", {})
        with pytest.raises(LightError, match="weights are damaged"):
            rerank_light.load(tmp_path / "m.npz", ("a", "b", "noise"))


def test_a_damaged_model_file_is_refused_whatever_the_damage(tmp_path):
    path, pick = tmp_path / "m.npz", np.random.default_rng(2)
    rerank_light.save(Model(forest(4), flat_network(5)), path, {})
    whole, refused = path.read_bytes(), 0
    damaged = [whole[:size] for size in (0, 1, 100, len(whole) // 2, len(whole) - 1)]
    for _ in range(1_500):
        flipped = bytearray(whole)
        for place in pick.integers(len(whole), size=3):
            flipped[place] = pick.integers(256)
        damaged.append(bytes(flipped))
    for data in damaged:
        path.write_bytes(data)
        try:
            assert rerank_light.load(path, tuple("abcde")).features == tuple("abcde")
        except LightError:
            refused += 1
    assert refused > 1_000


@pytest.mark.parametrize("told", [None, 3, [], {"version": 4, "features": 3}, {"features": [[1]] * 5, "depth": 1e400}])
def test_a_model_file_that_tells_something_else_of_itself_is_refused(tmp_path, told):
    rerank_light.save(Model(forest(4), flat_network(5)), tmp_path / "m.npz", {})
    with np.load(tmp_path / "m.npz") as kept:
        arrays = dict(kept)
    if isinstance(told, dict):
        told = {"version": rerank_light.VERSION, "depth": 1} | told
    np.savez(tmp_path / "m.npz", **arrays | {"meta": np.array(json.dumps(told))})
    with pytest.raises(LightError, match=r"train it again|train one"):
        rerank_light.load(tmp_path / "m.npz", tuple("abcde"))


def test_networks_learn_from_questions_with_evidence_and_leave_out_what_never_varies():
    table = np.random.default_rng(9).random((30 * 20, 3)).astype(np.float32)
    table[:, 2] = 7.0
    gold = np.zeros(len(table), bool)
    for start in range(0, len(table) - 20, 20):  # none for the last question
        gold[start + np.argmax(table[start : start + 20, 0] - table[start : start + 20, 1])] = True
    learnt = rerank_network.fit(table, gold, [20] * 30, [0.0] * 3)
    good, bad, other = learnt.scores(np.array([[0.9, 0.1, 7.0], [0.1, 0.9, 7.0], [0.9, 0.1, 8.0]], np.float32))
    assert good > bad + 1
    assert good == pytest.approx(other, abs=1e-5)
    assert not rerank_network.fit(table, np.zeros_like(gold), [20] * 30, [0.0] * 3).scores(table).any()


def test_networks_that_learn_nothing_leave_the_order_that_there_was():
    table = np.random.default_rng(9).random((30 * 20, 3)).astype(np.float32)
    learnt = rerank_network.fit(table, np.zeros(len(table), bool), [20] * 30, [0.0, 2.0, 0.0])
    apart = learnt.scores(table[:2])
    assert apart[0] - apart[1] == pytest.approx(2 * (table[0, 1] - table[1, 1]), abs=1e-5)


def test_networks_learn_what_two_features_say_together():
    table = np.random.default_rng(4).choice([-1.0, 1.0], (300 * 8, 2)).astype(np.float32)
    together = table.prod(axis=1)
    gold = together > 0
    learnt = rerank_network.fit(table, gold, [8] * 300, [0.0, 0.0])
    alike, unlike = learnt.scores(table)[gold], learnt.scores(table)[~gold]
    assert alike.min() > unlike.max()


def test_the_same_labels_make_the_same_networks():
    _, table, gold = learned(2)
    first, second = (rerank_network.fit(table, gold, [40] * 60, [0.0] * 3) for _ in range(2))
    assert (first.scores(table) == second.scores(table)).all()


def test_a_feature_far_out_of_what_was_seen_does_not_drown_the_others():
    near, far = flat_network(2).scores(np.array([[5.0, 1.0], [1e9, 0.0]], np.float32))
    assert near > far


@pytest.mark.parametrize(
    ("text", "asks", "tells"),
    [
        ("Ada: I made a pot. What did you make?", "What did you make?", "I made a pot."),
        ('So cool! "Is it clay?" Mine is.', '"Is it clay?"', "So cool!\nMine is."),
        ("Really?! It is at http://x.y/?a=b now.", "Really?!", "It is at http://x.y/?a=b now."),
        ("", "", ""),
    ],
)
def test_what_a_passage_asks_and_what_it_tells_are_told_apart_without_the_name_before(text, asks, tells):
    assert questions_and_statements(text) == (asks, tells)
