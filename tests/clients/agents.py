"""Drivers for coding agents: each turn is one run of the agent's own command, which goes on with the last session.

Telemetry, update checks and whatever else would leave loopback are switched off. What the agent runs for the model is
`cat` in a temporary home.
"""

import json
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import httpx

from clients.acp import converse
from clients.client import ClientError, Drive, Job, end
from clients.talk import OVERFLOWS

_TERMINAL = re.compile(r"\x1b\].*?(\x07|\x1b\\)|\x1b\[[0-9;?]*[a-zA-Z]")
"""What sets colours and titles of a terminal."""

_NPM_OFFLINE = {"npm_config_offline": "true", "npm_config_fetch_retries": "0"}

_CODEX = """model = "gpt-5.1-codex"
model_context_window = 100000
model_auto_compact_token_limit = 60000
check_for_update_on_startup = false
{provider}
[analytics]
enabled = false
[feedback]
enabled = false
"""
_CODEX_SCRIPTED = """model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"""


def codex(job: Job) -> list[str]:
    """`codex exec`, then `codex exec resume --last`, with a provider of its own: it compacts by a summary."""
    return _codex(job, _CODEX_SCRIPTED.format(url=job.url), {"SCRIPTED_KEY": "sk-dummy-codex"})


def codex_openai(job: Job) -> list[str]:
    """The same with its provider `openai`: it tries a WebSocket first and compacts by an encrypted item."""
    return _codex(job, f'openai_base_url = "{job.url}/v1"', {"CODEX_API_KEY": "sk-dummy-codex"})


def _codex(job: Job, provider: str, env: dict[str, str]) -> list[str]:
    home, last = job.home / ".codex", job.home / "last.txt"
    home.mkdir()
    (home / "config.toml").write_text(_CODEX.format(provider=provider))
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-o", str(last)]
    answers: list[str] = []
    for line in job.lines:
        resumed = ["resume", "--last"] if answers else []
        job.run(["codex", "exec", *resumed, *options, line], {"CODEX_HOME": str(home)} | env)
        answers.append(last.read_text())
    return answers


def claude_code(job: Job) -> list[str]:
    """`claude -p`, then `claude -p --continue`; it compacts of itself when the reported usage fills the window."""
    return [_claude(job, line, first=line == job.lines[0]) for line in job.lines]


def claude_code_manual(job: Job) -> list[str]:
    """The same, but its user asks for it: `/compact` after the turns that make the others run full."""
    return _claude_compacting(job, {})


