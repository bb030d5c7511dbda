"""Drivers for coding agents: each turn is one run of the agent's own command, which goes on with the last session.

Telemetry, update checks and whatever else would leave loopback are switched off. What the agent runs for the model is
`cat` in a temporary home.
"""

import json

from clients.client import Job


def codex(job: Job) -> list[str]:
    """`codex exec`, then `codex exec resume --last`, with a provider of its own that speaks Responses."""
    home = job.home / ".codex"
    home.mkdir()
    (home / "config.toml").write_text(
        f"""model = "gpt-5.1-codex"
model_provider = "scripted"
model_context_window = 100000
model_auto_compact_token_limit = 60000
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{job.url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
[analytics]
enabled = false
[feedback]
enabled = false
"""
    )
    last = job.home / "last.txt"
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-o", str(last)]
    answers = []
    for i, line in enumerate(job.lines):
        command = ["codex", "exec", *options, line] if i == 0 else ["codex", "exec", "resume", "--last", *options, line]
        job.run(command, {"CODEX_HOME": str(home), "SCRIPTED_KEY": "sk-dummy-codex"})
        answers.append(last.read_text())
    return answers


def claude_code(job: Job) -> list[str]:
    """`claude -p`, then `claude -p --continue`; it compacts of itself when the reported usage fills the window."""
    env = {
        "ANTHROPIC_BASE_URL": job.url, "ANTHROPIC_API_KEY": "sk-ant-dummy-claude-code", "ANTHROPIC_MODEL": "claude-sonnet-4-5",
        "CLAUDE_CONFIG_DIR": str(job.home / ".claude"), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
    }  # fmt: skip
    answers = []
    for i, line in enumerate(job.lines):
        command = ["claude", "-p", line, "--output-format", "json", "--allowedTools", "Bash(cat:*)", *(["--continue"] if i else [])]
        answers.append(str(json.loads(job.run(command, env))["result"]))
    return answers


def opencode(job: Job) -> list[str]:
    """`opencode run`, then `opencode run --continue`, with a provider of its own that speaks chat completions."""
    folder = job.home / ".config/opencode"
    folder.mkdir()
    limit = {"context": 100_000, "output": 4_000}
    provider = {
        "npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": {"baseURL": f"{job.url}/v1", "apiKey": "sk-dummy-opencode"},
        "models": {"scripted": {"name": "scripted", "limit": limit, "tool_call": True}},
    }  # fmt: skip
    config = {
        "model": "scripted/scripted", "small_model": "scripted/scripted", "autoupdate": False, "share": "disabled",
        "provider": {"scripted": provider},
    }  # fmt: skip
    (folder / "opencode.json").write_text(json.dumps(config))
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in off} | {"XDG_DATA_HOME": f"{job.home}/.local/share"}
    return [job.run(["opencode", "run", *(["--continue"] if i else []), line], env).strip() for i, line in enumerate(job.lines)]
