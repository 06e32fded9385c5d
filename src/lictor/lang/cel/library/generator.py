"""Kyverno's `generator.apply(namespace, [objects])`: what a policy wants created."""

from lictor.errors import FunctionError, LookupFailedError
from lictor.lang.cel.declaration import function
from lictor.lang.cel.world import current_world
from lictor.raw import Json


def _apply(namespace: str, objects: list[Json]) -> bool:
    world = current_world.get()
    if world.namespace and namespace != world.namespace:
        raise FunctionError(
            f'cross-namespace generation denied: policy in "{world.namespace}" '
            f'cannot generate into "{namespace}"'
        )
    if not all(isinstance(each, dict) for each in objects):
        raise FunctionError("no such overload: apply takes a list of objects")
    try:
        world.generate(namespace, objects)
    except LookupFailedError as error:
        raise type(error)(f"failed to generate resources: {error}") from error
    return True


OVERLOADS = tuple(
    function(f"generator.{name}", "string, list<map<string,dyn>> -> bool", _apply)
    for name in ("apply", "Apply")
)
