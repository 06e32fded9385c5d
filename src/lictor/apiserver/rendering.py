"""Objects and lists in the form that a client asked for."""

from collections.abc import Callable
from typing import assert_never

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.lists import ListPage
from lictor.apiserver.objects import version_of
from lictor.apiserver.request import AcceptedForm, ObjectForm
from lictor.apiserver.tables.partial import list_metadata, show_metadata
from lictor.apiserver.tables.render import render_table
from lictor.raw import JsonObject


def render_object(
    wish: AcceptedForm, kind: ServedKind, document: JsonObject, include: str
) -> JsonObject:
    """One object; `include` is how much of it a row of a table carries."""
    match wish.form:
        case ObjectForm.OBJECT:
            return document
        case ObjectForm.METADATA:
            return show_metadata(document, wish.version)
        case ObjectForm.TABLE:
            metadata = {"resourceVersion": version_of(document)}
            return render_table(
                kind,
                [document],
                list_metadata=metadata,
                include_object=include,
                version=wish.version,
            )
        case _:
            assert_never(wish.form)


def render_page(wish: AcceptedForm, kind: ServedKind, page: ListPage, include: str) -> JsonObject:
    """A page of a list."""
    metadata = page.describe()
    match wish.form:
        case ObjectForm.OBJECT:
            return {
                "kind": kind.list_kind,
                "apiVersion": kind.api_version,
                "metadata": metadata,
                "items": page.items,
            }
        case ObjectForm.METADATA:
            return list_metadata(page.items, metadata, wish.version)
        case ObjectForm.TABLE:
            return render_table(
                kind,
                page.items,
                list_metadata=metadata,
                include_object=include,
                version=wish.version,
            )
        case _:
            assert_never(wish.form)


def build_show(
    wish: AcceptedForm, kind: ServedKind, include: str
) -> Callable[[JsonObject], JsonObject] | None:
    """How a watch shows an object; None for as it is."""
    if wish.form is ObjectForm.OBJECT:
        return None
    return lambda document: render_object(wish, kind, document, include)
