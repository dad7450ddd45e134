"""``headrace s3``."""

from __future__ import annotations

import click

from headrace.cli.output import json_option, show_record


@click.command()
@click.option("--dir", "folder", default="./headrace-s3", show_default=True, help="Folder for the server's data.")
@click.option("--port", default=0, help="Port to listen on.  [default: a free one]", type=click.IntRange(0, 65535))
@click.option("--bucket", "buckets", multiple=True, default=["data"], show_default=True, help="Bucket to make.")
@json_option
def command(folder: str, *, port: int, buckets: tuple[str, ...], as_json: bool) -> None:
    """Run an S3 server (SeaweedFS) on this machine until Ctrl-C.

    It listens on loopback only. Its data and its keys stay in --dir for the next time.
    """
    import time

    from headrace.cli.serving import stop_on_signals, until_stopped
    from headrace.store import EmbeddedS3

    stop_on_signals()
    with EmbeddedS3(folder, port=port) as server:
        for bucket in buckets:
            server.create_bucket(bucket)
        if as_json:
            keys = {"access_key": server.access_key, "secret_key": server.secret_key}
            show_record({"id": server.endpoint, "endpoint": server.endpoint, **keys, "buckets": buckets}, as_json=True)
        else:
            click.echo(_greeting(server.endpoint, server.access_key, server.secret_key, buckets))
        with until_stopped():
            while True:  # in slices: a signal that comes just before one is heard after it
                time.sleep(1.0)


def _greeting(endpoint: str, access_key: str, secret_key: str, buckets: tuple[str, ...]) -> str:
    return f"""\
S3 server at {endpoint} (Ctrl-C stops it); buckets: {", ".join(buckets)}

Paste this into another shell:

  export AWS_ENDPOINT_URL_S3={endpoint} AWS_REGION=us-east-1
  export AWS_ACCESS_KEY_ID={access_key}
  export AWS_SECRET_ACCESS_KEY={secret_key}

or, with the keys in a profile of ~/.aws/credentials, this into headrace.toml:

  [stores."s3://{buckets[0]}"]
  endpoint = "{endpoint}"
  region = "us-east-1"
  path_style = true
  allow_http = true
"""
