"""Requests that come at the same moment are read one at a time, with a look at the sockets between two of them."""

import asyncio
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from lantern_proxy.proxy.gate import BodyReader, Gate
from lantern_proxy.proxy.relay import Relay
from lantern_proxy.wire.http import Arrival, TooLarge


def run(work):
    """In the loop that serves."""
    uvloop = pytest.importorskip("uvloop")
    uvloop.run(asyncio.wait_for(work, 10))


def test_who_is_alone_does_not_wait():
    async def alone():
        gate = Gate()
        for _ in range(2):
            with pytest.raises(StopIteration):
                gate.enter().send(None)  # a step of it that ends it: nothing was waited for
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    run(alone())


def test_sockets_are_looked_at_between_two_who_come_at_once_and_who_comes_first_goes_first():
    async def crowd():
        gate, loop, seen = Gate(), asyncio.get_running_loop(), []
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        loop.add_reader(ours, lambda: seen.append(ours.recv(1).decode()))

        async def enter(name):
            await gate.enter()
            seen.append(name)
            theirs.send(name.lower().encode())  # a piece of a stream that comes while this one is at work

        await asyncio.gather(*(enter(name) for name in "ABC"))
        for _ in range(20):
            await asyncio.sleep(0)
        loop.remove_reader(ours)
        ours.close()
        theirs.close()
        assert seen == ["A", "a", "B", "b", "C", "c"]

    run(crowd())


def test_one_who_leaves_while_it_waits_holds_up_nobody():
    async def crowd():
        gate, seen = Gate(), []

        async def enter(name):
            await gate.enter()
            seen.append(name)

        tasks = [asyncio.create_task(enter(name)) for name in "ABCD"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert seen == ["A", "C", "D"]

    run(crowd())


SMALL, LONG, LARGE = 1_000, 1_000_000, 30_000_000


@pytest.mark.parametrize(("size", "limits"), [(SMALL, 1), (LONG, 2), (LARGE, 3)])
def test_a_body_is_unpacked_in_the_event_loop_only_as_far_as_that_is_little_work(size, limits):
    tried = []

    def work(limit):
        tried.append((limit, threading.current_thread() is threading.main_thread()))
        if size > limit:
            raise TooLarge
        return size

    assert asyncio.run(BodyReader().unpack(32 << 20, work)) == size
    assert len(tried) == limits
    assert [inside for _, inside in tried] == [True, False, False][:limits]
    assert [limit for limit, _ in tried] == sorted({limit for limit, _ in tried})


def test_what_grows_beyond_all_limits_is_told():
    def work(limit):
        raise TooLarge(f"more than {limit}")

    with pytest.raises(TooLarge, match="more than 300000"):
        asyncio.run(BodyReader().unpack(300_000, work))


@pytest.mark.parametrize(("size", "most"), [(LONG, 4), (LARGE, 1)])
def test_large_bodies_are_read_one_at_a_time_and_others_are_not_held_up(size, most):
    at_work, seen = set(), []

    def work():
        at_work.add(threading.get_ident())
        seen.append(len(at_work))
        time.sleep(0.1)
        at_work.remove(threading.get_ident())

    async def crowd():
        reader = BodyReader()
        await asyncio.gather(*(reader.read(size, work) for _ in range(4)))

    asyncio.run(crowd())
    assert max(seen) == most


class Whole:
    """An answer of an upstream that is here."""

    status, headers, is_here = 200, (), True

    def header(self, name):
        return ""

    async def chunk(self):
        return b"all of it"

    async def close(self):
        pass


def test_a_client_that_leaves_while_its_answer_waits_to_be_read_takes_no_record_along():
    """The gate opens for nobody; the client hangs up; what came is filed all the same."""
    filed, left = [], asyncio.Event()

    class Shut:
        async def enter(self):
            left.set()
            await asyncio.Event().wait()

    async def file(exchange, status, body, **told):
        filed.append((body, told["error"]))

    async def answer(*_args, **_named):
        return Whole()

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        raise AssertionError("nothing goes out before the turn is on disk")

    exchange = SimpleNamespace(
        headers=[], body=b"{}", inserts=[], request=None, lantern_headers=list, lap=lambda stage: None
    )
    arrival = Arrival(method="POST", path="/v1/chat/completions", query=b"", headers=(), body=b"{}")
    proxy = SimpleNamespace(gate=Shut(), file=file)
    run(Relay(proxy, SimpleNamespace(send=answer), arrival, exchange, send).run(receive))
    assert filed == [(b"all of it", "the client hung up")]
