"""Do objects that an expression writes fit the fields of their kinds: maps, lists and constants?"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import msgspec

from lictor.core.facts.schemas import DEDUCED, Form, ListForm, MapForm
from lictor.core.lang.cel.tree import CelNode
from lictor.core.lang.cel.types import CelType

TYPE_WORDS = {"string": "text", "number": "a number", "boolean": "true or false"}
CONSTANT_TYPES = {
    "string": "string",
    "bool": "boolean",
    **dict.fromkeys(("int", "uint", "double"), "number"),
}


class FormSource(Protocol):
    """Knows what objects look like, by kind and by resource; None where nobody knows."""

    def find_form(self, api_version: str, kind: str) -> Form | None: ...

    def find_resource_form(self, api_version: str, resource: str) -> Form | None: ...


class LiteralIssue(msgspec.Struct, frozen=True):
    """What does not fit, and which part of the expression it is."""

    node: CelNode
    message: str
    # Of a field that is not there: its name, and those that are.
    name: str = ""
    known: tuple[str, ...] = ()


class LiteralCheck(msgspec.Struct, frozen=True):
    """Checks of one tree; `kinds` are the types of its parts."""

    kinds: Mapping[int, CelType]

    def check(self, node: CelNode, form: Form | None) -> Iterator[LiteralIssue]:
        """What does not fit in a value that is written at a place of this form."""
        if form is None:
            return
        match node.kind:
            case "map" if form.map is not None:
                yield from self._check_entries(node, form.map)
            case "list" if form.list is not None:
                for part in node.parts:
                    yield from self.check(part, form.list.element)
            case "constant":
                yield from self._check_constant(node, form)
            case "call" if node.name in ("dyn", "optional.of"):
                yield from self.check(node.parts[0], form)
            case "call" if node.name in ("_?_:_", "_+_"):
                for part in node.parts[-2:]:
                    yield from self.check(part, form)
            case "comprehension":
                # What `map` makes is put together step by step, from lists of one.
                yield from self.check(node.parts[3], form)

    def _check_entries(self, node: CelNode, form: MapForm) -> Iterator[LiteralIssue]:
        for key, value in zip(node.parts[::2], node.parts[1::2], strict=True):
            if key.kind != "constant" or not isinstance(key.value, str):
                continue
            found = form.fields.get(key.value, form.others)
            if found is None:
                message = f"undefined field '{key.value}'"
                yield LiteralIssue(key, message, key.value, tuple(form.fields))
            yield from self.check(value, found)

    def _check_constant(self, node: CelNode, form: Form) -> Iterator[LiteralIssue]:
        word = form.scalar if form.list is None and form.map is None else ""
        found = self.name_constant(node)
        if word in TYPE_WORDS and found and found != word:
            message = f"is {TYPE_WORDS[found]}, where the field takes {TYPE_WORDS[word]}"
            yield LiteralIssue(node, message)

    def name_constant(self, node: CelNode) -> str:
        """The type of a constant as forms name it; empty where it is none."""
        kind = self.kinds.get(node.number) if node.kind == "constant" else None
        return "" if kind is None else CONSTANT_TYPES.get(kind.name, "")

    def check_patch(self, node: CelNode, form: Form | None) -> Iterator[LiteralIssue]:
        """A `JSONPatch{...}` of objects of a form: its path, and the value that it puts there."""
        entries = _read_entries(node)
        operation, path, value = (entries.get(name) for name in ("op", "path", "value"))
        pointer = path.value if path is not None and path.kind == "constant" else None
        if path is None or not isinstance(pointer, str) or not pointer.startswith("/"):
            return
        for token in pointer[1:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            if form is None or (form.list is None and form.map is None):
                return
            if form.list is not None:
                form = form.list.element
                continue
            known: Mapping[str, Form] = form.map.fields if form.map is not None else {}
            form = known.get(name, form.map.others if form.map is not None else None)
            if form is None:
                yield LiteralIssue(path, f"undefined field '{name}'", name, tuple(known))
        if value is not None and operation is not None and operation.value in ("add", "replace"):
            yield from self.check(value, form)


def find_object_form(node: CelNode, source: FormSource) -> Form | None:
    """The form of a map that says itself which kind it is."""
    entries = _read_entries(node)
    api_version, kind = (_read_text(entries.get(name)) for name in ("apiVersion", "kind"))
    return source.find_form(api_version, kind) if api_version and kind else None


def find_lookup_form(node: CelNode, source: FormSource) -> Form | None:
    """What `resource.Get` and `resource.List` answer where their arguments are constants."""
    if node.name not in ("resource.Get", "resource.List") or len(node.parts) < 2:
        return None
    api_version, resource = map(_read_text, node.parts[:2])
    found = source.find_resource_form(api_version, resource) if api_version and resource else None
    return found if node.name == "resource.Get" or found is None else list_form(found)


def list_form(element: Form) -> Form:
    """The form of a List of objects; what else it has is not told."""
    return Form(map=MapForm({"items": Form(list=ListForm(element))}, DEDUCED))


def _read_entries(node: CelNode) -> dict[str, CelNode]:
    if node.kind != "map":
        return {}
    pairs = zip(node.parts[::2], node.parts[1::2], strict=True)
    return {key.value: value for key, value in pairs if isinstance(key.value, str)}


def _read_text(node: CelNode | None) -> str:
    """A constant text, also within `dyn`."""
    while node is not None and node.kind == "call" and node.name == "dyn":
        node = node.parts[0]
    is_text = node is not None and node.kind == "constant" and isinstance(node.value, str)
    return str(node.value) if node is not None and is_text else ""
