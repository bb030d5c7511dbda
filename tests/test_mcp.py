"""The MCP server, asked by the SDK's own client: over standard input and output, and by HTTP."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest

pytest.importorskip("mcp.server.mcpserver", reason="the extra `mcp` is not installed")

from mcp import Client, StdioServerParameters, stdio_client
from test_archive import restore_one

from lantern_proxy import Lantern
from lantern_proxy.archive import Archive
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig

SAID = [
    {"role": "user", "content": "Deployment: on the staging machine the ingest listener has to bind to port 7461."},
    {"role": "assistant", "content": "Noted, 7461 on staging."},
    {"role": "user", "content": "Ines Okonkwo signs off on data protection."},
    {"role": "assistant", "content": "Understood."},
]
THEIRS = [{"role": "user", "content": "The ingest listener's secret port is 9999."}]


@pytest.fixture
def archive(tmp_path):
    config = Config(archive=ArchiveConfig(path=tmp_path / "lantern.db"), embed=EmbedConfig(enabled="off"))
    with Lantern(config) as mine:
        mine.archive("chat-1", SAID)
    with Lantern(config, user="somebody else") as other:
        other.archive("chat-2", THEIRS)
    (tmp_path / "lantern.yaml").write_text("embed: {enabled: off}\n")
    return tmp_path / "lantern.db", mine.tenant


def command(archive) -> list[str]:
    path, tenant = archive
    settings = ["--archive", str(path), "--config", str(path.with_name("lantern.yaml")), "--tenant", tenant]
    return ["-m", "lantern_proxy", "mcp", *settings]


@asynccontextmanager
async def over_stdio(archive, *more: str):
    server = StdioServerParameters(command=sys.executable, args=[*command(archive), *more])
    async with Client(stdio_client(server)) as client:
        yield client


def started(archive) -> tuple[subprocess.Popen, str]:
    """The server on a free port, answering, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serving = subprocess.Popen([sys.executable, *command(archive), "--http", "--port", str(port)])
    for _ in range(600):
        try:
            httpx.get(f"http://127.0.0.1:{port}/mcp", timeout=1)
            break
        except httpx.TransportError:
            time.sleep(0.1)
    return serving, f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def over_http(archive):
    serving, url = await anyio.to_thread.run_sync(started, archive)
    try:
        async with Client(url) as client:
            yield client
    finally:
        serving.terminate()
        await anyio.to_thread.run_sync(serving.wait)


async def call(client, tool: str, **arguments):
    result = await client.call_tool(tool, arguments)
    return result.is_error, json.loads(result.content[0].text) if not result.is_error else result.content[0].text


async def refuses(client, request: str, passage: int, secret: str) -> None:
    """Neither of these is the client's: it learns nothing of them."""
    for tool, asked in (("why", {"request": request}), ("feedback", {"passage": passage, "verdict": "wrong"})):
        failed, told = await call(client, tool, **asked)
        assert failed
        assert secret not in told


@pytest.mark.parametrize("reached", [over_stdio, over_http])
def test_an_agent_recalls_searches_and_judges(archive, reached):
    async def play() -> None:
        async with reached(archive) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {"recall", "search", "why", "feedback"}
            _, found = await call(client, "recall", question="Which port does the ingest listener bind to on staging?")
            texts = [passage["text"] for passage in found["passages"]]
            assert any("7461" in text for text in texts)
            assert not any("9999" in text for text in texts)
            first = next(passage for passage in found["passages"] if "7461" in passage["text"])
            _, hits = await call(client, "search", query="Okonkwo")
            assert hits["passages"][0]["speaker"] == "user"
            _, judged = await call(client, "feedback", passage=first["passage"], verdict="wrong")
            assert judged["verdict"] == "wrong"
            _, again = await call(client, "recall", question="Which port does the ingest listener bind to on staging?")
            assert first["passage"] not in {passage["passage"] for passage in again["passages"]}
            _, judged = await call(client, "feedback", passage=first["passage"], verdict="none")
            assert judged["verdict"] == ""
            _, again = await call(client, "recall", question="Which port does the ingest listener bind to on staging?")
            assert first["passage"] in {passage["passage"] for passage in again["passages"]}
            failed, told = await call(client, "why", request="req_nothing")
            assert failed
            assert "not in the archive" in told

    anyio.run(play)


