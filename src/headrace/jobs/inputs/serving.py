"""The process that serves the mount of one input. Started by `headrace.jobs.inputs.mounting`.

Told on standard input, in one line of JSON: ``pin``, ``folder`` (of its manifest), ``point``. Answers on standard
output, in one line: ``{}`` once the mount answers, or ``{"error": text}``. It unmounts and ends when standard input
does: also when whoever holds the other end was killed.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import threading
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import to_numbers
from headrace.base.errors import HeadraceError
from headrace.base.settings import Settings
from headrace.catalog import MANIFEST, Pin, open_snapshot, pin_objects, read_manifest
from headrace.jobs.inputs.pinned import PinnedStore
from headrace.mount import Mounted, MountOptions, on_signals
from headrace.namespace import Namespace
from headrace.store.protocol import Store, StoreOptions

_AT = "/input"
_TTL_S = 86400.0
"""What is pinned does not change."""


def main() -> None:
    """Serve until the end of standard input."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    try:
        mounted = _open(json.loads(sys.stdin.readline()))
    except (HeadraceError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)
    on_signals(mounted.end, mounted.refresh)
    threading.Thread(target=_until_alone, args=(mounted,), daemon=True, name="headrace-input").start()
    try:
        print("{}", flush=True)
        mounted.wait()
    finally:
        mounted.close()


def _open(told: dict[str, Any]) -> Mounted:
    settings = Settings.load()
    namespace = Namespace.load(settings)
    pin = Pin.from_json(told["pin"], told["folder"])
    place = pin.place(namespace)
    objects = pin_objects(pin, told["folder"], namespace=namespace, settings=settings)
    store = PinnedStore(place.store, place.prefix, objects, _mtimes(pin, told["folder"], namespace, settings))

    def opener(_url: str, _options: StoreOptions | None, _settings: Settings) -> Store:
        return store

    shown = Namespace(dataclasses.replace(settings, mounts={}, stores={}), opener=opener, local=False)
    shown.attach(_AT, place.store.url, read_only=True)
    options = dataclasses.replace(
        MountOptions.of(settings), read_only=True, allow_other=os.geteuid() == 0, ttl=_TTL_S, metadata="listing"
    )
    return Mounted.open(settings, shown, f"{_AT}/{place.prefix}".rstrip("/"), told["point"], options)


def _mtimes(pin: Pin, folder: str, namespace: Namespace, settings: Settings) -> npt.NDArray[np.int64] | int:
    if pin.snapshot is not None:
        created = open_snapshot(pin.snapshot, namespace=namespace, settings=settings).created
        return int(datetime.fromisoformat(created).timestamp() * 1_000_000)
    path = os.path.join(folder, MANIFEST)
    return np.concatenate([to_numbers(batch["mtime_us"].fill_null(0)) for batch in read_manifest(path, path)])


def _until_alone(mounted: Mounted) -> None:
    sys.stdin.read()
    mounted.end()


if __name__ == "__main__":
    main()
