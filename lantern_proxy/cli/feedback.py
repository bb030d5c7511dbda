"""The commands by which a person corrects the memory: feedback, pin, edit, marks."""

import sys
from typing import TYPE_CHECKING, Any

import click

from lantern_proxy.cli.frame import NAME, Settings, json_value, limit_option, tenant_option, tenants, with_settings
from lantern_proxy.cli.why import newest_restored

if TYPE_CHECKING:
    from lantern_proxy.archive import Archive, TenantArchive
    from lantern_proxy.turn import Passage


@click.command()
@with_settings
@tenant_option
@click.argument("request", type=NAME)
@click.argument("passage", type=int)
@click.argument("verdict", metavar="VERDICT", type=click.Choice(["useful", "wrong", "outdated", "none"]))
@click.option("--project", help="With `last`: of this project.")
def feedback(
    settings: Settings, tenant: str | None, request: str, passage: int, verdict: str, project: str | None
) -> None:
    """Judge a PASSAGE that REQUEST restored. What is wrong or outdated is not restored again; `none` takes it back.

    `lantern why` shows the numbers of passages. REQUEST may be `last`, or `-` for a passage that a search showed.

    \b
    Example: lantern feedback req_d75de9d10ec764dc 17 outdated
    """
    import time

    from lantern_proxy import reinforce

    known = reinforce.Rates.of(settings.load().reinforce)
    if project is not None and request != "last":
        raise click.UsageError("--project says where to look for `last`; leave it out")
    with settings.open(write=True) as archive:
        owner = _owner(archive, tenant, passage)
        if request == "last":
            request = newest_restored([owner], project)
        judged = owner.feedback(
            "" if request == "-" else request,
            passage,
            "" if verdict == "none" else verdict,  # type: ignore[arg-type]
            now=time.time(),
            settle=lambda confidence, success, used: reinforce.settle(confidence, success, used, known),
        )
    _print_passage(settings, owner, judged)


@click.command()
@with_settings
@tenant_option
@click.argument("passage", type=int)
@click.option("--off", is_flag=True, help="Take the pin back.")
def pin(settings: Settings, tenant: str | None, passage: int, off: bool) -> None:
    """Prefer a PASSAGE in restores, and never prune it.

    \b
    Example: lantern pin 17
    """
    import time

    with settings.open(write=True) as archive:
        owner = _owner(archive, tenant, passage)
        pinned = (owner.unpin if off else owner.pin)(passage, now=time.time())
    _print_passage(settings, owner, pinned)


@click.command()
@with_settings
@tenant_option
@click.argument("passage", type=int)
@click.option("--text", help="What it should say. Without it, $EDITOR opens.")
@click.option("--history", is_flag=True, help="Show what it said before, change nothing.")
def edit(settings: Settings, tenant: str | None, passage: int, text: str | None, history: bool) -> None:
    """Correct a PASSAGE: from now on the correction is searched and restored. What was said stays in its history.

    \b
    Example: lantern edit 17 --text "The staging database listens on 5433."
    """
    import time

    from lantern_proxy.chunk import reword
    from lantern_proxy.cli import render

    if history and text is not None:
        raise click.UsageError("--history changes nothing; leave it or --text out")
    with settings.open(write=not history) as archive:
        owner = _owner(archive, tenant, passage)
        if history:
            edits = owner.history(passage)
            for past in edits:
                settings.print_json(json_value(past)) if settings.as_json else render.correction(past)
            if not edits and not settings.as_json:
                click.echo(f"passage {passage} was never corrected")
            return
        before = owner.passages_by_id([passage])[passage]
        if text is None:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                raise click.UsageError("edit needs --text where there is no terminal to open an editor in")
            text = click.edit(before.text)
        if text is None or text.strip() == before.text.strip():
            raise click.ClickException(f"passage {passage} was left as it is")
        corrected = owner.edit(reword(before, text.strip()), now=time.time())
    _print_passage(settings, owner, corrected)


@click.command()
@with_settings
@tenant_option
@limit_option(50, "passages")
def marks(settings: Settings, tenant: str | None, limit: int) -> None:
    """List the passages that somebody judged, pinned or corrected, changed last first.

    \b
    Example: lantern marks --json
    """
    from lantern_proxy.cli import render

    with settings.open() as archive:
        found = [(owner, marked) for owner in tenants(archive, tenant) for marked in owner.marked(limit)]
    found = sorted(found, key=lambda pair: -pair[1].changed_at)[:limit]
    if settings.as_json:
        for owner, marked in found:
            settings.print_json(_row(owner, marked.passage) | {"changed_at": marked.changed_at, "edits": marked.edits})
    else:
        render.marks([marked for _, marked in found])


def _owner(archive: "Archive", tenant: str | None, passage: int) -> "TenantArchive":
    """The tenant that has the passage: ids are unique in an archive."""
    owner = next((each for each in tenants(archive, tenant) if each.passages_by_id([passage])), None)
    if owner is None:
        raise click.ClickException(f"there is no passage {passage}; `lantern search` and `lantern why` show numbers")
    return owner


def _row(owner: "TenantArchive", passage: "Passage") -> dict[str, Any]:
    names = ("id", "session", "turn", "speaker", "created_at", "confidence", "success", "verdict", "pinned", "text")
    return {"tenant": owner.tenant, **{name: getattr(passage, name) for name in names}}


def _print_passage(settings: Settings, owner: "TenantArchive", passage: "Passage") -> None:
    from lantern_proxy.cli import render

    settings.print_json(_row(owner, passage)) if settings.as_json else render.judged(passage)