def claude_code_router(job: Job) -> list[str]:
    """The same through Claude Code Router, which has Chat Completions of it and leaves its ids out."""
    folder = job.home / ".claude-code-router"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    provider = {"name": "scripted", "api_base_url": f"{job.url}/v1/chat/completions", "models": ["scripted"],
                "api_key": "sk-dummy-ccr"}  # fmt: skip
    config = {"LOG": False, "HOST": "127.0.0.1", "PORT": port, "NON_INTERACTIVE_MODE": True, "Providers": [provider],
              "Router": {"default": "scripted,scripted"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    router = job.start(["ccr", "start"], {"SERVICE_PORT": str(port)}, silent=True)
    try:
        url = f"http://127.0.0.1:{port}"
        _await(url, job)
        return _claude_compacting(job, {"ANTHROPIC_BASE_URL": url})
    finally:
        end(router)


def _await(url: str, job: Job) -> None:
    """Until something answers at `url`."""
    while job.left_s > 1:
        with suppress(httpx.TransportError):
            httpx.get(url, timeout=2)
            return
        time.sleep(0.1)
    raise ClientError(f"nothing answers at {url}: {(job.home / 'stderr').read_text()[-600:]}")


def _claude_compacting(job: Job, env: dict[str, str]) -> list[str]:
    answers = []
    for i, line in enumerate(job.lines):
        answers.append(_claude(job, line, env, first=i == 0))
        if i in OVERFLOWS:
            _claude(job, "/compact", env, first=False)
    return answers


def _claude(job: Job, line: str, more: Mapping[str, str] = MappingProxyType({}), *, first: bool) -> str:
    env = {
        "ANTHROPIC_BASE_URL": job.url, "ANTHROPIC_API_KEY": "sk-ant-dummy-claude-code",
        "ANTHROPIC_MODEL": "claude-sonnet-4-5", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
        "CLAUDE_CONFIG_DIR": str(job.home / ".claude"), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1", **more,
    }  # fmt: skip
    options = ["--output-format", "json", "--allowedTools", "Bash(cat:*)", *([] if first else ["--continue"])]
    return str(json.loads(job.run(["claude", "-p", line, *options], env))["result"])


def opencode(job: Job) -> list[str]:
    """`opencode run`, then `opencode run --continue`, with a provider of its own that speaks chat completions."""
    return _opencode(job, 100_000, [])


def opencode_dcp(job: Job) -> list[str]:
    """The same with a plugin that numbers messages and lets the model compact them by a tool, long before opencode."""
    folder = job.home / ".config/opencode"
    folder.mkdir()
    (folder / "node_modules").symlink_to(job.folder / "node_modules")  # so that it installs nothing itself
    (folder / "package.json").write_text(json.dumps({"dependencies": {"@opencode-ai/plugin": "*"}}))
    (folder / "dcp.jsonc").write_text(json.dumps({"autoUpdate": False, "pruneNotification": "off"}))
    return _opencode(job, 400_000, [f"file://{job.folder}/node_modules/@tarquinen/opencode-dcp/dist/index.js"])


def oh_my_opencode(job: Job) -> list[str]:
    """The same with a plugin that puts an agent of its own in the place of opencode's, and compacts ahead of it."""
    folder = job.home / ".config/opencode"
    folder.mkdir()
    (folder / "node_modules").symlink_to(job.folder / "node_modules")  # so that it installs nothing itself
    (folder / "package.json").write_text(json.dumps({"dependencies": {"@opencode-ai/plugin": "*"}}))
    config = {
        "disabled_mcps": ["websearch", "context7", "grep_app"], "disabled_hooks": ["auto-update-checker"],
        "experimental": {"preemptive_compaction": True, "dynamic_context_pruning": {"enabled": True}},
    }  # fmt: skip
    (folder / "oh-my-opencode.json").write_text(json.dumps(config))
    return _opencode(job, 100_000, [f"file://{job.folder}/node_modules/oh-my-opencode/dist/index.js"])


def _opencode(job: Job, window: int, plugins: list[str]) -> list[str]:
    folder = job.home / ".config/opencode"
    folder.mkdir(exist_ok=True)
    (folder / "opencode.json").write_text(json.dumps(_opencode_config(job, "opencode", window) | {"plugin": plugins}))
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in off} | {"XDG_DATA_HOME": f"{job.home}/.local/share"}
    return _runs(job, ["opencode", "run"], env | _NPM_OFFLINE)


def kilo(job: Job) -> list[str]:
    """`kilo run --auto`, then the same with `--continue`, with a provider of its own."""
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE", "SESSION_INGEST")
    env = {f"KILO_DISABLE_{name}": "1" for name in off} | {"KILO_TELEMETRY_LEVEL": "off"}
    env |= {"KILO_CONFIG_CONTENT": json.dumps(_opencode_config(job, "kilo", 100_000))}
    return _runs(job, ["kilo", "run", "--auto"], env | _NPM_OFFLINE)


def _opencode_config(job: Job, name: str, window: int) -> dict[str, Any]:
    """Of opencode, and of what was made of it. window: tokens"""
    limit = {"context": window, "output": 4_000}
    provider = {
        "npm": "@ai-sdk/openai-compatible", "name": "scripted",
        "options": {"baseURL": f"{job.url}/v1", "apiKey": f"sk-dummy-{name}"},
        "models": {"scripted": {"name": "scripted", "limit": limit, "tool_call": True}},
    }  # fmt: skip
    return {
        "model": "scripted/scripted", "small_model": "scripted/scripted", "autoupdate": False, "share": "disabled",
        "provider": {"scripted": provider},
    }  # fmt: skip


def _runs(job: Job, command: list[str], env: dict[str, str], *, again: str = "--continue", asks: str = "") -> list[str]:
    """What is printed by a run for each line, the first one anew and all others going on with it.

    again: the option that does so; asks: the option in front of a line, where there is one
    """
    option = [asks] if asks else []
    return [
        job.run([*command, *([again] if i else []), *option, line], env).strip() for i, line in enumerate(job.lines)
    ]


def openclaw(job: Job) -> list[str]:
    """`openclaw agent --local` with a provider of its own. Behind what its user says stands a note of the client."""
    home = job.home / ".openclaw"
    home.mkdir()
    model = {"id": "scripted", "name": "scripted", "reasoning": False, "input": ["text"], "contextWindow": 100_000,
             "maxTokens": 4_000}  # fmt: skip
    provider = {"baseUrl": f"{job.url}/v1", "apiKey": "sk-dummy-openclaw", "api": "openai-completions"}
    defaults = {"model": {"primary": "scripted/scripted"}, "workspace": str(job.work), "skipBootstrap": True}
    defaults |= {"compaction": {"mode": "default", "memoryFlush": {"enabled": False}}}
    config = {
        "models": {"mode": "replace", "providers": {"scripted": provider | {"models": [model]}}},
        "agents": {"defaults": defaults}, "update": {"checkOnStart": False},
    }  # fmt: skip
    (home / "openclaw.json").write_text(json.dumps(config))
    env = {"OPENCLAW_STATE_DIR": str(home), "OPENCLAW_CONFIG_PATH": str(home / "openclaw.json")}
    command = ["openclaw", "agent", "--local", "--json", "--session-id", "talk", "-m"]
    return [_said_by(job.run([*command, line], env)) for line in job.lines]


def _said_by(out: str) -> str:
    return str(json.loads(out[out.index("{") :])["payloads"][0]["text"])


def qwen_code(job: Job) -> list[str]:
    """`qwen`, then `qwen --continue`; its memory agent runs beside the conversation, as it does by default."""
    folder = job.home / ".qwen"
    folder.mkdir()
    settings = {
        "security": {"auth": {"selectedType": "openai"}}, "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}, "model": {"name": "scripted"},
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    env = {"OPENAI_API_KEY": "sk-dummy-qwen-code", "OPENAI_BASE_URL": f"{job.url}/v1", "OPENAI_MODEL": "scripted"}
    options = ["--approval-mode", "yolo", "--auth-type", "openai"]
    return _runs(job, ["qwen", *options], env)


def aider(job: Job) -> list[str]:
    """`aider --message`, each run restoring the chat history from its file; it summarises what is over its limit."""
    env = {"OPENAI_API_BASE": f"{job.url}/v1", "OPENAI_API_KEY": "sk-dummy-aider"}
    options = [
        "--model", "openai/scripted", "--no-git", "--yes-always", "--no-check-update", "--analytics-disable",
        "--no-auto-lint", "--no-show-model-warnings", "--no-show-release-notes", "--no-pretty",
        "--no-suggest-shell-commands", "--map-tokens", "0", "--restore-chat-history",
        "--max-chat-history-tokens", "150",
    ]  # fmt: skip
    return [_last_words(job.run(["aider", *options, "--message", line], env)) for line in job.lines]


def _last_words(out: str) -> str:
    """The answer in what a client printed: the last line that is neither empty nor aider's count of tokens."""
    return next(line for line in reversed(out.splitlines()) if line.strip() and not line.startswith("Tokens:"))


def pi(job: Job) -> list[str]:
    """`pi -p`, then `pi -p --continue`, with a provider of its own that speaks chat completions."""
    folder = job.home / ".pi/agent"
    folder.mkdir(parents=True)
    model = {"id": "scripted", "name": "scripted", "reasoning": False, "input": ["text"], "contextWindow": 100_000,
             "maxTokens": 4_000, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}  # fmt: skip
    provider = {"baseUrl": f"{job.url}/v1", "apiKey": "sk-dummy-pi", "api": "openai-completions", "models": [model]}
    (folder / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}))
    compaction = {"enabled": True, "reserveTokens": 16_000, "keepRecentTokens": 60}
    (folder / "settings.json").write_text(json.dumps({"compaction": compaction, "enableInstallTelemetry": False}))
    options = ["--provider", "scripted", "--model", "scripted", "--offline", "-p"]
    env = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
    return _runs(job, ["pi", *options], env)


