"""What is remembered has an end: sessions, blocks, texts and indexes that nobody speaks of any more are let go of."""

import asyncio
import gc
import json
import threading
import time

import pytest
from chats import Chat, Lab, assistant, user
from msgspec import structs
from scripted import ReceivedRequest, Upstream, Wire, ask, body, config_for, echo, filed, serving, wait_for
from test_restore_scope import ALL, write

from lantern_proxy import turn_memo
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig, RestoreConfig
from lantern_proxy.proxy import Proxy, idle, stored_answers
from lantern_proxy.proxy import ledger as proxy_ledger
from lantern_proxy.proxy.exchange import Exchange
from lantern_proxy.proxy.ledger import Ledgers
from lantern_proxy.proxy.relay import Relay
from lantern_proxy.proxy.stored_answers import Awaited
from lantern_proxy.restore import passages
from lantern_proxy.restore import scopes as restore_scopes
from lantern_proxy.restore.scope import Key
from lantern_proxy.restore.scopes import Scopes
from lantern_proxy.session import RECENT_S, SessionIndex, forget, indexing
from lantern_proxy.turn import Answer, Block, Request, Restored, plain
from lantern_proxy.turn_memo import Memo
from lantern_proxy.wire.http import Arrival

FINDS = ("by_id", "by_answer", "by_user", "by_family", "by_head", "by_start", "said", "said_chars", "arguments",
         "in_flight", "ends", "sizes", "traces", "starts")  # fmt: skip


@pytest.fixture
def few(monkeypatch):
    """Sixteen sessions of a tenant stay, and thirty texts of each."""
    monkeypatch.setattr(indexing, "SIZE", 16)
    monkeypatch.setattr(indexing, "_SAID", 30)


def live(lab: Lab, n: int, turns: int = 4) -> Chat:
    """A session with an id of its own, and a side call that comes after it."""
    chat = Chat(lab, named=f"client {n}")
    for turn in range(turns):
        chat.turn(f"Session {n} asks about the valve number {turn}, please.", f"Valve {turn} of session {n} is shut.")
    title = [user(f"Write a title for this conversation: Session {n} asks about the valve")]
    step = lab.ask(title, headers={"x-lantern-session": f"client {n}", "x-agent-id": f"titles {n}"})
    lab.answer(step, assistant(f"Valves of session {n}, and nothing else"))
    return chat


def held(index: SessionIndex) -> dict[str, int]:
    return {name: len(getattr(index, name)) for name in FINDS}


def test_what_finds_sessions_does_not_outgrow_them(few):
    lab = Lab()
    for n in range(40):
        live(lab, n)
    after_40 = held(lab.index)
    for n in range(40, 160):
        live(lab, n)
    assert len(lab.index.sessions) <= 16
    assert all(found <= after_40[name] + 16 for name, found in held(lab.index).items()), (after_40, held(lab.index))


def test_when_all_sessions_are_forgotten_nothing_is_left_of_them(few):
    lab = Lab()
    for n in range(6):
        live(lab, n, turns=25)  # more texts than stay
    forget(lab.index, *lab.index.sessions)
    assert held(lab.index) == dict.fromkeys(FINDS, 0)
    assert lab.index.size_bytes == 0


def test_long_sessions_make_room_for_each_other_by_their_bytes(monkeypatch):
    monkeypatch.setattr(indexing, "MOST_BYTES", 1_000_000)
    lab = Lab()
    for n in range(30):
        lab.answer(Chat(lab, named=f"n{n}").send([user(f"file {n} " * 4_000)]), assistant(f"I read file {n}."))
        assert lab.index.size_bytes <= 1_000_000
    assert 1 < len(lab.index.sessions) < 12


def test_what_a_session_takes_shrinks_with_what_its_client_shows():
    lab = Lab()
    chat = Chat(lab, named="long")
    for n in range(40):
        chat.turn(f"Page {n}: " + "lorem ipsum " * 400, f"Page {n} is read.")
    (sid,) = lab.index.sessions
    before = lab.index.sizes[sid]
    lab.answer(chat.send([user("Summary of the conversation so far: forty pages. And page 41?")]), assistant("Empty."))
    assert set(lab.index.sessions) == {sid}
    assert 0 < lab.index.sizes[sid] < before / 2
    assert lab.index.size_bytes == lab.index.sizes[sid]


def test_a_session_keeps_its_latest_texts_only(monkeypatch):
    monkeypatch.setattr(indexing, "_SAID_CHARS", 10_000)
    lab = Lab()
    chat = Chat(lab)
    for n in range(50):
        chat.turn(f"Page {n}: " + "lorem ipsum " * 50, f"Page {n} is read.")
    said = lab.index.said[chat.session]
    assert sum(map(len, said)) == lab.index.said_chars[chat.session] <= 10_000
    assert "Page 49 is read." in said


def test_a_session_that_waits_for_its_answer_stays(few):
    lab = Lab()
    waits = Chat(lab, named="slow")
    step = waits.send([user("Take your time over the slow valve.")])
    for n in range(40):
        live(lab, n)
    assert [f.message.text for f in lab.answer(step, assistant("Here it is at last."))] == ["Here it is at last."]


