"""Files to start from: manifests of policies, requests, and what Artifact Hub wants to know."""

import re
from collections.abc import Iterable, Mapping
from uuid import uuid4

import msgspec

from lictor.addons.kubewarden.cli.metadata_files import USAGE_ANNOTATION, read_only_document
from lictor.core.errors import LoadError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.files import read_bytes
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.model.request import GroupVersionKind, Operation
from lictor.core.raw import Json, JsonObject
from lictor.core.report.manifest_text import render_manifest

API_VERSION = "policies.kubewarden.io/v1"
CLUSTER_KIND = "ClusterAdmissionPolicy"
_PREFIX = "io.kubewarden.policy."
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_NOT_NAME = re.compile(r"[^a-z0-9.-]+")
_AUTHOR = re.compile(r"(?P<name>[^<,]*)(?:<(?P<email>[^>]*)>)?")
_HUB_TEXTS = ("title", "version", "description", "author")


class ManifestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants of a manifest."""

    kind: str
    title: str = ""
    settings: JsonObject = {}
    grants_context: bool = False


def scaffold_manifest(
    address: str, metadata: ModuleMetadata, options: ManifestOptions
) -> JsonObject:
    """The object that puts a policy into a cluster."""
    annotations = metadata.annotations or {}
    kept = {
        name: annotations[name]
        for name in (f"{_PREFIX}category", f"{_PREFIX}severity")
        if name in annotations
    }
    head: JsonObject = {"annotations": kept} if kept else {}
    head["name"] = _choose_name(options.title, annotations.get(f"{_PREFIX}title", ""))
    spec: JsonObject = {
        "module": address,
        "settings": options.settings,
        "rules": list(metadata.rules),
        "mutating": metadata.mutating,
    }
    if not metadata.background_audit:
        spec["backgroundAudit"] = False
    # A policy of one namespace has no such field.
    if options.grants_context and options.kind == CLUSTER_KIND and metadata.context_aware_resources:
        spec["contextAwareResources"] = list(metadata.context_aware_resources)
    return {"apiVersion": API_VERSION, "kind": options.kind, "metadata": head, "spec": spec}


def _choose_name(title: str, own: str) -> str:
    if title:
        if not _NAME.fullmatch(title):
            raise LoadError(
                f"--title {title!r} is no name of an object: write lower case letters, digits, "
                "'-' and '.', with a letter or digit at both ends"
            )
        return title
    made = _NOT_NAME.sub("-", own.lower()).strip("-.")[:253]
    if not _NAME.fullmatch(made):
        raise LoadError("the policy has no title that could name an object: give --title")
    return made


def scaffold_verification_config() -> JsonObject:
    """A verification.yml that trusts what the owners of Kubewarden's policies sign."""
    trusted = {"kind": "githubAction", "owner": "kubewarden", "repo": None, "annotations": None}
    return {"apiVersion": "v1", "allOf": [trusted], "anyOf": None}


def read_object(path: str) -> JsonObject:
    """An object of Kubernetes from a file."""
    body = read_only_document(read_bytes(path), path)
    head = [body.get(name) for name in ("apiVersion", "kind")] if isinstance(body, dict) else []
    if not head or not all(isinstance(word, str) and word for word in head):
        raise LoadError("expected an object with an apiVersion and a kind", where=path)
    found: JsonObject = body
    return found


def scaffold_request(operation: str, new: JsonObject | None, old: JsonObject | None) -> JsonObject:
    """The request of a user for this operation on an object; '' derives it from the objects."""
    if not operation:
        operation = "DELETE" if new is None else "CREATE" if old is None else "UPDATE"
    _check_objects(Operation(operation), new, old)
    shown = new or old or {}
    gvk = GroupVersionKind.of(shown["apiVersion"], shown["kind"])
    named = builtin_names().of_kind(gvk.group, gvk.version, gvk.kind)
    kind = {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}
    resource = {"group": gvk.group, "version": gvk.version, "resource": named.resource}
    metadata = shown.get("metadata")
    head: Mapping[str, Json] = metadata if isinstance(metadata, dict) else {}
    return {
        "uid": str(uuid4()),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        **{name: head[name] for name in ("name", "namespace") if head.get(name)},
        "operation": operation,
        "userInfo": {"username": "test-user", "groups": ["system:masters"]},
        **({"object": new} if new is not None else {}),
        **({"oldObject": old} if old is not None else {}),
    }


