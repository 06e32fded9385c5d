"""Which kinds of policies exist? The kinds of all families, built in and of other packages.

Other packages add families by entry points of the group `lictor.families`.
"""

from collections.abc import Iterable, Iterator
from functools import cache

from lictor.core.errors import LoadError
from lictor.core.families.built_in import FAMILIES, load_family
from lictor.core.families.family import Family, PolicyKind
from lictor.core.families.kind_facts import Role
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.result import PolicyRef

ENTRY_POINTS = "lictor.families"


class Registry:
    """The kinds of all families, in the order in which their policies are evaluated."""

    def __init__(self) -> None:
        # Built-in kinds by their group; a family is imported when one of its kinds is needed.
        self._built_in: dict[str, dict[str, PolicyKind]] = {}
        self._all: dict[tuple[str, str], PolicyKind] | None = None
        self._registered: list[PolicyKind] = []

    @property
    def kinds(self) -> tuple[PolicyKind, ...]:
        """Every kind."""
        return tuple(self._load().values())

    @property
    def families(self) -> tuple[Family, ...]:
        """Every family."""
        return tuple(dict.fromkeys(kind.family for kind in self.kinds))

    def with_role(self, *roles: Role) -> tuple[PolicyKind, ...]:
        """The kinds that are for one of these purposes."""
        return tuple(kind for kind in self.kinds if kind.role in roles)

    def find(self, group: str, kind: str) -> PolicyKind | None:
        """The declaration of a kind; None where it is no kind of policy."""
        # Most documents are of built-in kinds: other families are searched after those.
        own = self._built_in.get(group)
        if own is None:
            own = self._load_built_in(group)
        return own.get(kind) or self._load().get((group, kind))

    def get(self, group: str, kind: str) -> PolicyKind:
        """The declaration of a kind; LoadError where it is no kind of policy."""
        found = self.find(group, kind)
        if found is None:
            raise LoadError(f"{kind} of {group or 'the core group'} is no kind of policy")
        return found

    def of(self, policy: PolicyRecord | PolicyRef) -> PolicyKind:
        """The declaration of the kind of a policy, by its record or its reference in results."""
        group = policy.api_version.rpartition("/")[0]
        return self.find(group, policy.kind) or self.get(group, policy.kind)

    def order(self, kind: PolicyKind) -> int:
        """A number to sort policies by: one family is evaluated before the next."""
        # Built-in families come first: to sort those, no others need be looked for.
        if self._built_in.get(kind.group, {}).get(kind.kind) is kind:
            return list(FAMILIES).index(kind.group)
        return len(FAMILIES) + self.families.index(kind.family)

    def register(self, *kinds: PolicyKind) -> None:
        """Add kinds for as long as the process lives; packages use entry points instead."""
        self._registered += kinds
        self._all = None
        self._load()

    def _load_built_in(self, group: str) -> dict[str, PolicyKind]:
        kinds = load_family(group).list_kinds() if group in FAMILIES else ()
        # Another thread may have loaded them meanwhile: each kind has one declaration.
        return self._built_in.setdefault(group, {each.kind: each for each in kinds})

    def _load(self) -> dict[tuple[str, str], PolicyKind]:
        if self._all is None:
            built_in = [self._load_built_in(group).values() for group in FAMILIES]
            found = {kind.key: kind for kinds in built_in for kind in kinds}
            for name, kinds in _load_outside():
                _add(found, kinds, name)
            _add(found, self._registered, "register")
            self._all = found
        return self._all


def _add(found: dict[tuple[str, str], PolicyKind], kinds: Iterable[PolicyKind], name: str) -> None:
    for kind in kinds:
        if kind.key in found:
            taken = found[kind.key].family.name
            message = f"policy family {name}: {kind.kind} of {kind.group} is declared by {taken}"
            raise LoadError(message)
        found[kind.key] = kind


def _load_outside() -> Iterator[tuple[str, tuple[PolicyKind, ...]]]:
    """The families that installed packages bring. One that cannot be loaded is an error: its
    policies would be taken for plain resources, and everything they forbid would be allowed.
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        package = entry.dist.name if entry.dist is not None else "an unknown package"
        where = f"policy family {entry.name} of {package}"
        try:
            family = entry.load()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            hint = "repair the package or uninstall it"
            raise LoadError(f"{where} cannot be loaded ({text}): {hint}") from error
        if not isinstance(family, Family):
            hint = "repair the package or uninstall it"
            raise LoadError(f"{where} is a {type(family).__name__}, not a lictor.Family: {hint}")
        yield entry.name, family.list_kinds()


@cache
def registry() -> Registry:
    """The registry of this process."""
    return Registry()


def refer(record: PolicyRecord) -> PolicyRef:
    """A policy as results name it."""
    return registry().of(record).refer(record)
