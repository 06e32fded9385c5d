"""Which policies, exceptions and entries are refused when they are stored, and what is said."""

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from lictor.core.facts.resource_names import builtin_names
from lictor.core.model.finding import Finding
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.rbac import Access
from lictor.webhook.permission_admission import ControllerAccounts, review_permissions
from lictor.webhook.policy_admission import review_policy, warn_deprecation
from lictor.webhook.policy_webhooks import PolicyReviewer
from lictor.webhook.review_result import ReviewResult, describe_finding

NAMES = builtin_names()


def classic(*rules, kind="ClusterPolicy", namespace=None, **spec):
    metadata = {"name": "p"} if namespace is None else {"name": "p", "namespace": namespace}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {**spec, "rules": list(rules)},
    }


def rule(kind="Pod", name="r", **body):
    body = body or {"validate": {"pattern": {"metadata": {"name": "?*"}}}}
    return {"name": name, "match": {"any": [{"resources": {"kinds": [kind]}}]}, **body}


def cel(kind="ValidatingPolicy", namespace=None, **spec):
    about = {
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
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": kind,
        "metadata": {"name": "p", **({"namespace": namespace} if namespace else {})},
        "spec": {"matchConstraints": about, **spec},
    }


def entry(**spec):
    return {
        "apiVersion": "kyverno.io/v2beta1",
        "kind": "GlobalContextEntry",
        "metadata": {"name": "e"},
        "spec": spec,
    }


LABELS = {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}}
FINE = [
    ("classic", classic(rule())),
    ("classic of a namespace", classic(rule(), kind="Policy", namespace="n")),
    ("mutate", classic(rule(**LABELS))),
    ("cel", cel(validations=[{"expression": "has(object.spec)"}])),
    ("entry", entry(kubernetesResource={"version": "v1", "resource": "pods"})),
    ("entry that calls", entry(apiCall={"urlPath": "/api", "refreshInterval": "10s"})),
]


@pytest.mark.parametrize("document", [case for _, case in FINE], ids=[name for name, _ in FINE])
def test_fine(document):
    assert review_policy(document, names=NAMES) == ReviewResult()


CALLER = {"deny": {"conditions": {"all": [{"key": "{{ serviceAccountName }}"}]}}}
WRONG = [
    ("no rules", classic(), "spec: the policy has no rules"),
    ("two of a name", classic(rule(), rule()), "spec.rules[1].name"),
    ("all kinds in scans", classic(rule("*")), "spec.rules[0].match.any[0].resources.kinds[0]"),
    ("callers in scans", classic(rule(validate=CALLER)), "serviceAccountName"),
    ("unknown field", classic(rule(), bakground=True), 'did you mean "background"?'),
    ("does not compile", cel(validations=[{"expression": "objct.x"}]), "spec.validations[0]"),
    ("no constraints", cel(validations=[], matchConstraints={}), "resourceRules"),
    ("no such kind", {**cel(), "kind": "ValidatingPolcy"}, "ValidatingPolcy"),
    ("entry of nothing", entry(), "kubernetesResource or apiCall"),
    ("entry without version", entry(kubernetesResource={"resource": "pods"}), '"version"'),
    (
        "entry without group",
        entry(kubernetesResource={"version": "v2", "resource": "x"}),
        '"group"',
    ),
    ("entry with data", entry(apiCall={"urlPath": "/a", "data": [{"key": "k"}]}), "POST"),
    ("entry that never ends", entry(apiCall={"urlPath": "/a", "refreshInterval": "0s"}), "zero"),
    (
        "entry with a bad projection",
        entry(
            kubernetesResource={"version": "v1", "resource": "pods"},
            projections=[{"name": "e", "jmesPath": "a["}],
        ),
        "spec.projections[0].jmesPath",
    ),
]


@pytest.mark.parametrize(
    ("document", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG]
)
def test_refused(document, words):
    result = review_policy(document, names=NAMES)
    assert not result.allowed
    assert words in result.message


