"""Sessions of host calls, recorded and replayed as kwctl does."""

import orjson
import pytest

from lictor.addons.kubewarden.family.entries import ContextAwareResource, MemberEntry
from lictor.addons.kubewarden.family.host_calls import PolicyHost
from lictor.addons.kubewarden.family.host_requests import (
    SESSION_NAMES,
    AccessAttributes,
    AccessSubject,
    CertificateRequest,
    CheckAccess,
    EncodedCertificate,
    GetManifest,
    GetManifestAndConfig,
    GetManifestDigest,
    GetObject,
    GetPluralName,
    KeylessPrefix,
    KeylessSubject,
    ListAllObjects,
    ListNamespaceObjects,
    LookUpHost,
    TrustCertificate,
    VerifyCertificate,
    VerifyGithubActions,
    VerifyKeyless,
    VerifyKeylessPrefixes,
    VerifyKeys,
)
from lictor.addons.kubewarden.family.sessions import (
    RecordingHost,
    ReplayingHost,
    read_recorded_request,
    write_request,
)
from lictor.core.errors import HostCallError, LoadError
from lictor.core.ports import NoLookups

REQUESTS = (
    GetObject(api_version="v1", kind="Pod", name="on", disable_cache=True, field_masks=("a.b",)),
    ListNamespaceObjects(api_version="v1", kind="Pod", namespace="1e3", label_selector="a=b"),
    ListAllObjects(api_version="v1", kind="Pod", field_selector="metadata.name=a"),
    GetPluralName("v1", "Pod"),
    CheckAccess(
        AccessSubject(
            user="null", groups=("yes",), resource_attributes=AccessAttributes(verb="get")
        ),
        disable_cache=False,
    ),
    LookUpHost("a: b # c"),
    GetManifestDigest("a"),
    GetManifest("a"),
    GetManifestAndConfig("a"),
    VerifyKeys("a", ("-----BEGIN\nkey\n-----END\n",), {"b": "2"}),
    VerifyKeyless("a", (KeylessSubject("i", "s"),)),
    VerifyKeylessPrefixes("a", (KeylessPrefix("i", "https://x/"),)),
    VerifyGithubActions("a", "o", None, {}),
    VerifyCertificate(
        image="a", certificate=[1, 255], certificate_chain=[[0]], require_rekor_bundle=True
    ),
    TrustCertificate(CertificateRequest(EncodedCertificate("Der", [7]), [], "2026-01-01")),
)
SESSION = """\
- type: Exchange
  request: |
    !DNSLookupHost
    host: a.example
  response:
    type: Success
    payload: '{"ips":["192.0.2.1"]}'
- type: Exchange
  request: |
    !DNSLookupHost
    host: b.example
  response:
    type: Error
    message: no such host
"""


class Answers:
    """Answers with what was asked."""

    def answer(self, request):
        if isinstance(request, LookUpHost) and request.host == "bad":
            raise HostCallError("no such host")
        return orjson.dumps({"text": write_request(request)})


def test_every_request_has_a_name():
    assert {type(each) for each in REQUESTS} == set(SESSION_NAMES.values())


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_requests_are_written_and_read(request_):
    assert read_recorded_request(write_request(request_)) == request_


def test_what_was_recorded_is_replayed():
    recording = RecordingHost(Answers())
    asked = (*REQUESTS, LookUpHost("bad"))
    told = [answer_or_error(recording, each) for each in asked]
    replaying = ReplayingHost(recording.write())
    assert [answer_or_error(replaying, each) for each in asked] == told
    assert replaying.list_left() == []


def answer_or_error(host, request):
    try:
        return host.answer(request)
    except HostCallError as error:
        return str(error)


def test_a_session_looks_as_kwctl_writes_it():
    class Names:
        def answer(self, request):
            if request.host == "b.example":
                raise HostCallError("no such host")
            return b'{"ips":["192.0.2.1"]}'

    recording = RecordingHost(Names())
    for name in ("a.example", "b.example"):
        answer_or_error(recording, LookUpHost(name))
    assert recording.write() == SESSION
    assert RecordingHost(Names()).write() == "[]\n"


def test_requests_are_expected_in_their_order():
    replaying = ReplayingHost(SESSION)
    with pytest.raises(HostCallError, match=r"unexpected request. Was expecting !DNSLookupHost"):
        replaying.answer(LookUpHost("b.example"))
    assert replaying.list_left() == ["!DNSLookupHost host: b.example"]
    with pytest.raises(HostCallError, match="no such host"):
        replaying.answer(LookUpHost("b.example"))
    with pytest.raises(HostCallError, match="empty"):
        replaying.answer(LookUpHost("c.example"))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "- 1",
        "- {type: Exchange, request: x, response: {type: Success}}",
        "- {type: Exchange, request: '!Zzz', response: {type: Success}}",
        "- {type: Exchange, request: '!DNSLookupHost {host: 1}', response: {type: Success}}",
        "- {type: Exchange, request: '!DNSLookupHost {host: a}', response: {type: Maybe}}",
        "- [",
    ],
)
def test_a_file_that_is_no_session_is_refused(text):
    with pytest.raises(LoadError, match=r"s\.yml"):
        ReplayingHost(text, "s.yml")


def test_what_is_not_granted_is_neither_recorded_nor_replayed():
    recording = RecordingHost(Answers())
    host = PolicyHost(NoLookups(), MemberEntry(module="m"), answers=recording)
    with pytest.raises(HostCallError, match="not been granted"):
        host.call("net", "v1/dns_lookup_host", b'"a.example"')
    host.call("tracing", "log", b'{"level":"info","message":"x"}')
    assert recording.write() == "[]\n"


def test_a_session_in_gatekeeper_mode_has_no_plural_names():
    listed = '{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[{"kind":"Pod"}]}'
    session = (
        "- type: Exchange\n"
        '  request: "!KubernetesListResourceAll\\napi_version: v1\\nkind: Pod\\n"\n'
        f"  response: {{type: Success, payload: '{listed}'}}\n"
    )
    entry = MemberEntry(
        module="m",
        host_capabilities=("*",),
        context_aware_resources=(ContextAwareResource("v1", "Pod"),),
    )
    (found,) = PolicyHost(NoLookups(), entry, answers=ReplayingHost(session)).context()
    assert (found.plural, found.objects) == ("pods", [{"kind": "Pod"}])
