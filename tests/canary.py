"""Canary fuzzing: many tenants talk at once, each message with a secret of its own; whose secret is ever seen where?

    python tests/canary.py --requests 10000 --tenants 200      # the full run; exits 1 on a leak or a lost turn
    played = play(folder, requests=600, tenants=30, seed=1)    # what tests/test_canary.py does

Every request goes through the real app under a real server to a scripted upstream, which answers with a secret of the
tenant that asked. Sessions grow, are compacted in several ways, branch, ask side calls, stream, fail, and name
themselves alike across tenants: the same session ids, the same projects, the same first words. Meanwhile somebody looks
at one tenant after the other through /lantern/api, judges, pins, corrects and tries restores; logs and events are read.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx
from scripted import Upstream, completion, config_for, events, http, respond, serving, stream

from lantern_proxy.archive import Archive
from lantern_proxy.config import RestoreConfig

CANARY = re.compile(r"canary-(\d+)-[0-9a-f]{8}")
SCOPES = ("session", "project", "tenant")
TOPICS = ("harbour crane", "night shift", "invoice export", "retry policy", "garden gate", "vault number")


@dataclass
class Talk:
    """One client's conversation."""

    tenant: int
    name: str
    project: str
    said: list[dict] = field(default_factory=list)
    compacted: int = 0


@dataclass
class Played:
    """The findings of a run."""

    requests: int = 0
    leaks: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    """Secrets of messages whose answer came to its end."""
    events: Counter = field(default_factory=Counter)
    restored: int = 0
    looks: Counter = field(default_factory=Counter)
    """What was asked of /lantern/api -> answers that were not refused."""
    failed: list[str] = field(default_factory=list)
    """What /lantern/api could not answer, or answered to the wrong tenant."""

    def check(self, tenant: int, text: str, where: str) -> None:
        """Every canary in `text` must be the tenant's own; -1: there must be none."""
        for found in CANARY.finditer(text):
            if int(found[1]) != tenant:
                self.leaks.append(f"{where}: {found[0]} was shown to tenant {tenant}")


