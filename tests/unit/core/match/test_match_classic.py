"""Which requests a rule concerns, as `match` and `exclude` say."""

import msgspec
import pytest

from lictor.core.match.classic import CLEANUP, EXCEPTION, compile_filter, compile_match
from lictor.core.match.combine import always
from lictor.core.model.matching import Match
from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request

POD = GroupVersionKind("", "v1", "Pod")
DEPLOYMENT = GroupVersionKind("apps", "v1", "Deployment")
NAMESPACE = GroupVersionKind("", "v1", "Namespace")
LEASE = GroupVersionKind("coordination.k8s.io", "v1", "Lease")
REPORT = GroupVersionKind("wgpolicyk8s.io", "v1alpha2", "PolicyReport")


def build(fields):
    return None if fields is None else msgspec.convert(fields, Match)


def request(kind=POD, metadata=None, **fields):
    metadata = {"name": "web-1", "namespace": "shop"} if metadata is None else metadata
    return Request(kind, {"kind": kind.kind, "metadata": metadata}, **fields)


def ask(select, asked):
    matcher = select(asked.kind, asked.subresource, asked.operation)
    return matcher is not None and matcher(asked)


def resources(**fields):
    return {"any": [{"resources": fields}]}


@pytest.mark.parametrize(
    ("wanted", "asked", "matches"),
    [
        ({"kinds": ["Pod"]}, request(), True),
        ({"kinds": ["Service", "Pod"]}, request(), True),
        ({"kinds": ["Service"]}, request(), False),
        ({"kinds": ["apps/v1/Deployment"]}, request(DEPLOYMENT), True),
        ({"kinds": ["Pod/exec"]}, request(subresource="exec"), True),
        ({"kinds": ["Pod"]}, request(subresource="exec"), False),
        # Ephemeral containers count as the Pod itself.
        ({"kinds": ["Pod"]}, request(subresource="ephemeralcontainers"), True),
        ({"kinds": ["Service"]}, request(subresource="ephemeralcontainers"), False),
        ({"kinds": ["Deployment"]}, request(DEPLOYMENT, subresource="ephemeralcontainers"), False),
        # A wildcard does not stand for what controllers write about other objects.
        ({"kinds": ["*"]}, request(LEASE), False),
        ({"kinds": ["*/*/*"]}, request(LEASE), False),
        ({"kinds": ["*Report"]}, request(REPORT), False),
        ({"kinds": ["*", "Lease"]}, request(LEASE), True),
        ({"kinds": ["wgpolicyk8s.io/*/PolicyReport"]}, request(REPORT), True),
        ({"operations": ["DELETE"]}, request(), False),
        ({"operations": ["DELETE", "CREATE"]}, request(), True),
        ({"kinds": ["Pod"]}, request(operation=Operation.DELETE), True),
        ({"name": "web-*"}, request(), True),
        ({"name": "db"}, request(), False),
        ({"names": ["db", "web-?"]}, request(), True),
        ({"names": ["db", "cache"]}, request(), False),
        ({"name": "web-*", "names": ["db"]}, request(), False),
        ({"names": ["web-*"]}, request(metadata={"generateName": "web-"}), True),
        ({"names": ["db"]}, request(metadata={"name": "db", "generateName": "web-"}), True),
        ({"namespaces": ["shop"]}, request(), True),
        ({"namespaces": ["s*", "x"]}, request(), True),
        ({"namespaces": ["bank"]}, request(), False),
        ({"namespaces": ["*"]}, request(metadata={"name": "x"}), True),
        ({"namespaces": ["?*"]}, request(metadata={"name": "x"}), False),
        ({"namespaces": ["shop"]}, request(NAMESPACE, {"name": "shop"}), True),
        ({"namespaces": ["shop"]}, request(NAMESPACE, {"name": "x", "namespace": "shop"}), False),
        (
            {"annotations": {"a": "1"}},
            request(metadata={"annotations": {"a": "1", "b": "2"}}),
            True,
        ),
        (
            {"annotations": {"a": "2"}},
            request(metadata={"annotations": {"a": "1", "b": "2"}}),
            False,
        ),
        ({"annotations": {"x/*": "?*"}}, request(metadata={"annotations": {"x/y": "z"}}), True),
        (
            {"annotations": {"x/*": "?*", "q": "*"}},
            request(metadata={"annotations": {"x/y": "z"}}),
            False,
        ),
        ({"selector": {"matchLabels": {"a": "1"}}}, request(metadata={"labels": {"a": "1"}}), True),
        ({"selector": {"matchLabels": {"a": "1"}}}, request(), False),
        ({"selector": {}}, request(), True),
        (
            {"namespaceSelector": {"matchLabels": {"a": "1"}}},
            request(namespace_labels={"a": "1"}),
            True,
        ),
        ({"namespaceSelector": {"matchLabels": {"a": "1"}}}, request(), False),
        ({"namespaceSelector": {}}, request(NAMESPACE, {"name": "shop"}), False),
        ({"kinds": ["Pod"], "namespaces": ["bank"]}, request(), False),
        # An empty filter fits nothing.
        ({}, request(), False),
    ],
)
def test_resources(wanted, asked, matches):
    assert ask(compile_match(build(resources(**wanted)), None), asked) is matches


