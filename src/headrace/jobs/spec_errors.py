"""What is wrong with a spec, and where in it."""

from __future__ import annotations

import json
import re

from headrace.base.errors import SettingError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class FieldError(SettingError):
    """One field is wrong. `what`: without the field; `keys`: the way to it; `path`: file and line, if there are any."""

    def __init__(self, what: str, *keys: str | int, hint: str | None = None, path: str | None = None) -> None:
        super().__init__(f"{dotted(keys)}: {what}" if keys else what, path=path, hint=hint)
        self.what = what
        self.keys = keys

    def below(self, *keys: str | int) -> FieldError:
        """The same, of a field below `keys`."""
        return FieldError(self.what, *keys, *self.keys, hint=self.hint, path=self.path)


def dotted(keys: tuple[str | int, ...]) -> str:
    """The name of a field as the file would spell it: ``retry.log_patterns[0]``."""
    parts = [f"[{key}]" if isinstance(key, int) else f".{_spelled(key)}" for key in keys]
    return "".join(parts).removeprefix(".")


def _spelled(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
