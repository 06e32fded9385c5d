"""Reviews in, responses out: what callers are told, and what happens after they were told."""

import asyncio
from http import HTTPStatus
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace
from serving import (
    Bench,
    FixedPolicies,
    Notes,
    make_policy,
    make_review,
    require_label,
    write_policies,
)

from lictor.core.errors import DeadlineError
from lictor.core.lang.patch import parse_json_patch
from lictor.core.model.program import Case
from lictor.core.model.result import Result, Status
from lictor.core.raw import JsonObject
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.metrics import NOT_EVALUATED, QUEUE_DROPPED, REQUESTS

ADD_OWNER: JsonObject = {
    "name": "owner",
    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
    "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"+(owner)": "ann"}}}},
}


def test_all_failures_of_all_policies_are_told(tmp_path: Path) -> None:
    bench = Bench(
        write_policies(
            tmp_path,
            make_policy("teams", require_label("team"), require_label("cost")),
            make_policy("apps", require_label("app")),
        )
    )
    response = bench.ask("/validate/fail", make_review({"cost": "x"}))
    assert response["uid"] == "6b7a"
    assert not response["allowed"]
    assert response["status"] == {
        "status": "Failure",
        "message": (
            "\n\nresource Pod/shop/web was blocked due to the following policies \n\n"
            "apps:\n"
            "  need-app: 'validation error: The label app is required. rule need-app failed at\n"
            "    path /metadata/labels/app/'\n"
            "teams:\n"
            "  need-team: 'validation error: The label team is required. rule need-team failed\n"
            "    at path /metadata/labels/team/'\n"
        ),
    }


