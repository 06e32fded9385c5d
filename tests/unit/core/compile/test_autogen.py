"""Rules that a policy about Pods also has for pod controllers."""

import msgspec
import pytest

from lictor.core.errors import CompileError
from lictor.core.families.classic.autogen import expand_rules
from lictor.core.model.policy import Policy

ALL = ("r", "autogen-r", "autogen-cronjob-r")
PATTERN = {"validate": {"pattern": {"spec": {"hostPID": False}}}}
MERGE = {"mutate": {"patchStrategicMerge": {"spec": {"hostPID": False}}}}
PODS = {"any": [{"resources": {"kinds": ["Pod"]}}]}


def pods(**fields):
    return {"any": [{"resources": {"kinds": ["Pod"], **fields}}]}


def rule(body=PATTERN, match=PODS, name="r", **fields):
    return {"name": name, "match": match, **body, **fields}


def expand(*rules, controllers=None):
    annotations = (
        {} if controllers is None else {"pod-policies.kyverno.io/autogen-controllers": controllers}
    )
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"rules": list(rules)},
    }
    return expand_rules(msgspec.convert(policy, Policy))


def names(*rules, controllers=None):
    return tuple(each.name for each in expand(*rules, controllers=controllers))


def plain(part):
    return msgspec.json.decode(msgspec.json.encode(part))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (rule(), ALL),
        (rule(match={"resources": {"kinds": ["Pod"]}}), ALL),
        (rule(match={"all": [{"resources": {"kinds": ["Pod"]}}]}), ALL),
        (rule(match={"any": [PODS["any"][0], {"resources": {"kinds": ["Service"]}}]}), ALL),
        (rule(match=pods(namespaces=["x"], operations=["CREATE"], namespaceSelector={})), ALL),
        (rule(exclude={"any": [{"resources": {"namespaces": ["x"]}}]}), ALL),
        (rule(exclude={"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["x"]}}]}), ALL),
        # What names a Pod by something its controller need not share.
        (rule(match=pods(name="x")), ("r",)),
        (rule(match=pods(names=["x"])), ("r",)),
        (rule(match=pods(selector={"matchLabels": {"a": "b"}})), ("r",)),
        (rule(match=pods(annotations={"a": "b"})), ("r",)),
        (rule(exclude=pods(names=["x"])), ("r",)),
        (rule(exclude={"resources": {"selector": {}}}), ("r",)),
        # What is not about Pods alone.
        (rule(match=pods(kinds=["Pod", "Service"])), ("r",)),
        (rule(match=pods(kinds=["Deployment"])), ("r",)),
        (rule(match=pods(kinds=["Service"])), ("r",)),
        (rule(match=pods(kinds=["v1/Pod"])), ("r",)),
        (rule(match=pods(kinds=["*"])), ("r",)),
        (rule(exclude={"any": [{"resources": {"kinds": ["Deployment"]}}]}), ("r",)),
        # Bodies.
        (rule(MERGE), ALL),
        (rule({"mutate": {"foreach": [{"list": "x", "patchStrategicMerge": {"a": 1}}]}}), ALL),
        (rule({"mutate": {"patchesJson6902": "[]"}}), ("r",)),
        (rule({"mutate": {"foreach": [{"list": "x", "patchesJson6902": "[]"}]}}), ("r",)),
        (rule({"generate": {"kind": "Secret"}}), ("r",)),
        (rule({"validate": {"deny": {}}}), ALL),
        (rule({"validate": {"podSecurity": {"level": "baseline"}}}), ALL),
        (rule({"validate": {"anyPattern": [{"a": 1}]}}), ALL),
        (rule({"validate": {"foreach": [{"list": "x", "pattern": {"a": 1}}]}}), ALL),
        (rule({"validate": {"cel": {"expressions": [{"expression": "true"}]}}}), ALL),
        (rule({"validate": {"assert": {"object": {"a": 1}}}}), ALL),
        (rule({"validate": {"manifests": {"attestors": []}}}), ("r",)),
        (rule({"verifyImages": [{"imageReferences": ["*"]}]}), ALL),
        (rule({}), ("r",)),
    ],
)
def test_which_rules_are_made(written, expected):
    assert names(written) == expected


@pytest.mark.parametrize(
    ("controllers", "validate", "mutate"),
    [
        ("none", ("r",), ("r",)),
        ("", ("r",), ("r",)),
        ("Deployment", ALL[:2], ALL[:2]),
        ("CronJob", (ALL[0], ALL[2]), (ALL[0], ALL[2])),
        ("Deployment,CronJob", ALL, ALL),
        ("Rollout", ALL[:2], ALL[:2]),
        # Only rules that do not validate know this word.
        ("all", ("r",), ALL),
        # Blanks are part of the name.
        ("Deployment, CronJob", ALL[:2], ALL),
    ],
)
def test_annotation(controllers, validate, mutate):
    assert names(rule(), controllers=controllers) == validate
    assert names(rule(MERGE), controllers=controllers) == mutate


@pytest.mark.parametrize(
    ("controllers", "validate", "mutate"),
    [
        ("StatefulSet,Deployment", ["apps/v1/Deployment", "apps/v1/StatefulSet"], None),
        ("Job,ReplicationController", ["batch/v1/Job", "v1/ReplicationController"], None),
        ("Rollout", ["Rollout"], None),
        ("Job,Rollout", ["batch/v1/Job", "Rollout"], ["batch/v1/Job"]),
    ],
)
def test_kinds_of_the_annotation(controllers, validate, mutate):
    for body, kinds in ((PATTERN, validate), (MERGE, mutate or validate)):
        made = expand(rule(body), controllers=controllers)[1]
        assert list(made.match.any[0].resources.kinds) == kinds


def test_all_kinds():
    _, made, cron = expand(rule())
    assert made.match.any[0].resources.kinds == (
        "apps/v1/DaemonSet",
        "apps/v1/Deployment",
        "batch/v1/Job",
        "apps/v1/ReplicaSet",
        "v1/ReplicationController",
        "apps/v1/StatefulSet",
    )
    assert cron.match.any[0].resources.kinds == ("batch/v1/CronJob",)


SERVICES = {"resources": {"kinds": ["Service"]}}
SETS = {"resources": {"kinds": ["apps/*/Dep*", "Service"]}}
SHOP = {"resources": {"namespaces": ["shop"]}}


@pytest.mark.parametrize(
    ("match", "deployment", "cron_job"),
    [
        ({"any": [*PODS["any"], SERVICES]}, [["D"]], [["C"], ["C"]]),
        ({"any": [*PODS["any"], SETS]}, [["D"], ["D"]], [["C"], ["C"]]),
        ({"all": [*PODS["any"], SERVICES]}, [["D"], ["Service"]], [["C"], ["C"]]),
        ({"all": [*PODS["any"], SHOP]}, [["D"], []], [["C"], ["C"]]),
        ({"resources": {"kinds": ["Pod"]}}, [["D"]], [["C"]]),
    ],
)
def test_kinds_of_the_filters(match, deployment, cron_job):
    def kinds(match):
        filters = match.any or match.all or (match,)
        return [
            [
                kind.replace("apps/v1/Deployment", "D").replace("batch/v1/CronJob", "C")
                for kind in each.resources.kinds
            ]
            for each in filters
        ]

    made, cron = expand(rule(match=match, exclude=match), controllers="Deployment,CronJob")[1:]
    assert [kinds(made.match), kinds(made.exclude)] == [deployment, deployment]
    assert [kinds(cron.match), kinds(cron.exclude)] == [cron_job, cron_job]


def test_exclude_without_kinds_keeps_none():
    exclude = {"resources": {"namespaces": ["shop"]}}
    for made in expand(rule(exclude=exclude)):
        assert plain(made.exclude) == exclude


@pytest.mark.parametrize(
    ("body", "in_template", "in_cron_job"),
    [
        (
            {"pattern": {"spec": {"a": 1}}},
            {"pattern": {"spec": {"template": {"spec": {"a": 1}}}}},
            {"pattern": {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"a": 1}}}}}}},
        ),
        (
            {"anyPattern": [{"a": 1}, {"b": 2}], "failureAction": "Enforce", "message": "m"},
            {
                "anyPattern": [{"spec": {"template": {"a": 1}}}, {"spec": {"template": {"b": 2}}}],
                "failureAction": "Enforce",
                "message": "m",
            },
            None,
        ),
        (
            {
                "deny": {
                    "conditions": [
                        {"key": "{{ request.object.spec.a }}", "operator": "Equals", "value": 1}
                    ]
                }
            },
            {
                "deny": {
                    "conditions": [
                        {
                            "key": "{{ request.object.spec.template.spec.a }}",
                            "operator": "Equals",
                            "value": 1,
                        }
                    ]
                }
            },
            {
                "deny": {
                    "conditions": [
                        {
                            "key": "{{ request.object.spec.jobTemplate.spec.template.spec.a }}",
                            "operator": "Equals",
                            "value": 1,
                        }
                    ]
                }
            },
        ),
        (
            {
                "foreach": [
                    {
                        "list": "request.oldObject.spec.x",
                        "pattern": {"a": "{{ request.object.metadata.y }}"},
                    }
                ]
            },
            {
                "foreach": [
                    {
                        "list": "request.oldObject.spec.template.spec.x",
                        "pattern": {"a": "{{ request.object.spec.template.metadata.y }}"},
                    }
                ]
            },
            None,
        ),
        # Other variables, and the object as a whole, stay as they are.
        (
            {
                "deny": {},
                "message": "{{ request.object }} {{ request.object.kind }} {{ object.spec }}",
            },
            {
                "deny": {},
                "message": "{{ request.object }} {{ request.object.kind }} {{ object.spec }}",
            },
            None,
        ),
        (
            {"cel": {"expressions": [{"expression": "object.spec.a == oldObject.metadata.b"}]}},
            {
                "cel": {
                    "expressions": [
                        {
                            "expression": "object.spec.template.spec.a == oldObject.spec.template.metadata.b"
                        }
                    ]
                }
            },
            None,
        ),
        (
            {"assert": {"object": {"a": 1}, "(x)": {"b": 2}, "oldObject": 3}},
            {
                "assert": {
                    "object": {"spec": {"template": {"a": 1}}},
                    "(x)": {"b": 2},
                    "oldObject": 3,
                }
            },
            {
                "assert": {
                    "object": {"spec": {"jobTemplate": {"spec": {"template": {"a": 1}}}}},
                    "(x)": {"b": 2},
                    "oldObject": 3,
                }
            },
        ),
        (
            {"pattern": {}, "message": "see $(./../pattern/spec/a) and \\$(pattern/b)"},
            {
                "pattern": {"spec": {"template": {}}},
                "message": "see $(./../pattern/spec/template/spec/a) and \\$(pattern/b)",
            },
            None,
        ),
        (
            {"anyPattern": [], "message": "$(./anyPattern/0/a)"},
            {"anyPattern": [], "message": "$(./anyPattern/0/spec/template/a)"},
            {"anyPattern": [], "message": "$(./anyPattern/0/spec/jobTemplate/spec/template/a)"},
        ),
    ],
)
def test_validate_bodies(body, in_template, in_cron_job):
    _, made, cron = expand(rule({"validate": body}))
    assert plain(made.validate) == in_template
    if in_cron_job is not None:
        assert plain(cron.validate) == in_cron_job


