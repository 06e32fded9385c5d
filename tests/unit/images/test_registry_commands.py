"""`apply` and `test` look into images: in a registry, or in a folder in its place."""

import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from registry_server import RegistryServer, digest_of

from lictor.cli.exit_codes import run

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: no-root}
spec:
  rules:
  - name: has-user
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: runs as root
      foreach:
      - list: request.object.spec.containers
        context:
        - name: data
          imageRegistry: {reference: "{{ element.image }}"}
        deny:
          conditions:
            all:
            - {key: "{{ data.configData.config.User }}", operator: Equals, value: root}
"""
TEST = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: images}
policies: [policy.yaml]
resources: [pods.yaml]
results:
- {policy: no-root, rule: has-user, kind: Pod, resources: [good], result: pass}
- {policy: no-root, rule: has-user, kind: Pod, resources: [bad], result: fail}
"""


def _pod(name: str, image: str) -> str:
    containers = [{"name": "main", "image": image}]
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": containers},
        }
    )


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        for user in ("1000", "root"):
            running.put_image("app", f"u{user}", {"config": {"User": user}})
        yield running


@pytest.fixture
def folder(tmp_path: Path, server: RegistryServer) -> Path:
    """A test of two Pods, and the registry's content as a layout."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    pods = [("good", "u1000"), ("bad", "uroot"), ("absent", "v0")]
    texts = [_pod(name, f"{server.name}/app:{tag}") for name, tag in pods]
    (tmp_path / "pods.yaml").write_text("\n---\n".join(texts))
    (tmp_path / "kyverno-test.yaml").write_text(TEST)
    blobs = tmp_path / "layout" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    entries = []
    for path, content in server.contents.items():
        digest = digest_of(content)
        (blobs / digest.partition(":")[2]).write_bytes(content)
        tag = path.rpartition("/manifests/")[2]
        if "/manifests/u" in path:
            named = {"org.opencontainers.image.ref.name": f"app:{tag}"}
            entries.append({"digest": digest, "size": len(content), "annotations": named})
    (tmp_path / "layout" / "index.json").write_bytes(orjson.dumps({"manifests": entries}))
    return tmp_path


def _call(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code, and everything that was said."""
    code = run(list(words))
    said = capfd.readouterr()
    return code, said.out + said.err


def _apply(capfd: pytest.CaptureFixture[str], folder: Path, *more: str) -> dict[str, str]:
    """What was found for each Pod."""
    words = ["apply", str(folder / "policy.yaml"), "-r", str(folder / "pods.yaml")]
    run([*words, "-p", "--output-format", "json", *more])
    results = json.loads(capfd.readouterr().out)["results"]
    return {each["resources"][0]["name"]: each["result"] for each in results}


_EXPECTED = {"good": "pass", "bad": "fail", "absent": "error"}


@pytest.mark.parametrize("more", [[], ["--parallel", "2"]])
def test_apply_asks_a_registry(
    capfd: pytest.CaptureFixture[str], server: RegistryServer, folder: Path, more: list[str]
) -> None:
    assert _apply(capfd, folder, "--registry", *more) == _EXPECTED
    assert server.asked


def test_apply_asks_a_folder_and_nobody_else(
    capfd: pytest.CaptureFixture[str], server: RegistryServer, folder: Path
) -> None:
    assert _apply(capfd, folder, "--image-layout", str(folder / "layout")) == _EXPECTED
    assert not server.asked


def test_nobody_is_asked_without_leave(
    capfd: pytest.CaptureFixture[str], server: RegistryServer, folder: Path
) -> None:
    assert set(_apply(capfd, folder).values()) == {"error"}
    assert not server.asked


@pytest.mark.parametrize("words", [["--registry"], ["--image-layout", "{}/layout"]])
def test_tests_of_policies_look_into_images(
    capfd: pytest.CaptureFixture[str], folder: Path, words: list[str]
) -> None:
    code, said = _call(capfd, "test", str(folder), *(word.format(folder) for word in words))
    assert code == 0, said
    assert "2 tests passed and 0 tests failed" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--registry", "--image-layout", "x"], "the folder replaces registries"),
        (["--image-layout", "/nowhere"], "is not an OCI image layout"),
    ],
)
def test_wrong_calls_are_told(
    capfd: pytest.CaptureFixture[str], folder: Path, words: list[str], message: str
) -> None:
    resources = str(folder / "pods.yaml")
    code, said = _call(capfd, "apply", str(folder / "policy.yaml"), "-r", resources, *words)
    assert code != 0
    assert message in said