_KIMI = """default_model = "scripted"
telemetry = false
[providers.scripted]
type = "openai"
base_url = "{url}/v1"
api_key = "sk-dummy-kimi"
[models.scripted]
provider = "scripted"
model = "scripted"
max_context_size = 128000
"""


def kimi_code(job: Job) -> list[str]:
    """`kimi -p`, then `kimi --continue -p`; its call for a summary keeps the conversation's tools."""
    folder = job.home / ".kimi-code"
    folder.mkdir()
    (folder / "config.toml").write_text(_KIMI.format(url=job.url))
    env = {"KIMI_CODE_HOME": str(folder), "KIMI_CODE_NO_AUTO_UPDATE": "1"}
    return [_last_words(out) for out in _runs(job, ["kimi"], env, asks="-p")]


_KIMI_CLI = """default_model = "scripted"
default_yolo = true
[providers.scripted]
type = "openai_legacy"
base_url = "{url}/v1"
api_key = "sk-dummy-kimi-cli"
[models.scripted]
provider = "scripted"
model = "scripted"
max_context_size = 128000
"""


def kimi_cli(job: Job) -> list[str]:
    """`kimi --print`, then with `--continue`: the last two messages stay beside its summary."""
    folder = job.home / ".kimi"
    folder.mkdir()
    (folder / "config.toml").write_text(_KIMI_CLI.format(url=job.url))
    env = {"KIMI_CLI_NO_AUTO_UPDATE": "1"}
    return _runs(job, ["kimi", "--print", "--final-message-only"], env, asks="-p")


