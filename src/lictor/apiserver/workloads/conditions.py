"""Conditions in a status: found by their type, and stamped only when they really change."""

from lictor.apiserver.objects import read_clock
from lictor.raw import JsonObject


def find_condition(conditions: list[JsonObject], kind: str) -> JsonObject | None:
    """The condition of a type."""
    return next((each for each in conditions if each.get("type") == kind), None)


def put_condition(
    conditions: list[JsonObject], wanted: JsonObject, *, is_stamped: bool = False
) -> None:
    """Put a condition in the place of its older self; `is_stamped`: with the time of the update.

    One with the same status and reason stays as it is, even where its words differ: they may name
    a Pod that has another name each time.
    """
    old = find_condition(conditions, wanted["type"])
    now = read_clock()
    if old is not None:
        if all(old.get(name) == wanted.get(name) for name in ("status", "reason")):
            return
        conditions.remove(old)
    is_same = old is not None and old.get("status") == wanted["status"]
    made = {**wanted, "lastTransitionTime": old["lastTransitionTime"] if old and is_same else now}
    if is_stamped:
        made["lastUpdateTime"] = now
    conditions.append(made)
