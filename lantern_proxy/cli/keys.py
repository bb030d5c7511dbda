"""`lantern keys`: proxy keys for deployments that other machines can reach."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lantern_proxy.cli.frame import NAME, Group, Settings, with_settings

if TYPE_CHECKING:
    from lantern_proxy.access_keys import Keyring, ProxyKey


@click.group(cls=Group)
def keys() -> None:
    """Make, list and revoke proxy keys. As soon as there is one, nobody uses the proxy without one.

    \b
    Example: lantern keys add alice --upstream-key-env OPENAI_API_KEY
    """


@keys.command()
@with_settings
@click.argument("name", type=NAME)
@click.option("--tenant", type=NAME, help="Whose archive it opens; the NAME by default. Several keys may share one.")
@click.option(
    "--upstream-key-env",
    "variables",
    type=NAME,
    multiple=True,
    help="Variable in which `lantern serve` finds the upstream's key: VAR, openai=VAR or anthropic=VAR.",
)
@click.option(
    "--upstream-key-file",
    "files",
    type=NAME,
    multiple=True,
    help="The same from a file: PATH, openai=PATH, anthropic=PATH.",
)
def add(settings: Settings, name: str, tenant: str | None, variables: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Make a key for NAME, a person or a program, and print it. It is shown only this once.

    With an upstream key it is all that its holder needs. Without one the holder sends it in x-lantern-key, besides the
    provider's key. To replace a key, add one with the same --tenant, then revoke the old one: the memory stays.

    \b
    Example: lantern keys add alice-2 --tenant alice --upstream-key-env anthropic=ANTHROPIC_API_KEY
    """
    import time

    upstream: dict[str, str] = {}
    for provider, source in (*map(_variable, variables), *map(_file, files)):
        if provider in upstream:
            raise click.UsageError(f"two upstream keys are given for {provider}, {upstream[provider]} and {source}")
        upstream[provider] = source
    secret = _keyring(settings).add(name, tenant=tenant or name, upstream=upstream, now=time.time())
    if settings.as_json:
        settings.print_json({"name": name, "tenant": tenant or name, "upstream": upstream, "key": secret})
    else:
        click.echo(secret)
        how = "as its API key" if upstream else "in the header x-lantern-key, besides its provider's key"
        click.echo(f"{name} sends this {how}; it is not shown again, and Lantern keeps its hash alone", err=True)


@keys.command("list")
@with_settings
def list_keys(settings: Settings) -> None:
    """List all keys, without the keys.

    \b
    Example: lantern keys list --json
    """
    from lantern_proxy.access_keys import why_closed
    from lantern_proxy.cli import render

    known = _keyring(settings).all()
    if settings.as_json:
        for key in known:
            settings.print_json(_as_json(key))
        return
    if not known:
        nobody = why_closed(settings.load())
        click.echo(nobody or "no keys: the proxy asks nobody who they are, and serves this machine only")
        return
    made = render.table("key", "tenant", "made", "revoked", "upstream key")
    for key in known:
        mapped = ", ".join(f"{provider}: {source}" for provider, source in key.upstream.items()) or "the client's own"
        revoked = render.when(key.revoked_at) if key.revoked_at else ""
        made.add_row(key.name, key.tenant, render.when(key.created_at), revoked, mapped)
    render.console().print(made)


@keys.command()
@with_settings
@click.argument("name", type=NAME)
def revoke(settings: Settings, name: str) -> None:
    """Let the holder of key NAME in no more. A running proxy knows within a second. What it archived stays.

    \b
    Example: lantern keys revoke alice
    """
    import time

    key = _keyring(settings).revoke(name, now=time.time())
    settings.print_json(_as_json(key)) if settings.as_json else click.echo(f"{name} is revoked")


def _keyring(settings: Settings) -> "Keyring":
    from lantern_proxy.access_keys import Keyring, keys_file

    return Keyring(keys_file(settings.load()))


def _as_json(key: "ProxyKey") -> dict[str, object]:
    row = {"name": key.name, "tenant": key.tenant, "upstream": dict(key.upstream)}
    return {**row, "created_at": key.created_at, "revoked_at": key.revoked_at or None}


def _variable(text: str) -> tuple[str, str]:
    """openai=VAR -> ("openai", "env:VAR"); a plain VAR is for any upstream."""
    provider, equals, variable = text.rpartition("=")
    return (provider if equals else "any"), f"env:{variable}"


def _file(text: str) -> tuple[str, str]:
    """The same for a file, whose name may contain a =; made absolute, since `lantern serve` may start in another
    folder."""
    from lantern_proxy.access_keys import PROVIDERS

    provider, equals, path = text.partition("=")
    known = bool(equals) and provider in PROVIDERS
    place = Path(path if known else text).expanduser().absolute()
    if not place.is_file():
        click.echo(f"lantern: {place} is not there yet; until it is, requests with this key are refused", err=True)
    return (provider if known else "any"), f"file:{place}"
