"""Exceptions from policies: what they are from, how many results they hide, and when they end."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import TypeAlias

from lictor.addons.web.policies import StoredText, store_text
from lictor.addons.web.records import ShownException, Viewer
from lictor.addons.web.results import ResultIndex
from lictor.core.errors import LictorError
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.lang.schedule import find_deletion_time
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.load.policies import load_documents
from lictor.core.raw import JsonObject
from lictor.core.report.yaml_text import render_yaml

# In the properties of a result: the names of the exceptions that were the reason for it.
_PROPERTY = "exceptions"
_TTL_LABEL = "cleanup.kyverno.io/ttl"
# A user who may write exceptions in one namespace could write many large ones.
_LONGEST_SHOWN = 32 * 1024
_TOO_LONG = "# too long to be shown here, and left out of the count\n"
# In one property of one result.
_MOST_NAMED = 20

# The number of results that an exception hides, by cluster and name: (policy, number).
_Hidden: TypeAlias = dict[tuple[str, str], list[tuple[str, int]]]


class ExceptionTexts:
    """Exceptions by cluster, kind, namespace and name."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, tuple[str, str], str, str], StoredText] = {}

    def put(self, cluster: str, kind: PolicyKind, document: JsonObject) -> None:
        text = store_text(kind, document)
        self._found[cluster, kind.key, text.namespace, text.name] = text

    def drop(self, cluster: str, kind: PolicyKind, document: JsonObject) -> None:
        text = store_text(kind, document)
        self._found.pop((cluster, kind.key, text.namespace, text.name), None)

    def list_visible(self, results: ResultIndex, viewer: Viewer) -> Iterator[ShownException]:
        """Those in namespaces that the viewer sees, with what they hide of what the viewer sees."""
        hidden = _sort_by_name(results.count_property(_PROPERTY, viewer), self._list_names())
        for cluster, kind, namespace, name in sorted(self._found):
            if viewer.may_see(cluster, namespace):
                text = self._found[cluster, kind, namespace, name]
                yield _show(cluster, text, hidden)

    def _list_names(self) -> set[tuple[str, str]]:
        return {(cluster, name) for cluster, _, _, name in self._found}


def _sort_by_name(counted: Counter[tuple[str, str, str]], known: set[tuple[str, str]]) -> _Hidden:
    """Read the property once for all exceptions; its content is not trusted."""
    found: _Hidden = {}
    for (cluster, policy, names), count in counted.items():
        for name in dict.fromkeys(names.split(",", _MOST_NAMED)[:_MOST_NAMED]):
            if (cluster, name) in known:
                found.setdefault((cluster, name), []).append((policy, count))
    return found


def _show(cluster: str, text: StoredText, hidden: _Hidden) -> ShownException:
    document = text.load()
    is_short = len(text.document) <= _LONGEST_SHOWN
    policies = _list_policies(text) if is_short else ()
    return ShownException(
        cluster=cluster,
        kind=text.kind.kind,
        namespace=text.namespace,
        name=text.name,
        text=render_yaml(document) if is_short else _TOO_LONG,
        policies=policies,
        ends_at=_find_end(document),
        hidden=_count_hidden(policies, hidden.get((cluster, text.name), [])),
    )


def _list_policies(text: StoredText) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Nothing where the exception cannot be read: then it excepts nothing, either."""
    try:
        loaded = load_documents(text.document, text.name).with_role(Role.EXCEPTION)
    except LictorError:
        return ()
    return tuple(text.kind.family.list_excepted(loaded[0].record)) if loaded else ()


def _count_hidden(
    policies: tuple[tuple[str, tuple[str, ...]], ...], hidden: list[tuple[str, int]]
) -> int:
    tests = [compile_wildcard(policy) for policy, _ in policies]
    return sum(
        count
        for policy, count in hidden
        if any(fits(policy) or fits(policy.rpartition("/")[2]) for fits in tests)
    )


def _find_end(document: JsonObject) -> int:
    """The time at which its label deletes it; 0 for never."""
    metadata = document["metadata"]
    labels = metadata.get("labels")
    text = labels.get(_TTL_LABEL) if isinstance(labels, dict) else None
    if not isinstance(text, str):
        return 0
    try:
        created = datetime.fromisoformat(str(metadata.get("creationTimestamp")))
        return int(find_deletion_time(text, created).timestamp())
    except (ValueError, OverflowError):
        return 0
