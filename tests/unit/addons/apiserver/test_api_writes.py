"""Creating, replacing, patching and deleting through HTTP, in Kubernetes' words."""

import asyncio
import json

import pytest
from embedded_site import CONFIG_MAPS, Site, config_map, run_on_site

from lictor.core.raw import Json, JsonObject

PODS = "/api/v1/namespaces/default/pods"
X = f"{CONFIG_MAPS}/x"


def pod(name: str, **spec: Json) -> JsonObject:
    containers = [{"name": "c", "image": "nginx"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


def test_a_created_object_has_what_the_server_gives_it() -> None:
    async def work(site: Site) -> None:
        sent = config_map("x", data={"a": "b"})
        sent["metadata"] |= {
            "uid": "mine",
            "creationTimestamp": "2001-01-01T00:00:00Z",
            "generation": 7,
        }
        created = await site.create(CONFIG_MAPS, sent)
        metadata = created["metadata"]
        assert metadata["namespace"] == "default"
        assert len(metadata["uid"]) == 36
        assert metadata["creationTimestamp"] > "2020"
        assert int(metadata["resourceVersion"]) > 0
        assert "generation" not in metadata
        assert (await site.get(X)).json == created
        described = await site.create(PODS, {**pod("p"), "status": {"phase": "Running"}})
        assert described["metadata"]["generation"] == 1
        assert described["status"]["phase"] == "Pending"

    run_on_site(work)


def test_names_are_made() -> None:
    async def work(site: Site) -> None:
        names = set()
        for _ in range(20):
            document = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "x-"}}
            names.add((await site.create(CONFIG_MAPS, document))["metadata"]["name"])
        assert len(names) == 20
        assert all(name.startswith("x-") and len(name) == 7 for name in names)

    run_on_site(work)


