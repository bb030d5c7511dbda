"""One tenant's memory over its life: keys that are replaced, projects, tried restores, retention and what it leaves."""

import asyncio
import hashlib
import json
import time

import pytest
from scripted import Upstream, ask, body, config_for, http, lantern_headers, serving, wait_for
from test_proxy_cutter import TENANT, filed, record

from lantern_proxy import Lantern
from lantern_proxy.archive import Archive
from lantern_proxy.archive.snapshots import folder
from lantern_proxy.bm25 import BUILT
from lantern_proxy.config import PrivacyConfig, RestoreConfig, TenantConfig
from lantern_proxy.proxy import upkeep as proxy_upkeep
from lantern_proxy.proxy.open_archive import Opened
from lantern_proxy.proxy.tenants import Tenants
from lantern_proxy.restore import snapshots
from lantern_proxy.session.index import side_id
from lantern_proxy.turn import Identity
from lantern_proxy.wire import chat

PATIENT = RestoreConfig(scope="tenant", deadline_ms=20_000)
ASK = "Who keeps the north gate's key, and what is its number?"


def converse(url: str, key: str, keeper: str, **headers: str) -> dict:
    """A conversation, and then its end alone with a question: that request, which has lost what it asks for."""
    messages: list = [f"The keeper of the north gate's key is {keeper}, and its number is {len(keeper) * 311}."]
    for n in range(8):
        answer = ask(url, body(*messages), key, x_lantern_session="shared", **headers)
        messages += [
            answer.json()["choices"][0]["message"],
            {"role": "user", "content": f"Row {n} of the list is {n}."},
        ]
    request = body(*messages[-4:], {"role": "user", "content": ASK})
    ask(url, request, key, x_lantern_session="shared", **headers)
    return request


def shown(upstream: Upstream) -> str:
    return upstream.got[-1].body.decode()


def team(*keys: str) -> dict[str, TenantConfig]:
    return {"team": TenantConfig(keys_sha256=[hashlib.sha256(key.encode()).hexdigest() for key in keys])}


def test_a_key_is_replaced_in_the_config_and_the_memory_stays(tmp_path):
    """Listed beside the old one, then alone: both see the team's session, and the old key alone sees it no more."""
    events = []
    with Upstream() as upstream:
        with serving(config_for(upstream, tmp_path, tenants=team("sk-old"), restore=PATIENT)) as url:
            asked = converse(url, "sk-old", "Tamsin")
        for keys, key in ((("sk-old", "sk-new"), "sk-new"), (("sk-new",), "sk-new"), (("sk-new",), "sk-old")):
            with serving(config_for(upstream, tmp_path, tenants=team(*keys), restore=PATIENT)) as url:
                answer = lantern_headers(ask(url, asked, key, x_lantern_session="shared"))
                events.append((answer["event"], "Tamsin" in shown(upstream)))
    assert [seen for _, seen in events] == [True, True, False]
    assert events[-1][0] == "new"


def test_one_person_keeps_the_memory_when_the_client_gets_a_new_token(tmp_path, caplog):
    everything = {"me": TenantConfig(keys_sha256=["*"]), **team("sk-of-the-team")}
    with Upstream() as upstream, serving(config_for(upstream, tmp_path, tenants=everything)) as url:
        request = converse(url, "sk-ant-oat01-first", "Marta Nowak")
        ask(url, request, "sk-ant-oat01-second", x_lantern_session="shared")
        assert "Marta Nowak" in shown(upstream)
        ask(url, request, "sk-of-the-team", x_lantern_session="shared")
        assert "Marta Nowak" not in shown(upstream)
        assert "renewed" not in caplog.text
        with Lantern(config_for(upstream, tmp_path, tenants=everything), user="sk-ant-oat01-third") as lantern:
            assert lantern.tenant == "me"
            assert lantern.search("Marta Nowak")
    with Upstream() as upstream, serving(config_for(upstream, tmp_path / "other")) as url:
        for key in ("sk-ant-oat01-first", "eyJhbGciOi.x.y"):
            ask(url, body("hi"), key)
    assert caplog.text.count("renewed every few hours") == 1


