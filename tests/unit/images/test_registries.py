"""Manifests, blobs and referrers from a registry on loopback, asked from ordinary threads."""

import asyncio
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest
from registry_server import RegistryServer, digest_of

from lictor.core.errors import ImageNotFoundError, LookupFailedError
from lictor.core.ports import DEFAULT_ACCESS
from lictor.images.image_data import describe_image
from lictor.images.manifests import OCI_INDEX, OCI_MANIFEST
from lictor.images.registries import RemoteRegistries
from lictor.images.settings import RegistrySettings


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture
def registries() -> RemoteRegistries:
    return RemoteRegistries()


def test_the_digest_of_a_tag_is_computed_from_the_content(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    # The server names another digest in its header: nobody believes it.
    digest = server.put_image("team/app", "v1", {})
    found = registries.manifest(f"{server.name}/team/app", "v1", DEFAULT_ACCESS)
    assert (found.digest, found.media_type) == (digest, OCI_MANIFEST)
    assert found == registries.manifest(f"{server.name}/team/app", digest, DEFAULT_ACCESS)


def test_content_of_another_digest_is_refused(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    digest = server.put_blob("app", b"good")
    server.contents[f"/v2/app/blobs/{digest}"] = b"evil"
    with pytest.raises(LookupFailedError, match="not sha256"):
        registries.blob(f"{server.name}/app", digest, DEFAULT_ACCESS)
    manifest = server.put_image("app", "v1", {})
    server.contents[f"/v2/app/manifests/{manifest}"] = b"{}"
    with pytest.raises(LookupFailedError, match="not sha256"):
        registries.manifest(f"{server.name}/app", manifest, DEFAULT_ACCESS)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"no json", "invalid JSON"),
        (b"[]", "no JSON object"),
        (b'{"manifests": [], "layers": []}', "both an index and a manifest"),
        (orjson.dumps({"mediaType": OCI_INDEX, "layers": []}), "something else"),
        (orjson.dumps({"mediaType": OCI_MANIFEST, "manifests": []}), "something else"),
    ],
)
def test_a_document_that_is_no_manifest_is_refused(
    server: RegistryServer, registries: RemoteRegistries, document: bytes, message: str
) -> None:
    server.contents["/v2/app/manifests/v1"] = document
    with pytest.raises(LookupFailedError, match=message):
        registries.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)


def test_what_is_not_there_is_told_apart_from_a_registry_that_is_away(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    with pytest.raises(ImageNotFoundError, match="404"):
        registries.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)
    with pytest.raises(LookupFailedError) as failure:
        registries.manifest("localhost:1/app", "v1", DEFAULT_ACCESS)
    assert not isinstance(failure.value, ImageNotFoundError)


@pytest.mark.parametrize(
    ("repository", "reference"),
    [
        ("{}/../../secret", "v1"),
        ("{}/app?x=1", "v1"),
        ("{}/App", "v1"),
        ("{}/app", "v1/../x"),
        ("{}/app", "sha256:12"),
        ("{}/app", "sha256:" + "A" * 64),
        ("a b:1/app", "v1"),
        ("localhost:99999/app", "v1"),
        ("user@{}/app", "v1"),
    ],
)
def test_names_that_could_lead_elsewhere_are_refused(
    server: RegistryServer, registries: RemoteRegistries, repository: str, reference: str
) -> None:
    with pytest.raises(LookupFailedError, match=r"is no|neither"):
        registries.manifest(repository.format(server.name), reference, DEFAULT_ACCESS)
    assert not server.asked


