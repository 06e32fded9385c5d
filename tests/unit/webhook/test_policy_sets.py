"""Which rules judge before the answer, which after it, and which are triggers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from serving import make_policy, require_label, write_policies

from lictor.core.engine import Engine
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.model.program import Program
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import AnswerStyle
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.webhook.counters import Counters
from lictor.webhook.policy_sets import PolicyProvider, PolicySet, PolicySets
from lictor.webhook.webhook_routes import InternalWebhook, WebhookRoute, read_path

MATCH: JsonObject = {"any": [{"resources": {"kinds": ["Pod"]}}]}
MUTATE: JsonObject = {
    "name": "mutate",
    "match": MATCH,
    "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}},
}
EXISTING: JsonObject = {
    "name": "existing",
    "match": MATCH,
    "mutate": {
        "targets": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": "shop"}],
        "patchStrategicMerge": {"data": {"a": "b"}},
    },
}
GENERATE: JsonObject = {
    "name": "generate",
    "match": MATCH,
    "generate": {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "namespace": "shop"},
}
OVERRIDDEN = require_label("o", "Audit")
OVERRIDDEN["validate"]["failureActionOverrides"] = [{"action": "Enforce", "namespaces": ["x"]}]
ENFORCE, AUDIT = require_label("e"), require_label("a", "Audit")


def _open(folder: Path, path: str, *documents: JsonObject) -> PolicySet:
    route = read_path(path)
    assert isinstance(route, WebhookRoute)
    return PolicySets(write_policies(folder, *documents), Counters(), Flags()).open(route)


def _names(engine: Engine) -> list[str]:
    """The rules of a policy as it was written; those made for Pod controllers are left out."""
    return [
        rule.name
        for program in engine.programs
        for rule in program.rules
        if not rule.name.startswith("autogen-")
    ]


@pytest.mark.parametrize(
    ("path", "spec", "rules", "expected"),
    [
        ("/validate/fail", {}, (ENFORCE, AUDIT), (["need-e"], ["need-a"], [])),
        ("/validate/fail", {}, (OVERRIDDEN, AUDIT), (["need-o"], ["need-a"], [])),
        ("/validate/fail", {"emitWarning": True}, (AUDIT,), (["need-a"], [], [])),
        ("/validate/fail", {"applyRules": "One"}, (AUDIT, ENFORCE), (["need-a", "need-e"], [], [])),
        ("/validate/fail", {"applyRules": "One"}, (AUDIT,), ([], ["need-a"], [])),
        ("/validate/fail", {}, (MUTATE, GENERATE), ([], [], ["generate"])),
        ("/validate/fail", {}, (EXISTING, ENFORCE), (["need-e"], [], ["existing"])),
        ("/mutate/fail", {}, (MUTATE, ENFORCE, AUDIT), (["mutate"], [], [])),
        ("/mutate/fail", {}, (EXISTING, MUTATE), (["mutate"], [], [])),
        ("/mutate/ignore", {}, (MUTATE,), ([], [], [])),
        ("/mutate/ignore", {"failurePolicy": "Ignore"}, (MUTATE,), (["mutate"], [], [])),
    ],
)
def test_rules_are_split(
    tmp_path: Path,
    path: str,
    spec: JsonObject,
    rules: tuple[JsonObject, ...],
    expected: tuple[list[str], list[str], list[str]],
) -> None:
    policy_set = _open(tmp_path, path, make_policy("p", *rules, **spec))
    found = tuple(map(_names, (policy_set.blocking, policy_set.audit, policy_set.triggered)))
    assert found == expected


def _make_cel(kind: str, **spec: object) -> JsonObject:
    constraints = {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ]
    }
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": constraints, **spec},
    }


def _make_image_policy(**spec: object) -> JsonObject:
    attestors = [{"name": "a", "cosign": {"key": {"data": "k"}}}]
    return _make_cel("ImageValidatingPolicy", attestors=attestors, **VALIDATIONS, **spec)


VALIDATIONS = {"validations": [{"expression": "true"}]}
MUTATIONS: JsonObject = {
    "mutations": [
        {
            "patchType": "JSONPatch",
            "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"},
        }
    ]
}


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [({}, 0), ({"skipBackgroundRequests": True}, 0), ({"skipBackgroundRequests": False}, 1)],
)
def test_own_changes_concern_policies_that_do_not_skip_them(
    tmp_path: Path, evaluation: JsonObject, expected: int
) -> None:
    document = _make_cel("MutatingPolicy", **MUTATIONS, evaluation=evaluation)
    policy_set = _open(tmp_path, "/mpol/p", document)
    assert len(policy_set.blocking.programs) == 1
    assert len(policy_set.own_changes.blocking.programs) == expected


@pytest.mark.parametrize(
    ("path", "document", "counts"),
    [
        ("/vpol/p", _make_cel("ValidatingPolicy", **VALIDATIONS), (1, 0, 0)),
        (
            "/vpol/p",
            _make_cel("ValidatingPolicy", validationActions=["Audit"], **VALIDATIONS),
            (0, 1, 0),
        ),
        (
            "/vpol/p",
            _make_cel("ValidatingPolicy", validationActions=["Warn"], **VALIDATIONS),
            (1, 0, 0),
        ),
        ("/vpol/other", _make_cel("ValidatingPolicy", **VALIDATIONS), (0, 0, 0)),
        ("/mpol/p", _make_cel("MutatingPolicy", **MUTATIONS), (1, 0, 0)),
        (
            "/mpol/p",
            _make_cel(
                "MutatingPolicy", evaluation={"mutateExisting": {"enabled": True}}, **MUTATIONS
            ),
            (0, 0, 1),
        ),
        (
            "/gpol/p",
            _make_cel("GeneratingPolicy", generate=[{"expression": "true"}]),
            (0, 0, 1),
        ),
        ("/ivpol/mutate/p", _make_image_policy(), (1, 0, 0)),
        ("/ivpol/validate/p", _make_image_policy(), (1, 0, 0)),
        ("/ivpol/validate/p", _make_image_policy(validationActions=["Audit"]), (0, 1, 0)),
        (
            "/ivpol/mutate/p",
            _make_image_policy(validationConfigurations={"mutateDigest": False}),
            (0, 0, 0),
        ),
    ],
)
def test_cel_policies_are_split(
    tmp_path: Path, path: str, document: JsonObject, counts: tuple[int, int, int]
) -> None:
    policy_set = _open(tmp_path, path, document)
    engines = (policy_set.blocking, policy_set.audit, policy_set.triggered)
    assert tuple(len(engine.programs) for engine in engines) == counts


@pytest.mark.parametrize(
    ("path", "closed"),
    [
        ("/validate/fail", True),
        ("/validate/ignore", False),
        ("/validate", True),
        ("/vpol/p", False),
    ],
)
def test_failure_policies(tmp_path: Path, path: str, *, closed: bool) -> None:
    documents = (
        make_policy("strict", ENFORCE),
        make_policy("lax", ENFORCE, failurePolicy="Ignore"),
        _make_cel("ValidatingPolicy", failurePolicy="Ignore", **VALIDATIONS),
    )
    assert _open(tmp_path, path, *documents).fails_closed is closed


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/validate", (AnswerStyle.CLASSIC_VALIDATING, False, None)),
        ("/validate/fail", (AnswerStyle.CLASSIC_VALIDATING, False, True)),
        ("/validate/ignore/finegrained/shop/p", (AnswerStyle.CLASSIC_VALIDATING, False, False)),
        ("/mutate/fail/finegrained/p", (AnswerStyle.CLASSIC_MUTATING, True, True)),
        ("/mutate/", (AnswerStyle.CLASSIC_MUTATING, True, None)),
        ("/vpol/a/b", (AnswerStyle.CEL_VALIDATING, False, None)),
        ("/nmpol/a", (AnswerStyle.CEL_MUTATING, True, None)),
        ("/ngpol/a", (AnswerStyle.CEL_VALIDATING, False, None)),
        ("/ivpol/validate/a", (AnswerStyle.CEL_VALIDATING, False, None)),
        ("/nivpol/mutate/a", (AnswerStyle.CEL_VALIDATING, True, None)),
        ("/policyvalidate", InternalWebhook.POLICY),
        ("/celexception/validate", InternalWebhook.CEL_EXCEPTION),
        ("/verifymutate", InternalWebhook.HEARTBEAT),
        ("/", None),
        ("", None),
        ("/validate/perhaps", None),
        ("/validate/fail/finegrained", None),
        ("/validate/fail/coarse/p", None),
        ("/classic/p", None),
        ("/ivpol/a", None),
        ("/xpol/a", None),
    ],
)
def test_paths(path: str, expected: object) -> None:
    found = read_path(path)
    if isinstance(found, WebhookRoute):
        assert (found.style, found.mutating, found.fails_closed) == expected
    else:
        assert found is expected


def test_policies_that_did_not_change_are_not_made_anew(tmp_path: Path) -> None:
    route = read_path("/validate/fail")
    assert isinstance(route, WebhookRoute)
    store = write_policies(tmp_path, make_policy("p", ENFORCE), make_policy("q", AUDIT))
    policy_sets = PolicySets(store, Counters(), Flags())
    first = policy_sets.open(route)
    policy_sets.by_path.clear()
    second = policy_sets.open(route)
    assert second is not first
    assert [id(each) for each in second.blocking.programs] == [
        id(each) for each in first.blocking.programs
    ]


class _Policies:
    """Policies that a test replaces; whoever listens is told."""

    def __init__(self, store: PolicyProvider) -> None:
        self.store = store
        self.revision = 0
        self.can_lag = False
        self.tell: Callable[[], None] = lambda: None

    @property
    def policies(self) -> tuple[StoredPolicy, ...]:
        return self.store.policies

    @property
    def names(self) -> ResourceNames:
        return self.store.names

    def programs(self, policy: StoredPolicy) -> tuple[Program, ...]:
        return self.store.programs(policy)

    def listen(self, listener: Callable[[], None]) -> None:
        self.tell = listener


async def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def test_the_sets_of_before_answer_until_new_ones_are_there(tmp_path: Path) -> None:
    route, forged = read_path("/validate/fail"), read_path("/validate/fail/finegrained/nobody")
    assert isinstance(route, WebhookRoute)
    assert isinstance(forged, WebhookRoute)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    async def run() -> None:
        policies = _Policies(write_policies(tmp_path / "a", make_policy("p", ENFORCE)))
        policy_sets = PolicySets(policies, Counters(), Flags())
        warming = asyncio.create_task(policy_sets.keep_warm())
        await _until(lambda: policy_sets.is_warm)
        first = policy_sets.by_path[route.path]
        policy_sets.open(forged)
        policies.store = write_policies(tmp_path / "b", make_policy("q", ENFORCE))
        policies.tell()
        # Nothing but statuses has changed.
        assert not policy_sets._changed.is_set()
        policies.revision += 1
        policies.tell()
        # Nobody who asks now has to wait.
        assert policy_sets.open(route) is first
        await _until(lambda: policy_sets.open(route) is not first)
        assert [p.policy.name for p in policy_sets.open(route).blocking.programs] == ["q"]
        # What a forger asked for is not built again until it is asked for.
        assert list(policy_sets.by_path) == [route.path]
        warming.cancel()

    asyncio.run(run())
