"""Verify the expected CEL results with a real API server, and record its responses.

    python scripts/record_cel.py --kube-apiserver PATH --etcd PATH

Each Kubernetes row of the tables in tests/unit/core/lang/cel becomes a ValidatingAdmissionPolicy
that claims what the row says. All policies stand side by side, each for one user of its own, and a
dry run as that user tells whether the claim holds: refused at creation, allowed, denied, or an
error. Answers go to tests/unit/core/lang/cel/recorded/apiserver.json, where a test compares them
with the tables. Nothing but the loopback interface is used; they end with the script.
"""

import argparse
import json
import secrets
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

TABLES = Path(__file__).parent.parent / "tests" / "unit" / "core" / "lang" / "cel"
TARGET = TABLES / "recorded/apiserver.json"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
THINGS = "/apis/lictor.test/v1/namespaces/team/things"
# Not in a ValidatingAdmissionPolicy: patches belong to mutations, and there are no parameters here.
ABSENT = ("jsonpatch.", "params")


def main() -> None:
    """Read the tables, query, and write the responses."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kube-apiserver", required=True)
    parser.add_argument("--etcd", required=True)
    arguments = parser.parse_args()
    rows = read_rows()
    with run_server(arguments.etcd, arguments.kube_apiserver) as server:
        version = server.call("GET", "/version")[1]["gitVersion"]
        answers = ask(server, rows)
    TARGET.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(answer, ensure_ascii=False) for answer in answers)
    TARGET.write_text(f'{{"version": "{version}", "answers": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{TARGET}: {len(answers)} answers of {version}")


def read_rows() -> list[dict]:
    """The rows that can be verified."""
    tables = [
        yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(TABLES.glob("*.yaml"))
    ]
    rows = [
        row for table in tables if table["environment"] == "kubernetes" for row in table["rows"]
    ]
    return [
        row
        for row in rows
        if not any(word in row["expression"] for word in ABSENT) and make_claim(row) is not None
    ]


def make_claim(row: dict) -> str | None:
    """An expression that is true where the row is right; None for what has no literal."""
    text = row["expression"]
    if "fault" in row:
        return text
    kind = row["type"]
    if "error" in row:
        return (
            f"dyn({text}) == 'something'"
            if not kind.startswith("optional")
            else f"({text}).hasValue()"
        )
    if kind.startswith("optional_type"):
        inner = "hasValue()" if row["value"] is None else "value()"
        return (
            f"!({text}).{inner}"
            if row["value"] is None
            else f"dyn(({text}).{inner}) == {literal(row['value'])}"
        )
    if kind in {"timestamp", "duration"}:
        return f"string({text}) == {literal(row['value'])}"
    if kind == "bytes" or "." in kind or kind.startswith("type") or row["value"] in (float("inf"),):
        return None
    return f"dyn({text}) == {literal(row['value'])}"


def literal(value) -> str:
    """A value as CEL; the parts of lists and maps may be of any type."""
    if isinstance(value, dict):
        return (
            "dyn({" + ", ".join(f"{literal_key(k)}: {literal(v)}" for k, v in value.items()) + "})"
        )
    if isinstance(value, list):
        return "dyn([" + ", ".join(literal(item) for item in value) + "])"
    return f"dyn({json.dumps(value, ensure_ascii=False)})"


def literal_key(key: str) -> str:
    """Keys are texts."""
    return json.dumps(key, ensure_ascii=False)


def ask(server: "Server", rows: list[dict]) -> list[dict]:
    """Create a policy for each row, then send a request as each row's user."""
    set_up(server)
    with ThreadPoolExecutor(4) as pool:
        created = list(pool.map(lambda pair: create_policy(server, *pair), enumerate(rows)))
        wait_until_watched(server, len(rows))
        return list(
            pool.map(lambda i: answer_row(server, i, rows[i], created[i]), range(len(rows)))
        )


def set_up(server: "Server") -> None:
    """A namespace and a kind whose objects may look like anything."""
    server.create(
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    )
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    server.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.lictor.test"},
            "spec": {
                "group": "lictor.test",
                "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
                "versions": [version],
            },
        },
    )
    wait(lambda: server.call("GET", THINGS)[0] == 200, "the new kind")


def create_policy(server: "Server", number: int, row: dict) -> str:
    """Create policy and binding of a row; answers why the server refused, or nothing."""
    return create_claim(server, f"row-{number}", make_claim(row) or "")


