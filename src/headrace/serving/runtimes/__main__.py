"""A runtime's process: ``python -m headrace.serving.runtimes DESCRIPTOR``, started by `apart.Apart`.

It ends when the server's end of the socket does, also in the middle of a model's work.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import traceback

from headrace.base.errors import HeadraceError
from headrace.serving.runtimes.frames import Loaded, receive, send
from headrace.serving.runtimes.inner_kinds import loaded


def main() -> None:
    """Answer until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's, which lets its requests finish
    origin = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(origin.fileno(),), daemon=True).start()
    head, _ = receive(origin)
    assert head.load is not None
    try:
        model = loaded(head.load)
    except Exception as error:
        send(origin, broken=_reason(error))
        return
    send(origin, loaded=Loaded(dict(model.signatures), model.platform, model.batched))
    while True:
        try:
            head, inputs = receive(origin)
        except EOFError:
            return
        try:
            made = model.run(head.signature, inputs)
        except Exception as error:
            if not isinstance(error, HeadraceError):
                traceback.print_exc()
            send(origin, refused=_reason(error))
            continue
        try:
            send(origin, tensors=made)
        except OSError:
            return
        except Exception as error:  # numbers that have no form; tensors are looked at before the first byte is sent
            send(origin, refused=_reason(error))


def _end_with(descriptor: int) -> None:
    watch = select.poll()
    watch.register(descriptor, select.POLLRDHUP)
    watch.poll()
    os._exit(0)


def _reason(error: Exception) -> str:
    if isinstance(error, HeadraceError):
        return str(error)
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:500]


main()
