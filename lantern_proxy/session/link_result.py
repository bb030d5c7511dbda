"""The result of session.link(): where a request belongs."""

from msgspec import Struct

from lantern_proxy.history.record import Session

DELEGATED = "delegated"
"""Link.agent of a sub-agent that its client does not name, but whose task a session's model wrote."""

BY_ID, STORED, PASTED = "explicit id", "stored", "its texts stand together in one message"
TAKEN_UP = "a side call that goes on"
"""The values of `Link.why` that code compares with; all others are for people only."""


class Link(Struct, frozen=True, kw_only=True):
    """Where a request belongs."""

    session: Session | None = None
    """None: the request begins a session. Where `side` is set: the conversation that the side call is about, or the
    sub-agent's own session."""
    side: bool = False
    """Is it a side call: a title, a summary, a sub-agent?"""
    agent: str = ""
    """Which sub-agent sent it; "": none."""
    restart: bool = False
    """The session was found by an id, a summary or words alone: the request may hold none of its messages."""
    scanty: bool = False
    """There is little evidence for the session (one user text, some words). There may be more for one that is only in
    the archive."""
    by_content: bool = False
    """The session was found by the request's content; no id named it."""
    why: str = ""
    """The evidence for the session, in words."""
    family: str = ""
    """The id that the client gives the session; "": none."""
    parent: str = ""
    """The session that a new side session belongs to; "": none."""
