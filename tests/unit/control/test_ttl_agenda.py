"""The agenda of objects with a time to live."""

from datetime import UTC, datetime, timedelta

from lictor.cluster.resource import CONFIG_MAP, SECRET
from lictor.control.ttl.watch import Agenda, ExpiringObject

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def mortal(name, resource=CONFIG_MAP):
    return ExpiringObject(resource, "default", name)


def at(minutes):
    return NOON + timedelta(minutes=minutes)


def test_takes_what_is_due_the_earliest_first_and_not_too_much():
    agenda = Agenda()
    for name, minutes in (("c", 3), ("a", 1), ("d", 9), ("b", 2)):
        assert agenda.put(mortal(name), at(minutes))
    assert agenda.next_moment == at(1)
    assert agenda.take(at(3), 2) == [mortal("a"), mortal("b")]
    assert agenda.take(at(3), 2) == [mortal("c")]
    assert agenda.take(at(3), 2) == []
    assert len(agenda) == 1
    assert mortal("d") in agenda


def test_a_moved_object_counts_once_and_a_dropped_one_not_at_all():
    agenda = Agenda()
    agenda.put(mortal("a"), at(1))
    agenda.put(mortal("a"), at(5))
    assert not agenda.put(mortal("a"), at(5))
    agenda.put(mortal("b"), at(2))
    agenda.drop(mortal("b"))
    agenda.put(mortal("s", SECRET), at(3))
    agenda.drop_all(SECRET)
    assert agenda.next_moment == at(5)
    assert agenda.take(at(9), 10) == [mortal("a")]
    assert agenda.next_moment is None


def test_an_object_that_is_moved_all_the_time_leaves_no_trail():
    agenda = Agenda()
    for step in range(20_000):
        agenda.put(mortal("a"), at(step))
    assert len(agenda._heap) <= 1002
    assert agenda.take(at(19_998), 1) == []
    assert agenda.take(at(19_999), 1) == [mortal("a")]
