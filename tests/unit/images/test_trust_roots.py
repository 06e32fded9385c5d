"""Trust roots of Sigstores: from a folder, and from a TUF repository made in the test."""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from registry_server import RegistryServer
from securesystemslib.signer._crypto_signer import CryptoSigner
from tuf.api._payload import MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.metadata import Metadata

from lictor.core.errors import LookupFailedError
from lictor.core.signatures.trust_root import read_trust_root
from lictor.http.addresses import AddressRules
from lictor.images.registries import RemoteRegistries
from lictor.images.settings import RegistrySettings
from lictor.images.trust_roots import PUBLIC_MIRROR, TrustRoots

MIRROR = "https://tuf.test/sigstore"
CONTENT = b'{"tlogs": []}'
ALWAYS = datetime(2120, 1, 1, tzinfo=UTC)


class Repository:
    """A TUF repository: what it serves, by path; it can be published again, better or worse."""

    def __init__(self, content: bytes = CONTENT, *, is_consistent: bool = False) -> None:
        self.signer = CryptoSigner.generate_ed25519()
        self.is_consistent = is_consistent
        self.files = {"root.json": self._make_root(1, self.signer)}
        self.publish(content)

    def publish(self, content: bytes, *, version: int = 1, expires: datetime = ALWAYS) -> None:
        target = TargetFile.from_data("trusted_root.json", content, ["sha256"])
        snapshot = Snapshot(version=version, expires=ALWAYS)
        snapshot.meta["targets.json"] = MetaFile(version)
        timestamp = Timestamp(version=version, expires=expires, snapshot_meta=MetaFile(version))
        targets = Targets(version=version, expires=ALWAYS, targets={target.path: target})
        number = f"{version}." if self.is_consistent else ""
        digest = f"{sha256(content).hexdigest()}." if self.is_consistent else ""
        self.files |= {
            "timestamp.json": self._sign(timestamp, self.signer),
            f"{number}snapshot.json": self._sign(snapshot, self.signer),
            f"{number}targets.json": self._sign(targets, self.signer),
            f"targets/{digest}trusted_root.json": content,
        }

    def rotate(self, version: int) -> None:
        """Sign with another key from now on, which the present one introduces."""
        before, self.signer = self.signer, CryptoSigner.generate_ed25519()
        self.files[f"{version}.root.json"] = self._make_root(version, before, self.signer)

    def _make_root(self, version: int, *signers: CryptoSigner) -> bytes:
        root = Root(version=version, expires=ALWAYS, consistent_snapshot=self.is_consistent)
        for role in ("root", "timestamp", "snapshot", "targets"):
            root.add_key(signers[-1].public_key, role)
        return self._sign(root, *signers)

    def _sign(self, signed, *signers: CryptoSigner) -> bytes:
        metadata = Metadata(signed)
        for signer in signers:
            metadata.sign(signer, append=True)
        return metadata.to_bytes()

    @property
    def root(self) -> bytes:
        return self.files["root.json"]


