"""The file of notifications: which targets there are, and what each of them receives."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from lictor.core.errors import LoadError
from lictor.core.files import read_bytes
from lictor.core.lang.duration import NANOSECONDS, parse_duration
from lictor.core.load.fields import read_record
from lictor.core.load.yaml import Document, iter_documents
from lictor.core.model.finding import FieldPath

MOST_TARGETS = 16
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# They describe the format of the message, which users cannot change.
_OWN_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "content-type")
)

StatusWord: TypeAlias = Literal["fail", "error", "warn", "pass", "skip"]
# `none` is for results whose report names no severity.
SeverityWord: TypeAlias = Literal["critical", "high", "medium", "low", "info", "none"]


class SecretKeyReference(msgspec.Struct, frozen=True, rename="camel"):
    """A key of a Secret in the namespace that lictor runs in."""

    name: str
    key: str


class SecretSource(msgspec.Struct, frozen=True, rename="camel"):
    """Where a secret stands: in a Secret, or in a file (such as a mounted one)."""

    secret_key_ref: SecretKeyReference | None = None
    file: str = ""


class NotificationFilter(msgspec.Struct, frozen=True, rename="camel"):
    """Which results a target receives; an empty part selects all. Names may contain `*` and `?`."""

    statuses: tuple[StatusWord, ...] = ("fail", "error")
    severities: tuple[SeverityWord, ...] = ()
    minimum_severity: SeverityWord | None = None
    clusters: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    exclude_namespaces: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


class WebhookTarget(msgspec.Struct, frozen=True, rename="camel"):
    """Any HTTP server that takes CloudEvents 1.0: one in each request, or a list of them."""

    url: str = ""
    url_from: SecretSource | None = None
    mode: Literal["structured", "batched"] = "structured"
    headers: dict[str, str] = {}
    headers_from: dict[str, SecretSource] = {}


class ChatTarget(msgspec.Struct, frozen=True, rename="camel"):
    """An incoming webhook of Slack, or a workflow of Teams; its address is the secret."""

    url_from: SecretSource


_KINDS = ("webhook", "slack", "teams")
_MOST = 10_000


class NotificationTarget(msgspec.Struct, frozen=True, rename="camel"):
    """One target: where it is, what it receives, and how often at most."""

    name: str
    filter: NotificationFilter = NotificationFilter()
    webhook: WebhookTarget | None = None
    slack: ChatTarget | None = None
    teams: ChatTarget | None = None
    # Unset: what suits the kind of target.
    max_per_minute: int | None = None
    batch_size: int | None = None
    # How long a first result waits for others to go with it.
    batch_wait: str = ""
    certificate_authority_from: SecretSource | None = None

    @property
    def kinds(self) -> list[str]:
        """`webhook`, `slack`, `teams`: a valid target has one of them."""
        return [kind for kind in _KINDS if getattr(self, kind) is not None]


class NotificationSettings(msgspec.Struct, frozen=True, rename="camel"):
    """All targets. A result that was gone for `repeatAfter` is sent again when it comes back."""

    targets: tuple[NotificationTarget, ...]
    page_url: str = ""
    repeat_after: str = "1h"


def load_notifications(path: Path) -> NotificationSettings:
    """Read the file; LoadError names file, line and field of what is wrong with it."""
    return parse_notifications(read_bytes(str(path)), str(path))


def parse_notifications(data: bytes, source: str) -> NotificationSettings:
    """The settings that a text holds; LoadError as above."""
    documents = list(iter_documents(data, source))
    if len(documents) != 1:
        raise LoadError(
            f"expected one document with `targets`, found {len(documents)}", where=source
        )
    (document,) = documents
    for key, line, column in document.duplicates:
        raise LoadError(f'key "{key}" stands twice', where=f"{source}:{line}:{column}")
    made, faults = read_record(document.body, NotificationSettings)
    for fault in faults:
        raise LoadError(fault.field_and_text, where=document.where(fault.path))
    assert made is not None  # noqa: S101  (without a fault there is a record)
    for path, message in _check(made):
        raise LoadError(message, where=_locate(document, path))
    return made


def _locate(document: Document, path: FieldPath) -> str:
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return f"{document.where(path)}: {words.removeprefix('.')}"


_Faults: TypeAlias = Iterator[tuple[FieldPath, str]]


def _check(settings: NotificationSettings) -> _Faults:
    if not settings.targets:
        yield ("targets",), "name at least one target"
    if len(settings.targets) > MOST_TARGETS:
        yield ("targets",), f"at most {MOST_TARGETS} targets"
    yield from _check_duration(("repeatAfter",), settings.repeat_after)
    if settings.page_url:
        yield from _check_url(("pageUrl",), settings.page_url)
    names: set[str] = set()
    for index, target in enumerate(settings.targets):
        path = ("targets", index)
        yield from _check_target(path, target)
        if target.name in names:
            yield (*path, "name"), f'another target is named "{target.name}" too'
        names.add(target.name)


def _check_target(path: FieldPath, target: NotificationTarget) -> _Faults:
    if not _NAME.fullmatch(target.name):
        yield (
            (*path, "name"),
            "must be 1 to 40 lower-case letters, digits and hyphens, such as team-chat",
        )
    for field, number in (
        ("maxPerMinute", target.max_per_minute),
        ("batchSize", target.batch_size),
    ):
        if number is not None and not 1 <= number <= _MOST:
            yield (*path, field), f"must be from 1 to {_MOST}"
    if target.batch_wait:
        yield from _check_duration((*path, "batchWait"), target.batch_wait)
    if target.certificate_authority_from is not None:
        place = (*path, "certificateAuthorityFrom")
        yield from _check_secret(place, target.certificate_authority_from)
    if not target.filter.statuses:
        # Empty would mean nothing, and others would read it as everything.
        yield (*path, "filter", "statuses"), "name at least one of fail, error, warn, pass, skip"
    yield from _check_kinds(path, target)


def _check_kinds(path: FieldPath, target: NotificationTarget) -> _Faults:
    if len(target.kinds) != 1:
        yield path, "must have exactly one of webhook, slack and teams"
    if target.webhook is not None:
        yield from _check_webhook((*path, "webhook"), target.webhook)
    for kind, chat in (("slack", target.slack), ("teams", target.teams)):
        if chat is not None:
            yield from _check_secret((*path, kind, "urlFrom"), chat.url_from)


def _check_webhook(path: FieldPath, target: WebhookTarget) -> _Faults:
    if bool(target.url) == bool(target.url_from):
        yield path, "must have either url or urlFrom"
    if target.url:
        yield from _check_url((*path, "url"), target.url)
    if target.url_from is not None:
        yield from _check_secret((*path, "urlFrom"), target.url_from)
    yield from _check_headers(path, target)


def _check_headers(path: FieldPath, target: WebhookTarget) -> _Faults:
    for field, names in (("headers", target.headers), ("headersFrom", target.headers_from)):
        for name in names:
            if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
                yield (*path, field, name), "is no header that can be set here"
    for name, value in target.headers.items():
        if name.lower() in ("authorization", "proxy-authorization", "cookie", "x-api-key"):
            yield (*path, "headers", name), "holds a secret: name a Secret in headersFrom"
        if not value.isprintable() or not value.isascii():
            yield (*path, "headers", name), "must be printable ASCII"
    for name, source in target.headers_from.items():
        yield from _check_secret((*path, "headersFrom", name), source)


def _check_secret(path: FieldPath, source: SecretSource) -> _Faults:
    if (source.secret_key_ref is None) == (not source.file):
        yield path, "must have either secretKeyRef or file"


def _check_url(path: FieldPath, url: str) -> _Faults:
    fault = find_url_fault(url)
    if fault:
        yield path, fault


def find_url_fault(url: str) -> str:
    """Why no request can be sent there; empty where one can. The URL itself is never shown."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "must begin with https:// or http:// and a host"
    if "@" in parts.netloc:
        return "must hold no user or password: name a Secret instead"
    if not url.isprintable() or not url.isascii() or " " in url:
        return "must be printable ASCII without spaces"
    return ""


def _check_duration(path: FieldPath, text: str) -> _Faults:
    try:
        nanoseconds = parse_duration(text)
    except ValueError:
        nanoseconds = -1
    if not 0 <= nanoseconds <= 366 * 24 * 3600 * NANOSECONDS:
        yield path, f'"{text[:40]}" is no length of time, such as 30s or 1h'


def read_seconds(text: str) -> float:
    """A length of time that was checked before."""
    return parse_duration(text) / NANOSECONDS
