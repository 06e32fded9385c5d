"""An OCI image layout folder answers what a registry would."""

from pathlib import Path

import orjson
import pytest
from registry_server import digest_of

from lictor.core.errors import ImageNotFoundError, LookupFailedError, UsageError
from lictor.core.ports import DEFAULT_ACCESS
from lictor.core.raw import Json, JsonObject
from lictor.images.image_data import describe_image
from lictor.images.layout import OciLayout
from lictor.images.manifests import OCI_MANIFEST

_REF_NAME = "org.opencontainers.image.ref.name"


class _Folder:
    """Writes a layout."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: list[JsonObject] = []
        (path / "blobs" / "sha256").mkdir(parents=True)

    def put(self, content: bytes) -> str:
        digest = digest_of(content)
        (self.path / "blobs" / "sha256" / digest.partition(":")[2]).write_bytes(content)
        return digest

    def add(self, name: str, document: Json, **more: str) -> str:
        digest = self.put(orjson.dumps(document))
        annotations = {_REF_NAME: name, **more} if name else more
        self._entries.append(
            {"mediaType": OCI_MANIFEST, "digest": digest, "size": 1, "annotations": annotations}
        )
        (self.path / "index.json").write_bytes(orjson.dumps({"manifests": self._entries}))
        return digest


@pytest.fixture
def folder(tmp_path: Path) -> _Folder:
    return _Folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "repository", "found"),
    [
        ("reg.example/team/app:v1", "reg.example/team/app", True),
        ("reg.example/team/app:v1", "other.example/team/app", False),
        ("team/app:v1", "reg.example/team/app", True),
        ("team/app:v1", "reg.example/app", False),
        ("v1", "reg.example/team/app", True),
        ("docker.io/library/nginx:v1", "docker.io/nginx", True),
        ("nginx:v1", "index.docker.io/library/nginx", True),
        ("localhost:5005/app:v1", "localhost:5005/app", True),
        ("reg.example/team/app:v2", "reg.example/team/app", False),
    ],
)
def test_a_tag_is_found_under_its_repository(
    folder: _Folder, name: str, repository: str, *, found: bool
) -> None:
    digest = folder.add(name, {"layers": []})
    layout = OciLayout(folder.path)
    if found:
        assert layout.manifest(repository, "v1", DEFAULT_ACCESS).digest == digest
    else:
        with pytest.raises(ImageNotFoundError):
            layout.manifest(repository, "v1", DEFAULT_ACCESS)


def test_content_of_another_digest_is_refused(folder: _Folder) -> None:
    digest = folder.add("app:v1", {"layers": []})
    (folder.path / "blobs" / "sha256" / digest.partition(":")[2]).write_bytes(b"{}")
    with pytest.raises(LookupFailedError, match="not sha256"):
        OciLayout(folder.path).manifest("reg.example/app", "v1", DEFAULT_ACCESS)


@pytest.mark.parametrize("digest", ["sha256:../../../etc/passwd", "sha256:", "md5:" + "0" * 32])
def test_no_digest_leads_out_of_the_folder(folder: _Folder, digest: str) -> None:
    folder.add("app:v1", {})
    with pytest.raises(LookupFailedError, match="neither a tag nor a digest"):
        OciLayout(folder.path).blob("reg.example/app", digest, DEFAULT_ACCESS)


def test_referrers_are_manifests_with_a_subject_or_come_from_the_tag(folder: _Folder) -> None:
    subject = folder.add("app:v1", {"layers": []})
    config = {"mediaType": "application/x", "digest": digest_of(b"")}
    one = folder.add(
        "", {"config": config, "subject": {"digest": subject}, "annotations": {"a": "b"}}
    )
    folder.add("other:v1", {"layers": [], "subject": {"digest": subject}})
    tagged = folder.put(b"tagged")
    listed = {"manifests": [{"digest": tagged, "size": 6}]}
    folder.add(f"app:{tagged.replace(':', '-')}", listed)
    layout = OciLayout(folder.path)
    (found,) = layout.referrers("reg.example/app", subject, DEFAULT_ACCESS)
    assert (found.digest, found.artifact_type, found.annotations) == (
        one,
        "application/x",
        {"a": "b"},
    )
    (by_tag,) = layout.referrers("reg.example/app", tagged, DEFAULT_ACCESS)
    assert by_tag.digest == tagged
    assert layout.referrers("reg.example/app", digest_of(b"none"), DEFAULT_ACCESS) == ()


def test_a_folder_that_cosign_saved_has_signatures_beside_the_image(folder: _Folder) -> None:
    image = folder.add("", {"layers": []}, kind="dev.cosignproject.cosign/image")
    signatures = folder.add("", {"layers": [1]}, kind="dev.cosignproject.cosign/sigs")
    attestations = folder.add("", {"layers": [2]}, kind="dev.cosignproject.cosign/atts")
    layout = OciLayout(folder.path)
    start = image.replace(":", "-")
    for tag, digest in (
        ("v1", image),
        (f"{start}.sig", signatures),
        (f"{start}.att", attestations),
    ):
        assert layout.manifest("reg.example/app", tag, DEFAULT_ACCESS).digest == digest
    for tag in (f"{start}.sbom", start, f"sha256-{'0' * 64}.sig"):
        with pytest.raises(ImageNotFoundError):
            layout.manifest("reg.example/app", tag, DEFAULT_ACCESS)


def test_one_image_without_a_name_is_what_is_asked_for(folder: _Folder) -> None:
    image = folder.add("", {"layers": []})
    folder.add("", {"layers": [1], "subject": {"digest": image}})
    layout = OciLayout(folder.path)
    assert layout.manifest("reg.example/app", "v1", DEFAULT_ACCESS).digest == image
    folder.add("", {"layers": [2]})
    with pytest.raises(ImageNotFoundError):
        OciLayout(folder.path).manifest("reg.example/app", "v1", DEFAULT_ACCESS)


def test_image_data_comes_from_the_folder(folder: _Folder) -> None:
    config = folder.put(b'{"config":{"User":"1000"}}')
    folder.add("team/app:v1", {"config": {"digest": config}, "layers": []})
    found = describe_image(OciLayout(folder.path), "reg.example/team/app:v1", DEFAULT_ACCESS)
    assert found["configData"]["config"] == {"User": "1000"}


@pytest.mark.parametrize("index", [None, b"no json", b'{"manifests": {}}'])
def test_a_folder_that_is_no_layout_is_told(tmp_path: Path, index: bytes | None) -> None:
    if index is not None:
        (tmp_path / "index.json").write_bytes(index)
    with pytest.raises(UsageError, match="not an OCI image layout"):
        OciLayout(tmp_path)
