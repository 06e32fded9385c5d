"""Policy modules as kwctl writes and keeps them: the bytes of a manifest, and the names of files."""

import orjson
import pytest
from shared_cases import CASES

from lictor.addons.kubewarden.modules.module_address import locate_in_store, parse_module_address
from lictor.addons.kubewarden.modules.module_sources import read_sources
from lictor.addons.kubewarden.modules.module_verification import read_verification
from lictor.core.errors import LictorError
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.raw import JsonObject
from lictor.images.manifests import write_manifest
from lictor.images.repository_name import compute_digest

CORPUS = CASES / "kubewarden"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="no answers of Kubewarden here")
# These verify nothing, and Kubewarden takes them for verified: scripts/differences.txt.
_STRICTER = {"verifyconf-empty-all", "verifyconf-minimum-0"}
# The configuration is fine; the signatures are not.
_READABLE = "Image verification failed"


def read_rows() -> dict[str, JsonObject]:
    lines = (CORPUS / "kwctl-answers.jsonl").read_bytes().splitlines()
    return {row["id"]: row for row in map(orjson.loads, lines)}


def test_a_manifest_has_the_bytes_that_kwctl_writes() -> None:
    rows = read_rows()
    wanted = rows["push-manifest"]["manifest"]
    annotations = {**wanted["annotations"], "io.kubewarden.policy.usage": "first\nsecond\n"}
    del annotations["org.opencontainers.image.source"]
    made = orjson.loads(write_manifest(b"module", ModuleMetadata(annotations=annotations)))
    assert [*made["layers"][0]] == [*wanted["layers"][0]]
    # The module of the corpus was another.
    made["layers"] = wanted["layers"]
    written = orjson.dumps(made, option=orjson.OPT_SORT_KEYS)
    assert made == wanted
    assert compute_digest(written) in rows["push-ok"]["stdout"]


def test_modules_are_kept_where_kwctl_looks_for_them() -> None:
    lines = read_rows()["store-tree"]["stdout"].splitlines()
    kept = [line.partition("kubewarden/store/")[2] for line in lines]
    assert kept
    for place in kept:
        scheme, _, rest = place.partition("/")
        address = parse_module_address(f"{scheme}://{rest}")
        assert locate_in_store(address).as_posix() == place


def test_configurations_are_taken_and_refused_as_by_kwctl(tmp_path) -> None:
    path, judged = tmp_path / "v.yml", 0
    for name, row in read_rows().items():
        text = row.get("files", {}).get("v.yml")
        if text is None or not name.startswith("verifyconf"):
            continue
        path.write_text(text)
        is_taken = row["exit"] == 0 or _READABLE in row["stderr"]
        try:
            read_verification(str(path))
            assert is_taken, name
        except LictorError:
            # What nobody could meet, such as three of one signature, is told here already.
            assert name in _STRICTER or row["exit"] != 0, name
        judged += 1
    assert judged > 10


def test_sources_are_taken_and_refused_as_by_kwctl(tmp_path) -> None:
    path, judged = tmp_path / "sources.yml", 0
    for row in read_rows().values():
        for name in ("sources.yml", "src3.yml"):
            if (text := row.get("files", {}).get(name)) is not None:
                path.write_text(text)
                assert read_sources(str(path)).insecure
                judged += 1
    assert judged > 10