@pytest.mark.parametrize(
    ("body", "in_template"),
    [
        (
            {
                "patchStrategicMerge": {"spec": {"a": "{{ request.object.spec.b }}"}},
                "targets": [{"kind": "Pod"}],
            },
            {
                "patchStrategicMerge": {
                    "spec": {
                        "template": {"spec": {"a": "{{ request.object.spec.template.spec.b }}"}}
                    }
                }
            },
        ),
        (
            {
                "foreach": [
                    {
                        "list": "request.object.spec.x",
                        "order": "Descending",
                        "patchStrategicMerge": {"a": 1},
                    }
                ]
            },
            {
                "foreach": [
                    {
                        "list": "request.object.spec.template.spec.x",
                        "patchStrategicMerge": {"spec": {"template": {"a": 1}}},
                    }
                ]
            },
        ),
    ],
)
def test_mutate_bodies(body, in_template):
    assert plain(expand(rule({"mutate": body}))[1].mutate) == in_template


def test_context_and_preconditions_speak_of_the_template():
    context = [{"name": "a", "variable": {"jmesPath": "request.object.metadata.labels"}}]
    preconditions = {
        "all": [{"key": "{{ request.object.spec.b }}", "operator": "Equals", "value": "c"}]
    }
    _, made, _ = expand(rule(context=context, preconditions=preconditions))
    assert made.context[0].variable.jmes_path == "request.object.spec.template.metadata.labels"
    assert made.preconditions["all"][0]["key"] == "{{ request.object.spec.template.spec.b }}"


