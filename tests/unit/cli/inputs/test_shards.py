"""Inputs cut into shards hold what the whole holds: the same resources, in order, at their lines."""

import json
import random
from collections.abc import Iterator

import pytest

from lictor.cli.inputs.document_reader import DocumentReader
from lictor.cli.inputs.inputs import KeptInput
from lictor.cli.inputs.resources import load_resources, parse_document
from lictor.cli.inputs.shards import ShardLimits
from lictor.core.errors import LoadError

TINY = ShardLimits(split=300, document=3000, smallest_shard=200)


def make_pod(number: int, size: int = 20) -> dict:
    note = f'π}} {{ \\ " --- {"x" * (number * 7 % size)}'
    metadata = {"name": f"pod-{number}", "annotations": {"note": note}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}}


PODS = [make_pod(number) for number in range(40)]


def write_yaml(pods: list[dict]) -> str:
    return "".join(
        f"---\n# a pod\nkind: Pod\napiVersion: v1\nmetadata: {json.dumps(p['metadata'])}\n"
        for p in pods
    )


def write_yaml_list(pods: list[dict], indent: str = "") -> str:
    lines = []
    for pod in pods:
        lines.append(
            f"{indent}- apiVersion: v1\n{indent}  kind: Pod\n{indent}  metadata: {json.dumps(pod['metadata'])}\n"
        )
        lines.append(
            f"{indent}  text: |\n{indent}    - no item\n\n{indent}    kind: no tail\n# nor this\n"
        )
    return f"apiVersion: v1\nitems:\n{''.join(lines)}kind: List\nmetadata:\n  resourceVersion: ''\n"


def write_list(pods: list[dict], **options: int) -> str:
    # As kubectl writes it: the kind comes last.
    body = {"apiVersion": "v1", "items": pods, "kind": "List", "metadata": {"resourceVersion": ""}}
    return json.dumps(body, ensure_ascii=False, **options)


def write_lines(pods: list[dict]) -> str:
    return "".join(json.dumps(pod) + "\n" for pod in pods)


def cut(text: str | bytes, bounds: ShardLimits = TINY) -> DocumentReader:
    content = text if isinstance(text, bytes) else text.encode()
    return DocumentReader([KeptInput("f", content)], bounds)


def list_names(found: DocumentReader) -> list[str]:
    return [resource["metadata"]["name"] for resource in found.list_resources()]


