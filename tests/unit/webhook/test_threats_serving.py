"""What someone could try against the webhook server, and what comes of it."""

import asyncio
import ssl
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path

import orjson
import pytest
from serving import Bench, Notes, make_policy, make_review, require_label, write_policies

from lictor.core.engine import Engine
from lictor.core.errors import DeadlineError, LookupFailedError
from lictor.core.load.review import load_review
from lictor.core.model.program import Case, CompiledRule, Phase, Program
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.http.keys import Algorithm, KeyPair, make_authority, make_serving, write_certificates
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.http.server import HttpServer
from lictor.http.serving_certificate import LiveCertificate
from lictor.kubernetes.update_requests import build_update_request
from lictor.webhook import evaluator as judging
from lictor.webhook.evaluator import Evaluator
from lictor.webhook.interrupts import SignalAlarm
from lictor.webhook.result_sinks import list_updates

WORD = "c2VzYW1l"
SECRET: JsonObject = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "door",
        "namespace": "shop",
        "labels": {"kept": "yes"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": f'{{"data": "{WORD}"}}',
            "kept": "yes",
        },
    },
    "data": {"word": WORD},
    "stringData": {"word": WORD},
}
POLICY = PolicyRef("copies", api_version="kyverno.io/v1", kind="ClusterPolicy")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_contents_of_secrets_are_in_no_update_request(operation: str) -> None:
    review = make_review(
        operation=operation,
        kind={"group": "", "version": "v1", "kind": "Secret"},
        object=None if operation == "DELETE" else SECRET,
        oldObject=None if operation == "CREATE" else SECRET,
    )
    request = load_review(orjson.dumps(review)).request
    result = Result(POLICY, "rule", RuleType.GENERATION, Status.PASS)
    (update,) = list_updates(request, [result])
    text = orjson.dumps(build_update_request(update, "lictor"))
    assert WORD.encode() not in text
    assert b"door" in text
    if operation != "CREATE":
        assert text.count(b'"kept":"yes"') == 2, "labels and other annotations are needed"


# --- rules that take for ever


def _spin(_: Case) -> tuple[Result, ...]:
    while True:
        pass


def _make_engine() -> Engine:
    rule = CompiledRule("endless", Phase.VALIDATE, lambda *_: lambda _: True, _spin)
    return Engine([Program(POLICY, (rule,))])


def _time_judgement(evaluator: Evaluator) -> float:
    began = time.monotonic()
    pod: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}

    async def run() -> Verdict:
        return await evaluator.evaluate(_make_engine(), Request.of(pod), began + 60)

    try:
        verdict = asyncio.run(run())
    except DeadlineError:
        pass
    else:
        assert [result.status for result in verdict.results] == [Status.ERROR]
    return time.monotonic() - began


def test_a_rule_that_takes_for_ever_is_given_less_time_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "LOOP_SECONDS", 1.0)
    monkeypatch.setattr(judging, "HASTY_SECONDS", 0.1)
    evaluator = Evaluator(alarm=SignalAlarm())
    assert _time_judgement(evaluator) >= 1.0
    # The machine may be busy for a moment.
    assert min(_time_judgement(evaluator) for _ in range(3)) < 0.9


class NotedQuestions:
    """Notes until when the outside world may be asked."""

    def __init__(self) -> None:
        self.deadline = 0.0

    @property
    def was_used(self) -> bool:
        return True

    @was_used.setter
    def was_used(self, value: bool) -> None: ...

    def begin_request(self, request: Request, deadline: float) -> None:
        self.deadline = deadline


def test_questions_end_before_the_request_does() -> None:
    guard = NotedQuestions()
    began = time.monotonic()
    asyncio.run(Evaluator(guard).evaluate(Engine([]), Request.of({}), began + 10))
    assert began + 8 < guard.deadline < began + 9.5


# --- who may ask


def _make_authority(name: str) -> KeyPair:
    return make_authority(name, Algorithm.ECDSA, datetime.now(UTC), timedelta(days=1))


def _sign(authority: KeyPair, file: Path) -> Path:
    pair = make_serving(
        authority, ("localhost",), Algorithm.ECDSA, datetime.now(UTC), timedelta(days=1)
    )
    file.write_text(pair.certificate_pem + pair.key_pem)
    return file


async def _answer(_: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, b"fine\n")


def _ask(port: int, method: str, shown: Path | None) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown is not None:
        context.load_cert_chain(shown)
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    with closing(connection):
        try:
            connection.request(method, "/validate/fail", b"{}" if method == "POST" else None)
            return connection.getresponse().status
        except (ssl.SSLError, ConnectionError):
            return 0


