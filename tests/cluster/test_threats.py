"""What someone could try through lictor or against it, in a real cluster: see docs/explanation/threat-model.md.

The API server of this file shows a client certificate to webhooks that ask for one.
"""

import json
import socket
import ssl
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest
from control_plane.credentials import write_kubeconfig
from control_plane.embedded import EmbeddedCluster
from control_plane.install import Installation, install_lictor
from control_plane.local import LocalCluster
from control_plane.plane import ControlPlane
from load import Object, until

from lictor.http import keys

WORD = "open-sesame"
FLAGS = ("--enablePolicyException=true", "--exceptionNamespace=exceptions")
NAMESPACES = ("red", "blue", "exceptions")
CONFIGURATIONS = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
# Where words of a request could come to lie.
TRACES = (
    "events,updaterequests.kyverno.io,policyreports,clusterpolicyreports,"
    "ephemeralreports,clusterephemeralreports,configmaps"
)
RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {
        "name": "threats:background",
        "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
    },
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["configmaps", "secrets"],
            "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
        }
    ],
}


class KnownPlane(ControlPlane):
    """A control plane whose API server has a certificate for webhooks."""

    def _start(self, name: str, program: str | Path, *flags: str) -> None:
        more = (self._configure_admission(),) if name == "kube-apiserver" else ()
        super()._start(name, program, *flags, *more)

    def _configure_admission(self) -> str:
        user = self._authority.sign_client("webhook-caller", "")
        authority = self._authority.pair.certificate
        kubeconfig = write_kubeconfig(
            self.folder / "webhooks.kubeconfig", server=self.url, authority=authority, user=user
        )
        # Entries are found by the host of the webhook; a star stands for all.
        content = json.loads(kubeconfig.read_text(encoding="utf-8"))
        content["users"][0]["name"] = "*"
        kubeconfig.write_text(json.dumps(content), encoding="utf-8")
        plugins = [
            {
                "name": name,
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "WebhookAdmissionConfiguration",
                    "kubeConfigFile": str(kubeconfig),
                },
            }
            for name in ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
        ]
        file = self.folder / "admission.json"
        body = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
        file.write_text(json.dumps({**body, "plugins": plugins}), encoding="utf-8")
        return f"--admission-control-config-file={file}"

    @property
    def client_authority(self) -> Path:
        """Who signs the certificates of clients."""
        return self._authority.pair.certificate


@dataclass
class Site:
    """The cluster of this file and lictor in it."""

    plane: KnownPlane | EmbeddedCluster
    lictor: Installation

    def create(self, *objects: Object) -> None:
        body = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.plane.kubectl("create", "-f", "-", stdin=json.dumps(body))

    def try_to(self, word: str, body: Object) -> tuple[bool, str]:
        done = self.plane.kubectl(word, "-f", "-", stdin=json.dumps(body), check=False)
        return done.returncode == 0, done.stdout + done.stderr

    def get(self, *words: str) -> Object:
        found: Object = json.loads(self.plane.kubectl("get", *words, "-o", "json").stdout)
        return found

    @contextmanager
    def rules(self, *policies: Object) -> Iterator[None]:
        """Policies that are enforced while the block runs."""
        names = [f"cpol/{each['metadata']['name']}" for each in policies]
        self.create(*policies)
        try:
            self.await_ready(*names)
            yield
        finally:
            self.plane.kubectl("delete", *names)

    def await_ready(self, *policies: str) -> None:
        self.plane.kubectl("wait", "--for=condition=Ready", *policies, "--timeout=60s")

    def logs(self) -> str:
        running = (*self.lictor.replicas, *self.lictor.controllers)
        return "".join(replica.process.read_log(10**8) for replica in running)

    def secret(self, which: str) -> Object:
        name = f"lictor-svc.lictor.svc.lictor-tls-{which}"
        return self.get("secret", name, "-n", self.lictor.namespace)

    def bundles(self) -> set[str]:
        """The authorities that webhooks trust."""
        return {
            webhook["clientConfig"].get("caBundle", "")
            for each in self.get(CONFIGURATIONS)["items"]
            for webhook in each.get("webhooks") or ()
        }

    def post(self, path: str, review: Object) -> httpx2.Response:
        """A review that does not come from the API server."""
        port = self.lictor.replicas[0].port
        url = f"https://{self.plane.address}:{port}{path}"
        with httpx2.Client(verify=False, timeout=20, trust_env=False) as client:
            return client.post(url, json=review)