def hermes(job: Job) -> list[str]:
    """`hermes chat -q`, then with `--continue`; its summary stands in the assistant's words, behind the first turns."""
    folder = job.home / ".hermes"
    folder.mkdir()
    model = {"default": "scripted", "provider": "custom", "base_url": f"{job.url}/v1", "api_key": "sk-dummy-hermes",
             "context_length": 100_000}  # fmt: skip
    compression = {"threshold": 0.76, "protect_last_n": 2, "target_ratio": 0.1}
    off = {"memory_enabled": False, "user_profile_enabled": False}
    config = {"model": model, "compression": compression, "memory": off, "approvals": {"mode": "off"}}
    (folder / "config.yaml").write_text(json.dumps(config))
    command = ["hermes", "chat", "-Q", "--yolo", "-t", "terminal"]
    env = {"HERMES_HOME": str(folder)}
    return [_last_words(out) for out in _runs(job, command, env, asks="-q")]


def copilot(kind: str, wire: str, model: str) -> Drive:
    """`copilot --acp` with a provider of its own. It compacts beside the conversation, which goes on meanwhile."""

    def drive(job: Job) -> list[str]:
        home = job.home / ".copilot"
        home.mkdir()
        env = {
            "COPILOT_HOME": str(home), "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": job.url if kind == "anthropic" else f"{job.url}/v1",
            "COPILOT_PROVIDER_TYPE": kind, "COPILOT_PROVIDER_WIRE_API": wire, "COPILOT_MODEL": model,
            "COPILOT_PROVIDER_API_KEY": "sk-dummy-copilot", "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "100000",
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": "32000",
        }  # fmt: skip
        options = ["--acp", "--allow-all-tools", "--no-auto-update", "--no-custom-instructions"]
        return converse(job, ["copilot", *options], env, pause_s=1)

    return drive


