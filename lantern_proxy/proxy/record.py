"""An answered exchange as the archive stores it. Runs on the writer's thread, on values that no request changes."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from lantern_proxy import chunk
from lantern_proxy.archive import Record, RequestRow
from lantern_proxy.compaction.placement import may_hold_block
from lantern_proxy.config import Config
from lantern_proxy.config.safety import PrivacyConfig
from lantern_proxy.follow import Step
from lantern_proxy.history import head_of
from lantern_proxy.history.record import Session
from lantern_proxy.proxy.exchange import Exchange
from lantern_proxy.redact import LONGEST_CHARS, Cleaner, room_for
from lantern_proxy.session_rows import asked, session_row, unkept_row
from lantern_proxy.turn import SYSTEM, Answer, Filed, Message, Passage, canonical, is_random, message
from lantern_proxy.turn import item as text_item
from lantern_proxy.wire.http import spellings


class Privacy(Cleaner):
    """Which parts of an exchange may be archived, by the rules of `privacy:` and a client's `x-lantern-archive: off`.

    Used only by the writer's thread, except `found`.
    """

    def __init__(self, config: PrivacyConfig) -> None:
        super().__init__(config.redact, config.patterns, config.skip_roles)
        self._config = config

    def archives(self, exchange: Exchange) -> bool:
        """May the text of this exchange be archived?"""
        if exchange.arrival.is_off("x-lantern-archive"):
            return False
        model = exchange.request.model if exchange.request else ""
        paths, skipped = self._config.skip_paths, self._config.skip_models
        return not (
            any(fnmatchcase(path, each) for each in paths for path in spellings(exchange.arrival.path))
            or any(fnmatchcase(model, each) for each in skipped)
        )


class Answered(Struct, frozen=True):
    """The outcome of an exchange that belongs to a session."""

    step: Step
    session: Session
    """The session after the answer."""
    answer: Answer
    filed: tuple[Filed, ...]
    """Messages of the answer."""
    status: int
    """The status that the client got; 0 if it got none."""
    error: str


def record_of(exchange: Exchange, answered: Answered, config: Config, privacy: Privacy) -> Record:
    """The record of an exchange and its answer, as far as `privacy` allows it."""
    step, session, said = answered.step, answered.session, (*answered.step.filed, *answered.filed)
    if not privacy.archives(exchange):
        return _unkept(exchange, step, session, said, answered.status)
    messages = tuple(kept for each in said for kept in _kept(each, config.archive.max_message_chars, privacy))
    produced = {f.key for f in answered.filed}
    minted = (v for f in messages for v in f.message.ids if f.key in produced or is_random(v))
    named = [*answered.answer.ids, *minted, session.family, session.id]
    named += [step.link.family] if step.link and not step.link.side else []
    return Record(
        tenant=exchange.tenant, project=exchange.project, session=session_row(session, privacy.said), messages=messages,
        request=_request_row(exchange, answered.status, answered.error, privacy),
        head=head_of(session),
        ids=tuple(dict.fromkeys(filter(None, named))), lost=step.verdict.gone if step.verdict.is_loss else (),
        uncut=_uncut(step, session, messages),
        passages=(
            *_beside_summary(step, session, privacy),
            *(_turn(session, exchange.at, privacy) if config.restore.recipe == "lantern" else ()),
        ),
        blocks=tuple(exchange.entered), passed=tuple(exchange.passed), came_at=exchange.at,
    )  # fmt: skip


def record_of_main(exchange: Exchange, step: Step, main: Session, config: Config, privacy: Privacy) -> Record:
    """The record of messages that a side call showed before its main conversation did: they are filed under `main`."""
    if not privacy.archives(exchange):
        return Record(
            tenant=exchange.tenant, project=exchange.project, session=unkept_row(main), request=None,
            unkept=step.main_filed,
        )  # fmt: skip
    messages = tuple(
        kept for each in step.main_filed for kept in _kept(each, config.archive.max_message_chars, privacy)
    )
    return Record(
        tenant=exchange.tenant, project=exchange.project, session=session_row(main, privacy.said), request=None,
        messages=messages, uncut=tuple(f.key for f in messages), came_at=exchange.at,
    )  # fmt: skip


def _unkept(exchange: Exchange, step: Step, session: Session, filed: tuple[Filed, ...], status: int) -> Record:
    """The record of a request of which no text may be kept: that it came, and which messages (`filed`) must stay out of
    the archive when the client sends them again."""
    request = RequestRow(
        id=exchange.id, at=exchange.at, api=session.api, path=exchange.arrival.path, event=exchange.event,
        status=status, restored=exchange.restored, chars=exchange.chars, ms=exchange.ms,
        degraded=tuple(dict.fromkeys(exchange.degraded)), gone=len(step.verdict.gone),
    )  # fmt: skip
    return Record(
        tenant=exchange.tenant, project=exchange.project, session=unkept_row(session), request=request, unkept=filed,
        ids=tuple(filter(None, (session.family, session.id))), blocks=tuple(exchange.entered),
    )  # fmt: skip


def _kept(filed: Filed, most_chars: int, privacy: Privacy) -> Iterator[Filed]:
    """A message in the form in which it may be kept: redacted, then cut to `most_chars`, as by Cleaner.said(); nothing
    if its role is skipped."""
    seen = _clipped(filed, most_chars + LONGEST_CHARS)
    for clean in privacy.clean((seen,)):
        if seen is filed and len(clean.message.raw) <= most_chars:  # true for nearly all
            yield clean
        else:
            yield _clipped(clean, room_for(most_chars, clean=_chars(clean.message), was_cut=seen is not filed))


def _clipped(filed: Filed, most_chars: int) -> Filed:
    """The message, cut to `most_chars` if it is longer. Its fingerprint is still that of the whole."""
    message = filed.message
    if len(message.raw) <= most_chars or _chars(message) <= most_chars:
        return filed
    items, room = [], most_chars
    for item in message.items:
        items.append(replace(item, text=item.text[:room]))
        room -= len(items[-1].text)
    raw = json.dumps({"role": message.role, "content": "\n".join(i.text for i in items if i.text)}).encode()
    return replace(filed, message=replace(message, items=tuple(items), raw=raw))


def _chars(message: Message) -> int:
    return sum(len(item.text) for item in message.items)


def _request_row(exchange: Exchange, status: int, error: str, privacy: Privacy) -> RequestRow:
    request, step = exchange.request, exchange.step
    return RequestRow(
        id=exchange.id, at=exchange.at, api=request.api if request else "", path=exchange.arrival.path,
        model=request.model if request else "", event=exchange.event, status=status,
        query=asked(request, privacy.said) if request else "",
        restored=exchange.restored, chars=exchange.chars, ms=exchange.ms,
        degraded=tuple(dict.fromkeys(exchange.degraded)), gone=len(step.verdict.gone) if step else 0, error=error,
        size=len(exchange.plain),
    )  # fmt: skip


def _uncut(step: Step, session: Session, messages: tuple[Filed, ...]) -> tuple[str, ...]:
    """Keys of the messages that are to be cut into passages: all that have text, except a summary of lost text, which
    would crowd out the original.

    A tool result is cut even if it seems to hold a summary, since its content may be nowhere else.
    """
    at = step.verdict.summary
    summary = session.head[at].key if at is not None and at < len(session.head) else ""
    spoken = (f for f in messages if not f.side and f.message.role not in SYSTEM)
    return tuple(f.key for f in spoken if f.key != summary or any(i.kind == "result" for i in f.message.items))


def _beside_summary(step: Step, session: Session, privacy: Privacy) -> tuple[Passage, ...]:
    """Passages of what the user asks in the message that holds a summary: the message itself is not cut, see
    _uncut()."""
    at, asked = step.verdict.summary, step.verdict.asked
    key = session.head[at].key if asked and at is not None and at < len(session.head) else ""
    filed = next((f for f in step.filed if f.key == key and not f.side), None)
    whole = canonical(filed.message.text) if filed else ""
    if filed is None or not (whole.endswith(canonical(asked)) or whole.startswith(canonical(asked))):
        return ()
    said = message("user", [text_item("user", "text", asked)], filed.message.raw)
    return tuple(p for f in privacy.clean((replace(filed, message=said),)) for p in chunk.passages(f, session.id))


def _turn(session: Session, now: float, privacy: Privacy) -> tuple[Passage, ...]:
    """The summary of the session's current turn: its last user text and everything since."""
    start = max((at for at, e in enumerate(session.head) if may_hold_block(e.message)), default=None)
    if start is None or session.side:
        return ()
    entries = session.head[start:]
    filed = [
        Filed(
            key=e.key,
            position=session.position - len(entries) + n,
            turn=session.turn,
            message=e.message,
            created_at=now,
        )
        for n, e in enumerate(entries)
    ]
    summary = chunk.turn_passage(privacy.clean(tuple(filed)), session.id)
    return (summary,) if summary else ()
