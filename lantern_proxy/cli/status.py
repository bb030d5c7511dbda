"""`lantern status`: what is archived, for whom, what happened in the last day, and whether a proxy runs."""

import shutil
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from lantern_proxy.cli.frame import Settings, clean
from lantern_proxy.cli.health import health
from lantern_proxy.cli.render import console, counted, table, when

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive

_DAY_S = 86_400.0
_EVERY_S = 2.0
_TENANT_COUNTS = ("sessions", "messages", "passages")
_HALF_INDEXED = (
    "search: the full-text index is not whole; a `lantern reindex` is at it, or goes on when it is run again, "
    "as a running proxy does by itself"
)
_DAY_COUNTS = ("requests", "losses", "restores")


def run(settings: Settings, *, watch: bool) -> None:
    """Print the status once, or repeatedly until Ctrl-C: in place on a terminal that has room for it, else one below
    the other."""
    out = console()
    is_in_place = out.is_terminal and shutil.get_terminal_size().columns >= out.width
    try:
        if watch and is_in_place and not settings.as_json:
            with Live(_rendered(_status(settings)), console=out, auto_refresh=False) as live:
                while True:
                    time.sleep(_EVERY_S)
                    live.update(_rendered(_status(settings)), refresh=True)
        while True:
            current = _status(settings)
            settings.print_json(current) if settings.as_json else out.print(_rendered(current), soft_wrap=True)
            if not watch:
                return
            time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        return


def _status(settings: Settings) -> dict[str, Any]:
    report = health(settings.load())
    from lantern_proxy.archive.file import size_bytes

    with settings.open() as archive:
        return {
            "archive": archive.path,
            "version": archive.version,
            "size_bytes": size_bytes(archive.path),
            "vectors": archive.model,
            "degraded": [*archive.degraded, *([_HALF_INDEXED] if archive.is_reindexing else [])],
            "tenants": archive.tenants(),
            "day": _day(archive),
            "proxy": report,
        }


def _day(archive: "Archive") -> dict[str, dict[str, Any]]:
    """tenant -> events of its requests in the last 24 hours."""
    now = time.time()
    found = {}
    for tenant in archive.tenants():
        sums = archive.of(tenant.id).overview(now - _DAY_S, now, buckets=1)
        names = ("requests", "losses", "restores", "chars", "ms_p50", "ms_p95", "degraded")
        found[tenant.id] = {name: getattr(sums, name) for name in names}
    return found


def _rendered(current: Mapping[str, Any]) -> RenderableType:
    size = f"{current['size_bytes'] / 1e6:,.1f} MB, version {current['version']}"
    health, vectors = current["proxy"], current["vectors"]
    lines: list[RenderableType] = [
        Text(f"archive  {current['archive']} ({size})"),
        Text("proxy    " + (f"running at {health['url']}: {health['status']}" if health else "not running")),
        Text(f"vectors  {vectors[0] if vectors else 'none yet'}"),
        *(Text(f"lacking  {problem}", style="yellow") for problem in current["degraded"]),
    ]
    if not current["tenants"]:
        return Group(*lines, Text("nothing is archived yet: point a client at the proxy"))
    kept = table("tenant", *_TENANT_COUNTS, "last seen", numbers=_TENANT_COUNTS)
    done = table(
        "in the last 24 hours", *_DAY_COUNTS, "ms p95", numbers=(*_DAY_COUNTS, "ms p95")
    )  # beside the rest: too wide
    for each in current["tenants"]:
        day, name = current["day"][each.id], clean(each.id)
        seen = when(each.last_at) if each.last_at else "never"
        kept.add_row(Text(name), *(f"{getattr(each, count):,}" for count in _TENANT_COUNTS), seen)
        done.add_row(Text(name), *(f"{day[count]:,}" for count in _DAY_COUNTS), f"{day['ms_p95']:.1f}")
        lines += [
            Text(f"degraded {clean(reason)}: {counted(count, 'request')} today, {name}", style="yellow")
            for reason, count in day["degraded"].items()
        ]
    return Group(*lines, kept, done)
