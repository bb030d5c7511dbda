"""Where a request belongs, as session.link() says it."""

from msgspec import Struct

from lantern_proxy.history.record import Session

DELEGATED = "delegated"
"""Link.agent of a sub-agent whose task a session's model wrote, where its client does not name the agent."""

BY_ID, STORED, PASTED = "explicit id", "stored", "its texts stand together in one message"
"""The values of `Link.why` that code compares with; all others are only for people."""


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
    """An id, a summary or words alone led to the session: the request need not hold anything of what it held."""
    scanty: bool = False
    """Little speaks for the session: a text of the user, some words. More may speak for one that is only in the
    archive."""
    by_content: bool = False
    """The session was found by what the request says; no id named it."""
    why: str = ""
    """What led to the session."""
    family: str = ""
    """The id that the client gives the session; "": none."""
    parent: str = ""
    """The session that a new side session belongs to; "": none."""
