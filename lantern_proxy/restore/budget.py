"""How large a block may be for a model: a share of its context window, never more than the config allows."""

from collections.abc import Iterable

from lantern_proxy.config import RestoreConfig
from lantern_proxy.restore.models import Count, counter, tables

CHARS_PER_TOKEN = 4.0
"""For English and code; in wide scripts (Chinese, Japanese, Korean) each character is a token."""
LEAST_OF_IT = 0.4
"""Text with many symbols and digits has about this share of CHARS_PER_TOKEN, and hardly ever less."""
SAMPLE_CHARS, LEAST_SAMPLE_CHARS = 2_000, 200
"""Characters that are counted, and least length of a sample: "Hi!" has two tokens."""


def budget_chars(most_chars: int, restore: RestoreConfig, model: str, sample: str = "") -> int:
    """`most_chars`, or `restore.window_share` of the model's window in characters when that is less.

    model:  as the client names it. Its window is `restore.window_tokens` when set, else that of litellm's table, when
            litellm is installed; a model that nobody knows gets `most_chars`
    sample: some text of the conversation: how many characters a token of it has, counted by tiktoken where it matters

    Never waits: what is not read yet counts as unknown, and is read in the background. See warm().
    """
    window = restore.window_tokens or tables(wait=False).window(model)
    room = window * restore.window_share
    if not room:
        return most_chars
    if LEAST_OF_IT * room * chars_per_token(sample) >= most_chars:
        return most_chars
    return min(most_chars, int(room * chars_per_token(sample, counter(model, wait=False))))


def chars_per_token(sample: str, count: Count | None = None) -> float:
    """Counted by `count` if possible; else estimated as about 4, and 1 for text of wide characters only."""
    text = sample[-SAMPLE_CHARS:]
    if not text:
        return CHARS_PER_TOKEN
    if count is not None and len(text) >= LEAST_SAMPLE_CHARS:
        return len(text) / max(1, count(text))
    wide = sum("\u2e80" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7af" for c in text)
    return len(text) / (wide + (len(text) - wide) / CHARS_PER_TOKEN)


def sample_of(latest_first: Iterable[str]) -> str:
    """Enough of a conversation's texts to be a sample."""
    sample = ""
    for text in latest_first:
        sample = text[-SAMPLE_CHARS:] + sample
        if len(sample) >= SAMPLE_CHARS:
            break
    return sample


def warm() -> None:
    """Read the table in the background, before a request asks for it."""
    tables(wait=False)
