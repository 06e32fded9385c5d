"""Tests with images that real tools made: run when asked for.

    LICTOR_IMAGE_TESTS=1 pytest tests/images        or just        pytest tests/images

`pytest` on everything leaves this folder out, as the tools take minutes to build the first time.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

HERE = Path(__file__).parent
# The tools stand beside the control plane, which is built in the same manner.
sys.path.append(str(HERE.parent / "cluster"))

from image_tools.loopback_registry import Repository, serve_registry  # noqa: E402
from image_tools.programs import COSIGN, CRANE, NOTATION, NoToolsError, Tool, find_tool  # noqa: E402
from image_tools.scene import Scene, Signers  # noqa: E402
from image_tools.signers import CosignSigner, NotationSigner, make_authority, make_signer  # noqa: E402

ASKED = "LICTOR_IMAGE_TESTS"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out unless it was named, by the variable or on the command line."""
    if os.environ.get(ASKED) == "1" or HERE not in collection_path.parents:
        return None
    named = (Path(str(word).partition("::")[0]).absolute() for word in config.args)
    return None if any(path == HERE or HERE in path.parents for path in named) else True


def _find(config: pytest.Config, tool: Tool) -> Path:
    terminal = config.pluginmanager.getplugin("terminalreporter")
    try:
        return find_tool(tool, lambda line: terminal.write_line(line) if terminal else None)
    except NoToolsError as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="session")
def crane(pytestconfig: pytest.Config) -> Path:
    return _find(pytestconfig, CRANE)


@pytest.fixture(scope="session")
def cosign(pytestconfig: pytest.Config) -> Path:
    return _find(pytestconfig, COSIGN)


@pytest.fixture(scope="session")
def notation(pytestconfig: pytest.Config) -> Path:
    return _find(pytestconfig, NOTATION)


@pytest.fixture(scope="session")
def registry(crane: Path) -> Iterator[str]:
    """The address of a registry on loopback."""
    with serve_registry(crane) as address:
        yield address


@pytest.fixture(scope="session")
def signers(cosign: Path, notation: Path, tmp_path_factory: pytest.TempPathFactory) -> Signers:
    folder = tmp_path_factory.mktemp("signers")
    by_cosign, by_notation = CosignSigner(cosign, folder), NotationSigner(notation, folder)
    authority = make_authority("root")
    alice, mallory = make_signer("alice", authority), make_signer("mallory", make_authority("bad"))
    by_notation.add("alice", alice)
    by_notation.add("mallory", mallory)
    trusted, stranger = by_cosign.make_key("trusted"), by_cosign.make_key("stranger")
    return Signers(by_cosign, by_notation, trusted, stranger, authority, alice, mallory)


@pytest.fixture
def scene(
    signers: Signers, registry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Scene:
    name = uuid4().hex
    repository = Repository(registry, f"team/{name}")
    repository.push_image("v1", name)
    return Scene(signers, repository, tmp_path, capsys)