_CONTINUE = """name: scripted
version: 1.0.0
schema: v1
models:
  - name: scripted
    provider: openai
    model: scripted
    apiBase: {url}/v1
    apiKey: sk-dummy-continue
    defaultCompletionOptions: {{contextLength: 1875, maxTokens: 100}}
    roles: [chat]
"""


def continue_cli(job: Job) -> list[str]:
    """`cn -p`, then `cn -p --resume`; it compacts by its own count of tokens, also while a turn is at work."""
    folder = job.home / ".continue"
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text(_CONTINUE.format(url=job.url))
    env = {"CONTINUE_GLOBAL_DIR": str(folder), "CONTINUE_TELEMETRY_ENABLED": "0"}
    command = ["cn", "--config", str(config), "--auto", "-p"]
    return _runs(job, command, env, again="--resume")


def shell_gpt(job: Job) -> list[str]:
    """`sgpt --chat`, which keeps the newest six messages of a chat in a file."""
    env = {
        "OPENAI_API_KEY": "sk-dummy-sgpt", "API_BASE_URL": f"{job.url}/v1", "DEFAULT_MODEL": "scripted",
        "CHAT_CACHE_LENGTH": "6", "CHAT_CACHE_PATH": f"{job.home}/tmp/chat", "OPENAI_USE_FUNCTIONS": "false",
        "PRETTIFY_MARKDOWN": "false",
    }  # fmt: skip
    (job.home / ".config/shell_gpt").mkdir()
    return [job.run(["sgpt", "--no-cache", "--chat", "talk", line], env).strip() for line in job.lines]


_CODE_PUPPY = """[puppy]
puppy_name = Rex
owner_name = Ann
model = scripted
yolo_mode = true
auto_save_session = true
protected_token_count = 1000
compaction_threshold = 0.5
compaction_strategy = summarization
"""


def code_puppy(job: Job) -> list[str]:
    """`code-puppy -p`, then with `-qr`. Its summary stands in front of a system prompt that names each process."""
    endpoint = {"url": f"{job.url}/v1", "api_key": "sk-dummy-code-puppy"}
    model = {"type": "custom_openai", "name": "scripted", "context_length": 12_000, "custom_endpoint": endpoint}
    data, config = job.home / ".code_puppy", job.home / ".config/code_puppy"
    for folder in data, config:
        folder.mkdir()
    (data / "extra_models.json").write_text(json.dumps({"scripted": model}))
    (config / "puppy.cfg").write_text(_CODE_PUPPY)
    answers: list[str] = []
    for line in job.lines:
        out = job.run(["code-puppy", *(["-qr"] if answers else []), "-p", line], {})
        answers.append(_last_words(_TERMINAL.sub("", out)))
    return answers


def letta_code(job: Job) -> list[str]:
    """`letta -p` with its own store, then with `--conversation`; its summary is a string of JSON that a user says."""
    env = {
        "LMSTUDIO_BASE_URL": f"{job.url}/v1", "LMSTUDIO_API_KEY": "sk-dummy-letta-code", "DISABLE_AUTOUPDATER": "1",
        "LETTA_CODE_TELEM": "0", "LETTA_LOCAL_BACKEND_NO_MEMFS": "1",
    }  # fmt: skip
    command = ["letta", "--backend", "local", "--no-memfs", "--no-skills", "--output-format", "json", "--yolo"]
    answers: list[str] = []
    which = ["--new-agent", "-m", "lmstudio/scripted"]
    for line in job.lines:
        out = job.run([*command, *which, "-p", line], env)
        told = json.loads(out[out.index("{") :])
        answers.append(told["result"])
        which = ["--conversation", told["conversation_id"]]
        for path in (job.home / ".letta/lc-local-backend/agents").glob("*.json"):
            agent = json.loads(path.read_text())
            agent["model_settings"]["context_window_limit"] = 100_000
            path.write_text(json.dumps(agent))
    return answers


