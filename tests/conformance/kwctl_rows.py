"""Runs kwctl's command lines with lictor, one after the other in one folder, and compares."""

import base64
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from kubewarden_guests import CORPUS, Guests
from kwctl_services import ApiServer, Registry, Signer, WebServer, make_authority, serve
from listed_differences import Listed

from lictor.cli.exit_codes import run

Row = Mapping[str, Any]

# Keys that the corpus was made with; ours take their places.
_SIGNER_KEY, _OTHER_KEY = "IBcdCTUcc92t7FFCbl8Eg6hWQ7WG", "LBBbPPexHjH7LaRbgFRJs7vMJbBJ"
_PEM = re.compile(r"-----BEGIN PUBLIC KEY-----\n(?:.*\n)+?\s*-----END PUBLIC KEY-----")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# The manifest of `demo`, and the module itself, as the corpus has them.
_DEMO_MANIFEST = "a409c529c1954bae25dca890424e663db4ea8a03773257094e5746998f633773"
_DEMO_MODULE = "da90ceb25d1c"
_UNKNOWN_PLURAL = "this-is-the-plural-name"
_LISTED = "Kubewarden: kwctl"
_INTERNAL = 500
_UNFORESEEN = "internal error"
_BENCH = re.compile(r"<\w+>|[\d.]+(?:ns|µs|ms|s)²?|\b[\d.]+\b|\s+")
# Sentences, which may be worded otherwise, and what follows from them.
_PROSE = ("The policy ", "To avoid ", "Look at ", "Cannot determine", "Sigstore", "Digest:", "―")
_POOR = "rules: []\nmutating: false\nannotations:\n  io.kubewarden.policy.title: poor\n"


@dataclass(frozen=True)
class Difference:
    """A row on which lictor and kwctl do not do the same."""

    row: str
    why: str
    is_listed: bool

    def __str__(self) -> str:
        return f"{self.row}: {self.why}"


@dataclass(frozen=True)
class Comparison:
    """How many rows there are, those that differ, and those that cannot be run here."""

    total: int
    differences: tuple[Difference, ...]
    skipped: tuple[str, ...]
    # Rows that are listed as different, and are not.
    stale: tuple[str, ...]

    @property
    def unlisted(self) -> list[Difference]:
        return [each for each in self.differences if not each.is_listed]

    @property
    def rate(self) -> float:
        return 1 - len(self.unlisted) / max(1, self.total)


