"""The registry against a plain model: dictionaries of what each version holds and what each alias names."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.base.errors import InputError, NotFoundError
from headrace.base.settings import Settings
from headrace.models import Pointer, Registry, alias, gc, promote, publish, rm, rollback
from headrace.models import numbers as taking

NAME = "digits"
aliases = st.sampled_from(["prod", "staging"])
contents = st.dictionaries(st.sampled_from(["a.bin", "b/c.bin", "model.json", "é"]), st.binary(max_size=20), min_size=1)
numbers = st.integers(1, 5)


class RegistryMachine(RuleBasedStateMachine):
    """Two registries on one home, as two processes would have it."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="models-machine-"))
        told = dataclasses.replace(Settings(), home=f"file://{self.folder}/home")
        self.registries = [Registry.load(told), Registry.load(told)]
        self.versions: dict[int, dict[str, bytes]] = {}
        self.last = 0
        self.aliases: dict[str, int] = {}
        self.before: dict[str, list[int]] = {}
        self.torn: set[int] = set()
        self.pointer: Pointer = self.registries[0].pointer(NAME)
        self.moved = False
        for number in range(3):
            self.publish({"a.bin": bytes([number])})

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @property
    def one(self) -> Registry:
        self.registries.reverse()
        return self.registries[0]

    def moving(self, to: str, number: int) -> None:
        old = self.aliases.get(to)
        if old == number:
            return
        if old is not None:
            self.before.setdefault(to, []).append(old)
        self.aliases[to] = number
        self.moved = True

    @rule(content=contents)
    def publish(self, content: dict[str, bytes]) -> None:
        source = self.folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        for name, data in content.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(data)
        ours = {name: data for name, data in content.items() if name != "model.json"}
        if not ours:
            with pytest.raises(InputError):
                publish(str(source), NAME, registry=self.one)
            return
        made = publish(str(source), NAME, registry=self.one)
        assert made.number == self.last + 1
        self.last = made.number
        self.versions[made.number] = ours

    @rule()
    def die_while_publishing(self) -> None:
        registry = self.one
        number = taking.take(registry.home, NAME, "nowhere")
        assert number == self.last + 1
        registry.home.store.put(registry.prefix(NAME, number) + "model.onnx", b"half")
        self.last = number
        self.torn.add(number)

    @rule(to=aliases, number=numbers)
    def point(self, to: str, number: int) -> None:
        if number not in self.versions:
            with pytest.raises(NotFoundError):
                alias(f"{NAME}@{to}", number, registry=self.one)
            return
        moved = alias(f"{NAME}@{to}", number, registry=self.one)
        assert moved.before == self.aliases.get(to)
        self.moving(to, number)

    @rule(of=st.one_of(st.none(), aliases), to=aliases)
    def promote(self, of: str | None, to: str) -> None:
        text = NAME if of is None else f"{NAME}@{of}"
        wanted = max(self.versions, default=None) if of is None else self.aliases.get(of)
        if wanted is None:
            with pytest.raises(NotFoundError):
                promote(text, to, registry=self.one)
            return
        promote(text, to, registry=self.one)
        self.moving(to, wanted)

    @rule(to=aliases)
    def rollback(self, to: str) -> None:
        if to not in self.aliases or not self.before.get(to):
            with pytest.raises(NotFoundError):
                rollback(f"{NAME}@{to}", registry=self.one)
            return
        moved = rollback(f"{NAME}@{to}", registry=self.one)
        self.aliases[to] = self.before[to].pop()
        self.moved = True
        assert moved.number == self.aliases[to]

    @rule(number=numbers)
    def remove(self, number: int) -> None:
        if number not in self.versions:
            with pytest.raises(NotFoundError):
                rm(f"{NAME}@{number}", registry=self.one)
        elif number in self.aliases.values():
            with pytest.raises(InputError, match="names"):
                rm(f"{NAME}@{number}", registry=self.one)
        else:
            rm(f"{NAME}@{number}", registry=self.one)
            self.gone([number])

    def gone(self, some: list[int]) -> None:
        for number in some:
            del self.versions[number]
            self.moved = True
            for earlier in self.before.values():
                earlier[:] = [one for one in earlier if one != number]

    @rule(keep=st.integers(1, 3))
    def collect(self, keep: int) -> None:
        spared = {*self.aliases.values(), *(some[-1] for some in self.before.values() if some)}
        old = [one for one in sorted(self.versions, reverse=True)[keep:] if one not in spared]
        removed = gc(NAME, keep=keep, registry=self.one)
        assert sorted(removed.versions) == sorted(old)
        assert removed.left == ()  # young ones may be under way
        self.gone(old)

    @precondition(lambda self: self.torn)
    @rule()
    def collect_leftovers(self) -> None:
        removed = gc(NAME, old_s=-60, registry=self.one)
        assert set(removed.left) == self.torn
        self.torn.clear()

    @invariant()
    def holds_what_was_published(self) -> None:
        if not hasattr(self, "folder"):
            return
        registry = self.one
        assert [one.number for one in registry.versions(NAME)] == sorted(self.versions, reverse=True)
        assert dict(registry.aliases(NAME).aliases) == self.aliases
        for to, number in self.aliases.items():
            with registry.local(registry.resolve(f"{NAME}@{to}")) as model:
                found = {name: path.read_bytes() for name, path in model.files.items()}
                assert found == self.versions[number]
        if self.versions:
            assert registry.resolve(NAME).number == max(self.versions)
        for number in self.torn:
            with pytest.raises(NotFoundError):
                registry.resolve(f"{NAME}@{number}")
        newer = registry.newer(self.pointer)
        if self.moved:
            assert newer is not None
        if newer is not None:
            assert dict(newer.aliases) == self.aliases
            self.pointer = newer
        self.moved = False
        assert registry.newer(self.pointer) is None


TestRegistry = RegistryMachine.TestCase
# Without shrinking: a failure is told by its rules, and each step waits for the disk.
TestRegistry.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
