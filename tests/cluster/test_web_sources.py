"""What the page knows of a cluster: reports, policies and namespaces followed; policies tried."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import yaml
from control_plane.cluster import Cluster
from control_plane.manifests import apply_objects

from lictor.addons.web.failures import HIDDEN, FindConfig
from lictor.addons.web.history import TotalsHistory
from lictor.addons.web.records import ReportedResult, ResultFilter, Viewer, VisibleNamespaces
from lictor.addons.web.sources.cluster_reports import ClusterReports
from lictor.core.model.result import Failure
from lictor.core.raw import JsonObject
from lictor.install.crds import build_crds
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import NAMESPACE, OPEN_REPORT, POLICY_REPORT, Resource

SHOP, BANK = "web-shop", "web-bank"
ALL = ResultFilter()
PATIENCE = 60.0
POLICIES = Resource("kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False)
EXCEPTIONS = Resource("kyverno.io", "v2", "policyexceptions", "PolicyException")
RBAC = "rbac.authorization.k8s.io"
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap], names: [bare, good]}}]}
    validate:
      message: "{{request.object.metadata.name}} has no team"
      pattern: {metadata: {labels: {team: "?*"}}}
"""


def see(*names: str) -> Viewer:
    return Viewer("someone", {"here": VisibleNamespaces(names=frozenset(names or (SHOP, BANK)))})


def entry(policy: str, status: str) -> JsonObject:
    return {"source": "kyverno", "policy": policy, "result": status, "message": f"{policy}: it is"}


def report(name: str, namespace: str, *results: JsonObject) -> JsonObject:
    return {
        "apiVersion": POLICY_REPORT.api_version,
        "kind": POLICY_REPORT.kind,
        "metadata": {"name": name, "namespace": namespace},
        "scope": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace},
        "results": list(results),
    }


def make(
    kind: str, name: str, namespace: str = "", *, group: str = "v1", **body: object
) -> JsonObject:
    metadata: JsonObject = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if "labels" in body:
        metadata["labels"] = body.pop("labels")
    return {"apiVersion": group, "kind": kind, "metadata": metadata, **body}


