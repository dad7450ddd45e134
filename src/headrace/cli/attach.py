"""``headrace attach PATH URL``."""

from __future__ import annotations

import click


@click.command()
@click.argument("path")
@click.argument("url")
@click.option("--read-only", is_flag=True, help="Refuse every write and delete below PATH.")
@click.option("--endpoint", help="Address of the store, for stores other than the provider's own.")
@click.option("--region")
@click.option("--profile", help="Section of ~/.aws/credentials and ~/.aws/config to use.")
@click.option("--role-arn", help="Role to assume.")
@click.option("--anonymous", is_flag=True, default=None, help="Sign nothing: a public bucket.")
@click.option("--requester-pays", is_flag=True, default=None)
@click.option("--path-style/--virtual-host-style", default=None, help="How the bucket is written in URLs.")
@click.option("--ca-file", help="PEM file of the authorities to trust.")
@click.option("--allow-http", is_flag=True, default=None, help="Permit an endpoint without TLS.")
@click.option("--file", help="The settings file to write.  [default: the nearest headrace.toml, else ./headrace.toml]")
@click.option("--no-check", is_flag=True, help="Do not look whether the store answers.")
def command(path: str, url: str, *, read_only: bool, file: str | None, no_check: bool, **options: object) -> None:
    """Put the store at URL at PATH of the namespace, and keep that in headrace.toml.

    Credentials are not written there: name a --profile, or set the standard variables.
    """
    from headrace.namespace import attach

    made = attach(path, url, read_only=read_only, file=file, check=not no_check, **options)
    click.echo(f"attached {url} at {path} (in {made.file})" + ("; it holds nothing yet" if made.empty else ""))
