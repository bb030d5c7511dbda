"""Draw a client by its number. The same number draws the same client."""

import random
from dataclasses import replace

from possible.client import Client
from possible.compactions import HARMLESS, SILENT, SUMMARISED, VIEWS
from possible.incidents import INCIDENTS, MORE, OF_LATE
from possible.talk import LANGUAGES
from possible.wire import Dress

IDS = {
    "chat": ("none", "none", "header", "key", "metadata"),
    "responses": ("none", "header", "key", "chain"),
    "messages": ("none", "none", "header", "metadata"),
}
"""How it names its conversations. key: prompt_cache_key; chain: previous_response_id, and only what is new is sent."""
SYSTEMS = ("stable", "stable", "stable", "dated", "git", "in_user", "absent")
STAMPS = ("none",) * 7 + ("each", "last", "relative")
"""What it writes around what its user says: a time, its open files, how many minutes ago."""
PREAMBLES = ("none", "none", "words", "client", "tags", "heading")
SUMMARISING = (
    "unseen", "unseen", "unseen", "instruction", "instruction_short", "instruction_without_tools", "instruction_part",
    "own_system_transcript", "own_system_history", "transcript", "tool", "halves",
)  # fmt: skip
"""How it gets its summary. unseen: from elsewhere, so that the proxy never saw it generated."""


def numbers(text: str) -> range:
    """Which ones: "A:B" is from A to before B, "A" is A alone."""
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def draw(number: int, *, more: int = 0) -> Client:
    """The client of that number. more: it may also do what none did when it got its number; 2: and what came last"""
    rng = random.Random(number)
    pick = rng.choice
    api = pick(("chat", "chat", "responses", "messages"))
    ids = pick(IDS[api])
    style = pick([*SUMMARISED, *SUMMARISED, *SILENT, *VIEWS, *HARMLESS, "none"])
    if ids == "chain" and style not in SUMMARISED:
        ids = "none"  # what the server keeps, the client cannot shorten in silence
    language = pick([*LANGUAGES])
    needs_tools = style.startswith(("cleared", "pairs", "view_cleared", "window_mid"))
    client = Client(
        number=number, api=api, ids=ids, style=style, language=language, stream=rng.random() < 0.4,
        system=pick(SYSTEMS), tools=needs_tools or rng.random() < 0.5, stamps=pick(STAMPS),
        summary_language=language if rng.random() < 0.8 else pick([*LANGUAGES]),
        dress=Dress(
            content=pick(("string", "string", "parts", "both")), shuffled=rng.random() < 0.15,
            cache_control=api == "messages" and rng.random() < 0.6, new_ids=rng.random() < 0.1,
            items=pick(("plain", "ids", "references")) if api == "responses" else "plain",
        ),
        thinks=style == "thoughts_left_out" or rng.random() < 0.15,
        images=style.startswith("images") or rng.random() < 0.1,
        summarising=pick(SUMMARISING), preamble=pick(PREAMBLES), tail=pick((1, 2, 3, 4, 6)),
        turns=pick((3, 5, 8, 8, 12, 12, 20, 40)), rounds=pick((1, 1, 2, 3, 5)),
        incidents=tuple(rng.sample([*INCIDENTS], pick((0, 0, 1, 1, 2, 3)))),
        neighbours=pick((0, 0, 0, 1, 2)), same_opening=rng.random() < 0.4, restarts=rng.random() < 0.2,
        terse=rng.random() < 0.2,
    )  # fmt: skip
    client = _with_more(client) if more else client
    return _of_late(client) if more > 1 else client


def _with_more(client: Client) -> Client:
    rng = random.Random(f"{client.number} more")
    at_once = client.tools and rng.random() < 0.6
    return replace(
        client, at_once=at_once, dress=replace(client.dress, new_order=at_once and rng.random() < 0.3),
        incidents=(*client.incidents, *rng.sample([*MORE], rng.choice((0, 1, 1, 2)))),
    )  # fmt: skip


def _of_late(client: Client) -> Client:
    rng = random.Random(f"{client.number} of late")
    ways = [*SUMMARISED, *SILENT]
    also = rng.choice(ways) if client.style in ways and client.ids != "chain" and rng.random() < 0.4 else ""
    return replace(
        client, also=also, rounds=max(client.rounds, 2 if also else 1), thinks_aloud=rng.random() < 0.25,
        tools=client.tools or also.startswith(("cleared", "pairs", "window_mid")),
        images=client.images or also.startswith("images"),
        incidents=(*client.incidents, *rng.sample([*OF_LATE], rng.choice((0, 1, 2, 2)))),
    )  # fmt: skip