@pytest.fixture(scope="module")
def site(open_cluster: Callable[..., LocalCluster], request: pytest.FixtureRequest):
    if open_cluster is not EmbeddedCluster:
        open_cluster = partial(KnownPlane, request.getfixturevalue("programs"))
    with open_cluster() as plane:
        lictor = install_lictor(plane, flags=FLAGS)
        made = Site(plane, lictor)
        made.create(RIGHTS, *(namespace(name) for name in NAMESPACES))
        yield made


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(name: str, inside: str, labels: dict[str, str] | None = None, **data: str) -> Object:
    metadata = {"name": name, "namespace": inside, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def policy(name: str, body: Object, *, where: str = "", kinds: tuple[str, ...] = ("ConfigMap",)):
    """A ClusterPolicy about objects in red, or a Policy of a namespace."""
    resources: Object = {"kinds": list(kinds)}
    if not where:
        resources["namespaces"] = ["red"]
    rule = {"name": "rule", "match": {"any": [{"resources": resources}]}, **body}
    metadata = {"name": name, **({"namespace": where} if where else {})}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if where else "ClusterPolicy",
        "metadata": metadata,
        "spec": {"failurePolicy": "Fail", "rules": [rule]},
    }


def refuse(message: str, key: str = "{{ request.object.data.refuse || '' }}") -> Object:
    condition = {"key": key, "operator": "NotEquals", "value": ""}
    deny = {"conditions": {"any": [condition]}}
    return {"validate": {"failureAction": "Enforce", "message": message, "deny": deny}}


# --- policies that reach out


@pytest.fixture(scope="module")
def listener(site: Site) -> Iterator[socket.socket]:
    """A service inside that nobody should reach."""
    plane = site.plane
    host = str(ip_address(plane.address) - 1) if plane.routes_services else "127.0.0.1"
    with socket.create_server((host, 0)) as server:
        server.settimeout(0.5)
        yield server


def test_a_policy_of_a_namespace_reaches_nothing_outside(
    site: Site, listener: socket.socket
) -> None:
    site.create(config_map("vault", "blue", word=WORD), config_map("vault", "red", word="tomato"))
    path = "/api/v1/namespaces/{{ request.object.data.where }}/configmaps/vault"
    host, port = listener.getsockname()
    ways: dict[str, Object] = {
        "by-path": {"apiCall": {"urlPath": path}},
        "by-name": {"configMap": {"name": "vault", "namespace": "{{ request.object.data.where }}"}},
        "by-call": {"apiCall": {"method": "GET", "service": {"url": f"http://{host}:{port}/"}}},
    }
    for name, way in ways.items():
        body = refuse("found {{ found.data.word }}", "{{ found.data.word }}")
        made = policy(name, {"context": [{"name": "found", **way}], **body}, where="red")
        site.create(made)
        site.await_ready(f"policy/{name}", "-n", "red")
        for where, said in (("red", "found tomato"), ("blue", "namespace")):
            done, text = site.try_to("create", config_map("any", "red", where=where))
            assert not done
            assert WORD not in text
            assert said in text or name == "by-call"
        site.plane.kubectl("delete", "policy", name, "-n", "red")
    with pytest.raises(TimeoutError):
        listener.accept()
    assert WORD not in site.logs()


# --- secrets


