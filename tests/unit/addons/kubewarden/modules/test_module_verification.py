"""verification.yml: whose signatures a policy module must carry."""

import pytest
from cryptography import x509
from private_sigstore import ALICE, ISSUER, PrivateSigstore, Wish
from signing import (
    IN_TOTO,
    SIGNED,
    MemoryRegistries,
    make_key,
    make_payload,
    make_signature,
    make_statement,
    pem_of,
    push_bundle,
    push_image,
    push_layers,
)
from stored_signatures import store_bundle, store_signature

from lictor.addons.kubewarden.modules.module_verification import read_verification, verify_module
from lictor.core.errors import LoadError, LookupFailedError, SignatureRefusedError

GITHUB = "https://token.actions.githubusercontent.com"
KEYS = {"ours": make_key(), "theirs": make_key()}


@pytest.fixture(scope="module")
def sigstore() -> PrivateSigstore:
    return PrivateSigstore()


@pytest.fixture
def registries(sigstore) -> MemoryRegistries:
    return MemoryRegistries(trust_roots={"": sigstore.trusted_root()})


@pytest.fixture
def image(registries):
    return push_image(registries)


@pytest.fixture
def read(tmp_path):
    """Read a configuration; `$ours` and `$theirs` stand for keys."""

    def read_text(text: str):
        for name, key in KEYS.items():
            text = text.replace(f"${name}", '"' + pem_of(key).replace("\n", "\\n") + '"')
        (tmp_path / "verification.yml").write_text(text)
        return read_verification(str(tmp_path / "verification.yml"))

    return read_text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("allOf: [{kind: pubKey, key: $ours}]", None),
        ("apiVersion: v1\nallOf: [{kind: pubKey, owner: me, key: $ours}]", None),
        ("allOf: [{kind: pubKey, key: $ours, annotations: {env: prod}}]", None),
        ("allOf: [{kind: pubKey, key: $ours, annotations: {env: test}}]", "env"),
        ("allOf: [{kind: pubKey, key: $ours, annotations: {none: x}}]", "not signed"),
        ("allOf: [{kind: pubKey, key: $theirs}]", "missing signatures"),
        ("allOf: [{kind: pubKey, key: $ours}, {kind: pubKey, key: $theirs}]", "missing signatures"),
        ("allOf: [{kind: pubKey, key: zzz}]", "PEM is expected"),
        ("anyOf: {signatures: [{kind: pubKey, key: $theirs}, {kind: pubKey, key: $ours}]}", None),
        (
            "anyOf: {minimumMatches: 2,"
            " signatures: [{kind: pubKey, key: $ours}, {kind: pubKey, key: $theirs}]}",
            "needed 2, got 1",
        ),
        (
            "allOf: [{kind: pubKey, key: $ours}]\n"
            "anyOf: {signatures: [{kind: pubKey, key: $theirs}]}",
            "needed 1, got 0",
        ),
        (
            f"allOf: [{{kind: genericIssuer, issuer: {ISSUER}, subject: {{equal: {ALICE}}}}}]",
            "without a",
        ),
    ],
)
def test_keys(registries, image, read, text, reason) -> None:
    signature = make_signature(KEYS["ours"], make_payload(image, {"env": "prod"}))
    push_layers(registries, image, [signature])
    _judge(image, read(text), registries, reason)


def _judge(image, config, registries, reason: str | None) -> None:
    if reason is None:
        verify_module(image, config, registries)
        return
    with pytest.raises(SignatureRefusedError, match=reason):
        verify_module(image, config, registries)


WORKFLOW = "https://github.com/team/policies/.github/workflows/release.yml@refs/tags/v1"


