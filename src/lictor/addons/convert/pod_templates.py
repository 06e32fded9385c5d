"""Where is the Pod in an object of any kind that makes Pods? One expression for all of them.

Kyverno's own variants of a policy cover neither ReplicationControllers nor what is sent to a Pod's
ephemeral containers, so one policy that chooses the path to the Pod replaces three.
"""

import re

from lictor.addons.convert.writing import quote

# One of the two objects of an update, where both are gone through.
EACH = "each"
_NAMES = {"spec": "podSpec", "metadata": "podMetadata"}
# A loop over both objects, or over what they have of a Pod, goes through one of these.
LOOPED = (EACH, *_NAMES.values())
_TEMPLATE_PATHS = ("", ".spec.jobTemplate.spec.template", ".spec.template")
_TEMPLATE = r"(?:\.spec(?:\.jobTemplate\.spec)?\.template)?"
# Fields of Pods in expressions that are written already.
_WRITTEN = re.compile(rf"\b(object|oldObject){_TEMPLATE}\.(spec|metadata)\b")
_PATCHED = re.compile(r'"(?:/spec(?:/jobTemplate/spec)?/template)?(?=/(?:spec|metadata)/)')


def name_pod_field(root: str, field: str) -> str:
    """The name of a Pod's `spec` or `metadata`: a variable of the policy, or of a loop."""
    name = _NAMES[field]
    if root == EACH:
        return name
    return f"variables.{_name_old(name)}" if root == "oldObject" else f"variables.{name}"


def _name_old(name: str) -> str:
    return f"old{name[0].upper()}{name[1:]}"


def choose_pod_field(root: str, field: str, *, is_strict: bool = False) -> str:
    """The field of the Pod, by the kind of the object."""
    pod, job, other = (f"{root}{path}" for path in _TEMPLATE_PATHS)
    # The metadata of a template may be left out; some expressions fail there, and must.
    reach = f".{field}" if field == "spec" or is_strict else ".?metadata.orValue({})"
    return (
        f'{root}.kind == "Pod" ? {pod}.{field} : '
        f'{root}.kind == "CronJob" ? {job}{reach} : {other}{reach}'
    )


def pod_variables(root: str, *, is_strict: bool = False) -> dict[str, str]:
    """The variables for the fields of the Pod, and of the Pod as it was."""
    made = {}
    for field, name in _NAMES.items():
        made[name] = choose_pod_field(root, field, is_strict=is_strict)
        made[_name_old(name)] = choose_pod_field("oldObject", field, is_strict=is_strict)
    return made


def list_both(root: str, name: str) -> str:
    """The new and the old object, or the named field of their Pods; null where there is none."""
    both = f"[{root}, oldObject]"
    field = next((field for field, known in _NAMES.items() if known == name), "")
    if not field:
        return both
    return f"{both}.map({EACH}, {EACH} == null ? null : {choose_pod_field(EACH, field)})"


def choose_pod_path() -> str:
    """The path to the Pod in the object, as patches name it."""
    pod, job, other = (quote(path.replace(".", "/")) for path in _TEMPLATE_PATHS)
    return f'object.kind == "Pod" ? {pod} : object.kind == "CronJob" ? {job} : {other}'


def share_paths(text: str) -> str:
    """Patches of the Pod of one kind, as patches of the Pod of any kind."""
    return _PATCHED.sub('variables.podPath + "', text)


def share_text(text: str) -> str:
    """An expression about the Pod of one kind, as one about the Pod of any kind."""
    return _WRITTEN.sub(lambda found: name_pod_field(found.group(1), found.group(2)), text)
