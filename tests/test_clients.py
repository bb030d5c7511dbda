"""Real clients through the real proxy: those that install in seconds. `scripts/clients` drives all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.__main__ import CACHE, drive
from clients.checks import without_block
from clients.client import Client
from clients.dialects import Reply, parse_request, render_answer
from clients.install import InstallError, ensure
from clients.table import CLIENTS
from clients.talk import DETAILS, FILES, SUMMARY, numbered, turns
from clients.upstream import Script

QUICK = [client for client in CLIENTS if client.quick]


@pytest.mark.parametrize("client", QUICK, ids=lambda client: client.name)
def test_a_client_that_forgets_notices_nothing_and_its_model_gets_every_lost_detail(client: Client) -> None:
    verdict = drive(client).verdict
    assert not verdict.problems, "\n".join(verdict.problems)
    assert verdict.restored == verdict.lost > 0


def test_a_client_that_no_registry_has_is_told_by_its_name(tmp_path: Path) -> None:
    client = Client(
        name="absent", family="none", protocol="chat", drive=lambda job: [], losses=frozenset(),
        pip=(str(tmp_path / "absent-1.0-py3-none-any.whl"),),
    )  # fmt: skip
    with pytest.raises(InstallError, match=r"absent cannot be installed; is its package registry reachable\?"):
        ensure(client, tmp_path)


def test_a_client_whose_python_is_not_there_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "python4.1"
    shim.write_text("#!/bin/sh\necho no such version\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    client = Client(
        name="absent", family="none", protocol="chat", drive=lambda job: [], losses=frozenset(), pip=("absent==1",),
        python=(4, 1),
    )  # fmt: skip
    verdict = drive(client, tmp_path / "cache").verdict
    assert verdict.skipped == "absent needs Python 4.1 or newer, and no python4.1 runs here"
    assert not verdict.problems


def test_no_detail_of_the_conversation_stands_in_the_summary() -> None:
    assert not [detail for detail in DETAILS if detail in SUMMARY + numbered(1)]


@pytest.mark.parametrize("tools", [True, False])
def test_every_detail_is_said_in_the_conversation(tools: bool) -> None:
    said = "\n".join([*FILES.values(), *(text for turn in turns(tools=tools) for text in (turn.said, turn.answer))])
    assert [detail for detail in DETAILS if detail not in said] == []


def requests(path: str) -> Iterator[dict[str, object]]:
    """One user turn in every shape that `path` allows."""
    line = turns(tools=False)[0].said
    yield {"model": "m", "messages": [{"role": "user", "content": line}], "input": line}
    part = {"type": "input_text" if path.endswith("responses") else "text", "text": line}
    message = {"role": "user", "content": [part]}
    yield {"model": "m", "messages": [message], "input": [message]}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_the_scripted_upstream_answers_alike_with_and_without_a_restored_block(path: str) -> None:
    script = Script(turns(tools=False), 1_000)
    for body in requests(path):
        plain = script.decide(parse_request(path, body))
        added = f'\n\n<restored_context id="1">\n{turns(tools=False)[3].said}\n</restored_context>'
        line = turns(tools=False)[0].said
        restored = with_text(body, line, line + added)
        assert script.decide(parse_request(path, restored)) == plain
        assert without_block(restored) == without_block(body)


def test_a_scripted_compaction_item_is_streamed_without_a_text() -> None:
    body = {"model": "m", "input": [{"type": "compaction_trigger"}], "stream": True}
    _, events = render_answer(parse_request("/v1/responses", body), body, Reply("a summary", compaction="b3BhcXVl"))
    streamed = b"".join(events)
    assert b'"type": "compaction"' in streamed
    assert b"output_text" not in streamed


def with_text(data: object, old: str, new: str) -> dict[str, object]:
    """`data` with `new` wherever it says `old`."""

    def change(value: object) -> object:
        if isinstance(value, dict):
            return {key: change(each) for key, each in value.items()}
        if isinstance(value, list):
            return [change(each) for each in value]
        return new if value == old else value

    changed = change(data)
    assert isinstance(changed, dict)
    return changed


def test_clients_are_kept_out_of_the_repository() -> None:
    assert CACHE.parent.name == ".cache"
