"""Objects of custom kinds: pruned, completed and checked by their structural schema."""

import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.core.errors import RefusedRequestError

CRD = yaml.safe_load("""
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              str: {type: string, minLength: 2, maxLength: 4, pattern: '^[a-z]*$'}
              enum: {type: string, enum: [a, b]}
              int: {type: integer, minimum: 1, maximum: 10}
              odd: {type: integer, minimum: 1, exclusiveMinimum: true, multipleOf: 3}
              num: {type: number}
              nul: {type: string, nullable: true}
              defl: {type: string, default: hello}
              either: {x-kubernetes-int-or-string: true}
              arr: {type: array, items: {type: string}, minItems: 1, maxItems: 2}
              set: {type: array, items: {type: string}, x-kubernetes-list-type: set}
              list:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name, port]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, port: {type: integer, default: 80}, level: {type: string, enum: [x, y]}}
              map: {type: object, additionalProperties: {type: integer}, maxProperties: 2}
              any: {x-kubernetes-preserve-unknown-fields: true}
              open: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: object, properties: {a: {type: string}}}}}
              inner: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              obj: {type: object, required: [a], properties: {a: {type: string}, c: {type: object, properties: {d: {type: string, default: x}}}}}
              made: {type: object, default: {}, properties: {c: {type: string, default: x}}}
              one: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}
              some: {type: object, properties: {a: {type: string}}, anyOf: [{required: [a]}, {required: [b]}]}
              every: {type: object, properties: {a: {type: string}}, allOf: [{required: [a]}]}
              none: {type: object, properties: {a: {type: string}}, not: {required: [a]}}
              date: {type: string, format: date-time}
              time: {type: string, format: duration}
              rules:
                type: object
                x-kubernetes-validations:
                - {rule: "self.min <= self.max", message: "min must not be over max"}
                - {rule: "self.max < 100"}
                - {rule: "self.max != 50", messageExpression: "'max is ' + string(self.max)", reason: FieldValueForbidden, fieldPath: .max}
                - {rule: "self.fixed == oldSelf.fixed", message: "fixed is fixed"}
                - {rule: "oldSelf.hasValue() || self.min == 1", message: "starts with 1", optionalOldSelf: true}
                properties: {min: {type: integer, default: 1}, max: {type: integer, default: 5}, fixed: {type: string, default: x}}
              odd-name: {type: object, properties: {x-y: {type: string}, namespace: {type: string}, when: {type: string, format: date-time}, share: {type: number}}, x-kubernetes-validations: [{rule: "!has(self.x__dash__y) || self.x__dash__y == 'k'", message: dash}, {rule: "!has(self.__namespace__) || self.__namespace__ == 'n'", message: reserved}, {rule: "!has(self.when) || self.when < timestamp('2030-01-01T00:00:00Z')", message: late}, {rule: "!has(self.share) || self.share / 2.0 < 1.0", message: share}]}
              items: {type: array, items: {type: string, x-kubernetes-validations: [{rule: "self != 'bad'", message: bad}]}}
              quotient: {type: integer, x-kubernetes-validations: [{rule: "10 / self == 5", message: div}]}
""")
CATALOGUE = build_catalogue()
CATALOGUE.define(CRD)
SCHEMA = CATALOGUE.find("example.com", "v1", "widgets").schema
ALWAYS = {"defl": "hello", "made": {"c": "x"}}
UNASKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was "
    "invalid; correct the existing errors to complete validation"
)


def widget(spec):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": spec,
    }


def complete(spec):
    return SCHEMA.apply_defaults(SCHEMA.prune(widget(spec)))


