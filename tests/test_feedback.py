"""Verdicts, pins and corrections: what a person says of a passage, and that the next restore listens."""

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from lantern_proxy import chunk, reinforce
from lantern_proxy.archive import Archive, ArchiveError, PruneRule, Record, RequestRow, SessionRow
from lantern_proxy.config import Config
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.turn import Filed, Head, Passage, Restored, item, message

NOW = 1_760_000_000.0
TOLD = (
    "The staging database is on host db-stage-7.internal, port 5432.",
    "Deploy with ./ship --slot 42 after the smoke test has passed.",
    "The invoice number of the customer Brandt is INV-20871.",
)
QUESTION = "Which port has the staging database?"


def record(texts=TOLD, session="s1", project="", tenant="t_one", request="r1") -> Record:
    filed, passages = [], []
    for n, text in enumerate(texts):
        said = message("user", [item("user", "text", text)], json.dumps({"role": "user", "content": text}).encode())
        key = f"{session}-{n}"
        filed.append(Filed(key=key, position=n, turn=n + 1, message=said, created_at=NOW + n))
        passages += chunk.passages(filed[-1], session)
    row = SessionRow(id=session, api="chat", created_at=NOW, last_seen_at=NOW)
    asked = RequestRow(id=request, at=NOW, api="chat", path="", event="new")
    return Record(tenant=tenant, project=project, session=row, request=asked, messages=tuple(filed),
                  head=Head(keys=tuple(f.key for f in filed)), passages=tuple(passages))  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lantern.db"


@pytest.fixture
def archive(path):
    with Archive(path) as opened:
        opened.write([record()])
        yield opened


@pytest.fixture
def restorer(archive):
    made = Restorer(archive, Config(), None)
    yield made
    made.close()


def ask(session="s1", question=QUESTION, budget=2_000, tenant="t_one", project="") -> Ask:
    return Ask(tenant=tenant, project=project, session=session, present="hello", question=question,
               budget_chars=budget, now=NOW, deadline=time.monotonic() + 60)  # fmt: skip


def texts_of(block: Restored | None) -> str:
    return "\n".join(placed.text for placed in block.placed) if block else ""


def passage(archive: Archive, word: str, tenant="t_one", session="s1") -> Passage:
    return next(p for p in archive.of(tenant).passages(session=session) if word in p.text)


@pytest.mark.parametrize("verdict", ["wrong", "outdated"])
def test_what_is_wrong_or_outdated_is_not_restored_again(archive, restorer, verdict):
    assert "5432" in texts_of(restorer.for_question(ask()))
    assert "5432" in texts_of(restorer.at_compaction(ask()))
    archive.of("t_one").feedback("", passage(archive, "5432").id, verdict, now=NOW)
    assert "5432" not in texts_of(restorer.for_question(ask()))
    assert "5432" not in texts_of(restorer.at_compaction(ask()))
    assert "INV-20871" in texts_of(restorer.at_compaction(ask()))


def test_a_verdict_of_another_process_counts_with_the_next_restore(archive, restorer, path):
    assert "5432" in texts_of(restorer.for_question(ask()))
    with Archive(path) as elsewhere:
        elsewhere.of("t_one").feedback("", passage(archive, "5432").id, "wrong", now=NOW)
    assert "5432" not in texts_of(restorer.for_question(ask()))


def test_a_verdict_can_be_changed_and_taken_back(archive, restorer):
    mine, id_ = archive.of("t_one"), passage(archive, "5432").id
    for verdict, restored in (("wrong", False), ("useful", True), ("outdated", False), ("", True)):
        assert mine.feedback("", id_, verdict, now=NOW).verdict == verdict
        assert ("5432" in texts_of(restorer.for_question(ask()))) is restored


def test_a_verdict_holds_for_copies_in_the_project_and_for_no_other_project_or_tenant(archive):
    archive.write([record(session="s2", request="r2"), record(session="s3", project="other", request="r3")])
    archive.write([record(tenant="t_two", request="r4")])
    archive.of("t_one").feedback("", passage(archive, "5432").id, "wrong", now=NOW)
    archive.write([record(session="s4", request="r5")])
    found = {s: passage(archive, "5432", session=s).verdict for s in ("s1", "s2", "s3", "s4")}
    assert found == {"s1": "wrong", "s2": "wrong", "s3": "", "s4": "wrong"}
    assert passage(archive, "5432", tenant="t_two").verdict == ""


