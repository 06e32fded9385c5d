"""Whom the API server lets do what: rights to create by PUT, and where credentials may stand.

The embedded server must refuse what a real one refuses.
"""

import socket
import ssl
import time
from urllib.parse import urlsplit

import httpx2
import pytest

NAMESPACE = "rights"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
ROLES = f"{RBAC}/namespaces/{NAMESPACE}/roles"
UPDATER = "rights-updater"
CREATOR = "rights-creator"
RESOURCES = ("services", "leases", "roles")
GROUPS = ("", "coordination.k8s.io", "rbac.authorization.k8s.io")


def grant(client, user, *verbs):
    rules = [
        {"verbs": list(verbs), "apiGroups": list(GROUPS), "resources": list(RESOURCES)},
        {"verbs": ["update"], "apiGroups": [""], "resources": ["services/status"]},
    ]
    client.post(f"{RBAC}/clusterroles", json={"metadata": {"name": user}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    client.post(f"{RBAC}/clusterrolebindings", json=binding)


@pytest.fixture(scope="module")
def client(cluster):
    with cluster.connect() as made:
        made.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}})
        grant(made, UPDATER, "update")
        grant(made, CREATOR, "update", "create")
        yield made


def service(name, **spec):
    body = {"ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


def lease(name):
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**kind, "metadata": {"name": name}, "spec": {}}


def role(name):
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    return {**kind, "metadata": {"name": name}, "rules": []}


def put(client, user, path, body):
    return client.put(path, json=body, headers={"Impersonate-User": user})


@pytest.mark.parametrize(
    ("path", "make"),
    [
        pytest.param(SERVICES, service, id="service"),
        pytest.param(LEASES, lease, id="lease"),
        pytest.param(ROLES, role, id="role"),
    ],
)
def test_replacing_creates_only_for_those_who_may_create(client, path, make):
    refused = put(client, UPDATER, f"{path}/new", make("new"))
    assert refused.status_code == 403, refused.text
    assert f'User "{UPDATER}" cannot create resource' in refused.json()["message"]
    assert client.get(f"{path}/new").status_code == 404
    created = put(client, CREATOR, f"{path}/new", make("new"))
    assert created.status_code == 201, created.text
    uid = {**make("other"), "metadata": {"name": "other", "uid": "7"}}
    assert put(client, CREATOR, f"{path}/other", uid).status_code == 409


@pytest.fixture
def no_load_balancers(client):
    """A policy about Services that are created."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    name = {"metadata": {"name": "rights"}}
    policy = {
        **name,
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "resources": ["services"]}]},
            "validations": [{"expression": "object.spec.?type.orValue('') != 'LoadBalancer'"}],
        },
    }
    binding = {**name, "spec": {"policyName": "rights", "validationActions": ["Deny"]}}
    client.post(f"{ADMISSION}/validatingadmissionpolicies", json=policy)
    client.post(f"{ADMISSION}/validatingadmissionpolicybindings", json=binding)
    probe, deadline = service("probe", type="LoadBalancer"), time.monotonic() + 30
    while client.post(SERVICES, json=probe, params={"dryRun": "All"}).status_code == 201:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    yield
    client.delete(f"{ADMISSION}/validatingadmissionpolicybindings/rights")
    client.delete(f"{ADMISSION}/validatingadmissionpolicies/rights")


@pytest.mark.usefixtures("no_load_balancers")
def test_replacing_is_judged_as_a_creation(client):
    body = service("outside", type="LoadBalancer")
    refused = put(client, CREATOR, f"{SERVICES}/outside", body)
    assert refused.status_code == 422, refused.text
    assert "failed expression" in refused.json()["message"]
    assert client.get(f"{SERVICES}/outside").status_code == 404


@pytest.mark.usefixtures("no_load_balancers")
def test_no_status_creates_its_object(client):
    """A real server lets those do it who may create `services/status`; the embedded one nobody."""
    body = service("hidden", type="LoadBalancer")
    for user in (UPDATER, CREATOR):
        answer = put(client, user, f"{SERVICES}/hidden/status", body)
        assert answer.status_code in (403, 404), answer.text
        assert client.get(f"{SERVICES}/hidden").status_code == 404


def test_credentials_behind_the_body_are_not_heard(cluster, client):
    """Who asks is told by the head of a request; a proxy would not have seen the rest."""
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    client.post(account, json={"metadata": {"name": "robot"}})
    issued = client.post(f"{account}/robot/token", json={"spec": {}}).json()
    token = issued["status"]["token"]
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    with httpx2.Client(base_url=cluster.url, verify=False, trust_env=False) as known:
        words = {"Authorization": f"Bearer {token}"}
        assert known.post(reviews, json={}, headers=words).status_code == 201
    answer = talk(
        cluster.url,
        f"POST {reviews} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
        "transfer-encoding: chunked\r\ntrailer: authorization\r\n\r\n"
        f"2\r\n{{}}\r\n0\r\nauthorization: Bearer {token}\r\n\r\n",
    )
    assert answer.split()[1] in (b"401", b"403"), answer


def talk(url, text):
    """The first line of the answer to what goes over the wire as it is."""
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname) as wire,
    ):
        wire.sendall(text.encode())
        return wire.recv(65536).partition(b"\r\n")[0]
