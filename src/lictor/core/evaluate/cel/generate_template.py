"""Renders the templates of generating policies into objects."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lictor.core.errors import CompileError, EvaluationError, FunctionError
from lictor.core.evaluate.cel.expressions import UNDECIDED, Evaluate, ExpressionCompiler
from lictor.core.lang.cel.expression import Activation
from lictor.core.lang.cel_template import Parts, Path, TemplateDocument, parse_template
from lictor.core.lang.json_type import name_cel_type
from lictor.core.model.cel_policy import GenerationTemplate
from lictor.core.raw import Json, JsonObject

# Takes the objects for one namespace; an empty one: those of the cluster.
Take: TypeAlias = Callable[[str, list[JsonObject]], None]
_Render: TypeAlias = Callable[[Activation], Json]
_LARGEST = 2**63 - 1


def compile_template(
    template: GenerationTemplate, own: str, language: ExpressionCompiler, take: Take, where: str
) -> Evaluate:
    """Render all documents and hand them over by namespace; `own` is that of the policy."""
    try:
        documents = parse_template(template.value, interpolate=template.interpolate == "cel")
    except CompileError as error:
        raise CompileError(error.message, where=where) from error
    renderers = [_compile_document(document, language, where) for document in documents]

    def generate(activation: Activation) -> bool:
        groups: dict[str, list[JsonObject]] = {}
        for number, render in enumerate(renderers):
            try:
                made = _check_object(render(activation))
            except UNDECIDED as error:
                text = f"failed to render generation template: document {number}: {error}"
                raise EvaluationError(text) from error
            groups.setdefault(_choose_namespace(made, own), []).append(made)
        for namespace, objects in groups.items():
            take(namespace, objects)
        return True

    return generate


def _check_object(made: Json) -> JsonObject:
    if not isinstance(made, dict):
        raise FunctionError("document must be a mapping describing a resource")
    return made


def _choose_namespace(made: JsonObject, own: str) -> str:
    metadata = made.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if not own or not namespace:
        return own or str(namespace or "")
    if namespace != own:
        raise EvaluationError(
            f'cross-namespace generation denied: a policy in namespace "{own}" cannot generate '
            f'resources into namespace "{namespace}"'
        )
    return own


def _compile_document(
    document: TemplateDocument, language: ExpressionCompiler, where: str
) -> _Render:
    scalars = {
        path: _compile_scalar(parts, language, where, document.lines[path], path)
        for path, parts in document.scalars.items()
    }

    def fill(value: Json, path: Path, activation: Activation) -> Json:
        render = scalars.get(path)
        if render is not None:
            return render(activation)
        if isinstance(value, dict):
            return {key: fill(item, (*path, key), activation) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*path, number), activation) for number, item in enumerate(value)]
        return value

    return lambda activation: fill(document.body, (), activation)


def _compile_scalar(
    parts: Parts, language: ExpressionCompiler, where: str, line: int, path: Path
) -> _Render:
    pieces: list[tuple[str, Evaluate | None]] = []
    for part in parts:
        if isinstance(part, str):
            pieces.append((part, None))
            continue
        try:
            pieces.append((part.expression, language.evaluator(part.expression, (), where)))
        except CompileError as error:
            text = f'line {line}: invalid placeholder expression "{part.expression}": '
            raise CompileError(text + error.message, where=where) from error
    field = ".".join(map(str, path))
    whole = pieces[0][1] if len(pieces) == 1 else None

    def render(activation: Activation) -> Json:
        try:
            if whole is not None:
                return _check_range(whole(activation))
            return "".join(_render_pieces(pieces, activation))
        except UNDECIDED as error:
            raise EvaluationError(f'field "{field}": {error}') from error

    return render


def _check_range(value: Json) -> Json:
    if isinstance(value, int) and not isinstance(value, bool) and value > _LARGEST:
        raise FunctionError(f"uint value {value} exceeds int64 range")
    return value


def _render_pieces(
    pieces: Iterable[tuple[str, Evaluate | None]], activation: Activation
) -> Iterable[str]:
    for text, evaluate in pieces:
        yield text if evaluate is None else _format_scalar(evaluate(activation), text)


def _format_scalar(value: Json, expression: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(_check_range(value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
    raise FunctionError(
        f'placeholder "{expression}" embedded in a string must evaluate to a scalar, got '
        f"{name_cel_type(value)}; use a whole-value placeholder for structured results"
    )
