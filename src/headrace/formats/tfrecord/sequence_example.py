"""``tf.train.SequenceExample`` to arrays: features of the whole, and lists of features, one for each step.

Messages and field numbers: TensorFlow's ``core/example/example.proto`` and ``feature.proto``; their bytes: `example`.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from headrace.base.errors import CorruptError
from headrace.formats.tfrecord.example import Value, entry_of, feature_of, fields_in, name_at
from headrace.store.protocol import Buffer

_BYTES = 2  # the wire type
_CONTEXT, _LISTS = 1, 2  # fields of the message


class Sequence(NamedTuple):
    """A message. `context`: as of `formats.tfrecord.example.example`; `steps`: of each list, one such a step."""

    context: dict[str, Value]
    steps: dict[str, list[Value]]


def sequence(data: Buffer) -> Sequence:
    """A serialised ``tf.train.SequenceExample``. Nothing in the result refers to `data`.

    Raises:
        CorruptError: the bytes are no such message, or are cut off.
    """
    view = memoryview(data).cast("B")
    found = Sequence({}, {})
    try:
        for number, wire, start, stop in fields_in(view, 0, len(view)):
            if wire == _BYTES and number in (_CONTEXT, _LISTS):
                for inner, kind, begin, end in fields_in(view, start, stop):
                    if inner == 1 and kind == _BYTES and number == _CONTEXT:
                        name, value = entry_of(view, begin, end)
                        found.context[name] = value
                    elif inner == 1 and kind == _BYTES:
                        name, steps = _list(view, begin, end)
                        found.steps[name] = steps
    except (IndexError, struct.error):  # a varint or a fixed value that runs off the end
        hint = "is it a serialised tf.train.SequenceExample?"
        raise CorruptError("the SequenceExample is cut off", hint=hint) from None
    return found


def _list(view: memoryview, start: int, stop: int) -> tuple[str, list[Value]]:
    """One entry of the map: its key, and the features of its list."""
    name, steps = "", list[Value]()
    for number, wire, begin, end in fields_in(view, start, stop):
        if wire == _BYTES and number == 1:
            name = name_at(view, begin, end)
        elif wire == _BYTES and number == 2:
            for field, kind, low, high in fields_in(view, begin, end):
                if field == 1 and kind == _BYTES:
                    steps.append(feature_of(view, [(low, high)]))
    return name, steps


def stacked(steps: list[Any]) -> Any:
    """The steps of a list as one array [steps, …], where all are arrays of one length and type; else as they are."""
    if not steps or not all(isinstance(one, (np.ndarray, np.generic)) for one in steps):
        return steps
    kinds = {(one.dtype, one.shape) for one in steps}
    return np.stack(steps) if len(kinds) == 1 else steps