@dataclass(frozen=True)
class Outcome:
    """What a command line of ours did."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Scene:
    """The folder that the rows are run in, and the services that they speak to."""

    folder: Path
    hosts: Mapping[str, str]
    registry: Registry
    signer: Signer
    other: Signer
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def translate(self, text: str) -> str:
        """A text of the corpus with our addresses, keys and digests in it."""
        for name, address in self.hosts.items():
            text = text.replace(name, address)
        text = text.replace("$PWD", str(self.folder)).replace("$HOME", str(self.folder / "home"))
        text = _PEM.sub(self._replace_key, text)
        return self._translate_digests(text)

    def _replace_key(self, found: re.Match[str]) -> str:
        signer = self.signer if _SIGNER_KEY in found[0] else self.other
        assert signer is self.signer or _OTHER_KEY in found[0]
        return signer.public.strip().replace("\n", "\n        ")

    def _translate_digests(self, text: str) -> str:
        pushed = self.outcomes.get("push-ok")
        if pushed and (found := _DIGEST.search(pushed.stdout)):
            text = text.replace(f"sha256:{_DEMO_MANIFEST}", found[0])
        if (self.folder / "demo.wasm").exists() and _DEMO_MODULE[:8] in text:
            from hashlib import sha256

            own = sha256((self.folder / "demo.wasm").read_bytes()).hexdigest()
            text = text.replace(_DEMO_MODULE, own[:12]).replace(_DEMO_MODULE[:8], own[:8])
        return text

    def run(self, row: Row) -> Outcome:
        for name, content in row.get("files", {}).items():
            (self.folder / name).write_text(self.translate(content), encoding="utf-8")
        if row["id"] == "verify-key":
            self._sign_demo()
        if row["id"].startswith("auth-"):
            self.name_insecure()
        words = shlex.split(self.translate(row["command"]))[1:]
        stdin = self.translate(row.get("stdin", ""))
        outcome = _call(["wasm", *words], stdin, self._environment(row))
        self.outcomes[row["id"]] = outcome
        return outcome

    def name_insecure(self) -> None:
        """Both registries do without TLS."""
        hosts = [self.hosts[name] for name in ("registry.example:5000", "private.example:5001")]
        text = yaml.safe_dump({"insecure_sources": hosts})
        (self.folder / "sources.yml").write_text(text, encoding="utf-8")

    def _environment(self, row: Row) -> dict[str, str | None]:
        kubeconfig = row.get("env", {}).get("KUBECONFIG")
        return {"KUBECONFIG": str(self.folder / kubeconfig) if kubeconfig else None}

    def _sign_demo(self) -> None:
        found = _DIGEST.search(self.outcomes["push-ok"].stdout)
        if found:
            self.signer.sign(self.registry, "policies/demo", found[0], {"env": "prod"})


@contextlib.contextmanager
def prepare(folder: Path, guests: Guests) -> Iterator[Scene]:
    """A folder with the guests and files that the rows name, and services on loopback."""
    for path in guests.folder.glob("*.wasm"):
        shutil.copy(path, folder)
    (folder / "home" / ".cache").mkdir(parents=True)
    # What was compiled once is not compiled again in the next run of the tests.
    (guests.folder / "compiled").mkdir(exist_ok=True)
    (folder / "home" / ".cache" / "lictor").symlink_to(guests.folder / "compiled")
    registry, private = Registry(), Registry(base64.b64encode(b"user:secret").decode())
    signer, other = Signer(), Signer()
    web = WebServer({"demo.wasm": (folder / "accept.wasm").read_bytes()})
    with (
        serve(registry) as address,
        serve(private) as private_address,
        serve(web, make_authority(folder)) as files_address,
        serve(ApiServer()) as api,
        _environment_of(folder),
    ):
        accept = (folder / "accept.wasm").read_bytes()
        private.put_module("policies/ok", "v1", accept)
        registry.put_module("policies/bad", "v1", accept + b"\0\1\0")
        registry.blobs[next(iter(_layers(registry, "policies/bad")))] = accept
        hosts = {
            "registry.example:5000": address,
            "private.example:5001": private_address,
            "files.example:8443": files_address,
        }
        scene = Scene(folder, hosts, registry, signer, other)
        _write_files(scene, private_address, api)
        with contextlib.chdir(folder):
            yield scene


def _layers(registry: Registry, name: str) -> list[str]:
    manifest = json.loads(registry.manifests[name, "v1"])
    return [layer["digest"] for layer in manifest["layers"]]


@contextlib.contextmanager
def _environment_of(folder: Path) -> Iterator[None]:
    # Nothing but loopback can be reached: what is outside ends at a port that nobody serves.
    closed = "http://127.0.0.1:9"
    changes: dict[str, str | None] = {
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": None,
        "XDG_CONFIG_HOME": None,
        "HTTPS_PROXY": closed,
        "HTTP_PROXY": closed,
        "NO_PROXY": "127.0.0.1,localhost",
        "NO_COLOR": None,
        "KUBERNETES_SERVICE_HOST": None,
        "DOCKER_CONFIG": None,
        "LICTOR_DEBUG": None,
    }
    with _changed(changes):
        yield


@contextlib.contextmanager
def _changed(changes: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    _apply(changes)
    try:
        yield
    finally:
        _apply(before)


def _apply(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _write_files(scene: Scene, private: str, api: str) -> None:
    """What the rows name and do not hold; worded here."""
    folder = scene.folder
    review = json.loads((CORPUS / "reviews.json").read_bytes())["pod"]
    rows = {row["id"]: row for row in read_rows()}
    policy = yaml.safe_load(rows["scaffold-vap"]["files"]["vap.yaml"])
    binding = yaml.safe_load(rows["scaffold-vap"]["files"]["vapb.yaml"])
    pod = yaml.safe_load(rows["scaffold-request"]["files"]["obj.yaml"])
    texts: dict[str, Any] = {
        "pod.json": review["request"],
        "review.json": review,
        "bad.yml": ["no", "mapping"],
        "obj.yaml": pod,
        "obj.json": pod,
        "old.yaml": pod,
        "meta.yml": yaml.safe_load(scene.translate(rows["push-annotate"]["files"]["m.yml"])),
        "vap2.yaml": _with_spec(policy, paramKind={"apiVersion": "v1", "kind": "ConfigMap"}),
        "vapb2.yaml": _with_spec(binding, policyName="another"),
        "vapb3.yaml": _with_spec(binding, validationActions=["Audit"]),
        "q.yml": {"questions": []},
        "kubeconfig": _write_kubeconfig(api),
        "trust.json": {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": json.loads((files("lictor.images") / "sigstore_root.json").read_bytes()),
            "signingConfig": {},
        },
    }
    # The usage would be part of what is told of installing it.
    del texts["meta.yml"]["annotations"]["io.kubewarden.policy.usage"]
    for name, body in texts.items():
        text = json.dumps(body) if name.endswith(".json") else yaml.safe_dump(body)
        (folder / name).write_text(text, encoding="utf-8")
    scene.name_insecure()
    (folder / "meta2.yml").write_text(_POOR, encoding="utf-8")
    (folder / "ck.pub").write_text(scene.signer.public, encoding="utf-8")
    (folder / "other.pub").write_text(scene.other.public, encoding="utf-8")
    for name, password in (("dc", "secret"), ("dcbad", "wrong")):
        (folder / name).mkdir()
        auth = base64.b64encode(f"user:{password}".encode()).decode()
        (folder / name / "config.json").write_text(json.dumps({"auths": {private: {"auth": auth}}}))


def _with_spec(body: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], **fields}}


def _write_kubeconfig(api: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://{api}"}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }


def _call(words: list[str], stdin: str, environment: Mapping[str, str | None]) -> Outcome:
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(3)]
    streams[0].buffer.write(stdin.encode())
    streams[0].buffer.seek(0)
    before = sys.stdin
    sys.stdin = streams[0]
    try:
        with (
            _changed(environment),
            contextlib.redirect_stdout(streams[1]),
            contextlib.redirect_stderr(streams[2]),
        ):
            code = run(words)
    finally:
        sys.stdin = before
    told = []
    for stream in streams[1:]:
        stream.flush()
        told.append(stream.buffer.getvalue().decode())
    return Outcome(code, *told)


def read_rows() -> list[dict[str, Any]]:
    text = (CORPUS / "kwctl-answers.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def compare(folder: Path, guests: Guests, differences: Path) -> Comparison:
    """Run all rows; `differences` is the file that lists what is meant to differ."""
    listed = Listed(_LISTED, differences)
    found, skipped, total = [], [], 0
    with prepare(folder, guests) as scene:
        for row in read_rows():
            if _names_missing(row, guests):
                skipped.append(row["id"])
                continue
            total += 1
            why = _judge(row, scene)
            if why:
                found.append(Difference(row["id"], why, row["id"] in listed))
    known = {each.row for each in found}.union(skipped)
    stale = [name for name in listed.names if not any(fnmatchcase(row, name) for row in known)]
    return Comparison(total, tuple(found), tuple(skipped), tuple(stale))


def _names_missing(row: Row, guests: Guests) -> bool:
    text = json.dumps([row.get("command", ""), row.get("files", {})])
    derived = {"wapc": "rawtype", "gk_shapes": "as_opa"}
    names = {*guests.missing, *(derived[name] for name in guests.missing if name in derived)}
    return any(re.search(rf"\b{re.escape(name)}(\.raw)?\.wasm", text) for name in names)


def _judge(row: Row, scene: Scene) -> str:
    if "command" not in row:
        return _judge_state(row, scene)
    got = scene.run(row)
    if got.code != row["exit"]:
        told = (got.stderr or got.stdout).strip().splitlines()
        return f"exit code {got.code}, not {row['exit']}: {' '.join(told[-2:])[:300]}"
    if _UNFORESEEN in got.stderr:
        return got.stderr.strip()
    if got.code and not got.stderr.strip() and not got.stdout.strip():
        return "it fails without a word"
    why = _compare_output(row, got, scene)
    if not why and "session" in row:
        why = _compare_session(row, scene)
    if not why and row.get("same_bytes_as_pushed"):
        same = (scene.folder / "pulled.wasm").read_bytes() == (
            scene.folder / "demo.wasm"
        ).read_bytes()
        why = "" if same else "other bytes than those that were pushed"
    return why


def _judge_state(row: Row, scene: Scene) -> str:
    """Rows that tell what lies in the registry or in the store."""
    if "manifest" in row:
        name = "policies/raw" if "forced" in row["id"] else "policies/demo"
        tag = "v1" if "forced" in row["id"] else "v0.1.0"
        content = scene.registry.manifests.get((name, tag))
        if content is None:
            return f"{name}:{tag} was never pushed"
        got = _mask(json.loads(content))
        want = _mask(json.loads(scene.translate(json.dumps(row["manifest"]))))
        return "" if got == want else f"manifest {got}, not {want}"
    store = scene.folder / "home"
    lines = sorted(str(p.relative_to(store)) for p in store.rglob("*") if p.is_file())
    got_tree = [line for line in lines if "/store/" in line]
    want_tree = sorted(scene.translate(row["stdout"]).split())
    return "" if got_tree == want_tree else f"store {got_tree}, not {want_tree}"


def _mask(value: Any) -> Any:
    """Without what depends on the bytes of a module and on the version of the program."""
    if isinstance(value, dict):
        masked = {key: _mask(each) for key, each in value.items()}
        for key in (
            "size",
            "io.kubewarden.kwctl",
            "install",
            "createdAt",
            "uid",
            "recommendations",
        ):
            if key in masked:
                masked[key] = "?"
        if str(masked.get("resource", "")).startswith(_UNKNOWN_PLURAL):
            masked["resource"] = "?"
        return masked
    if isinstance(value, list):
        return [_mask(each) for each in value]
    return _DIGEST.sub("sha256:?", value) if isinstance(value, str) else value


def _compare_output(row: Row, got: Outcome, scene: Scene) -> str:
    want = row["stdout"]
    command = row["command"].split()[1:3]
    if isinstance(want, dict):
        return _compare_json(row, want, got, scene)
    if got.code:
        return ""
    want = scene.translate(want)
    if want.startswith("{") or row["id"] == "cr-two":
        return _compare_lines_of_json(want, got.stdout)
    if command[0] == "scaffold" or "-o yaml" in row["command"]:
        return _compare_yaml(want, got.stdout)
    if command[0] == "inspect":
        return _compare_page(want, got.stdout)
    if command[0] in ("info", "--version", "docs"):
        return _compare_about(row, got, scene)
    return _compare_text(command[0], want, got.stdout)


def _compare_text(command: str, want: str, got: str) -> str:
    if command == "bench":
        return _compare_words(_BENCH.sub(" ", want), _BENCH.sub(" ", got))
    if command == "policies":
        return _compare_table(want, got)
    wanted, told = (_DIGEST.sub("?", text).split() for text in (want, got))
    return "" if wanted == told else f"printed {told}, not {wanted}"


def _compare_about(row: Row, got: Outcome, scene: Scene) -> str:
    if row["id"] == "docs":
        return "" if "lictor wasm run" in (scene.folder / "d.md").read_text() else "no reference"
    wanted = [str(scene.folder / "home" / ".cache" / "kubewarden" / "store")]
    wanted += re.findall(r"  - (\S+\.\S+|sprintf|trace)$", row["stdout"], re.MULTILINE)
    missing = [word for word in wanted if word not in got.stdout] if row["id"] == "info" else []
    return f"{missing} is not told" if missing else "" if got.stdout.strip() else "nothing printed"


def _compare_json(row: Row, want: Row, got: Outcome, scene: Scene) -> str:
    if "first_line" in want:
        return "" if got.stdout.count("\n") > 3 else "no script"
    if got.code:
        return ""
    try:
        told = json.loads(got.stdout)
    except ValueError:
        return f"no JSON: {got.stdout[:200]!r}"
    want = json.loads(scene.translate(json.dumps(want)))
    if "allowed" in want:
        return _compare_response(want, told)
    want, told = _mask(want), _mask(told)
    if row["command"].split()[1] == "scaffold":
        for side in (want, told):
            for name in ("resource", "requestResource"):
                side[name] = {**side[name], "resource": "?"}
    return "" if want == told else f"printed {told}, not {want}"


def _compare_lines_of_json(want: str, got: str) -> str:
    wanted, told = ([json.loads(line) for line in text.splitlines()] for text in (want, got))
    if len(wanted) != len(told):
        return f"{len(told)} answers, not {len(wanted)}"
    return next(filter(None, map(_compare_response, wanted, told)), "")


def _compare_response(want: Row, got: Row) -> str:
    for name in ("uid", "allowed", "patchType", "auditAnnotations", "warnings"):
        if want.get(name, "none") != got.get(name, "none"):
            return f"{name} is {got.get(name)}, not {want.get(name)}: {got.get('status')}"
    patches = [_read_patch(side.get("patch")) for side in (want, got)]
    if patches[0] != patches[1]:
        return f"patch {patches[1]}, not {patches[0]}"
    want_status, got_status = want.get("status") or {}, got.get("status") or {}
    if want_status.get("code") != got_status.get("code"):
        return f"code {got_status.get('code')}, not {want_status.get('code')}"
    if want_status.get("details") != got_status.get("details"):
        return f"details {got_status.get('details')}, not {want_status.get('details')}"
    return _compare_message(want_status, got_status)


def _compare_message(want: Row, got: Row) -> str:
    wanted, told = want.get("message"), got.get("message")
    is_free = want.get("code") == _INTERNAL or str(wanted).startswith(
        ("host error:", "Request rejected")
    )
    if is_free and wanted and told:
        return ""
    same = wanted == told or _read_words(wanted) == _read_words(told)
    return "" if same else f"message {told!r}, not {wanted!r}"


def _read_words(message: Any) -> Any:
    """JSON as its value, else the parts between commas in any order."""
    if isinstance(message, str) and "{" in message:
        head, brace, rest = message.partition("{")
        with contextlib.suppress(ValueError):
            return head, _without_versions(json.loads(brace + rest))
    return sorted(message.split(", ")) if isinstance(message, str) else message


def _without_versions(value: Any) -> Any:
    """Without what an API server adds to objects; that of the corpus did so in lists only."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key != "resourceVersion"}
        if "labels" in kept and "name" in kept:
            kept.pop("uid", None)
        return {key: _without_versions(each) for key, each in kept.items()}
    return [_without_versions(each) for each in value] if isinstance(value, list) else value


