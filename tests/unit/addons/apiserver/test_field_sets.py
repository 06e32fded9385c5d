"""Sets of fields: the algebra, checked against sets of paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.addons.apiserver.ownership.field_sets import (
    LEAF,
    exclude,
    has_path,
    intersect,
    is_field_set,
    list_paths,
    mark_member,
    print_path,
    share_fields,
    subtract,
    unite,
)

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"c"}', 'v:"d"'])
PATHS = st.frozensets(st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=8)


def build(paths):
    """A set with exactly these members."""
    below = {}
    for first, *rest in paths:
        below.setdefault(first, set()).add(tuple(rest))
    return {
        first: mark_member(build(rest - {()})) if () in rest else build(rest)
        for first, rest in below.items()
    }


def members(fields):
    return frozenset(list_paths(fields))


@given(PATHS)
def test_a_set_has_the_members_it_was_made_of(paths):
    fields = build(paths)
    assert members(fields) == paths
    assert is_field_set(fields)
    assert all(has_path(fields, path) for path in paths)
    assert share_fields(fields) is share_fields(build(paths))


@given(PATHS, PATHS)
def test_operations_are_those_of_sets(left, right):
    one, two = build(left), build(right)
    assert members(unite(one, two)) == left | right
    assert members(subtract(one, two)) == left - right
    assert members(intersect(one, two)) == left & right
    assert (one, two) == (build(left), build(right))


@given(PATHS, PATHS)
def test_excluded_places_take_along_what_is_below_them(left, right):
    kept = {path for path in left if not any(path[: len(other)] == other for other in right)}
    assert members(exclude(build(left), build(right))) == kept


@given(PATHS, PATHS)
def test_nothing_is_left_where_nothing_is_a_member(left, right):
    """A node without members below it would itself be taken for a member."""
    rest = subtract(build(left), build(right))
    assert rest == build(members(rest))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:containers", 'k:{"name":"a"}', "f:image"), '.containers[name="a"].image'),
        (("f:ports", 'k:{"port":80,"protocol":"TCP"}'), '.ports[port=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"x/y"'), '.finalizers[="x/y"]'),
        (("f:list", "i:3"), ".list[3]"),
        (("f:data", "f:a:b"), ".data.a:b"),
    ],
)
def test_paths_are_told_as_kubernetes_tells_them(path, text):
    assert print_path(path) == text


def test_members_come_before_what_is_below_them():
    fields = {"f:b": LEAF, "f:a": {".": LEAF, "f:c": LEAF}, "f:d": {"f:e": LEAF}}
    listed = [print_path(path) for path in list_paths(fields)]
    assert listed == [".a", ".b", ".a.c", ".d.e"]


def nest(depth):
    fields = {}
    for _ in range(depth):
        fields = {"f:a": fields}
    return fields


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "f:a",
        {"f:a": 1},
        {"f:a": None},
        {"f:a": {"f:b": []}},
        {"a": {}},
        {"": {}},
        {"k:name": {}},
        {"k:1": {}},
        {"v:{": {}},
        {"x:1": {}},
    ],
    ids=str,
)
def test_what_clients_send_may_be_no_set(value):
    assert not is_field_set(value)


def test_what_is_nested_without_end_is_no_set():
    assert not is_field_set(nest(5000))
