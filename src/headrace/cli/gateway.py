"""``headrace gateway``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.base.errors import InputError
from headrace.cli.output import json_option

if TYPE_CHECKING:
    from headrace.gateway import Gateway, Key


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port to listen on.  [default: a free one]")
@click.option("--keys", "file", metavar="FILE.toml",
              help="Who may ask: access keys, with what each may do.  [default: one made for this run]")  # fmt: skip
@click.option("--write", is_flag=True, help="Let the key that is made for this run write, too.")
@click.option("--bucket", "named", multiple=True, metavar="NAME=/PATH",
              help="A bucket, and its folder.  [default: each attached store]")  # fmt: skip
@click.option("--tree", default="", metavar="NAME", help="One bucket of that name, with the whole namespace in it.")
@click.option("--domain", default="", metavar="DOMAIN", help="BUCKET.DOMAIN names a bucket, too.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes that answer.")
@click.option("--metadata", is_flag=True,
              help="Tell metadata and content type with every GET, for a HEAD of each object first.")  # fmt: skip
@json_option
def command(
    host: str, port: int, file: str | None, *, write: bool, named: tuple[str, ...], tree: str, domain: str,
    processes: int, metadata: bool, as_json: bool,
) -> None:  # fmt: skip
    """Let programs that only know S3 read the namespace, through the node's cache, until Ctrl-C.

    Each attached store is a bucket. Clients may read; who may also write is said in the file of keys, and what is
    attached read-only stays so. Without such a file one key is made, and printed.
    """
    from headrace.cli.serving import stop_on_signals, until_stopped
    from headrace.gateway import needed

    needed()
    from headrace.gateway import GatewayOptions, open_gateway
    from headrace.http_server import Address

    options = GatewayOptions(Address(host, port), (), processes, tree, dict(map(_pair, named)), domain, metadata)
    stop_on_signals()
    with open_gateway(options, keys=file, write=write) as gateway, until_stopped():
        _tell(gateway, gateway.keys[0] if file is None else None, as_json=as_json)
        gateway.wait()


def _pair(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not path.startswith("/"):
        raise InputError(f"--bucket {text} is not NAME=/PATH")
    return name, path


def _tell(gateway: Gateway, key: Key | None, *, as_json: bool) -> None:
    from headrace.cli.output import show_record

    if as_json:
        shown = {"access_key": key.access_key, "secret_key": key.secret} if key is not None else {}
        record = {"id": gateway.url, "endpoint": gateway.url, **shown, "buckets": gateway.buckets}
        show_record(record, as_json=True)
        return
    click.echo(f"S3 at {gateway.url} (Ctrl-C stops it); buckets: {', '.join(gateway.buckets)}")
    if key is not None:
        click.echo(f"""
  export AWS_ENDPOINT_URL_S3={gateway.url} AWS_REGION=us-east-1
  export AWS_ACCESS_KEY_ID={key.access_key}
  export AWS_SECRET_ACCESS_KEY={key.secret}
""")
