"""The process of the API server: its objects, its controllers, and the message that it is ready."""

import asyncio
import contextlib
import gc
import signal
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from lictor.addons.apiserver.controllers.workloads import WorkloadControllers
from lictor.addons.apiserver.patches import PatchKind
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.server import Server, ServerSettings
from lictor.addons.apiserver.store import GroupResource
from lictor.addons.apiserver.up.credentials import (
    ADMIN,
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    CREDENTIALS_FILE,
    KEY_FILE,
    Credentials,
    describe_damage,
)
from lictor.addons.apiserver.up.own_objects import (
    are_current,
    find_own_user,
    install,
    renew_webhooks,
)
from lictor.addons.apiserver.up.plan import LOOPBACK, ClusterPlan
from lictor.addons.apiserver.up.policy_files import FileObject
from lictor.core.errors import LictorError, RefusedRequestError
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject
from lictor.http.addresses import Destination, open_stream
from lictor.kubernetes.stored_policy import is_ready


class PolicySummary(msgspec.Struct, frozen=True):
    """A policy in the store."""

    kind: str
    name: str
    is_in_force: bool


def list_policies(server: Server) -> list[PolicySummary]:
    """All policies of the cluster, each once."""
    return [
        PolicySummary(each["kind"], each["metadata"]["name"], _is_in_force(each))
        for each in _iter_stored(server)
    ]


def _are_in_force(server: Server) -> bool:
    return all(_is_in_force(each) for each in _iter_stored(server))


def is_policy(document: JsonObject) -> bool:
    """Is it a policy that lictor evaluates?"""
    group, _, _ = document["apiVersion"].partition("/")
    return _is_policy_kind(registry().find(group, document["kind"]))


def _is_policy_kind(kind: PolicyKind | None) -> bool:
    return kind is not None and not kind.is_native and kind.role in (Role.POLICY, Role.DELETION)


def is_waited_for(server: Server, document: JsonObject) -> bool:
    """Is the policy there, and not yet in force? One that was refused is none to wait for."""
    kind = server.catalogue.find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        return False
    metadata = document["metadata"]
    namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
    found = server.store.get(kind, namespace, metadata["name"])
    return found is not None and not _is_in_force(found)


def _iter_stored(server: Server) -> Iterator[JsonObject]:
    places = dict.fromkeys(
        (kind.group, kind.plural)
        for kind in server.catalogue
        if _is_policy_kind(registry().find(kind.group, kind.kind))
    )
    for place in places:
        yield from server.store.storage(*place).select()


def _is_in_force(document: JsonObject) -> bool:
    kind = registry().get(document["apiVersion"].partition("/")[0], document["kind"])
    if kind.role is Role.DELETION:
        return True  # these run on a schedule
    return is_ready(document)


_TIMEOUT = 60.0
# A stored policy may be one that is never ready: that must not hold up each start for a minute.
_STORED_TIMEOUT = 20.0
_TICK = 0.01
_ADMIN = ApiUser(ADMIN, ("system:masters", "system:authenticated"))
_WEBHOOKS: GroupResource = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")
_QUESTION = b"GET /health/readiness HTTP/1.1\r\nHost: lictor\r\nConnection: close\r\n\r\n"


class Startup:
    """Waits for all parts, applies the objects of files, and prints how to use the cluster."""

    def __init__(self, plan: ClusterPlan, objects: Sequence[FileObject], began: float) -> None:
        self._plan = plan
        self._objects = objects
        self._began = began
        self._problems: list[str] = []
        # How many of those are policies.
        self._refused = 0

    async def run(self, server: Server) -> None:
        """All of it."""
        if not self._plan.is_bare:
            await self._wait_for_webhook(server)
        found = [each for each in self._objects if is_policy(each.body)]
        for each in self._objects:
            if not is_policy(each.body):
                await self._apply(server, each)
        # What policies stand on is there; they do not stand on each other.
        await asyncio.gather(*(self._apply(server, each) for each in found))
        await _wait(lambda: not any(is_waited_for(server, each.body) for each in found))
        if not self._plan.is_bare:
            # Those of an earlier run are ready again once the webhooks have been written anew.
            await _wait(lambda: _are_in_force(server), _STORED_TIMEOUT)
        self._print_result(list_policies(server))

    async def _wait_for_webhook(self, server: Server) -> None:
        port = self._plan.flags.webhook_server_port
        while not await _answers(port):  # noqa: ASYNC110  (another process: there is no event)
            await asyncio.sleep(_TICK)
        # New policies are validated too: the API server must know the webhook of this run.
        name = self._plan.names.webhook("policy-validating")
        await _wait(
            lambda: ("", name) in server.store.storage(*_WEBHOOKS).objects and are_current(server)
        )

    async def _apply(self, server: Server, found: FileObject) -> None:
        document = found.body
        shown = f"{found.where}: {document['kind']} {document['metadata']['name']}"
        kind = server.catalogue.find_kind(document["apiVersion"], document["kind"])
        if kind is None:
            self._problems.append(
                f"{shown}: no kind {document['kind']} in {document['apiVersion']}"
            )
            self._refused += is_policy(document)
            return
        metadata = document["metadata"]
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        with self._noting(shown, document):
            await server.api.patch(
                _ADMIN,
                kind,
                metadata["name"],
                PatchKind.APPLY,
                document,
                namespace=namespace,
                force=True,
            )

    @contextlib.contextmanager
    def _noting(self, what: str, document: JsonObject) -> Iterator[None]:
        try:
            yield
        except RefusedRequestError as error:
            self._problems.append(f"{what}: {error.message}")
            self._refused += is_policy(document)

    def _print_result(self, policies: Sequence[PolicySummary]) -> None:
        for problem in self._problems:
            click.echo(f"Error: {problem}", err=True)
        if self._problems:
            click.echo("These are not in force; `lictor lint FILE` may show why.", err=True)
        if self._refused and not self._plan.grants_all:
            click.echo("Missing rights: `lictor up --grant-all` grants lictor all.", err=True)
        for policy in policies:
            if not policy.is_in_force:
                detail = f"{policy.kind} {policy.name} is not ready: `kubectl describe` shows why"
                click.echo(f"Warning: {detail}", err=True)
        seconds = time.monotonic() - self._began
        click.echo(render_message(self._plan, policies, self._refused, seconds))


