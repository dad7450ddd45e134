"""A process that makes one preview and ends: it asks for bytes on its standard output, and gets them on its input.

So that whatever a file does to the libraries that read it, the page's own process has neither its memory nor its time.
"""

from __future__ import annotations

import math
import resource
import sys

import msgspec

from headrace.base.errors import NoRoomError
from headrace.web.previews.frames import ASK, BYTES, DONE, FRAME, About, exactly
from headrace.web.previews.kinds import made
from headrace.web.previews.source import Source


def main() -> None:
    """Raises EOFError: nobody wants it any more."""
    told, answers = sys.stdout.buffer, sys.stdin.buffer
    about = msgspec.json.decode(answers.readline(), type=About)
    resource.setrlimit(resource.RLIMIT_AS, (about.memory, about.memory))
    seconds = math.ceil(about.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def ask(start: int, stop: int) -> bytes:
        told.write(FRAME.pack(ASK, start, stop))
        told.flush()
        kind, length, _ = FRAME.unpack(exactly(answers, FRAME.size))
        data = exactly(answers, length)
        if kind != BYTES:
            raise NoRoomError(data.decode())
        return data

    found = made(Source(about.path, about.size, ask))
    text = msgspec.json.encode(found.preview)
    told.write(FRAME.pack(DONE, len(text), len(found.picture)) + text + found.picture)
    told.flush()


if __name__ == "__main__":
    main()
