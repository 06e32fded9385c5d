"""Fields of objects, claimed, changed and removed, by the form of their kind."""

import pytest

from lictor.addons.apiserver.ownership.field_sets import (
    add_named,
    collect_fields,
    compare_fields,
    list_paths,
    name_element,
    print_path,
    remove_fields,
)
from lictor.core.errors import EvaluationError
from lictor.core.facts.schemas import DEDUCED, UNTYPED, Form, ListForm, MapForm

TEXT = Form(scalar="string")
PART = Form(map=MapForm({"id": TEXT, "note": TEXT}))
FORM = Form(
    map=MapForm(
        {
            "size": Form(scalar="number"),
            "inner": Form(map=MapForm({"text": TEXT})),
            "labels": Form(map=MapForm({}, TEXT)),
            "whole": Form(map=MapForm({}, TEXT, is_atomic=True)),
            "parts": Form(list=ListForm(PART, is_atomic=False, keys={"id": None})),
            "tags": Form(list=ListForm(TEXT, is_atomic=False)),
            "order": Form(list=ListForm(TEXT)),
            "free": DEDUCED,
            "closed": UNTYPED,
        }
    )
)


def show(fields):
    return [print_path(path) for path in list_paths(fields)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, []),
        ({"size": 1}, [".size"]),
        ({"size": None}, [".size"]),
        ({"inner": {"text": "x"}}, [".inner.text"]),
        ({"inner": {}}, [".inner"]),
        ({"labels": {"a": "b"}}, [".labels.a"]),
        ({"labels": None}, [".labels"]),
        ({"whole": {"a": "b"}}, [".whole"]),
        ({"parts": []}, []),
        ({"parts": [{"id": "x", "note": "y"}]},
         ['.parts[id="x"]', '.parts[id="x"].id', '.parts[id="x"].note']),
        ({"parts": [{"id": "x"}, {"id": "x"}]}, ['.parts[id="x"]']),
        ({"tags": ["a", "b"]}, ['.tags[="a"]', '.tags[="b"]']),
        ({"order": ["a"]}, [".order"]),
        ({"order": []}, [".order"]),
        ({"free": {"a": {"b": 1}, "c": [1]}}, [".free.a", ".free.c", ".free.a.b"]),
        ({"closed": {"a": {"b": 1}}}, [".closed"]),
    ],
    ids=str,
)  # fmt: skip
def test_an_applied_object_claims(value, expected):
    assert show(collect_fields(value, FORM)) == expected


@pytest.mark.parametrize(
    ("old", "new", "removed", "modified", "added"),
    [
        ({}, {}, [], [], []),
        ({"size": 1}, {"size": 1.0}, [], [], []),
        ({"size": 1}, {"size": 2}, [], [".size"], []),
        ({"size": 1}, {}, [".size"], [], []),
        ({}, {"inner": {"text": "x"}}, [], [], [".inner", ".inner.text"]),
        ({"inner": {}}, {"inner": {"text": "x"}}, [], [], [".inner.text"]),
        ({"inner": None}, {"inner": {"text": "x"}}, [], [], [".inner.text"]),
        ({"inner": None}, {"inner": {}}, [], [".inner"], []),
        ({"labels": {"a": "1", "b": "1"}}, {"labels": {"a": "2", "c": "1"}},
         [".labels.b"], [".labels.a"], [".labels.c"]),
        ({"whole": {"a": "1"}}, {"whole": {"b": "1"}}, [], [".whole"], []),
        ({"parts": [{"id": "x"}]}, {"parts": [{"id": "x", "note": "n"}, {"id": "y"}]},
         [], [], ['.parts[id="y"]', '.parts[id="x"].note', '.parts[id="y"].id']),
        ({"parts": [{"id": "x"}, {"id": "y"}]}, {"parts": [{"id": "y"}, {"id": "x"}]}, [], [], []),
        ({"parts": [{"id": "x"}]}, {"parts": [{"id": "x"}, {"id": "x"}]},
         ['.parts[id="x"]', '.parts[id="x"].id'], [], ['.parts[id="x"]']),
        ({"parts": [{"id": "x"}, {"id": "x"}]}, {"parts": [{"id": "x"}, {"id": "x", "note": "n"}]},
         [], ['.parts[id="x"]'], []),
        ({"tags": ["a"]}, {"tags": ["b"]}, ['.tags[="a"]'], [], ['.tags[="b"]']),
        ({"order": ["a"]}, {"order": ["b"]}, [], [".order"], []),
        ({"free": {"a": {"b": 1}}}, {"free": {"a": 1}}, [".free.a.b"], [".free.a"], []),
        ({"free": {"a": 1}}, {"free": {"a": {"b": 1}}}, [], [".free.a"], [".free.a.b"]),
    ],
    ids=str,
)  # fmt: skip
def test_a_comparison_tells_every_change(old, new, removed, modified, added):
    changed = compare_fields(old, new, FORM)
    assert [show(part) for part in changed] == [removed, modified, added]


@pytest.mark.parametrize(
    ("value", "removed", "rest"),
    [
        ({"size": 1, "inner": {"text": "x"}}, {"size": 1}, {"inner": {"text": "x"}}),
        ({"labels": {"a": "1", "b": "1"}}, {"labels": {"a": ""}}, {"labels": {"b": "1"}}),
        ({"labels": {"a": "1"}}, {"labels": {"a": ""}}, {}),
        ({"parts": [{"id": "x"}, {"id": "y"}]}, {"parts": [{"id": "x"}]}, {"parts": [{"id": "y"}]}),
        ({"tags": ["a", "b"], "size": 1}, {"tags": ["a"]}, {"tags": ["b"], "size": 1}),
        ({"free": {"a": {"b": 1, "c": 2}}}, {"free": {"a": {"b": 1}}}, {}),
    ],
    ids=str,
)
def test_members_are_removed(value, removed, rest):
    assert remove_fields(value, collect_fields(removed, FORM), FORM) == rest


def test_declared_fields_on_the_way_can_be_named():
    claimed = collect_fields({"inner": {"text": "x"}, "labels": {"a": "b"}}, FORM)
    assert show(add_named(claimed, FORM)) == [".inner", ".labels", ".inner.text", ".labels.a"]


@pytest.mark.parametrize(
    ("item", "keys", "expected"),
    [
        ("a", {}, 'v:"a"'),
        (3, {}, "v:3"),
        (True, {}, "v:true"),
        ({"b": 1, "a": "x"}, {"b": None, "a": None}, 'k:{"a":"x","b":1}'),
        ({"port": 80}, {"port": None, "protocol": "TCP"}, 'k:{"port":80,"protocol":"TCP"}'),
    ],
)
def test_elements_are_named_by_keys_or_value(item, keys, expected):
    assert name_element(item, ListForm(TEXT, is_atomic=False, keys=keys)) == expected


@pytest.mark.parametrize(
    ("item", "keys"), [(None, {}), ({}, {}), ([], {}), ("a", {"id": None}), ({}, {"id": None})]
)
def test_some_elements_have_no_name(item, keys):
    with pytest.raises(EvaluationError):
        name_element(item, ListForm(TEXT, is_atomic=False, keys=keys))
