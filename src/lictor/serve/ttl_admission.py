"""Is the label that says when an object goes away written so that we can read it?"""

from datetime import UTC, datetime

from lictor.lang.ttl import find_deletion_time
from lictor.raw import JsonObject
from lictor.serve.opinion import ACCEPTED, Opinion

TTL_LABEL = "cleanup.kyverno.io/ttl"
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def review_ttl(document: JsonObject) -> Opinion:
    """A warning at most: a label is no reason to refuse an object."""
    metadata = document.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    value = labels.get(TTL_LABEL) if isinstance(labels, dict) else None
    if not isinstance(value, str):
        return ACCEPTED
    try:
        find_deletion_time(value, _ANY_TIME)
    except ValueError as error:
        told = f"{TTL_LABEL} label value cannot be parsed as any recognizable format ({error})"
        return Opinion(warnings=(told,))
    return ACCEPTED
