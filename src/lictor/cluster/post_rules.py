"""What may a policy POST? Questions to the API server, and what an administrator has allowed."""

import re
from collections.abc import Iterable

import msgspec

from lictor.cluster.flags import Flags
from lictor.errors import LookupFailedError, UsageError

_PART = r"[A-Za-z0-9._:-]+"
# Without a dot: that sets off the group in what an administrator writes.
_WORD = r"[a-z0-9-]+"
# The core group is served under /api, the others under /apis.
_PATH = re.compile(
    rf"/(?:api|apis/(?P<group>{_PART}))/v[a-z0-9]+"
    rf"(?:/namespaces/{_PART})?/(?P<resource>{_WORD})"
    rf"(?:/{_PART}/(?P<subresource>{_WORD}))?"
)
_RESOURCE = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9.-]+)?(?:/[a-z]+)?")
# Answered and forgotten: nothing is stored, and no webhook is asked.
_REVIEWS = frozenset(
    (
        "subjectaccessreviews.authorization.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
    )
)


class PostRules(msgspec.Struct, frozen=True):
    """Names of resources as kubectl writes them: `configmaps`, `jobs.batch`, `pods/eviction`."""

    allowed: frozenset[str] = frozenset()

    def check(self, url_path: str, why_not: str) -> None:
        """Refuse a path with LookupFailedError; `why_not` says why nothing may be stored now."""
        name = name_resource(url_path)
        if name in _REVIEWS:
            return
        if name not in self.allowed:
            raise LookupFailedError(
                f"a policy may not create {name or url_path}: POST is for access reviews; "
                f"--allowPostResources={name or 'RESOURCE'} lets policies create more"
            )
        if why_not:
            raise LookupFailedError(f"a policy may not create {name} {why_not}")


def read_post_rules(flags: Flags) -> PostRules:
    """The rules that the flags give; UsageError names an entry that cannot be meant."""
    return PostRules(frozenset(_read_names(flags.allow_post_resources)))


def _read_names(text: str) -> Iterable[str]:
    for entry in filter(None, map(str.strip, text.split(","))):
        if not _RESOURCE.fullmatch(entry):
            raise UsageError(
                f"--allowPostResources: {entry!r} is no resource; write them as kubectl does, "
                "such as configmaps, jobs.batch or pods/eviction"
            )
        yield entry


def name_resource(url_path: str) -> str:
    """The resource that a path creates; empty where it is not written plainly."""
    found = _PATH.fullmatch(url_path.partition("?")[0])
    if found is None or any(part in (".", "..") for part in found[0].split("/")):
        return ""
    group, part = found["group"], found["subresource"]
    name = f"{found['resource']}.{group}" if group else found["resource"]
    return f"{name}/{part}" if part else name
