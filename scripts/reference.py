"""Writes docs/configuration.md, docs/cli.md and docs/code.md from the code, so that they say what the code does.

    python scripts/reference.py            write them
    python scripts/reference.py --check    exit with 1 when a page is not what the code says

tests/test_docs.py calls `pages`. Settings: the dataclasses of config/, their docstrings and types. Commands: click's
help. Code: the first line of each module's docstring.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import click
import yaml

from lantern_proxy.cli import main as cli
from lantern_proxy.config import ENVIRONMENT, Config, default_cache_dir
from lantern_proxy.config.check import Url, Within, hints_of

ROOT = Path(__file__).resolve().parent.parent
_MADE = "<!-- made by scripts/reference.py from the code; change it there -->"
_WIDTH = 100
PACKAGE = ROOT / "lantern_proxy"


def pages() -> dict[Path, str]:
    """Page -> what it must hold."""
    return {
        ROOT / "docs/configuration.md": configuration(),
        ROOT / "docs/cli.md": commands(),
        ROOT / "docs/code.md": code(),
    }


# settings


def configuration() -> str:
    parts = [_CONFIGURATION, _environment()]
    hints = hints_of(Config)
    for each in fields(Config):
        if is_dataclass(hints[each.name]):
            parts.append(_section(each.name, hints[each.name]))
        else:
            parts.append(_map_section(each.name, hints[each.name]))
    return "\n".join(parts).rstrip() + "\n"


_CONFIGURATION = f"""{_MADE}
# Configuration

No file is needed: every setting has a default. To change one, write a YAML file with that setting alone and start with
`lantern serve --config lantern.yaml`; the other commands take `--config`, too, or the variable `LANTERN_CONFIG`.
[config.example.yaml](../config.example.yaml) is a file with every default in it.

A wrong key, type or range is refused at the start, with the place, the value and the nearest valid key:

```text
lantern: lantern.yaml: restore.budget_char is not a setting; did you mean budget_chars?
```

A file is read once, at the start: restart `lantern serve` after a change. (SIGHUP, which a closed
terminal sends, stops it as SIGTERM does.)
"""


def _environment() -> str:
    rows = [f"| `{variable}` | [`{place}`](#{place.split('.')[0]}) |" for variable, place in ENVIRONMENT.items()]
    head = "## Environment\n\nThese variables override the file. An empty one counts as unset.\n"
    return "\n".join([head, "| variable | overrides |", "| --- | --- |", *rows, ""])


def _section(name: str, section: type) -> str:
    return f"## {name}\n\n{_summary(section)}\n\n{_table(section)}{_nested(name, section)}"


def _map_section(name: str, hint: Any) -> str:
    """`tenants`: names of people's own, each with the settings of one dataclass."""
    entry = get_args(hint)[1]
    return f"## {name}\n\n{_docs(Config)[name]}\n\nEach `{name}.NAME` has:\n\n{_table(entry)}"


def _nested(name: str, section: type) -> str:
    """Tables for lists of settings, such as `upstream.routes`."""
    made = ""
    for each, hint in hints_of(section).items():
        inner = [a for a in get_args(hint) if inspect.isclass(a) and is_dataclass(a)]
        if inner:
            made += f"\n### {name}.{each}\n\nEach entry may have:\n\n{_table(inner[0])}"
    return made


def _table(section: type) -> str:
    hints, docs = hints_of(section), _docs(section)
    rows = [
        f"| `{each.name}` | {_cell(_type(hints[each.name]))} | {_default(each)} | {_cell(docs[each.name])} |"
        for each in fields(section)
    ]
    return "\n".join(["| setting | values | default | |", "| --- | --- | --- | --- |", *rows, ""])


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def _default(each: Field[Any]) -> str:
    value = each.default if each.default is not MISSING else each.default_factory()  # type: ignore[misc]
    if value == default_cache_dir():
        return "`~/.cache/lantern`"
    if isinstance(value, Path):
        value = f"./{value}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = list(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    written = yaml.safe_dump(dict(value) if isinstance(value, Mapping) else value, default_flow_style=True)
    return f"`{written.removesuffix(chr(10)).removesuffix('...').strip()}`".replace("`''`", '`""`')