def test_referrers_come_from_the_api_page_by_page(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    subject = "sha256:" + "a" * 64
    pages = {"": ("b", 'rel="next"'), "?n=2": ("c", "")}

    def answer(path: str, _: object) -> tuple[int, dict[str, str], bytes] | None:
        start = f"/v2/app/referrers/{subject}"
        letter, rel = pages[path.removeprefix(start)]
        entry = {"mediaType": OCI_MANIFEST, "digest": "sha256:" + letter * 64, "size": 5}
        link = {"Link": f"<{start}?n=2>; {rel}"} if rel else {}
        return 200, link, orjson.dumps({"manifests": [entry]})

    server.handle = answer
    found = registries.referrers(f"{server.name}/app", subject, DEFAULT_ACCESS)
    assert [each.digest[-1] for each in found] == ["b", "c"]


def test_referrers_come_from_the_tag_where_there_is_no_api(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    subject = digest_of(b"subject")
    entry = {
        "mediaType": OCI_MANIFEST,
        "digest": digest_of(b"x"),
        "size": 1,
        "artifactType": "application/x",
        "annotations": {"a": "b"},
    }
    server.put_manifest("app", {"manifests": [entry]}, subject.replace(":", "-"))
    (found,) = registries.referrers(f"{server.name}/app", subject, DEFAULT_ACCESS)
    assert (found.artifact_type, found.annotations) == ("application/x", {"a": "b"})
    assert registries.referrers(f"{server.name}/other", subject, DEFAULT_ACCESS) == ()


def test_the_same_question_at_the_same_time_is_asked_once(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    digest = server.put_blob("app", b"content")
    with ThreadPoolExecutor(64) as threads:
        found = list(
            threads.map(
                lambda _: registries.blob(f"{server.name}/app", digest, DEFAULT_ACCESS), range(200)
            )
        )
    assert set(found) == {b"content"}
    assert len(server.asked) == 1


def test_a_tag_is_asked_for_again_unless_it_may_be_kept(server: RegistryServer) -> None:
    server.put_image("app", "v1", {})
    for seconds, expected in ((0.0, 8), (60.0, 4)):
        server.asked.clear()
        registries = RemoteRegistries(RegistrySettings(tag_seconds=seconds))
        for _ in range(2):
            registries.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)
            with pytest.raises(ImageNotFoundError):
                registries.manifest(f"{server.name}/app", "missing", DEFAULT_ACCESS)
            # By the API, and by the tag.
            assert not registries.referrers(f"{server.name}/app", digest_of(b""), DEFAULT_ACCESS)
        assert len(server.asked) == expected


def test_a_forked_process_asks_by_itself(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    digest = server.put_blob("app", b"content")
    registries.blob(f"{server.name}/app", digest, DEFAULT_ACCESS)
    other = server.put_blob("app", b"other")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if not process:
        code = 1
        try:
            found = registries.blob(f"{server.name}/app", other, DEFAULT_ACCESS)
            code = 0 if found == b"other" else 2
        finally:
            os._exit(code)
    assert os.waitpid(process, 0)[1] == 0


def test_no_question_stops_an_event_loop(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    async def ask() -> None:
        registries.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)

    with pytest.raises(LookupFailedError, match="event loop"):
        asyncio.run(ask())


def test_whoever_has_no_time_left_does_not_wait(server: RegistryServer) -> None:
    registries = RemoteRegistries(remaining=lambda: -1.0)
    with pytest.raises(LookupFailedError, match="no time left"):
        registries.manifest(f"{server.name}/app", "v1", DEFAULT_ACCESS)


def test_image_data_is_that_of_linux_on_amd64(
    server: RegistryServer, registries: RemoteRegistries
) -> None:
    images = {
        name: server.put_image("team/app", "", {"architecture": name})
        for name in ("arm64", "amd64")
    }
    listed = [
        {"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": name}}
        for name, digest in images.items()
    ]
    digest = server.put_manifest("team/app", {"manifests": listed}, "v1")
    reference = f"{server.name}/team/app:v1"
    found = describe_image(registries, reference, DEFAULT_ACCESS)
    assert found["resolvedImage"] == f"{server.name}/team/app@{digest}"
    assert [found[key] for key in ("image", "registry", "repository", "identifier")] == [
        reference,
        server.name,
        "team/app",
        "v1",
    ]
    assert found["configData"] == {"architecture": "amd64"}
    assert found["manifestList"]["manifests"] == listed
    assert found["manifest"]["layers"] == []
