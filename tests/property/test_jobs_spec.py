"""Where a key of a TOML text is written, whatever the layout; jobs that come back from their records as they were."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.base.errors import InputError, SettingError
from headrace.jobs.spec import (
    CodeSpec,
    EnvironmentSpec,
    InputSpec,
    JobSpec,
    OutputSpec,
    ResourceSpec,
    RetrySpec,
)
from headrace.jobs.spec_lines import Lines
from headrace.jobs.spec_toml import read_toml

Keys = tuple[str | int, ...]

BARE = st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True)
ODD = st.text(st.sampled_from("ab.#='\"[]{} \\\té"), max_size=4)
NAMES = BARE | ODD
PLAIN = ["1", "-1.5e3", "true", "inf", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00", "07:32:00", "0xff"]
STRINGS = [
    '"a"', "'b'", '""', "''", '"# = \\" ["', "'# = \" ]'", '"""one"""', "'''one'''", '""""quoted" """', "''''q' '''",
    '"""\nname = 1\n[table]\n""\\"# "" x"""', "'''\n'' name = 1\n\n[[table]]\n'''", '"""a""""', '"""a"""""',
    "'''a'''''",
    '"""\\\n   folded\n"""', '"\\\\"', '"""\\\\"""', "'\\'",
]  # fmt: skip
GAPS = ["", " ", "\t", "  "]
WIDE = ["", " ", "\n", "\n\n  ", " # [a] = { 'x\n", '\n# """ ]\n\t']


@dataclass
class Writer:
    """Writes a document with a random layout, and notes the line of every key and list item."""

    draw: Any
    text: str = ""
    lines: dict[Keys, int] = field(default_factory=dict)

    def put(self, *parts: str) -> None:
        self.text += "".join(parts)

    def note(self, keys: Keys) -> None:
        self.lines.setdefault(keys, self.text.count("\n") + 1)

    def gap(self) -> str:
        return self.draw(st.sampled_from(GAPS))

    def key(self, name: str) -> str:
        forms = [json.dumps(name, ensure_ascii=False)]
        if name and all(char.isascii() and (char.isalnum() or char in "_-") for char in name):
            forms.append(name)
        if "'" not in name and "\t" not in name:
            forms.append(f"'{name}'")
        return self.draw(st.sampled_from(forms))

    def names(self, most: int = 3) -> list[str]:
        return self.draw(st.lists(NAMES, max_size=most, unique=True))

    def dotted(self, *names: str) -> str:
        return f"{self.gap()}.{self.gap()}".join(self.key(name) for name in names)

    def value(self, keys: Keys, depth: int = 0) -> None:
        kind = self.draw(st.sampled_from(["plain", "string", "list", "inline"][: 4 if depth < 3 else 2]))
        if kind == "list":
            self.items(keys, depth)
        elif kind == "inline":
            self.inline(keys, depth)
        else:
            self.put(self.draw(st.sampled_from(PLAIN if kind == "plain" else STRINGS)))

    def items(self, keys: Keys, depth: int) -> None:
        count = self.draw(st.integers(0, 3))
        self.put("[")
        for index in range(count):
            self.put(self.wide())
            self.note((*keys, index))
            self.value((*keys, index), depth + 1)
            self.put(self.wide(), "," if index < count - 1 or self.draw(st.booleans()) else "")
        self.put(self.wide(), "]")

    def wide(self) -> str:
        return self.draw(st.sampled_from(WIDE))

    def inline(self, keys: Keys, depth: int) -> None:
        self.put("{")
        for index, name in enumerate(self.names()):
            self.put("," if index else "", self.gap())
            self.entry(keys, name, depth + 1)
            self.put(self.gap())
        self.put("}")

    def entry(self, keys: Keys, name: str, depth: int = 0) -> None:
        way = (name, *self.draw(st.lists(NAMES, max_size=2)))
        for end in range(1, len(way) + 1):
            self.note((*keys, *way[:end]))
        self.put(self.dotted(*way), self.gap(), "=", self.gap())
        self.value((*keys, *way), depth)

    def table(self, keys: Keys) -> None:
        for name in self.names():
            self.blank()
            self.put(self.gap())
            self.entry(keys, name)
            self.put(self.gap(), self.draw(st.sampled_from(["\n", "# a = 1\n"])))

    def blank(self) -> None:
        self.put(self.draw(st.sampled_from(["", "\n", "# [[a]]\n", " \t\n\n", "# '''\n"])))

    def below(self, keys: Keys, names: list[str]) -> None:
        """Tables, and arrays of them, with names that no key of the table above has."""
        for name in names:
            spelled = tuple(key for key in (*keys, name) if isinstance(key, str))
            for index in range(self.draw(st.integers(1, 2)) if (array := self.draw(st.booleans())) else 1):
                here = (*keys, name, index) if array else (*keys, name)
                self.blank()
                self.note((*keys, name))
                self.note(here)
                self.header(here, spelled, array)
                self.table(here)
                if len(keys) < 3 and self.draw(st.booleans()):
                    self.below(here, [f"{name}~below"])

    def header(self, here: Keys, spelled: tuple[str, ...], array: bool) -> None:
        opening, closing = ("[[", "]]") if array else ("[", "]")
        self.put(self.gap(), opening, self.gap(), self.dotted(*spelled), self.gap(), closing, self.gap(), "\n")


