"""What the helper does with a policy: compile it, look for mistakes, or review it."""

import contextlib
import socket
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import msgspec

from lictor.core.assembly import compile_cleanups, compile_documents
from lictor.core.errors import LictorError
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.registry import registry
from lictor.core.load.policies import Loaded, load_documents
from lictor.core.raw import JsonObject
from lictor.policies.trial_server import serve_batches, serve_parent
from lictor.policies.trials import (
    CURRENT,
    REVIEW,
    TRIAL,
    HelperProcess,
    Job,
    SharedHelper,
    Trials,
)

# What else runs within the same limits.
Review = Callable[[bytes], bytes]


def start_trials(review: Review | None = None, address: str = "") -> Trials:
    """Begin to try policies in this process, before it has threads; once is enough.

    `address`: the Unix socket of a helper that several processes share.
    """
    if not CURRENT:
        CURRENT.append(Trials(SharedHelper(address) if address else start_helper(review)))
    return CURRENT[0]


def start_helper(review: Review | None = None) -> HelperProcess:
    """A helper of this process alone."""
    return HelperProcess(lambda channel: serve_parent(channel, partial(_run, review), _preload))


def serve_trials(listener: socket.socket, review: Review) -> NoReturn:
    """Run jobs for several processes, until SIGTERM."""
    serve_batches(listener, partial(_run, review), _preload)


def preload_compiler() -> None:
    """Import what most policies need to be compiled; processes that are forked later share it."""
    for job in _list_samples():
        compile_alone(job)


def _preload() -> None:
    for job in _list_samples():
        _run(None, TRIAL + msgspec.msgpack.encode(job))


def _list_samples() -> list[Job]:
    return [Job(kind.sample) for kind in registry().kinds if kind.sample]


def _run(review: Review | None, data: bytes) -> bytes:
    if data[:1] == REVIEW and review is not None:
        return review(data[1:])
    job = msgspec.msgpack.decode(data[1:], type=Job)
    names = compile_alone(job)
    _lint(job.policy, names)
    return b""


def compile_alone(job: Job) -> ResourceNames:
    """Compile a policy without a cluster, to see what that takes."""
    names = builtin_names().with_crds(job.crds)
    loaded = Loaded()
    for document in (job.policy, *job.exceptions):
        loaded += load_documents(msgspec.json.encode(document), "policy")
    compile_documents(loaded.records, resource_names=names)
    # What is invalid is reported when the policy is compiled for use.
    with contextlib.suppress(LictorError):
        compile_cleanups(loaded.records, resource_names=names)
    return names


def _lint(document: JsonObject, names: ResourceNames) -> None:
    from lictor.lint.documents_by_kind import LintContext, lint_document

    group = str(document.get("apiVersion")).rpartition("/")[0]
    kind = registry().get(group, str(document.get("kind")))
    tuple(lint_document(kind, document, LintContext(lambda: names)))
