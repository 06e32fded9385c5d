"""An engine whose epoch moves, as whoever serves policies keeps it."""

import threading

import pytest

from lictor.addons.kubewarden.runtime.engine import TICK_SECONDS, make_engine


@pytest.fixture(scope="session")
def engine():
    engine = make_engine()
    done = threading.Event()

    def tick():
        while not done.wait(TICK_SECONDS):
            engine.increment_epoch()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    yield engine
    done.set()
    thread.join()