def block(n: int) -> Block:
    restored = Restored(kind="loss", text=f"{n} " * 1_000, placed=(), considered=1, ms=1.0)
    return Block(session="s", anchor="a", chain="c", place="inside", restored=restored, request=f"r{n}", created_at=1.0)


def test_ledgers_make_room_by_what_their_blocks_hold(monkeypatch):
    monkeypatch.setattr(proxy_ledger, "_KEPT_CHARS", 20_000)

    async def through() -> tuple[Ledgers, int]:
        ledgers = Ledgers(lambda key: [])
        for n in range(50):
            async with ledgers.of(("t", f"s{n}"), new=True) as ledger:
                ledger.append(block(n))
        async with ledgers.of(("t", "s49")) as ledger:
            return ledgers, len(ledger)

    ledgers, last = asyncio.run(through())
    assert last == 1
    assert 0 < ledgers.chars <= 20_000
    assert len(ledgers) < 12


def test_requests_whose_answers_are_not_fetched_make_room_by_number_and_bytes(monkeypatch):
    monkeypatch.setattr(stored_answers, "_MOST", 10)
    monkeypatch.setattr(stored_answers, "_MOST_BYTES", 4_000)
    awaited, told = Awaited(), Answer(messages=(), ids=("resp",), complete=False)
    request = Request(api="responses", model="m", messages=())

    def arriving(method: str, path: str, body: bytes = b"") -> Arrival:
        return Arrival(method=method, path=path, query=b"", headers=(), body=body)

    def note(n: int, size: int, *, complete: bool = False) -> None:
        arrival = arriving("POST", "/v1/responses", b"x" * size)
        exchange = Exchange(f"r{n}", arrival, arrival.body, [], 1.0, plain=arrival.body, request=request, tenant="t")
        awaited.note(exchange, structs.replace(told, ids=(f"resp_{n}",), complete=complete))

    def ids() -> list[str]:
        gets = [arriving("GET", f"/v1/responses/resp_{n}") for n in range(30)]
        return [found.id for get in gets if (found := awaited.asked_by(get, "t"))]

    for n in range(20):
        note(n, 100)
    assert ids() == [f"r{n}" for n in range(10, 20)]
    note(20, 3_500)
    assert ids() == ["r15", "r16", "r17", "r18", "r19", "r20"]
    note(20, 3_500, complete=True)
    assert ids() == ["r15", "r16", "r17", "r18", "r19"]
    assert len(awaited) == 5


def test_a_ledger_stays_while_the_answer_to_its_block_may_come():
    async def through() -> int:
        ledgers = Ledgers(lambda key: [], kept=3)
        async with ledgers.of(("t", "mine"), new=True) as ledger:
            ledger.append(structs.replace(block(0), created_at=time.time()))
        for n in range(9):
            async with ledgers.of(("t", f"s{n}"), new=True):
                pass
        async with ledgers.of(("t", "mine")) as ledger:
            return len(ledger)

    assert asyncio.run(through()) == 1


def test_a_ledger_that_was_read_while_something_was_forgotten_is_read_again():
    async def read_meanwhile() -> list[list[Block]]:
        archived = [block(0)]

        def read(key: tuple[str, str]) -> list[Block]:
            found = list(archived)
            if archived:
                archived.clear()
                ledgers.forget_all()
            return found

        ledgers, seen = Ledgers(read), []
        for _ in range(2):
            async with ledgers.of(("t", "s")) as ledger:
                seen.append(list(ledger))
        return seen

    assert asyncio.run(read_meanwhile()) == [[], []]


def test_a_memo_counts_right_what_two_threads_make_of_one_key_at_a_time():
    both = threading.Barrier(2, timeout=60)

    def make(key: str) -> str:
        both.wait()
        return "the same"

    memo = Memo(make, most_bytes=100_000, bytes_of=len)
    run_all([lambda: memo["one key"]] * 2)
    assert len(memo) == 1
    assert memo.held_bytes == held_bytes(memo)


def test_a_memo_counts_right_what_comes_while_something_goes():
    """How many bytes one takes is asked of Python, where the interpreter may go on with another thread."""
    others: list[threading.Thread] = []

    def bytes_of(key: str) -> int:
        if memo and key == next_to_go and not others:
            others.append(threading.Thread(target=lambda: memo["of another thread"]))
            others[0].start()
            others[0].join(0.2)  # where it must wait for this one, it comes after
        return len(key)

    memo, next_to_go = Memo(str.upper, most_bytes=2_000, bytes_of=bytes_of), ""
    for n in range(100):
        next_to_go = next(iter(memo), "")
        memo[f"text {n}"]
    for other in others:
        other.join()
    assert others
    assert memo.held_bytes == held_bytes(memo)


def held_bytes(memo):
    return sum(len(key) + turn_memo._PLACE_BYTES for key in memo)