@pytest.mark.parametrize("kind", ["PodExecOptions", "Scale", "policy/v1/Eviction"])
def test_kinds_of_subresources_alone_are_a_warning(kind):
    result = review_policy(classic(rule(kind), background=False), names=NAMES)
    assert result.allowed
    assert any(f"{kind} is sent to subresources only" in told for told in result.warnings)


def _condition(key):
    return {
        "validate": {
            "deny": {"conditions": {"all": [{"key": key, "operator": "Equals", "value": 1}]}}
        }
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"match": {"any": [{"resources": {"kinds": ["Pod"]}, "clusterRoles": ["view"]}]}},
            "invalid variable used at path: spec/rules[0]/match/any[0]/clusterRoles",
        ),
        (
            {"exclude": {"any": [{"subjects": [{"kind": "User", "name": "ann"}]}]}},
            "invalid variable used at path: spec/rules[0]/exclude/any[0]/subjects",
        ),
        (_condition("{{request.roles}}"), "variable {{request.roles}} is not allowed"),
        (
            _condition("by {{ request.userInfo.username }}"),
            "variable {{ request.userInfo.username }} is not allowed",
        ),
        (
            {"celPreconditions": [{"name": "a", "expression": "true"}]},
            "celPrecondition can only be used with validate.cel",
        ),
    ],
)
def test_words_that_scripts_look_for(body, words):
    result = review_policy(classic({**rule(), **body}))
    assert not result.allowed
    assert words in result.message


def test_policies_about_images_are_taken():
    signed = {"imageReferences": ["ghcr.io/*"], "attestors": [], "mutateDigest": False}
    assert review_policy(classic(rule(verifyImages=[signed]))).allowed
    asking = [{"expression": "verifyImageSignatures('a/b', [attestors.k]) > 0"}]
    attestors = [{"name": "k", "cosign": {"key": {"data": "k"}}}]
    result = review_policy(cel("ImageValidatingPolicy", attestors=attestors, validations=asking))
    assert result.allowed
    assert result.warnings == ()


def test_what_is_not_supported_is_refused():
    signer = {"key": {"data": "k"}, "tuf": {"root": {"path": "/root.json"}}}
    attestors = [{"name": "k", "cosign": signer}]
    validations = [{"expression": "true"}]
    result = review_policy(
        cel("ImageValidatingPolicy", attestors=attestors, validations=validations)
    )
    assert not result.allowed
    assert "put the root metadata into data" in result.message


def test_kyvernos_own_words():
    both = {"validate": {"assert": {"object": {}}, "foreach": [{"list": "x"}]}}
    message = review_policy(classic(rule(**both), background=False)).message
    words = "only one of pattern, anyPattern, deny, foreach, cel can be specified"
    assert f"path: spec.rules[0].validate..: {words}" in message


@pytest.mark.parametrize(("allow", "is_allowed"), [(False, False), (True, True)])
def test_services_in_a_namespace(allow, is_allowed):
    call = [{"expression": "http.Get('https://x.y').a == 1"}]
    policy = cel("NamespacedValidatingPolicy", "n", validations=call)
    assert review_policy(policy, allow_http=allow).allowed is is_allowed
    # A field of that name is another thing.
    field = [{"expression": "object.spec.http == 'a'"}]
    assert review_policy(cel("NamespacedValidatingPolicy", "n", validations=field)).allowed


def test_kinds_that_nobody_serves_are_a_warning():
    result = review_policy(classic(rule("tekton.dev/v1/Task")), names=NAMES)
    assert result.allowed
    assert "tekton.dev/v1/Task" in result.warnings[0]


@pytest.mark.parametrize(("action", "warns"), [("Audit", False), ("Enforce", True)])
def test_what_the_api_server_fills_in_is_no_fault_of_the_author(action, warns):
    result = review_policy(classic(rule(), validationFailureAction=action))
    assert any("validationFailureAction" in each for each in result.warnings) is warns


