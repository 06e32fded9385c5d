"""Which files a path names: loops of links end, and pipes and devices in folders are never opened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lictor
from lictor.addons.apiserver.up.policy_files import read_objects
from lictor.cli.inputs.repositories import GitAccess
from lictor.cli.inputs.sources import expand_glob, list_policy_files, list_resource_files, read_file
from lictor.cli.lint_files import _list_linted as list_lint_files
from lictor.cli.repairs import find_files
from lictor.cli.test_cases import find_test_files
from lictor.core.errors import LoadError
from lictor.core.files import is_object_file, list_files
from lictor.webhook.file_policies import FilePolicies

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: a team is needed, pattern: {metadata: {labels: {team: "?*"}}}}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\n"
# Everything that walks folders, by the command it is for; each counts what it finds.
WALKS = {
    "apply": lambda folder: len(list(list_policy_files(folder))),
    "glob": lambda folder: len(expand_glob(f"{folder}/**/*.yaml")),
    "lint": lambda folder: len(list(list_lint_files(folder))),
    "test": lambda folder: len(list(find_test_files(folder, "policy.yaml", GitAccess()))),
    "fix": lambda folder: len(list(find_files(folder, lambda name: name.endswith(".yaml")))),
    "up": lambda folder: len(read_objects([Path(folder)])),
    "load_policies": lambda folder: len(lictor.load_policies(folder)),
    "serve": lambda folder: len(FilePolicies(Path(folder)).policies),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "policies"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "policy.yaml").write_text(POLICY)
    return made


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_loops_of_links_count_nothing_twice(folder: Path, walk) -> None:
    # Two links to the folder itself: without care, 2 to the power of 40 paths.
    for name in ("a", "b", "deep/c", "deep/d"):
        (folder / name).symlink_to(folder)
    (folder / "up").symlink_to("..")
    (folder / "root").symlink_to("/")
    (folder / "deep" / "self").symlink_to("self")
    assert walk(str(folder)) == 1


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_is_no_file_is_refused_and_not_opened(folder: Path, walk, what: str) -> None:
    (folder / "sub").mkdir()
    odd = folder / "sub" / "policy.yaml"
    if what == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero")
    with pytest.raises(LoadError, match=f"policy.yaml: is a {what}, not a regular file"):
        walk(str(folder))


def test_resources_beside_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pod.yaml")
    with pytest.raises(LoadError, match="is a pipe"):
        list_resource_files(str(tmp_path))


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_folder_that_cannot_be_looked_at_is_an_error(folder: Path, walk) -> None:
    """What lies below would not be judged, and nobody would know."""
    name, depth = "x" * 250, 20
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    with pytest.raises(LoadError, match="File name too long"):
        walk(str(folder))


@pytest.mark.parametrize("name", ["apply", "lint", "up", "load_policies", "serve"])
def test_a_link_to_a_folder_elsewhere_is_followed_once(
    folder: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "other.yaml").write_text(POLICY.replace("need-team", "other"))
    for link in ("one", "two"):
        (folder / link).symlink_to(tmp_path / "shared")
    assert WALKS[name](str(folder)) == 2


def test_folders_of_a_config_map_hold_each_file_once(tmp_path: Path) -> None:
    """The kubelet mounts files as links into a hidden folder, which is a link itself."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "policy.yaml").write_text(POLICY)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    found = list(list_files(str(tmp_path), is_object_file))
    assert found == [str(tmp_path / "policy.yaml")]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom", "/dev/tty"])
def test_devices_are_no_files(path: str) -> None:
    with pytest.raises(LoadError, match="is a device"):
        read_file(path)


def test_the_empty_device_is_an_empty_file() -> None:
    assert read_file("/dev/null").content == b""


def test_an_endless_pipe_is_not_read_to_its_end(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("lictor.core.files.MAX_BYTES", 3 << 20)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"yes > {pipe} 2>/dev/null"]), pytest.raises(LoadError) as e:
        read_file(str(pipe))
    assert "larger than 3145728 bytes" in str(e.value)


@pytest.mark.parametrize(
    "command",
    [
        'lictor apply <(printf "$POLICY") -r <(printf "$POD")',
        'lictor apply policy.yaml -r <(printf "$POD")',
        'printf "$POD" | lictor apply policy.yaml -r -',
        'printf "$POD" | lictor apply policy.yaml -r /dev/stdin',
        'printf "$POLICY" | lictor apply - -r pod.yaml',
        'mkfifo f; printf "$POD" > f & lictor apply policy.yaml -r f',
    ],
)
def test_pipes_that_someone_names_are_read(tmp_path: Path, command: str) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "pod.yaml").write_text(POD)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "POLICY": POLICY, "POD": POD, "PATH": path}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "fail: 1" in done.stdout


@pytest.mark.parametrize("line", ["\n", " \n", "#\n", "\r\n", "---\n"], ids=repr)
def test_memory_for_millions_of_empty_lines(tmp_path: Path, line: str) -> None:
    file = tmp_path / "lines.yaml"
    file.write_text(line * (4_000_000 // len(line)), newline="")
    script = (
        "import sys; from lictor.core.load.policies import load_documents\n"
        "loaded = load_documents(open(sys.argv[1], 'rb').read(), 'x')\n"
        "assert loaded.problems == ()\n"
        # Not ru_maxrss: that begins with what the parent held when it forked.
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True
    )
    # Some 40 MB with no lines at all; 700 MB where each line cost 170 bytes.
    assert int(done.stdout) < 120_000
