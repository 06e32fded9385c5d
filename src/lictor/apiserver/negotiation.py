"""In which form does a client want its objects?"""

from enum import StrEnum
from functools import lru_cache

import msgspec

from lictor.apiserver.status_errors import not_acceptable

_ACCEPTED = ("application/json",)
_WILD = frozenset(("*/*", "application/*", "application/json"))
_META = "meta.k8s.io"


class ObjectForm(StrEnum):
    """What is made of objects."""

    OBJECT = "Object"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


class AcceptedForm(msgspec.Struct, frozen=True):
    """A form, in a version of it."""

    form: ObjectForm = ObjectForm.OBJECT
    version: str = "v1"


_FORMS = {
    "Table": ObjectForm.TABLE,
    "PartialObjectMetadata": ObjectForm.METADATA,
    "PartialObjectMetadataList": ObjectForm.METADATA,
}


@lru_cache(maxsize=256)
def read_accept(header: bytes) -> AcceptedForm:
    """The first form that the client names and we know; raises RefusedRequestError 406."""
    text = header.decode("latin-1")
    if not text.strip():
        return AcceptedForm()
    for clause in text.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media.lower() not in _WILD:
            continue
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        if "as" not in named:
            return AcceptedForm()
        form = _FORMS.get(named["as"])
        version = named.get("v", "")
        if form is not None and named.get("g") == _META and version in ("v1", "v1beta1"):
            return AcceptedForm(form, version)
    raise not_acceptable(_ACCEPTED)
