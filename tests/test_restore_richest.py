"""Which passages a loss block looks at first: the richest, whatever was read when, and hardly more than it needs."""

import math
import random

from msgspec.structs import replace

from lantern_proxy.archive import Archive, Record, RequestRow, SessionRow
from lantern_proxy.chunk import passages
from lantern_proxy.config import Config, EmbedConfig
from lantern_proxy.restore import lines
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.loss import POOL_TIMES
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.restore.richest import richness
from lantern_proxy.restore.scope import Key, Scope
from lantern_proxy.turn import Filed, Item, Passage, item, message


def write(archive: Archive, first: int, last: int) -> None:
    rng = random.Random(first)
    passages = tuple(
        Passage(
            session="s", message=f"m{n}", position=n, part=0, turn=n, speaker=rng.choice(("user", "assistant", "tool")),
            text=f"Box {n} holds " + "gadgets and " * rng.randrange(1, 40) + f"part P-{n}.",
            tags=tuple(f"P-{n}-{i}" for i in range(rng.randrange(12))), created_at=1.7e9 + n,
        )
        for n in range(first, last)
    )  # fmt: skip
    row = SessionRow(id="s", api="chat", created_at=1.0, last_seen_at=1.0)
    request = RequestRow(id=f"r{first}", at=1.0, api="chat", path="", event="new")
    archive.write([Record(tenant="t", session=row, request=request, passages=passages)])


def by_hand(archive: Archive) -> list[int]:
    """Ids of all passages as they are now, richest first."""
    found = archive.of("t").passages(session="s")
    return [p.id for p in sorted(found, key=lambda p: (-richness(p.speaker, p.kind, len(p.tags), len(p.text)), p.id))]


def ordered(scope: Scope, archive: Archive) -> list[int]:
    assert scope.catch_up(archive, math.inf)
    return [scope.passages.ids[row] for row in scope.richest(math.inf).tolist()]


def test_the_order_follows_what_is_archived_corrected_and_pruned(archive):
    scope = Scope(Key("t", None, "s"))
    write(archive, 0, 300)
    assert ordered(scope, archive) == by_hand(archive)
    write(archive, 300, 420)
    assert ordered(scope, archive) == by_hand(archive)
    first = by_hand(archive)[0]
    passage = archive.of("t").passages_by_id([first])[first]
    archive.of("t").edit(replace(passage, text=passage.text + " It is a very long story." * 80), now=1.8e9)
    assert ordered(scope, archive) == by_hand(archive)
    assert by_hand(archive)[0] != first


def test_a_deadline_leaves_an_order_of_all_rows(archive, monkeypatch):
    monkeypatch.setattr("lantern_proxy.restore.richest.STEP", 50)
    scope = Scope(Key("t", None, "s"))
    write(archive, 0, 200)
    scope.catch_up(archive, math.inf)
    assert sorted(scope.richest(0.0).tolist()) == list(range(200))
    for _ in range(5):
        scope.richest(0.0)
    assert [scope.passages.ids[row] for row in scope.richest(0.0).tolist()] == by_hand(archive)


def test_a_loss_block_reads_a_few_times_its_budget_and_not_the_archive(archive):
    write(archive, 0, 4_000)
    restorer = Restorer(archive, Config(embed=EmbedConfig(enabled="off")), None)
    ask = Ask(
        tenant="t", project="", session="s", present="Now sort the imports.", budget_chars=1_000, now=1.8e9,
        deadline=math.inf,
    )  # fmt: skip
    block = restorer.at_compaction(ask)
    texts = {p.id: len(p.text) for p in archive.of("t").passages(session="s")}
    room, wanted = POOL_TIMES * 1_000, set()
    for id_ in by_hand(archive):
        room -= texts[id_]
        if room < 0:
            break
        wanted.add(id_)
    assert {p.passage.id for p in block.placed} <= wanted
    assert len(block.placed) > 3
    assert block.considered <= len(wanted) + 1
    restorer.close()


def block_of(archive: Archive, said: list[tuple[str, Item]], budget_chars: int) -> str:
    """What a compaction brings back of a session in which that was said."""
    filed = [
        Filed(key=f"m{n}", position=n, turn=n, message=message(role, [each], b""), created_at=1.7e9 + n)
        for n, (role, each) in enumerate(said)
    ]
    row = SessionRow(id="s", api="chat", created_at=1.0, last_seen_at=1.0)
    request = RequestRow(id="r", at=1.0, api="chat", path="", event="new")
    cut = tuple(passage for each in filed for passage in passages(each, "s"))
    archive.write([Record(tenant="t", session=row, request=request, passages=cut)])
    restorer = Restorer(archive, Config(embed=EmbedConfig(enabled="off")), None)
    ask = Ask(
        tenant="t", project="", session="s", present="Go on.", budget_chars=budget_chars, now=1.8e9, deadline=math.inf
    )  # fmt: skip
    try:
        return restorer.at_compaction(ask).text
    finally:
        restorer.close()