def _read_patch(patch: str | None) -> Any:
    return json.loads(base64.b64decode(patch)) if patch else None


def _compare_yaml(want: str, got: str) -> str:
    wanted, told = _mask(yaml.safe_load(want)), _mask(yaml.safe_load(got))
    if isinstance(wanted, dict) and isinstance(told, dict) and "createdAt" in wanted:
        # Which chart to install beside it is no business of the policy.
        wanted.pop("recommendations", None)
    if isinstance(wanted, dict) and "<kubewarden's registry>" in str(wanted):
        wanted["spec"]["module"] = told["spec"]["module"]
    return "" if wanted == told else f"printed {told}, not {wanted}"


def _compare_page(want: str, got: str) -> str:
    """All lines but sentences, whatever blanks stand between the words."""
    wanted, told = (_list_lines(text) for text in (want, got))
    missing = [line for line in wanted if line not in told]
    more = [line for line in told if line not in wanted]
    return f"missing {missing}, not expected {more}" if missing or more else ""


def _list_lines(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(_PROSE)]
    kept = [re.sub(r"(io\.kubewarden\.kwctl) .*", r"\1 ?", line) for line in kept]
    kept = [re.sub(r"^(dev\.cosignproject\.cosign/signature) .*", r"\1 ?", each) for each in kept]
    return [re.sub(r"^(Size:) .*", r"\1 ?", line) for line in kept]


