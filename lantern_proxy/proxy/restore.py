"""What is added to a request before it is forwarded: the blocks of its session's ledger, and new ones.

    await restoring.put_back(exchange, request, step, deadline)     # into exchange.body

Blocks are chosen in threads. A block that is late is left out, and owed: it is chosen again in the background, and put
at the end of the next request.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from lantern_proxy.archive import ArchiveError
from lantern_proxy.compaction.placement import place
from lantern_proxy.config import Config, RestoreConfig
from lantern_proxy.follow import Step
from lantern_proxy.history.record import Session
from lantern_proxy.proxy.exchange import Exchange, FailingOpen, settled
from lantern_proxy.proxy.ledger import Anchor, Ledgers, SessionKey, block_at, replay
from lantern_proxy.proxy.restore_state import REFUSED, Late, Need, SessionStates, Spot, remember
from lantern_proxy.proxy.writer import Writer
from lantern_proxy.restore.breaker import Breakers
from lantern_proxy.restore.budget import budget_chars, sample_of
from lantern_proxy.turn import Block, BlockKind, Request, Restored
from lantern_proxy.wire.json import Insert

if TYPE_CHECKING:
    from lantern_proxy.restore.ask import Ask
    from lantern_proxy.restore.restorer import Restorer

log = logging.getLogger("lantern.proxy")

_CATCHING_UP = 0.3
"""Share of the time up to the deadline that a restore waits for earlier turns to be cut into passages."""
_WARM_MESSAGES, _WARM_BESIDE = 24, 4
"""New messages after which a session's index is opened ahead; fewer at a side call, which may be the one that writes
the summary."""
_WARM_SESSIONS = 64
"""For how many sessions it is remembered when their index was opened ahead."""
_THREADED_BYTES = 262_144
"""The text of a larger request is put together in a thread, so that other streams go on."""
_LATE_S = 2.0
"""Deadline, in seconds, for choosing a block in the background."""
_CUT_SHORT = frozenset({"restore:deadline", "restore:opening", "restore:behind"})
"""What `degraded` holds if a block was chosen before everything that is lost could be considered."""


class Restoring:
    """The ledgers, and the threads that choose blocks. Must be closed."""

    def __init__(self, config: Config, writer: Writer, failing_open: Callable[[Exchange, str], FailingOpen]) -> None:
        self._config, self._writer, self._failing_open = config, writer, failing_open
        self._opened = writer.opened
        self._breakers = Breakers()
        """One per session: a fault caused by its texts does not affect other sessions."""
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="lantern-restore")
        self._ledgers = Ledgers(self._read_ledger)
        self._states = SessionStates()
        self._warmed: dict[SessionKey, int] = {}
        """Session -> how many messages it had when its index was opened ahead. Only for the writer's thread."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def forget_all(self) -> None:
        """Forget the ledgers; they are read from the archive again."""
        self._ledgers.forget_all()
        self._states.forget_archived()

    def strike(self, exchange: Exchange) -> None:
        """Remove the new blocks of this request from the ledger: the upstream refused it for its blocks."""
        key, model = (exchange.tenant, exchange.session), exchange.request.model if exchange.request else ""
        self._ledgers.strike(key, exchange.entered)
        if exchange.request is not None and not exchange.request.delta:  # a delta's total length is not known
            self._states.update(key, refused=(model, len(exchange.plain), exchange.at))
        if any(block.restored.kind == "loss" for block in exchange.entered):
            self._states.owe(key)

    def accept(self, exchange: Exchange) -> None:
        """The upstream accepted a request with blocks: its session may get new ones again."""
        self._states.accept((exchange.tenant, exchange.session))

    def _read_ledger(self, key: SessionKey) -> list[Block]:
        archive = self._opened.archive
        return archive.of(key[0]).blocks(key[1]) if archive else []

    async def put_back(self, exchange: Exchange, request: Request, step: Step, deadline: float) -> None:
        """Replay the ledger's blocks, choose the new ones that this request needs, and write all of them into
        exchange.body."""
        key, new = (exchange.tenant, exchange.session), step.event == "new"
        turned_off = self._states.of(key).turned_off
        if turned_off:
            self._states.update(key, turned_off=False)
        need = Need(exchange, request, step, deadline, again=turned_off and exchange.event == "retry")
        may_lack = step.verdict.is_loss or step.session.lost
        if self._opened.restorer.made is None and (not new or any(m.role == "assistant" for m in request.messages)):
            await self._made(need)  # there is a history now; importing later would delay requests more
        if may_lack:
            self._notice_forgotten()
        elif self._ledgers.is_empty(key, new=new):
            return
        if self._states.of(key).refuses(request.model, len(exchange.plain), exchange.at):
            await self.leave_out(exchange, request, step)
            exchange.degraded.append(REFUSED)
            return
        async with self._ledgers.of(key, new=new) as ledger:
            self._replay(need, ledger)
            if may_lack and self._opened.archive is not None:
                with self._writer.keeper.undisturbed(), self._failing_open(exchange, "restore"):
                    await self._look_for(need)
            if exchange.inserts:  # replayed blocks stay, even if choosing new ones failed
                self._write_blocks(exchange)
            ledger += exchange.entered

    def _replay(self, need: Need, ledger: Sequence[Block]) -> None:
        """Find where the ledger's blocks stand in this request; owe the newest loss block again if it has no place."""
        exchange, request, verdict = need.exchange, need.request, need.step.verdict
        again = replay(ledger, request, verdict.kept, verdict.dressed)
        exchange.carried = _carried(again, ledger, exchange)
        exchange.inserts = [insert for _, insert in again]
        exchange.shown = [block.restored for block, _ in again]
        if request.delta:
            exchange.held = [block.restored for block, _ in replay(ledger, need.whole)]
        is_moved = verdict.gone or not (request.delta or any(verdict.kept))
        if is_moved and _is_homeless(ledger, [*exchange.shown, *exchange.held]):
            self._states.owe(need.key)

    async def leave_out(self, exchange: Exchange, request: Request, step: Step) -> None:
        """Add nothing to this request, as its client asked; what it lacks is restored into the next one.

        A block whose message has another text by now gets a new ledger entry, for the next request. If the client
        repeats the question with restores on, it gets its blocks then, though it is a retry.
        """
        need = Need(exchange, request, step, deadline=0.0)
        if step.verdict.is_loss:
            self._states.owe(need.key)
        if need.new_question_at is not None:
            self._states.update(need.key, turned_off=True)
        new = step.event == "new"
        if not self._ledgers.is_empty(need.key, new=new):
            async with self._ledgers.of(need.key, new=new) as ledger:
                again = replay(ledger, request, step.verdict.kept, step.verdict.dressed)
                ledger += _carried(again, ledger, exchange)

    def _notice_forgotten(self) -> None:
        """Drop the ledgers in memory if another process has just forgotten something, which must not be replayed."""
        with suppress(ArchiveError):
            if self._writer.keeper.notice():
                self.forget_all()

    async def _look_for(self, need: Need) -> None:
        """Choose new blocks, after earlier turns have been cut into passages."""
        exchange, verdict = need.exchange, need.step.verdict
        if verdict.is_loss or verdict.gone or not self._states.of(need.key).caught_up:
            self._expect(need)
            await self._catch_up(need)
        await self._add_blocks(need)
        self._choose_later(need)
        if late := sorted(_CUT_SHORT.intersection(exchange.degraded)):
            log.info("%s: not all that it lacks was looked at in time (%s)", exchange.id, ", ".join(late))

    async def _catch_up(self, need: Need) -> None:
        """Wait briefly until the earlier turns are cut into passages: the request may lack any of them."""
        if self._opened.problem:
            return
        tenant, session = need.key
        which = session if self._config.restore.scope == "session" else ""
        caught_up = await settled(self._writer.flush(tenant, which), need.left_s() * _CATCHING_UP)
        self._states.update(need.key, caught_up=caught_up)
        if not caught_up:
            need.exchange.degraded.append("restore:behind")

    def _expect(self, need: Need) -> None:
        """Start embedding the question while its session is cut and a loss block is made."""
        restorer = self._opened.restorer.ready
        if need.new_question_at is not None and restorer is not None:
            self._threads.submit(restorer.expect, need.question)

    def _write_blocks(self, exchange: Exchange) -> None:
        assert exchange.wire is not None
        try:
            exchange.body = exchange.wire.inject(exchange.plain, exchange.inserts)
            exchange.headers = [h for h in exchange.headers if h[0] != b"content-encoding"]
        except BaseException:  # the body goes out unchanged
            exchange.drop_blocks("restore:place")
            raise

    async def _add_blocks(self, need: Need) -> None:
        """Add the loss block where the history was lost, and the question block in the message that waits for an
        answer."""
        exchange, request, verdict, key = need.exchange, need.request, need.step.verdict, need.key
        question_at = need.new_question_at
        begun = verdict.anchor if verdict.is_loss else None
        spot = place(request, max(begun, need.step.cached)) if begun is not None else None
        if spot is None and question_at is not None and (verdict.is_loss or self._states.of(key).owed is not None):
            spot = question_at, "inside"  # the start of the prompt is cached by now: a late block goes to its end
        if verdict.is_loss:
            self._states.owe(key, need.spent_chars)  # until it is in the request, whatever goes wrong
        if await self._put_late(need, spot or need.behind_results):
            spot = None
        if self._breakers.open(key, time.monotonic()):
            exchange.degraded.append("restore:resting")
            return
        if spot is None and question_at is None:
            return
        texts = await self._texts_of(need)
        if texts is None:
            return
        if spot is not None:
            ask = self._ask(need, texts, self._loss_room(need), verdict.summary_in(request))
            is_whole = await self._add(need, "loss", spot, ask)
            there = (self._states.of(key).owed or 0) + sum(len(block.restored.text) for block in exchange.blocks)
            self._states.update(key, owed=None if is_whole else there, late=None)
        if question_at is not None:
            room = room_for(request, self._config.restore.question_chars, self._config.restore)
            await self._add(need, "question", (question_at, "inside"), self._ask(need, texts, room))

    def _loss_room(self, need: Need) -> int:
        """Most characters of the loss block, or of what is still owed of it."""
        restore = self._config.restore
        return room_for(need.request, restore.budget_chars, restore) - (self._states.of(need.key).owed or 0)

    async def _texts_of(self, need: Need) -> tuple[str, str] | None:
        """All text of the request, and what users say in it: see present.texts_of(). For a large request in a thread;
        None if that takes too long."""
        from lantern_proxy.restore.present import texts_of

        request = need.whole
        if sum(len(m.raw) for m in request.messages) <= _THREADED_BYTES:
            return texts_of(request)
        reading = asyncio.get_running_loop().run_in_executor(self._threads, texts_of, request)
        try:
            return await asyncio.wait_for(reading, max(0.001, need.left_s()))
        except TimeoutError:
            need.exchange.degraded.append("restore:deadline")
            return None

    def _ask(self, need: Need, texts: tuple[str, str], budget_chars: int, summary: str = "") -> "Ask":
        from lantern_proxy.restore.ask import Ask, looking_s

        present, users_text = texts
        exchange, packing_s = need.exchange, self._config.restore.deadline_ms / 1000 - looking_s(self._config.restore)
        ask = Ask(
            tenant=exchange.tenant, project=exchange.project, session=exchange.session, present=present,
            abandoned=frozenset(need.step.session.abandoned), question=need.question, users_text=users_text,
            summary=summary, budget_chars=budget_chars, now=exchange.at, deadline=need.deadline - packing_s,
        )  # fmt: skip
        return ask.with_blocks([*exchange.shown, *exchange.held])

    async def _add(self, need: Need, kind: BlockKind, spot: Spot, ask: "Ask") -> bool:
        """Choose one block and put it into the exchange, at `spot`; False if not everything that is lost could be
        considered in time."""
        exchange = need.exchange
        restorer = await self._restorer(need)
        if restorer is None:
            return False
        choose = restorer.at_compaction if kind == "loss" else restorer.for_question
        work, healthy = self._threads.submit(choose, ask), False
        try:
            model_s = self._config.rerank.model_timeout_ms / 1_000 if self._config.rerank.model else 0.0
            patience_s = max(0.001, need.deadline + model_s - time.monotonic())
            restored = await asyncio.wait_for(asyncio.wrap_future(work), patience_s)
            healthy = True
        except TimeoutError:
            exchange.degraded.append("restore:deadline")
            return False
        finally:
            if not work.cancelled():  # one that never started is no sign of a fault
                is_off = self._breakers.record(need.key, healthy, time.monotonic())
                if is_off:
                    log.warning("%s: three restores of its session failed in a row; it rests for a while", exchange.id)
        exchange.degraded += ask.degraded
        exchange.passed += ask.passed.told
        if restored is not None:
            self._put(need, spot, restored)
        return _CUT_SHORT.isdisjoint(exchange.degraded)

    def _put(self, need: Need, spot: Spot, restored: Restored) -> None:
        """Put a new block into the exchange."""
        exchange, at, request = need.exchange, spot[0], need.request
        assert exchange.wire is not None
        how = exchange.wire.settle_place(request, *spot)
        anchor = Anchor(request, at, key=need.step.verdict.kept[at])
        block = block_at(anchor, how, restored, session=exchange.session, by=exchange.id, now=exchange.at)
        exchange.blocks.append(block)
        exchange.inserts.append(Insert(at, how, restored.text))
        exchange.shown.append(restored)

    def _choose_later(self, need: Need) -> None:
        """Choose what is still owed to a session in the background, once everything is cut into passages and no request
        has come for a moment. Its next request with a place for the block gets it; if this fails or not everything
        could be considered in time, that request chooses the block itself."""
        state, resting = self._states.of(need.key), "restore:resting" in need.exchange.degraded
        if state.owed is None or state.late is not None or resting:
            return
        late: Future[Late] = Future()
        self._states.update(need.key, late=late)
        room = self._loss_room(need)

        def choose() -> None:
            from lantern_proxy.restore.present import texts_of

            if (restorer := self._opened.restorer.ready) is not None:
                ask = self._ask(need, texts_of(need.whole), room, need.step.verdict.summary_in(need.request))
                ask = structs.replace(ask, deadline=time.monotonic() + _LATE_S)
                block = restorer.at_compaction(ask)
                if _CUT_SHORT.isdisjoint(ask.degraded):
                    late.set_result(Late(block, ask.passed.told))

        self._writer.when_idle(partial(self._threads.submit, choose))

    async def _put_late(self, need: Need, spot: Spot | None) -> bool:
        """Put the block that was chosen in the background into the exchange; False if there is none for this
        request."""
        late = self._states.of(need.key).late
        if late is None or spot is None or need.step.event != "turn" or not late.done():
            return False
        block, passed = late.result()
        if block is not None:
            if not await self._still_fits(need, block):
                self._states.update(need.key, late=None)
                return False
            self._put(need, spot, block)
        need.exchange.passed += passed
        self._states.update(need.key, owed=None, late=None)
        return True

    async def _still_fits(self, need: Need, block: Restored) -> bool:
        """Does a block that was chosen for an earlier request fit this one, which may be for another model?"""
        if len(block.text) > self._loss_room(need):
            return False
        with suppress(TimeoutError):
            looking = asyncio.to_thread(self._still_holds, need.exchange.tenant, block)
            return await asyncio.wait_for(looking, max(0.001, need.left_s()))
        return False

    def _still_holds(self, tenant: str, block: Restored) -> bool:
        """Are all passages of the block unchanged: not removed, corrected or judged since?"""
        archive, chosen = self._opened.archive, [placed.passage for placed in block.placed]
        now = archive.of(tenant).passages_by_id([each.id for each in chosen]) if archive else {}
        return all(
            each.id in now and (now[each.id].text, now[each.id].verdict) == (each.text, each.verdict) for each in chosen
        )

    async def _made(self, need: Need) -> "Future[Restorer] | None":
        """Start creating the restorer, and wait for it; None if it is not ready in time."""
        making = self._opened.restorer.want()
        return making if making is not None and await settled(making, need.left_s()) else None

    async def _restorer(self, need: Need) -> "Restorer | None":
        """The restorer; None, which `degraded` reports, if it is not ready in time. Raises what creating it raised."""
        made = await self._made(need)
        if made is not None:
            return made.result()
        if "restore:warming" not in need.exchange.degraded:
            need.exchange.degraded.append("restore:warming")
        return None

    def warm(self, exchange: Exchange, session: Session, main: Session) -> None:
        """Open the index of a session that may be compacted soon, so that its first block is not late. In a thread,
        once everything is cut into passages and no request has come for a moment.

        Repeated when a third of the session is new, and at a side call, which may be the one that writes the summary:
        the index then takes in what was said since.

        main: the session that a side call belongs to; else `session` itself
        """
        key, restorer = (exchange.tenant, main.id), self._opened.restorer.ready
        warmed = self._warmed.get(key, 0)
        enough = _WARM_BESIDE if session.side else warmed // 2 or _WARM_MESSAGES
        if restorer is None or main.position - warmed < enough:
            return
        remember(self._warmed, key, main.position, most=_WARM_SESSIONS)
        self._writer.when_idle(partial(self._threads.submit, restorer.warm, exchange.tenant, exchange.project, main.id))


def _carried(again: Sequence[tuple[Block, Insert]], ledger: Sequence[Block], exchange: Exchange) -> list[Block]:
    """Replayed blocks whose entry is not in the ledger yet (see replay), as entries of this request."""
    return [
        structs.replace(block, request=exchange.id, created_at=exchange.at)
        for block, _ in again
        if all(block is not each for each in ledger)
    ]


def room_for(request: Request, most_chars: int, restore: RestoreConfig) -> int:
    """Characters that a block may have for this request's model, `most_chars` at most."""
    sample = sample_of(message.text for message in reversed(request.messages))
    return budget_chars(most_chars, restore, request.model, sample)


def _is_homeless(ledger: Sequence[Block], shown: Sequence[Restored]) -> bool:
    """Is the newest loss block missing from the request, because the message that it rode in is gone?

    Clients that write their whole history into one text replace that message with every turn.
    """
    newest = next((block.restored for block in reversed(ledger) if block.restored.kind == "loss"), None)
    return newest is not None and all(restored is not newest for restored in shown)
