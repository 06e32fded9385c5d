"""Signed manifests: what counts as signed, what may differ, and that nothing odd gets through."""

import gzip
import time
import zlib
from base64 import b64encode

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

import lictor
from lictor.core.assembly import compile_documents
from lictor.core.errors import EvaluationError
from lictor.core.evaluate.manifests.difference import find_differences, flatten
from lictor.core.evaluate.manifests.ignored import compile_ignores
from lictor.core.load.policies import load_documents
from lictor.core.model.signatures import ManifestsIgnore

DOMAIN = "cosign.sigstore.dev"
KEY, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
INVALID = "invalid signature when validating ASN.1 encoded signature"


def pem(key) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def keys(*wanted, **more) -> dict:
    entries = [
        {"keys": {"publicKeys": key if isinstance(key, str) else pem(key)}} for key in wanted
    ]
    return {"entries": entries, **more}


def engine(*sets, action="Enforce", **manifests) -> lictor.Engine:
    rule = {
        "name": "signed",
        "match": {"any": [{"resources": {"kinds": ["*"]}}]},
        "validate": {
            "failureAction": action,
            "manifests": {"attestors": list(sets) or [keys(KEY)], **manifests},
        },
    }
    body = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"background": False, "rules": [rule]},
    }
    loaded = load_documents(yaml.safe_dump(body), "policy.yaml")
    assert not loaded.problems
    return lictor.Engine(compile_documents([each.record for each in loaded.policies]))


def service(**spec) -> dict:
    made = {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": made}


def encode(data: bytes) -> str:
    return b64encode(data).decode()


def annotate(body: dict, **notes: str) -> dict:
    known = body["metadata"].get("annotations", {})
    added = {f"{DOMAIN}/{name}": text for name, text in notes.items()}
    return {**body, "metadata": {**body["metadata"], "annotations": {**known, **added}}}


def sign(body: dict, *signers, payload: bytes | None = None) -> dict:
    """The resource with its message and a signature of each key."""
    message = yaml.safe_dump(body).encode() if payload is None else payload
    signatures = {
        f"signature{f'_{index}' if index else ''}": encode(key.sign(message, ec.ECDSA(SHA256())))
        for index, key in enumerate(signers or (KEY,))
    }
    return annotate(body, message=encode(gzip.compress(message)), **signatures)


def judge(resource, *sets, **manifests) -> tuple[str, str]:
    (result,) = engine(*sets, **manifests).evaluate(resource).results
    return str(result.status), result.message


# --- the answer and its words


def test_a_signed_resource_passes():
    assert judge(sign(service())) == (
        "pass",
        "verified manifest signatures; manifest verification succeeded; verifiedCount 1; "
        "requiredCount 1; message singed by a valid signer: ",
    )


def test_no_signature_at_all():
    where = ".attestors[0].entries[0].keys: YAML manifest not found for this resource: message"
    assert judge(service()) == (
        "fail",
        f"manifest verification failed; verifiedCount 0; requiredCount 1; message {where} not found",
    )


def test_a_changed_resource_fails_and_says_where():
    changed = {**sign(service()), "spec": service(ports=[{"port": 81}])["spec"]}
    (result,) = engine().evaluate(changed).results
    assert result.message.endswith(
        ".keys: failed to verify signature. diff found; "
        '{"items":[{"key":"spec.ports.0.port","values":{"after":81,"before":80}}]}'
    )
    failure = result.failure
    assert (failure.path, failure.expected, failure.found) == ("spec.ports.0.port", 80, 81)


def test_what_a_secret_holds_is_not_told():
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "b2xk"}}
    changed = {**sign(body), "data": {"a": "bmV3", "b": "bmV3"}}
    (result,) = engine().evaluate(changed).results
    assert result.status is lictor.Status.FAIL
    assert "data.a" in result.message
    told = f"{result.message} {result.failure}"
    assert "b2xk" not in told
    assert "bmV3" not in told


