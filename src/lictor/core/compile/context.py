"""What policies compiled together share."""

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lictor.core.evaluate.expressions import Expressions
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache
from lictor.core.lang.template import Fill
from lictor.core.lang.wasm_module import Modules, NoModules
from lictor.core.lang.watch import WatchRule, watch_nothing
from lictor.core.model.metadata import PolicyRecord
from lictor.core.ports import HttpLimits, Lookups, NoLookups
from lictor.core.raw import JsonObject

if TYPE_CHECKING:
    from lictor.core.evaluate.cel.context import CelContext
    from lictor.core.facts.resource_names import ResourceNames

Record = TypeVar("Record")


class CompileContext(msgspec.Struct, frozen=True, dict=True):
    """The external data for policies, and the documents that are compiled together."""

    lookups: Lookups = msgspec.field(default_factory=NoLookups)
    # Policies, and the exceptions and bindings that may belong to them.
    documents: tuple[PolicyRecord, ...] = ()
    # Parameter objects given explicitly; None: they are read from the cluster.
    params: tuple[JsonObject, ...] | None = None
    # The names of resources; None for Kubernetes' built-in kinds.
    resource_names: "ResourceNames | None" = None
    # Permitted destinations of HTTP calls from expressions.
    http_limits: HttpLimits = HttpLimits()
    watch_rule: WatchRule = watch_nothing
    # Cache of image verifications that outlives one compilation; None: one for these programs.
    kept_outcomes: OutcomeCache | None = None
    # Checks are compiled on first use: for when most of them are never used.
    is_lazy: bool = False
    # JMESPath already compiled with the same lookups, if the caller keeps it.
    queries: dict[str, Fill] = msgspec.field(default_factory=dict)
    # Source of the modules of Wasm policies.
    modules: Modules = msgspec.field(default_factory=NoModules)
    # The release whose CEL admission policies use; None: the newest.
    kubernetes_version: tuple[int, int] | None = None
    # Documents by their type; see `select`.
    _selected: dict[type, tuple[PolicyRecord, ...]] = msgspec.field(default_factory=dict)

    @cached_property
    def expressions(self) -> Expressions:
        """JMESPath expressions, each compiled once."""
        return Expressions(self.lookups.now, self.queries)

    @cached_property
    def image_outcomes(self) -> OutcomeCache:
        """Cache of image verifications."""
        return self.kept_outcomes or OutcomeCache()

    def select(self, record: type[Record]) -> tuple[Record, ...]:
        """The documents of one type."""
        found = self._selected.get(record)
        if found is None:
            found = tuple(each for each in self.documents if isinstance(each, record))
            self._selected[record] = found
        return found  # type: ignore[return-value]  # by the type that they are kept under

    @cached_property
    def cel(self) -> "CelContext":
        """The CEL context, created on first use: importing the CEL engine is slow."""
        from lictor.core.evaluate.cel.context import CelContext
        from lictor.core.facts.resource_names import builtin_names
        from lictor.core.model.cel_policy import CelException

        return CelContext(
            self.lookups,
            self.resource_names or builtin_names(),
            exceptions=self.select(CelException),
            params=self.params,
            image_outcomes=self.image_outcomes,
            watch_rule=self.watch_rule,
            http_limits=self.http_limits,
            is_lazy=self.is_lazy,
            kubernetes_version=self.kubernetes_version,
        )
