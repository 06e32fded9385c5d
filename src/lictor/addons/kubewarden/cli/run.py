"""`run` and `bench`: evaluate a request with a policy, once or many times."""

import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

import click
import orjson

from lictor.addons.kubewarden.cli.options import (
    WasmCommand,
    source_options,
    verification_options,
    warn,
)
from lictor.cli.flag_command import spread_values
from lictor.cli.terminal import show_plainly
from lictor.core.errors import LoadError
from lictor.core.files import read_bytes
from lictor.core.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.addons.kubewarden.cli.runs import RunOptions, RunSession
    from lictor.core.ports import GuestLogLine, Lookups, Registries

Function = TypeVar("Function", bound=Callable[..., object])

_RUN_EXAMPLES = """\
# A module, a request, and settings
lictor wasm run policy.wasm -r request.json -s settings.yml

# A policy in Rego, compiled by opa
lictor wasm run policy.rego -e opa -r request.json

# All policies of a file of manifests
lictor wasm run policies.yaml -r review.json

# Let it read objects of the cluster, and record the answers for tests
lictor wasm run policy.wasm -r request.json --allow-context-aware \\
    --record-host-capabilities-interactions session.yml"""
_MODES = ("opa", "gatekeeper", "kubewarden", "kubewarden-wapc", "wasi")
_CAPABILITIES = "--allowed-host-capabilities"
_SYSTEMS = ("*", "crypto", "kubernetes", "net", "oci")


def _is_capability(word: str) -> bool:
    return word.partition("/")[0] in _SYSTEMS