def test_another_key_is_an_error():
    tried = f"[publickey 1/1] [signature 1/1] error: cosign.VerifyBlobCmd.Exec() returned an error: {INVALID}"
    assert judge(sign(service(), OTHER)) == (
        "error",
        "error occurred during manifest verification: .attestors[0].entries[0].keys: failed to "
        f'verify signature: verification failed for 1 signature. all trials: ["{tried}"]',
    )


@pytest.mark.parametrize(
    ("resource", "status", "words"),
    [
        (annotate(service(), signature="AAAA"), "fail", "message not found"),
        (annotate(service(), message=encode(yaml.safe_dump(service()).encode())), "fail", "signature not found"),
        (annotate(service(), message="a!b", signature="AAAA"), "error", "illegal base64 data at input byte 1"),
        (annotate(service(), message="AAA", signature="AAAA"), "error", "illegal base64 data at input byte 0"),
        (annotate(service(), message="", signature="AAAA"), "error", "verification failed for 1 signature"),
        (annotate(service(), message=encode(b"\0\1"), signature="AAAA"), "error", "verification failed"),
        (sign(service(), payload=b""), "error", "gzip.NewReader() failed"),
        (sign(service(), payload=b"\0\1"), "error", "gzip.NewReader() failed"),
        (sign(service(), payload=gzip.compress(b"x" * 600)), "error", "tarReader.Next() failed"),
        (sign(service(), payload=b"hello"), "fail", "failed to find a YAML manifest in the gzipped message"),
        (annotate(sign(service()), signature=""), "error", "missing flag '--signature'"),
        (annotate(sign(service()), signature="%%%"), "error", "Invalid IEEE_P1363"),
        (annotate(sign(service()), signature="\ud800"), "error", "verification failed"),
        (annotate(sign(service()), bundle="AAAA"), "error", "verification failed for 1 signature"),
        (annotate(sign(service()), certificate="AAAA"), "error", "verification failed for 1 signature"),
        (annotate(sign(service()), resourceBundleRef="r.io/m:1"), "error", "no registry available"),
        (annotate(sign(service()), certificate="", bundle="", resourceBundleRef=""), "pass", ""),
        # With one annotation that is not a text there are none at all.
        (annotate(sign(service()), other=1), "fail", "message not found"),
        ({**service(), "metadata": {"name": "web", "annotations": ["a"]}}, "fail", "message not found"),
        ({**service(), "metadata": "web"}, "fail", "message not found"),
        (sign(service(), payload=yaml.safe_dump({**service(), "kind": "Pod"}).encode()), "fail", "failed to find"),
        (sign(service(), payload=yaml.safe_dump({**service(), "apiVersion": "x/v1"}).encode()), "fail", "diff found"),
        (sign(service(), payload=b'{"kind": 7}'), "fail", "failed to find"),
        (sign(service(), payload=b"null"), "fail", "failed to find"),
        (sign(service(), payload=b"kind: Service\nspec: 1"), "fail", "diff found"),
        (sign(service(), payload=b"kind: Service\nmetadata: [1]"), "fail", "diff found"),
        (sign(service(), payload=b"a: &a [*a]"), "error", "failed to read YAMLs"),
        (sign(service(), payload=b"\xff\xfe"), "error", "failed to read YAMLs"),
        (sign(service(), payload=b"[" * 3000), "error", "failed to read YAMLs"),
    ],
)  # fmt: skip
def test_odd_annotations(resource, status, words):
    answer, message = judge(resource)
    assert (answer, words in message) == (status, True), message


@pytest.mark.parametrize("extra", [float("nan"), 10**400, b"bytes", {1: {2: 3}}, object()])
def test_values_that_are_no_json_never_pass(extra):
    assert judge({**sign(service()), "spec": service(extra=extra)["spec"]})[0] in ("fail", "error")


def test_deep_nesting_is_an_error():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    assert judge({**sign(service()), "spec": deep})[0] == "error"


# --- who signed


