"""`context`: variables of a rule, each loaded on first use."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import (
    BrokenVariableError,
    CompileError,
    EvaluationError,
    LookupFailedError,
    NotProvidedError,
    TooLargeError,
)
from lictor.core.evaluate.expressions import Expressions
from lictor.core.evaluate.namespace_bounds import check_path
from lictor.core.evaluate.rule_context import RuleContext
from lictor.core.lang.image_reference import list_named_registries
from lictor.core.lang.json_type import merge_objects, name_json_type, split_dotted
from lictor.core.lang.template import Fill
from lictor.core.lang.written_size import check_written
from lictor.core.model import matching as model
from lictor.core.model.scope import Loader, Scope
from lictor.core.ports import ApiCall, Lookups, RegistryAccess
from lictor.core.raw import Json

# From the outer to the inner scope.
Enter: TypeAlias = Callable[[Scope], Scope]


def compile_context(entries: Sequence[model.ContextEntry], setting: RuleContext) -> Enter | None:
    """Compile the context entries of a rule; None if there are none."""
    given = dict(setting.lookups.rule_values(setting.policy.name, setting.rule))
    if not entries and not given:
        return None
    return _compile(entries, setting, given)


def compile_foreach_context(
    entries: Sequence[model.ContextEntry], setting: RuleContext
) -> Enter | None:
    """The same for the entries of a `foreach`."""
    given = dict(setting.lookups.foreach_values(setting.policy.name, setting.rule, 0))
    return _compile(entries, setting, given)


def _compile(
    entries: Sequence[model.ContextEntry], setting: RuleContext, given: Mapping[str, Json]
) -> Enter | None:
    builder = _LoaderBuilder(setting.expressions, setting.lookups, setting.policy.namespace)
    roots = {split_dotted(name)[0] for name in given}
    loaders: dict[str, Loader] = {}
    for entry in entries:
        # A value given explicitly replaces one that needs a cluster or registry.
        if entry.variable is not None or entry.name not in roots:
            loader = setting.watch(f"context.{entry.name}", builder.build(entry))
            earlier = loaders.get(entry.name)
            if earlier is not None:
                # Entries up to here were computed from the earlier one, and so is this.
                loader = _redefine(entry.name, earlier, loader)
                loaders = {k: _redefine(entry.name, earlier, v) for k, v in loaders.items()}
            loaders[entry.name] = loader
    if not loaders and not given:
        return None
    if not given:
        return lambda scope: scope.lazy(loaders)
    return lambda scope: add_values(scope, given).lazy(loaders)


def _redefine(name: str, earlier: Loader, later: Loader) -> Loader:
    """An entry that sees the earlier one of the same name, regardless of later ones."""
    return lambda scope: later(scope.lazy({name: earlier}))


def add_values(scope: Scope, given: Mapping[str, Json]) -> Scope:
    """A scope with values at dotted names."""
    for name, value in given.items():
        root, *rest = split_dotted(name)
        tree = value
        for part in reversed(rest):
            tree = {part: tree}
        here = dict.get(scope, root)
        if isinstance(here, dict) and isinstance(tree, dict):
            tree = merge_objects(here, tree)
        scope = scope.with_values({root: tree})
    return scope


class _LoaderBuilder(msgspec.Struct, frozen=True):
    expressions: Expressions
    lookups: Lookups
    namespace: str

    def build(self, entry: model.ContextEntry) -> Loader:
        name = entry.name
        if entry.variable is not None:
            load = self._variable(entry.variable, name)
        elif entry.config_map is not None:
            load = self._config_map(entry.config_map)
        elif entry.api_call is not None:
            load = self._api_call(entry.api_call)
        elif entry.global_reference is not None:
            load = self._global_reference(entry.global_reference)
        elif entry.image_registry is not None:
            load = self._image_registry(entry.image_registry)
        else:
            raise CompileError(
                "expected one of variable, configMap, apiCall, globalReference, imageRegistry",
                where=f"context entry {name}",
            )
        return _named(load, name)

    def _variable(self, variable: model.Variable, name: str) -> Loader:
        value = None if variable.value is None else self.expressions.document(variable.value).fill
        default = (
            None if variable.default is None else self.expressions.document(variable.default).fill
        )
        query = self._query(variable.jmes_path)

        def load(scope: Scope) -> Json:
            fallback = default(scope) if default is not None else None
            found = fallback
            try:
                if value is not None:
                    made = value(scope)
                    found = query(scope)(made) if query is not None else made
                elif query is not None:
                    asked = query(scope)(scope)
                    found = asked if asked is not None else fallback
            except EvaluationError:
                if fallback is None:
                    raise
            if found is None:
                raise EvaluationError(f"variable {name} evaluated to nil")
            return _measured(found, name)

        return load

    def _config_map(self, reference: model.ConfigMapReference) -> Loader:
        name = self.expressions.template(reference.name).fill
        namespace = self.expressions.template(reference.namespace).fill
        own = self.namespace

        def load(scope: Scope) -> Json:
            where = _text(namespace(scope), "configMap.namespace") or own or "default"
            if own and where != own:
                raise EvaluationError(
                    f"a Policy of namespace {own} may not read a ConfigMap of namespace {where}"
                )
            found = self.lookups.config_map(where, _text(name(scope), "configMap.name"))
            return {"data": found.get("data"), "metadata": found.get("metadata") or {}}

        return load

    def _api_call(self, call: model.ContextApiCall) -> Loader:
        build = self._build_call(call)
        query = self._query(call.jmes_path)

        def load(scope: Scope) -> Json:
            asked = build(scope)
            if self.namespace:
                check_path(asked.url_path, self.namespace)
            try:
                answer = self.lookups.call_api(asked)
            except NotProvidedError:
                raise
            except LookupFailedError:
                if call.default is None:
                    raise
                return call.default
            return answer if query is None else query(scope)(answer)

        return load

    def _build_call(self, call: model.ContextApiCall) -> Callable[[Scope], ApiCall]:
        url_path = self.expressions.template(call.url_path).fill
        service = call.service
        url = self.expressions.template(service.url if service else "").fill
        body = self.expressions.document([{"k": d.key, "v": d.value} for d in call.data]).fill
        headers = self.expressions.document(
            {h.key: h.value for h in service.headers} if service else {}
        ).fill
        made = ApiCall(
            method=call.method,
            ca_bundle=service.ca_bundle if service else "",
            is_chosen_by_object=service is not None and _has_open_host(service.url),
        )

        def build(scope: Scope) -> ApiCall:
            return replace(
                made,
                url_path=_text(url_path(scope), "apiCall.urlPath"),
                service_url=_text(url(scope), "apiCall.service.url"),
                data={item["k"]: item["v"] for item in body(scope)} or None,
                headers=headers(scope) or None,
            )

        return build

    def _global_reference(self, reference: model.GlobalReference) -> Loader:
        query = self._query(reference.jmes_path)

        def load(scope: Scope) -> Json:
            if self.namespace:
                raise EvaluationError("globalReference is not allowed in namespaced policies")
            found = self.lookups.global_reference(reference.name)
            return found if query is None else query(scope)(found)

        return load

    def _image_registry(self, image: model.ImageRegistry) -> Loader:
        reference = self.expressions.template(image.reference)
        query = self._query(image.jmes_path)
        # Hosts that only objects name are chosen by their authors.
        named = None if reference.is_constant else list_named_registries((image.reference,))
        access = replace(self._access(image.image_registry_credentials), named=named)

        def load(scope: Scope) -> Json:
            text = _text(reference.fill(scope), "imageRegistry.reference")
            found = self.lookups.image_data(text, access)
            return found if query is None else query(scope)(found)

        return load

    def _access(self, written: model.RegistryCredentials | None) -> RegistryAccess:
        if written is None:
            return RegistryAccess(namespace=self.namespace)
        return RegistryAccess(
            providers=tuple(map(str, written.providers)),
            secrets=tuple(written.secrets),
            namespace=self.namespace,
            allow_insecure=written.allow_insecure_registry,
        )

    def _query(self, text: str) -> Callable[[Scope], Fill] | None:
        """A query whose text may contain variables; None if there is none."""
        if not text:
            return None
        template = self.expressions.template(text)
        if template.is_constant:
            query = self.expressions.query(str(template.constant))
            return lambda _: query
        return lambda scope: self.expressions.query(_text(template.fill(scope), "jmesPath"))


def _measured(value: Json, name: str) -> Json:
    """Variables are computed from each other: each one must stay within the limit."""
    try:
        return check_written(value)
    except TooLargeError as error:
        raise TooLargeError(f"context entry {name}: {error}") from error


def _named(load: Loader, name: str) -> Loader:
    def loader(scope: Scope) -> Json:
        try:
            return load(scope)
        except NotProvidedError as error:
            # No source and no given value: the variable does not exist, and `||` may replace it.
            raise KeyError(name) from error
        except (EvaluationError, LookupFailedError) as error:
            # Not an unknown key: neither `||` nor a projection may hide that the entry is broken.
            raise BrokenVariableError(f"failed to load context entry {name}: {error}") from error

    return loader


def _has_open_host(url: str) -> bool:
    """Whether a variable determines the host of a call, or a part of it."""
    before, variable, _ = url.partition("{{")
    return bool(variable) and "/" not in before.partition("://")[2]


def _text(value: Json, what: str) -> str:
    if not isinstance(value, str):
        raise EvaluationError(f"{what} must become text, not {name_json_type(value)}")
    return value
