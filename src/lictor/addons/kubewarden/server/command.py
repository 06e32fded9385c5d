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

Function = TypeVar("Function", bound=Callable[..., object])


def _option(
    flag: str, help: str, name: str = "", variable: str = "", **more: Json
) -> Callable[[Function], Function]:
    """A flag, its field in the options, and its variable, which is usually called as the flag."""
    make: Json = click.option
    field = flag.removeprefix("--").replace("-", "_")
    shown = {"show_default": True, "show_envvar": True, **more}
    envvar = _PREFIX + (variable or field.upper())
    made: Callable[[Function], Function] = make(
        flag, name or field, envvar=envvar, help=help, **shown
    )
    return made


def _switch(flag: str, help: str, name: str = "") -> Callable[[Function], Function]:
    return _option(flag, help, name, is_flag=True, show_default=False)


def _file(
    flag: str, help: str, name: str = "", variable: str = "", **more: Json
) -> Callable[[Function], Function]:
    return _option(flag, help, name, variable, type=click.Path(path_type=Path), **more)


def _port(flag: str, help: str, default: int, name: str = "") -> Callable[[Function], Function]:
    return _option(flag, help, name, type=click.IntRange(0, 65535), default=default)


_OPTIONS = (
    _option(
        "--addr",
        "Address to listen on.",
        "address",
        "BIND_ADDRESS",
        default="0.0.0.0",  # noqa: S104
    ),
    _switch(
        "--continue-on-errors",
        "Start also where policies cannot be opened; they refuse all their requests.",
        "continues_on_errors",
    ),
    _option(
        "--always-accept-admission-reviews-on-namespace",
        "Accept everything in this namespace.",
        "accepted_namespace",
        default="",
    ),
    _file("--cert-file", "Certificate to show; read anew when it changes.", "certificate"),
    _file("--key-file", "Private key of the certificate.", "key"),
    _option(
        "--client-ca-file",
        "Only talk to clients with a certificate of these authorities; may be repeated.",
        "client_authorities",
        multiple=True,
    ),
    _switch("--daemon", "Run in the background."),
    _file(
        "--daemon-pid-file",
        "Where the background process writes its number.",
        default="policy-server.pid",
    ),
    _file("--daemon-stdout-file", "Its standard output."),
    _file("--daemon-stderr-file", "Its standard error."),
    _switch(
        "--disable-timeout-protection",
        "Let policies run for ever, unless they have a timeoutEvalSeconds.",
    ),
    _file(
        "--docker-config-json-path",
        "Folder with a config.json that has credentials of registries.",
        "docker_config",
    ),
    _switch("--enable-metrics", "Send metrics to an OpenTelemetry collector.", "sends_metrics"),
    _switch("--enable-pprof", "Taken and without effect: there are no profiles."),
    _switch(
        "--ignore-kubernetes-connection-failure",
        "Start without a cluster; policies that read from it get errors.",
        "ignores_missing_cluster",
    ),
    _option(
        "--log-fmt",
        "Log format; otlp also sends traces.",
        type=click.Choice(("text", "json", "otlp")),
        default="text",
    ),
    _option("--log-level", "Log level.", type=click.Choice(_LEVELS), default="info"),
    click.option("--log-no-color", is_flag=True, help="Taken and without effect: logs are plain."),
    _option(
        "--memory-limit",
        "Memory for all processes, such as 512Mi; none given: that of the container.",
        default="",
    ),
    _port("--metrics-port", "Port of a page for Prometheus; 0: none.", 0),
    _file(
        "--policies",
        "File with the policies to serve; reloaded when it changes.",
        default="policies.yml",
    ),
    _file("--policies-download-dir", "Folder to keep modules in.", "download_folder", default="."),
    _option("--policy-timeout", "Seconds that a policy may take.", default="2"),
    _port("--port", "Port to listen on.", 3000),
    _port("--readiness-probe-port", "Port of /readiness, plain HTTP.", 8081, "readiness_port"),
    _file(
        "--sigstore-cache-dir",
        "Taken and without effect: the trust root of the public Sigstore is built in.",
        default="sigstore-data",
    ),
    _file(
        "--sigstore-trust-config",
        "Trust root of a Sigstore of your own.",
        "sigstore_trust",
        "SIGSTORE_TRUST_CONFIG_PATH",
    ),
    _file("--sources-path", "File with insecure sources and own authorities.", "sources"),
    _file(
        "--verification-path",
        "File with the required signatures of modules.",
        "verification",
        "VERIFICATION_CONFIG_PATH",
    ),
    _option(
        "--workers",
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

    authorities = [
        Path(name) for text in given["client_authorities"] for name in text.split(",") if name
    ]
    if (given["certificate"] is None) != (given["key"] is None):
        raise LoadError("--cert-file and --key-file belong together")
    if authorities and given["certificate"] is None:
        raise LoadError("--client-ca-file needs --cert-file and --key-file")
    chosen = {
        **given,
        "workers": given["workers"] or 0,
        "client_authorities": tuple(authorities),
        "seconds": None if given["disable_timeout_protection"] else _read_seconds(given),
        "sends_traces": given["log_fmt"] == "otlp",
    }
    fields = PolicyServerOptions.__struct_fields__
    return PolicyServerOptions(**{name: chosen[name] for name in fields if name in chosen})


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