@pytest.mark.parametrize(
    ("signers", "sets", "status"),
    [
        ((KEY, OTHER), [keys(KEY, OTHER)], "pass"),
        ((OTHER, KEY), [keys(KEY, OTHER)], "pass"),
        ((KEY,), [keys(KEY, OTHER)], "error"),
        ((KEY,), [keys(KEY, OTHER, count=1)], "pass"),
        ((OTHER,), [keys(KEY, OTHER, count=1)], "pass"),
        ((KEY, OTHER), [keys(KEY, OTHER, count=3)], "fail"),
        ((OTHER,), [keys(pem(KEY) + pem(OTHER), count=1)], "pass"),
        ((OTHER,), [keys(pem(KEY) + pem(OTHER))], "error"),
        ((KEY, OTHER), [keys(KEY), keys(OTHER)], "pass"),
        ((KEY,), [keys(KEY), keys(OTHER)], "error"),
        ((KEY,), [{"entries": []}], "fail"),
        ((KEY,), [{"entries": [{"attestor": keys(KEY)}]}], "pass"),
        ((OTHER,), [{"entries": [{"attestor": keys(KEY)}]}], "error"),
        ((OTHER,), [{"count": 1, "entries": [{"attestor": keys(KEY)}, {"attestor": keys(OTHER)}]}], "pass"),
        ((KEY,), [keys("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----")], "error"),
        ((KEY,), [keys("k8s://shop/key")], "error"),
        ((KEY,), [keys("")], "error"),
        ((KEY,), [keys("-----BEGIN PGP PUBLIC KEY BLOCK-----\n-----END PGP PUBLIC KEY BLOCK-----")], "error"),
        ((KEY,), [{"entries": [{}]}], "error"),
        ((KEY,), [{"entries": [{"keyless": {"subject": "a", "issuer": "b"}}]}], "error"),
        ((KEY,), [{"entries": [{"certificates": {"cert": "a"}}]}], "error"),
        ((KEY,), [{"entries": [{"keys": {"kms": "awskms://a"}}]}], "error"),
        ((KEY,), [{"entries": [{"keys": {"publicKeys": pem(KEY), "secret": {"name": "a", "namespace": "b"}}}]}], "error"),
        ((KEY,), [{"entries": [{"keys": {"publicKeys": pem(KEY)}, "repository": "r.io"}]}], "error"),
        ((KEY,), [{"entries": [{"keys": {"publicKeys": pem(KEY)}, "annotations": {"a": "b"}}]}], "error"),
    ],
)  # fmt: skip
def test_attestors(signers, sets, status):
    assert judge(sign(service(), *signers), *sets)[0] == status


@pytest.mark.parametrize(
    "sets", [[{"count": -1, "entries": []}], [{"entries": [{"attestor": [1]}]}]]
)
def test_attestors_that_make_no_sense_are_errors(sets):
    assert judge(sign(service()), *sets)[0] == "error"


def test_without_attestors_nothing_passes():
    assert judge(sign(service()), attestors=[])[0] == "error"


def test_errors_of_all_entries_are_told():
    message = judge(sign(service(), OTHER), keys(KEY, KEY))[1]
    first, second = message.split("; .attestors")
    assert ".entries[0].keys: " in first
    assert second.startswith("[0].entries[1].keys: ")


# --- requests


def test_deletions_are_nobodys_concern():
    request = lictor.Request.of(service(), operation="DELETE")
    assert not engine().evaluate(request).results


def test_a_dry_run_is_let_through():
    request = lictor.Request(
        lictor.GroupVersionKind("", "v1", "Service"), service(), admission={"dryRun": True}
    )
    (result,) = engine().evaluate(request).results
    assert (result.status, result.message) == ("pass", "allowed because of DryRun request")


def test_a_violation_from_before_frees_nobody():
    request = lictor.Request.of(service(), operation="UPDATE", old=service())
    (result,) = engine().evaluate(request).results
    assert result.status is lictor.Status.FAIL


def test_what_a_dry_run_could_excuse_is_told():
    changed = {**sign(service()), "spec": service(extra=1)["spec"]}
    status, message = judge(changed, dryRun={"enable": True})
    assert status == "fail"
    assert message.endswith("; dryRun was not tried, as it needs a cluster")
    assert judge(sign(service()), dryRun={"enable": True})[0] == "pass"


# --- the message


def dump(*bodies: dict) -> bytes:
    return "---\n".join(yaml.safe_dump(body) for body in bodies).encode()