def check(spec, old=None):
    causes = SCHEMA.validate(complete(spec), None if old is None else complete(old))
    return [f"{cause.field}: {cause.message}" for cause in causes]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({"foo": 1}, {}),
        ({"str": None}, {}),
        ({"nul": None}, {"nul": None}),
        ({"defl": None}, {}),
        ({"defl": "a"}, {"defl": "a"}),
        ({"list": [{"name": "a", "x": 1}]}, {"list": [{"name": "a", "port": 80}]}),
        ({"any": {"x": [1, None]}}, {"any": {"x": [1, None]}}),
        ({"any": None}, {"any": None}),
        ({"open": {"x": 1, "known": {"a": "b", "z": 1}}}, {"open": {"x": 1, "known": {"a": "b"}}}),
        ({"map": {"anything": 1}}, {"map": {"anything": 1}}),
        ({"obj": {"c": {}}}, {"obj": {"c": {"d": "x"}}}),
        (
            {"inner": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "x", "z": 1}, "q": 1}},
            {"inner": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "x"}, "q": 1}},
        ),
    ],
)
def test_pruning_and_defaults(given, kept):
    assert complete(given)["spec"] == {**ALWAYS, **kept}


def test_unknown_fields_are_told():
    document = widget({"foo": 1, "list": [{"name": "a", "x": 1}], "open": {"x": 1}})
    document["metadata"]["bar"] = 1
    document["top"] = 1

    unknown = SCHEMA.list_unknown(document)

    assert unknown == ["metadata.bar", "spec.foo", "spec.list[0].x", "top"]


def test_metadata_is_that_of_all_kinds():
    document = {**widget({}), "metadata": {"name": "w", "labels": {"a": 1}}}

    with pytest.raises(RefusedRequestError) as caught:
        SCHEMA.prune(document)

    assert caught.value.message == (
        'Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number into '
        "Go struct field ObjectMeta.labels of type string"
    )


