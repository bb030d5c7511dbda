"""Settings: the defaults, the example file, and what a wrong setting is told."""

import ast
import hashlib
import re
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from lantern_proxy import config as module
from lantern_proxy.config import ArchiveConfig, Config, ConfigError, RestoreConfig, default_cache_dir, load

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "config.example.yaml"


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "lantern.yaml"
        path.write_text(text)
        return path

    return write


def refused(path: Path, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {})
    return str(caught.value)


def keys(section: object, prefix: str = "") -> list[str]:
    found = []
    for each in fields(section):
        value = getattr(section, each.name)
        found += keys(value, f"{prefix}{each.name}.") if is_dataclass(value) else [prefix + each.name]
    return found


def test_without_a_file_the_defaults_serve_on_loopback():
    config = load(None, {})
    assert config == replace(Config(), embed=replace(Config().embed, cache_dir=default_cache_dir({})))
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8484)


def test_the_example_file_says_exactly_the_defaults():
    assert load(EXAMPLE, {}) == load(None, {})


def test_the_example_file_names_and_explains_every_key():
    lines = EXAMPLE.read_text().splitlines()
    section, explained = "", set()
    for above, line in zip(["", *lines], lines, strict=False):
        if match := re.match(r"(\w+):", line):
            section = match[1]
            explained |= {section} if "#" in line or above.startswith("#") else set()
        elif (match := re.match(r"  (\w+):", line)) and above.strip().startswith("#"):
            explained.add(f"{section}.{match[1]}")
    assert set(keys(Config())) <= explained


