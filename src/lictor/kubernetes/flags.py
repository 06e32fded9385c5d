"""The flags of the controllers, with Kyverno's names."""

import msgspec

from lictor.core.errors import UsageError
from lictor.core.lang.duration import parse_duration
from lictor.core.raw import Json

# As Go parses them.
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


class Flags(msgspec.Struct, frozen=True, rename="camel"):
    """One field per flag; the command line is generated from these fields.

    A duration is text such as `15m`; a list is text with commas.
    """

    # Common to all controllers.
    kubeconfig: str = ""
    context: str = ""
    resync_period: str = "15m"
    leader_election_retry_period: str = "2s"
    logging_format: str = "text"
    v: int = 2
    metrics_port: int = 8000
    metrics_host: str = ""
    disable_metrics: bool = False
    enable_tracing: bool = False
    tracing_address: str = ""
    tracing_port: str = "4317"
    # Kyverno has no such flag: it supports gRPC only.
    tracing_protocol: str = "grpc"
    tracing_creds: str = ""
    enable_policy_exception: bool = False
    exception_namespace: str = ""
    enable_config_map_caching: bool = True
    enable_reporting: str = "validate,mutate,mutateExisting,generate,imageVerify"
    allowed_results: str = "pass,fail,error,warn,skip"
    openreports_enabled: bool = False
    # Kyverno has no such flag: it always warns about classic kinds.
    deprecation_warnings: bool = True
    max_global_context_entries: int = 0
    allow_http_in_namespaced_policies: bool = msgspec.field(
        default=False, name="allowHTTPInNamespacedPolicies"
    )
    allow_post_resources: str = ""
    http_blocklist: str = ""
    http_allowlist: str = ""
    max_api_call_response_length: int = msgspec.field(
        default=10_000_000, name="maxAPICallResponseLength"
    )
    api_call_timeout: str = msgspec.field(default="30s", name="apiCallTimeout")
    # Registries.
    allow_insecure_registry: bool = False
    insecure_registries: str = ""
    image_pull_secrets: str = ""
    registry_credential_helpers: str = "default,google,amazon,azure,github"
    registry_mirrors: str = ""
    registry_ca: str = msgspec.field(default="", name="registryCA")
    # Kyverno has no such flag: folders of modules for Wasm policies (`file://`).
    module_folders: str = ""
    registry_allowlist: str = ""
    registry_blocklist: str = ""
    enable_tuf: bool = False
    tuf_mirror: str = ""
    tuf_root: str = ""
    tuf_root_raw: str = ""
    image_verify_cache_enabled: bool = True
    image_verify_cache_max_size: int = 1000
    image_verify_cache_ttl_duration: str = msgspec.field(
        default="60m", name="imageVerifyCacheTTLDuration"
    )
    omit_events: str = ""
    max_queued_events: int = 1000
    events_rate_limit_qps: int = msgspec.field(default=1000, name="eventsRateLimitQPS")
    events_rate_limit_burst: int = 2000
    # Of the controllers; requests that wait for an answer are not limited.
    client_rate_limit_qps: int = msgspec.field(default=300, name="clientRateLimitQPS")
    client_rate_limit_burst: int = 300
    # Admission.
    webhook_timeout: int = 10
    auto_update_webhooks: bool = True
    server_ip: str = msgspec.field(default="", name="serverIP")
    service_port: int = 443
    webhook_server_port: int = 9443
    webhook_server_host: str = ""
    shutdown_delay: str = "5s"
    memory_limit: str = ""
    admission_reports: bool = True
    max_admission_reports: int = 10_000
    max_audit_workers: int = 8
    max_audit_capacity: int = 1000
    dump_payload: bool = False
    dump_patches: bool = False
    force_failure_policy_ignore: bool = False
    protect_managed_resources: bool = False
    generate_validating_admission_policy: bool = True
    generate_mutating_admission_policy: bool = False
    renew_before: str = "360h"
    ca_secret_name: str = ""
    tls_secret_name: str = ""
    tls_key_algorithm: str = "RSA"
    background_service_account_name: str = ""
    reports_service_account_name: str = ""
    # Kyverno has no such flag: its cleanup controller uses its own service account.
    cleanup_service_account_name: str = ""
    # Background, reports and cleanup.
    gen_workers: int = 10
    max_background_reports: int = 10_000
    background_scan: bool = True
    background_scan_interval: str = "1h"
    aggregate_reports: bool = True
    policy_reports: bool = True
    validating_admission_policy_reports: bool = True
    mutating_admission_policy_reports: bool = False
    skip_resource_filters: bool = True
    ttl_reconciliation_interval: str = "1m"
    auto_delete_webhooks: bool = False


