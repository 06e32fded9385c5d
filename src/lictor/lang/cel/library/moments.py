"""`getMilliseconds()`: of a duration, Kubernetes answers all of them, the engine the rest."""

from datetime import datetime, timedelta

from lictor.lang.cel.declaration import member
from lictor.lang.cel.rewriting import REPLACED_METHODS

_NAME = REPLACED_METHODS["getMilliseconds"]


def _of_moment(moment: datetime, _zone: str = "") -> int:
    return moment.microsecond // 1000


def _of_length(length: timedelta) -> int:
    whole = abs(length) // timedelta(milliseconds=1)
    return -whole if length < timedelta() else whole


OVERLOADS = (
    member(_NAME, "timestamp -> int", _of_moment),
    member(_NAME, "timestamp, string -> int", _of_moment),
    member(_NAME, "duration -> int", _of_length),
)
