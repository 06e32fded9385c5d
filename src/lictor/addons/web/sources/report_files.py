"""Reports in files, as pipelines keep them: read once, shown as if each file were a cluster."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import msgspec
import orjson

from lictor.addons.web.failures import FailureFinder
from lictor.addons.web.policies import list_objects, write_document
from lictor.addons.web.records import ReportedResult, ResultFilter, Viewer
from lictor.addons.web.results_reading import is_report, name_report, replace_halves
from lictor.addons.web.sources.page_data import PageData
from lictor.core.errors import LoadError
from lictor.core.files import is_object_file, list_files, read_bytes
from lictor.core.load.policies import is_list
from lictor.core.load.yaml import iter_documents
from lictor.core.model.result import Failure
from lictor.core.raw import Json, JsonObject

# Resources beside reports, to look at again; more of them are not kept.
_MOST_RESOURCE_BYTES = 32 * 1024 * 1024
# Group, kind, namespace, name.
_ResourceKey: TypeAlias = tuple[str, str, str, str]


class FileReports(PageData):
    """What pages show, from files. Policies and resources may be in other files."""

    def __init__(self, files: Iterable[str]) -> None:
        super().__init__(files)
        self._resources: dict[_ResourceKey, bytes] = {}
        self._room = _MOST_RESOURCE_BYTES
        self._failures = FailureFinder()

    def put_resource(self, document: JsonObject) -> None:
        """Something that reports may be about."""
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            return
        text = write_document(document)
        self._room -= len(text)
        if self._room > 0:
            group = str(document.get("apiVersion") or "").rpartition("/")[0]
            place, name = str(metadata.get("namespace") or ""), str(metadata["name"])
            self._resources[group, str(document.get("kind")), place, name] = text

    def list_policies(self, viewer: Viewer) -> Sequence[tuple[str, str]]:
        """Without those that have results in another file: it is the same policy."""
        counted = self.results.count(ResultFilter(), viewer, ("policy",))
        known = {group.key[0] for group in counted}
        return [each for each in super().list_policies(viewer) if each[1] not in known]

    def _list_homes(self, cluster: str) -> Iterable[str]:
        """In the file of the report, or else in any."""
        return (cluster, *self.list_clusters())

    async def find_failure(self, result: ReportedResult, viewer: Viewer) -> Failure | None:
        """Evaluate the rule on the resource again, if both are in files."""
        policy = self.find_policy(result.cluster, result.policy, viewer)
        group = result.api_version.rpartition("/")[0]
        keys = ((group, result.kind, place, result.name) for place in (result.namespace, ""))
        text = next((self._resources[key] for key in keys if key in self._resources), None)
        if policy is None or text is None:
            return None
        return await self._failures.find_in_file(result, policy, orjson.loads(text))


def read_report_files(paths: Iterable[str]) -> FileReports:
    """All reports in files and folders, and policies, exceptions, namespaces and resources there.

    LoadError where a file cannot be read, or where there is no report in any file.
    """
    files = [file for path in paths for file in list_files(path, is_object_file)]
    # Names of files may be no text.
    shown = {file: replace_halves(file) for file in files}
    state = FileReports(dict.fromkeys(shown.values()))
    found = sum(_read_file(file, name, state) for file, name in shown.items())
    if not found:
        where = ", ".join(files) or "no file was found"
        raise LoadError(f"there is no PolicyReport and no Report in {where}"[:1000])
    for file in state.list_clusters():
        state.results.end_first_read(file)
    state.note_totals()
    return state


def _read_file(file: str, shown: str, state: FileReports) -> int:
    """Put everything in a file where it belongs; how many reports there were."""
    names: Counter[str] = Counter()
    for document in _list_objects(file):
        if is_report(document):
            state.results.put_report(shown, _rename(document, names), limit=None)
        elif not state.put_document(shown, document):
            state.put_resource(document)
    return names.total()


def _list_objects(file: str) -> Iterator[JsonObject]:
    text = read_bytes(file)
    opened = _open_json(text)
    if opened is None:
        for document in iter_documents(text, file):
            yield from list_objects(document.body)
        return
    # Its parts keep the text until the last of them was read.
    del text
    yield from opened


# --- large files


class _JsonOutline(msgspec.Struct, frozen=True):
    """A list of objects, or a report, whose parts have not been read yet."""

    apiVersion: Json = ""  # noqa: N815  (as in the file)
    kind: Json = ""
    items: list[msgspec.Raw] | None = None
    results: list[msgspec.Raw] | None = None
    metadata: Json = None
    scope: Json = None
    source: Json = ""


class _UnreadEntries(list[msgspec.Raw]):
    """The results of a report: each is read when its turn comes, and let go.

    As objects, a hundred thousand of them need five times the memory that the index needs.
    """

    def __iter__(self) -> Iterator[Json]:
        # What stands in them, not the parts themselves.
        return map(_read, super().__iter__())


def _read(part: msgspec.Raw) -> Json:
    return orjson.loads(memoryview(part))


def _open_json(text: bytes) -> Iterator[JsonObject] | None:
    """The objects of JSON as API servers and lictor write it; None for all else."""
    try:
        outline = msgspec.json.decode(text, type=_JsonOutline)
        for part in (*(outline.items or ()), *(outline.results or ())):
            # Once for what can be read, so that nothing is shown of a file that cannot.
            _read(part)
    except (msgspec.DecodeError, orjson.JSONDecodeError, RecursionError):
        return None
    if outline.items is not None and is_list(
        {"apiVersion": outline.apiVersion, "kind": outline.kind}
    ):
        return chain.from_iterable(list_objects(_read(each)) for each in outline.items)
    if outline.results is None:
        return None
    report = {name: getattr(outline, name) for name in outline.__struct_fields__}
    report["results"] = _UnreadEntries(outline.results)
    return iter((report,)) if is_report(report) else None


def _rename(report: JsonObject, names: Counter[str]) -> JsonObject:
    """A report whose name stood in the file before is another one, of another run."""
    metadata = report.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    named = {**report, "metadata": {**metadata, "name": metadata.get("name") or "report"}}
    name = name_report(named)
    names[name] += 1
    if names[name] > 1:
        named["metadata"]["name"] = f"{named['metadata']['name']} ({names[name]})"
    return named
