"""What ``headrace serve`` takes of a server: its options, gathered in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headrace.cli.gathered import gathered

if TYPE_CHECKING:
    from headrace.serving import Options


@dataclass(frozen=True, slots=True)
class ServeWords:
    """The options as they were given."""

    host: str | None
    port: int
    grpc_port: int | None
    processes: int
    threads: int
    interval: str
    window: str
    max_batch: int
    queue: int
    deadline: str
    max_body: str
    admin: bool
    grace: str
    linger: str | None

    def options(self, models: tuple[str, ...]) -> Options:
        """What they mean on this machine. Raises InputError."""
        from headrace.base.units import parse_bytes, parse_seconds
        from headrace.serving import Options, Route, Rules

        return Options(
            tuple(Route.parse(one) for one in models), self.host or "127.0.0.1", self.port, self.grpc_port,
            parse_seconds(self.interval, name="--interval"),
            Rules(parse_seconds(self.window, name="--window"), self.max_batch, self.queue),
            deadline=parse_seconds(self.deadline, name="--deadline"),
            body=parse_bytes(self.max_body, name="--max-body"),
            processes=self.processes, threads=self.threads, admin=self.admin,
        )  # fmt: skip

    def patience(self, linger: str = "0s") -> tuple[float, float]:
        """Seconds for requests under way, and seconds to go on before that. Raises InputError."""
        from headrace.base.units import parse_seconds

        return parse_seconds(self.grace, name="--grace"), parse_seconds(self.linger or linger, name="--linger")


_OPTIONS = (
    click.option("--host", help="Address to listen on.  [default: 127.0.0.1; on a cluster the node's]"),
    click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port to listen on.  [default: a free one]"),
    click.option("--grpc-port", type=click.IntRange(0, 65535), help="Answer gRPC too, on this port; 0: a free one."),
    click.option("--processes", default=1, show_default=True, type=click.IntRange(1), help="Processes that share it."),
    click.option("--threads", default=0, type=click.IntRange(0),
                 help="Threads of a model in each process.  [default: the processors, divided]"),
    click.option("--interval", default="5s", show_default=True, help="How often a model's aliases are looked at."),
    click.option("--window", default="0s", show_default=True, help="How long a batch waits for more requests."),
    click.option("--max-batch", default=64, show_default=True, type=click.IntRange(1), help="Rows of a batch."),
    click.option("--queue", default=512, show_default=True, type=click.IntRange(1), help="Requests that may wait."),
    click.option("--deadline", default="30s", show_default=True,
                 help="After which a request gets no answer; 0: never."),
    click.option("--max-body", default="64MB", show_default=True, help="Largest request."),
    click.option("--admin", is_flag=True, help="Let clients load and unload models."),
    click.option("--grace", default="10s", show_default=True, help="After SIGTERM, time for requests under way."),
    click.option("--linger",
                 help="After SIGTERM, time to go on while readiness says no.  [default: 0s; on a cluster 10s]"),
)  # fmt: skip

serve_options = gathered(ServeWords, _OPTIONS)
"""A decorator: the options of a server; the command receives them as ``words``."""
