"""What becomes of the two Secrets, whatever state they are found in."""

import asyncio
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from small_api import SmallApi

from lictor.controllers.certificates import CertificateRotation, choose_settings, read_authority
from lictor.core.errors import LookupFailedError
from lictor.http import keys
from lictor.http.keys import Algorithm
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import MUTATING_WEBHOOK, SECRET, VALIDATING_WEBHOOK

FLAGS = Flags(tls_key_algorithm="ECDSA")
NAMES = Names("kyverno", "kyverno")
CA = "kyverno-svc.kyverno.svc.kyverno-tls-ca"
PAIR = "kyverno-svc.kyverno.svc.kyverno-tls-pair"
START = datetime(2030, 1, 1, tzinfo=UTC)


class Scene:
    """An API, a clock, and the keeper of one place."""

    def __init__(self, flags=FLAGS):
        self.api = SmallApi()
        self.now = START
        self.use(flags)

    def use(self, flags):
        self.keeper = CertificateRotation(
            self.api, choose_settings(flags, NAMES), clock=lambda: self.now
        )

    def reconcile(self, **later):
        self.now += timedelta(**later)
        asyncio.run(self.keeper.reconcile())

    def secret(self, name):
        return self.api.read(SECRET, name, "kyverno")

    def edit(self, name, **entries):
        secret = self.secret(name)
        data = {key: b64encode(text.encode()).decode() for key, text in entries.items()}
        self.api.seed(SECRET, {**secret, "data": {**secret["data"], **data}})

    def entry(self, name, key="tls.crt"):
        return b64decode(self.secret(name)["data"][key]).decode()

    def leaf(self):
        return keys.read_certificates(self.entry(PAIR))[0]

    def bundle(self):
        return keys.read_certificates(self.entry(CA))

    def signer(self):
        return read_authority(self.secret(CA), self.now).signer.certificate

    def trust(self, *certificates, kind=VALIDATING_WEBHOOK):
        """A webhook configuration that trusts these."""
        pem = keys.write_certificates(certificates)
        body = {
            "metadata": {
                "name": "kyverno-resource-webhook-cfg",
                "labels": {"webhook.kyverno.io/managed-by": "kyverno"},
            },
            "webhooks": [
                {"clientConfig": {"caBundle": b64encode(pem.encode()).decode(), "service": {}}}
            ],
        }
        self.api.seed(kind, body)

    def check(self):
        """Whatever happened: the server's certificate is trusted, and its key belongs to it."""
        leaf = self.leaf()
        assert keys.is_valid_at(leaf, self.now)
        assert keys.belongs(keys.read_key(self.entry(PAIR, "tls.key")), leaf)
        assert any(keys.is_issued_by(leaf, authority) for authority in self.bundle())
        assert keys.belongs(keys.read_key(self.entry(CA, "tls.key")), self.signer())


def test_both_are_made_at_the_first_look():
    scene = Scene()
    scene.reconcile()
    scene.check()
    for name in (CA, PAIR):
        secret = scene.secret(name)
        assert secret["type"] == "kubernetes.io/tls"
        assert secret["metadata"]["labels"] == {"cert.kyverno.io/managed-by": "kyverno"}
        assert set(secret["data"]) == {"tls.crt", "tls.key"}
    leaf = scene.leaf()
    service = ("kyverno-svc", "kyverno-svc.kyverno", "kyverno-svc.kyverno.svc")
    assert keys.list_hosts(leaf) == frozenset(service)
    assert leaf.not_valid_after_utc == START + timedelta(days=150)
    assert scene.signer().not_valid_after_utc == START + timedelta(days=365)


def test_nothing_is_written_where_nothing_is_wrong():
    scene = Scene()
    scene.reconcile()
    scene.api.writes.clear()
    for _ in range(3):
        scene.reconcile(days=30)
    assert scene.api.writes == []


def test_the_serving_certificate_is_renewed_before_it_expires():
    scene = Scene()
    scene.reconcile()
    before = scene.leaf()
    scene.reconcile(days=134)
    assert scene.leaf() == before
    scene.reconcile(days=2)
    assert scene.leaf() != before
    assert len(scene.bundle()) == 1
    scene.check()