NAMES = [pod["metadata"]["name"] for pod in PODS]
FORMS = {
    "documents": write_yaml(PODS),
    "windows lines": write_yaml(PODS).replace("\n", "\r\n"),
    "yaml list": write_yaml_list(PODS),
    "yaml list of windows": write_yaml_list(PODS).replace("\n", "\r\n"),
    "indented yaml list": write_yaml_list(PODS, "  "),
    "json list": write_list(PODS),
    "indented json list": write_list(PODS, indent=4),
    "json lines": write_lines(PODS),
    "json lines after a mark": "\ufeff" + write_lines(PODS),
    "json values in a row": "".join(json.dumps(pod, indent=2) for pod in PODS),
    "two lists": write_list(PODS[:20], indent=1) + "\n" + write_list(PODS[20:]),
    "a list in a line among others": write_lines(PODS[:3])
    + write_list(PODS[3:30])
    + "\n"
    + write_lines(PODS[30:]),
    "json documents": "".join(f"---\n{json.dumps(pod)}\n" for pod in PODS),
    "all at once": write_yaml(PODS[:9])
    + "---\n"
    + write_list(PODS[9:20])
    + "\n---\n"
    + write_yaml_list(PODS[20:30])
    + "---\n"
    + write_lines(PODS[30:]),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("shard", [50, 200, 1 << 20])
def test_every_form_gives_all_pods_in_order(text: str, shard: int) -> None:
    bounds = ShardLimits(split=300, document=3000, smallest_shard=shard)
    found = cut(text, bounds)
    assert list_names(found) == NAMES
    assert found.count == sum(len(list(found.read(shard))) for shard in found.shards)
    assert len(found.shards) > 5
    assert all(shard.size < 1000 for shard in found.shards)


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_documents_know_where_they_stand(text: str) -> None:
    lines = text.encode().split(b"\n")
    found = cut(text)
    for shard in found.shards:
        for document in found.read(shard):
            first = document.content.split(b"\n")[0].strip(b" -")
            assert lines[document.line][document.column :].strip(b" -").startswith(first)


def test_what_fits_is_parsed_as_a_whole() -> None:
    text = write_list(PODS, indent=2)
    found = cut(text, ShardLimits())
    assert found.count == 1
    assert list_names(found) == NAMES


def make_texts() -> Iterator[str]:
    rng = random.Random(5)
    for _ in range(60):
        parts = []
        for _ in range(rng.randrange(1, 6)):
            pods = rng.sample(PODS, rng.randrange(0, 9))
            write = rng.choice([write_yaml, write_yaml_list, write_list])
            parts.append(write(pods) + rng.choice(["", "\n", "\n# end\n"]))
        yield rng.choice(["", "\n", "---\n", "# begin\n"]) + "\n---\n".join(parts)


@pytest.mark.parametrize("text", list(make_texts()), ids=range(60))
def test_shards_hold_what_the_whole_holds(text: str) -> None:
    expected = list(load_resources(text.encode(), "f"))
    assert list(cut(text).list_resources()) == expected


def break_pod(text: str) -> tuple[str, str]:
    """A text with a word too many, and the line of that."""
    start = text.index("pod-5")
    return text.replace("pod-5", 'pod-5" "', 1), f"f:{text.count(chr(10), 0, start) + 1}:"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        # A broken document among others.
        (write_yaml(PODS[:10]) + "---\nkind: [\n" + write_yaml(PODS[10:]), "f:5[23]"),
        (write_lines(PODS[:10]) + '{"kind": "Pod", \n' + write_lines(PODS[10:]), "f:1[12]:"),
        (
            write_lines(PODS[:10]) + '{"kind": "Pod", "x": nothing\n' + write_lines(PODS[10:]),
            "f:1[12]:",
        ),
        break_pod(write_list(PODS)),
        break_pod(write_list(PODS, indent=1)),
        break_pod(write_yaml_list(PODS)),
        break_pod(write_yaml(PODS)),
        break_pod(write_lines(PODS)),
        # The end is missing.
        (write_list(PODS)[:-3], "f:1:[0-9]+: .*cut off"),
        (write_list(PODS)[:2000], "f:1:[0-9]+: .*cut off"),
        (write_list(PODS, indent=1)[:3000], "f:[0-9]+:[0-9]+: .*cut off"),
        (write_lines(PODS)[:-30], "f:4[01]"),
        # Nothing that a reader holds.
        (write_list(PODS)[:-3] + ', "n": ' + "9" * 5000 + "}", "f:1:"),
        (write_list(PODS)[:-3] + ', "n": ' + "[" * 2000 + "}", "f:1:"),
        # Neither a list nor anything that may be so large.
        (
            '{"kind": "PodList", "apiVersion": "v1", "items": [' + "{}, " * 1000 + "{}]}",
            "f:1:1: .*more than 3000",
        ),
        ("kind: Pod\napiVersion: v1\nspec: " + "x" * 4000, "f:1:1: .*more than 3000"),
        (
            "apiVersion: v1\nitems:\n" + "- a: b\n" * 1000 + "kind: PodList\n",
            "f:1:1: .*more than 3000",
        ),
        (b"\xff\xfe" + b"x" * 100, "f:"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str | bytes, where: str) -> None:
    with pytest.raises(LoadError, match=where):
        list(cut(text).list_resources())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (write_lines(PODS[:10]) + '{"kind": "Pod", \n' + write_lines(PODS[10:]), 40),
        (write_list(PODS[:30]).replace("pod-25", 'pod-25" "'), 25),
        (write_yaml_list(PODS).replace("pod-5", 'pod-5" "'), 39),
        (write_list(PODS[:20])[:-9] + "\n" + write_lines(PODS[20:]), 40),
    ],
)
def test_what_is_sound_around_it_is_still_found(text: str, count: int) -> None:
    found = cut(text)
    sound, broken = 0, 0
    for shard in found.shards:
        try:
            for document in found.read(shard):
                try:
                    sound += len(list(parse_document(document)))
                except LoadError:
                    broken += 1
        except LoadError:
            broken += 1
    assert (sound, broken) == (count, 1)


def test_files_of_tools_are_left_out_with_their_line() -> None:
    tool = "---\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    found = cut(write_yaml(PODS[:7]) + tool + write_yaml(PODS[7:]))
    assert list_names(found) == NAMES
    assert found.skipped == ["f:36: is no resource but a tool's file, skipped"]


def test_documents_are_found_by_a_word() -> None:
    namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n"
    found = cut(write_yaml(PODS) + namespace + "---\n" + write_list(PODS))
    assert [document.line for document in found.find(b"Namespace")] == [200]
    assert [document.line for document in found.find(b"NAMESPACE", ignore_case=True)] == [200]
    assert len(list(found.find(b"pod-7"))) == 2


def test_a_payload_is_never_taken_apart() -> None:
    content = write_list([make_pod(1)] * 5000).encode()
    found = DocumentReader()
    found.add(KeptInput("f", content), "JSON")
    (shard,) = found.shards
    assert [document.content for document in found.read(shard)] == [content]
    assert list(found.find(b"pod-1")) == []
