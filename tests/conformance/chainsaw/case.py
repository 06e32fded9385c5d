"""Chainsaw's test folders, read into records: steps with their templates put in."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chainsaw.durations import parse_seconds

from lictor.core.errors import LictorError, LoadError
from lictor.core.load.yaml import iter_documents

TEST_FILE = "chainsaw-test.yaml"
SETTINGS_FILE = ".chainsaw.yaml"
Object = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How long to wait, and a few habits; each folder may have its own."""

    timeouts: Mapping[str, float] = field(
        default_factory=lambda: {
            "apply": 5, "assert": 30, "cleanup": 30, "delete": 15, "error": 30, "exec": 5,
        }
    )  # fmt: skip
    grace: int | None = None
    """What terminationGracePeriodSeconds becomes in everything that holds Pods."""
    delay_before_cleanup: float = 0
    templating: bool = True


@dataclass(frozen=True)
class Step:
    """A stretch of a test; what it creates is deleted when the test ends."""

    name: str
    bindings: Sequence[Object]
    tries: Sequence[Object]
    catches: Sequence[Object]
    finallies: Sequence[Object]
    cleanups: Sequence[Object]
    timeouts: Mapping[str, float]
    templating: bool | None


@dataclass(frozen=True)
class Case:
    """A test: its folder below the root is its name here, as in the index of answers."""

    path: str
    folder: Path
    name: str
    steps: Sequence[Step]
    bindings: Sequence[Object]
    settings: Settings
    namespace: str
    skip: bool
    concurrent: bool
    fault: str = ""
    """Why the test cannot be read; then it has no steps."""

    @property
    def group(self) -> str:
        """The first part of the path."""
        return self.path.partition("/")[0]


def read_objects(path: Path) -> list[Object]:
    """The documents of a file, lists taken apart; YAML as Kubernetes reads it."""
    found: list[Object] = []
    for document in iter_documents(path.read_bytes(), str(path)):
        body = document.body
        if str(body.get("kind", "")).endswith("List") and isinstance(body.get("items"), list):
            found.extend(body["items"])
        else:
            found.append(body)
    return found


def find_cases(root: Path, below: Sequence[str] = ()) -> list[Case]:
    """All tests below the root, or below these folders of it, by path."""
    places = [root / name for name in below] if below else [root]
    files = {file for place in places for file in place.rglob(TEST_FILE)}
    return [case for file in sorted(files) for case in _read_cases(root, file)]


def _read_cases(root: Path, file: Path) -> Iterator[Case]:
    settings = read_settings(root, file.parent)
    try:
        bodies = read_objects(file)
    except LictorError as error:
        yield _broken_case(root, file, str(error))
        return
    for body in bodies:
        spec = body["spec"]
        limits = {**settings.timeouts, **_read_timeouts(spec.get("timeouts"))}
        steps, fault = _read_steps(spec["steps"], file.parent)
        yield Case(
            path=str(file.parent.relative_to(root)),
            folder=file.parent,
            name=body["metadata"]["name"],
            steps=steps,
            bindings=spec.get("bindings") or (),
            settings=_adapt(settings, spec, limits),
            namespace=spec.get("namespace") or "",
            skip=bool(spec.get("skip")),
            concurrent=spec.get("concurrent") is not False,
            fault=fault,
        )


def _broken_case(root: Path, file: Path, fault: str) -> Case:
    path = str(file.parent.relative_to(root))
    return Case(
        path, file.parent, path, (), (), Settings(), "", skip=False, concurrent=False, fault=fault
    )


def _read_steps(bodies: Sequence[Object], folder: Path) -> tuple[list[Step], str]:
    try:
        return [_read_step(body, at, folder) for at, body in enumerate(bodies)], ""
    except (OSError, LictorError) as error:
        return [], str(error)


def _adapt(settings: Settings, spec: Object, limits: Mapping[str, float]) -> Settings:
    grace = spec.get("forceTerminationGracePeriod")
    template = spec.get("template")
    return replace(
        settings,
        timeouts=limits,
        grace=int(parse_seconds(grace)) if grace else settings.grace,
        templating=settings.templating if template is None else template,
    )


def _read_timeouts(given: Mapping[str, str] | None) -> dict[str, float]:
    return {name: parse_seconds(text) for name, text in (given or {}).items()}


def read_settings(root: Path, folder: Path) -> Settings:
    """The settings nearest to a test's folder, on the way up to the root."""
    for place in (folder, *folder.parents):
        if (place / SETTINGS_FILE).exists():
            return _read_settings(read_objects(place / SETTINGS_FILE)[0].get("spec") or {})
        if place == root:
            break
    return Settings()


def _read_settings(spec: Object) -> Settings:
    plain = Settings()
    grace = (spec.get("execution") or {}).get("forceTerminationGracePeriod")
    delay = (spec.get("cleanup") or {}).get("delayBeforeCleanup")
    return Settings(
        timeouts={**plain.timeouts, **_read_timeouts(spec.get("timeouts"))},
        grace=int(parse_seconds(grace)) if grace else None,
        delay_before_cleanup=parse_seconds(delay) if delay else 0,
        templating=(spec.get("templating") or {}).get("enabled") is not False,
    )


def _read_step(body: Object, at: int, folder: Path) -> Step:
    template: Object = {}
    bindings = list(body.get("bindings") or ())
    if use := body.get("use"):
        # Joined as Go joins paths: one that begins with a slash is relative all the same.
        path = Path(os.path.normpath(f"{folder}/{use['template']}"))
        template = read_objects(path)[0]["spec"]
        bindings += template.get("bindings") or ()
        bindings += (use.get("with") or {}).get("bindings") or ()

    def joined(name: str) -> list[Object]:
        return [*(body.get(name) or ()), *(template.get(name) or ())]

    if not joined("try"):
        # Nothing to do is a slip in the file, and would pass unseen.
        raise LoadError("a step has no operations", where=str(folder))
    return Step(
        name=body.get("name") or f"step-{at + 1}",
        bindings=bindings,
        tries=joined("try"),
        catches=joined("catch"),
        finallies=joined("finally"),
        cleanups=joined("cleanup"),
        timeouts=_read_timeouts(body.get("timeouts")),
        templating=body.get("template"),
    )
