"""A short run of the fuzzer with a fixed seed; `make fuzz` is the long one."""

import signal
from collections.abc import Iterator

import pytest
from targets import Target, all_targets
from trial import try_input, watch_time

SEED = 20_240_229
EXAMPLES = 6000
_TARGETS = all_targets()
_SHARES = sum(target.share for target in _TARGETS)


@pytest.fixture
def watched() -> Iterator[None]:
    """Hangs end in a failure while this lasts."""
    before = signal.getsignal(signal.SIGPROF)
    watch_time()
    yield
    signal.signal(signal.SIGPROF, before)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("target", _TARGETS, ids=lambda target: target.name)
def test_survives(target: Target) -> None:
    for number in range(EXAMPLES * target.share // _SHARES):
        failure = try_input(target, f"{SEED}-{number}")
        assert failure is None, str(failure)