def _check_objects(operation: Operation, new: JsonObject | None, old: JsonObject | None) -> None:
    needs_new = operation in (Operation.CREATE, Operation.UPDATE, Operation.CONNECT)
    needs_old = operation in (Operation.UPDATE, Operation.DELETE)
    for needed, given, flag in ((needs_new, new, "--object"), (needs_old, old, "--old-object")):
        if needed and given is None:
            raise LoadError(f"a {operation} brings an object: give {flag}")
        if not needed and given is not None:
            raise LoadError(f"a {operation} has nothing that {flag} could be")


def scaffold_artifact_hub(
    metadata: ModuleMetadata, created_at: str, questions: str | None
) -> JsonObject:
    """The package file of a policy for Artifact Hub."""
    annotations = metadata.annotations or {}
    own = {name: _need(annotations, f"{_PREFIX}{name}") for name in _HUB_TEXTS}
    display_name = _need(annotations, "io.artifacthub.displayName")
    resources = _need(annotations, "io.artifacthub.resources")
    package: JsonObject = {
        "version": own["version"],
        "name": own["title"],
        "displayName": display_name,
        "createdAt": created_at,
        "description": own["description"],
    }
    package |= _rename(annotations, {"license": "license", "url": "homeURL"})
    repository = annotations.get(f"{_PREFIX}ociUrl")
    image = f"{repository}:v{own['version']}" if repository else ""
    if image:
        package["containersImages"] = [{"name": "policy", "image": image}]
    if keywords := annotations.get("io.artifacthub.keywords"):
        package["keywords"] = [word.strip() for word in keywords.split(",") if word.strip()]
    if source := annotations.get(f"{_PREFIX}source"):
        package["links"] = [{"name": "source", "url": source}]
    if image:
        package["install"] = _render_install(image, annotations.get(USAGE_ANNOTATION, ""))
    package["maintainers"] = list(_read_authors(own["author"]))
    package["provider"] = {"name": "kubewarden"}
    package["annotations"] = _hub_annotations(metadata, resources, questions)
    return package


def _hub_annotations(
    metadata: ModuleMetadata, resources: str, questions: str | None
) -> dict[str, str]:
    annotations = metadata.annotations or {}
    made = {
        "kubewarden/hidden-ui": annotations.get("io.kubewarden.hidden-ui", "false"),
        "kubewarden/mutation": str(metadata.mutating).lower(),
        "kubewarden/resources": resources,
        "kubewarden/rules": render_manifest(list(metadata.rules)),
    }
    if metadata.context_aware_resources:
        granted = list(metadata.context_aware_resources)
        made["kubewarden/contextAwareResources"] = render_manifest(granted)
    if questions is not None:
        made["kubewarden/questions-ui"] = questions
    return dict(sorted(made.items()))


def _need(annotations: Mapping[str, str], name: str) -> str:
    text = annotations.get(name, "").strip()
    if not text:
        raise LoadError(f"Artifact Hub needs the annotation {name}, which the metadata lacks")
    return text


