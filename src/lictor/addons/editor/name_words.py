"""Names that values may be: kinds, versions, resources, operators, policies' own kinds."""

from collections.abc import Iterator

from lictor.addons.editor.outline import Cursor
from lictor.addons.editor.references import is_policy
from lictor.addons.editor.schema_words import list_kind_words
from lictor.addons.editor.word_help import WordHelp, WordKind, list_annotations, list_operators
from lictor.addons.editor.workspace_files import WorkspaceFiles
from lictor.cli.inputs.records import FILE_RECORDS
from lictor.core.families.registry import registry
from lictor.lint.field import Field

_SEVERITIES = ("critical", "high", "medium", "low", "info")
_FILE_VERSION = "cli.kyverno.io/v1alpha1"
# Objects that name a kind of object, and its apiVersion.
_HOLDERS = frozenset(("generate", "targets", "foreach", "paramKind", "contextAwareResources"))


def list_names(cursor: Cursor, files: WorkspaceFiles) -> Iterator[WordHelp]:
    """The names that may stand at a place; nothing where it takes something else."""
    keys = [step for step in cursor.path if isinstance(step, str)]
    last, before = keys[-1] if keys else "", keys[-2] if len(keys) > 1 else ""
    if cursor.path in (("kind",), ("apiVersion",)):
        yield from _list_heads(cursor, files)
    elif last == "operator" and before in ("any", "all", "conditions", "preconditions"):
        yield from list_operators()
    elif not is_policy(cursor.body):
        return
    elif keys[:2] == ["metadata", "annotations"]:
        yield from _list_annotations(keys[2:])
    elif last == "kinds" or before in _HOLDERS:
        yield from _list_kinds(cursor, last, before, files)
    elif before in ("resourceRules", "excludeResourceRules"):
        yield from _list_resources(last, files)


def _list_annotations(keys: list[str]) -> Iterator[WordHelp]:
    if not keys:
        yield from list_annotations()
    elif keys == ["policies.kyverno.io/severity"]:
        yield from (WordHelp(word, kind=WordKind.VALUE) for word in _SEVERITIES)


def _list_kinds(
    cursor: Cursor, last: str, before: str, files: WorkspaceFiles
) -> Iterator[WordHelp]:
    if before == "cloneList":
        for each in list_kind_words(files.schemas()):
            for version in each.detail.split(", "):
                yield WordHelp(f"{version}/{each.word}", kind=WordKind.KIND)
    elif last in ("kind", "kinds"):
        yield from list_kind_words(files.schemas())
    elif last == "apiVersion":
        yield from _list_versions(cursor, files)


def _list_heads(cursor: Cursor, files: WorkspaceFiles) -> Iterator[WordHelp]:
    """What a document may be: policies, files of the command line, objects."""
    listed = [
        *((each.kind, f"{each.group}/{v}") for each in registry().kinds for v in each.versions),
        *((kind, _FILE_VERSION) for kind in FILE_RECORDS),
        *(
            (each.word, version)
            for each in list_kind_words(files.schemas())
            for version in each.detail.split(", ")
        ),
    ]
    wanted = cursor.path[0]
    other = cursor.api_version if wanted == "kind" else cursor.kind
    fitting = [pair for pair in listed if other in pair] or listed
    for kind, version in dict.fromkeys(fitting):
        word, detail = (kind, version) if wanted == "kind" else (version, kind)
        yield WordHelp(word, detail, kind=WordKind.KIND)


def _list_versions(cursor: Cursor, files: WorkspaceFiles) -> Iterator[WordHelp]:
    *_, holder = Field(cursor.body).walk(cursor.path[:-1])
    kind = holder["kind"].text
    listed = [each for each in list_kind_words(files.schemas()) if each.word == kind or not kind]
    versions = dict.fromkeys(v for each in listed for v in each.detail.split(", "))
    yield from (WordHelp(version, kind, kind=WordKind.VALUE) for version in versions)


def _list_resources(field: str, files: WorkspaceFiles) -> Iterator[WordHelp]:
    known = files.names().known
    if field == "resources":
        for each in known:
            yield WordHelp(each.resource, f"{each.api_version} {each.kind}", kind=WordKind.VALUE)
    elif field == "apiGroups":
        groups = dict.fromkeys(each.group for each in known if each.group)
        yield from (WordHelp(group, kind=WordKind.VALUE) for group in groups)
    elif field == "apiVersions":
        versions = dict.fromkeys(each.version for each in known)
        yield from (WordHelp(version, kind=WordKind.VALUE) for version in versions)