REFUSED: list[tuple[str, str, str, Json, int, str, str]] = [
    # id, method, path, body, code, reason, part of the message
    ("exists", "POST", CONFIG_MAPS, config_map("x"), 409, "AlreadyExists", 'configmaps "x" already exists'),
    ("no name", "POST", CONFIG_MAPS, {"metadata": {}}, 422, "Invalid", "name or generateName is required"),
    ("other namespace", "POST", CONFIG_MAPS, {"metadata": {"name": "y", "namespace": "z"}}, 400, "BadRequest",
     "the namespace of the provided object does not match the namespace sent on the request"),
    ("other version", "POST", CONFIG_MAPS, {"apiVersion": "v2", "metadata": {"name": "y"}}, 400, "BadRequest",
     'ConfigMap in version "v2" cannot be handled as a ConfigMap'),
    ("other kind", "POST", CONFIG_MAPS, {"kind": "Pod", "metadata": {"name": "y"}}, 400, "BadRequest",
     "Pod in version"),
    ("with version", "POST", CONFIG_MAPS, {"metadata": {"name": "y", "resourceVersion": "1"}}, 500, "",
     "resourceVersion should not be set on objects to be created"),
    ("no object", "POST", CONFIG_MAPS, [1], 400, "BadRequest", "(must be of type ConfigMap)"),
    ("nothing", "POST", CONFIG_MAPS, b"null", 422, "Invalid", "name or generateName is required"),
    ("wrong labels", "POST", CONFIG_MAPS, {"metadata": {"name": "y", "labels": {"a": 1}}}, 400, "BadRequest",
     "cannot be handled as a ConfigMap"),
    ("no JSON", "POST", CONFIG_MAPS, b"{", 400, "BadRequest", "not valid JSON"),
    ("too deep", "POST", CONFIG_MAPS, b'{"a":' * 500 + b"1" + b"}" * 500, 400, "BadRequest", "nested too deeply"),
    ("missing", "GET", f"{CONFIG_MAPS}/none", None, 404, "NotFound", 'configmaps "none" not found'),
    ("missing with group", "GET", "/apis/apps/v1/namespaces/default/deployments/none", None, 404, "NotFound",
     'deployments.apps "none" not found'),
    ("no such kind", "GET", "/apis/apps/v1/nonsense", None, 404, "NotFound",
     "the server could not find the requested resource"),
    ("no such part", "GET", f"{X}/status", None, 404, "NotFound", "could not find"),
    ("no such method", "POST", X, config_map("x"), 405, "MethodNotAllowed", "does not allow this method"),
    ("cluster-wide creation", "POST", "/api/v1/configmaps", config_map("y"), 405, "MethodNotAllowed", ""),
    ("replace missing", "PUT", f"{CONFIG_MAPS}/none", config_map("none"), 404, "NotFound", "not found"),
    ("replace under another name", "PUT", X, config_map("y"), 400, "BadRequest",
     "the name of the object (y) does not match the name on the URL (x)"),
    ("replace an old version", "PUT", X, {"metadata": {"name": "x", "resourceVersion": "1"}}, 409, "Conflict",
     'Operation cannot be fulfilled on configmaps "x": the object has been modified; please apply your '
     "changes to the latest version and try again"),
    ("replace another", "PUT", X, {"metadata": {"name": "x", "uid": "other"}}, 409, "Conflict",
     "Precondition failed: UID in precondition: other"),
    ("delete missing", "DELETE", f"{CONFIG_MAPS}/none", None, 404, "NotFound", "not found"),
    ("delete another", "DELETE", X, {"preconditions": {"uid": "other"}}, 409, "Conflict", "the UID in the precondition (other)"),
    ("delete somehow", "DELETE", X, {"propagationPolicy": "Quickly"}, 422, "Invalid", "Unsupported value"),
    ("dry somehow", "POST", f"{CONFIG_MAPS}?dryRun=Some", config_map("y"), 422, "Invalid",
     'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
    ("in namespace nowhere", "POST", "/api/v1/namespaces/nowhere/configmaps", config_map("y"), 404, "NotFound",
     'namespaces "nowhere" not found'),
]  # fmt: skip


@pytest.fixture(scope="module")
def refusals() -> dict[str, tuple[int, JsonObject]]:
    """All of them from one server, which must not mind."""
    found = {}

    async def work(site: Site) -> None:
        await site.create(CONFIG_MAPS, config_map("x"))
        for name, method, path, body, *_ in REFUSED:
            answer = await site.ask(method, path, body)
            found[name] = (answer.status, answer.json)
        assert (await site.get(X)).status == 200

    run_on_site(work)
    return found


@pytest.mark.parametrize(
    ("name", "code", "reason", "part"),
    [(r[0], *r[4:]) for r in REFUSED],
    ids=[r[0] for r in REFUSED],
)
def test_refusals(
    refusals: dict[str, tuple[int, JsonObject]], name: str, code: int, reason: str, part: str
) -> None:
    status, body = refusals[name]
    assert (status, body["code"], body["kind"], body["status"]) == (code, code, "Status", "Failure")
    assert body.get("reason", "") == reason
    assert part in body["message"]


def test_bodies_in_other_languages() -> None:
    async def work(site: Site) -> None:
        yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: z}\ndata: {a: b}\n"
        answer = await site.ask("POST", CONFIG_MAPS, yaml, "application/yaml")
        assert answer.json["data"] == {"a": "b"}
        answer = await site.ask("POST", CONFIG_MAPS, b"", "text/html")
        assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")
        answer = await site.get(CONFIG_MAPS, accept="application/vnd.kubernetes.protobuf")
        assert (answer.status, answer.json["reason"]) == (406, "NotAcceptable")

    run_on_site(work)


def test_fields_that_a_kind_does_not_have() -> None:
    document = {**config_map("y"), "nonsense": 1}

    async def work(site: Site) -> None:
        strict = await site.ask("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", document)
        assert strict.status == 400
        assert strict.message == (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
            'strict decoding error: unknown field "nonsense"'
        )
        ignoring = await site.ask(
            "POST", f"{CONFIG_MAPS}?fieldValidation=Ignore&dryRun=All", document
        )
        assert "warning" not in ignoring.headers
        warned = await site.ask("POST", CONFIG_MAPS, document)
        assert warned.headers["warning"] == '299 - "unknown field \\"nonsense\\""'
        assert "nonsense" not in warned.json
        twice = b'{"metadata":{"name":"z"},"data":{"a":"b"},"data":{"a":"c"}}'
        answer = await site.ask("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", twice)
        assert 'duplicate field "data"' in answer.message

    run_on_site(work)