def render_message(
    plan: ClusterPlan, policies: Sequence[PolicySummary], refused: int, seconds: float
) -> str:
    """What people see first; `refused` policies are in files, but not in the cluster."""
    what = "A Kubernetes API"
    if not plan.is_bare:
        what += f" with {_count(policies, refused)}"
    lines = [f"{what} answers at {plan.url} (ready in {seconds:.1f} s; Ctrl-C ends it)", ""]
    lines += [f"  export KUBECONFIG={_shorten(plan.kubeconfig)}"]
    if not plan.is_bare:
        lines += [f"  {command}" for command in _suggest(policies)]
    if plan.metrics is not None:
        lines += [f"  curl http://{LOOPBACK}:{plan.metrics.getsockname()[1]}/metrics"]
    if plan.page is not None:
        lines += ["", f"Web UI: {plan.page_url}"]
    return "\n".join(lines)


def _count(policies: Sequence[PolicySummary], refused: int) -> str:
    total = len(policies) + refused
    count = sum(policy.is_in_force for policy in policies)
    if not total:
        return "lictor and no policies yet"
    noun = "policy" if total == 1 else "policies"
    return f"{count} {noun} in force" if count == total else f"{count} of {total} {noun} in force"


def _suggest(policies: Sequence[PolicySummary]) -> list[str]:
    if not policies:
        return ["kubectl apply -f POLICY.yaml", "kubectl run test --image=nginx"]
    kinds = sorted({policy.kind.lower() for policy in policies})
    return [
        f"kubectl get {','.join(kinds)}",
        "kubectl run test --image=nginx",
        "kubectl get policyreports -A",
    ]


def _shorten(path: Path) -> str:
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


async def _wait(holds: Callable[[], bool], seconds: float = _TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:  # noqa: ASYNC110  (a few times only)
        await asyncio.sleep(_TICK)


async def _answers(port: int) -> bool:
    """Is the webhook ready?"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only readiness is checked here; the API server verifies the certificate.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(2):
            reader, writer = await open_stream(Destination(LOOPBACK, port, context))
            try:
                writer.write(_QUESTION)
                head = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ssl.SSLError):
        return False
    return b" 200 " in head


def run_api_server(plan: ClusterPlan, credentials: Credentials, startup: Startup) -> None:
    """Serve until SIGTERM; `startup` runs once the server answers."""
    # The terminal sends Ctrl-C to all processes; this one ends after the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What was there before the fork is shared: collecting it would copy its pages.
    gc.freeze()
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(plan, credentials, startup))
    except LictorError as error:
        # Users can fix the cause; a traceback would not help.
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from error


async def _serve(plan: ClusterPlan, credentials: Credentials, startup: Startup) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = Server(_choose_settings(plan, credentials))
    if not plan.is_bare:
        renew_webhooks(server, plan)
    await server.prepare()
    if not plan.is_bare:
        await install(server, plan.installation, grants_all=plan.grants_all)
    try:
        await server.start()
    except ssl.SSLError as error:
        raise describe_damage(plan.folder / CREDENTIALS_FILE, error) from error
    workloads = WorkloadControllers(server.api, server.store, server.catalogue)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(workloads.run()), group.create_task(startup.run(server))]
        await stop.wait()
        for task in tasks:
            task.cancel()
    await server.stop()


def _choose_settings(plan: ClusterPlan, credentials: Credentials) -> ServerSettings:
    return ServerSettings(
        address=plan.address,
        port=plan.port,
        certificate=plan.folder / CERTIFICATE_FILE,
        key=plan.folder / KEY_FILE,
        client_authority=plan.folder / AUTHORITY_FILE,
        tokens={} if plan.is_bare else {credentials.own_token: find_own_user(plan.installation)},
        database=plan.database,
        listener=plan.listener,
        plain_listener=None if plan.is_bare else plan.plain_listener,
    )
