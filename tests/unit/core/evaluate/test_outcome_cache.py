"""How long, and how many, outcomes of image verification are kept."""

import pytest

from lictor.core.evaluate.verify_images.outcome_cache import (
    ImageOutcome,
    OutcomeCache,
    OutcomeCacheSettings,
)
from lictor.core.model.result import Status

VERIFIED = ImageOutcome(Status.PASS, "verified", "sha256:1")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("status", "seconds", "is_kept"),
    [
        (Status.PASS, 59, True),
        (Status.PASS, 61, False),
        (Status.FAIL, 4, True),
        (Status.FAIL, 6, False),
        (Status.ERROR, 6, False),
    ],
)
def test_outcomes_are_kept_for_their_time(status: Status, seconds: float, *, is_kept: bool) -> None:
    clock = Clock()
    cache = OutcomeCache(OutcomeCacheSettings(ttl=60), clock)
    outcome = ImageOutcome(status, "")
    cache.keep("block", "app:v1", outcome)
    clock.now += seconds
    assert cache.find("block", "app:v1") == (outcome if is_kept else None)


def test_outcomes_belong_to_a_block_and_an_image() -> None:
    cache = OutcomeCache()
    cache.keep("block", "app:v1", VERIFIED)
    assert cache.find("other", "app:v1") is None
    assert cache.find("block", "app:v2") is None


def test_as_many_images_are_kept_as_the_size_says() -> None:
    """Each is known by its tag and by its digest."""
    cache = OutcomeCache(OutcomeCacheSettings(max_size=10))
    for number in range(15):
        for name in (f"app:v{number}", f"app@sha256:{number}"):
            cache.keep("block", name, VERIFIED)
    found = [number for number in range(15) if cache.find("block", f"app:v{number}")]
    assert found == list(range(5, 15))


@pytest.mark.parametrize(
    "settings",
    [
        OutcomeCacheSettings(enabled=False),
        OutcomeCacheSettings(max_size=0),
        OutcomeCacheSettings(ttl=0),
    ],
)
def test_nothing_is_kept_where_nothing_may_be(settings: OutcomeCacheSettings) -> None:
    cache = OutcomeCache(settings)
    cache.keep("block", "app:v1", VERIFIED)
    assert cache.find("block", "app:v1") is None
