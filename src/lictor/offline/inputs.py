"""Loads values, user info, context and cluster resource files, and CustomResourceDefinitions."""

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from lictor.errors import LictorError, LoadError
from lictor.load.test_files import (
    load_cluster_resource,
    load_user_info,
    load_values,
)
from lictor.load.test_files import load_context as load_context_file
from lictor.load.yaml import iter_documents
from lictor.model.offline import ClusterResourceSpec, ContextSpec, UserInfo, Values
from lictor.model.request import Caller
from lictor.offline.lookups import GivenObjects
from lictor.offline.sources import (
    SourceText,
    list_policy_files,
    locate_resources,
    read_any,
    read_file,
)
from lictor.raw import Json, JsonObject

_DIVIDER = "-" * 70
_OUTDATED = "uses a deprecated schema - please migrate to the latest format"


def load_values_file(path: str) -> Values:
    """A values file; one of an older schema is refused, as Kyverno does."""
    text = read_file(path)
    values = load_values(text.content, text.path)
    if values.outdated:
        raise LoadError(_OUTDATED, where=path)
    return values


def load_caller(path: str, *, accept_outdated: bool = False) -> Caller:
    """Who asks; `test` refuses a file of an older schema, `apply` takes it."""
    text = read_file(path)
    info = load_user_info(text.content, text.path)
    if info.outdated and not accept_outdated:
        raise LoadError(_OUTDATED, where=path)
    return make_caller(info)


def make_caller(info: UserInfo) -> Caller:
    """The caller that a UserInfo file describes."""
    user = info.user_info
    return Caller(
        username=user.username,
        uid=user.uid,
        groups=user.groups,
        extra={name: list(values) for name, values in user.extra.items()},
        roles=info.roles,
        cluster_roles=info.cluster_roles,
    )


def load_context(path: str, given: GivenObjects) -> GivenObjects:
    """The objects given so far, with those and the images of a Context file."""
    text = read_file(path)
    return add_context(load_context_file(text.content, text.path).spec, given)


def add_context(spec: ContextSpec, given: GivenObjects) -> GivenObjects:
    """The objects given so far, and those of a context."""
    images = {image.image: _describe_image(msgspec.to_builtins(image)) for image in spec.images}
    cluster = (*(given.cluster or ()), *spec.resources) if spec.resources else given.cluster
    return replace(given, cluster=cluster, images={**given.images, **images})


def _describe_image(image: JsonObject) -> JsonObject:
    """What a registry would say, under the names that context entries use."""
    identifier = image.get("digest") or image.get("tag") or ""
    return {
        **image,
        "identifier": identifier,
        "manifestList": image.get("imageIndex"),
        "configData": image.get("config"),
    }


def load_cluster_resources(path: str) -> ClusterResourceSpec:
    """A ClusterResource file: objects, and where to find definitions of their kinds."""
    text = read_file(path)
    return load_cluster_resource(text.content, text.path).spec


def load_definitions(paths: Iterable[str]) -> Iterator[JsonObject]:
    """The CustomResourceDefinitions in files and folders."""
    for path in paths:
        yield from read_definitions(map(read_file, list_policy_files(path)))


def read_definitions(texts: Iterable[SourceText]) -> Iterator[JsonObject]:
    """The CustomResourceDefinitions in texts."""
    for text in texts:
        for document in iter_documents(text.content, text.path):
            yield from _find_definitions(document.body)


def _find_definitions(body: Json) -> Iterator[JsonObject]:
    if not isinstance(body, dict):
        return
    items = body.get("items")
    for found in items if isinstance(items, list) else [body]:
        if isinstance(found, dict) and found.get("kind") == "CustomResourceDefinition":
            yield found


def read_resource_texts(
    paths: Iterable[str], say: Callable[[str], None] | None = None
) -> Iterator[SourceText]:
    """The files with resources. A later path that cannot be read is told, and left out."""
    for number, path in enumerate(paths):
        try:
            yield from map(read_any, locate_resources((path,)))
        except LictorError as error:
            # With the first path gone nothing might be judged at all: no success must come of that.
            if say is None or number == 0:
                raise
            say(f"\n{_DIVIDER}\nfailed to load resources: {path}. \nerror: {error}\n{_DIVIDER}")
