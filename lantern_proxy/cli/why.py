"""`lantern why`: what was restored into a request, or would be into one that nobody has sent."""

from typing import TYPE_CHECKING, Any, BinaryIO

import click

from lantern_proxy.cli.archive import sessions_named
from lantern_proxy.cli.frame import NAME, Settings, json_value, tenant_option, tenants, with_settings

if TYPE_CHECKING:
    from lantern_proxy.archive import TenantArchive
    from lantern_proxy.turn import Preview

_WARM_S = 30.0
"""Most seconds to wait for the embedder: a person is waiting, not a client."""


@click.command()
@with_settings
@tenant_option
@click.argument("request", type=NAME, default="last")
@click.option(
    "--dry-run", "file", type=click.File("rb"), help="A request body (- for standard input): what would it get?"
)
@click.option("--project", help="With `last` or --dry-run: of this project.")
@click.option(
    "--session", type=NAME, help="With --dry-run: of which session it is the next request; found by itself otherwise."
)
def why(
    settings: Settings,
    tenant: str | None,
    request: str,
    file: BinaryIO | None,
    project: str | None,
    session: str | None,
) -> None:
    """Explain a REQUEST (x-lantern-request): what was restored, and why. `last`: the newest that got a block.

    With --dry-run, say what a request body would get, without sending or archiving it.

    \b
    Example: lantern why last
             lantern why --dry-run request.json
    """
    from lantern_proxy.cli import render_why

    if session and file is None:
        raise click.UsageError("--session goes with --dry-run; `lantern show SESSION` tells of a session")
    if file is not None and request != "last":
        raise click.UsageError(f"{request} was sent already, and --dry-run is of what was not; give one of them")
    if project is not None and (session or (file is None and request != "last")):
        raise click.UsageError("--project says where to look for `last`, or for the session of --dry-run; leave it out")
    if file is not None:
        preview = _dry_run(settings, file.read(), tenant, project, session)
        settings.print_json(json_value(preview)) if settings.as_json else render_why.preview(preview)
        return
    with settings.open() as archive:
        owners = tenants(archive, tenant)
        if request == "last":
            request = newest_restored(owners, project)
        found = next((explained for owner in owners if (explained := owner.why(request))), None)
    if found is None:
        raise click.ClickException(
            f"request {request} is not in the archive; x-lantern-request of an answer has its id"
        )
    settings.print_json(found) if settings.as_json else render_why.why(found)


def newest_restored(owners: list["TenantArchive"], project: str | None) -> str:
    """The newest request, of a project if one is named, with a block of its own."""
    latest = [found for owner in owners if (found := owner.last_restored(project))]
    if not latest:
        of_whom = f" of {owners[0].tenant}" if len(owners) == 1 else ""
        of_whom += f" in project {project}" if project else ""
        raise click.ClickException(f"no request{of_whom} got a block yet; `lantern why ID` explains any request")
    return max(latest, key=lambda found: found[1])[0]


def _dry_run(
    settings: Settings, body: bytes, tenant: str | None, project: str | None, session: str | None
) -> "Preview":  # fmt: skip
    """What `body`, the JSON of a request in any of the three protocols, would get, by the proxy's own code.

    project: where its session is searched; a named `session` has its own
    """
    import asyncio

    with settings.open() as archive:
        if session:
            named = sessions_named(archive, tenant, session)
            session, projects = named[0][1].id, [(owner.tenant, row.project) for owner, row in named]
        else:
            projects = [(owner.tenant, project or "") for owner in tenants(archive, tenant)]
    if not projects:
        raise click.ClickException(f"nothing is archived in {archive.path}; there is nothing that could come back")
    try:
        found = asyncio.run(_previews(settings.load(), body, projects, session or ""))
    except ValueError as error:
        raise click.ClickException(f"this is no request: {error}") from None
    return _best_fit(found)


def _best_fit(found: "list[Preview]") -> "Preview":
    """The session that the request continues; of several the one of which it lacks most, which is reported."""
    fitting = sorted((each for each in found if each.session), key=lambda each: -each.gone)
    if len(fitting) > 1:
        other_tenants = ", ".join(each.tenant for each in fitting[1:])
        click.echo(
            f"taken as a request of tenant {fitting[0].tenant}; it fits {other_tenants}, too: --tenant says whose",
            err=True,
        )
    return (fitting or found)[0]


async def _previews(config: Any, body: bytes, tenants: list[tuple[str, str]], session: str) -> "list[Preview]":
    import asyncio

    from lantern_proxy.proxy import Proxy

    proxy = Proxy(config)
    try:
        if proxy.embedder is not None:
            await asyncio.to_thread(proxy.embedder.wait, _WARM_S)
        return [
            await proxy.preview(body, tenant=tenant, project=project, session=session) for tenant, project in tenants
        ]
    finally:
        await asyncio.to_thread(proxy.close)
