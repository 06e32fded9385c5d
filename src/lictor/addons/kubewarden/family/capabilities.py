"""Allowed host calls: patterns such as `*`, `oci/*`, `oci/v1/*`, `oci/v1/verify`."""

from collections.abc import Iterable, Iterator

from lictor.core.errors import CompileError

LIST_ALL = "kubernetes/list_resources_all"
# Everything that is gated; log lines (tracing/log) are not.
CAPABILITIES = frozenset(
    (
        "crypto/v1/is_certificate_trusted",
        "kubernetes/can_i",
        "kubernetes/get_resource",
        LIST_ALL,
        "kubernetes/list_resources_by_namespace",
        "net/v1/dns_lookup_host",
        "oci/v1/manifest_digest",
        "oci/v1/oci_manifest",
        "oci/v1/oci_manifest_config",
        "oci/v1/verify",
        "oci/v2/verify",
    )
)
_ANY = "*"


def read_capabilities(patterns: Iterable[str], where: str = "") -> frozenset[str]:
    """What the patterns grant; none of them grants anything by being left out.

    CompileError for a pattern that can grant nothing: it is misspelt.
    """
    return frozenset(each for pattern in patterns for each in _expand(pattern, where))


def _expand(pattern: str, where: str) -> Iterator[str]:
    *parts, last = pattern.split("/")
    known = list(CAPABILITIES)
    for depth, part in enumerate((*parts, *([] if last == _ANY else [last]))):
        kept = [each for each in known if each.split("/")[depth : depth + 1] == [part]]
        if not kept:
            raise _refuse(pattern, part, _list_options(known, depth), where)
        known = kept
    if last != _ANY and pattern not in CAPABILITIES:
        options = _list_options(known, len(parts) + 1)
        raise _refuse(pattern, "", options, where)
    if last == _ANY and pattern[:-2] in CAPABILITIES:
        raise _refuse(pattern, _ANY, [], where)
    yield from known


def _list_options(known: Iterable[str], depth: int) -> list[str]:
    return sorted({part for each in known for part in each.split("/")[depth : depth + 1]})


def _refuse(pattern: str, part: str, options: list[str], where: str) -> CompileError:
    fault = f'unknown segment "{part}"' if part else "it ends too early"
    known = f", valid options at this level are: {', '.join(options)}" if options else ""
    return CompileError(
        f'invalid hostCapabilities pattern "{pattern[:200]}": {fault}{known}', where=where
    )
