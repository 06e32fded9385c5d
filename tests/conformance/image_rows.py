"""Judges signed images with lictor, and compares with what real Kyverno said of them, row by row."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from listed_differences import Listed

from lictor.cli.exit_codes import run

# The names of the images say so.
ADDRESS = "localhost:5005"
_GRAVEST = ("error", "fail", "warn", "pass", "skip", "none", "no row")
_REFUSED = ("error", "fail")
_ABSENT: Mapping[str, Any] = {"result": "no row", "results": []}
_STARTS_WITHIN = 20.0

Key = tuple[str, str, str, str]
Row = Mapping[str, Any]


class NoRegistryError(RuntimeError):
    """The corpus cannot be served here."""


@dataclass(frozen=True)
class Difference:
    """A row on which lictor and Kyverno do not say the same."""

    key: Key
    want: Row
    got: Row
    is_listed: bool
    # Something passes, or is not even looked at, that Kyverno refuses.
    is_softer: bool

    def __str__(self) -> str:
        rows = self.want, self.got
        sides = [f"{row['result']} {row['results']} {row.get('patched') or ''}" for row in rows]
        return f"{'/'.join(self.key)}: want {sides[0]}, got {sides[1]}"


@dataclass(frozen=True)
class Comparison:
    """How many rows there are, and those that differ."""

    total: int
    differences: tuple[Difference, ...]

    @property
    def unlisted(self) -> list[Difference]:
        return [each for each in self.differences if not each.is_listed]

    @property
    def rate(self) -> float:
        return 1 - len(self.unlisted) / max(1, self.total)


@contextlib.contextmanager
def served_corpus(images: Path, server: Path) -> Iterator[None]:
    """The registry of the corpus at its address: whoever serves it already, or a server of ours."""
    if _is_served(images):
        yield
        return
    command = [sys.executable, str(server), str(images), "--address", ADDRESS]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + _STARTS_WITHIN
            while not _is_served(images):
                if process.poll() is not None or time.monotonic() > until:
                    raise NoRegistryError(f"{ADDRESS} is taken by something else")
                time.sleep(0.1)
            yield
        finally:
            process.kill()


def _is_served(images: Path) -> bool:
    """Whether this very corpus answers, and not just any registry."""
    entries = json.loads((images / "registry" / "index.json").read_bytes())["manifests"]
    name = entries[0]["annotations"]["org.opencontainers.image.ref.name"].partition("@")[0]
    repository = name.partition(":")[0]
    url = f"http://{ADDRESS}/v2/{repository}/manifests/{entries[0]['digest']}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def compare(images: Path, differences: Path, scratch: Path, only: str = "") -> Comparison:
    """Apply each policy to its resources; `differences` is the file that lists what differs."""
    listed = Listed("Images", differences)
    os.environ["TUF_ROOT"] = str(shutil.copytree(images / "keys" / "tuf-cache", scratch / "tuf"))
    wanted = [json.loads(line) for line in (images / "verdicts.jsonl").read_text().splitlines()]
    want = {_key(row): row for row in wanted if only in row["policy"]}
    names = dict.fromkeys(row["policy"] for row in want.values())
    got = {_key(row): row for name in names for row in judge(images, name)}
    want, got = _without_idle(want, got), _without_idle(got, want)
    keys = sorted(want.keys() | got.keys())
    different = [key for key in keys if not _is_same(want.get(key, _ABSENT), got.get(key, _ABSENT))]
    return Comparison(len(keys), tuple(_describe(key, want, got, listed) for key in different))


def _describe(
    key: Key, want: Mapping[Key, Row], got: Mapping[Key, Row], listed: Listed
) -> Difference:
    expected, mine = want.get(key, _ABSENT), got.get(key, _ABSENT)
    # A refusal under another rule's name is one, too.
    same_resource = [row for other, row in got.items() if _place(other) == _place(key)]
    answers = [mine] if key in got else same_resource
    refused = any(row["result"] in _REFUSED for row in answers)
    return Difference(
        key,
        expected,
        mine,
        is_listed=f"{key[0]}/{key[3]}" in listed,
        is_softer=expected["result"] in _REFUSED and not refused,
    )


def _place(key: Key) -> tuple[str, str, str]:
    policy, _, kind, name = key
    return policy, kind, name


def _key(row: Row) -> Key:
    return row["policy"], row["rule"], row["kind"], row["name"]


def _is_same(want: Row, got: Row) -> bool:
    return all(want.get(part) == got.get(part) for part in ("result", "results", "patched"))


def _without_idle(mine: Mapping[Key, Row], other: Mapping[Key, Row]) -> dict[Key, Row]:
    """What is missing counts once: no row `none` where the other side has rows for the resource."""
    busy = {_place(key) for key, row in other.items() if row["result"] != "none"}
    return {
        key: row for key, row in mine.items() if row["result"] != "none" or _place(key) not in busy
    }


def judge(images: Path, name: str) -> Iterator[Row]:
    """lictor's rows for one policy."""
    policy, resources = (images / part / f"{name}.yaml" for part in ("policies", "resources"))
    probe = [str(images / "probe.yaml")] if "verifyImages" in policy.read_text() else []
    told: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    left: dict[tuple[str, str], dict[str, str]] = {}
    for result in _apply([str(policy), *probe, "-r", str(resources)]):
        for resource in result.get("resources") or []:
            place = resource["kind"], resource["name"]
            if result["policy"] == "probe":
                # A rule that always fails, whose message is what the verification left behind.
                left[place] = dict(_list_images(json.loads(result["message"])))
            else:
                told[place][result.get("rule", "")].append(result["result"])
    for document in yaml.safe_load_all(resources.read_text(encoding="utf-8")):
        place = document["kind"], document["metadata"]["name"]
        before = dict(_list_images(document))
        patched = {k: v for k, v in left.get(place, {}).items() if before.get(k) != v}
        for rule, found in sorted(told[place].items()) or [("", ["none"])]:
            row = {"policy": name, "rule": rule, "kind": place[0], "name": place[1]}
            row |= {"result": min(found, key=_GRAVEST.index)}
            row |= {"results": sorted(each for each in found if each != "none")}
            yield {**row, **({"patched": patched} if patched else {})}


def _apply(words: list[str]) -> Iterator[dict[str, Any]]:
    """The results in all reports that a run of `apply` prints."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    flags = ["--registry", "-p", "--output-format", "json", "--continue-on-fail", "--remove-color"]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        run(["apply", *words, *flags])
    printed.flush()
    text = printed.buffer.getvalue().decode()
    decoder = json.JSONDecoder()
    while "{" in text:
        start = text.index("{")
        try:
            report, end = decoder.raw_decode(text[start:])
        except ValueError:
            return
        yield from (result for result in report.get("results") or [] if result.get("result"))
        text = text[start + end :]


def _list_images(node: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Pointer and value of every text field named image."""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(node, dict):
        items = node.items()
    elif isinstance(node, list):
        items = enumerate(node)
    for key, value in items:
        if key == "image" and isinstance(value, str):
            yield f"{path}/{key}", value
        else:
            yield from _list_images(value, f"{path}/{key}")
