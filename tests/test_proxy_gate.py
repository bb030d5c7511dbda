"""Requests that come at the same moment are read one at a time, with a look at the sockets between two of them."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from lantern_proxy.proxy.gate import Gate
from lantern_proxy.proxy.relay import Relay
from lantern_proxy.wire.http import Arrival


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


class Whole:
    """An answer of an upstream that is here."""

    status, headers, is_here = 200, (), True

    def header(self, name):
        return ""

    async def chunks(self):
        yield b"all of it"

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

    exchange = SimpleNamespace(headers=[], body=b"{}", inserts=[], request=None, told=list, lap=lambda stage: None)
    arrival = Arrival(method="POST", path="/v1/chat/completions", query=b"", headers=(), body=b"{}")
    proxy = SimpleNamespace(gate=Shut(), file=file)
    run(Relay(proxy, SimpleNamespace(send=answer), arrival, exchange, send).run(receive))
    assert filed == [(b"all of it", "the client hung up")]