class Fuzz:
    """Plays the clients. Every choice is of `seed`."""

    def __init__(self, tenants: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.tenants, self.played = tenants, Played()
        self.talks: list[Talk] = []
        self.tenant_of: Callable[[str], str] = str
        self.changes = cycle(("edit", "pin", "feedback"))

    def secret(self, tenant: int) -> str:
        return f"canary-{tenant}-{self.random.getrandbits(32):08x}"

    def key(self, tenant: int) -> str:
        return f"sk-key-{tenant}"

    async def upstream(self, got, wire) -> None:
        """Answers with a secret of whoever's key it sees; now and then it fails."""
        key = got.header("authorization") or ""
        tenant = int(key.rpartition("-")[2]) if key else -1
        shown = got.body.decode("utf-8", "replace") + got.target + repr(got.headers)
        self.played.check(tenant, shown, "upstream request")
        if tenant < 0:
            await respond(404, b"{}")(got, wire)
            return
        dice = self.random.random()
        if dice < 0.02:
            await respond(500, b'{"error": {"message": "overloaded"}}')(got, wire)
        elif dice < 0.03:
            wire.reset()
        else:
            text = f"Noted as {self.secret(tenant)}. I will keep in mind what you said about it."
            id_ = f"chatcmpl-{self.random.getrandbits(60):x}"
            if b'"stream": true' in got.body or b'"stream":true' in got.body:
                await stream(*events(text, id_))(got, wire)
            else:
                await respond(200, completion(text, id_), ("content-type", "application/json"))(got, wire)

    def talk(self) -> Talk:
        """One that exists, mostly."""
        if self.talks and self.random.random() < 0.85:
            return self.random.choice(self.talks)
        tenant = self.random.randrange(self.tenants)
        talk = Talk(tenant, f"session-{self.random.randrange(3)}", self.random.choice(("", "work", "home")))
        self.talks.append(talk)
        return talk

    def next_messages(self, talk: Talk, dice: float) -> tuple[list[dict], str]:
        """Messages of the next request, and its kind. dice: 0 to 1, chooses it"""
        topic = self.random.choice(TOPICS)
        asked = {"role": "user", "content": f"About the {topic}: it is {self.secret(talk.tenant)}, remember it."}
        if len(talk.said) > 8 and dice < 0.30:
            talk.compacted += 1
            summary = {
                "role": "user",
                "content": "This session is being continued. Summary: we spoke of several things.",
            }
            asked = {"role": "user", "content": f"What was said about the {topic}?"}
            talk.said = [summary, *talk.said[-2:], asked] if dice < 0.15 else [*talk.said[-2:], asked]
            return talk.said, "compacted"
        if dice > 0.95:
            title = {"role": "system", "content": "Generate a short title for this conversation, 3-7 words."}
            return [title, *talk.said[:1], asked], "side"
        if dice > 0.92 and len(talk.said) > 4:
            talk.said = talk.said[: len(talk.said) // 2 // 2 * 2]
        if dice > 0.85 and talk.said:
            call = {"id": f"call_{self.random.getrandbits(40):x}", "type": "function"}
            call["function"] = {"name": "read", "arguments": json.dumps({"path": f"/{self.secret(talk.tenant)}"})}
            made = {"role": "assistant", "content": None, "tool_calls": [call]}
            done = {"role": "tool", "tool_call_id": call["id"], "content": f"file: {self.secret(talk.tenant)}"}
            talk.said += [asked, made, done]
            return talk.said, "tool"
        talk.said.append(asked)
        return talk.said, "turn"

    async def random_request(self, client: httpx.AsyncClient, url: str) -> None:
        """Any request of anybody."""
        talk = self.talk()
        if getattr(talk, "busy", False) or len(talk.said) > 60:
            talk = Talk(self.random.randrange(self.tenants), f"session-{self.random.randrange(3)}", "")
            self.talks.append(talk)
        await self.ask(client, url, talk, self.random.random())

    async def each_kind(self, client: httpx.AsyncClient, url: str) -> None:
        """Talks that are compacted, cut and titled for certain; several of each: the upstream fails now and then."""
        for dice in (0.1, 0.2, 0.99) * 3:
            talk = Talk(self.random.randrange(self.tenants), "", "")
            for _ in range(6):
                await self.ask(client, url, talk, 0.5)
            await self.ask(client, url, talk, dice)

    async def ask(self, client: httpx.AsyncClient, url: str, talk: Talk, dice: float) -> None:
        messages, kind = self.next_messages(talk, dice)
        before = list(messages)
        streamed = self.random.random() < 0.4
        headers = {"authorization": f"Bearer {self.key(talk.tenant)}"}
        if talk.name and self.random.random() < 0.5:
            headers["x-lantern-session"] = talk.name
        if talk.project:
            headers["x-lantern-project"] = talk.project
        sent = {"model": "m", "messages": before, "stream": streamed}
        self.played.requests += 1
        try:
            answer = await client.post(f"{url}/v1/chat/completions", json=sent, headers=headers)
        except httpx.TransportError:
            return
        shown = answer.text + repr(answer.headers)
        self.played.check(talk.tenant, shown, "answer")
        self.played.events[answer.headers.get("x-lantern-event", "-")] += 1
        self.played.restored += int(answer.headers.get("x-lantern-restored", 0))
        if answer.status_code == 200 and kind != "side":
            reply = "".join(re.findall(r'"content": ?"([^"]*)"', answer.text))
            if talk.said is messages:
                talk.said.append({"role": "assistant", "content": reply})
            self.played.answered |= {found[0] for found in CANARY.finditer(json.dumps(before) + reply)}

    async def call(self, client: httpx.AsyncClient, tenant: int, url: str, verb: str, body: dict | None = None):
        """Ask /lantern/api on behalf of one tenant; the answer's JSON, or None when it was refused.

        A server closes connections that were idle for 5 s, and this one may be about to be used: once more then, as
        clients do. All verbs can be said twice. What is not answered then is a failure.
        """
        method, address = "GET" if body is None else "POST", f"{url}/lantern/api/{verb}"
        try:
            answer = await client.request(method, address, json=body)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            self.played.looks["asked again"] += 1
            async with httpx.AsyncClient(timeout=60) as fresh:
                answer = await fresh.request(method, address, json=body)
        self.played.check(tenant, answer.text + repr(answer.headers), f"/lantern/api/{verb}")
        if answer.status_code >= 500:
            self.played.failed.append(f"{verb}: {answer.status_code} {answer.text[:200]}")
        if answer.status_code != 200:
            return None
        self.played.looks[verb.partition("?")[0].partition("/")[0]] += 1
        return answer.json()

    async def browse(self, client: httpx.AsyncClient, url: str, tenant: int | None = None) -> None:
        """Look at one tenant, at anyone when it is None, from every side, and change something of it."""
        tenant = self.random.randrange(self.tenants) if tenant is None else tenant
        other = (tenant + self.random.randrange(1, self.tenants)) % self.tenants
        owner, name = self.tenant_of(self.key(tenant)), f"session-{self.random.randrange(3)}"

        async def see(verb: str, body: dict | None = None):
            return await self.call(client, tenant, url, verb, body)

        for verb in ("overview?since=0&", f"sessions/{name}?", f"sessions/{name}/messages?", "marks?", "requests?"):
            found = await see(f"{verb}tenant={owner}")
        for row in (found or [])[:2]:
            await see(f"requests/{row['id']}?tenant={owner}")
        for row in (await see(f"sessions?tenant={owner}") or [])[:2]:
            await see(f"sessions/{row['id']}/timeline?tenant={owner}")
            said = [{"role": "user", "content": f"What was said about the {self.random.choice(TOPICS)}?"}]
            trial = {"request": {"model": "m", "messages": said}, "tenant": owner, "session": row["id"]}
            await see("why", trial | {"project": row["project"]})
        for hit in (await see(f"search?q=canary&tenant={owner}") or [])[:1]:
            number = hit["passage"]["id"]
            await see(f"passages/{number}?tenant={owner}")
            await self.trespass(client, url, number, other)
            change = next(self.changes)
            if change == "feedback":
                await see("feedback", {"passage": number, "verdict": "useful", "tenant": owner})
            elif change == "pin":
                await see("pin", {"passage": number, "pinned": self.random.random() < 0.7, "tenant": owner})
            else:
                await see("edit", {"passage": number, "text": f"It is {self.secret(tenant)}.", "tenant": owner})

    async def trespass(self, client: httpx.AsyncClient, url: str, number: int, tenant: int) -> None:
        """A passage of somebody else's is to be unknown to `tenant`."""
        named = {"passage": number, "tenant": self.tenant_of(self.key(tenant))}
        for verb, more in (("feedback", {"verdict": "wrong"}), ("pin", {"pinned": True}), ("edit", {"text": "gone"})):
            if await self.call(client, tenant, url, verb, named | more) is not None:
                self.played.failed.append(f"{verb} reached passage {number} of another tenant")
        if await self.call(client, tenant, url, f"passages/{number}?tenant={named['tenant']}") is not None:
            self.played.failed.append(f"passage {number} was shown to another tenant")

    async def listen(self, url: str) -> None:
        """The live events hold nothing that was said."""
        events = f"{url}/lantern/api/events"
        async with httpx.AsyncClient(timeout=None) as client, client.stream("GET", events) as answer:
            async for line in answer.aiter_lines():
                self.played.looks["events"] += line.startswith("data:")
                self.played.check(-1, line, "events")

    async def run(self, url: str, requests: int, at_once: int) -> None:
        listening = asyncio.create_task(self.listen(url))
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=at_once)) as client:
            waiting = iter(range(requests))

            async def worker() -> None:
                for n in waiting:
                    await self.random_request(client, url)
                    if n % 20 == 19:
                        await self.browse(client, url)

            await asyncio.gather(*(worker() for _ in range(at_once)))
            await self.each_kind(client, url)
            for tenant in range(min(self.tenants, 10)):  # the first looks may have come before any passage was there
                await self.browse(client, url, tenant)
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
            await listening