class Mirror:
    """Answers for a repository, and notes what was asked; `is_down` makes it silent."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.namespaces: set[str] = set()
        self.is_down = False

    def __call__(self, url: str, namespace: str) -> tuple[int, bytes]:
        self.asked.append(url)
        self.namespaces.add(namespace)
        if self.is_down:
            raise LookupFailedError("tuf.test does not answer")
        content = self.files.get(url.removeprefix(f"{MIRROR}/"))
        return (404, b"secret page") if content is None else (200, content)


class Clock:
    """Hours, as the test likes."""

    def __init__(self) -> None:
        self.hours = 0.0

    def __call__(self) -> float:
        return self.hours * 3600


@pytest.fixture
def repository():
    return Repository()


@pytest.fixture
def mirror(repository):
    return Mirror(repository.files)


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv("TUF_ROOT", raising=False)


def test_a_mirror_is_asked_once_and_again_after_hours(repository, mirror):
    clock = Clock()
    roots = TrustRoots(mirror, clock=clock)
    assert roots.get(f"{MIRROR}/", repository.root) == CONTENT
    asked = len(mirror.asked)
    clock.hours = 5
    assert roots.get(MIRROR, repository.root) == CONTENT
    assert len(mirror.asked) == asked
    repository.publish(b'{"tlogs":[]}', version=2)
    clock.hours = 7
    assert roots.get(MIRROR, repository.root) == b'{"tlogs":[]}'


def test_a_silent_mirror_is_forgiven_for_a_day(repository, mirror):
    clock = Clock()
    roots = TrustRoots(mirror, clock=clock)
    roots.get(MIRROR, repository.root)
    mirror.is_down = True
    clock.hours = 23
    assert roots.get(MIRROR, repository.root) == CONTENT
    clock.hours = 25
    with pytest.raises(LookupFailedError, match=r"does not answer.*TUF_ROOT"):
        roots.get(MIRROR, repository.root)
    asked = len(mirror.asked)
    with pytest.raises(LookupFailedError):
        roots.get(MIRROR, repository.root)
    assert len(mirror.asked) == asked, "a dead mirror is not asked for every image"


def test_one_without_time_does_not_speak_for_others(repository, mirror):
    left = [0.5]

    def fetch(url: str, namespace: str) -> tuple[int, bytes]:
        left[0] = 0.0 if url.endswith("timestamp.json") else left[0]
        if not left[0]:
            raise LookupFailedError("no time left")
        return mirror(url, namespace)

    roots = TrustRoots(fetch, remaining=lambda: left[0])
    with pytest.raises(LookupFailedError, match="no time left"):
        roots.get(MIRROR, repository.root)
    patient = TrustRoots(mirror)
    patient._kept = roots._kept
    assert patient.get(MIRROR, repository.root) == CONTENT


def test_a_repository_cannot_go_back(repository, mirror):
    clock = Clock()
    roots = TrustRoots(mirror, clock=clock)
    old = dict(repository.files)
    repository.publish(b'{"new": 1}', version=5)
    assert roots.get(MIRROR, repository.root) == b'{"new": 1}'
    mirror.files = old
    clock.hours = 7
    assert roots.get(MIRROR, repository.root) == b'{"new": 1}'
    clock.hours = 25
    with pytest.raises(LookupFailedError, match="is not trusted"):
        roots.get(MIRROR, repository.root)


def test_many_mirrors_of_a_namespace_do_not_let_another_go_back(repository, mirror):
    clock = Clock()
    roots = TrustRoots(mirror, clock=clock)
    old = dict(repository.files)
    repository.publish(b'{"new": 1}', version=5)
    assert roots.get(MIRROR, repository.root) == b'{"new": 1}'
    for number in range(100):
        with pytest.raises(LookupFailedError):
            roots.get(f"https://{number}.test", repository.root, "red")
    assert len(roots._kept) <= 32
    mirror.files = old
    clock.hours = 25
    with pytest.raises(LookupFailedError, match="is not trusted"):
        roots.get(MIRROR, repository.root)


def test_after_a_restart_a_mirror_goes_back_no_further_than_its_metadata_lasts(repository, mirror):
    """Versions are kept in memory: what a new process believes must not have expired."""
    old = dict(repository.files)
    repository.publish(b'{"new": 1}', version=5)
    assert TrustRoots(mirror).get(MIRROR, repository.root) == b'{"new": 1}'
    mirror.files = old
    assert TrustRoots(mirror).get(MIRROR, repository.root) == CONTENT
    repository.publish(CONTENT, version=1, expires=datetime.now(UTC) - timedelta(days=1))
    mirror.files = repository.files
    with pytest.raises(LookupFailedError, match="expired"):
        TrustRoots(mirror).get(MIRROR, repository.root)


def test_keys_of_a_repository_may_change_and_stay_changed():
    repository = Repository(is_consistent=True)
    mirror, clock = Mirror(repository.files), Clock()
    roots = TrustRoots(mirror, clock=clock)
    assert roots.get(MIRROR, repository.root) == CONTENT
    old = dict(repository.files)
    repository.rotate(2)
    repository.publish(b'{"new": 1}', version=2)
    clock.hours = 7
    assert roots.get(MIRROR, repository.root) == b'{"new": 1}'
    # Whoever has the old key and the mirror cannot hide that there is a new one.
    mirror.files = old
    clock.hours = 14
    assert roots.get(MIRROR, repository.root) == b'{"new": 1}'
    clock.hours = 40
    with pytest.raises(LookupFailedError, match="is not trusted"):
        roots.get(MIRROR, repository.root)


def test_keys_that_nobody_introduced_do_not_count():
    repository = Repository()
    repository.signer = CryptoSigner.generate_ed25519()
    repository.rotate(2)
    with pytest.raises(LookupFailedError, match="is not trusted"):
        TrustRoots(Mirror(repository.files)).get(MIRROR, repository.root)


YESTERDAY = datetime.now(UTC) - timedelta(days=1)

WRONG = {
    "another's root": (lambda files: None, Repository().root, "is not trusted"),
    "no root of its own": (lambda files: None, b"", "is not trusted"),
    "rubbish for a root": (lambda files: None, b"rubbish", "is not trusted"),
    "a huge root": (lambda files: None, b" " * 600_000, "more than"),
    "changed content": (
        lambda files: files.update({"targets/trusted_root.json": b'{"tlogs":[1]}'}),
        None,
        "is not trusted",
    ),
    "content that is away": (
        lambda files: files.pop("targets/trusted_root.json"),
        None,
        "HTTP 404",
    ),
    "changed targets": (
        lambda files: files.update({"targets.json": Repository(b"x").files["targets.json"]}),
        None,
        "is not trusted",
    ),
    "a stranger's": (lambda files: files.update(Repository(b"x").files), None, "is not trusted"),
    "a huge timestamp": (
        lambda files: files.update({"timestamp.json": files["timestamp.json"] + b" " * 20_000}),
        None,
        "is unavailable",
    ),
    "huge targets": (
        lambda files: files.update({"targets.json": files["targets.json"] + b" " * 600_000}),
        None,
        "is unavailable",
    ),
    "a huge next root": (
        lambda files: files.update({"2.root.json": files["root.json"] + b" " * 70_000}),
        None,
        "is unavailable",
    ),
    "no timestamp": (lambda files: files.pop("timestamp.json"), None, "HTTP 404"),
}


@pytest.mark.parametrize("what", WRONG)
def test_repositories_that_prove_nothing(repository, mirror, what):
    damage, root, reason = WRONG[what]
    own = repository.root if root is None else root
    damage(repository.files)
    with pytest.raises(LookupFailedError, match=reason) as refused:
        TrustRoots(mirror).get(MIRROR, own)
    assert "secret page" not in str(refused.value)


def test_a_huge_trust_root_is_refused():
    repository = Repository(b" " * (1024 * 1024 + 1))
    with pytest.raises(LookupFailedError, match="of a usual size"):
        TrustRoots(Mirror(repository.files)).get(MIRROR, repository.root)


def test_an_expired_repository_is_refused(repository, mirror):
    repository.publish(CONTENT, version=2, expires=YESTERDAY)
    with pytest.raises(LookupFailedError, match="expired"):
        TrustRoots(mirror).get(MIRROR, repository.root)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://tuf.test",
        "file:///etc/passwd",
        "tuf.test",
        "https://",
        "https://user:word@tuf.test",
        "https://tuf.test/?a=b",
        "https://tuf.test:port/",
        "https://[::1",
    ],
)
def test_mirrors_that_are_no_plain_urls(mirror, url):
    with pytest.raises(LookupFailedError, match="is not a URL"):
        TrustRoots(mirror).get(url, b"")
    assert not mirror.asked


def test_the_public_sigstore_begins_with_keys_that_are_shipped(mirror):
    with pytest.raises(LookupFailedError, match="is unavailable"):
        TrustRoots(mirror).get("", b"")
    # Its own root metadata was read, and the next one asked for.
    assert mirror.asked[0].startswith(f"{PUBLIC_MIRROR}/")
    assert mirror.asked[0].endswith(".root.json")


def test_many_mirrors_do_not_fill_the_memory(repository, mirror):
    roots = TrustRoots(mirror)
    for number in range(200):
        with pytest.raises(LookupFailedError):
            roots.get(f"{MIRROR}/{number}", repository.root)
    assert len(roots._kept) <= 32


def test_threads_share_one_question(repository):
    entered, go_on = threading.Event(), threading.Event()
    mirror = Mirror(repository.files)

    def slow(url: str, namespace: str) -> tuple[int, bytes]:
        entered.set()
        go_on.wait(60)
        return mirror(url, namespace)

    roots, answers = TrustRoots(slow), []
    threads = [
        threading.Thread(target=lambda: answers.append(roots.get(MIRROR, repository.root)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    entered.wait(60)
    hurried = TrustRoots(slow, remaining=lambda: 0.0)
    hurried._kept = roots._kept
    with pytest.raises(LookupFailedError, match="no time left"):
        hurried.get(MIRROR, repository.root)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert answers == [CONTENT] * 4
    assert mirror.asked.count(f"{MIRROR}/timestamp.json") == 1


def test_over_http(repository):
    def handle(path, _headers):
        content = repository.files.get(path.removeprefix("/tuf/"))
        return (404, {}, b"") if content is None else (200, {}, content)

    with RegistryServer() as server:
        server.handle = handle
        url = f"http://127.0.0.1:{server.port}/tuf"
        assert RemoteRegistries().trusted_root(url, repository.root) == CONTENT


def test_the_mirror_of_a_namespace_may_not_be_inside(repository):
    inside = AddressRules(blocked_in_namespaces=("127.0.0.0/8",))
    registries = RemoteRegistries(RegistrySettings(addresses=inside))
    with RegistryServer() as server:
        server.handle = lambda path, _: (200, {}, repository.files.get(path[5:], b""))
        url = f"http://127.0.0.1:{server.port}/tuf"
        with pytest.raises(LookupFailedError, match="blocked"):
            registries.trusted_root(url, repository.root, "team")
        assert not server.asked


def test_policies_of_a_namespace_share_only_the_public_root(repository, mirror):
    roots = TrustRoots(mirror)
    roots.get(MIRROR, repository.root)
    roots.get(MIRROR, repository.root, "team")
    assert mirror.namespaces == {"", "team"}
    mirror.namespaces.clear()
    with pytest.raises(LookupFailedError):
        roots.get("", b"", "team")
    assert mirror.namespaces == {""}


def test_a_sigstore_of_ones_own_for_policies_that_name_none(
    repository, mirror, tmp_path, monkeypatch
):
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets/trusted_root.json").write_bytes(b"of the folder")
    monkeypatch.setenv("TUF_ROOT", str(tmp_path))
    roots = TrustRoots(mirror, usual=(MIRROR, repository.root))
    assert roots.get("", b"") == CONTENT
    assert roots.get("", b"", "team") == CONTENT
    # Whoever sets up lictor may name a machine inside.
    assert mirror.namespaces == {""}


# --- folders


def test_a_folder_stands_for_the_public_sigstore(tmp_path, monkeypatch, mirror, repository):
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets/trusted_root.json").write_bytes(b'{"of": "the folder"}')
    monkeypatch.setenv("TUF_ROOT", str(tmp_path))
    roots = TrustRoots(mirror)
    assert roots.get("", b"") == b'{"of": "the folder"}'
    assert not mirror.asked
    # And for no other.
    assert roots.get(MIRROR, repository.root) == CONTENT


def test_a_folder_with_single_keys(tmp_path, monkeypatch, mirror):
    key = Ed25519PrivateKey.generate().public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "targets").mkdir()
    monkeypatch.setenv("TUF_ROOT", str(tmp_path))
    for name in ("rekor.pub", "ctfe.pub", "ctfe_2022.pub"):
        (tmp_path / "targets" / name).write_bytes(pem)
    root = read_trust_root(TrustRoots(mirror).get("", b""))
    assert (len(root.logs), len(root.certificate_logs), root.authorities) == (1, 2, ())
    assert root.logs[0].key == key


def test_a_folder_that_cannot_be_used(tmp_path, monkeypatch, mirror):
    monkeypatch.setenv("TUF_ROOT", str(tmp_path))
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets/trusted_root.json").write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(LookupFailedError, match="TUF_ROOT"):
        TrustRoots(mirror).get("", b"")
    (tmp_path / "targets/trusted_root.json").unlink()
    # Nothing in it: the mirror is asked.
    with pytest.raises(LookupFailedError, match="is unavailable"):
        TrustRoots(mirror).get("", b"")
    assert mirror.asked
