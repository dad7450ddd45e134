"""Sweeps, against a plain model: what the values are, and which tasks wait for which."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import SettingError
from headrace.jobs import task_sweep
from headrace.jobs.task_graph import plan
from headrace.jobs.task_spec import TaskSpec

TEXTS = st.text("abcxyz_=/+", min_size=1, max_size=4)
RANGES = st.tuples(st.integers(-30, 30), st.integers(0, 12), st.integers(1, 5))


@settings(deadline=None, max_examples=100)
@given(st.lists(TEXTS | RANGES, min_size=1, max_size=4), st.data())
def test_values_are_those_that_are_written(items: list[str | tuple[int, int, int]], data: st.DataObject) -> None:
    written: list[str] = []
    wanted: list[str] = []
    for item in items:
        if isinstance(item, str):
            written.append(item)
            wanted.append(item)
            continue
        first, length, step = item
        stepped = f"/{step}" if step > 1 or data.draw(st.booleans()) else ""
        written.append(f"{first}..{first + length}{stepped}")
        wanted += [str(number) for number in range(first, first + length + 1) if (number - first) % step == 0]
    text = data.draw(st.sampled_from((",", ", "))).join(written)
    if len(set(wanted)) < len(wanted):
        with pytest.raises(SettingError, match="twice"):
            task_sweep.values(text)
        return
    assert task_sweep.values(text) == tuple(wanted)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_each_task_is_planned_once_for_each_combination_and_waits_for_those_that_are_its_own(
    data: st.DataObject,
) -> None:
    values = {name: data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)) for name in "abc"}
    tasks: list[TaskSpec] = []
    for number in range(data.draw(st.integers(1, 4))):
        has = data.draw(st.lists(st.sampled_from("abc"), unique=True))
        after = data.draw(st.lists(st.sampled_from([one.name for one in tasks]), unique=True)) if tasks else []
        parameters = {name: tuple(values[name]) for name in has}
        tasks.append(TaskSpec(name=f"t{number}", command=("x",), after=tuple(after), parameters=parameters))  # pyright: ignore[reportArgumentType]
    planned = plan(data.draw(st.permutations(tasks)))
    for task in tasks:
        mine = [one for one in planned if one.task == task]
        combinations = itertools.product(*([str(one) for one in values[name]] for name in task.parameters))
        assert [tuple(one.parameters.values()) for one in mine] == list(combinations)
    for number, one in enumerate(planned):
        wanted = {
            at
            for at, other in enumerate(planned)
            if other.task.name in one.task.after
            and all(one.parameters[name] == other.parameters[name] for name in one.parameters.keys() & other.parameters)
        }
        assert set(one.after) == wanted
        assert all(at < number for at in one.after)