def test_what_is_stored_may_be_labelled_and_deleted():
    bad = classic(rule(), rule())
    labelled = {**bad, "metadata": {"name": "p", "labels": {"a": "b"}}}
    result = review_policy(labelled, bad)
    assert result.allowed
    assert result.warnings
    going = {**bad, "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert review_policy({**going, "spec": {}}, bad).allowed


# --- generate rules that have made something already


def generating(kind="ConfigMap", name="r", *, synchronize=True, **changes):
    generate = {
        "apiVersion": "v1",
        "kind": kind,
        "name": "made",
        "namespace": "n",
        "synchronize": synchronize,
        "data": {"a": "b"},
        **changes,
    }
    return {**rule("Namespace", name=name), "generate": generate} | {"validate": None}


def policy_of(made):
    return classic({key: value for key, value in made.items() if value is not None})


CHANGES = [
    ("data", generating(), generating(data={"c": "d"}), True),
    ("synchronize", generating(), generating(synchronize=False), True),
    ("name of the rule", generating(), generating(name="other"), False),
    (
        "match while kept in step",
        generating(),
        {**generating(), "match": {"any": [{"resources": {"kinds": ["Secret"]}}]}},
        False,
    ),
    (
        "match while left alone",
        generating(synchronize=False),
        {
            **generating(synchronize=False),
            "match": {"any": [{"resources": {"kinds": ["Secret"]}}]},
        },
        True,
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "is_allowed"), [case[1:] for case in CHANGES], ids=[c[0] for c in CHANGES]
)
def test_change_of_a_generate_rule(old, new, is_allowed):
    result = review_policy(policy_of(new), policy_of(old))
    assert result.allowed is is_allowed, result.message


def test_change_of_the_target_is_a_warning():
    result = review_policy(policy_of(generating(name="made")), policy_of(generating("Secret")))
    assert result.allowed
    assert "stale targets" in " ".join(result.warnings)


# --- permissions

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "namespace": "n"}
MUTATING = {
    "mutate": {"targets": [TARGET], "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}
}
ACCOUNTS = ControllerAccounts(background="bg", reports="rp", cleanup="cl")
CLEANUP = {
    "apiVersion": "kyverno.io/v2",
    "kind": "ClusterCleanupPolicy",
    "metadata": {"name": "c"},
    "spec": {"schedule": "* * * * *", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}},
}


def ask(document, granted=()):
    asked = []

    async def allows(access):
        asked.append(access)
        return access.user in granted

    result = asyncio.run(review_permissions(document, ACCOUNTS, NAMES, allows))
    return result, asked


def test_permissions_of_mutate_targets():
    result, asked = ask(classic(rule(**MUTATING)), granted=("rp",))
    assert result.errors == (
        "spec.rules[0].mutate.targets[0]: auth check fails, additional privileges are required: "
        "bg requires permissions get,update for resource apps/v1/Deployment in namespace n; grant "
        "them by a ClusterRole with the label "
        'rbac.kyverno.io/aggregate-to-background-controller: "true"',
    )
    assert Access("bg", "get", "apps", "deployments", namespace="n", name="d") in asked


def test_permissions_of_generate():
    result, _ = ask(policy_of(generating()), granted=("rp",))
    assert "bg requires permissions get,create,update,delete for resource v1/ConfigMap" in (
        result.message
    )
    assert ask(policy_of(generating()), granted=("rp", "bg"))[0] == ReviewResult()
    variable = policy_of(generating("{{ request.object.kind }}"))
    assert ask(variable, granted=("rp",))[0] == ReviewResult()


def test_permissions_of_reports_are_a_warning():
    result, _ = ask(classic(rule()))
    assert result.allowed
    assert "rp requires permissions get,list,watch for resource Pod" in result.warnings[0]


def test_permissions_of_cleanup():
    result, _ = ask(CLEANUP, granted=("rp", "bg"))
    assert "cl requires permissions delete,list for resource Pod" in result.message


