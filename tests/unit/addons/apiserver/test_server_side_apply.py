"""Server-side apply and the owners of fields: does ours what a real API server did?"""

import json
import re
from pathlib import Path

import pytest
import yaml
from malformed import Generator, make_honest

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.addons.apiserver.ownership.apply import apply_patch
from lictor.addons.apiserver.ownership.managed_fields import track
from lictor.core.errors import RefusedRequestError

FOLDER = Path(__file__).parent / "apply"
TABLE = yaml.safe_load((FOLDER / "sequences.yaml").read_text(encoding="utf-8"))
RECORD = json.loads((FOLDER / "recorded/apiserver.json").read_text(encoding="utf-8"))
# What the server itself writes.
OWN = ("creationTimestamp", "generation", "resourceVersion", "uid", "managedFields", "namespace")
ADMITTED = (
    "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy",
    "preemptionPolicy", "priority", "serviceAccount", "serviceAccountName",
)  # fmt: skip
# The time of a write that changes nothing, and so is not to be seen.
NEVER = "2100-01-01T00:00:00Z"


def list_steps():
    for sequence in TABLE["sequences"]:
        before = None
        answers = RECORD["answers"][sequence["name"]]
        for number, (step, answer) in enumerate(zip(sequence["steps"], answers, strict=True)):
            label = f"{sequence['name']}-{number}"
            # What is refused by those who check objects was applied well.
            if answer["code"] != 422:
                yield pytest.param(sequence["kind"], step, before, answer, id=label)
            before = answer.get("object")


@pytest.fixture(scope="module")
def catalogue():
    kinds = build_catalogue()
    kinds.define(TABLE["definition"])
    return kinds


def find_now(before, after):
    known = {entry.get("time") for entry in owners(before)}
    times = {entry.get("time") for entry in owners(after)} - known - {None}
    return max(times, default=NEVER)


def owners(document):
    return (document or {}).get("metadata", {}).get("managedFields", [])


def by_name(entries):
    return {
        tuple(entry.get(key, "") for key in ("manager", "operation", "subresource")): entry
        for entry in entries
    }


def essence(document, through):
    """What the write is about, without what the server itself writes."""
    if through:
        return drop_nulls(document[through])
    metadata = {key: value for key, value in document["metadata"].items() if key not in OWN}
    rest = {key: value for key, value in document.items() if key not in ("metadata", "status")}
    return drop_nulls({**rest, "metadata": metadata})


def drop_nulls(value):
    """Times that are not set are null in Kubernetes, and absent here."""
    if isinstance(value, dict):
        return {key: drop_nulls(inner) for key, inner in value.items() if inner is not None}
    return [drop_nulls(inner) for inner in value] if isinstance(value, list) else value


def drop_admitted(document):
    """Owners are found before admission and storage add something."""
    spec = {key: value for key, value in document.get("spec", {}).items() if key not in ADMITTED}
    for key in ("volumes", "containers"):
        if key in spec:
            spec[key] = json.loads(json.dumps(spec[key]))
    if "volumes" in spec:
        del spec["volumes"][-1], spec["containers"][0]["volumeMounts"][-1]
    return {**document, "spec": spec} if spec else document


def do(kind, step, before, answer):
    now = find_now(before, answer.get("object"))
    through = step.get("through", "")
    if "apply" not in step:
        after = answer["object"]
        metadata = {**after["metadata"]}
        metadata.pop("managedFields", None)
        if "create" in step:
            after = drop_admitted(after)
        # The owners that a client sends count, those of the store are kept.
        sent = (step.get("patch") or step.get("create")).get("metadata", {})
        if "managedFields" in sent:
            metadata["managedFields"] = sent["managedFields"]
        return track(kind, before, {**after, "metadata": metadata}, step["manager"], now, through)
    applied = step["apply"]
    if not step.get("bare"):
        metadata = {"name": "thing", **applied.get("metadata", {})}
        identity = {"apiVersion": kind.api_version, "kind": kind.kind}
        applied = {**identity, **applied, "metadata": metadata}
    return apply_patch(
        kind, before, applied, step["manager"], force=step.get("force", False),
        subresource=through, now=now,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "step", "before", "answer"), list(list_steps()))
def test_owners_are_those_of_a_real_server(catalogue, name, step, before, answer):
    kind = catalogue.find_kind(TABLE["kinds"][name]["apiVersion"], name)
    if answer["code"] >= 400:
        with pytest.raises(RefusedRequestError) as raised:
            do(kind, step, before, answer)
        assert raised.value.code == answer["code"]
        assert raised.value.reason == answer["refusal"].get("reason", "")
        # Ours does not tell the value, which may be a secret.
        told = re.sub(r"got &.*}", "got VALUE", answer["refusal"]["message"])
        assert re.sub(r"got (number|list)", "got VALUE", raised.value.message) == told
        assert raised.value.details == answer["refusal"].get("details")
        return
    after = do(kind, step, before, answer)
    assert by_name(owners(after)) == by_name(owners(answer["object"]))
    assert [e["manager"] for e in owners(after)] == [e["manager"] for e in owners(answer["object"])]


@pytest.mark.parametrize(
    ("name", "step", "before", "answer"),
    [row for row in list_steps() if "apply" in row.values[1] and row.values[3]["code"] < 300],
)
def test_objects_are_those_of_a_real_server(catalogue, name, step, before, answer):
    kind = catalogue.find_kind(TABLE["kinds"][name]["apiVersion"], name)
    after = kind.schema.apply_defaults(kind.schema.prune(do(kind, step, before, answer)))
    through = step.get("through", "")
    assert essence(after, through) == essence(answer["object"], through)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_applied_is_refused_or_applied_for_good(catalogue, seed):
    """Objects that are spoiled at random: never another error, and the second time changes nothing."""
    generator = Generator(seed)
    for number in range(200):
        name = ("Deployment", "Pod", "Service", "ConfigMap", "CronJob")[number % 5]
        honest = make_honest(name)
        kind = catalogue.find_kind(honest["apiVersion"], name)
        current = apply_patch(kind, None, honest, "one", now=NEVER)
        spoiled = generator.spoil(honest, number % 7)
        try:
            after = apply_patch(kind, current, spoiled, "two", force=True, now=NEVER)
        except RefusedRequestError:
            continue
        again = apply_patch(kind, after, spoiled, "two", now=NEVER)
        assert again == after
