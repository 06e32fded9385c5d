"""The Dockerfile and the scripts around it, as far as they can be tried without a builder."""

import argparse
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts"))
import assemble_image  # noqa: E402
import make_image  # noqa: E402

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def list_copied() -> list[str]:
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    return [name for line in lines for name in line.split()]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    kept = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert list_copied()
    for name in list_copied():
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, each) for each in kept), f"{name}: not in .dockerignore"


def test_the_last_stage_is_empty_but_for_what_was_assembled() -> None:
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert last.startswith("\nFROM scratch\nCOPY --from=build /image /\n")
    assert "RUN" not in last  # there is no shell that could
    assert "USER 65534:65534" in last
    assert 'ENTRYPOINT ["lictor"]' in last


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("lictor:1", "docker.io/library/lictor:1"),
        ("team/lictor:1", "docker.io/team/lictor:1"),
        ("registry.example/lictor:1", "registry.example/lictor:1"),
        ("localhost/lictor", "localhost/lictor"),
        ("localhost:5000/lictor", "localhost:5000/lictor"),
    ],
)
def test_names_are_those_that_nodes_look_for(tag: str, name: str) -> None:
    assert make_image.complete_name(tag) == name


@pytest.mark.parametrize("builder", make_image.BUILDERS)
def test_the_call_of_the_builder(builder: str) -> None:
    given = argparse.Namespace(tag="lictor:1", base="base:2", target="with-shell")
    call = make_image.build_command(builder, given, ["--isolation=chroot"])
    assert call[:2] == [builder, "build"]
    assert {"PYTHON_IMAGE=base:2", "docker.io/library/lictor:1", "with-shell"} <= set(call)
    assert call[-2:] == ["--isolation=chroot", str(make_image.ROOT)]
    assert ("--timestamp" in call) == (builder != "docker")


def test_without_a_builder_it_says_so() -> None:
    with pytest.raises(SystemExit, match="no image is built: no-such-builder not found"):
        make_image.find_builder("no-such-builder")


def test_the_build_is_written_into_the_source(tmp_path: Path) -> None:
    release = tmp_path / "release.py"
    release.write_text((ROOT / "src/lictor/core/release.py").read_text())
    assemble_image.stamp(release, "2026-01-02T03:04:05Z", "0abc")
    made: dict[str, str] = {}
    exec(release.read_text(), made)
    assert (made["BUILT_AT"], made["COMMIT"]) == ("2026-01-02T03:04:05Z", "0abc")


@pytest.mark.parametrize("value", ["", '"; import os', "a b", "x" * 65])
def test_only_a_time_and_a_commit_are_written(tmp_path: Path, value: str) -> None:
    with pytest.raises(SystemExit):
        assemble_image.stamp(ROOT / "src/lictor/core/release.py", value, "0abc")


def test_a_tree_keeps_links_on_the_path(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "usr/lib").mkdir(parents=True)
    (source / "lib").symlink_to("usr/lib")
    (source / "usr/lib/libx.so.1.2").write_text("x")
    (source / "usr/lib/libx.so.1").symlink_to("libx.so.1.2")
    tree = assemble_image.Tree(root)
    tree.add(source / "lib/libx.so.1")
    made = root / str(source).lstrip("/")
    assert (made / "lib").is_symlink()
    assert (made / "usr/lib/libx.so.1").is_symlink()
    assert (made / "lib/libx.so.1").read_text() == "x"


def test_a_folder_comes_with_what_its_links_lead_to(tmp_path: Path) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "bin").mkdir(parents=True)
    (source / "other").write_text("python")
    (source / "bin/python3").symlink_to("../other")
    (source / "bin/python").symlink_to("python3")
    (source / "bin/nowhere").symlink_to("/does/not/exist")
    (source / "bin/__pycache__").mkdir()
    assemble_image.Tree(root).add(source / "bin", ("__pycache__",))
    made = root / str(source).lstrip("/")
    assert (made / "bin/python").read_text() == "python"
    assert sorted(each.name for each in (made / "bin").iterdir()) == [
        "nowhere",
        "python",
        "python3",
    ]


def test_libraries_of_a_program_are_found() -> None:
    found = assemble_image.list_libraries(Path(sys.executable).resolve())
    assert any(path.name.startswith("libc.so") for path in found)
    assert any(path.name.startswith("ld-linux") for path in found)


def test_records_of_packages() -> None:
    stanzas = assemble_image.read_stanzas("Package: a\nVersion: 1\n\nPackage: b\nVersion: 2\n")
    assert stanzas == {"a": "Package: a\nVersion: 1", "b": "Package: b\nVersion: 2"}


def test_the_script_for_the_base_is_a_shell_script() -> None:
    for name in ("scripts/make_base_image.sh", "plugin/kubectl-lictor"):
        subprocess.run(["sh", "-n", str(ROOT / name)], check=True)
