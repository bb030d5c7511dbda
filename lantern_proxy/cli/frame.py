"""What all commands share: common options, opening the archive, and how errors are shown."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, TenantArchive
    from lantern_proxy.config import ArchiveConfig, Config
    from lantern_proxy.embed import Embedder

Command = TypeVar("Command", bound=Callable[..., Any])

_EXITS = {"ConfigError": 2, "ArchiveError": 1, "ModelError": 1, "OSError": 1}
"""Errors that are told in one line, and their exit codes. By name, so that telling one imports nothing."""


class Group(click.Group):
    """A group whose errors of usage know their command: click's parser leaves it out of some."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if name and error.ctx is None else None
            if command is not None:
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise


class Terminal(Group):
    """The outermost one: errors are one lower-case line."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _ended_with_its_reader():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _ended_with_its_reader():
            return super().invoke(ctx)

    def main(self, *args: Any, **options: Any) -> Any:
        options["standalone_mode"] = False
        _ready_outputs()
        try:
            code = super().main(*args, **options)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.UsageError as error:
            wrong = _in_words(error)
            command = error.ctx.command_path if error.ctx else "lantern"
            self._end(f"{wrong[:1].lower()}{wrong[1:]}; see `{command} --help`", error.exit_code)
        except click.ClickException as error:
            self._end(error.format_message(), error.exit_code)
        except click.Abort:
            self._end("stopped", 1)
        except Exception as error:
            if os.environ.get("LANTERN_DEBUG"):
                raise
            exits = [_EXITS[each.__name__] for each in type(error).__mro__ if each.__name__ in _EXITS]
            fault = f"a fault in lantern itself, {type(error).__name__}: {error}; LANTERN_DEBUG=1 shows where"
            self._end(_message_of(error) if exits else fault, exits[0] if exits else 1)
        sys.exit(code if isinstance(code, int) else 0)

    def _end(self, message: str, code: int) -> None:
        click.echo(f"lantern: {' '.join(message.split())}", err=True)
        sys.exit(code)


@contextmanager
def _ended_with_its_reader() -> Iterator[None]:
    """Whose reader is gone, as of `| head`, ends as other programs do: by SIGPIPE, and without a word. Python ignores
    that signal, and raises this instead, so that what is open is closed first."""
    try:
        yield
    except BrokenPipeError:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        raise


@contextmanager
def naming(place: Path | str) -> Iterator[None]:
    """Errors of what is written in this block name `place`: of a full disk the system says no name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(place)
        raise


def _in_words(error: click.UsageError) -> str:
    """What is wrong with an argument. Of a number click says "is not a valid integer range", or "0<=x<=65535"."""
    told = error.format_message().rstrip(".")
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        told = re.sub(r" is not (a valid|in the range) .*", f" is not {_number(kind)}", told, flags=re.DOTALL)
    return told


def _number(kind: click.types.IntParamType | click.types.FloatParamType) -> str:
    """Which numbers `kind` takes: "a whole number from 0 to 65,535"."""
    name = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    above = getattr(kind, "min_open", False)
    if low is None:
        return name
    if high is None:
        return f"{name} above {low:,}" if above else f"{name} from {low:,} on"
    return f"{name} above {low:,}, up to {high:,}" if above else f"{name} from {low:,} to {high:,}"


def _ready_outputs() -> None:
    """Let what is printed go nowhere when whoever started us closed an output (`>&-`): Python has None for it then.
    What a terminal that is not UTF-8 has no sign for is shown as \\xe4."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif stream.errors == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _message_of(error: Exception) -> str:
    """The message of an error; of one from the system the file and what is wrong with it, without the number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    return str(error)


@dataclass(frozen=True, slots=True)
class Settings:
    """What --config, --archive, --archive-key-env and --json of a command say."""

    config: Path | None
    archive: Path | None
    as_json: bool
    archive_key_env: str | None = None

    def load(self) -> "Config":
        """The settings: file < environment < command line. Raises ConfigError."""
        from dataclasses import replace

        from lantern_proxy.config import load

        config = load(self.config, os.environ)
        if self.archive:
            config = replace(config, archive=replace(config.archive, path=self.archive))
        if self.archive_key_env:
            with_key = replace(config.archive, key_env=self.archive_key_env, key_file="")
            config = replace(config, archive=with_key)
        return config

    def file(self) -> "ArchiveConfig":
        """Where the archive is, which must exist, and its key."""
        settings = self.load().archive
        if not settings.path.exists():
            raise click.ClickException(
                f"archive {settings.path} does not exist; name it with --archive PATH (`lantern serve` makes one)"
            )
        if not settings.path.is_file():  # a pipe would be waited for
            raise click.ClickException(f"archive {settings.path} is no file; name it with --archive PATH")
        return settings

    @contextmanager
    def open(self, *, write: bool = False) -> Iterator["Archive"]:
        """The archive, which must exist. Only `write` may change it."""
        from lantern_proxy.archive import Archive

        settings = self.file()
        with Archive(
            settings.path, synchronous=settings.synchronous, read_only=not write, key=settings.key()
        ) as archive:
            yield archive

    def tell(self, row: Any) -> None:
        """One JSON line."""
        click.echo(json.dumps(row, default=plain))