def test_every_field_has_its_reason_under_it():
    parts = sorted(Path(module.__file__).parent.glob("*.py"))
    assert len(parts) > 1
    for node in (node for path in parts for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config") and node.name != "Config":
            for statement, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(statement, ast.AnnAssign):
                    assert isinstance(after, ast.Expr), f"{node.name}.{ast.unparse(statement.target)} has no docstring"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("restore: {budget_char: 5}", "restore.budget_char is not a setting; did you mean budget_chars?"),
        ("restor: {}", "restor is not a setting; did you mean restore?"),
        ("restore: {budget_chars: -1}", "restore.budget_chars is -1; use 0 to 1,000,000 characters"),
        (
            "restore: {budget_chars: many}",
            "restore.budget_chars is 'many'; use a whole number, 0 to 1,000,000 characters",
        ),
        ("restore: {budget_chars: true}", "restore.budget_chars is True; use a whole number"),
        (
            "restore: {deadline_ms: 150ms}",
            "restore.deadline_ms is '150ms'; use a whole number, 1 to 60,000 milliseconds",
        ),
        ("restore: {budget_chars: 1.5}", "restore.budget_chars is 1.5; use a whole number"),
        ("restore: {admission: .nan}", "restore.admission is nan; use a number"),
        ("restore: {recipe: defaul}", "restore.recipe is 'defaul'; use default"),
        ("restore: {scope: galaxy}", "restore.scope is 'galaxy'; use session or project or tenant"),
        ("restore: {weights: {bm52: 1}}", "restore.weights.bm52 is not known; did you mean bm25?"),
        ("restore: {weights: {bm25: -1}}", "restore.weights.bm25 is -1.0; use 0 to 100"),
        ("restore: {weights: 3}", "restore.weights is 3; use `name: value` pairs, or {} for none"),
        ("restore: 7", "restore is 7; use settings: enabled, "),
        ("server: {port: 70000}", "server.port is 70000; use 0 to 65,535"),
        ("server: {host: ''}", "server.host is empty; use a host name"),
        (
            "server: {host: 'localhost:9000'}",
            "server.host is 'localhost:9000'; use a host name or address without scheme",
        ),
        (
            "server: {host: '[::1]'}",
            "server.host is '[::1]'; use a host name or address without scheme, port and brackets: 127.0.0.1 or ::1",
        ),
        ("server: {host: '[::]:80'}", "server.host is '[::]:80'; use a host name or address without scheme"),
        ("server: {host: 'http://[::1]'}", "server.host is 'http://[::1]'; use a host name or address without scheme"),
        ("archive: {path: 5}", "archive.path is 5; use a path"),
        ("upstream: {openai: api.openai.com}", "upstream.openai is 'api.openai.com'; use http://host/path"),
        ("upstream: {openai: 'https://'}", "upstream.openai is 'https://'; use http://host/path"),
        ("upstream: {openai: 'http://a:b/v1'}", "upstream.openai is 'http://a:b/v1'; use http://host/path"),
        ("upstream: {openai: 'http://[/v1'}", "upstream.openai is 'http://[/v1'; use http://host/path"),
        (
            "upstream: {openai: 'http://h/v1?a=b'}",
            "upstream.openai is 'http://h/v1?a=b'; use http://h/v1 (requests bring",
        ),
        (
            "upstream: {openai: 'http://h/o/chat/completions?v=1'}",
            "upstream.openai is 'http://h/o/chat/completions?v=1'; use http://h/o (",
        ),
        ("upstream: {openai: 'http://h/v1#a'}", "upstream.openai is 'http://h/v1#a'; use http://h/v1 (requests bring"),
        (
            "upstream: {openai: 'https://h/v1/chat/completions'}",
            "upstream.openai is 'https://h/v1/chat/completions'; use https://h/v1 (requests bring the rest themselves)",
        ),
        (
            "upstream: {anthropic: 'https://h/v1/messages/'}",
            "upstream.anthropic is 'https://h/v1/messages/'; use https://h/v1 (",
        ),
        (
            "upstream: {routes: [{url: 'https://h/responses'}]}",
            "upstream.routes[0].url is 'https://h/responses'; use https://h (",
        ),
        ("upstream: {http2: 1}", "upstream.http2 is 1; use true or false"),
        ("reinforce: {floor: 0.3}", "reinforce.minimum is 0.1, below reinforce.floor 0.3"),
        ("tenants: {t_x: {}}", "tenants.t_x is 't_x'; use letters"),
        ("tenants: {a: {keys_sha256: abc}}", "tenants.a.keys_sha256 is 'abc'; use a list"),
        ("tenants: {a: {keys: []}}", "tenants.a.keys is not a setting; did you mean keys_sha256?"),
        ("log: {level: loud}", "log.level is 'loud'; use debug or info or warning or error"),
        ("- a\n- b", "holds a list; use sections"),
        ("hello", "holds 'hello'; use sections"),
        ("restore: {a: [}", "is not YAML: "),
        ("? {restore: 1}\n: 2", "is not YAML: found unhashable key (line 1, column 3)"),
        ("log:\n  level: [info", "is not YAML: expected ',' or ']', but got '<stream end>' (line 2, column 15)"),
        ("log:\n\tlevel: info", "is not YAML: found character '\\t' that cannot start any token (line 2, "),
        ("server: {}\nserver: {}", "line 2: server is set twice; keep one of them"),
        ("server:\n  port: 1\n  port: 2", "line 3: port is set twice; keep one of them"),
    ],
)
def test_a_wrong_setting_is_refused_with_file_place_value_and_way_out(write, text, told):
    path = write(text)
    assert refused(path).startswith(f"{path}: {told}")


def test_a_key_pasted_where_its_hash_belongs_is_not_repeated_in_the_error(write):
    told = refused(write("tenants: {team: {keys_sha256: [sk-my-secret-key]}}"))
    assert "tenants.team.keys_sha256[0]" in told
    assert "sk-my-secret-key" not in told


def test_one_key_cannot_belong_to_two_tenants(write):
    digest = hashlib.sha256(b"sk-1").hexdigest()
    told = refused(write(f"tenants: {{a: {{keys_sha256: [{digest}]}}, b: {{keys_sha256: [{digest}]}}}}"))
    assert "tenants.b lists a key that is a's" in told


