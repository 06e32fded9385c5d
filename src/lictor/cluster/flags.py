"""How the controllers are told to behave on their command line, under the names Kyverno uses."""

import msgspec


class Flags(msgspec.Struct, frozen=True, rename="camel"):
    """One field per flag; the command line is built from these fields.

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
    tracing_creds: str = ""
    enable_policy_exception: bool = False
    exception_namespace: str = ""
    enable_config_map_caching: bool = True
    enable_reporting: str = "validate,mutate,mutateExisting,generate,imageVerify"
    allowed_results: str = "pass,fail,error,warn,skip"
    openreports_enabled: bool = False
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
    # Kyverno has no such flag: its cleanup controller asks for itself.
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