class LogChecker(logging.Handler):
    """Every line that is logged, as a file would have it."""

    def __init__(self, played: Played) -> None:
        super().__init__(logging.INFO)
        self.played = played

    def emit(self, record: logging.LogRecord) -> None:
        self.played.check(-1, self.format(record), "log")


@contextlib.contextmanager
def checking_logs(played: Played) -> Iterator[None]:
    checker, log = LogChecker(played), logging.getLogger()
    level = log.level
    log.addHandler(checker)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(checker)


def play(
    folder: Path, *, requests: int, tenants: int, seed: int, scope: str = "tenant", at_once: int = 16,
    vectors: bool = True,
) -> Played:  # fmt: skip
    """Run it and look everywhere a secret could be shown. vectors: whether they are made and searched in the end"""
    fuzz = Fuzz(tenants, seed)
    with Upstream(answer=fuzz.upstream) as upstream:
        config = config_for(upstream, folder, restore=RestoreConfig(scope=scope, admission=0.1, deadline_ms=2_000))
        with (
            checking_logs(fuzz.played),
            serving(config) as url,
            Archive(config.archive.path, read_only=True) as archive,
        ):
            fuzz.tenant_of = archive.tenant_of
            asyncio.run(fuzz.run(url, requests, at_once))
            for path in ("metrics", "health"):
                fuzz.played.check(-1, http.get(f"{url}/lantern/{path}").text, path)
            fuzz.played.check(-1, http.get(f"{url}/v1/none", headers={"x-lantern-session": "session-1"}).text, "error")
    check_archive(config.archive.path, fuzz, vectors=vectors)
    return fuzz.played