@pytest.mark.parametrize("form", ["signature", "bundle"])
@pytest.mark.parametrize(
    ("rule", "subject", "issuer", "reason"),
    [
        (f"genericIssuer, issuer: {ISSUER}, subject: {{equal: {ALICE}}}", ALICE, ISSUER, None),
        (f"genericIssuer, issuer: {GITHUB}, subject: {{equal: {ALICE}}}", ALICE, ISSUER, "issuer"),
        (f"genericIssuer, issuer: {ISSUER}, subject: {{equal: bob@x}}", ALICE, ISSUER, "subject"),
        (
            f"genericIssuer, issuer: {ISSUER}, subject: {{urlPrefix: https://github.com/team}}",
            WORKFLOW,
            ISSUER,
            None,
        ),
        (
            f"genericIssuer, issuer: {ISSUER}, subject: {{urlPrefix: https://github.com/te}}",
            WORKFLOW,
            ISSUER,
            "subject",
        ),
        ("githubAction, owner: team", WORKFLOW, GITHUB, None),
        ("githubAction, owner: team, repo: policies", WORKFLOW, GITHUB, None),
        ("githubAction, owner: team, repo: polic", WORKFLOW, GITHUB, "subject"),
        ("githubAction, owner: tea", WORKFLOW, GITHUB, "subject"),
        ("githubAction, owner: team", WORKFLOW, ISSUER, "issuer"),
        (
            "githubAction, owner: team",
            "https://evil.example/https://github.com/team/policies/x",
            GITHUB,
            "subject",
        ),
    ],
)
def test_keyless(registries, image, read, sigstore, *, form, rule, subject, issuer, reason) -> None:
    kind = x509.RFC822Name if subject == ALICE else x509.UniformResourceIdentifier
    wish = Wish(issuer=issuer, names=(kind(subject),))
    if form == "signature":
        found = sigstore.sign(make_payload(image), wish)
        push_layers(registries, image, [store_signature(found)])
    else:
        statement = make_statement(image, {}, predicate_type=SIGNED)
        found = sigstore.sign(statement, wish, payload_type=IN_TOTO)
        push_bundle(registries, image, store_bundle(found))
    _judge(image, read(f"allOf: [{{kind: {rule}}}]"), registries, reason)


def test_a_key_that_says_it_is_in_a_log_must_be_there(registries, image, read, sigstore) -> None:
    """Kubewarden asks no log about keys; but what is written beside a signature must be true."""
    payload = make_payload(image)
    logged = store_signature(PrivateSigstore("strangers").sign(payload))
    bundle = logged.annotations["dev.sigstore.cosign/bundle"]
    signature = make_signature(KEYS["ours"], payload)
    signature.annotations["dev.sigstore.cosign/bundle"] = bundle
    push_layers(registries, image, [signature])
    with pytest.raises(SignatureRefusedError):
        verify_module(image, read("allOf: [{kind: pubKey, key: $ours}]"), registries)


def test_a_signature_of_another_artifact_does_not_count(registries, image, read) -> None:
    other = push_image(registries, "registry.test/other", "two")
    push_layers(registries, image, [make_signature(KEYS["ours"], make_payload(other))])
    with pytest.raises(SignatureRefusedError, match="made for the image"):
        verify_module(image, read("allOf: [{kind: pubKey, key: $ours}]"), registries)


def test_without_signatures_nothing_is_verified(registries, image, read) -> None:
    config = read("allOf: [{kind: pubKey, key: $ours}]")
    with pytest.raises(SignatureRefusedError, match="no signatures found"):
        verify_module(image, config, registries)
    registries.down = True
    with pytest.raises(LookupFailedError):
        verify_module(image, config, registries)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither allOf nor anyOf"),
        ("apiVersion: v1", "neither allOf nor anyOf"),
        # These two Kubewarden takes for "verified", whoever signed.
        ("allOf: []", "neither allOf nor anyOf"),
        (
            "anyOf: {minimumMatches: 0, signatures: [{kind: githubAction, owner: o}]}",
            "wants 0 of 1",
        ),
        (
            "anyOf: {minimumMatches: 3, signatures: [{kind: githubAction, owner: o}]}",
            "wants 3 of 1",
        ),
        ("anyOf: {signatures: []}", "neither"),
        ("apiVersion: v2\nallOf: [{kind: githubAction, owner: o}]", "apiVersion 'v2'"),
        ("allOf: [{kind: zzz}]", "Invalid value 'zzz'"),
        ("allOf: [{kind: githubAction}]", "owner"),
        ("allOf: [{kind: githubAction, owner: a/b}]", "name of an owner"),
        ("allOf: [{kind: githubAction, owner: o, repoo: r}]", "repoo"),
        ("anyoff: {}", "anyoff"),
        ("allOf: [{kind: genericIssuer, issuer: i, subject: {urlPrefix: zzz}}]", "no URL"),
        ("allOf: [{kind: genericIssuer, issuer: i, subject: {}}]", "equal or urlPrefix"),
        (
            "allOf: [{kind: genericIssuer, issuer: i, subject: {equal: a, urlPrefix: 'https://a/'}}]",
            "equal or urlPrefix",
        ),
        ("allOf: [{kind: genericIssuer, issuer: '', subject: {equal: a}}]", "wants an issuer"),
        ("[]", "Expected"),
        ("{", "verification.yml"),
    ],
)
def test_what_verifies_nothing_is_no_configuration(read, text, reason) -> None:
    with pytest.raises(LoadError, match=reason):
        read(text)