def test_contents_of_secrets_leave_no_traces(site: Site) -> None:
    target = {"apiVersion": "v1", "kind": "ConfigMap", "name": "copy", "namespace": "red"}
    pattern = {"metadata": {"labels": {"owner": "?*"}}, "data": {"word": "x*"}}
    rules: dict[str, Object] = {
        "audits": {"validate": {"failureAction": "Audit", "message": "bad", "pattern": pattern}},
        "changes": {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}},
        "spreads": {
            "mutate": {
                "targets": [target],
                "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}},
            }
        },
        "makes": {"generate": {**target, "synchronize": True, "data": {"data": {"made": "yes"}}}},
    }
    until(lambda: _may_write(site), "rights of the background")
    kubectl = site.plane.kubectl
    word = "swordfish"
    encoded = b64encode(word.encode()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "vault", "namespace": "red"},
        "data": {"word": encoded},
    }
    with site.rules(*(policy(name, body, kinds=("Secret",)) for name, body in rules.items())):
        kubectl("apply", "-f", "-", stdin=json.dumps(secret))
        more = {**secret, "data": {"word": encoded, "b": ""}}
        kubectl("apply", "-f", "-", stdin=json.dumps(more))
        kubectl("delete", "secret", "vault", "-n", "red")
        # Nobody works on them here, so they stay.
        updates = until_found(site, "updaterequests.kyverno.io", 4)
        until_found(site, "events.v1.", 1)
    shown = json.dumps([updates, site.get(TRACES, "-A")]) + site.logs()
    for text in (word, encoded):
        assert text not in shown
    kubectl("delete", "updaterequests.kyverno.io", "--all", "-n", site.lictor.namespace)


def _may_write(site: Site) -> bool:
    user = "system:serviceaccount:lictor:lictor-background-controller"
    done = site.plane.kubectl("auth", "can-i", "create", "secrets", "--as", user, check=False)
    return done.stdout.strip() == "yes"


def until_found(site: Site, kind: str, count: int) -> list[Object]:
    """Until there are so many of them."""
    found: list[Object] = []

    def is_so() -> bool:
        found[:] = site.get(kind, "-A")["items"]
        return len(found) >= count

    until(is_so, f"{count} {kind}", 30)
    return found


# --- reviews that the API server did not send


def forge(kind: str, name: str, where: str, **data: str) -> Object:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": f"{kind.lower()}s"},
            "operation": "CREATE",
            "name": name,
            "namespace": where,
            "userInfo": {"username": "system:admin", "groups": ["system:masters"]},
            "object": config_map(name, where, **data),
        },
    }


def test_a_forged_review_makes_nothing(site: Site) -> None:
    target = {"apiVersion": "v1", "kind": "ConfigMap", "name": "made-{{ request.name }}"}
    made = {"generate": {**target, "namespace": "red", "data": {"data": {"a": "b"}}}}
    with site.rules(policy("makes", made)):
        site.lictor.start_controller("background-controller")
        # One that is true, so that we know that the background works.
        site.create(config_map("true", "red"))
        answer = site.post("/validate/fail", forge("ConfigMap", "forged", "red"))
        assert answer.json()["response"]["allowed"]
        until(lambda: "made-true" in str(site.get("configmaps", "-n", "red")), "what is true", 60)
        until(lambda: not site.get("updaterequests.kyverno.io", "-A")["items"], "all is done", 60)
        names = [each["metadata"]["name"] for each in site.get("configmaps", "-n", "red")["items"]]
        assert "made-true" in names
        assert "made-forged" not in names
        assert "forged" not in names


# --- people who would be left alone


def test_labels_of_ours_free_nobody(site: Site) -> None:
    with site.rules(policy("strict", refuse("not here"))):
        for label in (
            "app.kubernetes.io/managed-by",
            "webhook.kyverno.io/managed-by",
            "cert.kyverno.io/managed-by",
            "app.kubernetes.io/part-of",
        ):
            labels = {label: "kyverno"}
            done, text = site.try_to("create", config_map("x", "red", labels, refuse="yes"))
            assert not done
            assert "not here" in text


