"""What all commands share: common options, opening the archive, and error messages."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, TenantArchive
    from lantern_proxy.config import ArchiveConfig, Config
    from lantern_proxy.embed import Embedder

Command = TypeVar("Command", bound=Callable[..., Any])

_CONTROLS = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)] if chr(code) not in "\n\t"}
"""Characters that a terminal may interpret -> how they are shown, for str.translate()."""
_EXITS = {"ConfigError": 2, "ArchiveError": 1, "ModelError": 1, "OSError": 1}
"""Errors that are reported in one line, with their exit codes. By name, so that reporting one imports nothing."""


class Group(click.Group):
    """A group whose usage errors name their command, which click's parser omits in some cases."""

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
    """The outermost group: errors are one lower-case line."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _exit_on_broken_pipe():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _exit_on_broken_pipe():
            return super().invoke(ctx)

    def main(self, *args: Any, **options: Any) -> Any:
        options["standalone_mode"] = False
        _prepare_streams()
        try:
            code = super().main(*args, **options)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.UsageError as error:
            wrong = _usage_message(error)
            command = error.ctx.command_path if error.ctx else "lantern"
            self._exit_with(f"{wrong[:1].lower()}{wrong[1:]}; see `{command} --help`", error.exit_code)
        except click.ClickException as error:
            self._exit_with(error.format_message(), error.exit_code)
        except click.Abort:
            self._exit_with("stopped", 1)
        except Exception as error:
            if os.environ.get("LANTERN_DEBUG"):
                raise
            exits = [_EXITS[each.__name__] for each in type(error).__mro__ if each.__name__ in _EXITS]
            fault = f"a fault in lantern itself, {type(error).__name__}: {error}; LANTERN_DEBUG=1 shows where"
            self._exit_with(_message_of(error) if exits else fault, exits[0] if exits else 1)
        sys.exit(code if isinstance(code, int) else 0)

    def _exit_with(self, message: str, code: int) -> None:
        echo(f"lantern: {' '.join(message.split())}", err=True)
        sys.exit(code)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line that may hold something from an archive or a log, such as the name of a tenant."""
    click.echo(clean(text), err=err)


def clean(text: str) -> str:
    """`text` without anything that a terminal would interpret or could not print."""
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode()


@contextmanager
def _exit_on_broken_pipe() -> Iterator[None]:
    """End by SIGPIPE, silently, when the reader is gone, as with `| head`, like other programs do. Python ignores that
    signal and raises this error instead, so that open files are closed first."""
    try:
        yield
    except BrokenPipeError:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        raise


@contextmanager
def naming_file(place: Path | str) -> Iterator[None]:
    """Errors in this block name `place`: for a full disk the system gives no name."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(place)
        raise


def _usage_message(error: click.UsageError) -> str:
    """What is wrong with an argument. For a number click says "is not a valid integer range", or "0<=x<=65535"."""
    message = error.format_message().rstrip(".")
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        message = re.sub(
            r" is not (a valid|in the range) .*", f" is not {_number_range(kind)}", message, flags=re.DOTALL
        )
    return message


def _number_range(kind: click.types.IntParamType | click.types.FloatParamType) -> str:
    """The numbers that `kind` accepts: "a whole number from 0 to 65,535"."""
    name = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    above = getattr(kind, "min_open", False)
    if low is None:
        return name
    if high is None:
        return f"{name} above {low:,}" if above else f"{name} from {low:,} on"
    return f"{name} above {low:,}, up to {high:,}" if above else f"{name} from {low:,} to {high:,}"


def _prepare_streams() -> None:
    """Discard output if the parent closed an output stream (`>&-`), for which Python has None; a closed input is empty.
    Characters that a non-UTF-8 terminal lacks are shown as \\xe4."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif stream.errors == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _message_of(error: Exception) -> str:
    """The message of an error; for a system error the file and the reason, without the number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    return str(error)


class Settings(Struct, frozen=True):
    """The values of a command's --config, --archive, --archive-key-env and --json."""

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
        """The path of the archive, which must exist, and its key."""
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
        """The archive, which must exist. It is read-only unless `write`."""
        from lantern_proxy.archive import Archive

        settings = self.file()
        with Archive(
            settings.path, synchronous=settings.synchronous, read_only=not write, key=settings.key()
        ) as archive:
            yield archive

    def print_json(self, row: Any) -> None:
        """Print one JSON line."""
        click.echo(json.dumps(row, default=json_value))