def create_claim(server: "Server", name: str, claim: str) -> str:
    """One policy with one claim, for the user of the same name."""
    rule = {
        "apiGroups": ["lictor.test"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["things"],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [
            {"name": "user", "expression": f"request.userInfo.username == '{name}'"}
        ],
        "validations": [{"expression": claim, "message": "the claim does not hold"}],
    }
    made = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    status, answer = server.call(
        "POST", POLICIES, {**made, "kind": "ValidatingAdmissionPolicy", "spec": spec}
    )
    if status != 201:
        return str(answer.get("message", answer))
    binding = {"policyName": name, "validationActions": ["Deny"]}
    server.create(BINDINGS, {**made, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    return ""


def wait_until_watched(server: "Server", count: int) -> None:
    """The last policy of all denies: once it does, the server knows those before it."""
    create_claim(server, "sentinel", "false")
    wait(lambda: server.dry_run("sentinel")[0] != 201, "the policies", seconds=120)
    # Policies are compiled in no particular order.
    time.sleep(5 + count / 100)


def answer_row(server: "Server", number: int, row: dict, refused: str) -> dict:
    """What the server makes of one row."""
    answer = {"expression": row["expression"], "claim": make_claim(row)}
    if refused:
        return {**answer, "policy": "refused", "message": refused[:400]}
    status, body = server.dry_run(f"row-{number}")
    message = "" if status == 201 else str(body.get("message", body))
    verdict = (
        "allowed" if status == 201 else "error" if "resulted in error" in message else "denied"
    )
    return {
        **answer,
        "policy": "accepted",
        "request": verdict,
        **({"message": message[:400]} if message else {}),
    }


def make_thing() -> dict:
    """The object of the tables, as one of the new kind."""
    source = (TABLES / "test_cel_tables.py").read_text(encoding="utf-8")
    given = yaml.safe_load(source.partition('yaml.safe_load("""')[2].partition('""")')[0])
    thing = {**given["object"], "apiVersion": "lictor.test/v1", "kind": "Thing"}
    thing["metadata"] = {k: v for k, v in thing["metadata"].items() if k != "creationTimestamp"}
    return thing


class Server:
    """An API server on the loopback interface, and how to talk to it."""

    def __init__(self, port: int, token: str) -> None:
        self.base = f"https://127.0.0.1:{port}"
        self.token = token
        # The server makes its certificate itself when it starts.
        self.context = ssl._create_unverified_context()  # noqa: SLF001
        self.thing = make_thing()

    def call(
        self, method: str, path: str, body: dict | None = None, user: str = ""
    ) -> tuple[int, dict]:
        """One request; the answer's code and its JSON."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if user:
            headers |= {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=60) as response:
                return response.status, read_json(response.read())
        except urllib.error.HTTPError as error:
            return error.code, read_json(error.read())

    def create(self, path: str, body: dict) -> None:
        """Create what must be possible to create."""
        status, answer = self.call("POST", path, body)
        if status != 201:
            raise SystemExit(f"{path}: {status} {answer}")

    def dry_run(self, user: str) -> tuple[int, dict]:
        """Create the thing as this user, but do not keep it."""
        return self.call("POST", f"{THINGS}?dryRun=All", self.thing, user)


def read_json(data: bytes) -> dict:
    """JSON, or the plain response."""
    try:
        return json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace")}


@contextmanager
def run_server(etcd: str, kube_apiserver: str):
    """etcd and an API server for as long as the block runs."""
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "wb") as log:
        started = []
        try:
            ports = [find_port() for _ in range(3)]
            started.append(start_etcd(etcd, folder, ports, log))
            started.append(start_apiserver(kube_apiserver, folder, ports, token, log))
            server = Server(ports[2], token)
            try:
                wait(lambda: is_ready(server), "the API server", seconds=180)
            except SystemExit:
                print(Path(f"{folder}/log").read_text(errors="replace")[-4000:])
                raise
            yield server
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(30)


def start_etcd(etcd: str, folder: str, ports: list[int], log) -> subprocess.Popen:
    """etcd on two ports of the loopback interface."""
    client, peer = (f"http://127.0.0.1:{port}" for port in ports[:2])
    command = [
        etcd,
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]
    return subprocess.Popen(command, stdout=log, stderr=log)


def start_apiserver(
    binary: str, folder: str, ports: list[int], token: str, log
) -> subprocess.Popen:
    """An API server that knows one token."""
    Path(f"{folder}/tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    key = f"{folder}/key.pem"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    command = [
        binary,
        f"--etcd-servers=http://127.0.0.1:{ports[0]}",
        f"--secure-port={ports[2]}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--cert-dir={folder}/certificates",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
    ]
    return subprocess.Popen(command, stdout=log, stderr=log)


def is_ready(server: Server) -> bool:
    """Whether it answers."""
    try:
        return server.call("GET", "/readyz")[0] == 200
    except OSError:
        return False


def wait(holds, what: str, seconds: int = 60) -> None:
    """Repeat until it holds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.5)


def find_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
