"""What a process of lictor writes to its log: how much, and records of requests and policies."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from lictor.core.ports import GuestLogLine
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.settings import LOG_LEVELS, Settings, SettingsWatch

log = logging.getLogger(__name__)

# Libraries that log each request: only where everything is asked for.
_CHATTY: Final = ("httpx", "httpcore", "asyncio", "hpack")
_EVERYTHING: Final = "trace"
_DEBUG_FROM: Final = 4
_EVERYTHING_FROM: Final = 8
_GUEST_LEVELS: Final = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
}
_BLANK: Final = vars(logging.makeLogRecord({}))


def choose_level(verbosity: int) -> str:
    """What a number of `--v` means."""
    if verbosity >= _EVERYTHING_FROM:
        return _EVERYTHING
    return "debug" if verbosity >= _DEBUG_FROM else "info"


def set_level(level: str) -> None:
    """Log so much from now on, in this process: one of LOG_LEVELS."""
    number = logging.DEBUG
    if level != _EVERYTHING:
        number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(number)
    for name in _CHATTY:
        chatty = logging.getLogger(name)
        chatty.setLevel(logging.NOTSET if level == _EVERYTHING else logging.WARNING)


def read_level() -> str:
    """How much this process logs just now."""
    number = logging.getLogger().level
    if number <= logging.DEBUG:
        is_all = logging.getLogger(_CHATTY[0]).level == logging.NOTSET
        return _EVERYTHING if is_all else "debug"
    return logging.getLevelName(number).lower()


def follow_log_level(settings: SettingsWatch) -> None:
    """Log as much as the settings say; where they say nothing, as much as now."""
    usual = now = read_level()

    def change(current: Settings) -> None:
        nonlocal now
        wanted = current.log_level or usual
        if wanted == now:
            return
        facts = {"before": now, "level": wanted}
        # Told while one of the two levels lets it through.
        if LOG_LEVELS.index(wanted) > LOG_LEVELS.index(now):
            set_level(wanted)
            log.info("log level changed", extra=facts)
        else:
            log.info("log level changed", extra=facts)
            set_level(wanted)
        now = wanted

    settings.listen(change)


class FactRecord(logging.LogRecord):
    """A record made once per request, for `Logger.handle`: a constant message, and facts.

    `logging` would look for the line of code, the thread and the process, and would mix the facts
    with thirty fields of its own, from which whoever writes the line had to pick them out again.
    """

    facts: JsonObject

    def __init__(self, name: str, level: int, message: str, facts: JsonObject) -> None:
        now = time.time()
        # Others' formatters look into this very dictionary.
        fields = self.__dict__
        fields.update(_BLANK)
        fields.update(facts)
        fields["name"] = name
        fields["levelno"] = level
        fields["levelname"] = logging.getLevelName(level)
        fields["msg"] = message
        fields["created"] = now
        fields["facts"] = facts


class FactLine:
    """A message and the names of its facts: of many lines, what is the same each time."""

    __slots__ = ("message", "names", "spaces", "text")

    def __init__(self, message: str, *names: str) -> None:
        self.message = message
        self.names = names
        # As people read it, with places for the values.
        self.text = "".join((message.replace("%", "%%"), *[f" {name}=%s" for name in names]))
        self.spaces = self.text.count(" ")

    def list_facts(self, values: Sequence[Json]) -> JsonObject:
        return dict(zip(self.names, values, strict=True))


class FactHandler(logging.Handler):
    """A handler that can write a line without a record."""

    def write_facts(self, name: str, level: int, line: FactLine, values: tuple[Json, ...]) -> None:
        """What a logger of this name says."""
        raise NotImplementedError


def log_facts(logger: logging.Logger, level: int, line: FactLine, *values: Json) -> None:
    """Like `logger.log(level, message, extra=facts)`, by a way that is short enough for requests.

    A record, its formatter and the search for handlers are a dozen functions, which cost a request
    more than three of its rules do. They are left out where one handler gets every line. Whoever
    calls this has asked `isEnabledFor`.
    """
    handlers = logging.root.handlers
    if len(handlers) == 1 and isinstance(handlers[0], FactHandler):
        handlers[0].write_facts(logger.name, level, line, values)
    else:
        facts = line.list_facts(values)
        logger.handle(FactRecord(logger.name, level, line.message, facts))


def log_guest_line(line: GuestLogLine) -> None:
    """Write a line of a policy to the log; levels that nobody knows are for those who debug."""
    level = _GUEST_LEVELS.get(line.level, logging.DEBUG)
    # Together, so that none of the policy's own fields takes the name of one of ours.
    fields = {"fields": dict(line.data)} if line.data else {}
    log.log(level, "policy log", extra={"policy": line.policy, "said": line.message, **fields})