def test_a_verdict_moves_confidence_once(archive):
    mine, id_ = archive.of("t_one"), passage(archive, "5432").id
    settle = partial(reinforce.settle, rates=reinforce.Rates())
    once = mine.feedback("", id_, "useful", now=NOW, settle=settle)
    assert once.confidence == pytest.approx(0.65)
    assert once.success == pytest.approx(0.55)
    assert mine.feedback("", id_, "useful", now=NOW, settle=settle).confidence == once.confidence
    assert mine.feedback("", id_, "wrong", now=NOW, settle=settle).confidence < once.confidence


@pytest.mark.parametrize("recipe", ["default", "lantern"])
def test_both_recipes_listen(archive, recipe):
    passages = [chunk.turn_passage([filed], "s1") for filed in archive.of("t_one").messages("s1")]
    archive.write([Record(tenant="t_one", session=archive.of("t_one").sessions()[0],
                          request=RequestRow(id="r2", at=NOW, api="chat", path="", event="turn"),
                          passages=tuple(p for p in passages if p))])  # fmt: skip
    config = Config()
    restorer = Restorer(archive, replace(config, restore=replace(config.restore, recipe=recipe)), None)
    assert "5432" in texts_of(restorer.at_compaction(ask()))
    for unit in ("passage", "turn"):
        for each in archive.of("t_one").passages(session="s1", unit=unit):
            if "5432" in each.text:
                archive.of("t_one").feedback("", each.id, "wrong", now=NOW)
    assert "5432" not in texts_of(restorer.at_compaction(ask()))
    restorer.close()


def test_a_pinned_passage_is_restored_first(archive, restorer):
    filler = [f"Note {n}: flag --opt-{n} with table_{n}, port {7000 + n}, host h{n}.example." for n in range(80)]
    archive.write([record(filler, session="s5", request="r5")])
    mine, small = archive.of("t_one"), ask(session="s5", question="", budget=700)
    before = texts_of(restorer.at_compaction(small))
    left = next(p for p in mine.passages(session="s5") if p.text not in before)
    mine.pin(left.id, now=NOW)
    assert left.text in texts_of(restorer.at_compaction(small))
    mine.unpin(left.id, now=NOW)
    assert left.text not in texts_of(restorer.at_compaction(small))


@pytest.mark.parametrize(
    "rule", [PruneRule(older_than_s=0.0), PruneRule(below_confidence=0.9), PruneRule(session="s1")], ids=str
)
def test_a_pinned_passage_and_its_message_survive_every_prune(archive, rule):
    mine, id_ = archive.of("t_one"), passage(archive, "INV-20871").id
    mine.pin(id_, now=NOW)
    preview = mine.prune(rule, now=NOW + 1e6, dry_run=True)
    assert mine.prune(rule, now=NOW + 1e6) == preview
    assert [p.id for p in mine.passages(session="s1")] == [id_]
    assert any("INV-20871" in filed.message.text for filed in mine.messages("s1"))
    mine.unpin(id_, now=NOW)
    mine.prune(PruneRule(session="s1"), now=NOW + 1e6)
    assert mine.passages(session="s1") == []


def test_a_correction_is_what_is_found_and_restored_and_the_original_is_kept(archive, restorer):
    mine, said = archive.of("t_one"), passage(archive, "5432")
    assert "5432" in texts_of(restorer.for_question(ask()))
    now = mine.edit(chunk.reword(said, "The staging database moved: host db-new.internal, port 6543."), now=NOW + 5)
    assert (now.id, now.text) == (said.id, "The staging database moved: host db-new.internal, port 6543.")
    assert "6543" in texts_of(restorer.for_question(ask()))
    assert "5432" not in texts_of(restorer.for_question(ask()))
    assert "6543" in texts_of(restorer.at_compaction(ask()))
    assert [hit.passage.id for hit in mine.search("6543")] == [said.id]
    assert mine.search("5432") == []
    assert mine.fts(["db-new.internal"], 3)[0][0] == said.id
    [change] = mine.history(said.id)
    assert (change.before, change.after, change.at) == (said.text, now.text, NOW + 5)
    assert any(said.text in filed.message.text for filed in mine.messages("s1"))
    assert [f.name for f in archive.check() if not f.ok and f.name == "fts"] == []