def test_permissions_of_cleanup_may_be_for_some_names_alone():
    match = {"any": [{"resources": {"kinds": ["Pod"], "names": ["a", "b"]}}]}
    named = {**CLEANUP, "spec": {**CLEANUP["spec"], "match": match}}
    _, asked = ask(named, granted=("cl",))
    assert [(each.verb, each.name) for each in asked if each.user == "cl"] == [
        ("list", ""),
        ("delete", "a"),
        ("delete", "b"),
    ]
    wild = {"any": [{"resources": {"kinds": ["Pod"], "names": ["a*"]}}]}
    _, asked = ask({**CLEANUP, "spec": {**CLEANUP["spec"], "match": wild}}, granted=("cl",))
    assert {each.name for each in asked} == {""}


# --- roles and bindings that are generated


def granting(kind="ClusterRole", namespace=None, **data):
    target = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "name": "r", "data": data}
    place = {} if namespace is None else {"namespace": namespace}
    return classic(rule("Namespace", generate={**target, **place}))


READING = {"rules": [{"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}]}


@pytest.mark.parametrize(
    ("held", "refused"),
    [
        ({"escalate"}, False),
        ({"get pods ", "get pods log"}, False),
        ({"get pods "}, True),
        (set(), True),
    ],
)
def test_nobody_grants_rights_that_it_does_not_hold(held, refused):
    async def allows(access):
        right = f"{access.verb} {access.resource} {access.subresource}"
        is_usual = access.group == "rbac.authorization.k8s.io" and access.verb != "escalate"
        return is_usual or right in held or access.verb in held

    accounts = ControllerAccounts(background="bg")
    result = asyncio.run(review_permissions(granting(**READING), accounts, NAMES, allows))
    assert result.allowed is not refused
    if refused:
        assert "get pods/log" in result.message
        assert "the verb escalate on clusterroles" in result.message


def test_bindings_need_the_right_to_bind():
    data = {"roleRef": {"kind": "ClusterRole", "name": "edit"}, "subjects": []}

    async def allows(access):
        return access.verb != "bind"

    policy = granting("RoleBinding", "n", **data)
    accounts = ControllerAccounts(background="bg")
    result = asyncio.run(review_permissions(policy, accounts, NAMES, allows))
    assert result.allowed
    assert any("ClusterRole edit" in told and "verb bind" in told for told in result.warnings)


# --- where generated objects live

WIDGETS = builtin_names().with_crds(
    [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "spec": {
                "group": "x.y",
                "names": {"kind": kind, "plural": plural},
                "scope": scope,
                "versions": [{"name": "v1", "served": True}],
            },
        }
        for kind, plural, scope in (("Here", "heres", "Namespaced"), ("All", "alls", "Cluster"))
    ]
)


@pytest.mark.parametrize(
    ("kind", "namespace", "is_bound", "words"),
    [
        ("Here", "n", False, ""),
        ("Here", None, False, "target namespace must be set for a namespaced resource"),
        ("All", None, False, ""),
        ("All", "n", False, "target namespace must not be set for a cluster-wide resource"),
        ("All", None, True, "a namespaced policy cannot generate cluster-wide resources"),
        ("Unknown", None, False, ""),
    ],
)
def test_targets_live_where_their_kind_does(kind, namespace, is_bound, words):
    target = {"apiVersion": "x.y/v1", "kind": kind, "name": "a", "data": {"a": "b"}}
    place = {} if namespace is None else {"namespace": namespace}
    body = rule("ConfigMap", generate={**target, **place})
    policy = classic(body, **({"kind": "Policy", "namespace": "n"} if is_bound else {}))
    result = review_policy(policy, names=WIDGETS)
    assert result.allowed is not bool(words), result.message
    assert words in result.message


# --- by path


def review(path, document, old=None, flags=Flags()):  # noqa: B008  (frozen)
    reviewer = PolicyReviewer(flags, SimpleNamespace(names=NAMES))
    return asyncio.run(reviewer.review(path, document, old))


def excepting(namespace="n"):
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "exceptions": [{"policyName": "p", "ruleNames": ["r"]}],
        },
    }


PLACES = [
    ("off", Flags(), "until it is enabled"),
    ("nowhere", Flags(enable_policy_exception=True), "exceptionNamespace flag is not set"),
    ("elsewhere", Flags(enable_policy_exception=True, exception_namespace="m"), "must match"),
    ("here", Flags(enable_policy_exception=True, exception_namespace="n"), ""),
    ("anywhere", Flags(enable_policy_exception=True, exception_namespace="*"), ""),
]