# Kyverno's flags that are not supported or not needed, by reason; and whether they are switches.
WITHOUT_EFFECT = {
    "metrics are for Prometheus, and served without TLS": {
        "exemplarFilter": False,
        "metricsCASecretName": False,
        "metricsKeyAlgorithm": False,
        "metricsRenewBefore": False,
        "metricsServerIP": False,
        "metricsTLSSecretName": False,
        "otelCollector": False,
        "otelConfig": False,
        "transportCreds": False,
    },
    "it is about the runtime of Go": {
        "autoMemLimitEnabled": True,
        "autoMemLimitRatio": False,
        "controllerRuntimeMetricsAddress": False,
        "profile": True,
        "profileAddress": False,
        "profilePort": False,
    },
    "how much is done at once follows from the replicas and from what the API server can take": {
        "aggregationWorkers": False,
        "backgroundScanWorkers": False,
    },
    "it is always on": {
        "autogenV2": True,
        "crdWatcher": True,
        "excludeBootstrapResources": True,
        "enableDeferredLoading": True,
        "enableGlobalContext": True,
        "reportsCRDsSanityChecks": True,
        "webhookRegistrationTimeout": False,
    },
    "the webhook server answers for cleanup policies too": {
        "cleanupServerHost": False,
        "cleanupServerPort": False,
    },
    "--tlsSecretName and --caSecretName name certificates of others, which are never renewed": {
        "disableCertManagerController": True,
    },
    "log lines go to standard error, without colour, times in UTC (--v, --loggingFormat)": {
        "disableLogColor": True,
        "enableCosignLogging": True,
        "loggingtsFormat": False,
        "add_dir_header": True,
        "alsologtostderr": True,
        "alsologtostderrthreshold": False,
        "legacy_stderr_threshold_behavior": True,
        "log_backtrace_at": False,
        "log_dir": False,
        "log_file": False,
        "log_file_max_size": False,
        "logtostderr": True,
        "one_output": True,
        "skip_headers": True,
        "skip_log_headers": True,
        "stderrthreshold": False,
        "vmodule": False,
    },
}
IGNORED = {name: switch for flags in WITHOUT_EFFECT.values() for name, switch in flags.items()}
REASONS = {name: reason for reason, flags in WITHOUT_EFFECT.items() for name in flags}

FLAG_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Flags)}
CHOICES = {
    "logging_format": ("text", "json"),
    "tls_key_algorithm": ("RSA", "ECDSA", "Ed25519"),
    "tracing_protocol": ("grpc", "http"),
}


def read_flag_value(name: str, text: str) -> Json:
    """The value of a flag from text; raises UsageError if it is invalid."""
    field = FLAG_FIELDS[name]
    if field.type is bool:
        if text not in _TRUE | _FALSE:
            raise UsageError(f"--flag {name}={text}: write true or false")
        return text in _TRUE
    if field.type is int:
        if not text.isdecimal():
            raise UsageError(f"--flag {name}={text}: write a number")
        return int(text)
    if is_duration(field.default) and not is_duration(text):
        raise UsageError(f"--flag {name}={text}: write a duration such as 30s or 15m")
    return _choose(name, text) if field.name in CHOICES else text


def _choose(name: str, text: str) -> str:
    choices = CHOICES[FLAG_FIELDS[name].name]
    for choice in choices:
        if choice.lower() == text.lower():
            return choice
    raise UsageError(f"--flag {name}={text}: write one of {', '.join(choices)}")


def is_duration(text: Json) -> bool:
    """Whether it is a duration in Go's notation."""
    try:
        return parse_duration(text) >= 0
    except ValueError:
        return False
