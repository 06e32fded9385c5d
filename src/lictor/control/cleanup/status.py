"""What the status of a policy that deletes says, and what shall be written into it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from lictor.raw import Json, JsonObject

READY = "Ready"
# True from just before the first deletion of a run until after the last one.
EXECUTING = "Executing"
_MAX_MESSAGE = 4000


class Statement(msgspec.Struct, frozen=True):
    """One condition of the status."""

    type: str
    holds: bool
    reason: str
    message: str


class Status(msgspec.Struct, frozen=True):
    """The status of a document, whichever shape its kind has."""

    conditions: tuple[JsonObject, ...] = ()
    last_execution: datetime | None = None

    def find(self, name: str) -> JsonObject | None:
        """The condition of this type."""
        return next((each for each in self.conditions if each.get("type") == name), None)

    @property
    def is_executing(self) -> bool:
        """Did someone begin a run and not end it?"""
        return (self.find(EXECUTING) or {}).get("status") == "True"

    def says(self, statement: Statement, generation: int) -> bool:
        """Is this written there already?"""
        found = self.find(statement.type)
        return found is not None and all(
            found.get(name) == value for name, value in _describe(statement, generation).items()
        )


def read_status(document: JsonObject) -> Status:
    """The status as it is now; what cannot be read counts as not there."""
    status = _object(document, "status")
    holder = _object(status, "conditionStatus") if _is_cel(document) else status
    conditions = holder.get("conditions")
    return Status(
        tuple(c for c in conditions if isinstance(c, dict)) if isinstance(conditions, list) else (),
        read_time(status.get("lastExecutionTime")),
    )


def build_status_patch(
    document: JsonObject,
    statements: Iterable[Statement],
    now: datetime,
    *,
    executed: datetime | None = None,
) -> JsonObject:
    """A merge patch that is refused if someone has changed the document since."""
    metadata = document["metadata"]
    generation = int(metadata.get("generation") or 0)
    conditions = list(read_status(document).conditions)
    for statement in statements:
        _put(conditions, statement, generation, now)
    status: JsonObject = {"conditions": conditions}
    if _is_cel(document):
        status = {"conditionStatus": {"conditions": conditions, **_sum_up(conditions)}}
    if executed is not None:
        status["lastExecutionTime"] = format_time(executed)
    return {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}


def _put(
    conditions: list[JsonObject], statement: Statement, generation: int, now: datetime
) -> None:
    described = _describe(statement, generation)
    for index, each in enumerate(conditions):
        if each.get("type") == statement.type:
            same = each.get("status") == described["status"]
            changed = each.get("lastTransitionTime") if same else format_time(now)
            conditions[index] = {**each, **described, "lastTransitionTime": changed}
            return
    conditions.append({**described, "lastTransitionTime": format_time(now)})


def _describe(statement: Statement, generation: int) -> JsonObject:
    return {
        "type": statement.type,
        "status": "True" if statement.holds else "False",
        "reason": statement.reason,
        "message": cut(statement.message),
        "observedGeneration": generation,
    }


def _sum_up(conditions: Sequence[JsonObject]) -> JsonObject:
    ready = next((each for each in conditions if each.get("type") == READY), {})
    return {"ready": ready.get("status") == "True", "message": str(ready.get("message") or "")}


def cut(text: str) -> str:
    """A text that fits into a condition."""
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 3]}..."


def read_time(value: Json) -> datetime | None:
    """A time as the API server writes it; None where there is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """A time as the API server writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_cel(document: JsonObject) -> bool:
    return str(document.get("apiVersion")).startswith("policies.kyverno.io/")


def _object(holder: JsonObject, name: str) -> JsonObject:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
