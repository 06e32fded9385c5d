"""Every field of every record, misspelt once: the problem names its line and the right word."""

import subprocess
import sys

import msgspec
import pytest
import yaml
from msgspec import inspect

from lictor.cli.inputs.records import ClusterResource, Context, Test, UserInfo, Values
from lictor.core.families.classic.records import CleanupPolicy
from lictor.core.load.fields import check_fields, read_record
from lictor.core.load.yaml import iter_documents
from lictor.core.model import matching, policy, signatures
from lictor.core.model.exception import PolicyException
from lictor.core.model.finding import Severity
from lictor.core.model.matching import Match
from lictor.core.model.metadata import Metadata
from lictor.core.model.policy import Policy, Rule

RECORDS = (
    Policy,
    PolicyException,
    CleanupPolicy,
    Test,
    Values,
    UserInfo,
    Context,
    ClusterResource,
)


def find_shape(name):
    return next(
        getattr(each, name) for each in (policy, matching, signatures) if hasattr(each, name)
    )


def make_sample(record, within=()):
    """A document in which a record and all records below it have all their fields."""
    info = inspect.type_info(record)
    fields = {}
    for field in info.fields:  # type: ignore[attr-defined]
        value = sample_type(field.type, (*within, record))
        if value is not None:
            fields[field.encode_name] = value
    return fields


def sample_type(kind, within):
    match kind:
        case inspect.Metadata(type=inner, extra=extra):
            return sample_shape(extra["shape"], within) if extra else sample_type(inner, within)
        case inspect.UnionType(types=types):
            return sample_type(types[0], within)
        case inspect.StructType(cls=cls):
            return None if cls in within else make_sample(cls, within)
        case inspect.VarTupleType(item_type=item):
            value = sample_type(item, within)
            return None if value is None else [value]
        case inspect.DictType(value_type=item):
            return {"some-key": sample_type(item, within)}
        case _:
            return sample_scalar(kind)


def sample_shape(shape, within):
    record = find_shape(shape)
    return None if record in within else make_sample(record, within)


def sample_scalar(kind):
    if isinstance(kind, inspect.LiteralType):
        return next(value for value in kind.values if value)
    samples = {inspect.StrType: "text", inspect.BoolType: True, inspect.IntType: 1}
    return samples.get(type(kind), {"free": "form"})  # type: ignore[call-overload]


def list_fields(record, body, path=()):
    """Every field in a sample: the record it belongs to, and its path."""
    info = inspect.type_info(record)
    for field in info.fields:  # type: ignore[attr-defined]
        if field.encode_name in body:
            here = (*path, field.encode_name)
            yield record, here
            yield from list_below(field.type, body[field.encode_name], here)


def list_below(kind, body, path):
    match kind:
        case inspect.Metadata(type=inner, extra=extra):
            shape = extra.get("shape") if extra else None
            if shape:
                yield from list_fields(find_shape(shape), body, path)
            else:
                yield from list_below(inner, body, path)
        case inspect.UnionType(types=types):
            yield from list_below(types[0], body, path)
        case inspect.StructType(cls=cls):
            yield from list_fields(cls, body, path)
        case inspect.VarTupleType(item_type=item):
            yield from list_below(item, body[0], (*path, 0))
        case inspect.DictType(value_type=item):
            yield from list_below(item, body["some-key"], (*path, "some-key"))


def nest(path, wrong):
    """A document that holds nothing but one misspelt field, and what leads to it."""
    step, *rest = path
    if not rest:
        return {wrong: "x"}
    return [nest(rest, wrong)] if isinstance(step, int) else {step: nest(rest, wrong)}


def list_cases():
    for root in RECORDS:
        seen = set()
        sample = make_sample(root)
        for record, path in list_fields(root, sample):
            if (record, path[-1]) not in seen:
                seen.add((record, path[-1]))
                name = f"{root.__name__}-{record.__name__}-{path[-1]}"
                yield pytest.param(root, path, id=name)


@pytest.mark.parametrize(("root", "path"), list(list_cases()))
def test_each_field_misspelt(root, path):
    wrong = f"{path[-1]}x"
    text = yaml.dump(nest(path, wrong), Dumper=yaml.CSafeDumper)
    (document,) = iter_documents(text, "f.yaml")
    (fault,) = [
        fault for fault in check_fields(document.body, root) if fault.severity is Severity.WARNING
    ]
    assert fault.message == f'unknown field "{wrong}"'
    assert fault.path == (*path[:-1], wrong)
    assert fault.suggestion == path[-1]
    line, column = document.position(fault.path)
    assert text.splitlines()[line - 1][column - 1 :].startswith(f"{wrong}:")


@pytest.mark.parametrize("record", RECORDS)
def test_sample_has_no_faults(record):
    made, faults = read_record(make_sample(record), record)
    assert faults == []
    assert isinstance(made, record)


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize(
    "odd", [None, 1, "x", [], [1], {"spec": 3}, {"metadata": []}, {"spec": {"rules": [[]]}}]
)
def test_odd_documents_never_crash(record, odd):
    made, faults = read_record(odd, record)
    assert made is None or isinstance(made, record)
    assert made is not None or faults