def test_what_passes_is_allowed_without_a_word(tmp_path: Path) -> None:
    bench = Bench(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    response = bench.ask("/validate/fail", make_review({"team": "x"}))
    assert response == {"uid": "6b7a", "allowed": True}
    assert bench.count(REQUESTS) == 1


def test_a_path_asks_only_its_own_policies(tmp_path: Path) -> None:
    policies = write_policies(
        tmp_path,
        make_policy("strict", require_label("a")),
        make_policy("lax", require_label("b"), failurePolicy="Ignore"),
    )
    bench = Bench(policies)
    messages = {
        path: bench.ask(path, make_review()).get("status", {}).get("message", "")
        for path in ("/validate/fail", "/validate/ignore", "/validate")
    }
    assert {path: ("strict" in m, "lax" in m) for path, m in messages.items()} == {
        "/validate/fail": (True, False),
        "/validate/ignore": (False, True),
        "/validate": (True, True),
    }


def test_mutations_come_as_a_patch(tmp_path: Path) -> None:
    bench = Bench(write_policies(tmp_path, make_policy("owners", ADD_OWNER)))
    review = make_review({"team": "x"})
    response = bench.ask("/mutate/fail", review)
    assert response["patchType"] == "JSONPatch"
    from base64 import b64decode

    patch = orjson.loads(b64decode(response["patch"]))
    assert patch == [{"op": "add", "path": "/metadata/labels/owner", "value": "ann"}]
    assert parse_json_patch(orjson.dumps(patch).decode())
    # Nothing is changed where everything is right, and nothing is validated on this path.
    assert bench.ask("/mutate/fail", make_review({"owner": "bob"})) == {
        "uid": "6b7a",
        "allowed": True,
    }
    assert bench.ask("/validate/fail", review)["allowed"]


def test_deleted_objects_are_judged_by_what_they_were(tmp_path: Path) -> None:
    rule = require_label("team")
    rule["match"] = {"any": [{"resources": {"kinds": ["Pod"], "operations": ["DELETE"]}}]}
    names = {"key": "{{request.oldObject.metadata.name}}", "operator": "Equals", "value": "web"}
    rule["validate"] = {"failureAction": "Enforce", "deny": {"conditions": {"any": [names]}}}
    bench = Bench(write_policies(tmp_path, make_policy("teams", rule), make_policy("m", ADD_OWNER)))
    assert not bench.ask("/validate/fail", make_review(operation="DELETE"))["allowed"]
    assert bench.ask("/validate/fail", make_review())["allowed"]
    assert bench.ask("/mutate/fail", make_review(operation="DELETE")) == {
        "uid": "6b7a",
        "allowed": True,
    }


@pytest.mark.parametrize(
    ("labels", "warnings"),
    [
        ({"team": "x"}, None),
        (
            {},
            [
                "policy teams.need-team: validation error: The label team is required. "
                "rule need-team failed at path /metadata/labels/team/"
            ],
        ),
    ],
)
def test_warnings_of_policies_that_emit_them(
    tmp_path: Path, labels: dict[str, str], warnings: list[str] | None
) -> None:
    policy = make_policy("teams", require_label("team", "Audit"), emitWarning=True)
    response = Bench(write_policies(tmp_path, policy)).ask("/validate/fail", make_review(labels))
    assert response["allowed"]
    assert response.get("warnings") == warnings


def test_audit_comes_after_the_answer(tmp_path: Path) -> None:
    notes = Notes()
    policies = write_policies(tmp_path, make_policy("teams", require_label("team", "Audit")))
    bench = Bench(policies, sinks=[notes])
    response = bench.follow("/validate/fail", make_review())
    assert response == {"uid": "6b7a", "allowed": True}
    (outcome,) = notes.outcomes
    assert outcome.verdict.results == ()
    assert outcome.audit is not None
    assert [result.status for result in outcome.audit.results] == ["fail"]


def test_dry_runs_leave_no_traces(tmp_path: Path) -> None:
    notes = Notes(wants_passes=True, takes_triggers=True)
    policies = write_policies(
        tmp_path,
        make_policy("a", require_label("x", "Audit")),
        make_policy("b", require_label("y")),
    )
    bench = Bench(policies, sinks=[notes])
    assert not bench.follow("/validate/fail", make_review(dryRun=True))["allowed"]
    assert notes.outcomes == []


def test_refusals_are_told_but_not_audited(tmp_path: Path) -> None:
    notes = Notes()
    policies = write_policies(
        tmp_path,
        make_policy("a", require_label("x", "Audit")),
        make_policy("b", require_label("y")),
    )
    Bench(policies, sinks=[notes]).follow("/validate/fail", make_review())
    (outcome,) = notes.outcomes
    assert not outcome.allowed
    assert outcome.audit is None


def test_triggers_are_for_those_who_want_them(tmp_path: Path) -> None:
    rule: JsonObject = {
        "name": "make",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "generate": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "made",
            "namespace": "{{request.namespace}}",
            "data": {"data": {"a": "b"}},
        },
    }
    policies = write_policies(tmp_path, make_policy("maker", rule))
    nobody, somebody = Notes(), Notes(takes_triggers=True)
    Bench(policies, sinks=[nobody]).follow("/validate/fail", make_review())
    assert nobody.outcomes == []
    Bench(policies, sinks=[somebody]).follow("/validate/fail", make_review())
    (outcome,) = somebody.outcomes
    assert outcome.triggered is not None
    (result,) = outcome.triggered.results
    # That it is set off is known; what it makes is the background's affair.
    assert (result.status, result.generated) == (Status.PASS, ())


def test_a_full_queue_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policies = write_policies(tmp_path, make_policy("teams", require_label("team", "Audit")))
    bench = Bench(policies, capacity=1)
    for _ in range(3):
        assert bench.ask("/validate/fail", make_review())["allowed"]
    assert bench.count(QUEUE_DROPPED) == 2
    assert "requests not audited" in caplog.text


def test_a_queue_is_full_of_few_large_requests(tmp_path: Path) -> None:
    policies = write_policies(tmp_path, make_policy("teams", require_label("team", "Audit")))
    bench = Bench(policies, sinks=(Notes(),), capacity=1000)
    large = make_review({"note": "x" * 3_000_000})
    for _ in range(4):
        assert bench.ask("/validate/fail", large)["allowed"]
    assert bench.count(QUEUE_DROPPED) == 2
    # What was worked on makes room again.
    bench.follow("/validate/fail", make_review())
    bench.ask("/validate/fail", large)
    assert bench.count(QUEUE_DROPPED) == 2


