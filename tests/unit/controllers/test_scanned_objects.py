"""The table of what was judged: sixteen bytes for each object."""

import random
import threading

import pytest

from lictor.controllers.scan.progress import ScannedObjects, hash_text


def test_put_get_remove():
    ledger = ScannedObjects()
    assert ledger.get("a") is None
    ledger.put("a", 5, reported=True)
    ledger.put("b", 6, reported=False)
    ledger.put("a", 7, reported=False)
    assert ledger.get("a") == (7, False)
    assert ledger.get("b") == (6, False)
    ledger.remove("a")
    ledger.remove("never")
    assert ledger.get("a") is None
    assert len(ledger) == 1


@pytest.mark.parametrize("state", [0, 1, 1 << 59, (1 << 60) - 1])
def test_states_of_sixty_bits_are_kept(state):
    ledger = ScannedObjects()
    ledger.put("a", state, reported=True)
    assert ledger.get("a") == (state, True)


def test_behaves_as_a_dictionary_does():
    dice, ledger, model = random.Random(3), ScannedObjects(), {}
    for _ in range(20_000):
        uid = f"uid-{dice.randrange(4000)}"
        if dice.random() < 0.3:
            ledger.remove(uid)
            model.pop(uid, None)
        else:
            state = dice.randrange(1 << 60)
            ledger.put(uid, state, reported=bool(state & 1))
            model[uid] = (state, bool(state & 1))
    assert len(ledger) == len(model)
    assert all(ledger.get(f"uid-{i}") == model.get(f"uid-{i}") for i in range(4000))


def test_objects_that_come_and_go_leave_no_growing_table():
    ledger = ScannedObjects()
    for number in range(50_000):
        ledger.put(str(number), 1, reported=False)
        ledger.remove(str(number))
    assert len(ledger._keys) <= 2048


def test_adopt_takes_all_of_another():
    first, second = ScannedObjects(), ScannedObjects()
    first.put("old", 1, reported=True)
    second.put("new", 2, reported=True)
    first.adopt(second)
    assert first.get("old") is None
    assert first.get("new") == (2, True)
    assert len(first) == 1


def test_threads_do_not_disturb_each_other():
    ledger = ScannedObjects()

    def fill(part):
        for number in range(3000):
            ledger.put(f"{part}-{number}", number, reported=True)

    threads = [threading.Thread(target=fill, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger) == 12_000
    assert all(ledger.get(f"2-{n}") == (n, True) for n in range(3000))


def test_hashes_separate_their_parts():
    assert hash_text("ab", "c") != hash_text("a", "bc")
    assert hash_text("a") == hash_text(b"a")
    assert hash_text("") > 1