@pytest.mark.parametrize(
    ("flags", "words"), [case[1:] for case in PLACES], ids=[case[0] for case in PLACES]
)
def test_exceptions_that_nobody_heeds(flags, words):
    flags = replace(flags, deprecation_warnings=False)
    result = review("/exceptionvalidate", excepting(), flags=flags)
    assert result.allowed
    assert words in " ".join(result.warnings)
    assert bool(result.warnings) is bool(words)


def test_classic_kinds_and_actions_in_lower_case_are_warned_about():
    overrides = [{"action": "audit", "namespaces": ["x"]}]
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {
            "message": "m",
            "failureAction": "Enforce",
            "failureActionOverrides": overrides,
            "pattern": {"metadata": {"name": "x"}},
        },
    }
    document = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"validationFailureAction": "enforce", "rules": [rule]},
    }
    lower = "Validation failure actions enforce/audit are deprecated, use Enforce/Audit instead."
    expected = [
        f"spec.validationFailureAction: {lower}",
        f"spec.rules[0].validate.failureActionOverrides[0].action: {lower}",
    ]
    first, *others = warn_deprecation(document).warnings
    assert first.startswith("kyverno.io/v1 ClusterPolicy is deprecated and will be removed")
    assert others == expected
    assert first in review("/policyvalidate", document).warnings
    silent = review("/policyvalidate", document, flags=Flags(deprecation_warnings=False))
    assert not {first, *others} & set(silent.warnings)


def test_exception_that_is_wrong():
    bad = excepting()
    bad["spec"]["match"]["any"][0]["subjects"] = [{"kind": "User", "name": "u"}]
    assert not review("/exceptionvalidate", bad).allowed


@pytest.mark.parametrize(
    ("value", "warns"),
    [("2h", False), ("2030-01-02", False), ("2030-01-02T150405Z", False), ("soon", True)],
)
def test_ttl_label(value, warns):
    labelled = {"metadata": {"name": "o", "labels": {"cleanup.kyverno.io/ttl": value}}}
    result = review("/verifyttl", labelled)
    assert result.allowed
    assert bool(result.warnings) is warns


def test_nothing_is_said_of_what_goes():
    assert review("/policyvalidate", None) == ReviewResult()


def test_warnings_are_not_without_end():
    rules = [rule(f"x.y/v1/Kind{number}", name=f"r{number}") for number in range(50)]
    result = review("/policyvalidate", classic(*rules))
    assert len(result.warnings) == 20
    assert all(len(warning) <= 250 for warning in result.warnings)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("unknown-operator", "spec: entered value of `operator` is invalid: Equal"),
        ("undefined-field", "spec: undefined field 'Equal'; no such field in the schema"),
        ("", 'spec: there is no operator "Equal"'),
    ],
)
def test_a_finding_is_worded_by_its_code(code, words):
    """Whatever its message says: that may change, and is no interface."""
    finding = Finding(("spec",), 'there is no operator "Equal"', check="bad-condition")
    assert describe_finding(finding.with_code(code, "Equal")) == words


def test_global_context_in_a_namespace():
    """GHSA-59v6-2x73-wfg4: no policy of a namespace reads what all others share."""
    entry = [{"expression": "globalContext.Get('x', '') != null"}]
    policy = cel("NamespacedValidatingPolicy", "n", validations=entry)
    words = "globalContext.* is not allowed in namespaced policies"
    assert words in review_policy(policy, allow_http=True).message
    assert review_policy(cel("ValidatingPolicy", validations=entry)).allowed
    context = [{"name": "x", "globalReference": {"name": "x"}}]
    made = classic(rule(context=context, validate={"deny": {}}), background=False)
    assert review_policy(made).allowed
    made = {**made, "kind": "Policy", "metadata": {**made["metadata"], "namespace": "n"}}
    words = "globalReference is not allowed in namespaced policies"
    assert words in review_policy(made).message