def wrong_type(path, found, expected):
    return f'{path}: Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        ({"str": "abc", "int": 3, "num": 1, "either": 1, "arr": ["a"]}, []),
        ({"either": "50%", "num": 1.5, "int": 2.0}, []),
        ({"str": 5}, [wrong_type("spec.str", "integer", "string"), UNASKED]),
        ({"int": 1.5}, [wrong_type("spec.int", "number", "integer"), UNASKED]),
        ({"int": True}, [wrong_type("spec.int", "boolean", "integer"), UNASKED]),
        ({"either": {}}, [wrong_type("spec.either", "object", "integer,string"), UNASKED]),
        ({"arr": [None]}, [wrong_type("spec.arr[0]", "null", "string"), UNASKED]),
        (
            {"str": "A"},
            ['spec.str: Invalid value: "A": spec.str in body should be at least 2 chars long'],
        ),
        ({"str": "abcde"}, ["spec.str: Too long: may not be more than 4 bytes", UNASKED]),
        (
            {"str": "AB"},
            ["spec.str: Invalid value: \"AB\": spec.str in body should match '^[a-z]*$'"],
        ),
        ({"enum": "c"}, ['spec.enum: Unsupported value: "c": supported values: "a", "b"', UNASKED]),
        (
            {"int": 0},
            ["spec.int: Invalid value: 0: spec.int in body should be greater than or equal to 1"],
        ),
        (
            {"int": 11},
            ["spec.int: Invalid value: 11: spec.int in body should be less than or equal to 10"],
        ),
        (
            {"odd": 1},
            [
                "spec.odd: Invalid value: 1: spec.odd in body should be a multiple of 3",
                "spec.odd: Invalid value: 1: spec.odd in body should be greater than 1",
            ],
        ),
        (
            {"arr": []},
            ["spec.arr: Invalid value: 0: spec.arr in body should have at least 1 items"],
        ),
        ({"arr": ["a", "b", "c"]}, ["spec.arr: Too many: 3: must have at most 2 items", UNASKED]),
        ({"set": ["a", "a"]}, ['spec.set[1]: Duplicate value: "a"']),
        (
            {"list": [{"name": "a"}, {"name": "a"}]},
            ['spec.list[1]: Duplicate value: {"name":"a","port":80}'],
        ),
        ({"list": [{"name": "a"}, {"name": "a", "port": 81}]}, []),
        ({"list": [{}]}, ["spec.list[0].name: Required value", UNASKED]),
        ({"map": {"a": "x"}}, [wrong_type("spec.map.a", "string", "integer"), UNASKED]),
        (
            {"inner": {}},
            ["spec.inner.apiVersion: Required value", "spec.inner.kind: Required value", UNASKED],
        ),
        ({"obj": {}}, ["spec.obj.a: Required value", UNASKED]),
        (
            {"one": {"a": "", "b": ""}},
            [
                '<nil>: Invalid value: "": "spec.one" must validate one and only one schema '
                "(oneOf). Found 2 valid alternatives"
            ],
        ),
        (
            {"some": {}},
            [
                '<nil>: Invalid value: "": "spec.some" must validate at least one schema (anyOf)',
                "spec.some.a: Required value",
                UNASKED,
            ],
        ),
        (
            {"every": {}},
            [
                "spec.every.a: Required value",
                '<nil>: Invalid value: "": "spec.every" must validate all the schemas (allOf). '
                "None validated",
                UNASKED,
            ],
        ),
        (
            {"none": {"a": ""}},
            ['<nil>: Invalid value: "": "spec.none" must not validate the schema (not)'],
        ),
        ({"date": "x"}, [wrong_type("spec.date", "x", "date-time"), UNASKED]),
        ({"date": "2024-01-01T00:00:00Z", "time": "1h"}, []),
        ({"time": "x"}, [wrong_type("spec.time", "x", "duration"), UNASKED]),
    ],
)
def test_checks(spec, faults):
    assert check(spec) == faults


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        ({"rules": {}}, []),
        (
            {"rules": {"max": 0}},
            ['spec.rules: Invalid value: "object": min must not be over max'],
        ),
        (
            {"rules": {"max": 200}},
            ['spec.rules: Invalid value: "object": failed rule: self.max < 100'],
        ),
        ({"rules": {"max": 50}}, ["spec.rules.max: Forbidden: max is 50"]),
        ({"rules": {"min": 2}}, ['spec.rules: Invalid value: "object": starts with 1']),
        (
            {
                "odd-name": {
                    "x-y": "k",
                    "namespace": "n",
                    "when": "2024-01-01T00:00:00Z",
                    "share": 1,
                }
            },
            [],
        ),
        ({"odd-name": {"x-y": "z"}}, ['spec.odd-name: Invalid value: "object": dash']),
        ({"odd-name": {"namespace": "z"}}, ['spec.odd-name: Invalid value: "object": reserved']),
        (
            {"odd-name": {"when": "2031-01-01T00:00:00Z"}},
            ['spec.odd-name: Invalid value: "object": late'],
        ),
        ({"odd-name": {"share": 2}}, ['spec.odd-name: Invalid value: "object": share']),
        ({"items": ["a", "bad"]}, ['spec.items[1]: Invalid value: "string": bad']),
        (
            {"quotient": 0},
            ['spec.quotient: Invalid value: "integer": division by zero evaluating rule: div'],
        ),
    ],
)
def test_rules(spec, faults):
    assert check(spec) == faults


@pytest.mark.parametrize(
    ("old", "new", "faults"),
    [
        ({"rules": {}}, {"rules": {"min": 2}}, []),
        (
            {"rules": {}},
            {"rules": {"fixed": "y"}},
            ['spec.rules: Invalid value: "object": fixed is fixed'],
        ),
        # What was wrong before is let be; what changes must be right.
        ({"int": 0}, {"int": 0, "str": "abc"}, []),
        (
            {"int": 0},
            {"int": 11},
            ["spec.int: Invalid value: 11: spec.int in body should be less than or equal to 10"],
        ),
        ({"items": ["bad"]}, {"items": ["bad"], "str": "abc"}, []),
        (
            {"list": [{"name": "a", "level": "q"}]},
            {"list": [{"name": "b"}, {"name": "a", "level": "q"}]},
            [],
        ),
    ],
)
def test_update_request_queue(old, new, faults):
    assert check(new, old) == faults


def test_an_object_without_a_spec():
    document = widget({})
    del document["spec"]

    causes = SCHEMA.validate(document, None)

    assert [cause.field for cause in causes] == ["spec", "<nil>"]
