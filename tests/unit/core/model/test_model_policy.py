"""The names of the records' fields are API: the ones that no rule of spelling gives stand here."""

import msgspec
import pytest

from lictor.cli.inputs.records import Check, Test, Values
from lictor.core.model import matching, policy, signatures


def names_of(record):
    return {field.name: field.encode_name for field in msgspec.structs.fields(record)}


@pytest.mark.parametrize(
    ("record", "attribute", "name"),
    [
        (policy.Mutate, "patches_json6902", "patchesJson6902"),
        (policy.ForEachMutate, "patches_json6902", "patchesJson6902"),
        (policy.Mutate, "patch_strategic_merge", "patchStrategicMerge"),
        (matching.ContextApiCall, "url_path", "urlPath"),
        (matching.ContextApiCall, "jmes_path", "jmesPath"),
        (matching.ServiceCall, "ca_bundle", "caBundle"),
        (policy.Spec, "use_server_side_apply", "useServerSideApply"),
        (policy.Spec, "validation_failure_action_overrides", "validationFailureActionOverrides"),
        (policy.VerifyImages, "cosign_oci11", "cosignOCI11"),
        (signatures.CtLog, "ignore_sct", "ignoreSCT"),
        (signatures.CtLog, "tsa_cert_chain", "tsaCertChain"),
        (signatures.Keyless, "issuer_reg_exp", "issuerRegExp"),
        (signatures.Rekor, "ignore_tlog", "ignoreTlog"),
        (policy.Validate, "assert_", "assert"),
        (policy.Validate, "any_pattern", "anyPattern"),
        (policy.Validate, "foreach", "foreach"),
        (policy.Rule, "cel_preconditions", "celPreconditions"),
        (matching.Match, "cluster_roles", "clusterRoles"),
        (Check, "assert_", "assert"),
        (Test, "userinfo", "userinfo"),
        (Test, "json_payload", "jsonPayload"),
        (Values, "namespace_selector", "namespaceSelector"),
    ],
)
def test_name(record, attribute, name):
    assert names_of(record)[attribute] == name


@pytest.mark.parametrize(
    ("body", "attribute", "value"),
    [
        ({}, "admission", True),
        ({}, "background", True),
        ({}, "validation_failure_action", "Audit"),
        ({}, "apply_rules", "All"),
        ({"background": False}, "background", False),
    ],
)
def test_spec_defaults(body, attribute, value):
    assert getattr(msgspec.convert(body, policy.Spec), attribute) == value


def test_verification_is_on_by_default():
    image = msgspec.convert({}, policy.VerifyImages)
    assert all((image.mutate_digest, image.verify_digest, image.required, image.use_cache))


def test_records_are_frozen():
    with pytest.raises(AttributeError):
        matching.Match().any = ()  # type: ignore[misc]
