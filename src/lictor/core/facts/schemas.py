"""The fields of Kubernetes' kinds and how they are merged, read on demand."""

from collections.abc import Mapping
from functools import cache

import msgspec

from lictor.core.facts.facts import find_type_name, load_section
from lictor.core.raw import Json, JsonObject


class ListForm(msgspec.Struct):
    """A list: replaced as a whole (`atomic`), a set of scalars, or merged by keys."""

    element: "Form"
    is_atomic: bool = True
    # Key -> its default for elements that omit it; empty for a set.
    keys: Mapping[str, Json] = {}


class MapForm(msgspec.Struct):
    """An object: fields by name, and the form of all others (None: no others)."""

    fields: dict[str, "Form"]
    others: "Form | None" = None
    is_atomic: bool = False


class Form(msgspec.Struct):
    """What is allowed at a field; one that allows anything has several parts."""

    # string, number, boolean, or scalar for any of them; empty if none is allowed.
    scalar: str = ""
    list: ListForm | None = None
    map: MapForm | None = None


def _make_untyped() -> Form:
    form = Form(scalar="scalar")
    form.list = ListForm(form)
    form.map = MapForm({}, form, is_atomic=True)
    return form


def _make_deduced() -> Form:
    form = Form(scalar="scalar", list=ListForm(UNTYPED))
    form.map = MapForm({}, form)
    return form


# Anything, and nothing in it is merged.
UNTYPED = _make_untyped()
# Anything: maps are merged, lists are replaced. Used for unknown kinds.
DEDUCED = _make_deduced()

_SCALARS = frozenset(("string", "number", "boolean", "scalar"))


def find_form(api_version: str, kind: str) -> Form | None:
    """The form of a built-in kind; None for other kinds."""
    return _load_table().find(api_version, kind)


class _Table:
    """The table as read; forms are linked on demand."""

    def __init__(self) -> None:
        self._types: Mapping[str, Json] = load_section("types")
        self._forms: dict[str, Form] = {}

    def find(self, api_version: str, kind: str) -> Form | None:
        name = find_type_name(api_version, kind)
        return None if name is None else self._link(name)

    def _link(self, name: str) -> Form:
        form = self._forms.get(name)
        if form is None:
            # Registered before it is filled: types may be recursive.
            form = self._forms[name] = Form()
            read = self._read(self._types[name])
            form.scalar, form.list, form.map = read.scalar, read.list, read.map
        return form

    def _read(self, form: Json) -> Form:
        if isinstance(form, str):
            return self._read_word(form)
        if "list" in form:
            return Form(list=ListForm(self._read(form["list"])))
        if "set" in form:
            return Form(list=ListForm(self._read(form["set"]), is_atomic=False))
        if "keyed" in form:
            return Form(list=ListForm(self._read(form["keyed"]), is_atomic=False, keys=form["by"]))
        return Form(map=self._read_map(form))

    def _read_word(self, word: str) -> Form:
        if word in _SCALARS:
            return Form(scalar=word)
        if word == "untyped":
            return UNTYPED
        return DEDUCED if word == "deduced" else self._link(word[1:])

    def _read_map(self, form: JsonObject) -> MapForm:
        whole = form.get("atomic", False)
        if isinstance(whole, str):
            # A reference that marks this one field as atomic.
            inner = self._link(whole[1:]).map or MapForm({})
            return MapForm(inner.fields, inner.others, is_atomic=True)
        fields = {key: self._read(value) for key, value in form.get("fields", {}).items()}
        others = self._read(form["map"]) if "map" in form else None
        return MapForm(fields, others, is_atomic=whole)


@cache
def _load_table() -> _Table:
    return _Table()
