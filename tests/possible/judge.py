"""Was Lantern right? Each request of a conversation is looked at beside what its client really did."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clients.checks import without_block

from lantern_proxy.proxy.exchange import Exchange
from possible.client import Client
from possible.talk import Fact
from possible.wire import Json, prompt, shared_chars

LOSSES = frozenset({"compacted", "window", "cleared"})
MUST_HOLD = frozenset({"crash", "error", "fidelity", "tenants", "side block", "prefix", "alarm"})
"""Faults that no client may ever see. alarm: a loss told of a client that never shortens its history."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that was wrong.

    Besides MUST_HOLD: missed (a loss), false (a loss told where there was none), label (another event than was right),
    split and merged (sessions), side (a side call taken for the conversation), needless (a block where nothing was
    lost), detail (asked for and not back).
    """

    kind: str
    op: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request, and what is true of it."""

    op: str
    right: frozenset[str]
    side: bool = False
    cut: bool = False
    """The client shortened its history with it, whether anything but filler went or not."""
    asked: Fact | None = None
    held: str = ""
    """Every text of the history that the model gets to see from the client."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    is_delta: bool = False


@dataclass
class Ledger:
    """What was found of one client: all its conversations together."""

    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)


def bare(text: str) -> str:
    """A text without white space, in which some clients break lines anew."""
    return "".join(text.split())


class Judge:
    """Looks at one conversation. others: all of its client's, itself among them"""

    def __init__(self, client: Client, name: str, ledger: Ledger, others: Sequence["Judge"]) -> None:
        self.session, self.is_whole = "", True
        self._client, self._name, self._ledger, self._others = client, name, ledger, others
        self._before = ""
        """What the model saw and said last."""
        self._ever_lost = False
        self._reached = ""
        """All that the upstream holds of it: what went there last, and before that where it was only what is new."""
        self._prompts: tuple[list[str], list[str]] | None = None
        """The last one, as the client sent it and as it went upstream."""

    def look(self, sent: Sent, data: bytes, exchange: Exchange, *, answer: str) -> None:
        faults = len(self._ledger.faults)
        body, got = json.loads(data), json.loads(exchange.body)
        self._ledger.counts["requests"] += 1
        self._ledger.sessions.add(exchange.session)
        self._untouched(sent, data, exchange, body, got)
        if sent.side:
            self._side(sent, exchange)
        else:
            self._event(sent, exchange, answer)
            self._session(sent, exchange)
            self._prefix(sent, exchange, body, got)
            self._detail(sent, exchange, got)
        why = exchange.step.link.why if exchange.step else "-"
        self._ledger.story.append(
            f"{self._name} {sent.op}: {exchange.event} ({why}), right: {' '.join(sorted(sent.right))}; "
            f"session {exchange.session[-5:]}, {exchange.chars} characters added"
        )
        self._ledger.story += [f"    {fault.kind}: {fault.what}" for fault in self._ledger.faults[faults:]]

    def take_back(self, left: str) -> None:
        """The user went back: of what the model saw, `left` is what may be missed."""
        self._before = bare(left)

    def _fault(self, kind: str, sent: Sent, what: str) -> None:
        self._ledger.faults.append(Fault(kind, sent.op, what))

    def _untouched(self, sent: Sent, data: bytes, exchange: Exchange, body: Json, got: Json) -> None:
        if (exchange.body == data) != (exchange.chars == 0) or without_block(body) != without_block(got):
            self._fault("fidelity", sent, "the upstream got another request than the client sent")
        if exchange.event == "side" and exchange.chars:
            self._fault("side block", sent, f"{exchange.chars} characters added to a side call")
        for reason in exchange.degraded:
            self._fault("error", sent, reason)

    def _side(self, sent: Sent, exchange: Exchange) -> None:
        self._ledger.counts["sides"] += 1
        self._ledger.counts["sides right"] += exchange.event in sent.right
        if exchange.event not in sent.right:
            self._fault("side", sent, f"{exchange.event} instead of {' or '.join(sorted(sent.right))}")

    def _event(self, sent: Sent, exchange: Exchange, answer: str) -> None:
        held = bare(sent.held)
        missing = [value for value in map(bare, sent.facts) if value not in held]
        gone = [value for value in missing if value in self._before]
        told, counts = exchange.event in LOSSES, self._ledger.counts
        self._before = f"{held}\n{bare(answer)}"
        self._ever_lost |= sent.cut or bool(missing)
        right = exchange.event in sent.right or (sent.cut and not gone and (told or exchange.event == "turn"))
        counts["main"] += 1
        counts["labels right"] += right
        counts["losses"] += bool(gone)
        counts["losses told"] += bool(gone) and told
        counts["losses invented"] += told and not (gone or sent.cut)
        if gone and not told:
            self._fault("missed", sent, f"{exchange.event}, and {len(gone)} details are gone")
        elif told and not (gone or sent.cut):
            self._fault(
                "alarm" if self._client.never_shortens else "false", sent, f"{exchange.event}, and nothing is gone"
            )
        elif not right:
            self._fault("label", sent, f"{exchange.event} instead of {' or '.join(sorted(sent.right))}")
        if exchange.blocks and not self._ever_lost:
            self._fault("needless", sent, f"{exchange.chars} characters added where nothing was lost")

    def _session(self, sent: Sent, exchange: Exchange) -> None:
        taken = any(other is not self and other.session == exchange.session for other in self._others)
        if taken:
            self._fault("merged", sent, "taken for another conversation")
        elif self.session not in ("", exchange.session):
            self._fault("split", sent, "taken for a new conversation")
        self.is_whole &= not taken and self.session in ("", exchange.session)
        if not taken:
            self.session = exchange.session

    def _prefix(self, sent: Sent, exchange: Exchange, body: Json, got: Json) -> None:
        """Of the beginning that two following requests share, 0.99 must still be shared in what goes upstream.

        At a loss the client broke its prefix in the text to which a block was tied, or one line before.
        """
        before, self._prompts = self._prompts, (prompt(body), prompt(got))
        if before is None or sent.is_delta:
            return
        ours, theirs = shared_chars(before[1], self._prompts[1]), shared_chars(before[0], self._prompts[0])
        broken = exchange.event in LOSSES and theirs - ours < 400
        if theirs > 200 and ours < 0.99 * theirs and not broken:
            self._fault("prefix", sent, f"{ours} of {theirs} characters")

    def _detail(self, sent: Sent, exchange: Exchange, got: Json) -> None:
        self._reached = (self._reached if sent.is_delta else "") + json.dumps(got, ensure_ascii=False)
        if sent.asked is None or bare(sent.asked.value) in bare(sent.held):
            return
        back = sent.asked.value in self._reached
        self._ledger.counts["details asked"] += 1
        self._ledger.counts["details back"] += back
        if not back:
            self._fault("detail", sent, f"not back: {sent.asked.said} ({exchange.event})")
