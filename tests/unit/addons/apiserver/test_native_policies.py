"""ValidatingAdmissionPolicies and MutatingAdmissionPolicies inside the API server."""

import asyncio

import pytest
from access_world import ADMIN, World, config_map, make

from lictor.addons.apiserver.admission.chain import AdmissionChain, Admitted
from lictor.addons.apiserver.controllers.kind_controllers import PolicyStatusController
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.schemas.type_checking import check_policy_types
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject

ADMISSION = "admissionregistration.k8s.io/v1"
# Both versions have one storage.
BETA = "admissionregistration.k8s.io/v1beta1"
RULES = {
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["configmaps"],
        }
    ]
}


def _policy(*validations: JsonObject, name: str = "p", **spec: Json) -> JsonObject:
    spec = {"matchConstraints": RULES, "validations": list(validations), **spec}
    return make(ADMISSION, "ValidatingAdmissionPolicy", name, spec=spec)


def _binding(*actions: str, name: str = "b", policy: str = "p", **spec: Json) -> JsonObject:
    spec = {"policyName": policy, "validationActions": list(actions or ("Deny",)), **spec}
    return make(ADMISSION, "ValidatingAdmissionPolicyBinding", name, spec=spec)


def _mutating(*mutations: str, name: str = "m", **spec: Json) -> JsonObject:
    made = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
        for text in mutations
    ]
    spec = {
        "matchConstraints": RULES, "mutations": made, "reinvocationPolicy": "Never", **spec,
    }  # fmt: skip
    return make(ADMISSION, "MutatingAdmissionPolicy", name, spec=spec)


def _bind_mutating(name: str = "mb", policy: str = "m", **spec: Json) -> JsonObject:
    return make(BETA, "MutatingAdmissionPolicyBinding", name, spec={"policyName": policy, **spec})


def _admit(
    world: World, document: JsonObject | None = None, user: ApiUser = ADMIN
) -> tuple[Admitted, tuple[str, ...]]:
    document = document or config_map()
    admission = AdmissionChain(world.store, world.catalogue, world.authorization)
    attributes = world.ask(document, user=user)

    async def run() -> tuple[Admitted, tuple[str, ...]]:
        admitted = await admission.mutate(attributes, document, None)
        return admitted, await admission.validate(attributes, admitted.document, None)

    return asyncio.run(run())


FAILS = {"expression": "object.metadata.name == 'x'", "message": "call it x"}
HOLDS = {"expression": "object.metadata.name == 'thing'"}


def _denied(message: str, policy: str = "p", binding: str = "b") -> str:
    return (
        f"configmaps \"thing\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding "
        f"'{binding}' denied request: {message}"
    )