def other(name: str = "other", **more) -> dict:
    return {**service(), "metadata": {"name": name, **more}}


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (dump(other(), {**service(), "kind": "Pod"}, service()), "pass"),
        (b"---\n" + dump(service()), "pass"),
        (dump(other()) + b"--- # next\n" + dump(service()), "pass"),
        (dump(other()) + b"--- next\n" + dump(service()), "error"),
        (dump(service()).replace(b"\n", b"\r\n"), "pass"),
        (dump(service()) + b"---\n{ [\n", "pass"),
        (dump(other()) + b"---\n{ [\n---\n" + dump(service()), "fail"),
        (b"{ [\n---\n" + dump(service()), "error"),
        # Of those with the right name, the one in the right namespace.
        (dump({**other("web", namespace="a"), "spec": {"x": 1}}, service()), "pass"),
        (dump(other()), "fail"),
    ],
)
def test_messages_with_several_manifests(payload, status):
    assert judge(sign(service(), payload=payload))[0] == status


def test_a_manifest_may_have_another_name_where_that_is_ignored():
    resource = sign(service(), payload=dump({**other(), "spec": {}}, other(), other("third")))
    assert judge(resource)[0] == "fail"
    assert judge(resource, ignoreFields=[{"fields": ["metadata.name"]}])[0] == "pass"


def test_a_small_message_that_is_huge_inside_is_an_error():
    bomb = zlib.compressobj(9, wbits=31)
    data = b"".join(bomb.compress(b"a" * (1 << 20)) for _ in range(64)) + bomb.flush()
    status, message = judge(annotate(service(), message=encode(data), signature="AAAA"))
    assert (status, "more than 4 MiB" in message) == ("error", True)


def test_a_bomb_within_a_message_is_an_error():
    inner = gzip.compress(b"\0" * (64 << 20))
    status, message = judge(sign(service(), payload=inner))
    assert (status, "more than 4 MiB" in message) == ("error", True)


def test_what_nobody_has_signed_is_not_read():
    long = b"kind: Service\nmetadata: {name: web}\na: [" + b"a," * 1_000_000 + b"a]"
    resource = annotate(service(), message=encode(gzip.compress(long)), signature="AAAA")
    start = time.process_time()
    assert judge(resource)[0] == "error"
    assert time.process_time() - start < 0.5


def test_a_resource_of_endless_paths_is_an_error():
    wide: dict = {str(number): "x" for number in range(1000)}
    for _ in range(300):
        wide = {"k" * 1000: wide}
    status, message = judge({**sign(service()), "spec": wide})
    assert (status, "too large" in message) == ("error", True)


def test_signatures_beyond_all_bounds_are_left_out():
    notes = {f"signature_{number}": "AAAA" for number in range(1, 1000)}
    assert "signature 64/64" in judge(annotate(sign(service(), OTHER), **notes))[1]


def test_a_message_in_very_many_pieces_is_an_error():
    data = gzip.compress(b"") * 10_000
    assert "pieces" in judge(annotate(service(), message=encode(data), signature="AAAA"))[1]


# --- differences