class RunCommand(WasmCommand):
    """A command whose list of host capabilities is written after one flag, or after several."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread, is_bare = spread_values(args, _CAPABILITIES, _is_capability)
        left = super().parse_args(ctx, spread)
        given = ctx.params.get("host_capabilities")
        ctx.params["host_capabilities"] = given or (() if is_bare else ("*",))
        return left


_RUN_OPTIONS = (
    click.option("-r", "--request-path", default="", help="File with the request; - is stdin."),
    click.option("-s", "--settings-path", default="", help="File with the settings."),
    click.option("--settings-json", default="", help="The settings as JSON."),
    click.option(
        "-e",
        "--execution-mode",
        type=click.Choice(_MODES),
        default=None,
        help="Execution mode of a module without metadata.",
    ),
    click.option("--raw", is_flag=True, help="The request is any JSON."),
    click.option(
        "--allow-context-aware", is_flag=True, help="Grant what the policy wants to read."
    ),
    click.option(
        _CAPABILITIES,
        "host_capabilities",
        multiple=True,
        help="Allowed host calls: '*' (all), oci/*, net/v1/dns_lookup_host.",
    ),
    click.option(
        "--record-host-capabilities-interactions",
        "record",
        default="",
        help="File into which questions to the host and answers are written.",
    ),
    click.option(
        "--replay-host-capabilities-interactions",
        "replay",
        default="",
        help="File from which such questions are answered.",
    ),
    click.option("--disable-wasmtime-cache", is_flag=True, help="Keep no compiled modules."),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        default=5.0,
        show_default=True,
        help="Seconds that a response may take; 0 means no limit.",
    ),
    source_options,
    verification_options,
)


def run_options(function: Function) -> Function:
    """What `run` and `bench` share."""
    for option in reversed(_RUN_OPTIONS):
        function = option(function)
    return function


@contextmanager
def _open(word: str, flags: JsonObject) -> "Iterator[RunSession]":
    """The policies of a run, connected to the cluster where they may read it."""
    from lictor.addons.kubewarden.cli.runs import open_session, read_run_options

    if flags["record"] and flags["replay"]:
        raise click.UsageError("a session is either recorded or replayed, not both")
    with ExitStack() as stack:
        if word.endswith(".rego"):
            folder = stack.enter_context(TemporaryDirectory(prefix="lictor-rego-"))
            word = _compile_rego(word, Path(folder))
        options = read_run_options(word, flags)
        connect = partial(_connect, options, stack)
        session = stack.enter_context(open_session(options, connect, _tell))
        warn(session.warnings)
        yield session


def _connect(options: "RunOptions", stack: ExitStack, registries: "Registries") -> "Lookups":
    from lictor.addons.kubewarden.cli.runs import LocalLookups
    from lictor.cli.inputs.lookups import GivenObjects
    from lictor.cli.inputs.requests import GivenValues

    given = GivenObjects(registries=registries)
    if not options.needs_cluster:
        return LocalLookups(GivenValues(), given)
    from lictor.cli.live_cluster import LiveCluster, LiveLookups

    return LiveLookups(stack.enter_context(LiveCluster()), GivenValues(), given)


def _tell(line: "GuestLogLine") -> None:
    facts = "".join(f" {name}={value}" for name, value in line.data.items())
    told = f"{line.policy}: {line.level}: {line.message}{facts}"
    click.echo(show_plainly(told), err=True)


@click.command(
    cls=RunCommand, arity=(1, 1), required_flags=["request-path"], examples=_RUN_EXAMPLES
)
@run_options
def run(*, arguments: tuple[str, ...], **flags: Json) -> None:
    """Evaluate a request with a policy, and print the response as JSON.

    The policy is a file, an address, the beginning of the SHA-256 of one that was pulled, or a
    file with ClusterAdmissionPolicies, AdmissionPolicies and groups: each of them is evaluated.
    """
    with _open(arguments[0], flags) as session:
        for answer in session.ask():
            click.echo(orjson.dumps(answer))
        warn(session.list_left())


@click.command(cls=RunCommand, arity=(1, 1), required_flags=["request-path"])
@run_options
@click.option("--warm-up-time", type=click.FloatRange(min=0), default=3.0, help="Seconds.")
@click.option(
    "--measurement-time",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    help="Seconds that the samples shall take.",
)
@click.option("--num-samples", type=click.IntRange(1, 100_000), default=100, help="How many.")
@click.option(
    "--num-resamples", type=click.IntRange(1, 100_000), default=1_000, help="For the bounds."
)
@click.option("--dump-results-to-disk", "dump", default="", help="File for all samples (JSON).")
def bench(
    *,
    arguments: tuple[str, ...],
    warm_up_time: float,
    measurement_time: float,
    num_samples: int,
    num_resamples: int,
    dump: str,
    **flags: Json,
) -> None:
    """Measure how long a policy takes to check its settings, and to answer a request."""
    from lictor.addons.kubewarden.cli.benchmarks import (
        BenchPlan,
        describe_measurement,
        describe_warm_up,
        measure,
        warm_up,
        write_samples,
    )

    plan = BenchPlan(warm_up_time, measurement_time, num_samples, num_resamples)
    measured = []
    with _open(arguments[0], flags) as session:
        for label, call in session.list_calls():
            warmed = warm_up(label, call, plan)
            click.echo("\n".join(describe_warm_up(warmed)))
            measured.append(measure(warmed, call, plan))
            click.echo("\n".join(describe_measurement(measured[-1])))
    if dump:
        write_samples(dump, measured)


# --- Rego

_PACKAGE = re.compile(r"^package[ \t]+([\w.]+)", re.MULTILINE)
# What a policy answers with, by the first of these rules that it has.
_RULES = ("violation", "main", "deny")
_MODULE = "/policy.wasm"


def _compile_rego(path: str, folder: Path) -> str:
    """The module that `opa` makes of a file, in `folder`; LoadError with the command to run."""
    bundle = folder / "bundle.tar.gz"
    entry = _find_entry(read_bytes(path).decode("utf-8", "replace"), path)
    arguments = ["build", "-t", "wasm", "-e", entry, "-o"]
    opa = shutil.which("opa")
    if opa is None:
        shown = " ".join(("opa", *arguments, "bundle.tar.gz", path))
        raise LoadError(
            f"opa is not installed, and compiles Rego: run `{shown}`, then "
            "`tar -xzf bundle.tar.gz /policy.wasm`, and name policy.wasm",
            where=path,
        )
    command = [opa, *arguments, str(bundle), path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise LoadError(f"opa build failed: {done.stderr.strip()}", where=path)
    return _take_module(bundle, folder)


def _find_entry(text: str, path: str) -> str:
    package = _PACKAGE.search(text)
    if package is None:
        raise LoadError("no package: a policy in Rego begins with one", where=path)
    # `violation[...]`, `deny contains ...`, `main := ...`
    heads = {line.partition(" ")[0].partition("[")[0] for line in text.splitlines()}
    rules = [rule for rule in _RULES if rule in heads]
    return f"{package[1].replace('.', '/')}/{rules[0] if rules else 'main'}"


def _take_module(bundle: Path, folder: Path) -> str:
    with tarfile.open(bundle) as archive:
        names = [name for name in archive.getnames() if f"/{name.lstrip('/')}" == _MODULE]
        content = archive.extractfile(names[0]) if names else None
        if content is None:
            raise LoadError(f"no {_MODULE} in the bundle of opa", where=str(bundle))
        module = folder / "policy.wasm"
        module.write_bytes(content.read())
    return str(module)
