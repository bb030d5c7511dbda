"""The archive and the restore without a proxy, for programs that call their model themselves.

    from lantern_proxy import Lantern

    with Lantern() as lantern:
        lantern.archive("chat-7", messages)            # whenever something was said; nothing is written twice
        messages = compact(messages)                   # the program's own way
        blocks = lantern.restore("chat-7", messages)   # what these messages lack, within the budget
        messages[-1]["content"] += "".join("\n\n" + block.text for block in blocks)

Messages are dicts in the form of Chat Completions, or the objects of OpenAI's SDK. Nothing here calls a model or the
network, except `rerank.model` if it is configured.
"""

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import structs
from msgspec.structs import replace

from lantern_proxy import chunk
from lantern_proxy.archive import Archive, ArchiveError, Hit, Record, RequestRow, Why
from lantern_proxy.archive.feedback import Verdict
from lantern_proxy.config import Config, RerankConfig, load, tenant_named
from lantern_proxy.embed import Embedder
from lantern_proxy.follow import Step, follow
from lantern_proxy.history import head_of
from lantern_proxy.memory_arguments import Wire, count, read, text, times_of
from lantern_proxy.redact import Cleaner
from lantern_proxy.restore.ask import Ask
from lantern_proxy.restore.present import text_of, users_text_of
from lantern_proxy.restore.restorer import Restorer
from lantern_proxy.session import Link, SessionIndex
from lantern_proxy.session.from_archive import recall
from lantern_proxy.session_rows import asked, session_of, session_row
from lantern_proxy.turn import Api, Filed, Identity, Passage, Request, Restored
from lantern_proxy.turn_blocks import blocks_in
from lantern_proxy.wire.headers import brief

if TYPE_CHECKING:
    from lantern_proxy.upstream.model_call import ModelCall

_MOMENT_S = 1e-6
"""The smallest difference between two times in the archive."""
_MOST_GIVEN = 1_000
"""For so many of the most recent blocks the ids of their passages are kept in memory: about 6 MB."""


