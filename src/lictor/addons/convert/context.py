"""The context entries of a rule as values that CEL expressions can use."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

from msgspec.structs import replace

from lictor.addons.convert.cel_values import CelValue, ValueShape
from lictor.addons.convert.query import translate_query, translate_text, write_text
from lictor.addons.convert.value import Constant, Either, ExpressionScope, Value, is_present, settle
from lictor.addons.convert.writing import quote
from lictor.core.errors import CompileError
from lictor.core.lang.template import VARIABLE, has_variables
from lictor.core.model.matching import ConfigMapReference, ContextApiCall, ContextEntry, Variable

_MARK = "\x02"
_MAP = ValueShape(declared="map")


def bind_context(entries: Iterable[ContextEntry], scope: ExpressionScope) -> ExpressionScope:
    """The scope with the entries of a context."""
    for entry in entries:
        scope = scope.bind(**{entry.name: _translate(entry, scope)})
    return scope


def _translate(entry: ContextEntry, scope: ExpressionScope) -> Value:
    if entry.variable is not None:
        return _translate_variable(entry.variable, scope)
    if not scope.kyverno:
        raise CompileError(
            f"the context entry {entry.name}: the API server makes no external calls"
        )
    if entry.config_map is not None:
        return _foreign(_get_config_map(entry.config_map, scope), entry.name, scope)
    if entry.api_call is not None:
        return _translate_call(entry.name, entry.api_call, scope)
    kind = "imageRegistry" if entry.image_registry is not None else "globalReference"
    raise CompileError(f"the context entry {entry.name}: {kind} has no equivalent here")


def _foreign(text: str, name: str, scope: ExpressionScope) -> CelValue:
    return CelValue(scope.hoist(name, text), _MAP, foreign=True, risky=True)


def _translate_variable(variable: Variable, scope: ExpressionScope) -> Value:
    if variable.jmes_path and variable.value is None:
        if variable.default is None:
            return settle(translate_query(variable.jmes_path, scope))
        found = settle(translate_query(variable.jmes_path, replace(scope, strict=False)))
        return Either(is_present(found), found, Constant(variable.default))
    if variable.jmes_path:
        raise CompileError("a context variable with a value and a path into it")
    if isinstance(variable.value, str):
        return translate_text(variable.value, scope)
    if has_variables(str(variable.value)):
        raise CompileError("a context variable that holds variables")
    return Constant(variable.value)


# --- the cluster


def _get_config_map(reference: ConfigMapReference, scope: ExpressionScope) -> str:
    namespace, name = (
        write_text(translate_text(text, scope))
        for text in (reference.namespace or "default", reference.name)
    )
    return f'resource.Get("v1", "configmaps", {namespace}, {name})'


def _translate_call(name: str, call: ContextApiCall, scope: ExpressionScope) -> Value:
    if call.service is not None or call.method != "GET" or call.data or call.default is not None:
        raise CompileError(f"the context entry {name}: only plain reads of the API")
    operand = _foreign(_write_call(call.url_path, scope), name, scope)
    if not call.jmes_path:
        return operand
    return settle(translate_query(call.jmes_path, scope, operand))


def _write_call(url: str, scope: ExpressionScope) -> str:
    path, _, query = url.partition("?")
    variables: list[str] = []

    def mark(found: re.Match[str]) -> str:
        variables.append(found.group())
        return f"{_MARK}{len(variables) - 1}{_MARK}"

    segments = VARIABLE.sub(mark, path).strip("/").split("/")
    texts = [_write_segment(segment, variables, scope) for segment in segments]
    version, steps = _split_version(segments, texts)
    return _write_read(version, steps, _write_labels(query))


def _write_segment(segment: str, variables: list[str], scope: ExpressionScope) -> str:
    text = re.sub(f"{_MARK}(\\d+){_MARK}", lambda found: variables[int(found.group(1))], segment)
    return write_text(translate_text(text, scope))


def _split_version(segments: list[str], texts: list[str]) -> tuple[str, list[str]]:
    if segments[:1] == ["api"] and len(segments) > 2:
        return texts[1], texts[2:]
    if segments[:1] == ["apis"] and len(segments) > 3:
        return quote(f"{segments[1]}/{segments[2]}"), texts[3:]
    raise CompileError(f"the path {'/'.join(segments)} of the API")


def _write_read(version: str, steps: list[str], labels: str) -> str:
    namespace = '""'
    if steps[0] == '"namespaces"' and len(steps) > 2:
        namespace, steps = steps[1], steps[2:]
    match steps:
        case [resource]:
            return f"resource.List({version}, {resource}, {namespace}{labels})"
        case [resource, name] if not labels:
            return f"resource.Get({version}, {resource}, {namespace}, {name})"
    raise CompileError("a path of the API that is neither an object nor a list")


def _write_labels(query: str) -> str:
    if not query:
        return ""
    key, _, selector = unquote(query).partition("=")
    name, sign, value = selector.partition("=")
    if key != "labelSelector" or not sign or not re.fullmatch(r"[\w./-]+", f"{name}{value}"):
        raise CompileError(f"the query {query!r} of the API")
    return f", {{{quote(name)}: {quote(value)}}}"
