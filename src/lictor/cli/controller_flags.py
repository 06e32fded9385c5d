"""The flags of the controllers: what each means, and how the command line reads them."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path

import click
import msgspec

from lictor.cli.flag_command import FlagCommand
from lictor.core.errors import UsageError
from lictor.core.raw import Json
from lictor.kubernetes.flags import (
    CHOICES,
    FLAG_FIELDS,
    IGNORED,
    REASONS,
    Flags,
    is_duration,
    read_flag_value,
)
from lictor.kubernetes.names import Names

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class ControllerCommand(FlagCommand):
    """A command whose flags may have one dash, as in Go; warns of flags that have no effect."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_read_go_style(args)))


def with_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command all flags of the controllers; its function gets `flags` and `names`.

    For commands of the class ControllerCommand.
    """

    @wraps(function)
    def call(**given: Json) -> None:
        fields = {field.name: given.pop(field.name) for field in FLAG_FIELDS.values()}
        names = Names(prefix=given.pop("prefix"), namespace=given.pop("namespace"))
        function(flags=Flags(**fields), names=names, **given)

    options = [_build_option(name) for name in sorted(FLAG_FIELDS, key=str.lower)]
    for option in reversed([*_build_name_options(), *options]):
        option(call)
    return call


def _build_name_options() -> list[Callable[..., Json]]:
    return [
        click.option(
            "--namespace",
            default=_find_namespace,
            show_default="the Pod's own, or lictor",
            help="Namespace of this installation.",
        ),
        click.option(
            "--prefix",
            default="lictor",
            show_default=True,
            help="Prefix of the names of this installation's objects.",
        ),
    ]


def _build_option(name: str) -> Callable[..., Json]:
    field = FLAG_FIELDS[name]
    more: dict[str, Json] = {"show_default": field.default != ""}
    if field.type is bool:
        more |= {"is_flag": True, "flag_value": True}
    elif field.name in CHOICES:
        more["type"] = click.Choice(CHOICES[field.name], case_sensitive=False)
    elif field.type is int:
        more["type"] = click.IntRange(min=0)
    elif is_duration(field.default):
        more["callback"] = _check_duration
        more["metavar"] = "DURATION"
    return click.option(
        f"--{name}", field.name, default=field.default, help=WORDS[field.name], **more
    )


def _check_duration(_: click.Context, parameter: click.Parameter, text: str) -> str:
    if is_duration(text):
        return text
    name = parameter.opts[0]
    raise click.UsageError(
        f'invalid argument "{text}" for "{name}" flag: write a duration such as 30s or 15m'
    )


def _find_namespace() -> str:
    for variable in ("POD_NAMESPACE", "KYVERNO_NAMESPACE"):
        if os.environ.get(variable):
            return os.environ[variable]
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "lictor"
    except OSError:
        return "lictor"


def _read_go_style(args: Sequence[str]) -> Iterator[str]:
    """One dash becomes two, and flags that mean nothing here are left out with a warning."""
    waiting = iter(args)
    for argument in waiting:
        if argument == "--":
            yield argument
            yield from waiting
            return
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name not in FLAG_FIELDS | IGNORED:
            yield argument
        elif name in IGNORED:
            if not equals and not IGNORED[name]:
                next(waiting, None)
            click.echo(
                f"Warning: --{name} is accepted but has no effect: {REASONS[name]}", err=True
            )
        else:
            yield f"--{name}{equals}{value}"


WORDS = {
    "kubeconfig": "Kubeconfig file; not needed inside a Pod.",
    "context": "Which context of the kubeconfig to use.",
    "resync_period": "How often every loop looks at everything again, changed or not.",
    "leader_election_retry_period": "How often the leader renews its lease of six such periods.",
    "logging_format": "Log lines as text or json.",
    "v": "Verbosity of logs: 2 is usual, 4 and more is for debugging.",
    "metrics_port": "Port of the metrics.",
    "metrics_host": "Address on which the metrics are served; empty means all.",
    "disable_metrics": "Serve no metrics.",
    "enable_tracing": "Send traces to an OpenTelemetry collector.",
    "tracing_address": "Host of the collector.",
    "tracing_port": "Port of the collector.",
    "tracing_protocol": "How spans are sent: OTLP by grpc or http.",
    "tracing_creds": "Secret with the certificate authority of the collector.",
    "enable_policy_exception": "Apply PolicyExceptions.",
    "exception_namespace": "Namespace whose PolicyExceptions apply; * means all.",
    "enable_config_map_caching": "Keep the ConfigMaps that policies read in a cache.",
    "enable_reporting": "Kinds of rules that are reported, with commas.",
    "allowed_results": "Results that are reported, with commas.",
    "openreports_enabled": "Write reports of the group openreports.io.",
    "deprecation_warnings": "Warn about classic kinds, which Kyverno deprecates.",
    "max_global_context_entries": "GlobalContextEntries that are kept; 0 means no limit.",
    "allow_http_in_namespaced_policies": "Let namespaced policies make HTTP calls.",
    "allow_post_resources": (
        "Resources that policies may create by POST while a request is admitted, with commas."
    ),
    "http_blocklist": "Where policies may not make HTTP calls to, with commas.",
    "http_allowlist": "Where policies may make HTTP calls to, with commas; empty means no limit.",
    "max_api_call_response_length": "Bytes that a policy's API call may return.",
    "api_call_timeout": "How long a policy's API call may take.",
    "allow_insecure_registry": "Let every registry do without TLS or with any certificate.",
    "insecure_registries": "Registries without TLS or with any certificate, with commas.",
    "image_pull_secrets": "Secrets with credentials for registries, with commas.",
    "registry_credential_helpers": "Where else credentials for registries come from, with commas.",
    "registry_mirrors": "Where images are looked for first: REGISTRY=MIRROR/PATH, with commas.",
    "registry_ca": "File with certificate authorities of registries, besides the system's.",
    "module_folders": "Folders of modules that policies in Wasm may name by file://, with commas.",
    "registry_allowlist": "Registries that are allowed at any address.",
    "registry_blocklist": "Networks and hosts of registries that are never contacted.",
    "enable_tuf": "Use the trust root of a private Sigstore, from tufMirror.",
    "tuf_mirror": "URL of the TUF repository of a Sigstore; empty means the public one.",
    "tuf_root": "File with the first root metadata (root.json) of that TUF repository.",
    "tuf_root_raw": "The first root metadata itself, in place of a file.",
    "image_verify_cache_enabled": "Keep what was found out about images.",
    "image_verify_cache_max_size": "The most outcomes that are kept, in each process.",
    "image_verify_cache_ttl_duration": "How long an image counts as verified.",
    "omit_events": "Reasons of events that are not written, with commas.",
    "max_queued_events": "Events that wait to be written; those beyond are dropped and counted.",
    "events_rate_limit_qps": "Events a second that are written.",
    "events_rate_limit_burst": "Events that are written at once.",
    "client_rate_limit_qps": "Requests a second of controllers to the API server; 0: no limit.",
    "client_rate_limit_burst": "Requests of controllers to the API server at once.",
    "webhook_timeout": "Seconds that the API server waits for an answer.",
    "auto_update_webhooks": "Compute webhook rules from the policies; false: all kinds, always.",
    "server_ip": "Address of the server where webhooks do not go to a Service.",
    "service_port": "Port of the Service that webhooks go to.",
    "webhook_server_port": "Port of the webhook server.",
    "webhook_server_host": "Address on which the webhook server listens; empty means all.",
    "memory_limit": "Memory of all webhook processes, such as 512Mi; empty: the container's limit.",
    "shutdown_delay": "How long the webhook server goes on answering, not ready, after SIGTERM.",
    "admission_reports": "Report what admission finds.",
    "max_admission_reports": "Reports of admission that may wait to be aggregated.",
    "max_audit_workers": "Requests that Audit rules evaluate at the same time, after the response.",
    "max_audit_capacity": "Requests that may wait for Audit rules.",
    "dump_payload": "Log requests whole, without what Secrets hold.",
    "dump_patches": "Log the patches of requests.",
    "force_failure_policy_ignore": "Treat every failurePolicy as Ignore.",
    "protect_managed_resources": "Refuse changes by others to what a policy generated.",
    "generate_validating_admission_policy": "Make ValidatingAdmissionPolicies from policies.",
    "generate_mutating_admission_policy": "Make MutatingAdmissionPolicies from policies.",
    "renew_before": "How long before they expire certificates are renewed.",
    "ca_secret_name": "Secret of the certificate authority; empty means the usual name.",
    "tls_secret_name": "Secret of the serving certificate; empty means the usual name.",
    "tls_key_algorithm": "RSA, ECDSA or Ed25519: the keys of generated certificates.",
    "background_service_account_name": "Service account of the background controller.",
    "reports_service_account_name": "Service account of the reports controller.",
    "cleanup_service_account_name": "Service account of the cleanup controller.",
    "gen_workers": "Update requests that are worked on at the same time.",
    "max_background_reports": "Reports of background work that may wait to be aggregated.",
    "background_scan": "Evaluate policies on objects that are in the cluster already.",
    "background_scan_interval": "How often all objects are evaluated again.",
    "aggregate_reports": "As policyReports; there is no second step that could be left out.",
    "policy_reports": "Write policy reports.",
    "validating_admission_policy_reports": "Report about ValidatingAdmissionPolicies.",
    "mutating_admission_policy_reports": "Report about MutatingAdmissionPolicies.",
    "skip_resource_filters": "Also scan what resource filters exclude from admission.",
    "ttl_reconciliation_interval": "How often objects with a time to live are checked.",
    "auto_delete_webhooks": "Remove the webhook configurations at shutdown.",
}


def read_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE`, each once; the last one counts."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def read_flags(texts: Iterable[str], own: Collection[str]) -> dict[str, str]:
    """Flags that the controllers know and will take; `own` are those that the command sets."""
    pairs = read_pairs("--flag", texts)
    for name, value in pairs.items():
        if name in own:
            raise UsageError(f"--flag {name}: cannot be set here")
        if name not in FLAG_FIELDS and name not in IGNORED:
            raise UsageError(_describe_unknown(name))
        if name in FLAG_FIELDS:
            read_flag_value(name, value)
    return pairs


def change_flags(flags: Flags, pairs: Mapping[str, str]) -> Flags:
    """The same flags but for those that were given, which `read_flags` has checked."""
    changes = {
        FLAG_FIELDS[name].name: read_flag_value(name, pairs[name])
        for name in pairs
        if name in FLAG_FIELDS
    }
    return msgspec.structs.replace(flags, **changes)


def _describe_unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, FLAG_FIELDS, n=1)
    return f"--flag {name}: no such flag" + (f"; did you mean {close[0]}?" if close else "")