def test_rules_come_back_from_a_long_session_full_of_code(archive):
    """Code and tables name far more specific terms than what a user wants to hold for all that follows."""
    rules = [f"Always ask before you change the {what}." for what in ("schema", "licence", "build")]
    code = "```python\nbox_{0} = Box(port=90{0}, path='/srv/{0}')\nbox_{0}.open(key='K-{0}')\n```"
    said = [code.format(n) for n in range(800)]
    said[100:100], said[400:400], said[700:700] = [rules[0]], [rules[1]], [rules[2]]
    block = block_of(archive, [("user", item("user", "text", text)) for text in said], 2_000)
    assert [rule for rule in rules if rule in block] == rules


NOUNS = ("order", "invoice", "tenant", "ledger", "refund", "worker", "parcel", "coupon", "session", "export", "batch",
         "report", "signal", "account", "webhook", "cursor", "journal", "voucher", "payload", "shipment")  # fmt: skip
VERBS = ("load", "merge", "settle", "archive", "retry", "split", "validate", "round", "assign", "expire")


def program(n: int) -> str:
    """4,000 characters of a module: prose about it, rules for who changes it, settings, functions, errors."""
    draw = random.Random(n)
    noun, other = draw.sample(NOUNS, 2)
    parts = [
        f'"""Each {noun} of a {other}, as service v{n}.{draw.randrange(9)}.1 gives them.\n\n'
        f'Never call {draw.choice(VERBS)}_{noun}() inside another: it waits for {other}-{n}.internal:90{n:02d}.\n"""',
        f"import json\nfrom app.{noun}s.{other} import {other.title()}Error, {noun.upper()}_LIMIT",
        f'{noun.upper()}_URL = "https://{other}-{n}.internal:90{n:02d}/v{n % 7}/{noun}s"\n'
        f'"""Where a {noun} is asked for. We always use the second region since {2000 + n}."""\n'
        f"{other.upper()}_MS = {draw.randrange(50, 9_000)}  # {other}s pile up beyond, OPS-{draw.randrange(9_999)}",
    ]
    while sum(map(len, parts)) < 4_000:
        verb, what, number = draw.choice(VERBS), draw.choice(NOUNS), draw.randrange(10_000)
        parts.append(
            f"def {verb}_{what}_{number}({what}: dict, *, most: int = {number}) -> list[str]:\n"
            f'    """What is left of a {what} when {number} {noun}s {verb}. Do not pass more than {number % 97}."""\n'
            f'    if {what}["{verb}ed_at"] > {number}.5:\n'
            f'        raise {other.title()}Error("{what} {number} cannot {verb}: use {noun}/{what}_{number}.sql")\n'
            f'    return [f"{{key}}-{{most:04d}}" for key in {what}["{draw.choice(NOUNS)}_ids"] if key != "K-{number}"]'
        )
    return "\n\n\n".join(parts)[:4_000]


def test_what_a_user_said_comes_back_from_an_agents_session(archive):
    """Ten remarks between calls that read a package: whole files, and what an agent says before each."""
    remarks = (
        "The staging API listens on port 9443.", "Use uv, not pip.", "Don't touch migrations/0042_split.sql.",
        "The rounding must be half-even, finance insisted.", "I prefer small commits with a test each.",
        "Ana reviews everything in auth/.", "The limit is 2,500 requests per minute.", "We never deploy on Fridays.",
        "I ran it: `KeyError: 'tenant_id'` in worker/queue.py.", "The ticket is BILL-2210.",
    )  # fmt: skip
    said: list[tuple[str, Item]] = []
    for n in range(100):
        said.append(("assistant", item("assistant", "text", f"Let me look at {NOUNS[n % 20]}_{n}.py next.")))
        said.append(("user", item("user", "result", program(n), name="read_file")))
        if n % 10 == 0:
            said.append(("user", item("user", "text", remarks[n // 10])))
    block = block_of(archive, said, 4_000)
    assert [remark for remark in remarks if remark not in block] == []
    assert "Let me look at" not in block


def test_a_warm_restorer_gives_the_same_block(archive):
    write(archive, 0, 2_500)
    ask = Ask(
        tenant="t", project="", session="s", present="Box 17 is gone.", budget_chars=3_000, now=1.8e9, deadline=math.inf
    )
    blocks = []
    for warm in (False, True):
        restorer = Restorer(archive, Config(embed=EmbedConfig(enabled="off")), None)
        if warm:
            restorer.warm("t", "", "s")
        blocks.append(restorer.at_compaction(ask).text)
        restorer.close()
    assert blocks[0] == blocks[1]


def test_a_slow_machine_still_gets_a_block_of_the_richest_in_time(archive, monkeypatch):
    """The clock moves by 10 ms with every passage that is split, so that 15 of them would use all of the time."""
    write(archive, 0, 400)
    clock = [100.0]
    monkeypatch.setattr("lantern_proxy.restore.restorer.time.monotonic", lambda: clock[0])

    def slow(passage):
        clock[0] += 0.01
        return lines.lines(passage)

    monkeypatch.setattr("lantern_proxy.restore.passages.lines", slow)
    restorer = Restorer(archive, Config(embed=EmbedConfig(enabled="off")), None)
    ask = Ask(tenant="t", project="", session="s", present="-", budget_chars=6_000, now=1.8e9, deadline=100.15)
    block = restorer.at_compaction(ask)
    restorer.close()
    assert clock[0] < ask.deadline
    assert "restore:deadline" in block.degraded
    assert {p.passage.id for p in block.placed} <= set(by_hand(archive)[:16])
    assert len(block.placed) > 4