def test_what_is_said_in_one_project_stays_there(tmp_path):
    settings = RestoreConfig(scope="project", deadline_ms=20_000)
    with Upstream() as upstream, serving(config_for(upstream, tmp_path, restore=settings)) as url:
        converse(url, "sk-one", "Tamsin", x_lantern_project="one")
        assert "Tamsin" in shown(upstream)
        converse(url, "sk-one", "Bertrand", x_lantern_project="two")
        assert "Bertrand" in shown(upstream)
        assert "Tamsin" not in shown(upstream)


@pytest.mark.parametrize("project", ["one", "two"])
def test_what_is_archived_as_a_side_call_in_another_project_is_not_read_with_its_conversation(tmp_path, project):
    """An export that somebody wrote by hand may hold such sessions."""
    ids = {"one": "s1", "two": side_id("s1")}
    with Upstream() as upstream:
        opened = Opened(config_for(upstream, tmp_path), None, lambda *_: None)
    assert opened.open(lambda _: None)
    for n, (each, id_) in enumerate(ids.items()):
        opened.archive.write([record(filed(n, f"Gate {n} is shut."), session=id_, project=each)])
    request, key = chat.read(json.dumps(body("Which gate is shut?")).encode()), (TENANT, project)
    index, _ = asyncio.run(
        Tenants(config_for(upstream, tmp_path), opened).locate(key, request, Identity(), time.time())
    )
    opened.close()
    assert [*index.sessions] == [ids[project]]


def test_a_tried_restore_stays_in_its_tenant_and_leaves_nothing_behind(tmp_path):
    with Upstream() as upstream, serving(config_for(upstream, tmp_path, restore=PATIENT)) as url:
        request = converse(url, "sk-one", "Tamsin")
        converse(url, "sk-two", "Bertrand")
        with Archive(tmp_path / "lantern.db", read_only=True) as archive:
            one, two = archive.tenant_of("sk-one"), archive.tenant_of("sk-two")
            assert wait_for(lambda: all(t.passages == t.messages for t in archive.tenants()))
            before, asked = archive.tenants(), len(upstream.got)
            [first], [second] = archive.of(one).sessions(), archive.of(two).sessions()
            sent = {"request": request, "session": first.id, "tenant": one}
            own = http.post(f"{url}/lantern/api/why", json=sent).text
            wrong = http.post(f"{url}/lantern/api/why", json=sent | {"tenant": two}).text
            theirs = http.post(f"{url}/lantern/api/why", json=sent | {"tenant": two, "session": second.id}).text
            assert (archive.tenants(), len(upstream.got)) == (before, asked)
    assert "Tamsin" in own
    assert "Bertrand" not in own
    assert json.loads(wrong)["blocks"] == []
    assert "Bertrand" in theirs
    assert "Tamsin" not in theirs


@pytest.mark.skipif(not BUILT, reason="the numpy twin makes no snapshots")
def test_retention_by_the_proxy_takes_the_snapshots_with_it(tmp_path, monkeypatch):
    """An index that was kept beside the archive holds the terms of what is too old."""
    monkeypatch.setattr(snapshots, "LEAST", 5)
    settings = {"restore": PATIENT}
    path = tmp_path / "lantern.db"

    def kept() -> list:
        return [p for p in folder(path).glob("*.index") if b"tamsin" in p.read_bytes()]

    with Upstream() as upstream:
        with serving(config_for(upstream, tmp_path, **settings)) as url:
            converse(url, "sk-one", "Tamsin")
        with Archive(path) as archive:
            [tenant] = archive.tenants()
        assert kept()
        monkeypatch.setattr(proxy_upkeep, "_RETAIN_S", 0.1)
        keep = PrivacyConfig(keep_days=1e-7)
        with serving(config_for(upstream, tmp_path, privacy=keep, **settings)):
            assert wait_for(lambda: not kept())
    with Archive(path) as archive:
        assert archive.of(tenant.id).search("Tamsin") == []
