"""Reads a config file. A separate module, so that a start without one does not import yaml."""

from pathlib import Path
from typing import Any

import yaml

from lantern_proxy.config.check import ConfigError, shown


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a duplicate key, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise ConfigError(f"line {key.start_mark.line + 1}:", f"{key.value} is set twice; keep one of them")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _not_yaml(error: Exception) -> str:
    """Where a file stops being valid YAML, and why."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return f"is not YAML: {' '.join(str(error).split())}"
    hint = "; indent with spaces" if "'\\t'" in problem else ""
    return f"is not YAML: {problem} (line {mark.line + 1}, column {mark.column + 1}){hint}"


def read(path: Path) -> dict[str, Any]:
    """The sections of a config file. Raises ConfigError."""
    try:
        raw = yaml.load(path.read_text("utf-8"), _Loader)  # nosec B506
    except FileNotFoundError:
        raise ConfigError(f"{path}:", "no such file; copy config.example.yaml, or leave --config away") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}:", f"cannot be read: {error}; use a readable UTF-8 text file") from None
    except ConfigError as error:
        raise ConfigError(f"{path}:", str(error)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}:", _not_yaml(error)) from None
    if raw is not None and not isinstance(raw, dict):
        raise ConfigError(f"{path}:", f"holds {shown(raw)}; use sections, such as `restore:`, with settings in them")
    return raw or {}