async def _serve_and_ask(live: LiveCertificate, method: str, shown: Path | None) -> int:
    gate = HttpServer(_answer, max_body=1000, knows_clients=True)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(gate, "127.0.0.1", 0, ssl=live.context)
    port = server.sockets[0].getsockname()[1]
    try:
        return await asyncio.to_thread(_ask, port, method, shown)
    finally:
        server.close()
        await gate.drain(1)


@pytest.mark.parametrize(
    ("method", "who", "status"),
    [
        ("POST", "", 401),
        ("POST", "stranger", 0),
        ("POST", "friend", 200),
        ("POST", "expired", 0),
        ("POST", "not yet valid", 0),
        ("POST", "for servers", 0),
        ("POST", "signed by itself", 0),
        ("GET", "", 200),
    ],
)
def test_reviews_come_from_clients_that_are_known(
    tmp_path: Path, method: str, who: str, status: int
) -> None:
    authority = _make_authority("clients")
    stranger = _make_authority("clients")
    files = {
        "": lambda: None,
        "friend": lambda: _client_file(tmp_path, authority),
        "stranger": lambda: _client_file(tmp_path, stranger),
        "expired": lambda: _client_file(tmp_path, authority, hours=-2),
        "not yet valid": lambda: _client_file(tmp_path, authority, hours=2),
        "for servers": lambda: _client_file(tmp_path, authority, usage="SERVER_AUTH"),
        "signed by itself": lambda: _client_file(tmp_path, None),
    }
    shown = files[who]()
    server_file = _sign(_make_authority("server"), tmp_path / "server.pem")
    text = server_file.read_bytes()
    live = LiveCertificate(write_certificates((authority.certificate,)))
    assert live.load(text, text)
    assert asyncio.run(_serve_and_ask(live, method, shown)) == status


def _client_file(
    folder: Path, authority: KeyPair | None, *, hours: int = 0, usage: str = "CLIENT_AUTH"
) -> Path:
    """A client's certificate: our own `keys` makes those of servers only."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC) + timedelta(hours=hours)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "api-server")])
    purpose = getattr(ExtendedKeyUsageOID, usage)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority.certificate.subject if authority else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .sign(authority.key if authority else key, hashes.SHA256())
    )
    file = folder / "client.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


def test_our_serving_certificate_makes_nobody_a_client(tmp_path: Path) -> None:
    authority = _make_authority("server")
    stolen = _sign(authority, tmp_path / "stolen.pem")
    text = stolen.read_bytes()
    live = LiveCertificate(write_certificates((authority.certificate,)))
    assert live.load(text, text)
    assert asyncio.run(_serve_and_ask(live, "POST", stolen)) == 0


# --- whom policies are about


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"zone": "prod"}},
        {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["test"]}]},
        {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
    ],
)
def test_labels_that_cannot_be_read_let_nothing_pass(
    tmp_path: Path, selector: JsonObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kyverno's CVE-2025-46342: such a rule was left out, and nobody was told."""
    rule = require_label("team")
    rule["match"] = {"any": [{"resources": {"kinds": ["Pod"], "namespaceSelector": selector}}]}
    bench = Bench(write_policies(tmp_path, make_policy("teams", rule)))

    async def fail(_: str) -> None:
        raise LookupFailedError("namespace shop: no answer")

    monkeypatch.setattr(bench.state, "recall_labels", lambda _: None)
    monkeypatch.setattr(bench.state, "find_labels", fail)
    answer = bench.ask("/validate/fail", make_review())
    assert not answer["allowed"]
    assert "namespace shop: no answer" in answer["status"]["message"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("path", ["/validate/fail", "/mutate/fail"])
def test_an_object_that_claims_another_namespace_is_refused(
    tmp_path: Path, path: str, operation: str
) -> None:
    """Reports and triggers of `green`'s request would be about an object of `shop`."""
    notes = Notes(wants_passes=True, takes_triggers=True)
    bench = Bench(
        write_policies(tmp_path, make_policy("teams", require_label("team"))), sinks=[notes]
    )
    review = make_review({"team": "x"}, operation=operation)
    review["request"]["namespace"] = "green"
    response = bench.follow(path, review)
    # What goes away is not mutated, and so not looked at.
    is_asked = (path, operation) != ("/mutate/fail", "DELETE")
    assert response["allowed"] is not is_asked
    assert notes.outcomes == []
    if is_asked:
        assert "not the namespace of the request" in response["status"]["message"]