def test_a_password_in_an_upstream_url_is_refused_and_not_repeated(write):
    told = refused(write("upstream: {openai: 'https://me:hunter2@host/v1'}"))
    assert "upstream.openai has a password in it" in told
    assert "hunter2" not in told


def test_a_missing_or_unreadable_file_is_named(tmp_path):
    assert "none.yaml: no such file" in refused(tmp_path / "none.yaml")
    assert "cannot be read" in refused(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"log: {level: \xff}")
    assert "cannot be read" in refused(tmp_path / "latin.yaml")


def test_the_environment_overrides_the_file(write):
    environ = {
        "LANTERN_PORT": "9000",
        "LANTERN_ARCHIVE": "/tmp/other.db",
        "LANTERN_OPENAI_UPSTREAM": "http://127.0.0.1:1/v1/",
        "LANTERN_ANTHROPIC_UPSTREAM": "",
        "XDG_CACHE_HOME": "/tmp/cache",
    }
    config = load(write("server: {port: 1, host: h}\nupstream: {openai: http://file}"), environ)
    assert (config.server.port, config.server.host) == (9000, "h")
    assert config.archive.path == Path("/tmp/other.db")
    assert config.upstream.openai == "http://127.0.0.1:1/v1"
    assert config.upstream.anthropic == "https://api.anthropic.com"
    assert config.embed.cache_dir == Path("/tmp/cache/lantern")


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "LANTERN_PORT",
            "eighty",
            "LANTERN_PORT is 'eighty'; use a whole number, 0 to 65,535 (it overrides server.port)",
        ),
        ("LANTERN_PORT", "99999", "LANTERN_PORT is 99999; use 0 to 65,535 (it overrides server.port)"),
        ("LANTERN_OPENAI_UPSTREAM", "ftp://x", "LANTERN_OPENAI_UPSTREAM is 'ftp://x'; use http://host/path"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(variable, value, told):
    with pytest.raises(ConfigError) as caught:
        load(None, {variable: value})
    assert str(caught.value).startswith(told)


def test_a_bare_on_or_off_means_what_it_says(write):
    assert load(write("embed: {enabled: off}"), {}).embed.enabled == "off"
    assert load(write("embed: {enabled: on}"), {}).embed.enabled == "on"


def test_empty_files_sections_and_keys_take_the_defaults(write):
    for text in ("", "# nothing\n", "restore:\n", "restore:\n  budget_chars:\n", "{}"):
        assert load(write(text), {}) == load(None, {})


def test_sections_check_themselves_when_built_in_code():
    with pytest.raises(ConfigError, match="budget_chars is -1"):
        RestoreConfig(budget_chars=-1)
    with pytest.raises(ConfigError, match="admission is 2"):
        replace(RestoreConfig(), admission=2)


def test_a_key_without_sqlcipher_is_refused_by_the_setting_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlcipher3", None)  # as where the extra is not installed
    (tmp_path / "key").write_text("ab" * 32)
    with pytest.raises(ConfigError, match=r"^archive\.key_file \S+key needs SQLCipher.*lantern-proxy\[encrypted\]"):
        ArchiveConfig(key_file=str(tmp_path / "key")).key()


def test_routes_are_checked_entry_by_entry(write):
    text = "upstream: {routes: [{model: 'claude-*', kind: litellm, target: bedrock/claude, params: {timeout: 5}}]}"
    (route,) = load(write(text), {}).upstream.routes
    assert (route.model, route.path, route.kind, route.target) == ("claude-*", "*", "litellm", "bedrock/claude")
    for wrong, told in [
        ("{kind: openai}", r"upstream.routes\[0\].url is empty"),
        ("{kind: azure, url: http://h}", r"upstream.routes\[0\].kind is 'azure'; use"),
        ("{url: http://h, target: x}", r"upstream.routes\[0\].target is for kind litellm"),
        ("{modell: x, url: http://h}", r"upstream.routes\[0\].modell is not a setting; did you mean model"),
    ]:
        with pytest.raises(ConfigError, match=told):
            load(write(f"upstream: {{routes: [{wrong}]}}"), {})
