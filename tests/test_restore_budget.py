"""A block takes a share of the model's window, and never more than the config allows."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from lantern_proxy.config import RestoreConfig
from lantern_proxy.restore import models
from lantern_proxy.restore.budget import SAMPLE_CHARS, budget_chars, chars_per_token, sample_of
from lantern_proxy.restore.models import counter, tables

HEX = " ".join(f"{n * 7919:08x}-{n * 104729:012x}" for n in range(60))


def test_a_model_with_a_small_window_gets_a_smaller_block():
    small = RestoreConfig(window_tokens=8_192)
    assert budget_chars(6_000, small, "any") == int(8_192 * 0.03 * 4)
    assert budget_chars(6_000, RestoreConfig(window_tokens=200_000), "any") == 6_000


def test_the_configured_characters_are_never_exceeded():
    assert budget_chars(2_000, RestoreConfig(window_tokens=10_000_000, window_share=1.0), "any") == 2_000


def test_without_a_known_window_the_configured_characters_hold():
    assert budget_chars(6_000, RestoreConfig(), "nobody-knows-this-model") == 6_000
    assert budget_chars(6_000, RestoreConfig(window_tokens=8_192, window_share=0.0), "any") == 6_000


def test_wide_characters_are_a_token_each():
    assert chars_per_token("plain English words") == pytest.approx(4.0)
    assert chars_per_token("\u6f22\u5b57" * 20) == pytest.approx(1.0)
    restore = RestoreConfig(window_tokens=8_192)
    assert budget_chars(6_000, restore, "any", "\u6f22\u5b57" * 20) < budget_chars(6_000, restore, "any", "words")


def test_windows_come_from_the_table_of_litellm_without_importing_it():
    if find_spec("litellm") is None:
        pytest.skip("the extra `litellm` is not installed")
    window_of = tables(wait=True).window
    assert window_of("gpt-4") == 8_192
    assert window_of("openai/gpt-4") == 8_192
    assert window_of("gpt-4o-2024-08-06") == 128_000
    assert window_of("nobody-knows-this-model") == 0
    assert budget_chars(6_000, RestoreConfig(), "gpt-4") == 983


def test_tokens_are_counted_where_text_is_dense():
    if find_spec("litellm") is None or find_spec("tiktoken") is None:
        pytest.skip("the extra `litellm` is not installed")
    count = counter("gpt-4", wait=True)
    assert count("plain words of English") == 4
    assert chars_per_token(HEX, count) < 2.5
    small = RestoreConfig(window_tokens=16_000)
    assert budget_chars(6_000, small, "gpt-4", HEX) == int(16_000 * 0.03 * chars_per_token(HEX, count))
    assert budget_chars(6_000, small, "gpt-4", HEX) < 480 * chars_per_token(HEX)


def test_what_clients_write_around_a_model_makes_no_counter_of_its_own():
    for n in range(200):
        counter(f"model-{n}", wait=False)
    assert len(models._counters._made) <= 64
    assert counter("gpt-4", wait=True) is counter("any/gpt-4:free", wait=True)


def test_a_greeting_is_no_sample():
    count = counter("gpt-4", wait=True)
    assert chars_per_token("Hi!", count) == pytest.approx(4.0)
    assert sample_of(["Hi!", "b" * 10, "c" * 5_000, "never read"]).endswith("c" * 100 + "b" * 10 + "Hi!")
    assert len(sample_of(["x"] * 10 + ["y" * 9_000])) == SAMPLE_CHARS + 10


def test_a_request_never_waits_for_a_table():
    """In a process of its own, where nothing is read yet."""
    code = (
        "import sys, time\n"
        "from lantern_proxy.config import RestoreConfig\n"
        "from lantern_proxy.restore import models\n"
        "from lantern_proxy.restore.budget import budget_chars\n"
        "read, models._read_tables = models._read_tables, lambda: time.sleep(0.2) or read()\n"
        "print(budget_chars(6000, RestoreConfig(), 'gpt-4'), 'tiktoken' in sys.modules, 'litellm' in sys.modules)\n"
        "models.tables(wait=True)\n"
        "print(budget_chars(6000, RestoreConfig(), 'gpt-4'))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert told[:3] == ["6000", "False", "False"]
    assert told[3] == ("6000" if find_spec("litellm") is None else "983")


def test_prices_come_from_the_same_table():
    if find_spec("litellm") is None:
        pytest.skip("the extra `litellm` is not installed")
    price = tables(wait=True).price("openai/gpt-4")
    assert price.of(1_000, 0) == pytest.approx(0.03)
    assert price.of(0, 1_000) == pytest.approx(0.06)
    assert tables(wait=True).price("nobody-knows-this-model") is None