@st.composite
def documents(draw: Any) -> Writer:
    writer = Writer(draw)
    writer.table(())
    writer.below((), draw(st.lists(NAMES.map(lambda name: f"table {name}"), max_size=3, unique=True)))
    return writer


def ways(value: object, keys: Keys = ()) -> Iterator[Keys]:
    """The way to everything in a parsed document."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*keys, key)
        yield from ways(one, (*keys, key))


@given(documents(), st.sampled_from(["\n", "\r\n"]))
def test_the_line_of_every_key(writer: Writer, ending: str):
    text = writer.text
    parsed = tomllib.loads(text.replace("\n", ending))
    lines = Lines(text.replace("\n", ending))
    found = set(ways(parsed))
    assert found == set(writer.lines), "the test's own notes are those of the parser"
    for keys in found:
        assert lines.of(keys) == writer.lines[keys], (keys, text)
        assert lines.of((*keys, "not written")) == writer.lines[keys]
    assert lines.of(("not written",)) is None
    assert lines.repeated() is None


@given(documents(), st.data())
def test_a_key_that_is_written_twice(writer: Writer, data: st.DataObject):
    top = [keys for keys in writer.lines if len(keys) == 1 and not str(keys[0]).startswith("table ")]
    if not top:
        return
    keys = data.draw(st.sampled_from(top))
    again = f"{json.dumps(keys[0], ensure_ascii=False)} = 1\n" + writer.text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_bytes(again.encode())
        with pytest.raises(SettingError) as caught:
            read_toml(path)
    assert caught.value.path == f"{path}:{writer.lines[keys] + 1}"
    assert "is written twice, first on line 1" in str(caught.value)


@example('"\\1"')
@example('["\\1"]\na = 1')
@given(st.text(st.sampled_from("ab.=\"'[]{}#,\n \\1"), max_size=40))
def test_no_text_is_too_odd(text: str):
    """Whatever is in the file, the answer is a job, or a mistake that names the file; and soon."""
    Lines(text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_bytes(text.encode())
        found = _answer(path)
    assert isinstance(found, JobSpec) or (found.path or "").startswith(str(path))


def _answer(path: Path) -> JobSpec | InputError:
    try:
        return JobSpec.load(path)
    except InputError as error:
        return error


WRONG = [("retry", "attempts", "0"), ("retry", "attemps", "1"), ("code", "limit", "'x'"), ("outputs", "period", "'0s'"),
         ("resources", "gpus", "[0, 0]"), ("environment", "lock", "'/x'")]  # fmt: skip


BLANKS = st.lists(st.sampled_from(["\n", "# x\n", " \n"]), max_size=4)


@given(st.sampled_from(WRONG), BLANKS, st.integers(0, 3), st.data())
def test_a_mistake_has_its_line_wherever_it_is(wrong: tuple[str, str, str], blanks: list[str], form: int, data: Any):
    table, key, value = wrong
    before = "name = 'a'\ntags = { a = '''\n[retry]\n''' }\n" + "".join(blanks)
    space = data.draw(st.sampled_from(WIDE)) if value.startswith("[") else ""
    value = value.replace(",", space + ",")
    written = [
        f"[{table}]\n# {key}\n{key} = {value}\n",
        f"{table}.{key} = {value}\n",
        f"{table} = {{ {key} = {value} }}\n",
        f"[ '{table}' ]\n\n\"{key}\" = {value}\n",
    ][form]
    line = before.count("\n") + [3, 1, 1, 3][form]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text(before + written)
        with pytest.raises(SettingError) as caught:
            JobSpec.load(path)
    assert caught.value.path == f"{path}:{line}"
    assert caught.value.reason.startswith(f"{table}.{key}: ")


NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=8)
PATH = st.sampled_from([".", "a/b", "*.pt", "checkpoints/*", "ü"])
VARIABLE = st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True)
SECONDS = st.floats(0, 1e9, allow_nan=False)
POSITIVE = st.floats(0, 1e9, exclude_min=True)
BYTES = st.integers(0, 1 << 62)
INPUTS = st.builds(
    InputSpec,
    NAME | st.just("imagenet@v3") | TEXT.map("/{}".format).filter(lambda text: "://" not in text),
    st.sampled_from(["name", "mount", "copy"]),
)
SPECS = st.builds(
    JobSpec,
    name=st.none() | NAME,
    command=st.none() | TEXT.map("a{}".format) | st.lists(TEXT, max_size=3).map(lambda rest: ("a", *rest)),
    folder=PATH,
    time_limit=st.none() | POSITIVE,
    grace=SECONDS,
    tags=st.dictionaries(NAME, TEXT, max_size=3),
    processes=st.just("auto") | st.integers(1, 99),
    inputs=st.dictionaries(st.sampled_from(["a", "b", "c-d"]), INPUTS),
    code=st.builds(CodeSpec, path=st.none() | PATH, limit=BYTES, capture=st.booleans())
    | st.just(CodeSpec(git="https://h/r@v1")),
    environment=st.builds(
        EnvironmentSpec,
        lock=st.just("uv.lock"),
        python=st.sampled_from([None, "3.11"]),
        variables=st.dictionaries(VARIABLE, TEXT, max_size=4),
        pass_=st.lists(VARIABLE, max_size=2).map(tuple),
        record=st.lists(VARIABLE | st.just("*"), max_size=2).map(tuple),
    ),
    outputs=st.builds(
        OutputSpec, st.lists(PATH, max_size=2).map(tuple), POSITIVE, BYTES, st.just(("*.bak",)), SECONDS
    ),
    retry=st.builds(
        RetrySpec, st.integers(1, 9), st.lists(st.integers(1, 255), max_size=3).map(tuple), st.just(("a+",)), SECONDS
    ),
    resources=st.builds(
        ResourceSpec,
        st.integers(0, 99),
        BYTES,
        st.just("all") | st.integers(0, 8) | st.lists(st.integers(0, 8), unique=True).map(tuple),
    ),
)


@given(SPECS)
def test_a_job_comes_back_from_its_record(spec: JobSpec):
    told = json.dumps(spec.as_json())
    again = JobSpec.from_json(json.loads(told))
    assert json.dumps(again.as_json()) == told
    values = {
        f"environment.variables.{name}": value
        for name, value in spec.environment.variables.items()
        if name in again.environment.missing
    }
    assert again.with_flags(values) == spec
    for name, value in spec.environment.variables.items():
        if not spec.environment.recorded(name):
            assert again.environment.variables[name] is None
            assert EnvironmentSpec(variables={name: f"secret {value}"}).shown() == {name: None}
