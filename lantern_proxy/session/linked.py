"""Where a request belongs, as session.link() says it."""

from msgspec import Struct

from lantern_proxy.history.record import Session

DELEGATED = "delegated"
"""The agent of a task that a session's model wrote, where its client does not say so."""

BY_ID, STORED, PASTED = "explicit id", "stored", "its texts stand together in one message"
"""What `Link.why` says where that decides; what else it says is for people."""


class Link(Struct, frozen=True, kw_only=True):
    """Where a request belongs."""

    session: Session | None = None
    """None: one that was never seen. With `side` the conversation that the side call is about, or a sub-agent's own."""
    side: bool = False
    agent: str = ""
    restart: bool = False
    """Linked by an id, a summary or words alone: nothing that the session held needs to be in the request."""
    scanty: bool = False
    """Little speaks for it: a text of the user, some words. Of a session that is not in memory there may be more."""
    by_content: bool = False
    """No id named it."""
    why: str = ""
    family: str = ""
    parent: str = ""
    """The session that a new side session belongs to."""
