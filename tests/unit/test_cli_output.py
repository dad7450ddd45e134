"""What tables and JSON make of values that are no numbers."""

from __future__ import annotations

import json
import math

import pytest

from headrace.cli.output import Column, Kind, format_value, show_record, show_table

KINDS: tuple[Kind, ...] = ("text", "bytes", "count", "seconds", "rate", "percent")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "-inf", None, 0, -1, 1e300, -0.5])
def test_every_value_has_a_form(kind: Kind, value: float | str | None) -> None:
    text = format_value(value, kind)
    assert text
    if isinstance(value, float) and not math.isfinite(value):
        assert text == str(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, math.nan], {"deep": [{"er": -math.inf}]}])
def test_json_is_json(capsys: pytest.CaptureFixture[str], value: object) -> None:
    show_table([{"id": "a", "value": value}], [Column("value", "VALUE", "rate")], as_json=True)
    show_record({"id": "a", "value": value}, as_json=True)
    told = capsys.readouterr().out
    assert "NaN" not in told
    assert "Infinity" not in told
    (row,) = json.loads(told[: told.index("]\n{") + 1])
    assert row["id"] == "a"
