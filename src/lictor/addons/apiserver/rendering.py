"""Objects and lists in the form that a client accepts."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import assert_never

from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.lists import ListPage
from lictor.addons.apiserver.objects import version_of
from lictor.addons.apiserver.request import AcceptedForm, ObjectForm
from lictor.addons.apiserver.table_columns import TableColumns
from lictor.core.raw import Json, JsonObject

_META = "meta.k8s.io"


def show_metadata(document: JsonObject, version: str = "v1") -> JsonObject:
    """A PartialObjectMetadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"{_META}/{version}",
        "metadata": document["metadata"],
    }


def list_metadata(
    objects: Iterable[JsonObject], metadata: JsonObject, version: str = "v1"
) -> JsonObject:
    """A PartialObjectMetadataList; `metadata` is that of the list."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"{_META}/{version}",
        "metadata": metadata,
        "items": [show_metadata(each, version) for each in objects],
    }


def render_table(
    kind: ServedKind,
    objects: Iterable[JsonObject],
    *,
    list_metadata: JsonObject,
    include_object: str = "Metadata",
    version: str = "v1",
    now: datetime | None = None,
) -> JsonObject:
    """A table with a row for each object; `include_object` is Metadata, Object or None."""
    columns = kind.traits.columns
    moment = now or datetime.now(UTC)
    return {
        "kind": "Table",
        "apiVersion": f"{_META}/{version}",
        "metadata": list_metadata,
        "columnDefinitions": [column.describe() for column in columns.columns],
        "rows": [_build_row(columns, each, include_object, version, moment) for each in objects],
    }


def _build_row(
    columns: TableColumns, document: JsonObject, include: str, version: str, now: datetime
) -> JsonObject:
    shown: Json = None
    if include == "Object":
        shown = document
    elif include != "None":
        shown = show_metadata(document, version)
    return {"cells": columns.fill(document, now), "object": shown}


def render_object(
    form: AcceptedForm, kind: ServedKind, document: JsonObject, include: str
) -> JsonObject:
    """One object; `include` is how much of it a row of a table carries."""
    match form.form:
        case ObjectForm.OBJECT:
            return document
        case ObjectForm.METADATA:
            return show_metadata(document, form.version)
        case ObjectForm.TABLE:
            metadata = {"resourceVersion": version_of(document)}
            return render_table(
                kind,
                [document],
                list_metadata=metadata,
                include_object=include,
                version=form.version,
            )
        case _:
            assert_never(form.form)


def render_page(form: AcceptedForm, kind: ServedKind, page: ListPage, include: str) -> JsonObject:
    """A page of a list."""
    metadata = page.describe()
    match form.form:
        case ObjectForm.OBJECT:
            return {
                "kind": kind.list_kind,
                "apiVersion": kind.api_version,
                "metadata": metadata,
                "items": page.items if kind.is_custom else list(map(_drop_kind, page.items)),
            }
        case ObjectForm.METADATA:
            return list_metadata(page.items, metadata, form.version)
        case ObjectForm.TABLE:
            return render_table(
                kind,
                page.items,
                list_metadata=metadata,
                include_object=include,
                version=form.version,
            )
        case _:
            assert_never(form.form)


def _drop_kind(document: JsonObject) -> JsonObject:
    """As Kubernetes writes items of lists; only those of custom kinds name it."""
    return {key: value for key, value in document.items() if key not in ("kind", "apiVersion")}


def build_show(
    form: AcceptedForm, kind: ServedKind, include: str
) -> Callable[[JsonObject], JsonObject] | None:
    """How a watch shows an object; None for as it is."""
    if form.form is ObjectForm.OBJECT:
        return None
    return lambda document: render_object(form, kind, document, include)
