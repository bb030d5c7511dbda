"""Who may come in, on real servers: proxy keys, the admin token, pages, limits, TLS, and what never leaves."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import certifi
import httpx
import pytest
from click.testing import CliRunner
from scripted import Upstream, ask, body, config_for, http, lantern_headers, process, respond, serving, wait_for

from lantern_proxy.access import Rate, escapes_base, reachable_from_elsewhere, refuse_open_access
from lantern_proxy.access_admin import AdminAccess
from lantern_proxy.access_keys import Keyring, KeysError, keys_file
from lantern_proxy.admin.health import health
from lantern_proxy.archive import Archive
from lantern_proxy.cli import main as cli
from lantern_proxy.cli import serve as cli_serve
from lantern_proxy.config import AccessConfig, Config, ServerConfig, TenantConfig
from lantern_proxy.config.check import ConfigError
from lantern_proxy.wire.http import CREDENTIALS

PROVIDER_KEY = "sk-provider-CANARY-4711"
PREFLIGHT = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
TOKEN = "admin-token-of-forty-characters-CANARY-99"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    with Upstream() as upstream, serving(config_for(upstream, folder)) as url:
        yield upstream, url


@contextlib.contextmanager
def keyed(folder, **access):
    """A proxy that asks for keys; yields its URL, the upstream, the keyring."""
    with Upstream() as upstream:
        config = config_for(upstream, folder, access=AccessConfig(**access))
        ring = Keyring(keys_file(config))
        yield config, upstream, ring


def raw(url: str, request: bytes) -> bytes:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as wire:
        wire.sendall(request)
        wire.settimeout(2)
        got = b""
        with contextlib.suppress(TimeoutError):
            while piece := wire.recv(65_536):
                got += piece
                if b"\r\n\r\n" in got and got.endswith((b"}", b"\n\n")):
                    break
        return got


# binding


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "lantern.example"])
def test_an_address_that_others_can_reach_needs_a_key(tmp_path, host):
    config = Config(server=ServerConfig(host=host), archive=replace(Config().archive, path=tmp_path / "a.db"))
    with pytest.raises(ConfigError, match="lantern keys add NAME"):
        refuse_open_access(config)
    ring = Keyring(keys_file(config))
    ring.add("alice", now=1.0)
    refuse_open_access(config)
    ring.revoke("alice", now=2.0)
    with pytest.raises(ConfigError, match="there is no proxy key"):
        refuse_open_access(config)
    refuse_open_access(replace(config, access=AccessConfig(keys="off")))


def test_not_all_who_can_reach_the_port_are_one_tenant(tmp_path):
    config = Config(
        server=ServerConfig(host="0.0.0.0"), archive=replace(Config().archive, path=tmp_path / "a.db"),
        access=AccessConfig(keys="off"), tenants={"me": TenantConfig(keys_sha256=["*"])},
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"tenants.me.keys_sha256 is \"\*\""):
        refuse_open_access(config)
    refuse_open_access(replace(config, server=ServerConfig()))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_this_machine_alone_needs_no_key(tmp_path, host):
    assert not reachable_from_elsewhere(host)
    refuse_open_access(
        Config(server=ServerConfig(host=host), archive=replace(Config().archive, path=tmp_path / "a.db"))
    )


def test_serve_refuses_to_be_open_to_anybody_in_one_line(tmp_path):
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--host", "0.0.0.0", "--port", "0"]
    environ = os.environ | {"LANTERN_ARCHIVE": str(tmp_path / "a.db")}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "lantern keys add NAME" in done.stderr


def test_who_starts_it_is_told_that_other_machines_reach_it(tmp_path):
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--host", "0.0.0.0", "--port", "0"]
    environ = os.environ | {"LANTERN_ARCHIVE": str(tmp_path / "a.db")}
    subprocess.run([*command[:3], "keys", "add", "alice"], capture_output=True, env=environ, timeout=60, check=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as served:
        assert served.stdout is not None
        assert "server.host is 0.0.0.0: other machines reach it, too" in served.stdout.readline()
        served.terminate()


# proxy keys


def test_without_a_key_nothing_passes_and_nothing_is_asked(tmp_path):
    with keyed(tmp_path) as (config, upstream, ring):
        secret = ring.add("alice", now=1.0)
        with serving(config) as url:
            for path, headers in (
                ("/v1/chat/completions", {"authorization": "Bearer sk-mine"}),
                ("/v1/models", {}),
                ("/v1/messages", {"x-api-key": secret[:-1]}),
                ("/v1/embeddings", {"x-lantern-key": secret + "x"}),
                ("/v1/models", {"authorization": "Bearer"}),
            ):
                answer = http.post(url + path, json=body("hi"), headers=headers)
                assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
                assert secret[:-1] not in answer.text
            assert not upstream.got
            assert ask(url, body("hi"), key=secret).status_code == 200


@pytest.mark.parametrize(
    ("path", "place", "went"),
    [
        ("/v1/chat/completions", "authorization", ("authorization", f"Bearer {PROVIDER_KEY}")),
        ("/v1/messages", "x-api-key", ("x-api-key", PROVIDER_KEY)),
        ("/v1/messages", "authorization", ("x-api-key", PROVIDER_KEY)),
        ("/v1/models", "x-lantern-key", ("authorization", f"Bearer {PROVIDER_KEY}")),
        ("/openai/deployments/d/chat/completions", "api-key", ("api-key", PROVIDER_KEY)),
    ],
)
def test_the_upstream_gets_its_own_key_and_never_the_proxy_key(tmp_path, monkeypatch, path, place, went):
    monkeypatch.setenv("THE_UPSTREAMS_KEY", PROVIDER_KEY)
    with keyed(tmp_path) as (config, upstream, ring):
        secret = ring.add("alice", upstream={"any": "env:THE_UPSTREAMS_KEY"}, now=1.0)
        with serving(config) as url:
            value = f"Bearer {secret}" if place == "authorization" else secret
            assert http.post(url + path, json=body("hi"), headers={place: value}).status_code == 200
        assert went in [(name.lower(), value) for name, value in upstream.got[-1].headers]
        assert secret not in repr(upstream.got)


def test_a_key_in_another_header_lets_the_clients_key_pass(tmp_path):
    with keyed(tmp_path) as (config, upstream, ring):
        secret = ring.add("alice", now=1.0)
        with serving(config) as url:
            assert ask(url, body("hi"), key="sk-mine", x_lantern_key=secret).status_code == 200
            assert upstream.got[-1].header("authorization") == "Bearer sk-mine"
            for more in ({"x_lantern_key": secret, "x_api_key": secret}, {"x_api_key": secret}):
                assert ask(url, body("hi"), key="sk-mine", **more).status_code == 200
                assert upstream.got[-1].header("authorization") == "Bearer sk-mine"
                assert upstream.got[-1].header("x-api-key") is None
            assert ask(url, body("hi"), key=secret).status_code == 200
            assert upstream.got[-1].header("authorization") is None


def test_a_proxy_key_is_found_beside_a_dummy(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_UPSTREAMS_KEY", PROVIDER_KEY)
    with keyed(tmp_path) as (config, upstream, ring):
        secret = ring.add("alice", upstream={"any": "env:THE_UPSTREAMS_KEY"}, now=1.0)
        with serving(config) as url:
            assert ask(url, body("hi"), key="dummy", api_key=secret).status_code == 200
        assert upstream.got[-1].header("api-key") == PROVIDER_KEY
        assert upstream.got[-1].header("authorization") is None


def test_the_upstreams_keys_differ_by_provider_and_may_be_files(tmp_path, monkeypatch):
    monkeypatch.setenv("ONE", "sk-openai")
    (tmp_path / "two").write_text("sk-ant\n")
    with keyed(tmp_path) as (config, upstream, ring):
        secret = ring.add("a", upstream={"openai": "env:ONE", "anthropic": f"file:{tmp_path / 'two'}"}, now=1.0)
        lost = ring.add("b", upstream={"any": "env:NOT_SET_ANYWHERE"}, now=1.0)
        with serving(config) as url:
            ask(url, body("hi"), key=secret)
            http.post(f"{url}/v1/messages", json=body("hi"), headers={"x-api-key": secret})
            assert upstream.got[0].header("authorization") == "Bearer sk-openai"
            assert upstream.got[1].header("x-api-key") == "sk-ant"
            answer = ask(url, body("hi"), key=lost)
            assert (answer.status_code, "NOT_SET_ANYWHERE" in answer.text) == (502, True)
            assert lost not in answer.text


def test_an_upstream_key_that_is_not_there_is_told_at_the_start_and_with_each_request_it_costs(tmp_path):
    with keyed(tmp_path) as (config, _, ring):
        lost = ring.add("b", upstream={"any": "env:NOT_SET_ANYWHERE"}, now=1.0)
        gone = ring.add("c", upstream={"any": "env:NOT_SET_EITHER"}, now=1.0)
        ring.revoke("c", now=2.0)
        with process(config) as (serve, url):
            ask(url, body("hi"), key=lost)
            serve.terminate()
            first, *others = [line for line in serve.communicate(timeout=30)[1].splitlines() if "WARNING" in line]
    assert "proxy key b takes its upstream key from environment variable NOT_SET_ANYWHERE" in first
    assert ["POST /v1/chat/completions gets 502" in line for line in others] == [True]
    assert not any(secret in line for secret in (lost, gone) for line in (first, *others))


def test_a_body_in_another_transfer_coding_than_chunks_is_refused(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        for codings in (b"gzip, chunked", b"gzip\r\ntransfer-encoding: chunked"):
            asked = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: %b\r\n\r\n" % codings
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
                client.sendall(asked + b"2\r\n{}\r\n0\r\n\r\n")
                assert client.makefile("rb").readline() == b"HTTP/1.1 501 Not Implemented\r\n"
        assert not upstream.got


def test_keys_of_one_tenant_share_its_memory_so_that_they_can_be_replaced(tmp_path):
    with keyed(tmp_path) as (config, _, ring):
        old, other = ring.add("alice", now=1.0), ring.add("bob", now=1.0)
        with serving(config) as url:
            first = lantern_headers(ask(url, body("The port is 9443 for DELTA-17."), key=old))
            new = ring.add("alice-2", tenant="alice", now=2.0)
            ring.revoke("alice", now=3.0)
            wait_for(lambda: ask(url, body("x"), key=old).status_code == 401)
            assert ask(url, body("x"), key=old).status_code == 401
            more = body("The port is 9443 for DELTA-17.", "I heard: The port is 9443 for DELTA-17.", "go on")
            assert lantern_headers(ask(url, more, key=new))["session"] == first["session"]
            assert lantern_headers(ask(url, more, key=other))["session"] != first["session"]
    with Archive(config.archive.path) as archive:
        assert {tenant.id for tenant in archive.tenants()} == {"alice", "bob"}


def test_the_file_holds_hashes_and_is_for_its_owner_alone(tmp_path):
    ring = Keyring(tmp_path / "keys")
    secret = ring.add("alice", now=1.0)
    text = (tmp_path / "keys").read_text()
    assert secret not in text
    assert secret.removeprefix("lk_") not in text
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "keys"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_the_user_of_the_service_can_read_keys_that_root_makes_and_revokes(tmp_path):
    service, other = 65_534, 12_345
    os.chown(tmp_path, service, service)
    Keyring(tmp_path / "keys").add("alice", now=1.0)
    assert (tmp_path / "keys").stat().st_uid == service
    os.chown(tmp_path / "keys", other, other)
    Keyring(tmp_path / "keys").revoke("alice", now=2.0)
    told = (tmp_path / "keys").stat()
    assert (told.st_uid, told.st_mode & 0o777) == (other, 0o600)


def test_a_name_that_is_taken_is_refused_with_the_way_to_a_new_key_for_the_same_archive(tmp_path):
    ring = Keyring(tmp_path / "keys")
    ring.add("alice", tenant="team", now=1.0)
    ring.revoke("alice", now=2.0)
    with pytest.raises(KeysError, match=r"key alice exists, .* take another, with --tenant team for the same archive"):
        ring.add("alice", now=3.0)


def test_a_keys_file_that_cannot_be_read_opens_no_door(tmp_path):
    with keyed(tmp_path) as (config, _, ring):
        ring.add("alice", now=1.0)
        keys_file(config).write_text("{half")
        with pytest.raises(KeysError, match="cannot be read"):
            Keyring(keys_file(config))


@pytest.mark.parametrize("workers", [1, 2])
def test_serve_ends_at_once_where_the_keys_file_cannot_be_read(tmp_path, monkeypatch, workers):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lantern.db.keys").write_text("{half")
    ended = CliRunner().invoke(cli.cli, ["serve", "--port", "0", "--workers", str(workers)])
    told = (
        "lantern: keys file lantern.db.keys cannot be read (JSONDecodeError); restore it, or remove it and add keys\n"
    )
    assert (ended.exit_code, ended.output) == (1, told)


def test_a_keys_file_that_vanishes_while_it_serves_opens_no_door(tmp_path):
    with keyed(tmp_path) as (config, _, ring):
        secret = ring.add("alice", now=1.0)
        with serving(config) as url:
            keys_file(config).unlink()
            time.sleep(1.1)
            assert ask(url, body("x"), key="sk-any").status_code == 401
            assert ask(url, body("x"), key=secret).status_code == 200


def test_the_last_key_revoked_does_not_open_the_door(tmp_path):
    with keyed(tmp_path) as (config, upstream, ring):
        ring.add("alice", now=1.0)
        ring.revoke("alice", now=2.0)
        with serving(config) as url:
            assert ask(url, body("x")).status_code == 401
        assert not upstream.got


def test_required_means_that_nobody_comes_in_without_a_key(tmp_path):
    with keyed(tmp_path, keys="required") as (config, upstream, _), serving(config) as url:
        assert ask(url, body("x")).status_code == 401
        assert not upstream.got


def test_whoever_starts_it_is_told_that_nobody_has_a_key(tmp_path, capsys):
    with keyed(tmp_path, keys="required") as (config, _, ring):
        cli_serve._banner(config, "http://127.0.0.1:1", as_json=False)
        assert "every request is refused; `lantern keys add NAME` makes one" in capsys.readouterr().out
        ring.add("alice", now=1.0)
        cli_serve._banner(config, "http://127.0.0.1:1", as_json=False)
        assert "refused" not in capsys.readouterr().out


def test_keys_are_made_listed_and_revoked_at_the_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("LANTERN_ARCHIVE", str(tmp_path / "a.db"))

    def run(*arguments, code=0):
        result = CliRunner().invoke(cli.cli, ["keys", *arguments])
        assert result.exit_code == code, result.output
        return result

    made = json.loads(run("add", "alice", "--upstream-key-env", "openai=OPENAI_API_KEY", "--json").stdout)
    assert made["key"].startswith("lk_")
    shown = json.loads(run("list", "--json").stdout)
    assert shown["upstream"] == {"openai": "env:OPENAI_API_KEY"}
    assert made["key"] not in run("list").output
    assert "exists" in run("add", "alice", code=1).stderr
    assert "there is no key bob" in run("revoke", "bob", code=1).stderr
    run("revoke", "alice")
    assert json.loads(run("list", "--json").stdout)["revoked_at"]
    assert "cannot be used" in run("add", "t_x", code=1).stderr
    assert "not understood" in run("add", "x", "--upstream-key-env", "gopher=A", code=1).stderr


# /lantern


def admin_status(client: str, method: str = "GET", path: str = "/lantern/api/sessions", access=None, **headers: str):
    config = Config(access=access or AccessConfig())
    named = {"host": "127.0.0.1:8484"} | {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = [(name.encode(), value.encode()) for name, value in named.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": pairs, "client": (client, 5)}
    refused = AdminAccess(config, health).refusal(scope)
    return refused.status if refused else 200


def test_elsewhere_needs_the_token_and_here_does_not(monkeypatch):
    assert admin_status("10.0.0.9") == 403
    monkeypatch.setenv("LANTERN_ADMIN_TOKEN", TOKEN)
    assert admin_status("10.0.0.9") == 401
    assert admin_status("10.0.0.9", authorization=f"Bearer {TOKEN}") == 200
    assert admin_status("10.0.0.9", authorization=f"Bearer {TOKEN}x") == 401
    assert admin_status("10.0.0.9", authorization=f"Bearer {TOKEN[:-1]}") == 401
    assert admin_status("10.0.0.9", authorization="Bearer ") == 401
    assert admin_status("10.0.0.9", x_lantern_admin=TOKEN) == 200
    assert admin_status("10.0.0.9", authorization=httpx.BasicAuth("me", TOKEN)._auth_header) == 200
    assert admin_status("10.0.0.9", authorization="Basic !!") == 401
    assert admin_status("127.0.0.1") == 200
    assert admin_status("127.0.0.1", access=AccessConfig(admin="token")) == 401


def test_a_proxy_on_this_machine_does_not_make_others_local():
    assert admin_status("127.0.0.1", x_forwarded_for="203.0.113.9") == 403
    assert admin_status("127.0.0.1", forwarded="for=203.0.113.9") == 403
    pairs = [(b"host", b"localhost"), (b"x-real-ip", b"203.0.113.9")]
    scope = {"type": "http", "method": "GET", "path": "/lantern/ui", "headers": pairs, "client": ("127.0.0.1", 5)}
    refused = AdminAccess(Config(), health).refusal(scope)
    assert refused is not None
    assert refused.message.startswith("127.0.0.1 (with x-real-ip) may not see this")


def test_a_token_that_could_be_guessed_is_refused_at_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("LANTERN_ADMIN_TOKEN", "short")
    with pytest.raises(ConfigError, match="shorter than 16") as caught:
        AdminAccess(Config(), health)
    assert "short'" not in str(caught.value)
    monkeypatch.delenv("LANTERN_ADMIN_TOKEN")
    with pytest.raises(ConfigError, match="holds no admin token"):
        AdminAccess(Config(access=AccessConfig(admin="token")), health)
    (tmp_path / "token").write_text(TOKEN + "\n")
    with_file = AccessConfig(admin="token", admin_token_file=str(tmp_path / "token"))
    assert admin_status("10.0.0.9", access=with_file, x_lantern_admin=TOKEN) == 200


def test_tokens_and_keys_are_compared_in_constant_time(monkeypatch):
    compared = []
    import hmac

    true = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: (compared.append((a, b)), true(a, b))[1])
    monkeypatch.setenv("LANTERN_ADMIN_TOKEN", TOKEN)
    admin_status("10.0.0.9", authorization="Bearer wrong")
    assert [len(a) == len(b) == 32 for a, b in compared] == [True]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8484"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"host": "evil.example"}, 403),
        ({"content_length": "5", "content_type": "text/plain"}, 415),
        ({"content_length": "5", "content_type": "application/json"}, 200),
        ({"origin": "http://ops.example", "content_type": "application/json", "content_length": "2"}, 200),
    ],
)
def test_a_page_of_another_origin_changes_nothing(headers, status):
    access = AccessConfig(origins=("http://ops.example",))
    assert admin_status("127.0.0.1", "POST", access=access, **headers) == status
    assert admin_status("127.0.0.1", "DELETE", access=access, **headers) == status


def test_a_name_may_be_allowed():
    assert admin_status("127.0.0.1", host="lantern.internal:8484") == 403
    assert (
        admin_status("127.0.0.1", host="lantern.internal:8484", access=AccessConfig(hosts=("lantern.internal",))) == 200
    )


def test_a_stranger_learns_whether_it_is_up_and_nothing_else(tmp_path):
    with Upstream() as upstream:
        from lantern_proxy import app

        made = app.create(config_for(upstream, tmp_path))

        async def look() -> list[httpx.Response]:
            transport = httpx.ASGITransport(made, client=("10.0.0.9", 4_000))
            async with (
                made.lifespan(made),
                httpx.AsyncClient(transport=transport, base_url="http://10.0.0.1:8484") as elsewhere,
            ):
                ours = ("metrics", "api/sessions", "nothing", "api/sessions/lantern/health")
                paths = ("/lantern/health", *(f"/lantern/{path}" for path in ours))
                return [await elsewhere.get(path) for path in paths]

        health, *others = asyncio.run(look())
        assert (health.status_code, health.json()) == (200, {"status": "ok"})
        assert [answer.status_code for answer in others] == [403] * 4


# pages that ask the upstream


def test_a_page_that_rebinds_its_name_cannot_use_the_proxy(running):
    upstream, url = running
    before = len(upstream.got)
    page = {"host": "evil.example:8484", "origin": "http://evil.example:8484"}
    for headers in (page, page | {"authorization": "Bearer ollama"}):
        assert http.post(f"{url}/v1/chat/completions", json=body("x"), headers=headers).status_code == 403
    assert len(upstream.got) == before


def test_a_page_of_another_origin_needs_a_credential_of_its_user(running):
    _, url = running
    page = {"origin": "https://chat.example"}
    assert http.post(f"{url}/v1/chat/completions", json=body("x"), headers=page).status_code == 403
    known = page | {"authorization": "Bearer sk-1"}
    assert http.post(f"{url}/v1/chat/completions", json=body("x"), headers=known).status_code == 200
    own = {"origin": "http://localhost:3000"}
    assert http.post(f"{url}/v1/chat/completions", json=body("x"), headers=own).status_code == 200


@pytest.mark.parametrize(
    ("origin", "more", "status"),
    [
        ("https://chat.example", {"access-control-request-method": "POST"}, 200),
        ("http://localhost:3000", {"access-control-request-method": "POST"}, 200),
        ("https://other.example", {"access-control-request-method": "POST"}, 403),
        ("https://chat.example", {}, 401),
    ],
)
def test_a_browser_asks_without_a_key_whether_a_known_page_may_send_one(tmp_path, origin, more, status):
    origins = ("https://chat.example",)
    with keyed(tmp_path, keys="required", origins=origins) as (config, upstream, _), serving(config) as url:
        upstream.answer, asked = respond(200, b"{}"), f"{url}/v1/chat/completions"
        assert http.options(asked, headers={"origin": origin} | more).status_code == status
        assert len(upstream.got) == (status == 200)
        assert http.post(asked, json=body("x"), headers={"origin": origin} | more).status_code in (401, 403)


@pytest.mark.parametrize("place", ["authorization", "x-api-key", "api-key", "x-lantern-key"])
def test_a_proxy_key_in_a_preflight_never_goes_upstream(tmp_path, monkeypatch, place):
    monkeypatch.setenv("THE_UPSTREAMS_KEY", PROVIDER_KEY)
    with keyed(tmp_path) as (config, upstream, ring):
        secret = ring.add("alice", upstream={"any": "env:THE_UPSTREAMS_KEY"}, now=1.0)
        with serving(config) as url:
            assert http.options(f"{url}/v1/models", headers=PREFLIGHT | {place: secret}).status_code == 200
        assert PROVIDER_KEY in repr(upstream.got)
        assert secret not in repr(upstream.got)


@pytest.mark.parametrize(
    ("headers", "content"),
    [({}, [b"chunked"]), ({}, b"whole"), *(({place.decode(): "r"}, None) for place in CREDENTIALS)],
)
def test_what_brings_a_body_or_a_credential_is_no_preflight(tmp_path, headers, content):
    with keyed(tmp_path, keys="required") as (config, upstream, _), serving(config) as url:
        answer = http.request("OPTIONS", f"{url}/v1/models", headers=PREFLIGHT | headers, content=content)
        assert answer.status_code == 401
        assert not upstream.got


def test_preflights_are_counted_by_the_address_that_they_come_from(tmp_path):
    access = {"keys": "required", "requests_per_minute": 3}
    with keyed(tmp_path, **access) as (config, upstream, _), serving(config) as url:
        answers = [http.options(f"{url}/v1/models", headers=PREFLIGHT) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
        assert "more than 3 requests a minute, the most that access.requests_per_minute allows" in answers[-1].text
        assert len(upstream.got) == 3


def reset(got, wire):
    wire.reset()
    return asyncio.sleep(0)


@pytest.mark.parametrize(
    ("access", "asked", "status"),
    [
        ({"keys": "required"}, b"POST /v1/models HTTP/1.1\r\n", 401),
        ({"requests_per_minute": 1}, b"POST /v1/models HTTP/1.1\r\n", 429),
        ({}, b"POST /v1/../../x HTTP/1.1\r\n", 400),
        ({"max_body_mb": 1}, b"POST /v1/models HTTP/1.1\r\ncontent-length: 2000000\r\n", 413),
        ({"max_body_mb": 1}, b"POST /v1/models HTTP/1.1\r\ntransfer-encoding: chunked\r\n", 413),
        ({}, b"POST /v1/models HTTP/1.1\r\n", 502),
    ],
)
def test_a_page_that_may_call_without_a_credential_reads_why_it_is_refused(tmp_path, access, asked, status):
    """A browser hides an answer that does not name its page's origin (Fetch: CORS protocol)."""
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (1_100_000, b"x" * 1_100_000) if b"chunked" in asked else b""
    named = b"\r\naccess-control-allow-origin: "
    with keyed(tmp_path, origins=("https://chat.example",), **access) as (config, upstream, _), serving(config) as url:
        upstream.answer = reset if status == 502 else respond(200, b"{}")
        for origin in (b"https://chat.example", b"http://localhost:3000", b"https://other.example"):
            head = asked + b"host: 127.0.0.1\r\nauthorization: Bearer sk-1\r\norigin: " + origin + b"\r\n\r\n"
            answer = next(got for _ in range(3) if (got := raw(url, head + chunk)).startswith(b"HTTP/1.1 %d" % status))
            assert answer.count(named) == (origin != b"https://other.example")
            assert (named + origin in answer) == (origin != b"https://other.example")


