"""The page on a cluster: everybody signs in, and sees the reports that they may list there.

It runs with the rights that `lictor install --web` gives it, and as its Deployment starts it.
"""

import json
import ssl
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from control_plane.cluster import Cluster
from control_plane.manifests import apply_objects, print_manifests
from control_plane.process import Process

from lictor.install.crds import build_crds

PREFIX = NAMESPACE = "web-page"
RED, BLUE = "web-red", "web-blue"
RBAC = "rbac.authorization.k8s.io"
# How long rights count, and a little more.
TAKEN_AWAY = 40.0
Object = dict[str, Any]


def named(kind: str, name: str, namespace: str = "", **more: Any) -> Object:
    version, _, short = kind.rpartition("/")
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": short, "metadata": metadata, **more}


def report(namespace: str, policy: str, *, message: str = "wrong") -> Object:
    kind = "PolicyReport" if namespace else "ClusterPolicyReport"
    resource = {"apiVersion": "v1", "kind": "Pod" if namespace else "Node", "name": "one"}
    entry = {"policy": policy, "rule": "r", "result": "fail", "message": message}
    return named(
        f"wgpolicyk8s.io/v1alpha2/{kind}",
        f"web-{policy}",
        namespace,
        results=[{**entry, "resources": [{**resource, "namespace": namespace}]}],
    )


def account(name: str) -> Object:
    return named("v1/ServiceAccount", name, NAMESPACE)


def bind(kind: str, name: str, namespace: str = "") -> Object:
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    return named(
        f"{RBAC}/v1/{kind}",
        f"web-{name}",
        namespace,
        roleRef={"apiGroup": RBAC, "kind": "ClusterRole", "name": "web-reader"},
        subjects=[subject],
    )


READER = named(
    f"{RBAC}/v1/ClusterRole",
    "web-reader",
    rules=[
        {
            "apiGroups": ["wgpolicyk8s.io", "openreports.io"],
            "resources": ["policyreports", "clusterpolicyreports", "reports", "clusterreports"],
            "verbs": ["list"],
        }
    ],
)


@dataclass
class Site:
    """The page, and the people of its cluster."""

    cluster: Cluster
    process: Process
    url: str

    def token(self, name: str) -> str:
        return self.cluster.kubectl("create", "token", name, "-n", NAMESPACE).stdout.strip()

    @contextmanager
    def browse(
        self, *, token: str = "", pair: tuple[str, str] | None = None
    ) -> Iterator[httpx2.Client]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair:
            context.load_cert_chain(*pair)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        with httpx2.Client(
            base_url=self.url, verify=context, headers=headers, timeout=30, trust_env=False
        ) as client:
            yield client

    def list_policies(self, token: str) -> set[str]:
        """Policies in the results that a token's owner is given."""
        with self.browse(token=token) as browser:
            answer = browser.get("/results.json")
            assert answer.status_code == 200, answer.text
            return {row["policy"] for row in answer.json() if row["policy"].startswith("p-")}


def page_objects() -> list[Object]:
    words = ("install", f"--prefix={PREFIX}", f"--namespace={NAMESPACE}", "--web", "--skip-crds")
    label = "app.kubernetes.io/component"
    return [
        each
        for each in print_manifests(*words)
        if (each["metadata"].get("labels") or {}).get(label) == "web"
    ]


def find_credentials(cluster: Cluster) -> tuple[str, tuple[str, str]]:
    """Files with the authority of clients, and with the administrator's certificate and key."""
    config = json.loads(cluster.kubeconfig.read_text(encoding="utf-8"))
    [user], [known] = config["users"], config["clusters"]
    found = {
        "web-ca.crt": known["cluster"]["certificate-authority-data"],
        "web-admin.crt": user["user"]["client-certificate-data"],
        "web-admin.key": user["user"]["client-key-data"],
    }
    for name, encoded in found.items():
        Path(cluster.folder, name).write_bytes(b64decode(encoded))
    authority, certificate, key = (str(cluster.folder / name) for name in found)
    return authority, (certificate, key)


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    spaces = [named("v1/Namespace", name) for name in (NAMESPACE, RED, BLUE)]
    apply_objects(cluster, [*spaces, *build_crds(open_reports=False)])
    objects = page_objects()
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    rights = [each for each in objects if each["kind"] not in ("Deployment", "NetworkPolicy")]
    people = [account(name) for name in ("red", "all", "nobody", "leaving")]
    bindings = [
        bind("RoleBinding", "red", RED),
        bind("RoleBinding", "leaving", RED),
        bind("ClusterRoleBinding", "all"),
    ]
    reports = [report(RED, "p-red"), report(BLUE, "p-blue"), report("", "p-cluster")]
    cluster.kubectl("wait", "--for=condition=Established", "crd/policyreports.wgpolicyk8s.io")
    apply_objects(cluster, [*rights, READER, *people, *bindings, *reports])
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    port = cluster.port(8443)
    authority, _ = find_credentials(cluster)
    process = cluster.start_lictor(
        *container["args"],
        f"--kubeconfig={cluster.kubeconfig_for(NAMESPACE, 'web-page-web')}",
        f"--address={cluster.address}",
        f"--port={port}",
        f"--metrics-port={cluster.port(8017)}",
        f"--client-ca={authority}",
    )
    made = Site(cluster, process, f"https://{cluster.address}:{port}")
    with made.browse() as browser:
        wait(lambda: is_ready(browser), process=process)
    yield made
    process.stop()


