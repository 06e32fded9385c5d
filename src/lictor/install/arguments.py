"""Values of the chart -> the command lines of the containers."""

from collections.abc import Mapping
from typing import Final

import msgspec

from lictor.core.raw import Json, JsonObject
from lictor.install.placeholders import ArgumentList
from lictor.install.values import find_value
from lictor.kubernetes.flags import Flags

# Which value each flag has: `C.` is the controller that the container belongs to. A flag is given
# only where its value is not the program's own default.
FLAG_VALUES: Final[Mapping[str, str]] = {
    "admissionReports": "features.admissionReports.enabled",
    "aggregateReports": "features.aggregateReports.enabled",
    "allowInsecureRegistry": "features.registryClient.allowInsecure",
    "apiCallTimeout": "features.globalContext.apiCallTimeout",
    "autoUpdateWebhooks": "features.autoUpdateWebhooks.enabled",
    "backgroundScan": "features.backgroundScan.enabled",
    "backgroundScanInterval": "features.backgroundScan.backgroundScanInterval",
    "caSecretName": "admissionController.caSecretName",
    "deprecationWarnings": "features.deprecationWarnings.enabled",
    "disableMetrics": "C.metering.disabled",
    "dumpPatches": "features.dumpPatches.enabled",
    "dumpPayload": "features.dumpPayload.enabled",
    "enableConfigMapCaching": "features.configMapCaching.enabled",
    "enablePolicyException": "features.policyExceptions.enabled",
    "enableTracing": "C.tracing.enabled",
    "enableTuf": "features.tuf.enabled",
    "exceptionNamespace": "features.policyExceptions.namespace",
    "forceFailurePolicyIgnore": "features.forceFailurePolicyIgnore.enabled",
    "generateMutatingAdmissionPolicy": "features.generateMutatingAdmissionPolicy.enabled",
    "generateValidatingAdmissionPolicy": "features.generateValidatingAdmissionPolicy.enabled",
    "imagePullSecrets": "existingImagePullSecrets",
    "loggingFormat": "features.logging.format",
    "maxAPICallResponseLength": "features.globalContext.maxApiCallResponseLength",
    "maxAdmissionReports": (
        "admissionController.featuresOverride.admissionReports.backPressureThreshold"
    ),
    "maxGlobalContextEntries": "features.globalContext.maxGlobalContextEntries",
    "metricsPort": "C.metering.port",
    "mutatingAdmissionPolicyReports": "features.mutatingAdmissionPolicyReports.enabled",
    "omitEvents": "features.omitEvents.eventTypes",
    "openreportsEnabled": "openreports.enabled",
    "policyReports": "features.policyReports.enabled",
    "protectManagedResources": "features.protectManagedResources.enabled",
    "registryCredentialHelpers": "features.registryClient.credentialHelpers",
    "skipResourceFilters": "features.backgroundScan.skipResourceFilters",
    "tlsKeyAlgorithm": "admissionController.tlsKeyAlgorithm",
    "tlsSecretName": "admissionController.tlsSecretName",
    "tracingAddress": "C.tracing.address",
    "tracingCreds": "C.tracing.creds",
    "tracingPort": "C.tracing.port",
    "ttlReconciliationInterval": "features.ttlController.reconciliationInterval",
    "tufMirror": "features.tuf.mirror",
    "tufRoot": "features.tuf.root",
    "tufRootRaw": "features.tuf.rootRaw",
    "v": "features.logging.verbosity",
    "validatingAdmissionPolicyReports": "features.validatingAdmissionPolicyReports.enabled",
    "webhookServerPort": "admissionController.webhookServer.port",
}
# In the order of the program's own default.
REPORTED: Final = ("validate", "mutate", "mutateExisting", "generate", "imageVerify")
_REPORTING = "features.reporting"
# An empty list would mean that all are reported.
NOTHING: Final = "none"


def list_usual_flags() -> dict[str, str]:
    """What each flag is where it is not given."""
    return {f.encode_name: write_text(f.default) for f in msgspec.structs.fields(Flags)}


def build_flags(values: JsonObject, part: ArgumentList) -> dict[str, str]:
    """The flags that follow from values, without those that people gave by name."""
    usual = list_usual_flags()
    flags: dict[str, str] = {}
    for name, path in FLAG_VALUES.items():
        text = write_text(find_value(values, path.replace("C.", f"{part.controller}.", 1)))
        if text and text != usual[name]:
            flags[name] = text
    reported = [name for name in REPORTED if find_value(values, f"{_REPORTING}.{name}")]
    if len(reported) < len(REPORTED):
        flags["enableReporting"] = ",".join(reported) or NOTHING
    period = find_value(values, f"{part.controller}.resyncPeriod")
    flags["resyncPeriod"] = write_text(period or find_value(values, "global.resyncPeriod"))
    if flags["resyncPeriod"] == usual["resyncPeriod"]:
        del flags["resyncPeriod"]
    return flags


def add_extra_flags(
    flags: Mapping[str, str], values: JsonObject, part: ArgumentList
) -> dict[str, str]:
    """The flags, and those that people gave by name: an empty one removes a flag."""
    extra = find_value(values, f"{part.container}.extraArgs") or {}
    whole = {**flags, **{name: write_text(value) for name, value in extra.items()}}
    return {name: text for name, text in whole.items() if text}


def write_text(value: Json) -> str:
    """A value as a flag or a setting has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(write_text, value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