def test_an_exception_counts_where_it_may_stand(site: Site) -> None:
    with site.rules(policy("strict", refuse("not here"))):
        bad = config_map("excepted", "red", refuse="yes")
        exception: Object = {
            "apiVersion": "kyverno.io/v2",
            "kind": "PolicyException",
            "metadata": {"name": "mine", "namespace": "red"},
            "spec": {
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "exceptions": [{"policyName": "strict", "ruleNames": ["rule"]}],
            },
        }
        _, said = site.try_to("create", exception)
        assert "namespace must match" in said, "the author is told"
        time.sleep(2)
        done, text = site.try_to("create", bad)
        assert not done
        assert "not here" in text
        exception["metadata"]["namespace"] = "exceptions"
        site.create(exception)
        until(lambda: site.try_to("create", bad)[0], "an exception that counts", 20)
        site.plane.kubectl("delete", "policyexceptions.kyverno.io", "--all", "-A")


def test_webhooks_that_someone_weakens_are_put_right(site: Site) -> None:
    with site.rules(policy("strict", refuse("not here"))):
        name = "lictor-resource-validating-webhook-cfg"
        weak = json.dumps(
            [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
        )
        words = ("patch", "validatingwebhookconfiguration", name, "--type=json", "-p", weak)
        site.plane.kubectl(*words)

        def is_right() -> bool:
            (webhook,) = site.get("validatingwebhookconfiguration", name)["webhooks"]
            return bool(webhook["failurePolicy"] == "Fail")

        took = until(is_right, "the webhook is as it was", 20)
        assert took < 30


# --- keys


def is_refused(client: httpx2.Client, path: str) -> bool:
    """By a status, or before anything is said at all."""
    try:
        return client.get(path).status_code in (401, 403)
    except httpx2.TransportError:
        return True


def test_a_stolen_serving_key(site: Site, tmp_path: Path) -> None:
    stolen = site.secret("pair")["data"]
    file = tmp_path / "stolen.pem"
    file.write_bytes(b64decode(stolen["tls.crt"]) + b"\n" + b64decode(stolen["tls.key"]))
    (leaf,) = keys.read_certificates(b64decode(stolen["tls.crt"]).decode())
    (old,) = keys.read_certificates(b64decode(site.secret("ca")["data"]["tls.crt"]).decode())
    # It makes nobody a user of the API server.
    context = ssl.create_default_context(cafile=str(site.plane.client_authority))
    context.load_cert_chain(file)
    with httpx2.Client(base_url=site.plane.url, verify=context, trust_env=False) as thief:
        assert is_refused(thief, "/api/v1/namespaces/lictor/secrets")
    # And when both Secrets are deleted, no webhook trusts it any more.
    names = [site.secret(which)["metadata"]["name"] for which in ("ca", "pair")]
    site.plane.kubectl("delete", "secret", *names, "-n", site.lictor.namespace)

    def is_new() -> bool:
        found = site.bundles()
        (bundle,) = found if len(found) == 1 else ("",)
        trusted = keys.read_certificates(b64decode(bundle).decode())
        return bool(trusted) and old not in trusted

    took = until(is_new, "webhooks that trust another authority", 30)
    (bundle,) = site.bundles()
    trusted = keys.read_certificates(b64decode(bundle).decode())
    assert not any(keys.is_issued_by(leaf, each) for each in trusted)
    assert took < 30
    with site.rules(policy("strict", refuse("not here"))):
        bad = config_map("x", "red", refuse="yes")
        until(lambda: "not here" in site.try_to("create", bad)[1], "we are heard again", 30)


def test_only_the_api_server_is_heard_where_clients_are_known(site: Site) -> None:
    if not isinstance(site.plane, KnownPlane):
        pytest.skip(
            "the embedded API server shows webhooks no certificate: docs/guides/local-cluster.md"
        )
    flags = (*FLAGS, f"--clientCAFile={site.plane.client_authority}")
    site.lictor.controllers[:] = []
    site.lictor.restart(flags)
    with site.rules(policy("strict", refuse("not here"))):
        answer = site.post("/validate/fail", forge("ConfigMap", "forged", "red"))
        assert (answer.status_code, answer.text) == (401, "a client certificate is required\n")
        done, text = site.try_to("create", config_map("y", "red", refuse="yes"))
        assert not done
        assert "not here" in text
        assert site.try_to("create", config_map("y", "red"))[0]
