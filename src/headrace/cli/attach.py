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
@click.option("--anonymous", is_flag=True, help="Sign nothing: a public bucket.")
@click.option("--requester-pays", is_flag=True)
@click.option("--path-style/--virtual-host-style", default=None, help="How the bucket is written in URLs.")
@click.option("--ca-file", help="PEM file of the authorities to trust.")
@click.option("--allow-http", is_flag=True, help="Permit an endpoint without TLS.")
@click.option("--file", help="The settings file to write.  [default: the nearest headrace.toml, else ./headrace.toml]")
@click.option("--no-check", is_flag=True, help="Do not look whether the store answers.")
def command(path: str, url: str, *, read_only: bool, file: str | None, no_check: bool, **options: object) -> None:
    """Put the store at URL at PATH of the namespace, and keep that in headrace.toml.

    Credentials are not written there: name a --profile, or set the standard variables.
    """
    from headrace.cli.target import open_namespace
    from headrace.namespace import write_mount

    given = {name: value for name, value in options.items() if value not in (None, False)}
    namespace = open_namespace()
    namespace.attach(path, url, read_only=read_only, **given)
    namespace.resolve(path)  # opens the store, which refuses a URL or option that cannot be; asks it nothing
    empty = not no_check and not namespace.list(path)
    written = file or nearest_file()
    write_mount(path, url, given, written, read_only=read_only)
    click.echo(f"attached {url} at {path} (in {written})" + ("; it holds nothing yet" if empty else ""))


def nearest_file() -> str:
    """The settings file attachments are kept in: the nearest upward, else one to be made here."""
    from headrace.base.settings import FILE_NAME, config_files, user_file

    near = [path for path in config_files() if path != user_file()]
    return str(near[-1]) if near else FILE_NAME
