"""Which tasks a job has, in what order, and each of them for which parameters: checked, and planned."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import product
from math import prod
from typing import Final

from headrace.jobs.spec_checks import input_variable
from headrace.jobs.spec_errors import FieldError
from headrace.jobs.task_spec import TaskSpec
from headrace.jobs.task_sweep import MOST

_MARK: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z][A-Za-z0-9_-]*)\}")


@dataclass(frozen=True, slots=True)
class Planned:
    """One task for one combination of its parameters. `after`: the planned ones that it waits for, by their numbers;
    `label`: for people, with those parameters that take several values.
    """

    task: TaskSpec
    parameters: Mapping[str, str]
    after: tuple[int, ...]
    label: str

    @property
    def command(self) -> tuple[str, ...] | str:
        """With its parameters' values; quoted for the shell where it is a text."""
        command = self.task.command or ()
        if not self.parameters:
            return command
        if isinstance(command, str):
            return _filled(command, {name: shlex.quote(value) for name, value in self.parameters.items()})
        return tuple(_filled(word, self.parameters) for word in command)


def check(tasks: Sequence[TaskSpec], inputs: Mapping[str, object]) -> None:
    """Raises SettingError: a name twice or unknown, tasks in a circle, a parameter that is unknown or of no use, more
    runs than can be meant. Names the field, as below ``task``.
    """
    _check_names(tasks)
    known = {one.name: one for one in tasks}
    for number, one in enumerate(tasks):
        for index, name in enumerate(one.after):
            if name not in known:
                hint = f"there are {', '.join(known)}"
                raise FieldError(f"{name!r} is no task", number, "after", index, hint=hint)
            if name in one.after[:index]:
                raise FieldError(f"names {name!r} twice", number, "after", index)
        for index, name in enumerate(one.inputs or ()):
            if name not in inputs:
                raise FieldError(f"{name!r} is no input of the job", number, "inputs", index)
        _check_parameters(number, one, {name for before in one.after for name in known[before].parameters})
    order(tasks)
    if sum(prod(len(values) for values in one.parameters.values()) for one in tasks) > MOST:
        raise FieldError(f"come to more than {MOST} runs", hint="sweep over fewer values")
    plan(tasks)


def order(tasks: Sequence[TaskSpec]) -> tuple[int, ...]:
    """Their numbers, each after those it comes after. Raises SettingError: they go in a circle."""
    numbers = {one.name: number for number, one in enumerate(tasks)}
    graph = {number: [numbers[name] for name in one.after] for number, one in enumerate(tasks)}
    try:
        return tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle: list[int] = error.args[1]
        told = " after ".join(tasks[number].name for number in reversed(circle))
        raise FieldError(f"goes in a circle: {told}", circle[0], "after") from None


def plan(tasks: Sequence[TaskSpec]) -> tuple[Planned, ...]:
    """All that is to be run, each after those it waits for. Of checked tasks.

    A task that comes after one which is run for several values waits for those that have its own values of the
    parameters which both have: for all of them, if it has none of these.
    """
    made: list[Planned] = []
    of: dict[str, list[int]] = {}
    for number in order(tasks):
        one = tasks[number]
        of[one.name] = []
        for values in product(*one.parameters.values()):
            own = dict(zip(one.parameters, values, strict=True))
            after: list[int] = []
            for index, name in enumerate(one.after):
                found = [at for at in of[name] if _agree(own, made[at])]
                if not found:
                    told = ", ".join(f"{key}={value}" for key, value in own.items())
                    raise FieldError(f"{name!r} has none for {told}", number, "after", index)
                after += found
            several = [f"{name}={value}" for name, value in own.items() if len(one.parameters[name]) > 1]
            of[one.name].append(len(made))
            made.append(Planned(one, own, tuple(after), " ".join((one.name, *several))))
    return tuple(made)


def _agree(own: Mapping[str, str], before: Planned) -> bool:
    """In those parameters of both that the earlier one takes several values of."""
    swept = [name for name, values in before.task.parameters.items() if len(values) > 1]
    return all(own[name] == before.parameters[name] for name in swept if name in own)


def _check_names(tasks: Sequence[TaskSpec]) -> None:
    seen: dict[str, str] = {}
    for number, one in enumerate(tasks):
        variable = input_variable(one.name)
        if variable in seen:
            hint = "rename one: in variables - is _, and letters are upper case"
            raise FieldError(f"{one.name!r} is too much like {seen[variable]!r}", number, "name", hint=hint)
        seen[variable] = one.name


def _check_parameters(number: int, task: TaskSpec, before: set[str]) -> None:
    """`before`: those of the tasks that it comes after."""
    if not task.parameters:
        return
    words = [task.command or ""] if isinstance(task.command, str) else list(task.command or ())
    used = set(before)
    for index, word in enumerate(words):
        for match in _MARK.finditer(word):
            if match[1] is None:
                continue
            if match[1] not in task.parameters:
                keys = ("command",) if isinstance(task.command, str) else ("command", index)
                hint = f"there are {', '.join(task.parameters)}; a brace is written {{{{"
                raise FieldError(f"{{{match[1]}}} is no parameter of the task", number, *keys, hint=hint)
            used.add(match[1])
    for name in task.parameters:
        if name not in used:
            hint = f"write {{{name}}} into the command, or leave the parameter out"
            raise FieldError("is not used", number, "parameters", name, hint=hint)


def _filled(word: str, parameters: Mapping[str, str]) -> str:
    return _MARK.sub(lambda match: parameters[match[1]] if match[1] is not None else match[0][0], word)
