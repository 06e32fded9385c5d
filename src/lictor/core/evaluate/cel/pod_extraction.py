"""Evaluates policies about Pods on custom workloads: each Pod template becomes a Pod."""

from collections.abc import Iterator

from msgspec.structs import replace

from lictor.core.evaluate.cel.exceptions import ResultTemplate
from lictor.core.model.finding import write_path
from lictor.core.model.program import Case, Check
from lictor.core.model.request import GroupVersionKind, Request
from lictor.core.model.result import Result, Status
from lictor.core.raw import Json, JsonObject

_POD = GroupVersionKind("", "v1", "Pod")
_KIND = {"group": "", "version": "v1", "kind": "Pod"}
_RESOURCE = {"group": "", "version": "v1", "resource": "pods"}
_BROKEN = (Status.FAIL, Status.ERROR)


def check_templates(check: Check, template: ResultTemplate, rule: str) -> Check:
    """The check of a policy about Pods, for each Pod template; the first failure ends it."""

    def check_each(case: Case) -> tuple[Result, ...]:
        request = case.request
        new = _find_pods(request.object)
        old = _find_pods(request.old_object)
        results: tuple[Result, ...] = ()
        for path in new or old:
            one = _aim_at_pod(request, new.get(path), old.get(path))
            answers = check(Case(one, case.builder, deadline=case.deadline))
            if any(answer.status in _BROKEN for answer in answers):
                place = f" (pod template at {path})"
                return tuple(replace(each, message=each.message + place) for each in answers)
            # A template that an exception exempts does not hide one that was evaluated.
            if not results or any(answer.status is Status.PASS for answer in answers):
                results = answers
        if not new and not old:
            # What has no Pods cannot be judged: to pass would be silent.
            found = f"{request.kind.api_version}/{request.kind.kind}"
            text = f"extraction mode: no pod template found in {found}"
            return template.make(rule, Status.ERROR, text)
        return results

    return check_each


def _aim_at_pod(request: Request, new: JsonObject | None, old: JsonObject | None) -> Request:
    admission = request.admission
    if admission is not None:
        kinds = {"kind": _KIND, "requestKind": _KIND}
        resources = {"resource": _RESOURCE, "requestResource": _RESOURCE}
        admission = {**admission, **kinds, **resources, "object": new, "oldObject": old}
    return replace(request, kind=_POD, object=new, old_object=old, admission=admission)


def _find_pods(resource: JsonObject | None) -> dict[str, JsonObject]:
    """The Pods by the paths of their templates."""
    if resource is None:
        return {}
    found = _list_templates(resource.get("spec"), ("spec",))
    return {write_path(path): _build_pod(resource, each) for path, each in found}


def _list_templates(
    value: Json, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], JsonObject]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _list_templates(item, (*path, index))
    elif isinstance(value, dict):
        if _is_template(value):
            yield path, value
            return
        for key, item in value.items():
            yield from _list_templates(item, (*path, key))


def _is_template(value: JsonObject) -> bool:
    spec = value.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        return False
    return isinstance(value.get("metadata", {}), dict) and all(map(_is_container, containers))


def _is_container(value: Json) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("image"), str):
        return False
    return isinstance(value.get("name"), str) and bool(value["name"])


def _build_pod(parent: JsonObject, template: JsonObject) -> JsonObject:
    metadata = parent.get("metadata")
    kept = metadata if isinstance(metadata, dict) else {}
    named = {key: kept[key] for key in ("name", "namespace") if key in kept}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, **template.get("metadata", {})},
        "spec": template["spec"],
    }