def confirm(question: str) -> None:
    """Ask for confirmation; click.Abort for a no. Without a terminal, say which option confirms."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort:
        if not sys.stdin.isatty():
            raise click.ClickException(
                "nobody said yes, and nothing was removed; --yes goes on without asking"
            ) from None
        raise


@contextmanager
def removing(archive: "Archive", what: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar for removals; says how to continue if one is interrupted, or leaves something in the log."""
    from lantern_proxy.cli.render import counting

    try:
        with counting(what, quiet=quiet) as advance:
            yield advance
    except KeyboardInterrupt:
        message = "stopped in the middle: what was not removed yet is still there; the same command removes the rest"
        raise click.ClickException(message) from None
    if archive.unwiped:
        click.echo(
            f"{archive.path}-wal still holds what was removed, since another program reads the archive; a running "
            "proxy empties it within ten minutes, this command when it is run again",
            err=True,
        )


def finish_wiping(archive: "Archive", what: str, *, quiet: bool) -> None:
    """Complete an interrupted removal, for which the same command may find nothing more to remove."""
    if archive.unwiped:
        with removing(archive, what, quiet=quiet) as advance:
            archive.wipe(advance)


@contextmanager
def embedding(config: "Config") -> Iterator["Embedder | None"]:
    """The configured embedder, started but not waited for; None if it is disabled or not installed."""
    from lantern_proxy.embed import Embedder, available

    if config.embed.enabled == "off" or not available():
        yield None
        return
    with Embedder.of(config.embed) as embedder:
        embedder.start()
        yield embedder


def json_value(value: Any) -> Any:
    """A JSON value for types that json does not support: structs, bytes, paths, sets."""
    from msgspec import Struct, structs

    if isinstance(value, Struct):
        return structs.asdict(value)
    if isinstance(value, bytes):
        return value.hex()
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


_EMPTY = "it is empty; name one"
_EMPTY_OPTION = "it is empty; leave it out, or name one"


def _not_empty(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """`value`, unless it is empty: `--project "$PROJECT"` with an unset variable must remove nothing, and `--archive
    "$ARCHIVE"` must not mean the current folder."""
    if value == "":
        raise click.BadParameter(_EMPTY if param is None or param.required else _EMPTY_OPTION, ctx, param)
    return value


class Place(click.Path):
    """A non-empty path."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(path_type=Path, **rules)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        value = _not_empty(value, param, ctx)
        path = Path(os.fsdecode(value))
        if not self.file_okay and path.is_file():
            self.fail(f"{path} is a file; name a folder", param, ctx)
        if not self.dir_okay and path.is_dir():
            self.fail(f"{path} is a folder; name a file", param, ctx)
        return super().convert(value, param, ctx)


class NewFile(Place):
    """A file to write. Problems with it are reported at once, and not after its contents were computed.

    may_exist: it is overwritten; else it is refused
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
    """A number within a range: not NaN, which passes every comparison."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is not a valid number", param, ctx)
        return number


class Name(click.types.StringParamType):
    """Non-empty text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_not_empty(value, param, ctx), param, ctx)


FILE, FOLDER, NEW_FILE, NAME = Place(dir_okay=False), Place(file_okay=False), NewFile(), Name()

_CONFIG = click.option("--config", type=FILE, envvar="LANTERN_CONFIG", help="A settings file; see config.example.yaml.")
_UNREADABLE_TOO = Place(dir_okay=False, readable=False)  # who opens it says more of what may not be read
_ARCHIVE = click.option(
    "--archive", type=_UNREADABLE_TOO, help="The archive, instead of the configured one (./lantern.db)."
)
_ARCHIVE_KEY = click.option(
    "--archive-key-env", type=NAME, help="Variable with the key of an encrypted archive, instead of the configured one."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def with_settings(command: Command) -> Command:
    """Add --config, --archive, --archive-key-env and --json to a command, which gets them as one Settings."""
    return _CONFIG(_ARCHIVE(_ARCHIVE_KEY(_JSON(_passing_settings(command)))))


def with_config(command: Command) -> Command:
    """The same for a command without an archive: no --archive."""
    return _CONFIG(_JSON(_passing_settings(command)))


def _passing_settings(command: Command) -> Command:
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
    """The contents of each tenant, last seen first; of a single one if `only` names it."""
    known = [each.id for each in archive.tenants()]
    if only is not None and only not in known:
        raise click.ClickException(f"tenant {only} has nothing in {archive.path}; `lantern status` lists the tenants")
    return [archive.of(each) for each in known if only in (None, each)]