PODS = {"resources": {"kinds": ["Pod"]}}
IN_SHOP = {"resources": {"namespaces": ["shop"]}}
IN_BANK = {"resources": {"namespaces": ["bank"]}}
EMPTY = {}


@pytest.mark.parametrize(
    ("match", "exclude", "matches"),
    [
        ({"any": [IN_BANK, IN_SHOP]}, None, True),
        ({"any": [IN_BANK, EMPTY]}, None, False),
        ({"all": [PODS, IN_SHOP]}, None, True),
        ({"all": [PODS, IN_BANK]}, None, False),
        ({"all": [PODS, EMPTY]}, None, False),
        (PODS, None, True),
        (IN_BANK, None, False),
        ({}, None, False),
        # `any` hides `all`, and both hide the older form.
        ({"any": [PODS], "all": [IN_BANK], **IN_BANK}, None, True),
        ({"all": [PODS], **IN_BANK}, None, True),
        (PODS, {}, True),
        (PODS, IN_SHOP, False),
        (PODS, IN_BANK, True),
        (PODS, {"any": [IN_BANK, IN_SHOP]}, False),
        (PODS, {"any": [IN_BANK, EMPTY]}, True),
        (PODS, {"all": [PODS, IN_SHOP]}, False),
        (PODS, {"all": [PODS, IN_BANK]}, True),
        (PODS, {"all": [PODS, EMPTY]}, True),
    ],
)
def test_match_and_exclude(match, exclude, matches):
    assert ask(compile_match(build(match), build(exclude)), request()) is matches


ANN = Caller(
    username="ann",
    groups=("dev", "staff"),
    roles=("shop:editor",),
    cluster_roles=("view",),
)
ROBOT = Caller(username="system:serviceaccount:ci:robot", groups=("system:serviceaccounts",))


def subject(kind, name, namespace=""):
    return {"subjects": [{"kind": kind, "name": name, "namespace": namespace}]}


@pytest.mark.parametrize(
    ("wanted", "caller", "matches", "excluded"),
    [
        (subject("User", "ann"), ANN, True, True),
        (subject("User", "a*"), ANN, True, True),
        (subject("User", "bob"), ANN, False, False),
        (subject("Group", "dev"), ANN, True, True),
        (subject("Group", "ops"), ANN, False, False),
        (subject("ServiceAccount", "robot", "ci"), ROBOT, True, True),
        (subject("ServiceAccount", "*", "c*"), ROBOT, True, True),
        (subject("ServiceAccount", "robot", "shop"), ROBOT, False, False),
        (subject("Robot", "*"), ROBOT, False, False),
        ({"roles": ["shop:editor"]}, ANN, True, True),
        # Roles know no wildcards.
        ({"roles": ["shop:*"]}, ANN, False, False),
        ({"clusterRoles": ["admin", "view"]}, ANN, True, True),
        ({"clusterRoles": ["admin"]}, ANN, False, False),
        ({**subject("User", "ann"), "clusterRoles": ["admin"]}, ANN, False, False),
        # Nobody is known: `match` leaves the clause out, `exclude` does not.
        (subject("User", "ann"), None, True, False),
        ({"roles": ["shop:editor"]}, None, True, False),
        ({"clusterRoles": ["admin"]}, None, True, False),
        (subject("User", "*"), None, True, True),
        (subject("Group", "*"), None, True, False),
    ],
)
def test_callers(wanted, caller, matches, excluded):
    asked = request(caller=caller)
    assert ask(compile_match(build({**PODS, **wanted}), None), asked) is matches
    assert ask(compile_match(build(PODS), build(wanted)), asked) is not excluded


@pytest.mark.parametrize(("caller", "matches"), [(ANN, True), (ROBOT, False), (None, False)])
def test_filter_of_callers_alone_is_empty_where_nobody_is_known(caller, matches):
    select = compile_match(build(subject("User", "ann")), None)
    assert ask(select, request(caller=caller)) is matches