def _type(hint: Any) -> str:
    """What a value may be, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner, rule = _type(arguments[0]), arguments[1]
        if isinstance(rule, Within):
            return f"{inner}, {rule.low:,.15g} to {rule.high:,.15g}{' ' + rule.unit if rule.unit else ''}"
        return ("URL or empty" if rule.optional else "URL") if isinstance(rule, Url) else inner
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"map of {_type(arguments[0])} to {_type(arguments[1])}"
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return (
            "list of settings"
            if inspect.isclass(arguments[0]) and is_dataclass(arguments[0])
            else f"list of {_type(arguments[0])}"
        )
    words = {int: "whole number", float: "number", bool: "`true`, `false`", str: "text", Path: "path", Any: "anything"}
    return words.get(hint, "settings")


@cache
def _docs(section: type) -> dict[str, str]:
    """Field -> the docstring under it. A field without one is a fault: people would not learn what it does."""
    (made,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(made, ast.ClassDef)
    found: dict[str, str] = {}
    for above, below in zip(made.body, made.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
            found[above.target.id] = str(ast.literal_eval(below.value))
    return found


def _summary(section: type) -> str:
    text = re.sub(r"\s+", " ", inspect.getdoc(section) or "")
    text = re.sub(r"^The `\w+:` section[:.]\s*", "", text)
    return text[:1].upper() + text[1:]


# commands


def commands() -> str:
    parts = [_COMMANDS]
    for path, command in walk():
        parts.append(_command(path, command))
    return "\n".join(parts).rstrip() + "\n"


_COMMANDS = f"""{_MADE}
# Commands

Every command has `--help` with an example, and takes `--config FILE` and `--archive PATH` where it needs them.
`--json` prints one object a line. Exit codes: 0 done; 1 it could not be done, or something is wrong; 2 it was asked for
wrongly. An error is one line on standard error; `LANTERN_DEBUG=1` shows where in the code it came from.
"""


def walk(command: click.Command = cli.cli, path: tuple[str, ...] = ("lantern",)) -> Iterator[tuple[str, click.Command]]:
    """("lantern keys add", its command), each group before what is in it."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, (*path, name))


def _command(path: str, command: click.Command) -> str:
    asked = cli.cli.context_settings["help_option_names"]
    command._help_option = None  # click keeps the one of whoever asked first, maybe without these names
    context = click.Context(
        command, info_name=path, terminal_width=_WIDTH, max_content_width=_WIDTH, help_option_names=asked
    )
    level = "#" * min(len(path.split()) + 1, 4) if path != "lantern" else "##"
    return f"{level} {path}\n\n```text\n{command.get_help(context)}\n```\n"


# code


def code() -> str:
    """The modules by subject, each with the first line of its docstring."""
    modules = {path: path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))}
    held: dict[str, list[str]] = {title: [] for title, *_ in SUBJECTS}
    for path, name in modules.items():
        said = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
        held[_subject(name)].append(f"| `{name}` | {_cell(said)} |")
    parts = [_CODE]
    for title, _, about in SUBJECTS:
        parts.append("\n".join([f"## {title}\n\n{about}\n", "| module | |", "| --- | --- |", *held[title], ""]))
    return "\n".join(parts).rstrip() + "\n"


def _subject(name: str) -> str:
    """ "restore/scope.py" belongs where "restore" does, "wire/json.py" where "wire" does."""
    family = re.split(r"[/_.]", name.lstrip("_"))[0]
    found = [title for title, families, _ in SUBJECTS if family in families.split()]
    if len(found) != 1:
        raise LookupError(f"{name}: {family!r} stands under {found or 'no subject'}; name it once in SUBJECTS")
    return found[0]


_RESTORING = """From a request that lacks something to the block that gives it back. `restorer.py` leads.

A loss block: `loss.py` reads the richest passages of the scope (`richest.py`, `scope.py`) sentence by sentence
(`lines.py`, `headings.py`, `salience.py`), makes parts of them (`parts.py`) and selects (`cover.py`); then it adds
what those need (`companions.py`), and fills the room that is left (`filling.py`). A question block: `question.py`
parses the question, `signals.py` ranks all passages, `answer.py` selects (`candidates.py`, `weak.py`,
`named_items.py`), with what they are worth (`offers.py`) and what has to be added to them (`supplements.py`,
`updates.py`). `block.py` renders both."""