def test_a_new_authority_is_shown_before_it_is_used(monkeypatch):
    scene = Scene()
    scene.reconcile()
    old = scene.signer()
    scene.reconcile(days=136)
    scene.reconcile(days=136)
    leaf = scene.leaf()
    scene.trust(old)
    waits = []
    monkeypatch.setattr(scene.keeper.loop, "wake_later", waits.append)
    scene.reconcile(days=79)
    new = scene.signer()
    assert scene.bundle() == (new, old)
    assert keys.is_issued_by(scene.leaf(), old)
    scene.check()
    # The webhook does not know the new one yet.
    scene.reconcile(minutes=5)
    assert keys.is_issued_by(scene.leaf(), old)
    assert waits == [5.0, 5.0]
    scene.trust(new, old)
    scene.reconcile()
    assert scene.leaf() != leaf
    assert keys.is_issued_by(scene.leaf(), new)
    scene.check()
    # The old one stays until it has expired.
    scene.reconcile(days=10)
    assert scene.bundle() == (new, old)
    scene.reconcile(days=10)
    assert scene.bundle() == (new,)
    scene.check()


def test_api_servers_get_time_to_hear_of_a_new_authority():
    scene = Scene()
    scene.reconcile()
    for days in (136, 136, 79):
        scene.reconcile(days=days)
    old = scene.bundle()[1]
    scene.trust(*scene.bundle(), kind=MUTATING_WEBHOOK)
    scene.reconcile(seconds=5)
    assert keys.is_issued_by(scene.leaf(), old)
    scene.reconcile(seconds=20)
    assert keys.is_issued_by(scene.leaf(), scene.signer())


def test_an_expired_certificate_is_replaced_at_once():
    scene = Scene()
    scene.reconcile()
    scene.trust(scene.signer())
    scene.reconcile(days=400)
    scene.check()
    assert len(scene.bundle()) == 1


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_another_algorithm_rotates_with_overlap(algorithm):
    scene = Scene(msgspec.structs.replace(FLAGS, tls_key_algorithm="RSA"))
    scene.reconcile()
    old = scene.signer()
    scene.use(msgspec.structs.replace(FLAGS, tls_key_algorithm=str(algorithm)))
    scene.reconcile(minutes=1)
    assert keys.find_algorithm(scene.signer()) == algorithm
    assert scene.bundle()[-1] == old
    scene.check()
    scene.reconcile(minutes=1)
    assert keys.find_algorithm(scene.leaf()) == algorithm
    scene.check()


def broken_entries():
    stranger = keys.make_authority("stranger", Algorithm.ECDSA, START, timedelta(days=99))
    return {
        "key-of-another": {"tls.key": stranger.key_pem},
        "certificate-of-another": {"tls.crt": stranger.certificate_pem},
        "no-key": {"tls.key": ""},
        "no-certificate": {"tls.crt": ""},
        "nonsense": {"tls.crt": "nonsense", "tls.key": "nonsense"},
        "bytes": {"tls.crt": "\x00\xff", "tls.key": "\x00"},
    }


@pytest.mark.parametrize("fault", list(broken_entries()))
@pytest.mark.parametrize("name", [CA, PAIR])
def test_a_broken_secret_heals(name, fault):
    scene = Scene()
    scene.reconcile()
    scene.edit(name, **broken_entries()[fault])
    scene.reconcile()
    scene.check()
    scene.api.writes.clear()
    scene.reconcile()
    assert scene.api.writes == []


@pytest.mark.parametrize("gone", [(CA,), (PAIR,), (CA, PAIR)], ids=["ca", "pair", "both"])
def test_a_deleted_secret_comes_back(gone):
    scene = Scene()
    scene.reconcile()
    for name in gone:
        del scene.api.objects["secrets", "kyverno", name]
    scene.reconcile()
    scene.check()


def test_other_names_need_another_certificate():
    scene = Scene()
    scene.reconcile()
    scene.use(msgspec.structs.replace(FLAGS, server_ip="10.0.0.7:9443"))
    scene.reconcile()
    assert "10.0.0.7" in keys.list_hosts(scene.leaf())
    scene.check()


