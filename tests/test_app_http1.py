"""The clients' side of the server, beside uvicorn's own protocol: same bytes in, same bytes out, fewer writes."""

import asyncio
import gc
import json
import shutil
import ssl
import subprocess
import time
import weakref
from functools import partial

import pytest
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from lantern_proxy import app_http1
from lantern_proxy.app_http1 import ClientConnection

SAID = b"what was said"
LENGTH = (b"content-length", b"%d" % len(SAID))


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self):
        super().__init__()
        self.writes, self.closed, self.reading, self.eof = [], False, True, False
        self.ended = asyncio.Event()

    def get_extra_info(self, name, default=None):
        return {"peername": ("192.0.2.1", 4), "sockname": ("127.0.0.1", 8484)}.get(name, default)

    @property
    def says_no_more(self):
        return self.closed or self.eof

    def write(self, data):
        assert not self.eof, "asyncio raises here"
        if not self.closed:
            self.writes.append(bytes(data))

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.eof = True

    def close(self):
        self.closed = True
        self.ended.set()

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True


async def settle(turns=12):
    for _ in range(turns):
        await asyncio.sleep(0)


def connected(app, protocol=ClientConnection, **settings):
    config = uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False, **settings
    )  # fmt: skip
    connection, transport = protocol(config=config, server_state=ServerState(), app_state={}), Transport()
    connection.connection_made(transport)
    return connection, transport


def played(app, *pieces, protocol=ClientConnection, turns=12):
    """(what comes back for these bytes, is that all that will come?)"""

    async def play():
        connection, transport = connected(app, protocol)
        for piece in pieces:
            if not transport.closed:
                connection.data_received(piece)
                await settle(turns)
        return b"".join(transport.writes), transport.says_no_more

    return asyncio.run(play())


async def all_of(receive):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def answer(send, *pieces, status=200, headers=()):
    await send({"type": "http.response.start", "status": status, "headers": [*headers]})
    for at, piece in enumerate(pieces, 1):
        await send({"type": "http.response.body", "body": piece, "more_body": at < len(pieces)})


async def tells(scope, receive, send):
    """What it was asked, as text."""
    body = await all_of(receive)
    kept = {key: value for key, value in scope.items() if key not in ("state", "asgi")}
    told = "\n".join(f"{key}: {kept[key]!r}" for key in sorted(kept)).encode() + b"\n" + body
    await answer(send, told, headers=[(b"content-length", b"%d" % len(told))])


async def streams(scope, receive, send):
    await all_of(receive)
    await answer(send, b"one", b"", b"two", b"")


async def promises_too_much(scope, receive, send):
    await answer(send, SAID, headers=[(b"content-length", b"99")])


async def promises_too_little(scope, receive, send):
    await answer(send, SAID, headers=[(b"content-length", b"2")])


async def breaks(scope, receive, send):
    raise ZeroDivisionError