def test_a_correction_of_another_process_reaches_an_open_index(archive, restorer, path):
    assert "5432" in texts_of(restorer.for_question(ask()))
    with Archive(path) as elsewhere:
        elsewhere.of("t_one").edit(chunk.reword(passage(archive, "5432"), "Nobody remembers."), now=NOW)
        elsewhere.of("t_one").edit(
            chunk.reword(passage(archive, "./ship"), "The staging database listens on port 9999, says ops."), now=NOW
        )
    found = texts_of(restorer.for_question(ask()))
    assert "9999" in found
    assert "5432" not in found


def test_a_correction_holds_for_copies_old_and_new_and_can_be_corrected_again(archive):
    archive.write([record(session="s2", request="r2")])
    mine = archive.of("t_one")
    mine.edit(chunk.reword(passage(archive, "5432"), "port 6000"), now=NOW)
    (added,) = archive.write([record(session="s3", request="r3")])
    assert added[0].text == "port 6000"
    mine.edit(chunk.reword(passage(archive, "port 6000", session="s3"), "port 6001"), now=NOW + 1)
    assert [passage(archive, "port 600", session=s).text for s in ("s1", "s2", "s3")] == ["port 6001"] * 3
    first = passage(archive, "port 6001")
    assert [(e.before, e.after) for e in mine.history(first.id)] == [(TOLD[0], "port 6000"), ("port 6000", "port 6001")]
    archive.write([record(request="r9")])
    assert len(mine.passages(session="s1")) == 3


def test_a_text_that_was_corrected_is_corrected_in_what_is_cut_later(archive):
    mine = archive.of("t_one")
    mine.edit(chunk.reword(passage(archive, "5432"), "port 6000"), now=NOW)
    later = record(session="s4", request="r4")
    archive.write([structs.replace(later, passages=(), uncut=tuple(f.key for f in later.messages))])
    [left] = archive.uncut()
    assert archive.add_passages([(left, later.passages)]) == [3]
    assert [p.text for p in mine.passages(session="s4")] == ["port 6000", *TOLD[1:]]
    assert {hit.passage.session for hit in mine.search("6000")} == {"s1", "s4"}
    assert mine.search("5432") == []
    assert [f.name for f in archive.check() if not f.ok and f.name == "fts"] == []


def test_a_corrected_passage_gets_a_new_vector(archive):
    if not archive.vectors:
        pytest.skip("this Python cannot load sqlite-vec")
    mine, said = archive.of("t_one"), passage(archive, "5432")
    old, new = np.eye(4, dtype=np.float32)[:2]
    archive.add_vectors("tiny", 4, [("t_one", "s1", p.id, old) for p in mine.passages(session="s1")])
    assert archive.unembedded(9) == []
    mine.edit(chunk.reword(said, "port 6000"), now=NOW)
    assert archive.unembedded(9) == [("t_one", said.id, "port 6000")]
    assert said.id not in mine.vectors([said.id])
    archive.add_vectors("tiny", 4, [("t_one", "s1", said.id, new)])
    assert mine.vectors([said.id])[said.id] == pytest.approx(new)


def test_a_correction_lifts_the_verdict_against_it(archive, restorer):
    mine, said = archive.of("t_one"), passage(archive, "5432")
    mine.feedback("", said.id, "wrong", now=NOW)
    assert mine.edit(chunk.reword(said, "The staging database is on port 6000."), now=NOW).verdict == ""
    assert "6000" in texts_of(restorer.for_question(ask()))


@pytest.mark.parametrize("text", ["", " \n", "x" * 12_001])
def test_an_empty_or_endless_correction_is_refused(archive, text):
    said = passage(archive, "5432")
    with pytest.raises(ArchiveError, match="new text has"):
        archive.of("t_one").edit(chunk.reword(said, text), now=NOW)
    assert passage(archive, "5432") == said