def test_half_a_surrogate_pair_costs_no_answer(archive):
    path, tenant = archive
    config = Config(archive=ArchiveConfig(path=path), embed=EmbedConfig(enabled="off"))
    with Lantern(config, tenant=tenant) as lantern:
        lantern.archive("chat-9", [{"role": "user", "content": "The lighthouse opens at nine \ud83d every day."}])

    async def play() -> None:
        async with over_stdio(archive) as client:
            for tool, asked in (
                ("recall", {"question": "When does the lighthouse open?"}),
                ("search", {"query": "lighthouse"}),
            ):
                failed, found = await call(client, tool, **asked)
                assert not failed
                assert "opens at nine ? every day" in found["passages"][0]["text"]

    anyio.run(play)


def test_an_archive_that_is_missing_or_empty_is_told_and_none_is_made(tmp_path):
    """A client may start this in any folder: an agent that is told of nothing would be the only sign of it."""

    def start(*options):
        run = [sys.executable, "-m", "lantern_proxy", "mcp", "--archive", str(tmp_path / "a.db"), *options]
        environ = os.environ | {"MY_KEY": "sk-nobody", "LANTERN_CONFIG": str(tmp_path / "lantern.yaml")}
        return subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ, timeout=60)

    (tmp_path / "lantern.yaml").write_text("embed: {enabled: off}\n")
    missing = start()
    assert (missing.returncode, (tmp_path / "a.db").exists()) == (1, False)
    assert "a.db does not exist" in missing.stderr
    Archive(tmp_path / "a.db").close()
    empty = start()
    assert (empty.returncode, "name it with --key-env" in empty.stderr) == (1, True)
    named = start("--key-env", "MY_KEY")
    assert (named.returncode, "has nothing in" in named.stderr) == (0, True)


def test_a_port_that_is_in_use_is_told_with_the_way_out(archive):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = [sys.executable, *command(archive), "--http", "--port", str(port)]
        ended = subprocess.run(run, capture_output=True, text=True, timeout=60)
    told = f"lantern: cannot listen on 127.0.0.1 port {port} (address already in use); choose another with --port\n"
    assert (ended.returncode, ended.stderr) == (1, told)


def test_an_agent_sees_nothing_of_another_tenant(archive):
    path, mine = archive
    with Archive(path, read_only=True) as whole:
        [other] = [tenant.id for tenant in whole.tenants() if tenant.id != mine]
        [theirs], [request] = whole.of(other).passages(), whole.of(other).requests()

    async def play() -> None:
        async with over_stdio(archive) as client:
            for query in ("secret port", "9999", "ingest listener"):
                _, hits = await call(client, "search", query=query)
                _, found = await call(client, "recall", question=f"What is the {query}?")
                assert "9999" not in json.dumps([hits, found])
            assert hits["passages"]
            await refuses(client, request.id, theirs.id, "9999")

    anyio.run(play)
    with Archive(path, read_only=True) as whole:
        assert whole.of(other).passages_by_id([theirs.id])[theirs.id].verdict == ""


def test_an_agent_of_one_project_asks_and_judges_by_its_last_request(archive):
    path, mine = archive
    with Archive(path) as whole:
        passage, _ = (restore_one(whole, mine, project, n) for project, n in (("a", 1), ("b", 3)))

    async def play() -> None:
        async with over_stdio(archive, "--project", "a") as client:
            failed, told = await call(client, "why", request="last")
            assert not failed
            assert [shown["passage"] for shown in told["passages"]] == [passage.id]
            failed, judged = await call(client, "feedback", passage=passage.id, verdict="useful", request="last")
            assert not failed
            assert judged["verdict"] == "useful"

    anyio.run(play)


def test_an_agent_of_one_project_sees_nothing_of_another(archive):
    path, mine = archive
    config = Config(archive=ArchiveConfig(path=path), embed=EmbedConfig(enabled="off"))
    with Lantern(config, tenant=mine, project="b") as lantern:
        lantern.archive("chat-3", [{"role": "user", "content": "The cafeteria opens at eleven on Fridays."}])
    with Archive(path, read_only=True) as whole:
        [theirs] = [hit.passage for hit in whole.of(mine).search("Okonkwo")]
        [request] = whole.of(mine).requests("chat-1")

    async def play() -> None:
        async with over_stdio(archive, "--project", "b") as client:
            _, hits = await call(client, "search", query="cafeteria Okonkwo")
            assert [passage["session"] for passage in hits["passages"]] == ["chat-3"]
            await refuses(client, request.id, theirs.id, "Okonkwo")

    anyio.run(play)