def test_who_is_left_alone_is_allowed(tmp_path: Path) -> None:
    bench = Bench(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    bench.state.exempt = lambda request: (
        request.caller is not None and (request.caller.username == "ann")
    )
    assert bench.ask("/validate/fail", make_review())["allowed"]


def test_roles_are_asked_for_by_policies_that_name_them(tmp_path: Path) -> None:
    rule = require_label("team")
    rule["match"] = {"any": [{"resources": {"kinds": ["Pod"]}, "clusterRoles": ["side_task"]}]}
    plain = Bench(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    plain.ask("/validate/fail", make_review())
    assert plain.state.asked_roles == 0
    folder = tmp_path / "roles"
    folder.mkdir()
    bench = Bench(write_policies(folder, make_policy("guests", rule)))
    assert bench.ask("/validate/fail", make_review())["allowed"]
    bench.state.roles = ((), ("side_task",))
    assert not bench.ask("/validate/fail", make_review())["allowed"]
    assert bench.state.asked_roles == 2


def test_namespace_labels_are_seen(tmp_path: Path) -> None:
    rule = require_label("team")
    selector = {"matchLabels": {"zone": "prod"}}
    rule["match"] = {"any": [{"resources": {"kinds": ["Pod"], "namespaceSelector": selector}}]}
    bench = Bench(write_policies(tmp_path, make_policy("teams", rule)))
    assert bench.ask("/validate/fail", make_review())["allowed"]
    bench.state.labels = {"zone": "prod"}
    assert not bench.ask("/validate/fail", make_review())["allowed"]


def test_what_is_sent_to_a_subresource_counts_as_its_owner(tmp_path: Path) -> None:
    rule = require_label("team")
    rule["match"] = {"any": [{"resources": {"kinds": ["Pod/exec"]}}]}
    rule["validate"] = {"failureAction": "Enforce", "message": "no exec", "deny": {}}
    bench = Bench(write_policies(tmp_path, make_policy("no-exec", rule)))
    sent = make_review(
        operation="CONNECT",
        kind={"group": "", "version": "v1", "kind": "PodExecOptions"},
        subResource="exec",
        object={"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"]},
    )
    assert "no exec" in bench.ask("/validate/fail", sent)["status"]["message"]
    assert bench.ask("/validate/fail", make_review())["allowed"]


@pytest.mark.parametrize(
    ("username", "allowed"),
    [
        ("ann", False),
        ("system:serviceaccount:lictor:lictor-background-controller", True),
        ("system:serviceaccount:kube-system:namespace-controller", True),
    ],
)
def test_managed_resources_are_protected(tmp_path: Path, username: str, *, allowed: bool) -> None:
    policies = write_policies(tmp_path, make_policy("teams", require_label("x", "Audit")))
    bench = Bench(policies, flags=Flags(protect_managed_resources=True))
    review = make_review(
        {"app.kubernetes.io/managed-by": "kyverno"},
        operation="DELETE",
        userInfo={"username": username},
    )
    assert bench.ask("/validate/fail", review)["allowed"] is allowed


def _break(policies: FixedPolicies, error: BaseException) -> FixedPolicies:
    def check(_: Case) -> tuple[Result, ...]:
        raise error

    policy = policies.policies[0]
    (program,) = policies.programs(policy)
    rules = tuple(replace(rule, check=check) for rule in program.rules)
    policies.made[policy.name] = (replace(program, rules=rules),)
    return policies


@pytest.mark.parametrize("error", [TypeError("oops"), MemoryError(), RecursionError()])
def test_a_rule_that_breaks_is_named(tmp_path: Path, error: BaseException) -> None:
    # Out of memory or stack: whoever made the object can bring that about.
    ignored = isinstance(error, TypeError)
    for failure_policy, allowed in (("Fail", False), ("Ignore", ignored)):
        folder = tmp_path / failure_policy
        folder.mkdir()
        policy = make_policy("broken", require_label("x"), failurePolicy=failure_policy)
        bench = Bench(_break(FixedPolicies(write_policies(folder, policy)), error))
        response = bench.ask(f"/validate/{failure_policy.lower()}", make_review())
        assert response["allowed"] is allowed
        told = response["status"]["message"] if not allowed else "".join(response["warnings"])
        assert "broken" in told
        assert "need-x" in told


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
def test_a_request_without_time_follows_the_failure_policy(
    tmp_path: Path, failure_policy: str
) -> None:
    policy = make_policy(
        "slow", require_label("x"), require_label("y"), failurePolicy=failure_policy
    )
    policies = _break(FixedPolicies(write_policies(tmp_path, policy)), DeadlineError("too late"))
    bench = Bench(policies)
    # What the engine raises between rules is what a clock beyond the deadline makes it raise.
    bench.evaluator._evaluate_on_loop = _raise_deadline  # type: ignore[assignment]
    response = bench.ask(f"/validate/{failure_policy.lower()}", make_review())
    assert bench.count(NOT_EVALUATED) == 1
    if failure_policy == "Fail":
        assert not response["allowed"]
        assert "no time left" in response["status"]["message"]
    else:
        assert response["allowed"]
        assert "no time left" in response["warnings"][0]


def _raise_deadline(*_: object) -> None:
    raise DeadlineError("no time left for policy slow")


def test_beyond_the_limit_answers_come_at_once(tmp_path: Path) -> None:
    policies = write_policies(
        tmp_path,
        make_policy("strict", require_label("x")),
        make_policy("lax", require_label("x"), failurePolicy="Ignore"),
    )
    bench = Bench(policies, max_in_flight=0)
    response = bench.ask("/validate/fail", make_review({"x": "y"}))
    assert not response["allowed"]
    assert "too many requests at once" in response["status"]["message"]
    response = bench.ask("/validate/ignore", make_review())
    assert response["allowed"]
    assert "too many requests at once" in response["warnings"][0]


def test_nothing_is_answered_before_policies_are_read(tmp_path: Path) -> None:
    """A process that has just started knows no policies; that must not mean that all is well."""
    policies = FixedPolicies(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    known, policies.policies = policies.policies, ()
    bench = Bench(policies)

    async def run() -> tuple[HTTPStatus, bool]:
        bench.state.reading = asyncio.Event()
        late = await bench.post("/validate/fail", make_review(), b"timeout=1s")
        waiting = asyncio.create_task(bench.post("/validate/fail", make_review()))
        await asyncio.sleep(0)
        policies.policies = known
        bench.state.reading.set()
        return late.status, orjson.loads((await waiting).body)["response"]["allowed"]

    assert asyncio.run(run()) == (HTTPStatus.SERVICE_UNAVAILABLE, False)


def test_a_policy_that_does_not_compile_refuses_what_it_concerns(tmp_path: Path) -> None:
    rule = require_label("x")
    rule["preconditions"] = {"all": [{"key": "{{ request.[ }}", "operator": "Equals", "value": 1}]}
    policies = write_policies(
        tmp_path, make_policy("crooked", rule), make_policy("fine", require_label("y"))
    )
    response = Bench(policies).ask("/validate/fail", make_review({"y": "1"}))
    assert not response["allowed"]
    assert "crooked" in response["status"]["message"]
    assert "fine" not in response["status"]["message"]


def test_changed_policies_count_at_once(tmp_path: Path) -> None:
    policies = FixedPolicies(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    bench = Bench(policies)
    assert not bench.ask("/validate/fail", make_review())["allowed"]
    policies.policies = ()
    assert not bench.ask("/validate/fail", make_review())["allowed"]
    policies.change()
    assert bench.ask("/validate/fail", make_review())["allowed"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/nowhere", b"{}", HTTPStatus.NOT_FOUND),
        ("/validate/maybe", b"{}", HTTPStatus.NOT_FOUND),
        ("/validate/fail", b"", HTTPStatus.BAD_REQUEST),
        ("/validate/fail", b"{", HTTPStatus.BAD_REQUEST),
        ("/validate/fail", b"[]", HTTPStatus.BAD_REQUEST),
        ("/validate/fail", b'{"request": 1}', HTTPStatus.BAD_REQUEST),
        ("/validate/fail", b'{"request": {"operation": "EAT"}}', HTTPStatus.BAD_REQUEST),
        ("/validate/fail", b"[" * 100_000, HTTPStatus.BAD_REQUEST),
    ],
)
def test_bad_requests(tmp_path: Path, path: str, body: bytes, status: HTTPStatus) -> None:
    bench = Bench(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    reply = asyncio.run(bench.post(path, body))
    assert reply.status is status
    assert reply.body