def test_an_export_tells_verdicts_pins_and_earlier_wordings(archive):
    mine, said = archive.of("t_one"), passage(archive, "5432")
    mine.edit(chunk.reword(said, "port 6000"), now=NOW)
    mine.pin(said.id, now=NOW)
    rows = list(mine.export())
    assert {"type": "edit", "passage": said.id, "before": TOLD[0], "after": "port 6000", "at": NOW} in rows
    [row] = [r for r in rows if r["type"] == "passage" and r["id"] == said.id]
    assert (row["text"], row["pinned"], row["verdict"]) == ("port 6000", True, "")


def test_what_was_said_is_listed_newest_first(archive):
    mine = archive.of("t_one")
    port, ship, invoice = (passage(archive, word) for word in ("5432", "./ship", "INV"))
    mine.feedback("", port.id, "wrong", now=NOW + 1)
    mine.pin(ship.id, now=NOW + 2)
    mine.edit(chunk.reword(invoice, "INV-1"), now=NOW + 3)
    rows = [(m.passage.id, m.passage.verdict, m.passage.pinned, m.edits, m.changed_at) for m in mine.marked()]
    assert rows == [
        (invoice.id, "", False, 1, NOW + 3),
        (ship.id, "", True, 0, NOW + 2),
        (port.id, "wrong", False, 0, NOW + 1),
    ]
    mine.unpin(ship.id, now=NOW + 4)
    assert [m.passage.id for m in mine.marked()] == [invoice.id, port.id]
    assert archive.of("t_two").marked() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda mine: mine.feedback("", 1, "wrong", now=NOW),
        lambda mine: mine.pin(1, now=NOW),
        lambda mine: mine.edit(chunk.reword(TEMPLATE, "taken over"), now=NOW),
        lambda mine: mine.feedback("r1", 1, "wrong", now=NOW),
    ],
)
def test_nobody_can_mark_or_correct_what_belongs_to_somebody_else(archive, change):
    before = archive.of("t_one").passages()
    with pytest.raises(ArchiveError, match=r"no passage 1|r1 is not in the archive"):
        change(archive.of("t_two"))
    assert archive.of("t_one").passages() == before
    assert archive.of("t_one").marked() == []


TEMPLATE = Passage(id=1, session="s1", message="", position=0, part=0, turn=1, speaker="user", text="")


def test_an_unknown_verdict_is_refused_by_name(archive):
    with pytest.raises(ArchiveError, match="verdict is 'bad'; use useful, wrong, outdated, or \"\" to"):
        archive.of("t_one").feedback("", 1, "bad", now=NOW)


def test_what_is_removed_leaves_no_earlier_wording_and_no_mark_behind(archive, path):
    mine, said = archive.of("t_one"), passage(archive, "5432")
    mine.edit(chunk.reword(said, "forgotten"), now=NOW)
    mine.feedback("", said.id, "useful", now=NOW)
    mine.prune(PruneRule(session="s1"), now=NOW)
    assert mine.history(said.id) == []
    assert mine.marked() == []
    archive.close()
    left = b"".join(part.read_bytes() for part in path.parent.iterdir())
    assert b"db-stage-7" not in left


def test_passages_as_they_are_now_are_the_same_objects_but_for_what_changed(archive):
    mine = archive.of("t_one")
    before = [*mine.plain_passages([p.id for p in mine.passages(session="s1")]).values()]
    assert all(a is b for a, b in zip(before, mine.as_now(before).values(), strict=True))
    judged, pinned, corrected = before
    settle = partial(reinforce.settle, rates=reinforce.Rates())
    mine.feedback("", judged.id, "wrong", now=NOW, settle=settle)
    mine.pin(pinned.id, now=NOW)
    mine.edit(chunk.reword(corrected, "The invoice number is INV-7."), now=NOW)
    now, read = mine.as_now(before), mine.plain_passages([judged.id, pinned.id])
    assert repr(now) == repr(read)  # in which verdicts and pins count
    assert now[judged.id] != judged
    assert now[pinned.id] is not pinned
    assert not archive.of("t_other").as_now(before)
