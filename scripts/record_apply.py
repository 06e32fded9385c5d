"""Record the results of server-side apply on a real API server.

    python scripts/record_apply.py

Every sequence of tests/unit/addons/apiserver/apply/sequences.yaml is done to its own object; after
each step the object, or the refusal, goes to recorded/apiserver.json beside it, where a test
compares it with what the embedded API server makes of the same. etcd and kube-apiserver are those
of tests/cluster; they listen on the loopback interface and end with the script.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests/cluster"))

FOLDER = ROOT / "tests/unit/addons/apiserver/apply"
TARGET = FOLDER / "recorded/apiserver.json"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CONTENT = {
    "apply": "application/apply-patch+yaml",
    "patch": "application/merge-patch+json",
    "create": "application/json",
}


def main() -> None:
    """Do all sequences and write the answers."""
    from control_plane.plane import ControlPlane
    from control_plane.programs import find_programs

    table = yaml.safe_load((FOLDER / "sequences.yaml").read_text(encoding="utf-8"))
    programs = replace(find_programs(print), controller_manager=None)
    with ControlPlane(programs, loopback=True) as plane, plane.connect() as client:
        prepare(client, table)
        version = client.get("/version").json()["gitVersion"]
        answers = run_all(client, table)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(write(version, answers), encoding="utf-8")
    print(f"{TARGET}: {sum(map(len, answers.values()))} answers of {version}")


def write(version: str, answers: dict[str, list]) -> str:
    """One line for each answer."""
    rows = (
        f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, steps)) + "\n]"
        for name, steps in answers.items()
    )
    return f'{{"version": "{version}", "answers": {{\n' + ",\n".join(rows) + "\n}}\n"


def prepare(client, table) -> None:
    """Make what the sequences need: the custom kind, and a service account for Pods."""
    client.post(DEFINITIONS, json=table["definition"]).raise_for_status()
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    client.post(ACCOUNTS, json=account)
    path = table["kinds"]["Gadget"]["path"]
    while client.get(path).status_code != 200:
        time.sleep(0.1)
    # Until its form is published, everything of a new kind would be merged as if untyped.
    time.sleep(3)


def run_all(client, table) -> dict[str, list]:
    """The answers to all steps, by sequence. All sequences are a second apart from step to step."""
    sequences = table["sequences"]
    answers: dict[str, list] = {sequence["name"]: [] for sequence in sequences}
    for number in range(max(len(sequence["steps"]) for sequence in sequences)):
        for place, sequence in enumerate(sequences):
            if number < len(sequence["steps"]):
                kind = {"kind": sequence["kind"], **table["kinds"][sequence["kind"]]}
                step = sequence["steps"][number]
                answers[sequence["name"]].append(run_step(client, kind, step, f"thing-{place}"))
        time.sleep(1.1)
    return answers


def run_step(client, kind, step, name: str) -> dict:
    """What the server answers, with the object as it then is."""
    verb = next(verb for verb in CONTENT if verb in step)
    path = kind["path"] if verb == "create" else f"{kind['path']}/{name}"
    if "through" in step:
        path += f"/{step['through']}"
    options = {"fieldManager": step["manager"]}
    if step.get("force"):
        options["force"] = "true"
    response = client.request(
        "POST" if verb == "create" else "PATCH",
        path,
        params=options,
        headers={"Content-Type": CONTENT[verb]},
        content=json.dumps(complete(kind, step, step[verb], name)),
    )
    found = client.get(f"{kind['path']}/{name}")
    answer = {"code": response.status_code}
    if response.status_code >= 400:
        answer["refusal"] = {
            key: value
            for key, value in response.json().items()
            if key in ("message", "reason", "details")
        }
    if found.status_code == 200:
        answer["object"] = found.json()
    return json.loads(json.dumps(answer).replace(name, "thing"))


def complete(kind, step, document, name: str) -> dict:
    """The document with what every one has."""
    if "patch" in step:
        return document
    if step.get("bare"):
        return json.loads(json.dumps(document).replace('"thing"', f'"{name}"'))
    metadata = {"name": name, **document.get("metadata", {})}
    whole = {"apiVersion": kind["apiVersion"], "kind": kind["kind"], **document}
    return {**json.loads(json.dumps(whole).replace('"thing"', f'"{name}"')), "metadata": metadata}


if __name__ == "__main__":
    main()