SUBJECTS = (
    ("The record and the protocols", "turn wire", "What everything else speaks of, and how it is read and written."),
    (
        "Sessions and compactions",
        "follow session history compaction",
        "Which session a request continues, and what of it the request lacks. Pure: no I/O, no clock.",
    ),
    (
        "Text and evidence",
        "chunk analyze signals rank route trust reinforce pack",
        "Passages and their terms, what ranks them, and the block they are rendered into. Pure, too.",
    ),
    ("The BM25 index", "bm25 mapped", "`native/` in C, its numpy twin, and snapshots that open at once."),
    (
        "Models",
        "compiled embed rerank",
        "Vectors and learned orders, by onnxruntime: what serves imports no torch.",
    ),
    (
        "The archive",
        "archive session_rows redact locked",
        "All the SQL. `migrations/archive.py` has the schema; `docs/archive-format.md` what an export holds.",
    ),
    (
        "Restoring",
        "restore",
        _RESTORING,
    ),
    (
        "Serving",
        "app access proxy upstream config trace",
        "`app.py` takes requests, `proxy/` one request's story, `proxy/writer.py` the one thread that writes.",
    ),
    ("Looking in", "admin", "Everything below `/lantern`."),
    ("The terminal", "cli demo logs main", "A command is in the module of its name, or `cli/main.py` says in which."),
    ("Without a proxy, and learning", "init memory tune", "`from lantern_proxy import Lantern`; `lantern tune`."),
    ("Measuring", "bench", "A bench of `lantern bench` is in the module of its name, or in `cli/bench.py`."),
)
"""(title, families of modules, what they have in common), in the order in which they are best read."""

_CODE = f"""{_MADE}
# The code

For whoever changes Lantern: which module holds what. One request goes through it like this.

1. `app.py` takes it: `access.py` admits it, `proxy/` begins an `Exchange`.
2. `wire/` reads its bytes into a `turn.Request`. `follow.py` links it to a session (`session/`) and compares the two
   (`compaction/`): what does it lack?
3. When something is lacking, or a question is asked of what was lacking before, `proxy/restore.py` asks `restore/`
   for a block, and `wire/` splices it into the client's own bytes. `proxy/ledger.py` repeats it in later requests.
4. `upstream/` sends it, `proxy/relay.py` hands the answer on as it comes.
5. `proxy/record.py` makes a record of both, `proxy/writer.py` hands it to `archive/`, and the last byte waits until it
   is committed. Passages are cut afterwards (`proxy/cutter.py`, `chunk.py`), vectors later still (`proxy/upkeep.py`).

Where a change goes:

| you want | look into |
| --- | --- |
| another way of compacting to be told | `compaction/`; `session/` where it is taken for another conversation |
| a protocol, or a field of one | `wire/` |
| another kind of evidence | `signals/`, its name in `config/retrieval.py`, its weight in `restore/signals.py` |
| other sentences in a loss block | `restore/salience.py` and `restore/parts.py`, measured by `lantern bench restore` |
| a setting | `config/`, and `config.example.yaml` |
| a column, or a statement | `migrations/archive.py`, `archive/rows.py`; `tests/test_canary.py` walks every statement |
| a command | a module in `cli/`, named in `cli/main.py` |
| a path below /lantern | `admin/api.py`, and what it answers in `admin/schemas.py` |

Tests are named after modules. `tests/chats.py` has clients without I/O, `tests/scripted.py` a scripted upstream and the
real app. `tests/possible/`, `tests/crowd.py` and `tests/strangers.py` draw clients by number; `tests/clients/` drives
real ones.

A module that outgrew one file is a folder, and its first file is `__init__.py`: `session/side_calls.py` is a part of
`session/`. A part that may be needed without the whole, or is the only one, stands beside it: `bm25_kernel.py`.
What may import what is a table in `tests/test_layers.py`. `python scripts/reference.py` makes this page from the first
lines of the modules, and those of settings and commands from the code. CI runs `scripts/check` and `scripts/test`.
"""


def main() -> None:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if "--check" not in sys.argv:
            path.write_text(pages()[path], "utf-8")
        print(f"{path.relative_to(ROOT)}: {'stale' if '--check' in sys.argv else 'written'}")
    sys.exit(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    main()