def gptme(job: Job) -> list[str]:
    """All lines as one chain of prompts, after which it talks to itself for a while. Returns everything that it said.

    It asks its model for a checkpoint where a budget is used up, and goes on with that and the newest messages.
    """
    (job.work / "gptme.toml").write_text("[context]\nkeep_recent_tokens = 60\n")
    env = {
        "OPENAI_API_KEY": "sk-dummy-gptme", "OPENAI_BASE_URL": f"{job.url}/v1", "GPTME_CHECK": "false",
        "GPTME_CONTEXT_BUDGET": "2900",
    }  # fmt: skip
    options = ["--non-interactive", "--model", "local/scripted", "--name", "talk", "--tools", "shell,autocompact"]
    said = [each for line in job.lines for each in ("-", line)][1:]
    job.run(["gptme", *options, "--tool-format", "tool", *said], env)
    log = next(job.home.glob(".local/share/gptme/logs/*/conversation.jsonl"))
    messages = map(json.loads, log.read_text().splitlines())
    told = (message["content"] for message in messages if message["role"] == "assistant")
    return [text for text in told if not text.startswith("\n@shell(")]


_VIBE = """active_model = "scripted"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "scripted"
api_base = "{url}/v1"
api_key_env_var = "SCRIPTED_KEY"
api_style = "openai"
backend = "generic"
[[models]]
name = "scripted"
provider = "scripted"
alias = "scripted"
auto_compact_threshold = 100000
"""


def mistral_vibe(job: Job) -> list[str]:
    """`vibe -p`, then `vibe -p --continue`, with a provider of its own: what the user said stays beside the summary."""
    home = job.home / ".vibe"
    home.mkdir()
    (home / "config.toml").write_text(_VIBE.format(url=job.url))
    env = {"VIBE_HOME": str(home), "SCRIPTED_KEY": "sk-dummy-vibe", "MISTRAL_API_KEY": "sk-dummy-vibe"}
    return [
        job.run(["vibe", "-p", line, "--yolo", "--trust", *(["--continue"] if i else [])], env).strip()
        for i, line in enumerate(job.lines)
    ]


def nanobot(job: Job) -> list[str]:
    """`nanobot agent`, one run a line. Its user asks it to compact, after the turns that make others run full."""
    home = job.home / ".nanobot"
    home.mkdir()
    model = {"model": "scripted", "provider": "custom", "contextWindowTokens": 200_000, "maxTokens": 1_000}
    config = {
        "agents": {"defaults": model | {"workspace": str(job.work), "dream": {"enabled": False}}},
        "providers": {"custom": {"apiKey": "sk-dummy-nanobot", "apiBase": f"{job.url}/v1"}},
    }
    (home / "config.json").write_text(json.dumps(config))
    command = ["nanobot", "agent", "-c", str(home / "config.json"), "-s", "cli:talk", "--no-markdown", "-m"]
    answers = []
    for i, line in enumerate(job.lines):
        answers.append(job.run([*command, line], {"COLUMNS": "400"}).strip().splitlines()[-1])
        if i in OVERFLOWS:
            job.run([*command, "/compact"], {})
    return answers


def command_code(job: Job) -> list[str]:
    """`command-code -p`, then with `--continue`, by a provider of its own. It keeps the newest 30,000 tokens beside its
    summary, so that a rule of dots stands in front of each line.
    """
    folder = job.home / ".commandcode"
    folder.mkdir()
    models = {"scripted": {"contextWindow": 50_000, "maxOutput": 4_000}}
    provider = {"api": "openai-completions", "baseURL": f"{job.url}/v1", "apiKey": "$SCRIPTED_KEY", "models": models}
    (folder / "providers.json").write_text(json.dumps({"provider": {"scripted": provider}}))
    env = {"CMD_LOCAL_ONLY": "1", "COMMAND_CODE_API_KEY": "dummy", "SCRIPTED_KEY": "dummy-command-code"}
    options = ["-m", "scripted/scripted", "--yolo", "--trust", "--skip-onboarding", "--no-auto-update", "--no-skills"]
    lines = tuple(f"{'.' * 40_000}\n{line}" for line in job.lines)
    return _runs(replace(job, lines=lines), ["command-code", *options], env, asks="-p")