def test_image_extractors_stay_with_pods():
    extractors = {"Pod": [{"path": "/spec/x"}]}
    verify = {"verifyImages": [{"imageReferences": ["*"]}], "imageExtractors": extractors}
    written, made, cron = expand(rule(verify))
    assert written.image_extractors
    assert not made.image_extractors
    assert not cron.image_extractors


def test_order_and_several_rules():
    assert names(rule(name="a"), rule(MERGE, name="b")) == (
        "a",
        "b",
        "autogen-a",
        "autogen-cronjob-a",
        "autogen-b",
        "autogen-cronjob-b",
    )


def test_one_rule_that_cannot_be_moved_holds_back_all():
    assert names(rule(name="a"), rule(name="b", match=pods(names=["x"]))) == ("a", "b")


def test_a_rule_about_something_else_is_only_kept():
    other = rule(name="b", match=SERVICES)
    assert names(rule(name="a"), other) == ("a", "b", "autogen-a", "autogen-cronjob-a")


def test_rules_made_elsewhere_are_replaced():
    exported = rule(name="autogen-r", match=pods(kinds=["Deployment"]))
    assert names(rule(), exported) == ALL
    assert names(rule(), exported, controllers="none") == ("r", "autogen-r")


def test_long_names_are_cut():
    made = names(rule(name="x" * 63))
    assert [len(name) for name in made] == [63, 63, 63]
    assert made[2] == "autogen-cronjob-" + "x" * 47


def test_written_rules_are_left_as_they_are():
    written = rule({"validate": {"pattern": {"spec": {"a": "{{ request.object.spec.b }}"}}}})
    assert plain(expand(written)[0]) == written


def test_deep_nesting_is_an_error_of_ours():
    pattern = {}
    for _ in range(100_000):
        pattern = {"a": pattern}
    with pytest.raises(CompileError):
        expand(rule({"validate": {"pattern": pattern}}))