async def breaks_later(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise ZeroDivisionError


async def says_nothing(scope, receive, send):
    pass


async def hangs_up(scope, receive, send):
    await answer(send, SAID, headers=[LENGTH, (b"Connection", b"Close")])


async def has_no_body(scope, receive, send):
    await answer(send, b"", status=204)


async def does_not_read(scope, receive, send):
    await answer(send, SAID, status=413, headers=[LENGTH])


GET, POST = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"
REQUESTS = {
    "a get": [GET],
    "its head in three pieces": [GET[:7], GET[7:20], GET[20:]],
    "a body": [POST + b"body"],
    "a body that comes later": [POST, b"bo", b"dy"],
    "a chunked body": [
        b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"3\r\nbod\r\n", b"1\r\ny\r\n0\r\n\r\n"
    ],
    "one after another": [GET, POST + b"body", GET],
    "all at once": [GET + POST + b"body" + GET + GET],
    "the next before the answer": [POST + b"bo", b"dy" + POST + b"more", GET],
    "head": [b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n", GET],
    "close": [b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", GET],
    "percent and utf-8": ["GET /%C3%A4/ö%20?ü=%20 HTTP/1.1\r\nhost: x\r\n\r\n".encode()],
    "percent": [b"GET /%C3%A4%2F%20?%20=%26 HTTP/1.1\r\nhost: x\r\n\r\n"],
    "a fragment": [b"GET /a?b#c HTTP/1.1\r\nhost: x\r\n\r\n"],
    "a whole url": [b"GET http://other/a?b HTTP/1.1\r\nhost: x\r\n\r\n"],
    "a star": [b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n"],
    "expects": [POST.replace(b"host: x", b"host: x\r\nExpect: 100-Continue"), b"body"],
    "expects and sends": [POST.replace(b"host: x", b"host: x\r\nexpect: 100-continue") + b"body"],
    "an upgrade": [b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"],
    "no http": [b"\x16\x03\x01 hello"],
    "no http after a request": [GET, b"hello there\r\n\r\n"],
    "two lengths": [POST.replace(b"host: x", b"host: x\r\ncontent-length: 5") + b"body"],
    "a space in a header's name": [b"GET / HTTP/1.1\r\nho st: x\r\n\r\n"],
}  # fmt: skip
APPS = [tells, streams, promises_too_much, promises_too_little, breaks, breaks_later, says_nothing, hangs_up,
        has_no_body, does_not_read]  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("app", APPS, ids=lambda app: app.__name__)
def test_the_bytes_are_those_of_uvicorns_own_protocol(app, name):
    if app is tells and "expect" in name:
        assert played(app, *REQUESTS[name])[0].startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert played(app, *REQUESTS[name]) == played(app, *REQUESTS[name], protocol=HttpToolsProtocol)


def test_an_old_client_hears_no_interim_answer():
    old = REQUESTS["expects and sends"][0].replace(b"HTTP/1.1", b"HTTP/1.0")
    assert played(tells, old)[0].startswith(b"HTTP/1.1 200 OK\r\n")


WISH = b"connection: upgrade\r\nupgrade: h2c\r\n"
TOLD = {
    "a length": b"content-length: 40\r\n\r\n%b",
    "chunks": b"transfer-encoding: chunked\r\n\r\n28\r\n%b\r\n0\r\n\r\n",
}
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: forty\r\n\r\n"


@pytest.mark.parametrize("cut", [1, 20, 60, 90, 110, 10_000])
@pytest.mark.parametrize("told", TOLD)
def test_a_body_behind_a_wish_for_another_protocol_is_a_body_and_no_next_request(told, cut):
    """However it is cut into packets; the request behind it is read, too."""
    data = b"POST /first HTTP/1.1\r\nhost: x\r\n" + WISH + TOLD[told] % SMUGGLED.ljust(40, b" ") + GET
    got, closed = played(tells, data[:cut], data[cut:])
    assert [line for line in got.split(b"\n") if line.startswith(b"path: ")] == [b"path: '/first'", b"path: '/a'"]
    assert SMUGGLED in got
    assert b"(b'upgrade', b'h2c')" in got
    assert not closed


def test_many_wishes_at_once_are_answered_in_turn():
    got, _ = played(tells, GET.replace(b"Host: x\r\n", b"Host: x\r\n" + WISH) * 2_000 + GET, turns=20_000)
    assert got.count(b"HTTP/1.1 200 OK") == 2_001


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b"", "this HTTP/1.1 request has no Host header; send one, as "),
        (b"host: a\r\nHOST: b:1\r\n", "this request has 2 Host headers ('a', 'b:1'); send one of them"),
        (b"host: x\r\nhost: x\r\n", "this request has 2 Host headers ('x', 'x'); send one of them"),
        (b"host: http://x/\r\n", "the Host header 'http://x/' is no host; send its name and its port alone"),
    ],
)
@pytest.mark.parametrize("wish", [b"", WISH])
def test_a_request_that_does_not_say_once_for_which_host_it_is_is_refused(lines, told, wish):
    """RFC 9112, section 3.2. Who asked before gets the answer, and nothing behind it is read."""
    bad = b"POST /p HTTP/1.1\r\n" + lines + wish + b"content-length: 4\r\n\r\nbody"
    got, closed = played(tells, GET + bad + GET)
    answered, _, refused = got.partition(b"HTTP/1.1 400 Bad Request\r\n")
    assert answered.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in refused
    error = json.loads(refused.partition(b"\r\n\r\n")[2])["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"lantern: {told}")
    assert closed


@pytest.mark.parametrize(
    "host", [b"", b"x", b"127.0.0.1:8484", b"[::1]:8484", b"my_host.example.:80", b"xn--mller-kva.de"]
)
def test_a_host_may_be_empty_a_name_or_an_address(host):
    assert played(tells, b"GET / HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")[0].startswith(b"HTTP/1.1 200 OK\r\n")


def test_an_old_client_need_not_say_for_which_host_it_asks_but_may_not_say_two():
    assert played(tells, b"GET / HTTP/1.0\r\n\r\n")[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert played(tells, b"GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n")[0].startswith(b"HTTP/1.1 400 ")


def test_what_is_not_http_puts_no_word_amid_an_answer():
    """The client would take the refusal for the rest of what it was promised."""

    async def play():
        more = asyncio.Event()

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
            await send({"type": "http.response.body", "body": SAID[:4], "more_body": True})
            await more.wait()
            await send({"type": "http.response.body", "body": SAID[4:]})

        connection, transport = connected(app)
        for piece in (GET, b"no http\r\n\r\n"):
            connection.data_received(piece)
            await settle()
        more.set()
        await settle()
        return b"".join(transport.writes), transport.says_no_more

    got, closed = asyncio.run(play())
    assert got.partition(b"\r\n\r\n")[2] == SAID
    assert closed


@pytest.mark.parametrize(
    "broken", [b"no http\r\n\r\n", POST.replace(b"content-length: 4", b"transfer-encoding: chunked") + b"zz"]
)
def test_who_asked_before_what_is_not_http_gets_the_answer(broken):
    got, closed = played(tells, GET + broken)
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert got.count(b"HTTP/1.1 ") == 1
    assert closed


def test_an_answer_that_begins_twice_ends_without_an_end():
    async def app(scope, receive, send):
        for _ in range(2):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": SAID, "more_body": True})

    got, closed = played(app, GET)
    assert not got.endswith(b"0\r\n\r\n")
    assert closed


@pytest.mark.parametrize("amid", [False, True])
def test_a_connection_that_is_gone_holds_no_memory(amid):
    async def play():
        async def app(scope, receive, send):
            while amid and (await receive())["type"] != "http.disconnect":
                pass
            await answer(send, SAID, headers=[LENGTH])

        connection, _ = connected(app)
        connection.data_received(GET)
        await settle()
        connection.connection_lost(None)
        await settle()
        return weakref.ref(connection)

    gc.disable()
    try:
        assert asyncio.run(play())() is None
    finally:
        gc.enable()


def writes_of(app, *, turns=12):
    async def play():
        connection, transport = connected(app)
        connection.data_received(GET)
        await settle(turns)
        return transport.writes

    return asyncio.run(play())


def test_a_head_and_a_body_at_hand_are_one_write():
    async def app(scope, receive, send):
        await answer(send, SAID, headers=[LENGTH])

    assert len(writes_of(app)) == 1


@pytest.mark.parametrize(("target", "query"), [(b"http://other?b=1", b"b=1"), (b"http://other", b"")])
def test_a_whole_url_without_a_path_asks_for_the_root(target, query):
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["path"], scope["raw_path"], scope["query_string"]))
        await answer(send, SAID, headers=[LENGTH])

    assert b" 200 OK" in played(app, b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % target)[0]
    assert seen == [("/", b"/", query)]


@pytest.mark.parametrize("value", [b"one\r\nset-cookie: two", b"one\ntwo", b"one\x00two", b"one\x7ftwo"])
def test_a_header_that_would_end_its_line_is_a_500(value):
    async def app(headers, scope, receive, send):
        await answer(send, SAID, headers=[*headers, (b"x-a", value)])

    for headers in ([LENGTH], []):
        head, _, said = played(partial(app, headers), GET)[0].partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert said == b"Internal Server Error"


def test_trailers_of_a_body_are_no_headers_of_the_request():
    seen = []

    async def app(scope, receive, send):
        while (await receive())["more_body"]:
            pass
        seen.append(dict(scope["headers"]))
        await answer(send, SAID, headers=[LENGTH])

    chunks = b"3\r\nabc\r\n0\r\nauthorization: Bearer other\r\nx-sum: 77\r\n\r\n"
    said = played(app, b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
    assert b" 200 OK" in said[0]
    assert seen == [{b"host": b"x", b"transfer-encoding": b"chunked"}]


def test_a_head_whose_body_takes_longer_goes_out_at_once():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
        await asyncio.sleep(60)

    assert [write[:15] for write in writes_of(app)] == [b"HTTP/1.1 200 OK"]


def test_a_body_that_nobody_asks_for_is_not_read_on_and_one_that_is_asked_for_is():
    size, piece, got = 4_000_000, b"x" * 100_000, bytearray()

    async def play():
        ask = asyncio.Event()

        async def app(scope, receive, send):
            await ask.wait()
            got.extend(await all_of(receive))

        connection, transport = connected(app)
        connection.data_received(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size)
        sent = 0
        while transport.reading:
            connection.data_received(piece)
            sent += len(piece)
            await settle()
        assert sent <= 400_000
        ask.set()
        for _ in range((size - sent) // len(piece)):
            await settle()
            assert transport.reading
            connection.data_received(piece)
        await settle()

    asyncio.run(play())
    assert bytes(got) == b"x" * size


def test_what_is_sent_waits_until_the_client_takes_more_and_ends_when_it_is_gone():
    async def play(goes):
        after = []

        async def app(scope, receive, send):
            await answer(send, b"a", b"b", headers=[(b"content-length", b"2")])
            after.append((await receive())["type"])

        connection, transport = connected(app)
        connection.pause_writing()
        connection.data_received(GET)
        await settle()
        assert transport.writes == []
        connection.connection_lost(None) if goes else connection.resume_writing()
        await settle()
        assert after == ["http.disconnect"]
        return b"".join(transport.writes)[-2:]

    assert asyncio.run(play(goes=False)) == b"ab"
    assert asyncio.run(play(goes=True)) == b""


def test_a_connection_that_asks_nothing_any_more_is_closed_and_one_that_is_busy_is_not():
    async def play():
        done = asyncio.Event()

        async def app(scope, receive, send):
            if scope["path"] == "/slow":
                await done.wait()
            await answer(send, SAID, headers=[LENGTH])

        connection, transport = connected(app, timeout_keep_alive=0.02)
        connection.data_received(GET)
        await settle()
        connection.data_received(GET.replace(b"/a", b"/slow"))
        await asyncio.sleep(0.1)
        assert not transport.closed
        done.set()
        await transport.ended.wait()

    asyncio.run(asyncio.wait_for(play(), 30))


def test_a_connection_that_never_asks_is_closed():
    async def play():
        connection, transport = connected(tells, timeout_keep_alive=0.02)
        connection.data_received(GET[:9])
        await transport.ended.wait()

    asyncio.run(asyncio.wait_for(play(), 30))


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nx: ",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
    ],
    ids=["path", "name", "value", "trailer"],
)  # fmt: skip
def test_a_head_that_never_ends_is_refused(begun):
    written, closed = played(tells, begun, *[b"x" * 65_536] * 20)
    assert written.startswith(b"HTTP/1.1 400 ")
    assert closed


@pytest.mark.parametrize("wish", [b"", b"connection: upgrade\r\nupgrade: h2c\r\n"])
@pytest.mark.parametrize("request_", [b"GET http:// HTTP/1.1\r\n", b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n"])
def test_what_is_no_request_is_refused_also_with_a_wish_for_another_protocol(request_, wish):
    written, closed = played(tells, request_ + b"host: x\r\n" + wish + b"\r\n")
    assert written.startswith(b"HTTP/1.1 400 ")
    assert closed


def test_a_server_that_stops_closes_who_asks_nothing_and_lets_the_others_have_their_answer():
    async def play():
        done = asyncio.Event()

        async def app(scope, receive, send):
            await done.wait()
            await answer(send, SAID, headers=[LENGTH])

        idle, its_transport = connected(app)
        busy, transport = connected(app)
        busy.data_received(GET)
        await settle()
        for each in (idle, busy):
            each.shutdown()
        assert its_transport.closed
        assert not transport.closed
        done.set()
        await settle()
        assert b"connection: close" in transport.writes[0]
        assert transport.writes[0].endswith(SAID)
        assert transport.closed

    asyncio.run(play())


def test_a_server_that_stops_does_not_wait_for_what_a_refused_client_still_sends():
    async def play():
        before, its_transport = connected(hangs_up)
        before.data_received(POST)
        await settle()
        assert its_transport.eof
        assert not its_transport.closed
        before.shutdown()
        assert its_transport.closed
        after, transport = connected(hangs_up)
        after.data_received(POST)
        after.shutdown()
        await settle()
        assert transport.writes[0].endswith(SAID)
        assert transport.closed

    asyncio.run(play())


def test_who_waits_for_a_go_on_and_is_refused_is_not_told_to_go_on():
    head = b"POST /p HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    got, ended = played(tells, head + b"zz\r\n")
    assert got.startswith(b"HTTP/1.1 400 ")
    assert got.count(b"HTTP/1.1 ") == 1
    assert ended


# on real sockets


LOOPS = pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key.pem", "-out",
            folder / "cert.pem", "-days", "2", "-subj", "/CN=localhost"]  # fmt: skip
    subprocess.run(make, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def talk(loop, app, work, certificate=None):
    """What `work(reader, writer)` returns of a connection to `app`."""
    theirs = ours = None
    if certificate is not None:
        theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
        theirs.load_cert_chain(*certificate)
        ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE

    async def main():
        config = uvicorn.Config(app, http=ClientConnection, ws="none", lifespan="off", log_config=None)
        state = ServerState()
        make = partial(ClientConnection, config=config, server_state=state, app_state={})
        server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, ssl=theirs)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=ours)
        try:
            return await asyncio.wait_for(work(reader, writer), 60)
        finally:
            writer.transport.abort()
            server.close()
            async with asyncio.timeout(30):
                while state.connections:  # noqa: ASYNC110  there is no event for it
                    await asyncio.sleep(0.005)

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main())


LARGE = b"x" * 4_000_000
STILL_SENT = {
    "a body": (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(LARGE), b"413"),
    "chunks": (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % (len(LARGE) + 1), b"413"),
    "broken chunks": (b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n" % 1_000_000, b"413"),
    "no http": (b"no http\r\n\r\n", b"400"),
}


async def refuses(scope, receive, send):
    await answer(send, SAID, status=413, headers=[LENGTH, (b"connection", b"close")])


async def send_all_then_read(head, reader, writer):
    """As clients do that wait for their answer only when all is sent."""
    writer.write(head)
    await asyncio.sleep(0.2)
    for at in range(0, len(LARGE), 100_000):
        writer.write(LARGE[at : at + 100_000])
        await writer.drain()
    return await reader.readuntil(b"\r\n\r\n")


@LOOPS
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("name", STILL_SENT)
def test_who_is_refused_while_sending_may_send_all_and_reads_why(loop, name, tls, request):
    head, status = STILL_SENT[name]
    pair = request.getfixturevalue("certificate") if tls else None
    assert talk(loop, refuses, partial(send_all_then_read, head), pair).split()[1] == status


@LOOPS
def test_a_refused_connection_is_closed_as_soon_as_its_request_has_ended(loop):
    """Its client could go on for as long as it liked."""

    async def work(reader, writer):
        await send_all_then_read(STILL_SENT["a body"][0], reader, writer)
        began = time.monotonic()
        while not writer.transport.is_closing() and time.monotonic() - began < 30:
            writer.write(b"x")
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    assert talk(loop, refuses, work) < app_http1._LINGER_S / 2


async def send_for_ever(writer):
    while True:
        writer.write(b"3e8\r\n%b\r\n" % bytes(1_000))
        await writer.drain()
        await asyncio.sleep(0.001)


@LOOPS
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_refused_client_that_sends_for_ever_is_cut_off(loop, tls, monkeypatch, request):
    monkeypatch.setattr(app_http1, "_LINGER_S", 0.5)

    async def work(reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            await send_for_ever(writer)
        return time.monotonic() - began

    assert 0.4 < talk(loop, refuses, work, request.getfixturevalue("certificate") if tls else None) < 30
