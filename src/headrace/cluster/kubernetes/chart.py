"""A chart for Helm out of the same trees: where a manifest has a value, its template has the value's name.

https://helm.sh/docs/topics/charts/. What Helm renders with the chart's own values is what `manifests` makes of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import headrace
from headrace.base.errors import InternalError
from headrace.cluster.kubernetes import yaml_text
from headrace.cluster.kubernetes.tree import Each, Pairs, Text, Tree, Value, When
from headrace.cluster.kubernetes.wanted import Wanted, described

_MARK: Final = "HeadracePlace"
_LINE: Final = re.compile(rf"( *)(?:- )?{_MARK}(\d+)x(?:: null)?")
_INLINE: Final = re.compile(rf"{_MARK}(\d+)x")


def chart(wanted: Wanted, trees: Mapping[str, Tree]) -> dict[str, str]:
    """The files of a chart, by their names below its folder. `trees`: documents by their names."""
    about = {
        "apiVersion": "v2", "name": wanted.name, "version": headrace.__version__, "type": "application",
        "description": f"headrace: {wanted.kind}", "appVersion": headrace.__version__,
    }  # fmt: skip
    templates = {f"templates/{name}.yaml": template(tree) for name, tree in trees.items()}
    return {
        "Chart.yaml": yaml_text.one(about),
        "values.yaml": _values(wanted),
        "values.schema.json": json.dumps(_schema(wanted.values), indent=2) + "\n",
        **templates,
    }


def template(tree: Tree) -> str:
    """One document as a template of Helm's."""
    if isinstance(tree, When):
        return f"{{{{- if {_condition(tree)} }}}}\n{template(tree.tree)}{{{{- end }}}}\n"
    places = _Places()
    lines = yaml_text.one(places.marked(tree)).splitlines()
    return "".join(f"{places.line(line)}\n" for line in lines)


class _Places:
    """Marks in a document, and what stands for them in its template."""

    def __init__(self) -> None:
        self._blocks: list[Sequence[str]] = []

    def marked(self, tree: Tree) -> Any:
        """The tree with a mark in each place."""
        if isinstance(tree, Value):
            return self._mark(f"{{{{ toJson {_path(tree.name)} }}}}")
        if isinstance(tree, Text):
            names = " ".join(_path(name) for name in tree.names)
            return self._mark(f"{{{{ printf {json.dumps(tree.printf)} {names} | toJson }}}}")
        if isinstance(tree, Mapping):
            return self._entries(cast("Mapping[str, Tree]", tree))
        if isinstance(tree, Sequence) and not isinstance(tree, str):
            return [item for one in cast("Sequence[Tree]", tree) for item in self._items(one)]
        return tree

    def line(self, line: str) -> str:
        """A line of the document, as its template has it."""
        if (whole := _LINE.fullmatch(line)) and self._blocks[int(whole[2])][0].startswith("{{-"):
            return "\n".join(whole[1] + text for text in self._blocks[int(whole[2])])
        return _INLINE.sub(lambda mark: self._blocks[int(mark[1])][0], line)

    def _entries(self, tree: Mapping[str, Tree]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, one in tree.items():
            if not isinstance(one, When):
                made[key] = self.marked(one)
                continue
            made[self._mark(f"{{{{- if {_condition(one)} }}}}")] = None
            made[key] = self.marked(one.tree)
            made[self._mark("{{- end }}")] = None
        return made

    def _items(self, tree: Tree) -> Iterable[Any]:
        if isinstance(tree, Each):
            return [self._mark(f"{{{{- range {_path(tree.name)} }}}}", "- {{ toJson . }}", "{{- end }}")]
        if isinstance(tree, Pairs):
            head = f"{{{{- range $name, $value := {_path(tree.name)} }}}}"
            return [self._mark(head, "- name: {{ toJson $name }}", "  value: {{ toJson $value }}", "{{- end }}")]
        if isinstance(tree, When):
            begin = self._mark(f"{{{{- if {_condition(tree)} }}}}")
            return [begin, self.marked(tree.tree), self._mark("{{- end }}")]
        if isinstance(tree, Mapping) and isinstance(next(iter(cast("Mapping[str, Tree]", tree).values()), None), When):
            raise InternalError("the first entry of an item cannot be one that may not be there")
        return [self.marked(tree)]

    def _mark(self, *lines: str) -> str:
        self._blocks.append(lines)
        return f"{_MARK}{len(self._blocks) - 1}x"


def _path(name: str) -> str:
    return f".Values.{name}"


def _condition(when: When) -> str:
    told = " ".join(_path(name) for name in when.names)
    told = f"or {told}" if len(when.names) > 1 else told
    return f"not ({told})" if when.absent else told


def _values(wanted: Wanted) -> str:
    """values.yaml, with what each means."""
    values = wanted.values
    whole = _commented(described(wanted), values, "")
    below = (f"{one}:\n{_commented(described(getattr(wanted, one)), values[one], '  ')}" for one in wanted.parts)
    return "".join((whole, *below))


def _commented(meanings: Mapping[str, str], values: Mapping[str, Any], indent: str) -> str:
    lines: list[str] = []
    for name, meaning in meanings.items():
        lines.append(f"# {meaning}")
        lines += yaml_text.one({name: _plain(values[name])}).splitlines()
    return "".join(f"{indent}{line}\n" if line else "\n" for line in lines)


def _schema(value: object) -> dict[str, Any]:
    """Which values there are: one that is misspelt is refused by Helm. Maps that are empty take any names."""
    if isinstance(value, Mapping):
        table = cast("Mapping[str, object]", value)
        if not table or all(isinstance(one, str) for one in table.values()):
            return {"type": "object", "additionalProperties": {"type": "string"}}
        known = {name: _schema(one) for name, one in table.items()}
        return {"type": "object", "properties": known, "additionalProperties": False}
    if isinstance(value, (list, tuple)):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "integer" if isinstance(value, int) else "string"}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