def check_archive(path: Path, fuzz: Fuzz, *, vectors: bool) -> None:
    """What the archive shows each tenant: rows, full text, vectors, BM25, requests, blocks; and is every turn there?"""
    from lantern_proxy.bm25 import Index

    played, kept = fuzz.played, set()
    with Archive(path, vectors=vectors) as archive:
        _embed(archive)
        for tenant in range(fuzz.tenants):
            owner = archive.of(archive.tenant_of(fuzz.key(tenant)))
            text = json.dumps(list(owner.export()))
            played.check(tenant, text, "export")
            kept |= {found[0] for found in CANARY.finditer(text)}
            for query in ("canary", "remember", *TOPICS[:2]):
                for hit in owner.search(query, 50):
                    played.check(tenant, hit.snippet + hit.passage.text, "search")
                ids = [i for i, _ in owner.fts(query.split(), 50)]
                ids += owner.vectors(range(1, 5_000))
                for found in owner.passages_by_id(ids).values():
                    played.check(tenant, found.text, "signals")
                assert len(owner.passages_by_id(ids)) == len(set(ids)), "an id of nobody's"
            index, own = Index(), {p.id: p.text for p in owner.passages()}
            found = owner.outline()
            index.add_lines(found.ids, found.times, found.lines)
            for id_ in index.search(["canary", "remember"], 50)[0].tolist():
                played.check(tenant, own[id_], "bm25")
            index.close()
    played.lost = sorted(played.answered - kept)


def _vector(text: str):
    import numpy as np

    return np.random.default_rng(sum(text.encode())).standard_normal(8).astype(np.float32)


def _embed(archive: Archive) -> None:
    while archive.vectors and (waiting := archive.unembedded(2_000)):
        rows = []
        for tenant, id_, text in waiting:
            rows.append((tenant, archive.of(tenant).passages_by_id([id_])[id_].session, id_, _vector(text)))
        archive.add_vectors("canary", 8, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Canary fuzzing of tenants.")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scope", choices=SCOPES, default="tenant")
    parser.add_argument("--no-vectors", dest="vectors", action="store_false")
    chosen = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        played = play(Path(folder), **vars(chosen))
    print(f"{played.requests:,} requests of {chosen.tenants} tenants in {time.monotonic() - started:,.0f} s: "
          f"{len(played.leaks)} leaks, {len(played.lost)} lost of {len(played.answered):,} answered secrets; "
          f"{played.restored:,} passages restored; {dict(played.events)}; asked of /lantern/api: {dict(played.looks)}, "
          f"{len(played.failed)} failed")  # fmt: skip
    for each in [*played.leaks[:10], *(f"lost: {secret}" for secret in played.lost[:10]), *played.failed[:10]]:
        print(each)
    sys.exit(bool(played.leaks or played.lost or played.failed))


if __name__ == "__main__":
    main()