def allow(resource: str, group: str = "") -> list[JsonObject]:
    """Let the service account `dev` read something in the shop."""
    rule = {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
    subject = {"kind": "ServiceAccount", "name": "dev", "namespace": SHOP}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": resource}
    return [
        make("Role", resource, SHOP, group=f"{RBAC}/v1", rules=[rule]),
        make(
            "RoleBinding", resource, SHOP, group=f"{RBAC}/v1", roleRef=reference, subjects=[subject]
        ),
    ]


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Cluster:
    """Two namespaces with ConfigMaps, and someone who may read some of one."""
    groups = ["wgpolicyk8s.io", "kyverno.io", "openreports.io"]
    apply_objects(cluster, build_crds(groups, open_reports=True))
    spaces = [make("Namespace", name, labels={"shop": name}) for name in (SHOP, BANK)]
    maps = [
        make("ConfigMap", name, place, **({"labels": {"team": "red"}} if name == "good" else {}))
        for place in (SHOP, BANK)
        for name in ("bare", "good")
    ]
    secret = make("Secret", "key", SHOP, stringData={"password": "swordfish"})
    apply_objects(cluster, [*spaces, make("ServiceAccount", "dev", SHOP), *maps, secret])
    apply_objects(cluster, [*allow("configmaps"), *allow("policyreports", "wgpolicyk8s.io")])
    return cluster


def find_config(cluster: Cluster, user: str) -> ClusterConfig:
    path = cluster.kubeconfig if user == "admin" else cluster.kubeconfig_for(SHOP, user)
    return load_config(str(path))


@asynccontextmanager
async def connect(config: ClusterConfig) -> AsyncIterator[Client]:
    client = Client(config)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def follow(
    config: ClusterConfig,
    *,
    history: TotalsHistory | None = None,
    whose: FindConfig | None = None,
) -> AsyncIterator[ClusterReports]:
    async with connect(config) as client:
        state = ClusterReports({"here": client}, history=history, find_config=whose)
        running = asyncio.create_task(state.run())
        try:
            async with asyncio.timeout(PATIENCE):
                await state.wait()
            yield state
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            # Sockets of watches end a moment after them.
            await asyncio.sleep(0.05)


async def until(fits: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fits():  # noqa: ASYNC110  (many things may make it true)
            await asyncio.sleep(0.02)


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(240):
            await work

    asyncio.run(bounded())


def count(state: ClusterReports, **chosen: tuple[str, ...]) -> int:
    return state.results.select(ResultFilter(**chosen), see()).total


def test_what_is_there_is_read_and_what_changes_is_followed(
    filled: Cluster, tmp_path: Path
) -> None:
    async def work() -> None:
        config = find_config(filled, "admin")
        async with connect(config) as client:
            first = report("web", SHOP, entry("labels", "fail"), entry("images", "pass"))
            await client.create(POLICY_REPORT, first)
            async with follow(config, history=TotalsHistory(tmp_path)) as state:
                assert state.is_ready()
                assert count(state) == 2
                assert state.list_problems() == []
                assert state.results.list_changes(see()) == []
                await follow_reports(client, state)
                await follow_documents(client, state)
                await until(lambda: bool(state.list_totals(see())))
            await client.delete(POLICY_REPORT, "web", SHOP)
            await client.delete(OPEN_REPORT, "scan", SHOP)
        assert (tmp_path / "totals.json").exists()

    run(work())


async def follow_reports(client: Client, state: ClusterReports) -> None:
    await client.create(POLICY_REPORT, report("db", BANK, entry("labels", "fail")))
    await until(lambda: count(state) == 3)
    (change,) = state.results.list_changes(see())
    assert [row.name for row in change.added] == ["db"]
    patch = {"results": [entry("labels", "pass")]}
    await client.patch(POLICY_REPORT, "db", patch, namespace=BANK)
    await until(lambda: count(state, statuses=("fail",)) == 1)
    assert count(state) == 3
    await client.delete(POLICY_REPORT, "db", BANK)
    await until(lambda: count(state) == 2)
    other = make("Report", "scan", SHOP, group="openreports.io/v1alpha1", source="Falco")
    result = {"policy": "shell", "result": "warn", "source": "Falco"}
    await client.create(OPEN_REPORT, {**other, "results": [result]})
    await until(lambda: count(state, sources=("Falco",)) == 1)


async def follow_documents(client: Client, state: ClusterReports) -> None:
    match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    pattern = {"metadata": {"labels": {"team": "?*"}}}
    rule = {"name": "team", "match": match, "validate": {"message": "no", "pattern": pattern}}
    policy = make("ClusterPolicy", "web-labels", group="kyverno.io/v1", spec={"rules": [rule]})
    await client.create(POLICIES, policy)
    await until(lambda: state.find_policy("here", "web-labels", see()) is not None)
    found = state.find_policy("here", "web-labels", see())
    assert found is not None
    assert "managedFields" not in found.text
    assert "uid" not in found.text
    assert found.rule_lines["team"][0] > 1
    spec = {"match": match, "exceptions": [{"policyName": "web-labels", "ruleNames": ["team"]}]}
    await client.create(
        EXCEPTIONS, make("PolicyException", "old", SHOP, group="kyverno.io/v2", spec=spec)
    )
    await until(lambda: [each.name for each in state.list_exceptions(see())] == ["old"])
    assert state.list_namespaces("here", see()) == [BANK, SHOP]
    chosen = ResultFilter(namespace_labels=f"shop={SHOP}")
    assert state.results.select(chosen, see()).total == 3
    await client.patch(NAMESPACE, SHOP, {"metadata": {"labels": {"shop": "closed"}}})
    await until(lambda: state.results.select(chosen, see()).total == 0)
    await client.delete(POLICIES, "web-labels")
    await until(lambda: state.find_policy("here", "web-labels", see()) is None)
    await client.delete(EXCEPTIONS, "old", SHOP)
    await until(lambda: not state.list_exceptions(see()))


def test_who_may_read_one_namespace_sees_that_and_hears_what_is_missing(filled: Cluster) -> None:
    async def work() -> None:
        async with connect(find_config(filled, "admin")) as client:
            for place in (SHOP, BANK):
                await client.create(POLICY_REPORT, report("till", place, entry("p", "fail")))
            config = find_config(filled, "dev")
            # As the context of a kubeconfig says it.
            own = ClusterConfig(config.server, ca=config.ca, token=config.token, namespace=SHOP)
            async with follow(own) as state:
                rows = state.results.select(ResultFilter(policies=("p",)), see()).rows
                assert [row.namespace for row in rows] == [SHOP]
                problems = state.list_problems()
                assert any("clusterpolicyreports.wgpolicyk8s.io" in each for each in problems)
                assert any("forbidden" in each for each in problems)
                await client.create(POLICY_REPORT, report("late", SHOP, entry("p", "fail")))
                await until(lambda: count(state, policies=("p",)) == 2)
            for name, place in (("till", SHOP), ("till", BANK), ("late", SHOP)):
                await client.delete(POLICY_REPORT, name, place)

    run(work())


# --- where a resource breaks a rule

SECRET_POLICY = POLICY.replace("need-team", "need-size").replace(
    "kinds: [ConfigMap], names: [bare, good]", "kinds: [Secret], names: [key]"
).replace('{metadata: {labels: {team: "?*"}}}', '{data: {password: "?"}}')  # fmt: skip


def failing(policy: str, kind: str, name: str, namespace: str) -> ReportedResult:
    texts = dict.fromkeys(ReportedResult.__struct_fields__[:-1], "")
    known = {"policy": policy, "rule": "team", "status": "fail", "api_version": "v1"}
    about = {"kind": kind, "name": name, "namespace": namespace}
    place = {"cluster": "here", "position": 0, "timestamp": 0}
    return ReportedResult(**(texts | known | about | place))


def test_where_a_resource_breaks_a_rule_is_told_with_the_rights_of_the_viewer(
    filled: Cluster,
) -> None:
    configs = {user: find_config(filled, user) for user in ("admin", "dev")}
    asking = ["admin"]

    async def work() -> None:
        async with follow(configs["admin"], whose=lambda *_: configs[asking[0]]) as state:
            apply_objects(filled, [*yaml.safe_load_all(POLICY), *yaml.safe_load_all(SECRET_POLICY)])
            await until(lambda: state.find_policy("here", "need-size", see()) is not None)

            async def look(user: str, result: ReportedResult) -> Failure | None:
                asking[:] = [user]
                return await state.find_failure(result, see())

            await check(look)

    async def check(look: Callable[[str, ReportedResult], Awaitable[Failure | None]]) -> None:
        bare = failing("need-team", "ConfigMap", "bare", SHOP)
        found = await look("dev", bare)
        assert found is not None
        assert (found.path, found.expected, found.found) == ("/metadata/labels/", {"team": "?*"}, None)  # fmt: skip
        # The page could read this one, and an admin may.
        elsewhere = failing("need-team", "ConfigMap", "bare", BANK)
        assert await look("dev", elsewhere) is None
        assert await look("admin", elsewhere) is not None
        # It was repaired since, or another one has its name now.
        assert await look("admin", failing("need-team", "ConfigMap", "good", SHOP)) is None
        assert await look("admin", msgspec.structs.replace(bare, uid="another")) is None
        secret = await look("admin", failing("need-size", "Secret", "key", SHOP))
        assert secret == Failure("/data/password/", "?", HIDDEN)

    run(work())
