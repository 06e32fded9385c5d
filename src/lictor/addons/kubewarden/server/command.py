"""`policy-server`: serves Kubewarden's policies as its policy-server does, with the same flags."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from lictor.cli.flag_command import FlagCommand
from lictor.core.errors import LoadError, UsageError
from lictor.core.raw import Json

if TYPE_CHECKING:
    from lictor.addons.kubewarden.server.options import PolicyServerOptions

_EXAMPLES = """\
# Policies of a file, plain HTTP
lictor policy-server --policies policies.yml

# In a Pod, with a certificate; a broken policy refuses its own requests only
lictor policy-server --cert-file tls.crt --key-file tls.key --continue-on-errors

# Modules from registries, which must be signed
lictor policy-server --sources-path sources.yml --verification-path verification.yml"""

_PREFIX = "KUBEWARDEN_"
_LEVELS = ("trace", "debug", "info", "warn", "error")
_PORTS = click.IntRange(0, 65535)
_FILE = click.Path(path_type=Path)

Function = TypeVar("Function", bound=Callable[..., object])


def _option(name: str, variable: str, help: str, **more: Json) -> Callable[[Function], Function]:
    make: Json = click.option
    shown = {"show_default": True, "show_envvar": True, **more}
    made: Callable[[Function], Function] = make(name, envvar=_PREFIX + variable, help=help, **shown)
    return made


def _switch(name: str, variable: str, help: str) -> Callable[[Function], Function]:
    return _option(name, variable, help, is_flag=True, show_default=False)


_OPTIONS = (
    _option("--addr", "BIND_ADDRESS", "Address to listen on.", default="0.0.0.0"),  # noqa: S104
    _switch(
        "--continue-on-errors",
        "CONTINUE_ON_ERRORS",
        "Start also where policies cannot be opened; they refuse all their requests.",
    ),
    _option(
        "--always-accept-admission-reviews-on-namespace",
        "ALWAYS_ACCEPT_ADMISSION_REVIEWS_ON_NAMESPACE",
        "Accept everything in this namespace.",
        default="",
    ),
    _option(
        "--cert-file", "CERT_FILE", "Certificate to show; read anew when it changes.", type=_FILE
    ),
    _option("--key-file", "KEY_FILE", "Private key of the certificate.", type=_FILE),
    _option(
        "--client-ca-file",
        "CLIENT_CA_FILE",
        "Only talk to clients with a certificate of these authorities; may be repeated.",
        multiple=True,
    ),
    _switch("--daemon", "DAEMON", "Run in the background."),
    _option(
        "--daemon-pid-file",
        "DAEMON_PID_FILE",
        "Where the background process writes its number.",
        default="policy-server.pid",
        type=_FILE,
    ),
    _option("--daemon-stdout-file", "DAEMON_STDOUT_FILE", "Its standard output.", type=_FILE),
    _option("--daemon-stderr-file", "DAEMON_STDERR_FILE", "Its standard error.", type=_FILE),
    _switch(
        "--disable-timeout-protection",
        "DISABLE_TIMEOUT_PROTECTION",
        "Let policies run for ever, unless they have a timeoutEvalSeconds.",
    ),
    _option(
        "--docker-config-json-path",
        "DOCKER_CONFIG_JSON_PATH",
        "Folder with a config.json that has credentials of registries.",
        type=_FILE,
    ),
    _switch("--enable-metrics", "ENABLE_METRICS", "Send metrics to an OpenTelemetry collector."),
    _switch("--enable-pprof", "ENABLE_PPROF", "Taken and without effect: there are no profiles."),
    _switch(
        "--ignore-kubernetes-connection-failure",
        "IGNORE_KUBERNETES_CONNECTION_FAILURE",
        "Start without a cluster; policies that read from it get errors.",
    ),
    _option(
        "--log-fmt",
        "LOG_FMT",
        "Log format; otlp also sends traces.",
        type=click.Choice(("text", "json", "otlp")),
        default="text",
    ),
    _option("--log-level", "LOG_LEVEL", "Log level.", type=click.Choice(_LEVELS), default="info"),
    click.option("--log-no-color", is_flag=True, help="Taken and without effect: logs are plain."),
    _option(
        "--memory-limit",
        "MEMORY_LIMIT",
        "Memory for all processes, such as 512Mi; none given: that of the container.",
        default="",
    ),
    _option(
        "--metrics-port",
        "METRICS_PORT",
        "Port of a page for Prometheus; 0: none.",
        type=_PORTS,
        default=0,
    ),
    _option(
        "--policies",
        "POLICIES",
        "File with the policies to serve; reloaded when it changes.",
        type=_FILE,
        default="policies.yml",
    ),
    _option(
        "--policies-download-dir",
        "POLICIES_DOWNLOAD_DIR",
        "Folder to keep modules in.",
        type=_FILE,
        default=".",
    ),
    _option("--policy-timeout", "POLICY_TIMEOUT", "Seconds that a policy may take.", default="2"),
    _option("--port", "PORT", "Port to listen on.", type=_PORTS, default=3000),
    _option(
        "--readiness-probe-port",
        "READINESS_PROBE_PORT",
        "Port of /readiness, plain HTTP.",
        type=_PORTS,
        default=8081,
    ),
    _option(
        "--sigstore-cache-dir",
        "SIGSTORE_CACHE_DIR",
        "Taken and without effect: the trust root of the public Sigstore is built in.",
        type=_FILE,
        default="sigstore-data",
    ),
    _option(
        "--sigstore-trust-config",
        "SIGSTORE_TRUST_CONFIG_PATH",
        "Trust root of a Sigstore of your own.",
        type=_FILE,
    ),
    _option(
        "--sources-path",
        "SOURCES_PATH",
        "File with insecure sources and own authorities.",
        type=_FILE,
    ),
    _option(
        "--verification-path",
        "VERIFICATION_CONFIG_PATH",
        "File with the required signatures of modules.",
        type=_FILE,
    ),
    _option(
        "--workers",
        "WORKERS",
        "Processes; none given: one for each core of the CPU quota.",
        type=click.IntRange(min=1),
        show_default=False,
    ),
)


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command(
    name="policy-server",
    cls=FlagCommand,
    short_help="Serve Kubewarden's policies.",
    examples=_EXAMPLES,
)
@_with_options
def policy_server(**given: Json) -> None:
    """Serve the policies of policies.yml on /validate, /audit and /validate_raw.

    Flags and variables are those of Kubewarden's policy-server.
    """
    from lictor.addons.kubewarden.server.service import run_policy_server

    options = _read_options(given)
    if given["daemon"]:
        _go_to_background(given)
    _set_up_logging(given["log_fmt"], given["log_level"])
    raise SystemExit(run_policy_server(options))


def _read_options(given: dict[str, Json]) -> "PolicyServerOptions":
    from lictor.addons.kubewarden.server.options import PolicyServerOptions

    certificate, key = given["cert_file"], given["key_file"]
    authorities = [
        Path(name) for text in given["client_ca_file"] for name in text.split(",") if name
    ]
    if (certificate is None) != (key is None):
        raise LoadError("--cert-file and --key-file belong together")
    if authorities and certificate is None:
        raise LoadError("--client-ca-file needs --cert-file and --key-file")
    return PolicyServerOptions(
        policies=given["policies"],
        address=given["addr"],
        port=given["port"],
        readiness_port=given["readiness_probe_port"],
        metrics_port=given["metrics_port"],
        workers=given["workers"] or 0,
        certificate=certificate,
        key=key,
        client_authorities=tuple(authorities),
        download_folder=given["policies_download_dir"],
        sources=given["sources_path"],
        verification=given["verification_path"],
        sigstore_trust=given["sigstore_trust_config"],
        docker_config=given["docker_config_json_path"],
        seconds=None if given["disable_timeout_protection"] else _read_seconds(given),
        continues_on_errors=given["continue_on_errors"],
        accepted_namespace=given["always_accept_admission_reviews_on_namespace"],
        ignores_missing_cluster=given["ignore_kubernetes_connection_failure"],
        sends_metrics=given["enable_metrics"],
        sends_traces=given["log_fmt"] == "otlp",
        memory_limit=given["memory_limit"],
    )


def _read_seconds(given: dict[str, Json]) -> float:
    text: str = given["policy_timeout"]
    if not text.isdecimal() or not 0 < int(text[:9]) < 1_000_000:
        raise LoadError(f"--policy-timeout: {text!r} is no number of seconds from 1 on")
    return float(text)


def _set_up_logging(format_name: str, level: str) -> None:
    import logging

    from lictor.cli.logs import set_up_logging
    from lictor.kubernetes.flags import Flags

    set_up_logging(Flags(logging_format="json" if format_name == "json" else "text"))
    names = {"trace": "DEBUG", "warn": "WARNING"}
    logging.getLogger().setLevel(names.get(level, level.upper()))


def _go_to_background(given: dict[str, Json]) -> None:
    """Leave the terminal; the parent ends at once, so that its caller continues."""
    try:
        outputs = [given["daemon_stdout_file"], given["daemon_stderr_file"]]
        files = [(path or Path(os.devnull)).open("ab", 0) for path in outputs]
        numbers = given["daemon_pid_file"].open("w")
    except OSError as error:
        raise UsageError(f"--daemon: {error.filename}: {error.strerror}") from error
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    with numbers:
        numbers.write(f"{os.getpid()}\n")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    for file, stream in zip(files, (sys.stdout, sys.stderr), strict=True):
        os.dup2(file.fileno(), stream.fileno())