def test_what_an_upstream_lets_pages_read_is_its_own_affair(tmp_path):
    with keyed(tmp_path, origins=("https://chat.example",)) as (config, upstream, _), serving(config) as url:
        upstream.answer = respond(200, b"{}")
        answer = http.post(f"{url}/v1/models", headers={"origin": "https://chat.example"})
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["http://[::1", "http://[x]"])
@pytest.mark.parametrize("path", ["/v1/models", "/lantern/api/feedback"])
def test_an_origin_that_is_no_url_is_a_stranger(running, origin, path):
    assert http.post(f"{running[1]}{path}", json={}, headers={"origin": origin}).status_code == 403


def test_a_client_that_is_no_page_may_call_by_any_name(running):
    _, url = running
    assert http.post(f"{url}/v1/models", headers={"host": "lantern.compose:8484"}).status_code == 200


# limits


def test_too_many_requests_are_told_when_to_come_again(tmp_path):
    with keyed(tmp_path, requests_per_minute=3) as (config, upstream, _), serving(config) as url:
        answers = [ask(url, body("x"), key="sk-one") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert ask(url, body("x"), key="sk-two").status_code == 200
        assert len(upstream.got) == 4


def test_a_bucket_fills_evenly():
    rate = Rate(60)
    assert [rate.wait("a", 0.0) for _ in range(61)] == [0] * 60 + [1]
    assert rate.wait("a", 1.0) == 0
    assert rate.wait("a", 1.0) == 1
    assert rate.wait("b", 1.0) == 0


def test_the_longest_file_that_openai_takes_is_not_too_long():
    assert AccessConfig().max_body_mb * 1_000_000 > 512 << 20


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_long_is_refused(tmp_path, path, chunked):
    with keyed(tmp_path, max_body_mb=1) as (config, upstream, _), serving(config) as url:
        upstream.answer = respond(200, b"{}")
        size, answers = 1_200_000, {}
        for much in (900_000, size):
            content = iter([b"x" * (much // 4)] * 4) if chunked else b"x" * much
            with contextlib.suppress(httpx.TransportError):  # a server may close before all is sent
                answers[much] = http.post(url + path, content=content)
        assert answers[900_000].status_code == 200
        if size in answers:
            assert answers[size].status_code == 413
        assert all(len(got.body) <= 1_000_000 for got in upstream.got)


@pytest.mark.parametrize("status", [401, 413])
def test_whoever_sends_a_large_body_to_its_end_reads_why_it_is_refused(tmp_path, status):
    access = {"keys": "required"} if status == 401 else {"max_body_mb": 1}
    with keyed(tmp_path, **access) as (config, upstream, _), serving(config) as url:
        large = b"x" * 5_000_000
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port), timeout=60) as wire:
            wire.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(large))
            assert wire.recv(12, socket.MSG_PEEK).endswith(b"%d" % status)
            wire.sendall(large)
            got = b"".join(iter(lambda: wire.recv(65_536), b""))
        assert json.loads(got.partition(b"\r\n\r\n")[2])["error"]["message"].startswith("lantern: ")
        assert upstream.got == []


# the upstream is the config's


@pytest.mark.parametrize(
    "target",
    ["http://evil.example/v1/models", "http://user:pw@evil.example/v1/models", "//evil.example/v1/models",
     "https://evil.example:443/v1/models?x=http://evil.example", "/v1/http://evil.example/", "/@evil.example/v1/x",
     "/v1/models%00.evil.example"],
)  # fmt: skip
def test_no_target_leads_anywhere_but_to_the_configured_upstream(running, target):
    upstream, url = running
    upstream.answer = respond(200, b"{}")
    before = len(upstream.got)
    headers = b"host: evil.example\r\nx-forwarded-host: evil.example\r\nx-lantern-upstream: http://evil.example\r\n"
    answer = raw(url, b"GET %s HTTP/1.1\r\n%s\r\n" % (target.encode(), headers))
    if answer.startswith(b"HTTP/1.1 200"):
        assert len(upstream.got) == before + 1
        assert upstream.got[-1].header("host") == upstream.url.removeprefix("http://")
        assert upstream.got[-1].target.startswith("/")
    else:
        assert answer.split()[1].startswith(b"4")
        assert len(upstream.got) == before


@pytest.mark.parametrize(
    ("path", "leaves"),
    [("/v1/a/../b", False), ("/v1/../x", True), ("/../x", True), ("/v1/a/../../x", True), ("/v1/%2e%2e/x", True),
     ("/v1/.%2E/x", True), ("/v1/..%2f..%2fx", True), ("/v1/..\\x", True), ("/v1/a..b/...", False),
     ("/v1//a/..", False)],
)  # fmt: skip
def test_a_path_does_not_leave_the_base_of_the_upstream(path, leaves):
    assert escapes_base(path) is leaves


@pytest.mark.parametrize(
    "path", [b"/v1/../../admin", b"/v1/%2e%2e/%2e%2e/admin", b"/v1/%2E%2E/%2E%2E/admin", b"/v1/%2e%2E%2f%2e%2e%2Fadmin"]
)
def test_a_path_that_climbs_is_refused(running, path):
    upstream, url = running
    before = len(upstream.got)
    assert raw(url, b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n" % path).startswith(b"HTTP/1.1 400")
    assert len(upstream.got) == before


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_handed_on_and_not_followed(running, status):
    upstream, url = running
    upstream.answer = respond(status, b"", ("location", f"{upstream.url}/elsewhere"))
    before = len(upstream.got)
    answer = ask(url, body("x"))
    assert (answer.status_code, answer.headers["location"]) == (status, f"{upstream.url}/elsewhere")
    assert len(upstream.got) == before + 1


# keys that the upstream does not know


@pytest.mark.parametrize(
    ("status", "refusal"),
    [(401, b"{}"), (403, b"{}"), (400, b'{"error": {"message": "API key not valid. Pass a valid one."}}')],
)
def test_keys_that_the_upstream_refuses_leave_nothing_in_the_archive(tmp_path, status, refusal):
    known = body("hello", "I heard: hello", "how are you?")
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        assert ask(url, body("hello"), key="sk-right").status_code == 200
        upstream.answer = respond(status, refusal)
        for n in range(5):
            assert ask(url, body(f"try {n}"), key=f"sk-wrong-{n}").status_code == status
            assert ask(url, body(f"try {n}"), key=f"sk-wrong-{n}").status_code == status
        assert ask(url, known, key="sk-right").status_code == status  # its conversation is there, and goes on
        upstream.answer = Upstream.answer
        assert (
            lantern_headers(ask(url, body("try 0"), key="sk-wrong-0"))["event"] == "new"
        )  # it has been let in meanwhile
    with Archive(tmp_path / "lantern.db") as archive:
        mine = [archive.of(tenant.id) for tenant in archive.tenants()]
        said = [[f.message.text for row in each.sessions() for f in each.messages(row.id)] for each in mine]
    assert sorted(map(len, said)) == [2, 3]
    assert any("how are you?" in texts for texts in said)
    assert any("try 0" in texts for texts in said)


# no secret anywhere

CANARY = "sk-CANARY-a8d1f3"


@pytest.mark.parametrize(
    "trouble", ["refused", "500", "broken", "down", "no json", "bad header", "huge", "gzip", "upgrade"]
)
def test_no_credential_is_in_a_log_an_error_a_trace_or_the_archive(tmp_path, trouble, caplog, capfd):
    caplog.set_level("DEBUG")
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, access=AccessConfig(max_body_mb=1))
        if trouble == "down":
            config = replace(config, upstream=replace(config.upstream, openai="http://127.0.0.1:9/v1"))
        upstream.answer = {
            "refused": respond(401, b'{"error": {"message": "Incorrect API key provided"}}'),
            "500": respond(500, b"oops"),
            "broken": broken,
        }.get(trouble, upstream.answer)
        headers = {"authorization": f"Bearer {CANARY}", "x-api-key": CANARY, "api-key": CANARY}
        content = json.dumps(body("hello")).encode()
        if trouble == "no json":
            content = b"{not json"
        if trouble == "huge":
            content = b"x" * 1_100_000
        if trouble == "gzip":
            headers["content-encoding"] = "gzip"
        if trouble == "upgrade":
            headers |= {"connection": "upgrade", "upgrade": "websocket"}
        answers = []
        with serving(config) as url:
            if trouble == "bad header":
                bad = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {CANARY}\x01\x7f\xff\r\n"
                sent = raw(url, bad.encode("latin-1") + b"content-length: %d\r\n\r\n" % len(content) + content)
                answers.append(sent.decode("latin-1"))
            else:
                with contextlib.suppress(httpx.TransportError):
                    answer = http.post(f"{url}/v1/chat/completions", content=content, headers=headers)
                    answers.append(answer.text + repr(answer.headers))
            answers += [http.get(f"{url}/lantern/{path}").text for path in ("health", "metrics", "api/sessions")]
            answers.append(http.get(f"{url}/lantern/api/search?q=hello").text)
        raw_files = b"".join(part.read_bytes() for part in tmp_path.iterdir())
    output = capfd.readouterr()
    for place in (*answers, caplog.text, output.out, output.err):
        assert CANARY not in place
    assert CANARY.encode() not in raw_files


async def broken(got, wire):
    await wire.head(200, ("content-length", "100"))
    await wire.send(b"{")
    wire.reset()


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem")]
    try:
        subprocess.run([*command, "-out", str(folder / "cert.pem")], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl is not here")
    return folder / "cert.pem", folder / "key.pem"


def is_healthy(url: str) -> bool:
    """What the container's health check says of a server at `url`."""
    text = (Path(__file__).parent.parent / "Dockerfile").read_text("utf-8").replace("\\\n", "")
    (command,) = re.findall(r"^HEALTHCHECK (?:--\S+ )*CMD (.+)$", text, re.M)
    there = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    port = str(httpx.URL(url).port)
    return subprocess.run(["/bin/sh", "-c", command.replace("8484", port)], env=there).returncode == 0


@pytest.mark.parametrize("tls", [True, False])
def test_the_container_s_health_check_sees_a_proxy_with_and_without_tls(tmp_path, certificate, tls):
    cert, key = certificate
    server = f"server: {{tls_cert: {cert}, tls_key: {key}}}\n" if tls else ""
    (tmp_path / "c.yaml").write_text(f"{server}embed: {{enabled: 'off'}}\narchive: {{path: {tmp_path}/a.db}}")
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--port", "0", "--json", "--config", tmp_path / "c.yaml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serve:
        try:
            url = json.loads(serve.stdout.readline())["url"]
            assert url.startswith("https://" if tls else "http://")
            assert is_healthy(url)
        finally:
            serve.terminate()
        serve.wait(20)
    assert not is_healthy(url)


def test_serve_speaks_tls_with_the_configured_certificate(tmp_path, certificate):
    cert, key = certificate
    settings = (
        f"server: {{tls_cert: {cert}, tls_key: {key}}}\nembed: {{enabled: 'off'}}\narchive: {{path: {tmp_path}/a.db}}"
    )
    (tmp_path / "lantern.yaml").write_text(settings)
    command = [sys.executable, "-m", "lantern_proxy", "serve", "--port", "0", "--json"]
    serve = subprocess.Popen(
        [*command, "--config", str(tmp_path / "lantern.yaml")], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        url = json.loads(serve.stdout.readline())["url"]
        assert url.startswith("https://")
        assert (
            httpx.get(f"{url}/lantern/health", verify=ssl.create_default_context(cafile=cert)).json()["status"] == "ok"
        )
        named = httpx.get(f"{url}/lantern/ui", headers={"host": "evil.example"}, verify=False)
        assert f"use {url}/lantern/ui, or name it in access.hosts" in named.json()["error"]["message"]
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/lantern/health")
        status = [sys.executable, "-m", "lantern_proxy", "status", "--archive", str(tmp_path / "a.db")]
        assert f"running at {url}: ok" in subprocess.run(status, capture_output=True, text=True).stdout  # no --config
    finally:
        serve.terminate()
        serve.wait(20)
        serve.stdout.close()


@pytest.mark.parametrize(
    ("cert", "key", "told"),
    [
        ("none.pem", "", "server.tls_cert is none.pem, which cannot be read"),
        ("cert.pem", "none.pem", "server.tls_key is none.pem, which cannot be read"),
        ("pipe", "", "server.tls_cert is pipe, which cannot be read (it is no file)"),
        ("cert.pem", "", "server.tls_cert is cert.pem, which cannot be used with the key in it "),
        ("cert.pem", "other.pem", "server.tls_cert is cert.pem, which cannot be used with the key in other.pem "),
        ("key.pem", "key.pem", "server.tls_cert is key.pem, which cannot be used with the key in key.pem "),
    ],
)
def test_a_certificate_that_cannot_be_used_is_told_by_the_file_at_fault(
    certificate, tmp_path, monkeypatch, cert, key, told
):
    monkeypatch.chdir(tmp_path)
    for file in certificate:
        shutil.copy(file, tmp_path)
    subprocess.run(["openssl", "genrsa", "-out", "other.pem", "2048"], check=True, capture_output=True)
    os.mkfifo("pipe")
    Path("c.yaml").write_text(f'server: {{tls_cert: {cert}, tls_key: "{key}"}}')
    result = CliRunner().invoke(cli.cli, ["serve", "--config", "c.yaml", "--port", "0"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"lantern: {told}")
    doctor = CliRunner().invoke(cli.cli, ["doctor", "--offline", "--config", "c.yaml"])
    assert (doctor.exit_code, told in " ".join(doctor.stdout.split())) == (1, True)


@pytest.mark.parametrize("known", [True, False])
def test_doctor_tells_an_upstream_whose_certificate_nobody_here_knows(certificate, tmp_path, monkeypatch, known):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]) if known else certifi.where())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    def greet():
        with contextlib.suppress(OSError):
            context.wrap_socket(listening.accept()[0], server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        greeting = threading.Thread(target=greet)
        greeting.start()
        route = f'{{model: "x", url: "https://127.0.0.1:{listening.getsockname()[1]}/v1"}}'
        nowhere = "openai: http://127.0.0.1:1, anthropic: http://127.0.0.1:1"
        Path("c.yaml").write_text(f"upstream: {{{nowhere}, routes: [{route}]}}")
        doctor = CliRunner().invoke(cli.cli, ["doctor", "--json", "--config", "c.yaml"])
        greeting.join()
    (found,) = [row for row in map(json.loads, doctor.stdout.splitlines()) if row["name"] == "routes[0].url"]
    assert found["state"] == ("ok" if known else "warn")
    assert known or ("certificate verify failed" in found["detail"] and "SSL_CERT_FILE" in found["remedy"])


def test_what_two_commands_change_at_once_holds_both(tmp_path):
    path = tmp_path / "keys"
    Keyring(path).add("leaked", now=1.0)
    one, other = Keyring(path), Keyring(path)
    one.revoke("leaked", now=2.0)
    other.add("bob", now=3.0)
    assert {key.name: key.revoked_at for key in Keyring(path).all()} == {"leaked": 2.0, "bob": 0.0}
    with pytest.raises(KeysError, match="key bob exists"):
        one.add("bob", now=4.0)


def test_an_upstream_key_in_a_file_is_found_wherever_the_proxy_is_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b.key").write_text("sk-provider")

    def add(*options):
        done = CliRunner().invoke(cli.cli, ["keys", "add", *options, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["upstream"], done.stderr

    there = {"any": f"file:{tmp_path / 'a=b.key'}"}
    assert add("one", "--upstream-key-file", "a=b.key") == (there, "")
    made, warned = add("two", "--upstream-key-file", "openai=none.key")
    assert made == {"openai": f"file:{tmp_path / 'none.key'}"}
    assert f"{tmp_path / 'none.key'} is not there yet" in warned
