"""How much is logged: what the flag says, or the ConfigMap while it says something else."""

import logging
from typing import Final

from lictor.cluster.settings import LOG_LEVELS, Settings, SettingsWatch

log = logging.getLogger(__name__)

# Libraries that log each request: only where everything is asked for.
_CHATTY: Final = ("httpx", "httpcore", "asyncio", "hpack")
_EVERYTHING: Final = "trace"
_DEBUG_FROM: Final = 4
_EVERYTHING_FROM: Final = 8


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