def _compare_words(want: str, got: str) -> str:
    wanted, told = set(want.split()), set(got.split())
    return f"{sorted(wanted - told)} is not told" if wanted - told else ""


def _compare_table(want: str, got: str) -> str:
    wanted, told = (_read_table(text) for text in (want, got))
    return "" if wanted == told else f"listed {told}, not {wanted}"


def _read_table(text: str) -> list[list[str]]:
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    # Digests and sizes are those of other bytes.
    return sorted([_DIGEST.sub("?", cell.strip()) for cell in row[:3]] for row in rows)


def _compare_session(row: Row, scene: Scene) -> str:
    found = re.search(r"--record-host-capabilities-interactions (\S+)", row["command"])
    assert found is not None
    path = scene.folder / found[1]
    if not path.exists():
        return f"{found[1]} was not written"
    wanted, told = (_read_session(text) for text in (row["session"], path.read_text()))
    return "" if wanted == told else f"session {told}, not {wanted}"


def _read_session(text: str) -> list[Any]:
    exchanges = yaml.safe_load(text) or []
    for exchange in exchanges:
        tag, _, body = exchange["request"].partition("\n")
        exchange["request"] = [tag.strip(), yaml.safe_load(body)]
        with contextlib.suppress(KeyError, ValueError):
            payload = json.loads(exchange["response"]["payload"])
            exchange["response"]["payload"] = _without_versions(payload)
        if exchange["response"].get("message"):
            exchange["response"]["message"] = "?"
    return exchanges