def run_all(work):
    """Each in a thread of its own, to their ends."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_memo_holds_what_fits_and_of_what_is_too_large_the_last():
    made = []

    def upper(text: str) -> str:
        made.append(text)
        return text.upper()

    memo = Memo(upper, most_bytes=10_000, bytes_of=len)
    for n in range(1_000):
        assert memo[f"text {n}"] == f"TEXT {n}"
    assert memo["text 999"] == "TEXT 999"
    assert len(made) == 1_000
    assert memo.held_bytes <= 10_000
    assert len(memo) < 100
    made.clear()
    for _ in range(3):
        for n in range(3):
            assert memo[f"long {n} " * 1_000].startswith(f"LONG {n}")
    assert len(made) == 3
    assert memo["text 999"] == "TEXT 999"
    for n in range(100):
        memo[f"long {n} " * 1_000]
    made.clear()
    memo["long 0 " * 1_000]
    assert len(made) == 1, "no more than a few are kept"
    assert memo.held_bytes <= 10_000
    memo.forget()
    memo["long 0 " * 1_000]
    assert len(made) == 2
    assert (len(memo), memo.held_bytes) == (0, 0)


def test_a_scope_keeps_the_passages_that_were_read_last(archive, monkeypatch):
    monkeypatch.setattr(passages, "MOST_READ", 40)
    monkeypatch.setattr(passages, "SMALL", 0)
    write(archive, 0, 300)
    scopes = Scopes()
    scope = scopes.use(ALL, 1.0)
    assert scope is not None
    scope.catch_up(archive, float("inf"))
    for row in range(300):
        assert scope.passages[row].passage.text.startswith(f"Box {row} ")
        assert scope.passages.read_count <= 40
    assert [read.passage.part for read in scope.passages[10:14]] == [0, 1, 0, 1]
    assert len(list(scope.passages)) == 300  # more at once than stay
    scope.release()
    scopes.close()


def test_scopes_share_what_texts_may_take_and_unused_ones_are_closed(archive, monkeypatch):
    monkeypatch.setattr(restore_scopes, "MAX_READ", 100)
    scopes = Scopes()
    for n in range(12):
        write(archive, 0, 30, session=f"s{n}")
        scope = scopes.use(Key("t", None, f"s{n}"), 1.0)
        assert scope is not None
        scope.catch_up(archive, float("inf"))
        assert scope.passages[3].passage.text.startswith("Box 3 ")
        scope.release()
    assert scopes.read_count <= 130
    scopes.rest(unused_s=3_600)
    assert (scopes.read_count, len(scopes)) == (0, 12)
    scopes.rest(unused_s=0)
    assert (scopes.index_bytes, len(scopes)) == (0, 0)


def test_a_proxy_that_nobody_asks_keeps_no_texts_and_no_old_sessions(tmp_path):
    config = Config(
        archive=ArchiveConfig(path=tmp_path / "a.db", synchronous="normal"), embed=EmbedConfig(enabled="off"),
        restore=RestoreConfig(deadline_ms=5_000),
    )  # fmt: skip

    async def through(proxy: Proxy) -> None:
        for n in range(3):
            messages = [{"role": "user", "content": f"Conversation {n} is about pump P-{n}. " * 600}]
            sent = json.dumps({"model": "m", "messages": messages}).encode()
            exchange = await proxy.prepare(
                Arrival(method="POST", path="/v1/chat/completions", query=b"", headers=(), body=sent)
            )
            answer = {"role": "assistant", "content": f"Pump P-{n} is well."}
            told = json.dumps({"id": f"c{n}", "choices": [{"index": 0, "message": answer}]}).encode()
            assert await filed(proxy.file(exchange, 200, told, streamed=False, complete=True))
        assert proxy.rereads.size_bytes > 0
        assert proxy.tenants.size_bytes > 0
        await idle.rest(proxy)
        assert proxy.rereads.size_bytes == 0
        assert len(plain.__self__) == 0
        assert proxy.tenants.size_bytes > 0  # talked to just now
        proxy.tenants.rest(exchange.at + 2 * RECENT_S)
        assert proxy.tenants.size_bytes == 0

    proxy = Proxy(config)
    try:
        asyncio.run(through(proxy))
    finally:
        proxy.close()
        turn_memo.forget_all()


def test_a_request_is_let_go_of_when_it_is_answered(tmp_path):
    """Without a collection of garbage, which comes long after: a request holds all of its history."""

    async def slow(got: ReceivedRequest, wire: Wire) -> None:
        await asyncio.sleep(0.1)  # as models are: until then Lantern looks whether the client is still there
        await echo(got, wire)

    def relays() -> int:
        return sum(isinstance(each, Relay) for each in gc.get_objects())

    with Upstream(slow) as upstream, serving(config_for(upstream, tmp_path)) as url:
        ask(url, body("first"))
        gc.collect()
        gc.disable()
        try:
            for n in range(5):
                ask(url, body(f"number {n}"))
            assert wait_for(lambda: relays() == 0, 10.0), "what was answered is still in memory"
        finally:
            gc.enable()
