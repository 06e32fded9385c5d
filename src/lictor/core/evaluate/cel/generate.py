"""Generates objects with expressions that call `generator.apply`."""

from collections.abc import Sequence
from contextvars import ContextVar

import msgspec
from msgspec.structs import replace

from lictor.core.errors import FunctionError
from lictor.core.evaluate.cel.exceptions import (
    Exemption,
    ResultTemplate,
    allow,
    build_exempted,
    find_exceptions,
)
from lictor.core.evaluate.cel.expressions import Annotate, Evaluate, Holds
from lictor.core.evaluate.cel.views import View
from lictor.core.evaluate.generate import Made, read_source
from lictor.core.evaluate.namespace_bounds import check_namespace
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.lang.cel.expression import Activation
from lictor.core.model.program import Case
from lictor.core.model.result import Result, SourceRef, Status
from lictor.core.raw import Json, JsonObject

# The objects requested by the running expressions, in order.
_made: ContextVar[list[Made]] = ContextVar("made")


# Metadata that the API server added to a source is not copied.
_SERVER_FIELDS = frozenset(
    ("uid", "selfLink", "creationTimestamp", "managedFields", "resourceVersion")
)


class GeneratingCheck(msgspec.Struct, frozen=True):
    """The compiled parts of a policy."""

    view: View
    template: ResultTemplate
    exemptions: tuple[Exemption, ...]
    matches: Holds | None
    expressions: tuple[Evaluate, ...]
    annotate: Annotate | None = None

    def run(self, case: Case) -> tuple[Result, ...]:
        view, template = self.view, self.template
        activation = view(case)
        if self.exemptions and (found := find_exceptions(self.exemptions, activation)):
            allowed = allow(found)
            if not any(allowed.values()):
                return build_exempted(found, template)
            activation = view.adding(case, exceptions=allowed)
        made: list[Made] = []
        if self.matches is None or self.matches(activation):
            made = self._generate(activation)
        name = template.policy.name
        properties = self.annotate(activation) if self.annotate is not None else {}
        passed = template.make(
            name, Status.PASS, "policy evaluated successfully", properties=properties
        )
        objects, sources = zip(*made, strict=True) if made else ((), ())
        return (replace(passed[0], generated=objects, sources=sources),)

    def check_applies(self, case: Case) -> tuple[Result, ...]:
        """Pass if the policy applies, or an exception does."""
        activation = self.view(case)
        if not find_exceptions(self.exemptions, activation) and (
            self.matches is not None and not self.matches(activation)
        ):
            return ()
        return self.template.make(self.template.policy.name, Status.PASS, "policy applies")

    def _generate(self, activation: Activation) -> list[Made]:
        made: list[Made] = []
        token = _made.set(made)
        try:
            for evaluate in self.expressions:
                evaluate(activation)
        finally:
            _made.reset(token)
        return made


class GeneratedObjects(msgspec.Struct, frozen=True):
    """Records the arguments of `generator.apply`."""

    names: ResourceNames
    # The namespace of the policy; empty if it is cluster-scoped.
    own: str = ""

    def take(self, namespace: str, objects: Sequence[JsonObject]) -> None:
        made = _made.get()
        for given in objects:
            items = given.get("items")
            for item in items if isinstance(items, list) else [given]:
                source = _find_source(item)
                if source is not None and self.own:
                    check_namespace(source.namespace, self.own, "what is copied")
                made.append((self._place(item, namespace), source))

    def _place(self, item: Json, namespace: str) -> JsonObject:
        if not isinstance(item, dict):
            raise FunctionError("only objects can be generated")
        is_clustered = self._is_in_no_namespace(item)
        if is_clustered and self.own:
            raise FunctionError(
                f'cross-scope generation denied: a policy scoped to namespace "{self.own}" cannot '
                f"generate cluster-scoped resource {item.get('apiVersion')}/{item.get('kind')}"
            )
        metadata = item.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        placed = {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}
        placed.pop("namespace", None)
        if namespace and not is_clustered:
            placed["namespace"] = namespace
        return {**item, "metadata": placed}

    def _is_in_no_namespace(self, item: JsonObject) -> bool:
        group, _, version = str(item.get("apiVersion", "")).rpartition("/")
        return self.names.of_kind(group, version, str(item.get("kind", ""))).namespaced is False


def _find_source(item: Json) -> SourceRef | None:
    """An object with a UID was read from the cluster: the new object is a copy of it."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    is_read = isinstance(metadata, dict) and metadata.get("uid")
    return read_source(item) if is_read else None
