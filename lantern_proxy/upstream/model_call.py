"""A call to the model that `rerank.model` names, from a worker thread: for LANTERN-Rerank, which is off by default.

ask = ModelCall(config.rerank)
ask("system", "user")      # the answer's text; RuntimeError if it is late, or the budget of calls is spent
"""

import os
import time
from collections import deque
from functools import cached_property
from threading import Lock
from typing import Any

import httpx

from lantern_proxy.config import RerankConfig
from lantern_proxy.wire import completion

_HOUR_S = 3_600.0


class ModelCall:
    """Calls `rerank.model` with its own timeout and its own budget of calls. Thread-safe; must be closed."""

    def __init__(self, config: RerankConfig) -> None:
        self._config = config
        self._called: deque[float] = deque()
        self._optional = {"temperature": 0, "max_tokens": 200}
        """Optional parameters of the call; one that the server refused is no longer sent."""
        self._lock = Lock()

    @cached_property
    def _client(self) -> httpx.Client:
        return httpx.Client(timeout=self._config.model_timeout_ms / 1_000, follow_redirects=False)

    def __call__(self, system: str, user: str) -> str:
        self._take()
        try:
            answer = self._post(completion.request_body(self._config.model, system, user, **self._optional))
            answer.raise_for_status()
            return completion.text(answer.json())
        except (httpx.HTTPError, ValueError, ImportError) as error:
            raise RuntimeError(f"{self._config.model} gave no order: {type(error).__name__}") from None

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        key = os.environ.get(self._config.model_key_env, "")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        answer = self._client.post(f"{self._config.model_url.rstrip('/')}/chat/completions", headers=headers, json=body)
        if answer.status_code in completion.REFUSED and (less := completion.without_refused(body, answer.content)):
            self._optional = completion.optional_of(less)
            return self._post(less)
        return answer

    def _take(self) -> None:
        """Count the call; RuntimeError if the hour's budget is spent."""
        now = time.monotonic()
        with self._lock:
            while self._called and now - self._called[0] > _HOUR_S:
                self._called.popleft()
            if len(self._called) >= self._config.model_calls_per_hour:
                raise RuntimeError(f"rerank.model_calls_per_hour {self._config.model_calls_per_hour} are spent")
            self._called.append(now)

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.close()