class Lantern:
    """One user's archive, open for archiving, restoring and searching. Close it, or use it in a `with` block.

    config:   settings, or the path of a YAML file; by default those of the environment: the archive at ./lantern.db or
              $LANTERN_ARCHIVE
    user:     whose archive it is; nothing crosses from one user to another. A client's API key gives that client's
    tenant:   the same by a name that `lantern status` shows or the config defines, instead of `user`
    project:  a partition of the user's archive with its own sessions; search, why and feedback stay within it. Without
              one they cover the whole archive
    embedder: if started, adds the vector signal, for passages that a proxy or `lantern reindex` has embedded
    Raises ConfigError; ArchiveError if the archive cannot be opened or `tenant` does not exist; and, as all of its
    methods do, ValueError for an argument of the wrong type, such as None for a text from an unset variable.
    """

    def __init__(
        self,
        config: Config | str | os.PathLike[str] | None = None,
        *,
        user: str = "local",
        tenant: str = "",
        project: str = "",
        embedder: Embedder | None = None,
    ) -> None:
        user, tenant, project = text("user", user), text("tenant", tenant), brief(text("project", project))
        if not isinstance(config, Config):
            if not isinstance(config, str | os.PathLike | None):
                raise ValueError(f"config is a {type(config).__name__}; use a Config, or the path of a YAML file")
            config = load(None if config is None else Path(config), os.environ)
        self._config = config
        self._archive = Archive(
            self._config.archive.path, synchronous=self._config.archive.synchronous, key=self._config.archive.key()
        )
        if tenant and tenant not in self._config.tenants and not self._archive.of(tenant).sessions(limit=1):
            self._archive.close()
            raise ArchiveError(
                f"tenant {tenant} has nothing in {self._archive.path}, and the config names none so; `lantern status` "
                "lists the tenants, and a key says who is new (--key-env; in Python, user)"
            )
        self._restorer = Restorer(self._archive, self._config, embedder)
        self._ask_model = _model_call(self._config.rerank)
        self._restorer.rerankers.ask_model = self._ask_model
        privacy = self._config.privacy
        self._cleaner = Cleaner(privacy.redact, privacy.patterns, privacy.skip_roles)
        self.tenant = tenant or tenant_named(self._config.owners(), user) or self._archive.tenant_of(user)
        """The user's name for `lantern sessions --tenant`."""
        self._project = project
        self._index = SessionIndex()
        self._given: dict[str, frozenset[int]] = {}
        """The most recent blocks -> the passages in them."""

    def archive(
        self,
        session: str,
        messages: Sequence[Wire],
        *,
        times: Iterable[float] | None = None,
        title: str = "",
        known_as: str = "",
        api: Api = "chat",
    ) -> int:
        """Archive a conversation as it is now; returns how many of its messages were new. On disk when it returns.

        times:    Unix seconds per message, for what was said earlier (0: unknown); by default everything was said now
        title:    of a new session, up to 80 characters; by default the start of the user's last message at that time
        known_as: the id of the conversation in the requests of a client that continues it through the proxy. Once it
                  does, the proxy archives it, and `known_as` has no further effect
        api:      the protocol of that client: chat (completions), responses or messages

        A message that is missing since the last call stays in the archive: that is what `restore` gives back.
        Raises ValueError if `messages` are not messages, ArchiveError if they cannot be stored or synced to disk. The
        same call may then be repeated.
        """
        request, title, known_as = read(messages), text("title", title), brief(text("known_as", known_as))
        if known_as and self._is_answered(self._session_id(session)):
            return 0
        if api not in get_args(Api):
            raise ValueError(f"api is {api!r}; use {', '.join(get_args(Api))}")
        checked_times = None if times is None else times_of(times, len(request.messages))
        try:
            return self._written(session, request, checked_times, title, known_as, api)
        except BaseException:
            self._index = SessionIndex()  # it may hold messages that are not archived; the others will be recalled
            raise

    def _written(
        self, session: str, request: Request, times: tuple[float, ...] | None, title: str, known_as: str, api: Api
    ) -> int:
        now, session = time.time(), self._session_id(session)
        self._recall(session)
        held = self._index.sessions.get(session)
        request = structs.replace(request, api=held.api if held else api)
        if held or (known_as and self._archive.of(self.tenant).holders([known_as])):
            known_as = ""  # a session already has that id
        # the program names the conversation, so it need not be guessed whether this is a side call
        link = Link(session=held, restart=True, why="named", family=known_as or session)
        step = follow(self._index, request, Identity(), now=now, new_id=lambda: session, found=link)
        self._index.in_flight.clear()  # no answer is awaited here
        if title and step.event == "new":
            step = structs.replace(step, session=structs.replace(step.session, title=title))
        if times is not None:
            step = structs.replace(step, filed=_with_times(step, request, times))
        step = structs.replace(step, filed=_with_distinct_times(step.filed))
        record = self._record(step, request, (times[-1] if times else 0.0) or now)
        refused = self._archive.faults["record"]
        self._archive.write([record])
        self._archive.sync()
        if self._archive.faults["record"] > refused:
            raise ArchiveError(f"session {session} cannot be stored; the log says which value of it is at fault")
        return len(step.filed)

    def restore(
        self, session: str, messages: Sequence[Wire], *, question: str | None = None, summary: str = ""
    ) -> tuple[Restored, ...]:
        """What `session` held and `messages` lack, as blocks of text to add to the last user message; () if nothing.

        Blocks already in `messages` count: their content is not lost, and their length is part of the budget.

        The first block covers what was lost, most specific first; the second, if any, holds evidence for the question.

        question: by default the text of the last user message; "" leaves the second block out
        summary:  the text that replaced what was lost, if there is one
        """
        request, summary = read(messages), text("summary", summary)
        settings, now = self._config.restore, time.time()
        if question is None:
            question = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
        question = text("question", question)
        held = [block for m in request.messages for block in blocks_in(m.raw)]
        ask = Ask(
            tenant=self.tenant,
            project=self._project,
            session=self._session_id(session),
            present="\n".join([text_of(request), *(" ".join(block.split()) for block in held)]),
            shown=frozenset().union(*(self._given.get(block, ()) for block in held)),
            users_text=users_text_of(request),
            question=question,
            summary=summary,
            budget_chars=max(0, settings.budget_chars - sum(map(len, held))),
            now=now,
            deadline=time.monotonic() + settings.deadline_ms / 1000,
        )
        loss = self._restorer.at_compaction(ask)
        if loss is not None:
            ask = ask.with_blocks([loss])
        ask = replace(ask, summary="", budget_chars=settings.question_chars)  # a summary replaces no user's words
        evidence = self._restorer.for_question(ask) if question else None
        blocks = tuple(block for block in (loss, evidence) if block is not None)
        self._given |= {block.text: frozenset(placed.passage.id for placed in block.placed) for block in blocks}
        for oldest in [*self._given][:-_MOST_GIVEN]:
            del self._given[oldest]
        return blocks

    def recall(self, question: str, *, session: str = "", budget_chars: int | None = None) -> Restored | None:
        """The best evidence for a question within restore.scope, as one block; None if none is good enough.

        session:      the session to search, if restore.scope is `session`
        budget_chars: by default restore.question_chars
        """
        settings = self._config.restore
        ask = Ask(
            tenant=self.tenant,
            project=self._project,
            session=self._session_id(session) if session else "",
            question=text("question", question),
            budget_chars=settings.question_chars if budget_chars is None else count("budget_chars", budget_chars),
            now=time.time(),
            deadline=time.monotonic() + settings.deadline_ms / 1000,
        )
        return self._restorer.for_question(ask)

    def why(self, request: str) -> Why | None:
        """What was restored into a request of the proxy, and why; None if the archive does not know it.

        request: its id, or `last` for the newest request with a block, of this tenant, and of the project if one is set
        """
        found = self._archive.of(self.tenant).why(self._request(request))
        return found if found is not None and self._is_in_project(found.request.session) else None

    def feedback(self, passage: int, verdict: Verdict | Literal[""], *, request: str = "") -> Passage:
        """Store a verdict on a passage; "" takes it back. request: the one that restored it, by id or as `last`

        A wrong or outdated passage is not restored again.
        """
        request = self._request(request)
        if count("passage", passage) != passage:
            raise ArchiveError(f"there is no passage {passage}; `lantern search` and `lantern why` give numbers")
        mine = self._archive.of(self.tenant)
        judged = mine.passages_by_id([passage]).get(passage)
        if judged is not None and not self._is_in_project(judged.session):
            raise ArchiveError(f"passage {passage} is not of project {self._project}; `lantern search` shows numbers")
        return mine.feedback(request, passage, verdict, now=time.time(), settle=self._restorer.judge)

    def search(self, query: str, *, limit: int = 10, session: str | None = None) -> list[Hit]:
        """Archived passages that match `query`, best first; "quoted words" are one phrase. limit: 0 or more."""
        query, limit = text("query", query), count("limit", limit)
        own = None if session is None else self._session_id(session)
        return self._archive.of(self.tenant).search(query, limit, own, project=self._project or None)

    def tenants(self) -> list[str]:
        """All tenants of this archive, last seen first."""
        return [each.id for each in self._archive.tenants()]

    def close(self) -> None:
        """Close the archive and the models. May be called twice."""
        self._restorer.close()
        self._archive.close()
        if self._ask_model is not None:
            self._ask_model.close()

    def __enter__(self) -> "Lantern":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _session_id(self, session: str) -> str:
        """The id under which the archive has, or will have, this project's session of that name.

        It is the name itself, unless a session of another project has it. ValueError if it is not a valid name.
        """
        if not isinstance(session, str) or not session.strip():
            raise ValueError(f"session is {session!r}; use a text that names the conversation")
        apart = f"{session}-{blake2b(self._project.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
        mine = self._archive.of(self.tenant)
        if mine.session(apart) is not None:
            return apart
        held = mine.session(session)
        return session if held is None or held.project == self._project else apart

    def _request(self, request: str) -> str:
        """The id for `last`; `request` itself if it is another name, or nothing was restored yet."""
        if text("request", request) != "last":
            return request
        newest = self._archive.of(self.tenant).last_restored(self._project or None)
        return newest[0] if newest else request

    def _is_answered(self, session: str) -> bool:
        """Has an upstream answered in this session, through the proxy?"""
        mine = self._archive.of(self.tenant)
        row = mine.session(session)
        return row is not None and not {row.id, row.family}.issuperset(mine.ids(row.id))

    def _is_in_project(self, session: str) -> bool:
        """Does the session belong to this project, or is no project set?"""
        held = self._archive.of(self.tenant).session(session) if self._project else None
        return not self._project or (held is not None and held.project == self._project)

    def _recall(self, session: str) -> None:
        """Load a session that an earlier run archived into memory."""
        mine = self._archive.of(self.tenant)
        if session in self._index.sessions or (row := mine.session(session)) is None:
            return
        recalled = structs.replace(session_of(row), side=False, agent="", parent=row.parent)  # whatever its name
        recall(self._index, recalled, mine.messages(row.id), mine.head(row.id), mine.ids(row.id))

    def _record(self, step: Step, request: Request, now: float) -> Record:
        after = step.session
        filed = self._cleaner.clean(step.filed)
        return Record(
            tenant=self.tenant,
            project=self._project,
            session=structs.replace(session_row(after, self._cleaner.said), last_seen_at=now),
            request=RequestRow(
                id=f"mem_{secrets.token_hex(8)}",
                at=now,
                api=request.api,
                path="",
                event=step.event,
                query=asked(request, self._cleaner.said),
            ),
            messages=filed,
            ids=tuple(filter(None, (after.family, after.id))),
            head=head_of(after),
            passages=self._passages(after.id, filed),
        )

    def _passages(self, session: str, filed: Sequence[Filed]) -> tuple[Passage, ...]:
        """Passages of the new messages, and a new summary of each turn that grew."""
        grown = {each.turn for each in filed}
        before = [each for each in self._archive.of(self.tenant).messages(session) if each.turn in grown]
        turns = [[each for each in (*before, *filed) if each.turn == turn] for turn in sorted(grown)]
        cut = [passage for each in filed for passage in chunk.passages(each, session)]
        return (*cut, *(summary for turn in turns if (summary := chunk.turn_passage(turn, session))))


def _model_call(config: RerankConfig) -> "ModelCall | None":
    if not config.model:
        return None
    from lantern_proxy.upstream.model_call import ModelCall

    return ModelCall(config)


def _with_distinct_times(filed: Sequence[Filed]) -> tuple[Filed, ...]:
    """`filed` with messages of the same time moved a moment apart: recall() takes messages of one time for those of one
    request of the proxy."""
    made, before, run = list[Filed](), 0.0, 0
    for each in filed:
        run = run + 1 if each.created_at == before > 0 else 0
        before = each.created_at
        made.append(structs.replace(each, created_at=before + run * _MOMENT_S))
    return tuple(made)


def _with_times(step: Step, request: Request, times: Sequence[float]) -> tuple[Filed, ...]:
    """The new messages of the request, in order, with their times. times: one per message

    Equal messages are one object, so only those count that the session did not hold.
    """
    made, at, new = [], 0, [key is None for key in step.verdict.kept]
    for each in step.filed:
        at = next((n for n in range(at, len(times)) if new[n] and request.messages[n] is each.message), at)
        made.append(structs.replace(each, created_at=times[at]))
        at += 1
    return tuple(made)
