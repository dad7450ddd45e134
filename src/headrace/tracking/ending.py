"""How a run that did not finish has ended, in a few words: from its last status and the end of its standard error."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Final

from headrace.tracking.record import Status

LOOKED_AT: Final = 400
"""Lines of standard error that are enough."""
_EXCEPTION: Final = re.compile(r"(?:\[rank\d+\]: ?)?((?:[A-Za-z_]\w*\.)*([A-Z]\w*))(?:: (.*))?$")
"""The last line of a traceback; torchrun puts the rank before it."""
_KINDS: Final = ("Error", "Exception", "Interrupt", "Exit", "Warning")
_SAMPLE: Final = re.compile(r"(.+?): (.+?) failed: (\w+)\b")
"""What `headrace.base.errors.BadSampleError` says: the sample, the stage, the user's error."""
_LONGEST: Final = 300
"""Characters of a line that a page shows."""


def ending(status: Status, lines: Sequence[str]) -> str:
    """``ended by KeyError in map(decode) at cat/043``, ``ended by ModuleNotFoundError: …``, ``killed by SIGKILL`` …

    Args:
        status: the run's last.
        lines: the last ones of its standard error.
    """
    # Python's exit code, and torchrun's, where nobody caught it: others may have caught what they wrote down.
    if status.exit_code == 1 and (by := _by_exception(lines)) is not None:
        return f"ended by {by}"
    told = f" ({status.reason})" if status.reason else ""
    if status.signal is not None:
        return f"{'stopped' if status.state == 'stopped' else 'killed'} by {_name(status.signal)}{told}"
    if status.exit_code is not None:
        return f"ended with exit code {status.exit_code}{told}"
    return f"{status.state}{told}"


def _by_exception(lines: Sequence[str]) -> str | None:
    """The exception that ended it. Ours counts more than what a launcher says of it later."""
    found = [match for line in lines if (match := _EXCEPTION.match(line)) and match[2].endswith(_KINDS)]
    ours = [match for match in found if match[1].startswith("headrace.")]
    if not found:
        return None
    last = (ours or found)[-1]
    sample = _SAMPLE.match(last[3] or "") if last[2] == "BadSampleError" else None
    if sample is not None:
        return f"{sample[3]} in {sample[2]} at {sample[1]}"
    text = f"{last[2]}: {last[3]}" if last[3] else last[2]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