def _rename(annotations: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    present = {name: annotations.get(f"{_PREFIX}{name}") for name in names}
    return {names[name]: text for name, text in present.items() if text}


def _render_install(image: str, usage: str) -> str:
    lines = [
        "Fetch the policy:",
        "```console",
        f"kwctl pull {image}",
        "```",
        "Write a manifest for it, and fit it to your needs:",
        "```console",
        f"kwctl scaffold manifest -t {CLUSTER_KIND} registry://{image}",
        "```",
        *usage.splitlines(),
    ]
    return "\n".join(lines) + "\n"


def _read_authors(text: str) -> Iterable[dict[str, str]]:
    for part in text.split(","):
        found = _AUTHOR.fullmatch(part.strip())
        name, email = (found["name"].strip(), found["email"]) if found else ("", "")
        if name or email:
            yield {"name": name or email} | ({"email": email} if email else {})


# --- Kubernetes' own validating policies, as a policy in Wasm that evaluates CEL

# The policy of Kubewarden that evaluates CEL.
CEL_POLICY = "ghcr.io/kubewarden/policies/cel-policy:latest"
_ADMISSION_GROUP = "admissionregistration.k8s.io/"
_SELECTORS = ("namespaceSelector", "objectSelector")
_TAKEN_OVER = ("variables", "validations", "auditAnnotations")


def scaffold_vap(policy: JsonObject, binding: JsonObject, module: str) -> JsonObject:
    """The manifest; LoadError for parts that it cannot express, as its results would differ."""
    _check_kind(policy, VALIDATING_KIND)
    _check_kind(binding, f"{VALIDATING_KIND}Binding")
    spec, bound = _read_map(policy, "spec"), _read_map(binding, "spec")
    name = _read_map(policy, "metadata").get("name")
    if bound.get("policyName") != name:
        raise LoadError(f"the binding is for policy {bound.get('policyName')!r}, not for {name!r}")
    constraints, narrowed = _read_map(spec, "matchConstraints"), _read_map(bound, "matchResources")
    _refuse_lost(constraints, narrowed)
    made: JsonObject = {
        "module": module,
        "settings": _build_settings(spec, bound),
        "rules": [_convert_rule(rule) for rule in constraints.get("resourceRules") or ()],
        "mutating": False,
    }
    if not _denies(bound):
        made["mode"] = "monitor"
    if (failure := spec.get("failurePolicy")) and failure != "Fail":
        made["failurePolicy"] = failure
    match = narrowed.get("matchPolicy") or constraints.get("matchPolicy")
    made |= {"matchPolicy": match} if match else {}
    if spec.get("matchConditions"):
        made["matchConditions"] = spec["matchConditions"]
    for selector in _SELECTORS:
        both = _join_selectors(constraints.get(selector), narrowed.get(selector))
        made |= {selector: both} if both else {}
    head = {"name": _read_map(binding, "metadata").get("name")}
    return {"apiVersion": API_VERSION, "kind": CLUSTER_KIND, "metadata": head, "spec": made}


def _check_kind(body: JsonObject, kind: str) -> None:
    version = str(body.get("apiVersion", ""))
    if body.get("kind") != kind or not version.startswith(_ADMISSION_GROUP):
        raise LoadError(f"expected a {kind}, found a {body.get('kind')} of {version}")


def _read_map(body: Mapping[str, Json], name: str) -> JsonObject:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LoadError(f"{name} must be a mapping")
    return value


def _build_settings(spec: JsonObject, bound: JsonObject) -> JsonObject:
    kind, reference = spec.get("paramKind"), bound.get("paramRef")
    if (kind is None) != (reference is None):
        raise LoadError("paramKind of the policy and paramRef of the binding go together")
    settings: JsonObject = {"failurePolicy": spec.get("failurePolicy") or "Fail"}
    if kind is not None:
        settings |= {"paramKind": kind, "paramRef": reference}
    return settings | {name: spec[name] for name in _TAKEN_OVER if spec.get(name)}


def _convert_rule(rule: JsonObject) -> JsonObject:
    if rule.get("resourceNames"):
        raise LoadError("a rule with resourceNames has no counterpart: it would match all names")
    names = ("apiGroups", "apiVersions", "resources", "operations", "scope")
    return {name: rule[name] for name in names if name in rule}


def _refuse_lost(constraints: JsonObject, narrowed: JsonObject) -> None:
    """Refuse parts that are not carried over: the policy would match more requests."""
    if constraints.get("excludeResourceRules") or narrowed.get("excludeResourceRules"):
        raise LoadError("excludeResourceRules have no counterpart")
    if narrowed.get("resourceRules"):
        raise LoadError("resourceRules of a binding have no counterpart: put them into the policy")


def _denies(bound: JsonObject) -> bool:
    actions = bound.get("validationActions")
    return not actions or "Deny" in actions


def _join_selectors(one: Json, other: Json) -> JsonObject:
    """A selector that takes what both take."""
    given = [each for each in (one, other) if each]
    if len(given) < 2:
        return dict(given[0]) if given else {}
    labels: JsonObject = {}
    expressions: list[Json] = []
    for each in given:
        expressions.extend(each.get("matchExpressions") or ())
        for key, value in (each.get("matchLabels") or {}).items():
            if labels.setdefault(key, value) != value:
                expressions.append({"key": key, "operator": "In", "values": [value]})
    made: JsonObject = {"matchLabels": labels} if labels else {}
    return made | ({"matchExpressions": expressions} if expressions else {})