RULE = {"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}}


@pytest.mark.parametrize(
    ("change", "path", "message", "suggestion"),
    [
        ({"name": 12}, ("name",), "expected a string, found the integer 12", ""),
        ({"name": True}, ("name",), "expected a string, found the boolean true", ""),
        ({"name": 1.5}, ("name",), "expected a string, found the number 1.5", ""),
        ({"name": []}, ("name",), "expected a string, found a list", ""),
        ({"name": None}, (), 'required field "name" is missing', ""),
        ({"match": []}, ("match",), "expected an object, found a list", ""),
        ({"context": {}}, ("context",), "expected a list, found an object", ""),
        ({"context": [None]}, ("context", 0), "expected an object, found null", ""),
        (
            {"context": [{"name": "n", "configMap": {}}]},
            ("context", 0, "configMap"),
            'required field "name" is missing',
            "",
        ),
        (
            {"skipBackgroundRequests": "true"},
            ("skipBackgroundRequests",),
            'expected a boolean, found the string "true"',
            "",
        ),
        (
            {"reportProperties": {"a": 1}},
            ("reportProperties", "a"),
            "expected a string, found the integer 1",
            "",
        ),
        (
            {"validate": {"failureAction": "enforce"}},
            ("validate", "failureAction"),
            'expected one of Audit, Enforce, found the string "enforce"',
            "Enforce",
        ),
        (
            {"validate": {"failureAction": []}},
            ("validate", "failureAction"),
            "expected one of Audit, Enforce, found a list",
            "",
        ),
        (
            {"verifyImages": [{"attestors": [{"count": "1"}]}]},
            ("verifyImages", 0, "attestors", 0, "count"),
            'expected an integer, found the string "1"',
            "",
        ),
        (
            {"preconditions": {"all": [{"key": 1, "opertor": "Equals"}]}},
            ("preconditions", "all", 0, "opertor"),
            'unknown field "opertor"',
            "operator",
        ),
        (
            {"preconditions": [{"kee": 1}]},
            ("preconditions", 0, "kee"),
            'unknown field "kee"',
            "key",
        ),
        (
            {"validate": {"foreach": [{"foreach": [{"lisst": "x"}]}]}},
            ("validate", "foreach", 0, "foreach", 0, "lisst"),
            'unknown field "lisst"',
            "list",
        ),
    ],
)
def test_fault(change, path, message, suggestion):
    (fault,) = check_fields({**RULE, **change}, Rule)
    assert (fault.path, fault.message, fault.suggestion) == (path, message, suggestion)


@pytest.mark.parametrize(
    "change",
    [
        {"exclude": None},
        {"context": None},
        {"reportProperties": {"a": None}},
        {"preconditions": None},
        {"validate": {"pattern": None, "message": None}},
        {"validate": {"pattern": {"spec": None}, "anyPattern": "odd", "assert": []}},
        {"preconditions": "odd"},
    ],
)
def test_nulls_and_free_form_are_no_faults(change):
    made, faults = read_record({**RULE, **change}, Rule)
    assert faults == []
    assert made is not None


def test_null_is_absent_but_kept_in_free_form():
    made, _ = read_record(
        {**RULE, "exclude": None, "validate": {"pattern": {"spec": None}, "deny": None}}, Rule
    )
    assert made.exclude is None
    assert made.validate.pattern == {"spec": None}
    assert made.validate.deny is None


def test_fields_absent_from_a_version():
    (fault,) = check_fields({"resources": {}}, Match, absent={Match: frozenset(["resources"])})
    assert fault.message == 'unknown field "resources"'


@pytest.mark.parametrize(
    ("body", "name"),
    [({"Name": "x"}, "x"), ({"NAME": 12}, "12"), ({"name": True}, "true"), ({"name": 1.5}, "1.5")],
)
def test_lenient(body, name):
    made, faults = read_record({**body, "labels": {}}, Metadata, lenient=True)
    assert faults == []
    assert made.name == name


def test_nesting_beyond_recursion():
    body = {"list": "x"}
    for _ in range(3000):
        body = {"foreach": [body]}
    made, faults = read_record({**RULE, "validate": body}, Rule)
    assert made is None
    assert "nested too deep" in [fault.message for fault in faults]


def test_every_error_of_msgspec_is_known_to_the_walk():
    """What the walk lets pass, msgspec takes; what it refuses, msgspec refuses too."""
    for change in ({"name": 1}, {"match": 1}, {"context": [1]}, {"generate": {"clone": 1}}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({**RULE, **change}, Rule)
        assert check_fields({**RULE, **change}, Rule)


# New types in each round, as each is learned of once; without the lock, one of a hundred kills the process.
READ_BY_MANY_THREADS = """
import sys, threading
from msgspec import defstruct
from lictor.core.load.fields import read_record

sys.setswitchinterval(1e-6)

def make_type(depth):
    inner = make_type(depth - 1) if depth else str
    return defstruct(f"Level{depth}", [(name, inner) for name in ("a", "b", "c")])

def make_body(depth):
    return {name: make_body(depth - 1) if depth else "x" for name in ("a", "b", "c")}

def read(record, gate, made):
    gate.wait()
    made.append(read_record(make_body(3), record)[0].a.b.c.a)

for _ in range(150):
    record, gate, made = make_type(3), threading.Barrier(8), []
    threads = [threading.Thread(target=read, args=(record, gate, made)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["x"] * 8
"""


def test_threads_that_read_the_first_document_of_a_kind_at_once():
    """In a process of its own, as it would take this one with it."""
    ran = subprocess.run(
        [sys.executable, "-c", READ_BY_MANY_THREADS], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
