"""What is redacted, what is left alone, and what reaches the archive. Keys in here are made up, and cut in two."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from scripted import Upstream, ask, body, config_for, http, lantern_headers, serving, wait_for

from lantern_proxy import Lantern, logs
from lantern_proxy.archive import Archive
from lantern_proxy.config import ArchiveConfig, Config, EmbedConfig
from lantern_proxy.config.check import ConfigError
from lantern_proxy.config.safety import PrivacyConfig
from lantern_proxy.redact import Cleaner, Redactor
from lantern_proxy.turn import Filed
from lantern_proxy.turn_blocks import without_blocks
from lantern_proxy.wire.messages import read_message

A40 = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b"
SECRETS = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + A40[:36],
    "github pat": "github_pat_" + A40,
    "gitlab": "glpat-" + A40[:20],
    "openai": "sk-proj-" + A40,
    "anthropic": "sk-ant-api03-" + A40,
    "google": "AIza" + A40[:35],
    "slack": "xoxb-" + "123456789012-123456789012-" + "abcdefghijkl",
    "stripe": "sk_live_" + A40[:24],
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTYifQ." + "c2lnbmF0dXJlLWhlcmU",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\n" + A40 + "\n-----END RSA PRIVATE KEY-----",
    "basic auth": "https://me:" + "hunter2pass@db.example/x",
    "lantern": "lk_" + A40 + "abc",
}
CARDS = ["4111 1111 1111 1111", "4111-1111-1111-1111", "5555555555554444", "378282246310005", "6011111111111117"]
NOT_CARDS = [
    "4111 1111 1111 1112", "1234567890123456", "order 4111111111111", "2026-11-22 01:38:59 1763775539123",
    "0x4111111111111111f", "3.4111111111111111", "id 9411111111111111111",
]  # fmt: skip
ORDINARY = [
    "the port is 9443, commit 3f2a9c1e5b7d8f60a1b2c3d4e5f60718293a4b5c, uuid 8d7f0a52-1f36-4c0e-9a51-2b7a1f0e6c11",
    "password: see the vault", "sk-learn and sk-1", "src/skeleton.py", "SK is Slovakia", "git@github",
    "curl https://api.example/v1/users/12", "AKIA is a prefix", "eyJust a name.like.this",
]  # fmt: skip


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_replaced_wherever_it_stands(kind):
    redactor, secret = Redactor(("secrets",), {}), SECRETS[kind]
    core = "hunter2pass" if kind == "basic auth" else secret
    for text in (secret, f"it is {secret}, ok?", f'{{"key": "{secret}"}}', f"A={secret}\nB=1"):
        assert core not in redactor.text(text)
        assert "[redacted:" in redactor.text(text)
    assert sum(redactor.found.values()) >= 4


@pytest.mark.parametrize("card", CARDS)
def test_a_card_is_replaced(card):
    redactor = Redactor(("cards",), {})
    assert redactor.text(f"pay with {card}.") == "pay with [redacted:card]."
    assert redactor.found == {"card": 1}


@pytest.mark.parametrize("text", NOT_CARDS)
def test_a_number_that_is_no_card_stays(text):
    assert Redactor(("cards",), {}).text(text) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text):
    assert Redactor(("secrets", "cards", "emails"), {}).text(text) == text


@pytest.mark.parametrize(
    ("opening", "unit"),
    [
        *(("", unit) for unit in ("/", "eyJ-", "eyJaaaaaaaa-", "sk-", "//registry.example/", ":_authToken=")),
        *((name, " ") for name in (" cloudant_key", " ibm_iam_key", " cos_secret_key", " softlayer_key")),
    ],
)
def test_a_long_line_is_searched_in_linear_time(opening, unit):
    redactor = Redactor(("secrets",), {})

    def seconds(chars: int) -> float:
        began = time.process_time()
        redactor.text(opening + unit * (chars // len(unit)))
        return time.process_time() - began

    seconds(1_000)
    assert min(seconds(160_000) for _ in range(3)) < 40 * max(0.002, min(seconds(10_000) for _ in range(3)))


@pytest.mark.parametrize("sign", ["=", " = ", ":", ": ", " := ", " => ", "::", " ", "    ", "  ::  "])
def test_a_key_is_found_whatever_stands_between_its_name_and_itself(sign):
    assert (
        Redactor(("secrets",), {}).text(f"my softlayer_key{sign}{'a1' * 32}") == "my [redacted:softlayer-credentials]"
    )


def test_emails_and_own_patterns_are_replaced():
    redactor = Redactor(("emails",), {"employee": "E-[0-9]{6}"})
    assert redactor.text("ask jo.doe+x@mail.example.com, E-123456") == "ask [redacted:email], [redacted:employee]"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"patterns": {"x": "("}}, "patterns.x is no regular expression"),
        ({"patterns": {"x": "a*"}}, "matches empty text"),
        ({"redact": ("passwords",)}, "use"),
        ({"keep_days": -1}, "keep_days is -1"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        PrivacyConfig(**wrong)


@pytest.mark.parametrize(
    "content",
    [
        '[{"type":"tool_use","id":"t","name":"pay","input":{"card":4111111111111111}}]',
        '[{"type":"tool_use","id":"t","name":"pay","input":{"cards":[1,4111111111111111]}}]',
        '[{"type":"tool_use","id":"t","name":"pay","input":{"cards":[4111111111111111,4111111111111111]}}]',
        '"4111 1111 1111 1111","content":"thanks"',
    ],
)
def test_numbers_and_what_stands_twice_are_replaced_in_a_message_as_it_came(content):
    message = read_message(f'{{"role":"assistant","content":{content}}}'.encode())
    kept = Redactor(("cards",), {}).filed(Filed(message=message, key="k", position=0, turn=1, created_at=0.0)).message
    assert b"1111" not in kept.raw
    assert b"[redacted:card]" in kept.raw


def raw_of(folder: Path) -> bytes:
    return b"".join(part.read_bytes() for part in folder.iterdir() if part.is_file())


@pytest.mark.parametrize("shape", ["text", "parts", "call", "result", "answer"])
def test_what_was_redacted_is_nowhere_in_the_files_and_went_upstream_as_it_was(tmp_path, shape):
    card, key = CARDS[0], SECRETS["github"]
    said = f"use card {card} and key {key} please"
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": json.dumps({"with": said})}}
    shapes = {
        "text": [{"role": "user", "content": said}],
        "parts": [{"role": "user", "content": [{"type": "text", "text": said}]}],
        "call": [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]}],
        "result": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call | {"function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": said},
        ],
        "answer": [{"role": "user", "content": said}],
    }
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, privacy=PrivacyConfig(redact=("secrets", "cards")))
        with serving(config) as url:
            answer = ask(url, body(*shapes[shape]))
            assert card in upstream.got[-1].body.decode()
            if shape in ("text", "answer"):
                assert card in answer.text
            metrics = http.get(f"{url}/lantern/metrics").text
            assert 'lantern_redacted_total{kind="card"}' in metrics
    raw = raw_of(tmp_path)
    for secret in (card, key):
        assert secret.encode() not in raw
    assert b"[redacted:card]" in raw


def test_a_redacted_message_that_comes_again_is_known(tmp_path):
    said = f"the card is {CARDS[0]}"
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, privacy=PrivacyConfig(redact=("cards",)))
        with serving(config) as url:
            first = lantern_headers(ask(url, body(said)))
        with serving(config) as url:
            second = lantern_headers(ask(url, body(said, f"I heard: {said}", "and now?")))
        assert second["session"] == first["session"]
    with Archive(config.archive.path) as archive:
        (tenant,) = archive.tenants()
        assert tenant.messages == 4


def test_the_library_redacts_too(tmp_path):
    config = Config(
        archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"),
        privacy=PrivacyConfig(redact=("cards",), skip_roles=("tool",)),
    )  # fmt: skip
    with Lantern(config) as lantern:
        lantern.archive("s", [{"role": "user", "content": f"card {CARDS[1]}"}, {"role": "assistant", "content": "ok"}])
    assert CARDS[1].encode() not in raw_of(tmp_path)


@pytest.mark.parametrize("most_chars", [80, 2_000])
@pytest.mark.parametrize("secret", [SECRETS["github"], SECRETS["jwt"], CARDS[0]])
def test_of_a_secret_that_a_cut_goes_through_nothing_is_kept(most_chars, secret):
    cleaner = Cleaner(("secrets", "cards"), {}, ())
    for kept in range(4, len(secret)):
        said = cleaner.said("x" * (most_chars - kept - 1) + f" {secret} is it", most_chars)
        assert len(said) <= most_chars
        assert secret[:4] not in said


def test_what_a_cut_left_of_a_longer_beginning_is_not_kept_either():
    """Redacting makes a text shorter: what was at the end of what was looked at is then within what is kept."""
    cleaner, key = Cleaner(("secrets",), {}, ()), SECRETS["github"]
    for more in range(len(key) + 2):
        said = cleaner.said(f"{key} " * 200 + "x" * more + f" {key}", 2_000)
        assert "ghp" not in said


def test_titles_questions_and_long_messages_are_redacted_before_they_are_cut(tmp_path):
    key, most_chars = SECRETS["github"], 1_000
    fronts = {"title": "x" * 60, "question": "w " * 990, "message": "v " * 492}
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, privacy=PrivacyConfig(redact=("secrets",)))
        config = replace(config, archive=replace(config.archive, max_message_chars=most_chars))
        with serving(config) as url:
            for what, front in fronts.items():
                ask(url, body(f"{front} {key} is what I use, thanks"), x_lantern_session=what)
    raw = raw_of(tmp_path)
    assert b"x" * 60 in raw
    assert b"v " * 400 in raw
    assert b"ghp" not in raw


def test_the_title_of_an_import_is_redacted_before_it_is_cut(tmp_path):
    file, key = tmp_path / "log.jsonl", SECRETS["github"]
    said = [{"role": "user", "content": f"{'x' * 60} {key} is what I use"}, {"role": "assistant", "content": "ok"}]
    rows = [{"id": "a", "messages": said}, {"id": "b", "title": f"{'y' * 60} {key}", "messages": said}]
    file.write_text("\n".join(map(json.dumps, rows)))
    config = Config(
        archive=ArchiveConfig(path=tmp_path / "a.db"), embed=EmbedConfig(enabled="off"),
        privacy=PrivacyConfig(redact=("secrets",)),
    )  # fmt: skip
    with Lantern(config) as lantern:
        for log in logs.read(file):
            lantern.archive(log.session, log.messages, times=log.times, title=log.title)
    file.unlink()
    raw = raw_of(tmp_path)
    assert b"x" * 60 in raw
    assert b"ghp" not in raw


# rules


@pytest.mark.parametrize("front", ["", f"<system-reminder>\n{'Use tabs. ' * 300}\n</system-reminder>\n"])
def test_of_a_request_that_asks_for_it_no_text_is_archived_now_or_later(tmp_path, front):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path)
        with serving(config) as url:
            ask(url, body("first, OPEN-1"))
            asked = f"{front}between us: the code is HIDDEN-77 and no other"
            history = ("first, OPEN-1", "I heard: first, OPEN-1", asked)
            hidden = lantern_headers(ask(url, body(*history), x_lantern_archive="off"))
            assert lantern_headers(ask(url, body(*history)))["event"] == "retry"
            assert "HIDDEN-77" in upstream.got[-1].body.decode()
            assert upstream.got[-1].header("x-lantern-archive") is None
            more = (*history, f"I heard: {history[2]}", "last, OPEN-2")
            ask(url, body(*more))
        with serving(config) as url:  # nothing is remembered by now: all of it looks new
            after = lantern_headers(ask(url, body(*more, "I heard: last, OPEN-2", "very last, OPEN-3")))
            assert after["session"] == hidden["session"]
            assert "HIDDEN-77" not in http.get(f"{url}/lantern/api/sessions/{after['session']}").text
        raw = raw_of(tmp_path)
        assert b"HIDDEN-77" not in raw
        assert all(text in raw for text in (b"OPEN-1", b"OPEN-2", b"OPEN-3"))


@pytest.mark.parametrize(
    "rules",
    [
        {"skip_models": ("secret-*",)},
        {"skip_paths": ("*/chat/completions",)},
        {"skip_paths": ("/chat/completions",)},
        {"skip_roles": ("user", "assistant")},
    ],
)
def test_what_a_rule_leaves_out_is_not_archived(tmp_path, rules):
    with Upstream() as upstream:
        config = config_for(upstream, tmp_path, privacy=PrivacyConfig(**rules))
        with serving(config) as url:
            assert ask(url, body("HIDDEN-78", "I heard: HIDDEN-78", "more") | {"model": "secret-1"}).status_code == 200
            wait_for(lambda: http.get(f"{url}/lantern/health").json()["archive"]["waiting"] == 0)
    assert b"HIDDEN-78" not in raw_of(tmp_path)
    with Archive(config.archive.path) as archive:
        assert sum(tenant.messages for tenant in archive.tenants()) == 0
        assert sum(tenant.passages for tenant in archive.tenants()) == 0


BLOCK = '<restored_context from=\\"lantern\\">secret \\" \\n text</restored_context>'


def test_a_block_that_a_client_sends_back_is_not_archived(tmp_path):
    block = '<restored_context source="lantern">\n[user #1] the code is ECHO-55\n</restored_context>'
    with Upstream() as upstream, serving(config_for(upstream, tmp_path)) as url:
        first = lantern_headers(ask(url, body("my plan is OWN-56")))
        again = body("my plan is OWN-56", "I heard: my plan is OWN-56", f"what now?\n{block}\nOWN-57")
        assert lantern_headers(ask(url, again))["session"] == first["session"]
    raw = raw_of(tmp_path)
    assert b"OWN-56" in raw
    assert b"OWN-57" in raw
    assert b"ECHO-55" not in raw


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        (f'{{"content": "before {BLOCK} after"}}', '{"content": "before  after"}'),
        (f'{{"content": "{BLOCK}{BLOCK}"}}', '{"content": ""}'),
        ('{"content": "no block"}', '{"content": "no block"}'),
        ('{"content": "<restored_context never closed"}', '{"content": "<restored_context never closed"}'),
        (
            '{"a": "<restored_context", "b": "</restored_context>"}',
            '{"a": "<restored_context", "b": "</restored_context>"}',
        ),
        (
            '{"a": "<restored_context \\\\", "b": "</restored_context>"}',
            '{"a": "<restored_context \\\\", "b": "</restored_context>"}',
        ),
    ],
)
def test_a_block_is_cut_out_of_a_string_and_never_across_strings(raw, left):
    cut = without_blocks(raw.encode())
    assert cut == left.encode()
    json.loads(cut)
