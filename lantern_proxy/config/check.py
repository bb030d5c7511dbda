"""Checks of settings: a value against its field's type, and the error that names the remedy.

    class ServerConfig(Section):
        port: Annotated[int, Within(0, 65_535)] = 8484

Every section converts and checks its fields by their types, whether it is read from YAML or built in code.
"""

import math
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit


class ConfigError(ValueError):
    """A setting that cannot be used. The message names the place, the value and the way out.

    place: dotted, "restore.budget_chars"; empty if the whole file is meant
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place} {problem}".strip())
        self.place, self.problem = place, problem

    def under(self, parent: str) -> "ConfigError":
        """The same error with `parent` before its place: `chars` becomes `restore.chars`."""
        glue = "." if parent and self.place and not self.place.startswith("[") else ""
        return ConfigError(parent + glue + self.place, self.problem)


def secret(place: str, file: str, variable: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """(a secret from the file or environment variable named by settings, the name of its place for an error).

    place: prefix of the settings `<place>_file` and `<place>_env`; the file counts if both are set
    returns: ("", ...) if the environment variable is not set. ConfigError if the file cannot be read.
    """
    if not file:
        return environ.get(variable, ""), f"{place}_env {variable}"
    source = f"{place}_file {file}"
    try:
        return Path(file).expanduser().read_text("utf-8").strip(), source
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(source, f"cannot be read ({why}); name a file that this user may read") from None


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a number, both included. `unit` is for the error message."""

    low: float
    high: float
    unit: str = ""

    @property
    def bounds(self) -> str:
        """`0 to 60,000 milliseconds`"""
        return f"{self.low:,.15g} to {self.high:,.15g} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Matches:
    """A text that must match `pattern`. `secret`: an error does not repeat the value, which may be a credential."""

    pattern: str
    remedy: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Url:
    """Marks a text as an http(s) URL; trailing slashes are removed."""

    optional: bool = False


class Section:
    """Base of all sections: checks and converts every field by its type, however it is constructed."""

    __slots__ = ()

    def __post_init__(self) -> None:
        section: Any = type(self)
        for name, hint in hints_of(section).items():
            object.__setattr__(self, name, convert(getattr(self, name), hint, name))


@cache
def hints_of(section: type) -> dict[str, Any]:
    """Field -> type of a section, in order."""
    hints = get_type_hints(section, include_extras=True)
    return {f.name: hints[f.name] for f in fields(section)}


def convert(value: Any, hint: Any, place: str) -> Any:
    """`value` converted to the type `hint`. ConfigError at `place` if that is impossible."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        return _limit(_bounded(value, arguments[0], arguments[1], place), arguments[1], place)
    if is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else _section(value, hint, place)
    if origin is Literal:
        return _choice(value, arguments, place)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(value, arguments, place)
    if origin is not None and issubclass(origin, Sequence):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigError(place, f"is {shown(value)}; use a list")
        return tuple(convert(each, arguments[0], f"{place}[{at}]") for at, each in enumerate(value))
    return _scalar(value, hint, place)


def _section(value: Any, section: type, place: str) -> Any:
    known = list(hints_of(section))
    if value is None:
        return section()
    if not isinstance(value, Mapping):
        raise ConfigError(place, f"is {shown(value)}; use settings: {', '.join(known)}")
    for key in value:
        if key not in known:
            raise ConfigError(_join(place, key), f"is not a setting; did you mean {_nearest(key, known)}?")
    try:
        return section(**{key: each for key, each in value.items() if each is not None})
    except ConfigError as error:
        raise error.under(place) from None


def _mapping(value: Any, arguments: tuple[Any, ...], place: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(place, f"is {shown(value)}; use `name: value` pairs, or {{}} for none")
    if get_origin(arguments[0]) is Literal:
        known = [str(each) for each in get_args(arguments[0])]
        for key in value:
            if key not in known:
                raise ConfigError(_join(place, key), f"is not known; did you mean {_nearest(key, known)}?")
    return {
        convert(key, arguments[0], _join(place, key)): convert(each, arguments[1], _join(place, key))
        for key, each in value.items()
    }


def _scalar(value: Any, hint: Any, place: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if hint is Path and isinstance(value, str | Path) and str(value).strip():
        return Path(value).expanduser()
    if isinstance(value, hint) and hint is not float and not (hint is int and isinstance(value, bool)):
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path", str: "text"}[hint]
    raise ConfigError(place, f"is {shown(value)}; use {wanted}")


def _bounded(value: Any, hint: Any, rule: object, place: str) -> Any:
    """`value` converted; where it is no number the error names the bounds, too: they have the unit."""
    try:
        return convert(value, hint, place)
    except ConfigError as error:
        if isinstance(rule, Within):
            raise ConfigError(place, f"{error.problem}, {rule.bounds}") from None
        raise


def _choice(value: Any, choices: tuple[Any, ...], place: str) -> Any:
    if isinstance(value, bool):  # YAML reads an unquoted on or off as a boolean
        value = "on" if value else "off"
    if value in choices:
        return value
    close = get_close_matches(str(value), choices, n=1)
    raise ConfigError(place, f"is {shown(value)}; use {' or '.join(close or choices)}")


def _limit(value: Any, rule: object, place: str) -> Any:
    if isinstance(rule, Within) and not rule.low <= value <= rule.high:
        raise ConfigError(place, f"is {value}; use {rule.bounds}")
    if isinstance(rule, Matches) and not re.fullmatch(rule.pattern, value):
        problem = "is not in its form" if rule.secret else f"is {shown(value)}"
        raise ConfigError(place, f"{problem}; {rule.remedy}")
    if isinstance(rule, Url) and not (rule.optional and value == ""):
        return _url(value, place)
    return value


_ENDPOINT = re.compile("/(chat/completions|responses|messages)/*$")
"""What clients add to a base URL, and people paste with it."""


def _url(value: str, place: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", value):
        raise ConfigError(place, f"is {shown(value)}; use http://host/path or https://host/path")
    base = _ENDPOINT.sub("", re.split("[?#]", value, maxsplit=1)[0])
    if base != value:
        raise ConfigError(place, f"is {shown(value)}; use {base} (requests bring the rest themselves)")
    if "@" in parts.netloc:
        raise ConfigError(place, "has a password in it; leave it out, keys are the client's own")
    return value.rstrip("/")


def bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _join(place: str, key: object) -> str:
    return f"{place}.{key}" if place else str(key)


def _nearest(key: object, known: Sequence[str]) -> str:
    """The closest known key, else all of them, for an error message."""
    return " or ".join(get_close_matches(str(key), known, n=1) or known)


def shown(value: Any) -> str:
    text = "empty" if value is None or value == "" else repr(value)
    if isinstance(value, dict | list | types.MappingProxyType):
        text = "settings" if not isinstance(value, list) else "a list"
    return text if len(text) <= 60 else text[:57] + "..."
