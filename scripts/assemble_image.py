"""Inside the image build: create the file system of the image.

    python3 scripts/assemble_image.py stamp src/lictor/core/release.py
    python3 scripts/assemble_image.py tree /opt/lictor /image

`stamp` writes COMMIT and BUILT_AT of the environment into the source. `tree` copies a virtual
environment, the interpreter that it stands on, the shared libraries that any of their files needs,
and a few files that the C library and OpenSSL read. Debian's records of the packages that these
libraries are from come along, so that scanners of images find them. Needs Python alone: nothing is
installed in the stage that runs it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

# Parts of the standard library that no server uses, or that bring libraries for what is not there.
LEFT_OUT = (
    *("_crypt.*", "_curses*", "_dbm.*", "_gdbm.*", "nis.*", "ossaudiodev.*", "readline.*"),
    *("__pycache__", "config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data"),
    *(
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtle.py",
        "turtledemo",
        "_tkinter*",
        "_test*",
    ),
)
# What is read at run time and is no library; the second half is missing in some base images.
FILES = ("/etc/os-release", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
USUAL_FILES = (
    *("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/openssl.cnf"),
    *("/usr/lib/ssl", "/usr/share/zoneinfo"),
)
MADE = {
    "etc/passwd": "root:x:0:0::/:/sbin/nologin\nnobody:x:65534:65534::/tmp:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# Of the programs that packages bring, these.
PROGRAMS = re.compile(r"python[0-9.]*|lictor")
_NEEDED = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")
_ELF = b"\x7fELF"
_PACKAGES = Path("/var/lib/dpkg/status")


def stamp(release: Path, built_at: str, commit: str) -> None:
    """Write the build data of `lictor version` into the source."""
    text = release.read_text(encoding="utf-8")
    for name, value in (("BUILT_AT", built_at), ("COMMIT", commit)):
        if not re.fullmatch(r"[0-9A-Za-z:.+-]{1,64}", value):
            raise SystemExit(f"{name}={value!r}: not a time or a commit")
        text, found = re.subn(rf'^{name} = ".*"$', f'{name} = "{value}"', text, flags=re.MULTILINE)
        if found != 1:
            raise SystemExit(f"{release}: no line for {name}")
    release.write_text(text, encoding="utf-8")


class Tree:
    """The file system of the image while it grows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.copied: set[Path] = set()

    def add(self, path: Path, left_out: tuple[str, ...] = ()) -> None:
        """Copy a file or a folder under its own name, with every link on the path to it."""
        path = self._follow(path)
        target = self.root / path.relative_to("/")
        if path.is_dir():
            ignore = shutil.ignore_patterns(*left_out)
            shutil.copytree(path, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)
            for link in [each for each in target.rglob("*") if each.is_symlink()]:
                self._add_target(path / link.relative_to(target))
        elif path not in self.copied:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        self.copied.add(path)

    def _follow(self, path: Path) -> Path:
        """The path without links; the links themselves are made in the tree."""
        for part in [*reversed(path.parents), path]:
            if part.is_symlink():
                made = self.root / part.relative_to("/")
                made.parent.mkdir(parents=True, exist_ok=True)
                if not made.is_symlink():
                    made.symlink_to(os.readlink(part))
                target = Path(os.path.normpath(part.parent / os.readlink(part)))
                return self._follow(target / path.relative_to(part))
        return path

    def _add_target(self, link: Path) -> None:
        target = Path(os.path.normpath(link.parent / os.readlink(link)))
        # A link to a folder that holds it would have no end, and one that leads nowhere stays so.
        if target.is_file() and target not in self.copied:
            self.add(target)

    def holds(self, path: Path) -> bool:
        """Is the file in the tree already, under its own name?"""
        return (self.root / path.relative_to("/")).exists()


