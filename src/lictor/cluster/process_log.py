"""What a process of lictor writes to its log: how much, and records of requests and policies."""

import logging
import time
from typing import Final

from lictor.cluster.settings import LOG_LEVELS, Settings, SettingsWatch
from lictor.ports import GuestLogLine
from lictor.raw import Json, JsonObject

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
    # What formatters ask of every record, and this one never has.
    args = None
    exc_info = None
    exc_text = None
    stack_info = None

    def __init__(self, name: str, level: int, message: str, facts: JsonObject) -> None:
        self.name = name
        self.levelno = level
        self.levelname = logging.getLevelName(level)
        self.msg = message
        self.created = time.time()
        self.facts = facts

    def __getattr__(self, name: str) -> Json:
        """Facts by their names, as `extra` would give them, and what nobody asked for."""
        facts = self.__dict__.get("facts", _BLANK)
        if name in facts:
            return facts[name]
        if name in _BLANK:
            return _BLANK[name]
        raise AttributeError(name)


def log_guest_line(line: GuestLogLine) -> None:
    """Write a line of a policy to the log; levels that nobody knows are for those who debug."""
    level = _GUEST_LEVELS.get(line.level, logging.DEBUG)
    # Together, so that none of the policy's own fields takes the name of one of ours.
    fields = {"fields": dict(line.data)} if line.data else {}
    log.log(level, "policy log", extra={"policy": line.policy, "said": line.message, **fields})
