"""``headrace logs RUN``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headrace.cli.output import rfc3339

if TYPE_CHECKING:
    from headrace.tracking.logs import Line

_EVERY_S = 1.0
_STATE_S = 5.0


@click.command()
@click.argument("run")
@click.option("--follow", "-f", is_flag=True, help="Go on as more comes, until the run is over.")
@click.option("--tail", "-n", type=int, help="Only the last so many lines.")
@click.option("--stream", "streams", multiple=True, type=click.Choice(["stdout", "stderr", "headrace"]),
              help="Only this stream. May be repeated.  [default: stdout, stderr]")  # fmt: skip
@click.option("--rank", type=int, help="Only what this rank of a gang has written.")
@click.option("--times", "-t", is_flag=True, help="With the time at which each line came.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(
    run: str, *, follow: bool, tail: int | None, streams: tuple[str, ...], rank: int | None, times: bool, as_json: bool
) -> None:
    """Show what RUN has written, from the bucket.

    RUN is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """
    from headrace.cli.run_access import find_run
    from headrace.tracking.logs import LogReader
    from headrace.tracking.record import FINAL

    found = find_run(run)
    found.record()
    reader = LogReader(found.store, f"{found.prefix}logs/", streams or ("stdout", "stderr"))
    out = _Out(rank, times=times, as_json=as_json)
    over = found.look().over  # asked before reading: what was there when it ended is read
    out.show(reader.read() if tail is None else reader.tail(tail))
    look_at = time.monotonic() + _STATE_S
    while follow and not over:
        time.sleep(_EVERY_S)
        out.show(reader.poll())
        if time.monotonic() >= look_at:
            lease = found.lease()
            over = found.look().over if lease is None or lease[0].state in FINAL or _old(lease[1].mtime_us) else False
            look_at = time.monotonic() + _STATE_S
    out.show(reader.read())
    out.close()


def _old(mtime_us: int) -> bool:
    return time.time() - mtime_us / 1e6 > 2 * 15.0


class _Out:
    """Standard output. A line that may still change is drawn over on a terminal, and waited for elsewhere."""

    def __init__(self, rank: int | None, *, times: bool, as_json: bool) -> None:
        self._rank, self._times, self._json = rank, times, as_json
        self._draws = sys.stdout.isatty() and not as_json
        self._open = ""

    def show(self, lines: Iterable[Line]) -> None:
        """Each, and flushed."""
        for line in lines:
            if self._rank is not None and line.rank != self._rank:
                continue
            if self._json:
                self._json_line(line)
            elif line.over:
                self._write(("\r\x1b[K" if self._open and self._draws else "") + self._text(line) + "\n")
                self._open = ""
            else:
                self._open = self._text(line)
                if self._draws:
                    self._write(f"\r\x1b[K{self._open}")
        sys.stdout.flush()

    def close(self) -> None:
        """The last line, though it never ended."""
        if self._open:
            self._write("\n" if self._draws else f"{self._open}\n")
            sys.stdout.flush()

    def _json_line(self, line: Line) -> None:
        import json

        row = {"time": rfc3339(line.time_us), "stream": line.stream, "text": line.text, "over": line.over}
        row |= {} if line.rank is None else {"rank": line.rank}
        self._write(json.dumps(row) + "\n")

    def _text(self, line: Line) -> str:
        text = line.labelled if self._rank is None else line.text
        if not self._times:
            return text
        moment = (rfc3339(line.time_us) or "").ljust(27)
        return f"{moment} {line.stream:<6} {text}"

    def _write(self, text: str) -> None:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