def list_binaries(folders: Iterable[Path]) -> Iterator[Path]:
    """Programs and libraries below the folders."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and _starts_as_elf(path):
                yield path


def _starts_as_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == _ELF


def list_libraries(binary: Path) -> list[Path]:
    """The shared libraries that the loader would map for a program or library."""
    done = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False)
    if "not found" in done.stdout:
        raise SystemExit(f"{binary} needs what the base image does not have:\n{done.stdout}")
    return [Path(name) for name in _NEEDED.findall(done.stdout)]


def build_tree(environment: Path, root: Path) -> None:
    """Create everything."""
    tree = Tree(root)
    tree.add(environment, ("__pycache__", "include"))
    for program in (root / environment.relative_to("/") / "bin").iterdir():
        if not PROGRAMS.fullmatch(program.name):
            program.unlink()
    interpreter = Path(os.path.realpath(environment / "bin" / "python"))
    tree.add(environment / "bin" / "python")
    library = Path(sysconfig.get_path("stdlib"))
    tree.add(library, LEFT_OUT)
    binaries = [interpreter, *list_binaries((environment, root / library.relative_to("/")))]
    for needed in sorted({each for binary in binaries for each in list_libraries(binary)}):
        if not needed.is_relative_to(root):
            tree.add(needed)
    for name in (*FILES, *(each for each in USUAL_FILES if Path(each).exists())):
        tree.add(Path(name), ("posix", "right"))
    _finish(tree)
    _compile(root, (environment, library))


def _finish(tree: Tree) -> None:
    for name, text in MADE.items():
        path = tree.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # Some runtimes cannot make the places of mounts in a read-only file system.
    for name in ("dev", "proc", "run", "sys", "tmp", "var/cache"):
        (tree.root / name).mkdir(parents=True, exist_ok=True)
    (tree.root / "tmp").chmod(0o1777)
    add_package_records(tree)
    # Library folders outside of the loader's defaults, such as those of /usr/local.
    subprocess.run(["/sbin/ldconfig", "-r", str(tree.root)], check=True)


def _compile(root: Path, folders: Iterable[Path]) -> None:
    """Unchecked bytecode: the file system is read-only, and start-up time matters."""
    places = [str(root / each.relative_to("/")) for each in folders]
    options = [
        "-q",
        "-f",
        "-j0",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(root),
        "-p",
        "/",
    ]
    # Some packages carry templates that are no Python: their errors are no reason to stop.
    subprocess.run([sys.executable, "-P", "-m", "compileall", *options, *places], check=False)


# --- which packages the files are from


def add_package_records(tree: Tree) -> None:
    """Records and licences of the packages of the tree's files, as distroless images hold them."""
    stanzas = read_stanzas(_PACKAGES.read_text(encoding="utf-8"))
    folder = tree.root / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(find_packages(tree.copied)):
        (folder / name).write_text(stanzas[name] + "\n", encoding="utf-8")
        licence = Path("/usr/share/doc") / name / "copyright"
        if licence.exists() and not tree.holds(licence):
            tree.add(licence)


def read_stanzas(status: str) -> dict[str, str]:
    """The entries of dpkg's status file."""
    found = {}
    for stanza in re.split(r"\n{2,}", status.strip()):
        name = re.match(r"Package: (\S+)", stanza)
        if name is not None:
            found[name[1]] = stanza
    return found


def find_packages(paths: Iterable[Path]) -> set[str]:
    """The packages that files belong to; files of /usr/local belong to none."""
    asked = []
    for path in paths:
        # Packages name files of /usr/lib as they were before /lib became a link to it.
        asked += [str(path), str(path).removeprefix("/usr")]
    done = subprocess.run(
        ["dpkg-query", "--search", *asked], capture_output=True, text=True, check=False
    )
    lines = (line.partition(": ")[0] for line in done.stdout.splitlines() if ": /" in line)
    return {name.strip().partition(":")[0] for line in lines for name in line.split(",")}


def main() -> None:
    """Run the given step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("stamp").add_argument("release", type=Path)
    tree = commands.add_parser("tree")
    tree.add_argument("environment", type=Path)
    tree.add_argument("root", type=Path)
    given = parser.parse_args()
    if given.command == "stamp":
        stamp(given.release, os.environ.get("BUILT_AT", "---"), os.environ.get("COMMIT", "---"))
    else:
        build_tree(given.environment, given.root)


if __name__ == "__main__":
    main()