def confirm(question: str) -> None:
    """Go on where the answer is yes; click.Abort for a no. Where nobody can answer, say how to go on without."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.ClickException(
                "nobody said yes, and nothing was removed; --yes goes on without asking"
            ) from None
        raise


@contextmanager
def removing(archive: "Archive", what: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar for what removes from the archive; how to go on where that is stopped, or leaves something in the log."""
    from lantern_proxy.cli.render import counting

    try:
        with counting(what, quiet=quiet) as advance:
            yield advance
    except KeyboardInterrupt:
        told = "stopped in the middle: what was not removed yet is still there; the same command removes the rest"
        raise click.ClickException(told) from None
    if archive.unwiped:
        click.echo(
            f"{archive.path}-wal still holds what was removed, since another program reads the archive; a running "
            "proxy empties it within ten minutes, this command when it is run again",
            err=True,
        )


def end_wiping(archive: "Archive", what: str, *, quiet: bool) -> None:
    """Do what a run that was stopped has left, which the same command may find nothing more to remove for."""
    if archive.unwiped:
        with removing(archive, what, quiet=quiet) as advance:
            archive.wipe(advance)


@contextmanager
def embedding(config: "Config") -> Iterator["Embedder | None"]:
    """The configured embedder, started but not waited for; None where it is turned off or not installed."""
    from lantern_proxy.embed import Embedder, available

    if config.embed.enabled == "off" or not available():
        yield None
        return
    with Embedder.of(config.embed) as embedder:
        embedder.start()
        yield embedder


def plain(value: Any) -> Any:
    """What json does not know: dataclasses, bytes, paths, sets."""
    from dataclasses import asdict, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, bytes):
        return value.hex()
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


_EMPTY = "it is empty; name one"
_EMPTY_OPTION = "it is empty; leave it out, or name one"


def _whole(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """`value`, unless it is the empty text. `--project "$PROJECT"` without such a variable is to remove nothing, and
    `--archive "$ARCHIVE"` not to mean this folder."""
    if value == "":
        raise click.BadParameter(_EMPTY if param is None or param.required else _EMPTY_OPTION, ctx, param)
    return value


class Place(click.Path):
    """A path that is not empty."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(path_type=Path, **rules)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        value = _whole(value, param, ctx)
        path = Path(os.fsdecode(value))
        if not self.file_okay and path.is_file():
            self.fail(f"{path} is a file; name a folder", param, ctx)
        if not self.dir_okay and path.is_dir():
            self.fail(f"{path} is a folder; name a file", param, ctx)
        return super().convert(value, param, ctx)


class NewFile(Place):
    """A file to write. What is wrong with it is told at once, and not when what was to be written is made.

    may_exist: it is written over; else it is refused
    """

    def __init__(self, *, may_exist: bool = False) -> None:
        super().__init__(dir_okay=False, writable=True)
        self._may_exist = may_exist

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not self._may_exist:
            self.fail(f"{path} exists; remove it first, or name another file", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path}: the folder {path.parent} does not exist", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"{path}: the folder {path.parent} cannot be written", param, ctx)
        return path


class Number(click.FloatRange):
    """A number within a range: not NaN, which no comparison keeps out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a valid number", param, ctx)
        return number


class Name(click.types.StringParamType):
    """Text that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_whole(value, param, ctx), param, ctx)


FILE, FOLDER, NEW_FILE, NAME = Place(dir_okay=False), Place(file_okay=False), NewFile(), Name()

_CONFIG = click.option("--config", type=FILE, envvar="LANTERN_CONFIG", help="A settings file; see config.example.yaml.")
_SHUT_TOO = Place(dir_okay=False, readable=False)  # who opens it says more of what may not be read
_ARCHIVE = click.option("--archive", type=_SHUT_TOO, help="The archive, instead of the configured one (./lantern.db).")
_ARCHIVE_KEY = click.option(
    "--archive-key-env", type=NAME, help="Variable with the key of an encrypted archive, instead of the configured one."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def settled(command: Command) -> Command:
    """Give a command --config, --archive, --archive-key-env and --json, and hand them to it as one Settings."""
    return _CONFIG(_ARCHIVE(_ARCHIVE_KEY(_JSON(_taking_settings(command)))))


def configured(command: Command) -> Command:
    """The same for a command that looks into no archive: without --archive."""
    return _CONFIG(_JSON(_taking_settings(command)))


def _taking_settings(command: Command) -> Command:
    from functools import wraps

    @wraps(command)
    def run(
        config: Path | None,
        as_json: bool,
        archive: Path | None = None,
        archive_key_env: str | None = None,
        **others: Any,
    ) -> Any:
        return command(Settings(config, archive, as_json, archive_key_env), **others)

    return run  # type: ignore[return-value]


tenant_option = click.option("--tenant", type=NAME, help="Only this tenant; all by default.")


def limit_option(default: int, what: str) -> Callable[[Command], Command]:
    """--limit of a command that lists `what`."""
    most = click.IntRange(1, 1_000_000)  # SQLite takes no number beyond 64 bits
    return click.option("-n", "--limit", default=default, show_default=True, type=most, help=f"Most {what} to show.")


def tenants(archive: "Archive", only: str | None) -> list["TenantArchive"]:
    """What each tenant has, last seen first; one of them when `only` names it."""
    known = [each.id for each in archive.tenants()]
    if only is not None and only not in known:
        raise click.ClickException(f"tenant {only} has nothing in {archive.path}; `lantern status` lists the tenants")
    return [archive.of(each) for each in known if only in (None, each)]
