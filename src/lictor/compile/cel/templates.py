"""A MutatingPolicy about Pods, for the controllers that make Pods: it changes their template."""

import re

from msgspec.structs import replace

from lictor.compile.cel.autogen import Floor
from lictor.lang.cel.rewriting import Token, find_close, read_tokens
from lictor.model.admission import Mutation
from lictor.model.cel_policy import MutatingSpec

# `oldObject.metadata` ends in the same letters and is no type.
_METADATA_TYPE = re.compile(r"\bObject\.metadata\b")


def rewrite_mutating(spec: MutatingSpec, floor: Floor) -> MutatingSpec:
    """The spec of a policy about Pods, as one about these controllers.

    JSON patches stay as they are: their paths are texts that anything may compute. So do variables
    where there are such patches, as these would take them for what their paths lead to.
    """
    conditions = tuple(
        replace(condition, expression=_rewrite(condition.expression, floor))
        for condition in spec.match_conditions
    )
    variables = spec.variables
    if all(mutation.patch_type == "ApplyConfiguration" for mutation in spec.mutations):
        variables = tuple(
            replace(variable, expression=_rewrite(variable.expression, floor))
            for variable in variables
        )
    return replace(
        spec,
        match_constraints=floor.constraints,
        match_conditions=conditions,
        variables=variables,
        mutations=tuple(_rewrite_mutation(mutation, floor) for mutation in spec.mutations),
    )


def _rewrite_mutation(mutation: Mutation, floor: Floor) -> Mutation:
    patch = mutation.apply_configuration
    if patch is None:
        return mutation
    expression = _wrap_objects(_rewrite(patch.expression, floor), floor.template)
    return replace(mutation, apply_configuration=replace(patch, expression=expression))


def _rewrite(text: str, floor: Floor) -> str:
    """Plain text, wherever it stands, as Kyverno does it; authors rely on what it leaves alone."""
    deeper = floor.template
    for root in ("object", "Object"):
        text = text.replace(f"{root}.spec", f"{root}.{deeper}.spec")
        for field in ("labels", "annotations"):
            text = text.replace(f"{root}.metadata.{field}", f"{root}.{deeper}.metadata.{field}")
    return _METADATA_TYPE.sub(f"Object.{deeper}.metadata", text)


def _wrap_objects(text: str, template: str) -> str:
    """Put what stands in each `Object{…}` one or two floors deeper, with the types to match."""
    opening, closing, path = "", "", "Object"
    for field in template.split("."):
        path = f"{path}.{field}"
        opening += f"{field}: {path}{{"
        closing += "}"
    tokens = read_tokens(text)
    parts: list[tuple[int, str]] = []
    for index in range(len(tokens) - 1):
        close = find_close(tokens, index + 1) if _opens_object(tokens, index) else -1
        if close > index + 2:  # an empty one means no change, and still does
            parts += ((tokens[index + 1].end, opening), (tokens[close].start, closing))
    for position, added in sorted(parts, reverse=True):
        text = text[:position] + added + text[position:]
    return text


def _opens_object(tokens: list[Token], index: int) -> bool:
    token = tokens[index]
    follows_dot = index > 0 and tokens[index - 1].text == "."
    return token.text == "Object" and tokens[index + 1].text == "{" and not follows_dot
