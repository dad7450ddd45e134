"""``headrace logs RUN``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headrace.cli.output import rfc3339

if TYPE_CHECKING:
    from headrace.tracking import Line


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
    from headrace.tracking import as_run, log_lines

    out = _Out(rank, times=times, as_json=as_json)
    for lines in log_lines(as_run(run), streams or ("stdout", "stderr"), tail=tail, follow=follow):
        out.show(lines)
    out.close()


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