def test_dry_runs_change_nothing() -> None:
    async def work(site: Site) -> None:
        answer = await site.ask("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("y"))
        assert answer.status == 201
        assert "resourceVersion" not in answer.json["metadata"]
        assert (await site.get(f"{CONFIG_MAPS}/y")).status == 404
        created = await site.create(CONFIG_MAPS, config_map("x"))
        assert (await site.ask("POST", f"{CONFIG_MAPS}?dryRun=All", config_map("x"))).status == 409
        patched = await site.patch(f"{X}?dryRun=All", {"data": {"a": "b"}})
        assert patched.json["data"] == {"a": "b"}
        assert (await site.ask("DELETE", f"{X}?dryRun=All")).status == 200
        assert (await site.get(X)).json == created

    run_on_site(work)


def test_a_change_that_changes_nothing_makes_no_version() -> None:
    async def work(site: Site) -> None:
        created = await site.create(CONFIG_MAPS, config_map("x", data={"a": "b"}))
        assert (await site.patch(X, {"data": {"a": "b"}})).json == created
        assert (await site.ask("PUT", X, created)).json == created
        changed = await site.patch(X, {"data": {"a": "c"}})
        assert int(changed.json["metadata"]["resourceVersion"]) > int(
            created["metadata"]["resourceVersion"]
        )

    run_on_site(work)


def test_spec_and_status_are_kept_apart() -> None:
    async def work(site: Site) -> None:
        await site.create(PODS, pod("p"))
        path = f"{PODS}/p"
        changed = await site.patch(
            path, {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Failed"}}
        )
        assert changed.json["status"]["phase"] == "Pending"
        # Who reports on a built-in object may label it, but not change what it shall be.
        patch = {
            "metadata": {"labels": {"a": "z"}},
            "spec": {"x": 1},
            "status": {"phase": "Running"},
        }
        status = await site.patch(f"{path}/status", patch)
        assert status.json["status"]["phase"] == "Running"
        assert status.json["metadata"]["labels"] == {"a": "z"}
        assert status.json["spec"] == changed.json["spec"]
        assert status.json["metadata"]["generation"] == 1

    run_on_site(work)


def test_generations_are_counted() -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]},
        },
    }

    async def work(site: Site) -> None:
        await site.create(deployments, document)
        path = f"{deployments}/d"
        labelled = await site.patch(path, {"metadata": {"labels": {"x": "y"}, "generation": 9}})
        assert labelled.json["metadata"]["generation"] == 1
        scaled = await site.patch(path, {"spec": {"replicas": 3}})
        assert scaled.json["metadata"]["generation"] == 2

    run_on_site(work)


def test_finalizers_hold_an_object() -> None:
    async def work(site: Site) -> None:
        document = config_map("x")
        document["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
        await site.create(CONFIG_MAPS, document)
        deleted = (await site.delete(X)).json
        assert deleted["kind"] == "ConfigMap"
        assert deleted["metadata"]["deletionTimestamp"]
        assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
        # Once more does no harm, and a time cannot be taken back.
        assert (await site.delete(X)).json == deleted
        kept = await site.patch(
            X, {"metadata": {"deletionTimestamp": None, "finalizers": ["example.com/a"]}}
        )
        assert (
            kept.json["metadata"]["deletionTimestamp"] == deleted["metadata"]["deletionTimestamp"]
        )
        more = await site.patch(X, {"metadata": {"finalizers": ["example.com/a", "example.com/z"]}})
        assert more.status == 422
        assert (
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
            'found new finalizers []string{"example.com/z"}' in more.message
        )
        last = await site.patch(X, {"metadata": {"finalizers": None}})
        assert last.status == 200
        assert (await site.get(X)).status == 404

    run_on_site(work)


def test_a_deleted_object_is_told_of() -> None:
    async def work(site: Site) -> None:
        uid = (await site.create(CONFIG_MAPS, config_map("x")))["metadata"]["uid"]
        answer = await site.delete(X)
        assert answer.json["status"] == "Success"
        assert answer.json["details"] == {"name": "x", "kind": "configmaps", "uid": uid}
        await site.create(PODS, pod("p"))
        assert (await site.delete(f"{PODS}/p")).json["kind"] == "Pod"
        assert (await site.get(f"{PODS}/p")).status == 404

    run_on_site(work)


def test_collections_are_deleted_by_selector() -> None:
    async def work(site: Site) -> None:
        for name, label in (("x", "a"), ("y", "b"), ("z", "a")):
            document = config_map(name)
            document["metadata"]["labels"] = {"l": label}
            await site.create(CONFIG_MAPS, document)
        answer = await site.delete(f"{CONFIG_MAPS}?labelSelector=l%3Da")
        assert [each["metadata"]["name"] for each in answer.json["items"]] == ["x", "z"]
        left = (await site.get(f"{CONFIG_MAPS}?labelSelector=l")).json["items"]
        assert [each["metadata"]["name"] for each in left] == ["y"]

    run_on_site(work)


def test_kinds_that_must_be_replaced_by_version() -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

    async def work(site: Site) -> None:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l"},
            "spec": {},
        }
        # Replacing one that is not there creates it.
        assert (await site.ask("PUT", f"{leases}/l", lease)).status == 201
        answer = await site.ask("PUT", f"{leases}/l", lease)
        assert answer.status == 422
        assert (
            "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            in answer.message
        )
        assert (await site.patch(f"{leases}/l", {"spec": {"holderIdentity": "me"}})).status == 200

    run_on_site(work)