REFUSED: dict[str, tuple[tuple[JsonObject, ...], int, str, str]] = {
    "message": ((_policy(FAILS), _binding()), 422, "Invalid", _denied("call it x")),
    "expression": (
        (_policy({"expression": " object.metadata.name == 'x' "}), _binding()),
        422,
        "Invalid",
        _denied("failed expression: object.metadata.name == 'x'"),
    ),
    "message-expression": (
        (_policy({**FAILS, "messageExpression": "'not ' + object.metadata.name"}), _binding()),
        422,
        "Invalid",
        _denied("not thing"),
    ),
    "reason": (
        (_policy(HOLDS, {**FAILS, "reason": "Forbidden"}), _binding()),
        403,
        "Forbidden",
        _denied("call it x"),
    ),
    "undecided": (
        (_policy({"expression": "object.nothing == 1"}), _binding()),
        422,
        "Invalid",
        _denied(
            "expression 'object.nothing == 1' resulted in error: no such key: nothing"
        ),
    ),
    "variables": (
        (
            _policy(
                {"expression": "variables.short == 'x'", "message": "no"},
                variables=[{"name": "short", "expression": "object.metadata.name"}],
            ),
            _binding(),
        ),
        422,
        "Invalid",
        _denied("no"),
    ),
    "no-params": (
        (
            _policy(FAILS, paramKind={"apiVersion": "v1", "kind": "ConfigMap"}),
            _binding(
                paramRef={
                    "name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny",
                }
            ),
        ),
        422,
        "Invalid",
        _denied(
            "failed to configure binding: no params found for policy binding with `Deny` "
            "parameterNotFoundAction"
        ),
    ),
    "no-such-kind": (
        (
            _policy(FAILS, paramKind={"apiVersion": "acme.com/v1", "kind": "Limit"}),
            _binding(paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}),
        ),
        422,
        "Invalid",
        "configmaps \"thing\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed "
        "to configure policy: failed to find resource referenced by paramKind: 'acme.com/v1, "
        "Kind=Limit'",
    ),
    "params": (
        (
            config_map("limits", data={"name": "y"}),
            _policy(
                {"expression": "object.metadata.name == params.data.name", "message": "not y"},
                paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
            ),
            _binding(paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}),
        ),
        422,
        "Invalid",
        _denied("not y"),
    ),
    "second-binding": (
        (
            _policy(FAILS),
            _binding("Warn", name="a"),
            _binding("Deny", "Audit", name="b"),
        ),
        422,
        "Invalid",
        _denied("call it x"),
    ),
    "annotation": (
        (
            _policy(HOLDS, auditAnnotations=[{"key": "k", "valueExpression": "string(object.nothing)"}]),
            _binding(),
        ),
        422,
        "Invalid",
        _denied(
            "expression 'string(object.nothing)' resulted in error: no such key: nothing"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("documents", "code", "reason", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(documents: tuple[JsonObject, ...], code: int, reason: str, message: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        _admit(World(*documents))
    assert (error.value.code, error.value.reason) == (code, reason)
    assert error.value.message == message
    told = message.partition("is forbidden: ")[2]
    assert error.value.details == {
        "name": "thing", "kind": "configmaps", "causes": [{"message": told}],
    }  # fmt: skip


SELECTOR = {"matchLabels": {"team": "blue"}}
ALLOWED: dict[str, tuple[JsonObject, ...]] = {
    "holds": (_policy(HOLDS), _binding()),
    "no-binding": (_policy(FAILS),),
    "other-binding": (_policy(FAILS), _binding(policy="other")),
    "audit": (_policy(FAILS), _binding("Audit")),
    "conditions": (
        _policy(FAILS, matchConditions=[{"name": "n", "expression": "request.name == 'other'"}]),
        _binding(),
    ),
    "ignored": (
        _policy({"expression": "object.nothing == 1"}, failurePolicy="Ignore"), _binding(),
    ),
    "other-namespace": (
        _policy(FAILS, matchConstraints={**RULES, "namespaceSelector": SELECTOR}), _binding(),
    ),
    "binding-elsewhere": (
        _policy(FAILS), _binding(matchResources={"namespaceSelector": SELECTOR}),
    ),
    "params-not-there": (
        _policy(FAILS, paramKind={"apiVersion": "v1", "kind": "ConfigMap"}),
        _binding(paramRef={"name": "limits", "parameterNotFoundAction": "Allow"}),
    ),
    "authorizer": (
        _policy({"expression": "authorizer.group('').resource('pods').check('get').allowed()"}),
        _binding(),
    ),
    "namespace-object": (
        _policy({"expression": "namespaceObject.metadata.name == 'default'"}), _binding(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("documents", ALLOWED.values(), ids=ALLOWED)
def test_allowed(documents: tuple[JsonObject, ...]) -> None:
    admitted, warnings = _admit(World(*documents))
    assert admitted.document == config_map()
    assert warnings == ()


def test_warnings_of_each_validation() -> None:
    world = World(_policy(FAILS, HOLDS, {**FAILS, "message": "still x"}), _binding("Warn"))
    beginning = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': "
    assert _admit(world)[1] == (f"{beginning}call it x", f"{beginning}still x")


def test_the_caller_counts() -> None:
    world = World(
        _policy(
            {"expression": "authorizer.requestResource.check('create').allowed()", "message": "no"}
        ),
        _binding(),
    )
    _admit(world)
    with pytest.raises(RefusedRequestError, match="denied request: no"):
        _admit(world, user=ApiUser("jane"))


def test_changes_count_at_once() -> None:
    world = World()
    _admit(world)
    world.put(_policy(FAILS), _binding())
    with pytest.raises(RefusedRequestError):
        _admit(world)
    world.store.remove(world.kind_of(_binding()), "", "b")
    _admit(world)


def test_policies_never_judge_policies() -> None:
    rules = {
        "resourceRules": [{**RULES["resourceRules"][0], "apiGroups": ["*"], "resources": ["*"]}]
    }
    world = World(_policy({"expression": "false"}, matchConstraints=rules), _binding())
    _admit(world, _policy(HOLDS, name="repair"))


# --- those that change


LABEL = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"


def test_change() -> None:
    admitted, _ = _admit(World(_mutating(LABEL), _bind_mutating()))
    assert admitted.document is not None
    assert admitted.document["metadata"]["labels"] == {"a": "b"}


def test_change_is_checked() -> None:
    world = World(_mutating(LABEL), _bind_mutating())
    world.put(_policy({"expression": "!has(object.metadata.labels)", "message": "no"}), _binding())
    with pytest.raises(RefusedRequestError, match="denied request: no"):
        _admit(world)


def test_one_sees_what_the_other_changed() -> None:
    second = "Object{metadata: Object.metadata{labels: {'second': object.metadata.labels['a']}}}"
    world = World(
        _mutating(LABEL, name="a"), _bind_mutating("ab", "a"),
        _mutating(second, name="b"), _bind_mutating("bb", "b"),
    )  # fmt: skip
    admitted, _ = _admit(world)
    assert admitted.document is not None
    assert admitted.document["metadata"]["labels"] == {"a": "b", "second": "b"}


def test_params_of_a_change() -> None:
    text = "Object{metadata: Object.metadata{labels: {'from': params.data.name}}}"
    world = World(
        config_map("limits", data={"name": "y"}),
        _mutating(text, paramKind={"apiVersion": "v1", "kind": "ConfigMap"}),
        _bind_mutating(paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}),
    )
    admitted, _ = _admit(world)
    assert admitted.document is not None
    assert admitted.document["metadata"]["labels"] == {"from": "y"}


def test_a_change_that_cannot_be_made() -> None:
    text = "Object{metadata: Object.metadata{labels: {'a': object.nothing}}}"
    with pytest.raises(RefusedRequestError) as error:
        _admit(World(_mutating(text), _bind_mutating()))
    assert (error.value.code, error.value.reason) == (403, "Invalid")
    assert error.value.message.startswith("policy 'm' with binding 'mb' denied request: ")
    admitted, _ = _admit(World(_mutating(text, failurePolicy="Ignore"), _bind_mutating()))
    assert admitted.document == config_map()


# --- status


def test_status_tells_what_was_seen() -> None:
    policy = _policy(HOLDS)
    policy["metadata"]["generation"] = 2
    world = World(policy)
    written: list[JsonObject] = []

    async def write(document: JsonObject) -> None:
        written.append(document["status"])
        world.put(document)

    keeper = PolicyStatusController(world.reader, write)
    asyncio.run(keeper.reconcile())
    asyncio.run(keeper.reconcile())
    assert written == [{"observedGeneration": 2, "typeChecking": {}}]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("object.data['a'] == 'b' && object.metadata.name != ''", ""),
        ("request.name == object.metadata.labels.app", ""),
        (
            "object.spec.replicas > 1",
            "undefined field 'spec'\n | object.spec.replicas > 1\n | ......^",
        ),
        (
            "object.metadata.name > 1",
            "found no matching overload for '_>_' applied to '(string, int)'\n"
            " | object.metadata.name > 1\n | .....................^",
        ),
        (
            "variables.kept == 1",
            "found no matching overload for '_==_' applied to '(bool, int)'\n"
            " | variables.kept == 1\n | ...............^",
        ),
    ],
)
def test_status_has_the_types_that_do_not_fit(text: str, warning: str) -> None:
    kept = {"name": "kept", "expression": "object.immutable"}
    policy = _policy({"expression": text}, variables=[kept])
    found = check_policy_types(policy, World().catalogue)
    expected = [] if not warning else ["spec.validations[0].expression"]
    assert [each["fieldRef"] for each in found] == expected
    for each in found:
        assert each["warning"].startswith("/v1, Kind=ConfigMap: ERROR: ")
        assert each["warning"].endswith(f"{warning}\n")