CONTAINERS = [{"name": "a", "image": "nginx"}, {"name": "b", "image": "ubuntu"}]
MOVED = [{"env": [{"name": "A"}]}, {}], [{}, {"env": [{"name": "A"}]}]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 2**53 + 1}, {"a": 2**53}, []),
        ({"a": 1}, {"a": 2}, [("a", 1, 2)]),
        ({"a": 1}, {"a": "1"}, [("a", "(type: float64) %!s(float64=1)", "(type: string) 1")]),
        ({"a": 1}, {"a": True}, [("a", "(type: float64) %!s(float64=1)", "(type: bool) %!s(bool=true)")]),
        ({}, {"a": 0}, [("a", None, 0)]),
        ({}, {"a": False}, [("a", None, False)]),
        ({}, {"a": {}, "b": [], "c": None, "d": [{}]}, []),
        ({}, {"a": ""}, []),
        ({"a": ""}, {}, []),
        ({"a": ""}, {"a": "x"}, [("a", "", "x")]),
        ({"a": "x"}, {"a": {"b": "x"}}, [("a", "x", None), ("a.b", None, "x")]),
        ({"b": 1, "a": 1}, {}, [("a", 1, None), ("b", 1, None)]),
        ({"image": "nginx"}, {"image": "docker.io/nginx"}, []),
        ({"image": "nginx"}, {"image": "nginx:latest"}, []),
        ({"image": "nginx"}, {"image": "docker.io/nginx:latest"}, [("image", "nginx", "docker.io/nginx:latest")]),
        ({"image": "nginx:latest"}, {"image": "nginx"}, [("image", "nginx:latest", "nginx")]),
        ({"picture": "nginx"}, {"picture": "nginx:latest"}, [("picture", "nginx", "nginx:latest")]),
        ({"c": MOVED[0]}, {"c": MOVED[1]}, []),
        ({"c": [1, 2]}, {"c": [2, 1]}, [("c.0", 1, 2), ("c.1", 2, 1)]),
        ({"c": CONTAINERS[:1]}, {"c": CONTAINERS}, [("c.1.image", None, "ubuntu"), ("c.1.name", None, "b")]),
        ({"c": [{"x": "v"}]}, {"c": [{}], "d": [{"x": "v"}]}, [("c.0.x", "v", None), ("d.0.x", None, "v")]),
        ({"c": [{"x": 1}, {}]}, {"c": [{}, {"x": True}]}, [("c.0.x", 1, None), ("c.1.x", None, True)]),
    ],
)  # fmt: skip
def test_differences(before, after, expected):
    found = find_differences(before, after)
    assert [(each.key, each.before, each.after) for each in found] == expected


def test_two_fields_with_one_path_are_an_error():
    with pytest.raises(EvaluationError, match=r"two fields have the path a\.b"):
        flatten({"a": {"b": 1}, "a.b": 2})


@pytest.mark.parametrize(
    ("field", "objects", "key", "ignored"),
    [
        ("spec.x", None, "spec.x", True),
        ("spec.x", None, "spec.x.y.z", True),
        ("spec.x", None, "spec.xyz", True),
        ("spec.x", None, "spec.y", False),
        ("spec.*.x", None, "spec.a.b.x", True),
        # Wherever it stands: a path is a regular expression.
        ("x.y", None, "spec.x.y", True),
        ("x.y", None, "spec.x-y", True),
        ("x(", None, "spec.x(", False),
        ("", None, "spec.x", True),
        ("spec.x", [{"kind": "Service"}], "spec.x", True),
        ("spec.x", [{"kind": "Pod"}], "spec.x", False),
        ("spec.x", [{"kind": "Pod"}, {"kind": "Ser*"}], "spec.x", True),
        ("spec.x", [{"kind": "Pod, Service"}], "spec.x", True),
        ("spec.x", [{"kind": "Service", "name": "db"}], "spec.x", False),
        ("spec.x", [{"name": "we*b"}], "spec.x", False),
        ("spec.x", [{"group": "-", "version": "v1", "namespace": "-"}], "spec.x", True),
        ("spec.x", [], "spec.x", True),
        ("other", None, "status.conditions.0", True),
        ("other", None, "metadata.uid", True),
        ("other", None, "spec.clusterIP", True),
        ("other", None, "spec.tolerations.0.key", False),
        ("other", None, "metadata.annotations.a.dev/signature_1", True),
        ("other", None, "metadata.annotations.cosign.sigstore.dev/message", True),
        ("other", None, "metadata.annotations.b.dev/message", False),
        ("other", None, "metadata.labels.app", False),
    ],
)
def test_ignored_fields(field, objects, key, ignored):
    ignores = compile_ignores([ManifestsIgnore((field,), objects)], "a.dev")
    assert ignores(service())(key) is ignored


@pytest.mark.parametrize("objects", ["Pod", [1], [{"kind": 1}]])
def test_objects_of_another_shape_are_errors(objects):
    ignored = [{"fields": ["a"], "objects": objects}]
    assert judge(sign(service()), ignoreFields=ignored)[0] == "error"