RBAC = "/apis/rbac.authorization.k8s.io/v1"
SERVICES = "/api/v1/namespaces/default/services"


def _service(name: str, **metadata: Json) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, **metadata},
        "spec": {"ports": [{"port": 80}]},
    }


async def _bind(site: Site, user: str, verbs: list[str], *resources: str) -> None:
    rule = {"verbs": verbs, "apiGroups": [""], "resources": list(resources)}
    role = {"metadata": {"name": user}, "rules": [rule]}
    await site.create(f"{RBAC}/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    binding = {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]}
    await site.create(f"{RBAC}/clusterrolebindings", binding)


def test_replacing_what_is_not_there_needs_the_right_to_create() -> None:
    async def work(site: Site) -> None:
        await _bind(site, "updater", ["update"], "services", "services/status")
        await _bind(site, "creator", ["update", "create"], "services")
        path = f"{SERVICES}/new"
        answer = await site.ask("PUT", path, _service("new"), impersonate_user="updater")
        assert answer.status == 403
        assert 'User "updater" cannot create resource "services"' in answer.message
        assert (await site.get(path)).status == 404
        answer = await site.ask("PUT", path, _service("new", uid="7"), impersonate_user="creator")
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        answer = await site.ask("PUT", path, _service("new"), impersonate_user="creator")
        assert answer.status == 201
        for user in ("updater", ""):
            status = f"{SERVICES}/other/status"
            named = {"impersonate_user": user} if user else {}
            answer = await site.ask("PUT", status, _service("other"), **named)
            assert (answer.status, answer.json["reason"]) == (404, "NotFound")

    run_on_site(work)


PATCHES: list[tuple[str, str, Json, int, JsonObject]] = [
    # id, kind, patch, code, data afterwards
    ("merge", "merge-patch+json", {"data": {"b": "2", "a": None}}, 200, {"b": "2"}),
    ("strategic", "strategic-merge-patch+json", {"data": {"b": "2", "a": None}}, 200, {"b": "2"}),
    ("JSON", "json-patch+json", [{"op": "add", "path": "/data/b", "value": "2"}], 200, {"a": "1", "b": "2"}),
    ("failed test", "json-patch+json", [{"op": "test", "path": "/data/a", "value": "9"}], 422, {"a": "1"}),
    ("nowhere", "json-patch+json", [{"op": "remove", "path": "/data/z"}], 422, {"a": "1"}),
    ("no list", "json-patch+json", {"op": "test"}, 400, {"a": "1"}),
    ("no object", "merge-patch+json", ["x"], 400, {"a": "1"}),
    ("no patch", "json", {"data": {}}, 415, {"a": "1"}),
    ("wrong type", "merge-patch+json", {"metadata": {"labels": 1}}, 422, {"a": "1"}),
    ("another kind", "merge-patch+json", {"kind": "Pod"}, 422, {"a": "1"}),
    ("another object", "merge-patch+json", {"metadata": {"uid": "z"}}, 422, {"a": "1"}),
    ("all gone", "json-patch+json", [{"op": "replace", "path": "", "value": 1}], 422, {"a": "1"}),
    ("another name", "merge-patch+json", {"metadata": {"name": "y"}}, 400, {"a": "1"}),
    ("an old version", "merge-patch+json", {"metadata": {"resourceVersion": "1"}}, 409, {"a": "1"}),
    ("apply without a manager", "apply-patch+yaml", config_map("x"), 422, {"a": "1"}),
]  # fmt: skip


def test_patches() -> None:
    found = {}

    async def work(site: Site) -> None:
        for name, kind, patch, *_ in PATCHES:
            await site.create(CONFIG_MAPS, config_map("x", data={"a": "1"}))
            answer = await site.patch(X, patch, kind)
            found[name] = (answer.status, (await site.get(X)).json["data"])
            await site.delete(X)

    run_on_site(work)
    assert found == {name: (code, data) for name, _, _, code, data in PATCHES}


def test_apply_creates_and_changes() -> None:
    async def work(site: Site) -> None:
        path = f"{X}?fieldManager=me"
        created = await site.patch(
            path, config_map("x", data={"a": "1", "b": "2"}), "apply-patch+yaml"
        )
        assert created.status == 201
        yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: '3'}\n"
        changed = await site.ask("PATCH", path, yaml, "application/apply-patch+yaml")
        assert (changed.status, changed.json["data"]) == (200, {"a": "3"})
        [entry] = changed.json["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("me", "Apply")
        again = await site.ask("PATCH", path, yaml, "application/apply-patch+yaml")
        assert (
            again.json["metadata"]["resourceVersion"] == changed.json["metadata"]["resourceVersion"]
        )

    run_on_site(work)


def test_many_may_patch_at_once() -> None:
    import asyncio

    async def work(site: Site) -> None:
        await site.create(CONFIG_MAPS, config_map("x"))
        patches = (site.patch(X, {"data": {f"k{number}": "v"}}) for number in range(40))
        answers = await asyncio.gather(*patches)
        assert {answer.status for answer in answers} == {200}
        assert len((await site.get(X)).json["data"]) == 40

    run_on_site(work)


def test_numbers_keep_their_size() -> None:
    async def work(site: Site) -> None:
        text = json.dumps(config_map("x", data={"a": "9" * 40}))
        created = await site.ask("POST", CONFIG_MAPS, text.encode())
        assert created.json["data"] == {"a": "9" * 40}

    run_on_site(work)


def test_an_apply_takes_the_name_of_what_is_there() -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"c": "d"}}
    path = f"{CONFIG_MAPS}/a?fieldManager=x"

    async def work(site: Site) -> None:
        missing = await site.patch(path, applied, "apply-patch+yaml")
        assert (missing.status, "name must be provided" in missing.message) == (400, True)
        await site.create(CONFIG_MAPS, config_map("a", data={"a": "b"}))
        answer = await site.patch(path, applied, "apply-patch+yaml")
        assert (answer.status, answer.json["data"]) == (200, {"a": "b", "c": "d"})

    run_on_site(work)


def test_of_several_that_apply_a_new_object_one_creates_it() -> None:
    """A webhook that does not answer makes each of them wait between its look and its write."""
    configuration: JsonObject = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "slow"},
        "webhooks": [
            {
                "name": "slow.example.com",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Ignore",
                "timeoutSeconds": 1,
                "sideEffects": "None",
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
            }
        ],
    }

    async def work(site: Site) -> None:
        held: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        configuration["webhooks"][0]["clientConfig"] = {"url": f"https://127.0.0.1:{port}/"}
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        await site.create(path, configuration)
        answers = await asyncio.gather(
            *(
                site.patch(
                    f"{X}?fieldManager=m{number}",
                    config_map("x", data={f"k{number}": "v"}),
                    "apply-patch+yaml",
                )
                for number in range(8)
            )
        )
        silent.close()
        for writer in held:
            writer.close()
            await writer.wait_closed()
        assert sorted(answer.status for answer in answers) == [*[200] * 7, 201]
        assert len((await site.get(X)).json["data"]) == 8

    run_on_site(work)
