"""A log record that is made once per request: a constant message, and facts, without detours.

`logging` would look for the line of code, the thread and the process, and would mix the facts with
thirty fields of its own, from which whoever writes the line had to pick them out again.
"""

import logging
import time

from lictor.raw import JsonObject

_BLANK = vars(logging.makeLogRecord({}))


class FactRecord(logging.LogRecord):
    """A record like any other, for `Logger.handle`; its facts are also at hand by themselves."""

    facts: JsonObject

    def __init__(self, name: str, level: int, message: str, facts: JsonObject) -> None:
        now = time.time()
        fields = self.__dict__
        fields.update(_BLANK)
        fields.update(facts)
        fields["name"] = name
        fields["levelno"] = level
        fields["levelname"] = logging.getLevelName(level)
        fields["msg"] = message
        fields["created"] = now
        fields["facts"] = facts