@pytest.mark.parametrize(
    ("server", "host"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("10.0.0.7:9443", "10.0.0.7"),
        ("[fd00::7]:9443", "fd00::7"),
        ("fd00::7", "fd00::7"),
        ("host.example:443", "host.example"),
    ],
)
def test_addresses_of_servers(server, host):
    assert choose_settings(Flags(server_ip=server), NAMES).hosts[0] == host


def test_a_secret_of_a_wrong_type_is_made_anew():
    scene = Scene()
    labels = {"cert.kyverno.io/managed-by": "kyverno"}
    for name in (CA, PAIR):
        metadata = {"name": name, "namespace": "kyverno", "labels": labels}
        scene.api.seed(SECRET, {"metadata": metadata, "type": "Opaque", "data": {}})
    scene.reconcile()
    assert scene.secret(CA)["type"] == scene.secret(PAIR)["type"] == "kubernetes.io/tls"
    scene.check()


def test_an_authority_of_old_kyvernos_is_understood():
    scene = Scene()
    scene.reconcile()
    secret = scene.secret(CA)
    entries = {"rootCA.crt": secret["data"]["tls.crt"], "tls.key": secret["data"]["tls.key"]}
    scene.api.seed(SECRET, {**secret, "data": entries})
    scene.api.writes.clear()
    scene.reconcile()
    assert scene.api.writes == []


def foreign(scene, name, pair, **metadata):
    data = {"tls.crt": pair.certificate_pem, "tls.key": pair.key_pem}
    body = {
        "metadata": {"name": name, "namespace": "kyverno", **metadata},
        "type": "kubernetes.io/tls",
        "data": {key: b64encode(text.encode()).decode() for key, text in data.items()},
    }
    scene.api.seed(SECRET, body)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {
            "labels": {"cert.kyverno.io/managed-by": "kyverno"},
            "annotations": {"cert-manager.io/certificate-name": "lictor"},
        },
    ],
    ids=["no-label", "cert-manager"],
)
def test_what_others_keep_is_only_read(metadata):
    scene = Scene()
    hosts = choose_settings(FLAGS, NAMES).hosts
    authority = keys.make_authority("theirs", Algorithm.RSA, START, timedelta(days=30))
    leaf = keys.make_serving(authority, hosts, Algorithm.RSA, START, timedelta(days=20))
    foreign(scene, CA, authority, **metadata)
    foreign(scene, PAIR, leaf, **metadata)
    # Another algorithm, and close to its end: still theirs.
    scene.reconcile(days=10)
    assert scene.api.writes == []
    with pytest.raises(LookupFailedError, match="not ours to renew"):
        scene.reconcile(days=15)
    assert scene.api.writes == []


def test_of_two_leaders_one_wins():
    async def play(scene):
        other = CertificateRotation(
            scene.api, choose_settings(FLAGS, NAMES), clock=lambda: scene.now
        )
        return await asyncio.gather(
            scene.keeper.reconcile(), other.reconcile(), return_exceptions=True
        )

    scene = Scene()
    asyncio.run(play(scene))
    scene.reconcile()
    scene.check()
    assert len(scene.bundle()) == 1
    assert [write[0] for write in scene.api.writes].count("create") == 2


def test_a_wish_longer_than_the_lifetime_does_not_renew_for_ever():
    scene = Scene(msgspec.structs.replace(FLAGS, renew_before="87600h"))
    scene.reconcile()
    scene.api.writes.clear()
    scene.reconcile(days=1)
    assert scene.api.writes == []


def test_secrets_may_have_other_names():
    flags = msgspec.structs.replace(FLAGS, ca_secret_name="my-ca", tls_secret_name="my-tls")
    scene = Scene(flags)
    scene.reconcile()
    assert {name for _, _, name in scene.api.objects} == {"my-ca", "my-tls"}


def test_no_key_in_any_log(caplog):
    scene = Scene()
    with caplog.at_level(0):
        scene.reconcile()
        scene.edit(PAIR, **{"tls.key": "nonsense"})
        scene.reconcile()
    assert caplog.records
    for record in caplog.records:
        assert "PRIVATE" not in str(vars(record))
