"""Settings of `lint` from the nearest lictor.toml, or from [tool.lictor] of a pyproject.toml."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from lictor.core.errors import UsageError
from lictor.core.raw import JsonObject
from lictor.lint.selection import CheckChooser, LintSelection

_OWN_FILE = "lictor.toml"
_SHARED_FILE = "pyproject.toml"


class LintSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The table `lint` of a settings file."""

    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    per_file_ignores: dict[str, tuple[str, ...]] = {}
    # Whether warnings count as errors.
    strict: bool = False
    # Files and folders with CustomResourceDefinitions, from the folder of the settings.
    crds: tuple[str, ...] = ()


class _SettingsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    lint: LintSettings = LintSettings()


def find_lint_settings(start: Path) -> LintSettings:
    """Load the nearest settings file, from a folder upward; the defaults if there is none."""
    for folder in (start, *start.parents):
        own, shared = folder / _OWN_FILE, folder / _SHARED_FILE
        if own.is_file():
            return _read(own, _parse(own))
        if shared.is_file():
            table = (_parse(shared).get("tool") or {}).get("lictor")
            if table is not None:
                return _read(shared, table)
    return LintSettings()


def choose_start(paths: Iterable[str]) -> Path:
    """Where the search begins: at the first path that is a file or folder, else here."""
    for given in paths:
        path = Path(given)
        if path.exists():
            return (path if path.is_dir() else path.parent).resolve()
    return Path.cwd()


def combine(
    settings: LintSettings, select: tuple[str, ...], ignore: tuple[str, ...]
) -> LintSelection:
    """Merge the settings with the flags: `select` replaces, `ignore` adds."""
    return LintSelection(
        select or settings.select, (*settings.ignore, *ignore), settings.per_file_ignores
    )


def _parse(path: Path) -> JsonObject:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _read(path: Path, table: JsonObject) -> LintSettings:
    try:
        settings = msgspec.convert(table, _SettingsFile).lint
        # An unknown name is reported with the path of the settings file.
        CheckChooser(combine(settings, (), ()))
    except (msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{path}: {error}") from error
    crds = tuple(str(path.parent / each) for each in settings.crds)
    return msgspec.structs.replace(settings, crds=crds)
