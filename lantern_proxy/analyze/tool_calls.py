"""Which tool calls need not be archived as content: they only read, or write what is then stored in a file. Pure."""

import re
from collections.abc import Sequence

_READING_COMMANDS = frozenset(
    """
    read view open list ls dir tree glob grep rg ag find fd search query fetch get show cat bat head tail less more look
    inspect describe display status stat browse navigate screenshot which whereis type wc du df ps top free uptime env
    printenv date pwd whoami id hostname file diff cmp comm log logs blame history events watch explain version help
    sort uniq cut jq yq awk sed tr column nl xargs echo printf sleep cd dig nslookup host ping netstat ss lsof
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""Programs and tools that only read."""
_READING_SUBCOMMANDS = frozenset(
    """
    list ls tree get show view inspect describe status stat log logs diff blame history events watch search query find
    explain top cat read
    """.split()  # noqa: SIM905 - a list of quotes reads worse
)
"""Read-only subcommands of other programs."""
_COMMAND_SEPARATOR = re.compile(r"\|\|?|&&?|;|\n")
_WRITES = re.compile(r"(?<![0-9&])>>?(?! ?/dev/null)(?!&)|\bsed\b[^|]* -i|\b-delete\b|\b-exec\b|\btee\b")
_QUOTED = re.compile(r"\"(?:\\.|[^\"\\])*\"|'[^']*'")
_DATABASE_QUERY = re.compile(r"[\"']\s*(?:select|show|explain|describe|pragma)\b", re.I)
"""A database query in quotes."""
_REDIRECTION = re.compile(r"\d?>&\d|\d?> ?/dev/null|\$\(|[()]")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SHELL_TOOLS = frozenset(
    ("bash", "shell", "sh", "zsh", "powershell", "terminal", "console", "exec", "execute", "command", "cmd", "run")
)
_VERB_WITHIN = 4
"""The verb of a command is among so many first words: `kubectl -n shop get pods`."""

_WRITING_TOOLS = frozenset(("edit", "write", "patch", "replace", "insert", "create", "update"))
_FILE = re.compile(r"^(?:\w+_?)?(?:path|file|filename): |\*\*\* (?:Add|Update) File: ", re.I | re.M)
"""Name of the argument that names the file to write."""


def is_redundant_call(tool: str, arguments: str, *, continued: bool = False) -> bool:
    """Does a tool call only look something up, or write what is then stored in a file?

    arguments: as cut into passages, without the tool's name. continued: not their first piece, which names the file
    """
    words = [word.lower() for word in _WORDS.findall(tool)]
    if not _SHELL_TOOLS.intersection(words):
        writes_file = not _WRITING_TOOLS.isdisjoint(words) and (continued or _FILE.search(arguments) is not None)
        return writes_file or (bool(words) and not _READING_COMMANDS.isdisjoint(words[:1] + words[-1:]))
    plain = _REDIRECTION.sub(
        " ", _QUOTED.sub(lambda quoted: " show " if _DATABASE_QUERY.match(quoted[0]) else "''", arguments)
    )
    stages = [stage.split() for stage in _COMMAND_SEPARATOR.split(plain) if stage.strip()]
    return bool(stages) and not _WRITES.search(plain) and all(map(_only_reads, stages))


def _only_reads(stage: Sequence[str]) -> bool:
    within = stage[stage.index("--") + 1 :] if "exec" in stage and "--" in stage else stage
    words = [word for word in within if "=" not in word and not word.startswith("-")]
    first = [word.rpartition("/")[2] for word in words if word not in ("sudo", "time", "timeout", "command:")]
    return (
        not first
        or first[0] in _READING_COMMANDS
        or any(word.split("-")[0] in _READING_SUBCOMMANDS for word in first[1:_VERB_WITHIN])
    )
