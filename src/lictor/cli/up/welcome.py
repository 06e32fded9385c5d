"""What happens once the API server answers: lictor must answer too, objects come, words follow."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from lictor.cli.up.credentials import ADMIN
from lictor.cli.up.plan import LOOPBACK, Plan
from lictor.cli.up.policy_files import FileObject
from lictor.embedded.attributes import User
from lictor.embedded.patches import PatchKind
from lictor.embedded.server import Server
from lictor.embedded.store import Place
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

_PATIENCE = 60.0
_TICK = 0.01
_ADMIN = User(ADMIN, ("system:masters", "system:authenticated"))
_WEBHOOKS: Place = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")
_POLICY_GROUPS = ("kyverno.io", "policies.kyverno.io")
_READY = frozenset(("Ready", "WebhookConfigured"))
_QUESTION = b"GET /health/readiness HTTP/1.1\r\nHost: lictor\r\nConnection: close\r\n\r\n"


class Welcome:
    """Waits for everyone, brings the objects of files in, and says what to try."""

    def __init__(self, plan: Plan, objects: Sequence[FileObject], began: float) -> None:
        self._plan = plan
        self._objects = objects
        self._began = began
        self._problems: list[str] = []

    async def run(self, server: Server) -> None:
        """All of it."""
        if not self._plan.is_bare:
            await self._wait_for_webhook(server)
        found = [each for each in self._objects if _is_policy(each.body)]
        for each in self._objects:
            if not _is_policy(each.body):
                await self._apply(server, each)
        # What policies stand on is there; they do not stand on each other.
        await asyncio.gather(*(self._apply(server, each) for each in found))
        policies = [each.body for each in found]
        await _wait(lambda: all(_is_ready(server, each) for each in policies))
        self._tell(server, policies)

    async def _wait_for_webhook(self, server: Server) -> None:
        port = self._plan.flags.webhook_server_port
        while not await _answers(port):  # noqa: ASYNC110  (another process: nobody tells us)
            await asyncio.sleep(_TICK)
        # Policies that come are judged as well: the API server must know whom to ask.
        name = self._plan.names.webhook("policy-validating")
        await _wait(lambda: ("", name) in server.store.shelf(*_WEBHOOKS).objects)

    async def _apply(self, server: Server, found: FileObject) -> None:
        document = found.body
        shown = f"{found.where}: {document['kind']} {document['metadata']['name']}"
        kind = server.catalogue.find_kind(document["apiVersion"], document["kind"])
        if kind is None:
            self._problems.append(
                f"{shown}: no kind {document['kind']} in {document['apiVersion']}"
            )
            return
        metadata = document["metadata"]
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        with self._noting(shown):
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
    def _noting(self, what: str) -> Iterator[None]:
        try:
            yield
        except RefusedRequestError as error:
            self._problems.append(f"{what}: {error.message}")

    def _tell(self, server: Server, policies: Sequence[JsonObject]) -> None:
        for problem in self._problems:
            click.echo(f"Error: {problem}", err=True)
        if self._problems:
            click.echo("These are not in force; `lictor lint FILE` may tell more.", err=True)
        for policy in policies:
            if not _is_ready(server, policy):
                click.echo(f"Warning: {policy['metadata']['name']} is not ready", err=True)
        click.echo(render_message(self._plan, policies, time.monotonic() - self._began))


def render_message(plan: Plan, policies: Sequence[JsonObject], seconds: float) -> str:
    """What people see first."""
    what = "A Kubernetes API" if plan.is_bare else "A Kubernetes API with policies in force"
    lines = [f"{what} answers at {plan.url} (ready in {seconds:.1f} s; Ctrl-C ends it)", ""]
    lines += [f"  export KUBECONFIG={_shorten(plan.kubeconfig)}"]
    if not plan.is_bare:
        lines += [f"  {command}" for command in _suggest(policies)]
    return "\n".join(lines)


def _suggest(policies: Sequence[JsonObject]) -> list[str]:
    if not policies:
        return ["kubectl apply -f POLICY.yaml", "kubectl run test --image=nginx"]
    plurals = sorted({policy["kind"].lower() for policy in policies})
    return [
        f"kubectl get {','.join(plurals)}",
        "kubectl run test --image=nginx",
        "kubectl get policyreports -A",
    ]


def _shorten(path: Path) -> str:
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


def _is_policy(document: JsonObject) -> bool:
    group, _, _ = document["apiVersion"].partition("/")
    return group in _POLICY_GROUPS and document["kind"].endswith("Policy")


def _is_ready(server: Server, document: JsonObject) -> bool:
    """Is a policy in force? One that was refused is none to wait for."""
    kind = server.catalogue.find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        return True
    metadata = document["metadata"]
    namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
    found = server.store.get(kind, namespace, metadata["name"])
    if found is None or "Cleanup" in document["kind"] or "Deleting" in document["kind"]:
        return True
    status = found.get("status") or {}
    conditions = (status.get("conditionStatus") or status).get("conditions") or ()
    return any(each["type"] in _READY and each["status"] == "True" for each in conditions)


async def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds() and time.monotonic() < deadline:  # noqa: ASYNC110  (a few times only)
        await asyncio.sleep(_TICK)


async def _answers(port: int) -> bool:
    """Does the webhook say that it is ready?"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only whether it is up is asked; the API server checks the certificate when it counts.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
            try:
                writer.write(_QUESTION)
                head = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ssl.SSLError):
        return False
    return b" 200 " in head