@pytest.mark.parametrize(
    ("match", "asked", "excepted", "swept"),
    [
        ({"any": [PODS]}, request(), True, True),
        ({"any": [IN_BANK]}, request(), False, False),
        ({"all": [PODS, IN_SHOP]}, request(), True, True),
        ({"any": [EMPTY]}, request(), False, False),
        ({}, request(), False, True),
        # The older form is not read here.
        (PODS, request(), False, True),
        ({"any": [PODS]}, request(subresource="ephemeralcontainers"), True, False),
        (resources(operations=["DELETE"]), request(), True, True),
        (resources(namespaceSelector={"matchLabels": {"a": "1"}}), request(NAMESPACE), True, True),
        (resources(namespaceSelector={"matchLabels": {"a": "1"}}), request(), False, False),
        ({"any": [{**PODS, **subject("User", "ann")}]}, request(), False, False),
        ({"any": [{**PODS, **subject("User", "ann")}]}, request(caller=ANN), True, True),
    ],
)
def test_exceptions_and_cleanup(match, asked, excepted, swept):
    assert ask(compile_filter(build(match), EXCEPTION), asked) is excepted
    assert ask(compile_filter(build(match), CLEANUP), asked) is swept


@pytest.mark.parametrize(
    ("match", "exclude", "kind", "settled"),
    [
        ({"any": [PODS]}, None, POD, always),
        ({"any": [PODS]}, None, DEPLOYMENT, None),
        ({"any": [PODS, IN_SHOP]}, None, POD, always),
        ({"any": [PODS]}, {"any": [{"resources": {"kinds": ["Deployment"]}}]}, POD, always),
        ({"any": [PODS]}, {"any": [PODS]}, POD, None),
        ({"all": [PODS, EMPTY]}, None, POD, None),
        (resources(operations=["DELETE"]), None, POD, None),
        (resources(kinds=["*"], namespaceSelector={}), None, NAMESPACE, None),
    ],
)
def test_what_the_class_of_a_request_settles(match, exclude, kind, settled):
    assert compile_match(build(match), build(exclude))(kind, "", Operation.CREATE) is settled


@pytest.mark.parametrize(
    "resource",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": "x"},
        {"metadata": {"name": 7, "generateName": [], "namespace": {}}},
        {"metadata": {"labels": [], "annotations": "x"}},
        {"metadata": {"labels": {"a": {}, "b": "1"}, "annotations": {"b": 1}}},
        {"metadata": {"labels": None, "annotations": None}},
    ],
)
@pytest.mark.parametrize(
    "wanted",
    [
        {"names": ["x", "?*"]},
        {"namespaces": ["x", "?*"]},
        {"annotations": {"b": "*"}},
        {"annotations": {"*": "x"}},
        {"selector": {"matchLabels": {"b": "1"}}},
        {"selector": {"matchLabels": {"*": "*"}}},
    ],
)
def test_odd_objects_fit_nothing_and_break_nothing(resource, wanted):
    select = compile_match(build(resources(**wanted)), None)
    assert ask(select, Request(POD, resource)) is False


def test_null_label_is_an_empty_one():
    select = compile_match(build(resources(selector={"matchLabels": {"a": ""}})), None)
    assert ask(select, request(metadata={"labels": {"a": None}}))


def test_delete_is_about_the_old_object():
    select = compile_match(build(resources(names=["web-1"])), None)
    old = {"metadata": {"name": "web-1"}}
    assert ask(select, Request(POD, None, old_object=old, operation=Operation.DELETE))


def test_watch_hears_each_clause_even_one_that_is_settled():
    heard = []

    def watch(what, closure):
        def watched(asked):
            answer = closure(asked)
            heard.append((what, answer))
            return answer

        return watched

    match = {
        "any": [
            {"resources": {"kinds": ["Service"]}},
            {"resources": {"kinds": ["Pod"], "names": ["web-*"]}, "roles": ["x"]},
        ]
    }
    exclude = {"resources": {"operations": ["CREATE"], "namespaces": ["bank"]}}
    select = compile_match(build(match), build(exclude), watch=watch)
    assert ask(select, request())
    assert heard == [
        ("match.any[0].resources.kinds", False),
        ("match.any[0]", False),
        ("match.any[1].resources.kinds", True),
        ("match.any[1].resources.names", True),
        ("match.any[1].roles", True),
        ("match.any[1]", True),
        ("match", True),
        ("exclude.resources.operations", True),
        ("exclude.resources.namespaces", False),
        ("exclude", False),
    ]
