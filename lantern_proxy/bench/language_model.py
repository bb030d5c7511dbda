"""The language model of a bench: any OpenAI-compatible server. Answers are cached in a file, so a run can be resumed.

with Model(url, name, key, Answers(path), most_calls=500) as model:
    model("system", "user")     # from the file when the same was asked before
    model.usage                 # calls, cache hits, tokens, dollars
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

import click
import httpx

from lantern_proxy.config import default_cache_dir
from lantern_proxy.restore.models import Price, counter, tables
from lantern_proxy.wire import completion

MAX_TRIES = 4
WAIT_S, MOST_WAIT_S = 1.0, 60.0
CHARS_PER_TOKEN = 4
MOST_TOKENS = 2_000
"""Of one answer: small models may repeat themselves endlessly."""
_RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 529})


class NoAnswerError(RuntimeError):
    """The model gave no answer; the answers so far are in the file."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls to one model. usd: None if its price is unknown; cached answers cost nothing."""

    calls: int = 0
    kept: int = 0
    tokens_read: int = 0
    tokens_written: int = 0
    usd: float | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "from_cache": self.kept,
            "tokens": {"read": self.tokens_read, "written": self.tokens_written},
            "usd": None if self.usd is None else round(self.usd, 6),
        }


class Answers:
    """Answers in a file, one JSON object per line, written as they arrive, so that nothing paid for is lost.
    Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._known: dict[str, str] = {}
        written = path.read_bytes() if path.is_file() else b""
        self._before = "" if written.endswith(b"\n") or not written else "\n"
        """Ends a line that a killed run left incomplete."""
        for line in written.splitlines():
            try:
                row = json.loads(line)
                self._known[row["key"]] = row["answer"]
            except (ValueError, KeyError, TypeError):
                continue  # half a line

    def get(self, key: str) -> str | None:
        with self._lock:
            return self._known.get(key)

    def put(self, key: str, answer: str, model: str) -> None:
        with self._lock:
            self._known[key] = answer
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(self._before + json.dumps({"key": key, "model": model, "answer": answer}) + "\n")
            self._before = ""


@dataclass(eq=False)
class Model:
    """One model of one server. Thread-safe; close it."""

    url: str
    """Base URL, /v1 included."""
    name: str
    key: str
    answers: Answers
    most_calls: int
    """NoAnswerError beyond this many calls: limits the costs of a run."""
    timeout_s: float = 600.0
    """A local model reads a long history for minutes."""
    sleep: Callable[[float], None] = time.sleep
    usage: Usage = field(default_factory=Usage, init=False)
    _optional: dict[str, Any] = field(default_factory=lambda: {"temperature": 0, "max_tokens": MOST_TOKENS}, init=False)
    """Optional parameters of the call; one that the server refused is no longer sent."""
    _lock: Lock = field(default_factory=Lock, init=False)
    _asking: dict[str, Lock] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._client = httpx.Client(timeout=self.timeout_s, follow_redirects=False)
        self._price: Price | None = tables(wait=True).price(self.name)
        if self._price is not None:
            self.usage = replace(self.usage, usd=0.0)

    def __call__(self, system: str, user: str) -> str:
        """The model's answer. Raises NoAnswerError."""
        key = self._key(system, user)
        with self._lock:
            asking = self._asking.setdefault(key, Lock())
        with asking:  # who asks the same at the same time waits for the first one's answer
            kept = self.answers.get(key)
            if kept is None:
                return self._ask(key, system, user)
        with self._lock:
            self.usage = replace(self.usage, kept=self.usage.kept + 1)
        return kept

    def _ask(self, key: str, system: str, user: str) -> str:
        with self._lock:
            if self.usage.calls >= self.most_calls:
                raise NoAnswerError(
                    f"{self.most_calls} calls to {self.name} are made; run it again with a larger --most-calls to go "
                    f"on from here (answers are kept in {self.answers.path})"
                )
            self.usage = replace(self.usage, calls=self.usage.calls + 1)
        found = self._post(completion.request_body(self.name, system, user, **self._optional))
        try:
            answer = completion.text(found)
        except ValueError as error:
            raise NoAnswerError(f"{self.url}: {error}") from None
        self._count(found.get("usage"), system + user, answer)
        self.answers.put(key, answer, self.name)
        return answer

    def _key(self, system: str, user: str) -> str:
        whole = "\0".join((self.url, self.name, system, user))
        return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        """The parsed answer; retries when the server is busy or fails."""
        wait_s, problem = WAIT_S, ""
        for tried in range(MAX_TRIES):
            if tried:
                self.sleep(wait_s)
                wait_s *= 2
            try:
                headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
                got = self._client.post(f"{self.url.rstrip('/')}/chat/completions", headers=headers, json=body)
                if got.is_success and isinstance(parsed := got.json(), dict):
                    return parsed
                problem = f"status {got.status_code}: {got.text[:200]}"
                wait_s = max(wait_s, _seconds(got.headers.get("retry-after", "")))
                if got.status_code in completion.REFUSED and (less := completion.without_refused(body, got.content)):
                    self._optional = completion.optional_of(less)
                    return self._post(less)
                if got.status_code not in _RETRIED:
                    break
            except (httpx.HTTPError, ValueError) as error:
                problem = f"{type(error).__name__} {error}".strip()
        raise NoAnswerError(f"{self.url} gave no answer of {self.name} ({problem}); run it again to go on from here")

    def _count(self, usage: Any, prompt: str, answer: str) -> None:
        """Tokens as counted by the server, else by tiktoken, else estimated from characters."""
        usage = usage if isinstance(usage, dict) else {}
        read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
        read = read if isinstance(read, int) else self._tokens(prompt)
        written = written if isinstance(written, int) else self._tokens(answer)
        with self._lock:
            now = self.usage
            usd = None if self._price is None or now.usd is None else now.usd + self._price.of(read, written)
            self.usage = replace(
                now, tokens_read=now.tokens_read + read, tokens_written=now.tokens_written + written, usd=usd
            )

    def _tokens(self, text: str) -> int:
        count = counter(self.name, wait=True)
        return count(text) if count else -(-len(text) // CHARS_PER_TOKEN)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _seconds(retry_after: str) -> float:
    try:
        return min(MOST_WAIT_S, max(0.0, float(retry_after)))
    except ValueError:
        return 0.0


def options(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options that name a model; the command gets it as `model`, None if none is named and none is required."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathered(
            model: str, model_url: str, model_key_env: str, most_calls: int, answers: Path | None, **own: Any
        ) -> Any:
            if bool(model) != bool(model_url) or (required and not model):
                raise click.UsageError("a model has a name and a server: give --model NAME --model-url http://host/v1")
            path = answers or default_cache_dir(os.environ) / "bench-answers.jsonl"
            key = os.environ.get(model_key_env, "")
            named = Model(model_url, model, key, Answers(path), most_calls) if model else None
            return command(model=named, **own)

        for option in _OPTIONS:
            gathered = option(gathered)
        return gathered

    return decorate


_OPTIONS = (
    click.option(
        "--answers", type=click.Path(path_type=Path, dir_okay=False),
        help="File of the model's answers; what stands there is not asked again. Default: in the cache folder.",
    ),
    click.option(
        "--most-calls", default=1_000, show_default=True, type=click.IntRange(1),
        help="Most calls to a model; then it stops, and goes on from there the next time.",
    ),
    click.option(
        "--model-key-env", default="OPENAI_API_KEY", show_default=True,
        help="Environment variable that holds the key; unset: none is sent.",
    ),
    click.option("--model-url", default="", help="OpenAI-compatible server, /v1 included."),
    click.option("--model", default="", help="Model that is asked. It gets texts of --data."),
)  # fmt: skip