def is_ready(browser: httpx2.Client) -> bool:
    try:
        return browser.get("/health/readiness").status_code == 200
    except httpx2.HTTPError:
        return False


def wait(test: Callable[[], object], seconds: float = 90, process: Process | None = None) -> None:
    deadline = time.monotonic() + seconds
    while not test():
        assert process is None or process.is_running(), process.read_log()
        assert time.monotonic() < deadline, process.read_log() if process else "too late"
        time.sleep(0.1)


def test_everybody_sees_what_they_may_list(site):
    wait(lambda: site.list_policies(site.token("all")) == {"p-red", "p-blue", "p-cluster"})
    assert site.list_policies(site.token("red")) == {"p-red"}
    assert site.list_policies(site.token("nobody")) == set()


def test_strangers_see_nothing(site):
    with site.browse() as browser:
        answers = [browser.get(path) for path in ("/", "/results", "/results.json", "/live")]
    with site.browse(token="stranger") as browser:
        answers.append(browser.get("/results.json"))
    assert {answer.status_code for answer in answers} == {401}
    assert not any("p-red" in answer.text for answer in answers)


def test_a_browser_signs_in_with_a_token(site):
    with site.browse() as browser:
        form = {"token": site.token("red"), "back": "/results?status=fail"}
        answer = browser.post("/sign-in", data=form, headers={"sec-fetch-site": "same-origin"})
        assert answer.headers["location"] == "/results?status=fail"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-lictor-session=")
        assert cookie.endswith("; Path=/; Secure; HttpOnly; SameSite=Strict")
        shown = browser.get("/results?status=fail")
        assert shown.status_code == 200
        assert "p-red" in shown.text
        assert "p-blue" not in shown.text
        assert "p-blue" not in browser.get(f"/namespace?namespace={BLUE}").text
        browser.post("/sign-out", headers={"sec-fetch-site": "same-origin"})
        assert browser.get("/results").status_code == 401


def test_a_client_certificate_is_taken_as_the_api_server_takes_it(site):
    _, pair = find_credentials(site.cluster)
    with site.browse(pair=pair) as browser:
        assert "p-blue" in browser.get("/results").text


def test_changes_reach_those_whom_they_concern(site):
    token = site.token("red")
    with site.browse(token=token) as browser, browser.stream("GET", "/live") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        apply_objects(site.cluster, [report(BLUE, "p-blue", message="still wrong")])
        wait(lambda: "still wrong" in show(site, site.token("all")))
        apply_objects(site.cluster, [report(RED, "p-red", message="wrong as before")])
        began = time.monotonic()
        events = [line for line in until_event(lines) if line.startswith(("event", "id"))]
        # The change of the other namespace was not told: this is the first.
        assert events == ["event: change", "id: 1"]
        assert time.monotonic() - began < 20
        assert "wrong as before" in show(site, token)


def show(site: Site, token: str) -> str:
    with site.browse(token=token) as browser:
        return browser.get("/results.json").text


def until_event(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith("data"):
            return


def test_boards_come_from_the_cluster(site):
    boards = f"- {{name: reds, title: Reds of all shades, filter: 'namespace={RED}'}}"
    entry = named("v1/ConfigMap", f"{PREFIX}-web-boards", NAMESPACE, data={"boards.yaml": boards})
    apply_objects(site.cluster, [entry])
    with site.browse(token=site.token("nobody")) as browser:
        wait(lambda: "Reds of all shades" in browser.get("/boards").text)


def test_what_was_taken_away_is_gone(site):
    token, lost = site.token("leaving"), site.token("all")
    assert site.list_policies(token) == {"p-red"}
    assert "p-blue" in site.list_policies(lost)
    with site.browse(token=token) as browser, browser.stream("GET", "/live") as stream:
        site.cluster.kubectl("delete", "rolebinding", "web-leaving", "-n", RED)
        site.cluster.kubectl("delete", "serviceaccount", "all", "-n", NAMESPACE)
        wait(lambda: site.list_policies(token) == set(), TAKEN_AWAY)
        apply_objects(site.cluster, [report(RED, "p-red", message="not for them")])
        with site.browse(token=lost) as other:
            wait(lambda: other.get("/results.json").status_code == 401, TAKEN_AWAY)
        # Their page stays open, and hears of nothing.
        assert not any(line.startswith("event: change") for line in read_for(stream, 3.0))


def read_for(stream: httpx2.Response, seconds: float) -> Iterator[str]:
    """The lines that came so far, and that come for so long; beats come more seldom."""
    deadline = time.monotonic() + seconds
    for line in stream.iter_lines():
        yield line
        if time.monotonic() > deadline or line.startswith(": still"):
            return


def test_the_page_may_do_nothing_but_read_and_ask(site):
    user = f"--as=system:serviceaccount:{NAMESPACE}:web-page-web"
    for words in (
        ("list", "secrets", "-A"),
        ("get", "configmaps", "-A"),
        ("list", "pods", "-A"),
        ("create", "policyreports.wgpolicyk8s.io", "-n", RED),
        ("delete", "policyreports.wgpolicyk8s.io", "-n", RED),
        ("create", "clusterpolicies.kyverno.io"),
        ("impersonate", "users"),
    ):
        answer = site.cluster.kubectl("auth", "can-i", *words, user, check=False)
        assert answer.stdout.strip() == "no", words
