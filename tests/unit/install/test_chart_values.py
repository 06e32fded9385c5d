"""What files of values say, and what they change in the manifests of an installation."""

import json

import pytest
import yaml
from click.testing import CliRunner

from lictor.cli.install import install as install_command
from lictor.core.errors import LoadError, UsageError
from lictor.install.build import build_manifests
from lictor.install.installation import Installation, list_chosen_settings, list_named_options
from lictor.install.values import default_values, find_value, list_values, merge_values, read_values


def install(text="", **wishes):
    values = read_values(text, "values.yaml")
    wishes = {"skip_crds": True, **wishes}
    made = build_manifests(Installation(version="1.2.3", values=values, **wishes))
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def find_pod(made, controller="admission"):
    return made["Deployment", f"lictor-{controller}-controller"]["spec"]["template"]["spec"]


def list_arguments(made, controller="admission"):
    return find_pod(made, controller)["containers"][0]["args"]


# --- files

WRONG = [
    (
        "admissionController: {replica: 2}",
        "values.yaml:1:",
        "did you mean admissionController.repl",
    ),
    ("\nconfig:\n  excludeGroups: a", "values.yaml:3:", "config.excludeGroups: write a list of te"),
    ("admissionController: {replicas: '2'}", "1:", "write a number of at least 1"),
    ("admissionController: {replicas: true}", "1:", "write a number of at least 1"),
    ("admissionController: {replicas: 0}", "1:", "write a number of at least 1"),
    ("admissionController: {replicas: null}", "1:", "write a number of at least 1"),
    ("admissionController: 2", "1:", "admissionController: write a map"),
    ("features: {logging: {format: xml}}", "1:", "write one of text, json"),
    ("features: {logging: {verbosity: -1}}", "1:", "write a number"),
    ("global: {resyncPeriod: soon}", "1:", "write a duration"),
    ("crds: {install: 'yes'}", "1:", "write true or false"),
    ("config: {resourceFilters: ['[Pod,*,{{ x }}]']}", "1:", "write a list of texts"),
    ("- a", "1:", "the file: write a map"),
    ("a: [", "1:", ""),
]


@pytest.mark.parametrize(("text", "where", "said"), WRONG, ids=[text for text, _, _ in WRONG])
def test_a_wrong_file_is_refused_with_its_place(text, where, said):
    with pytest.raises(LoadError) as caught:
        read_values(text, "values.yaml")
    assert where in str(caught.value)
    assert said in str(caught.value)


def test_nothing_is_what_is_usual():
    assert read_values("", "values.yaml") == {}
    assert merge_values(default_values(), {}) == default_values()


MERGED = [
    ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ({"a": {"b": 1}}, {"a": None}, {}),
    ({"a": {"b": 1}}, {"a": {"b": None}}, {"a": {}}),
]


@pytest.mark.parametrize(("base", "more", "merged"), MERGED)
def test_values_are_merged_as_helm_does(base, more, merged):
    assert merge_values(base, more) == merged


def test_every_default_may_be_written():
    assert read_values(json.dumps(default_values()), "values.yaml") == default_values()
    usual = default_values()
    for row in list_values():
        assert find_value(usual, row.path) == row.default
        assert row.words.endswith("."), row.path


# --- what they change

POD_VALUES = [
    ("tolerations", "[{key: a, operator: Exists}]"),
    ("nodeSelector", "{disk: fast}"),
    ("priorityClassName", "high"),
    ("imagePullSecrets", "[{name: a}]"),
]


@pytest.mark.parametrize(("name", "text"), POD_VALUES)
def test_what_one_controller_has_wins_over_what_all_have(name, text):
    everywhere = install(f"global: {{{name}: {text}}}")
    for controller in ("admission", "background", "reports", "cleanup"):
        assert find_pod(everywhere, controller)[name] == find_pod(everywhere)[name]
    one = install(f"reportsController: {{{name}: {text}}}")
    assert find_pod(one, "reports")[name] == yaml.safe_load(text)
    assert find_pod(one).get(name) == find_pod(install()).get(name)


ARGUMENTS = [
    ("features: {logging: {verbosity: 4}}", "--v=4"),
    ("features: {policyExceptions: {enabled: true, namespace: a}}", "--exceptionNamespace=a"),
    ("features: {omitEvents: {eventTypes: [A, B]}}", "--omitEvents=A,B"),
    ("features: {backgroundScan: {enabled: false}}", "--backgroundScan=false"),
    ("features: {reporting: {mutate: false}}", "--enableReporting=validate,mutateExisting,ge"),
    ("global: {resyncPeriod: 1h}", "--resyncPeriod=1h"),
    ("existingImagePullSecrets: [a, b]", "--imagePullSecrets=a,b"),
    ("admissionController: {container: {extraArgs: {webhookTimeout: 5}}}", "--webhookTimeout=5"),
    ("admissionController: {tracing: {enabled: true}}", "--enableTracing=true"),
    ("admissionController: {webhookServer: {port: 8443}}", "--webhookServerPort=8443"),
]


@pytest.mark.parametrize(("text", "flag"), ARGUMENTS, ids=[flag for _, flag in ARGUMENTS])
def test_values_become_flags(text, flag):
    assert any(word.startswith(flag) for word in list_arguments(install(text)))
    assert not any(word.startswith(flag) for word in list_arguments(install()))


def test_no_kind_of_rule_is_reported_rather_than_all():
    names = ("validate", "mutate", "mutateExisting", "generate", "imageVerify")
    none = ", ".join(f"{name}: false" for name in names)
    made = install(f"features: {{reporting: {{{none}}}}}")
    assert "--enableReporting=none" in list_arguments(made)


def test_named_flags_win_and_empty_ones_are_gone():
    made = install(
        "features: {logging: {verbosity: 4}}\n"
        "admissionController: {container: {extraArgs: {v: 6, omitEvents: ''}}}"
    )
    assert "--v=6" in list_arguments(made)
    assert "--v=4" in list_arguments(made, "reports")
    assert not any("omitEvents" in word for word in list_arguments(made))


def test_settings_follow_from_values():
    made = install(
        "config:\n"
        "  excludeUsernames: [a, b]\n"
        "  resourceFiltersExclude: ['[Node,*,*]']\n"
        "  resourceFiltersExcludeNamespaces: [kube-public]\n"
        "  resourceFiltersIncludeNamespaces: [mine]\n"
        "  excludeKyvernoNamespace: false\n"
        "  settings: {excludeRoles: r, excludeGroups: ''}\n"
    )
    data = made["ConfigMap", "lictor"]["data"]
    assert (data["excludeUsernames"], data["excludeRoles"]) == ("a,b", "r")
    assert "excludeGroups" not in data
    filters = data["resourceFilters"].split()
    assert "[*/*,mine,*]" in filters
    assert not {"[Node,*,*]", "[*/*,kube-public,*]", "[*/*,lictor,*]"} & set(filters)
    # The webhooks never ask about our own namespace, whatever is chosen.
    assert '"values":["lictor"]' in data["webhooks"]


def test_unknown_settings_are_refused():
    with pytest.raises(UsageError, match="did you mean excludeGroups"):
        install("config: {settings: {excludeGroup: a}}")


def test_pull_secrets_of_policies_may_be_read():
    made = install("existingImagePullSecrets: [a]")
    rules = made["Role", "lictor:reports-controller"]["rules"]
    assert [rule["resourceNames"] for rule in rules if rule["resources"] == ["secrets"]] == [["a"]]


GONE = [
    ("cleanupController: {enabled: false}", "cleanup-controller"),
    ("reportsController: {enabled: false}", "reports-controller"),
]


@pytest.mark.parametrize(("text", "part"), GONE)
def test_a_controller_can_be_left_out_with_all_that_is_its_own(text, part):
    names = [name for _, name in install(text)]
    assert not [name for name in names if part in name]


def test_an_autoscaler_decides_about_replicas():
    text = "admissionController: {replicas: 1, autoscaling: {enabled: true, maxReplicas: 7}}"
    made = install(text)
    name = "lictor-admission-controller"
    assert "replicas" not in made["Deployment", name]["spec"]
    assert made["HorizontalPodAutoscaler", name]["spec"]["maxReplicas"] == 7
    assert ("PodDisruptionBudget", name) in made


def test_one_number_of_a_budget():
    made = install("admissionController: {podDisruptionBudget: {minAvailable: 50%}}")
    spec = made["PodDisruptionBudget", "lictor-admission-controller"]["spec"]
    assert spec["minAvailable"] == "50%"
    assert "maxUnavailable" not in spec


def test_labels_of_others_do_not_break_selectors():
    text = "customLabels: {team: a, app.kubernetes.io/component: x}"
    for (kind, _), each in install(text).items():
        if kind == "Deployment":
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert labels["team"] == "a"
            assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()


IMAGES = [
    ("", {}, "lictor:1.2.3"),
    ("image: {registry: r.example, repository: a/b, tag: '2'}", {}, "r.example/a/b:2"),
    ("global: {image: {registry: r.example}}", {}, "r.example/lictor:1.2.3"),
    ("image: {digest: 'sha256:1'}", {}, "lictor@sha256:1"),
    ("global: {image: {registry: r.example}}", {"image": "x:5000/y:3"}, "x:5000/y:3"),
    ("", {"image": "x:5000/y"}, "x:5000/y:1.2.3"),
    ("", {"image": "x:5000/y@sha256:1"}, "x:5000/y@sha256:1"),
]


@pytest.mark.parametrize(("text", "wishes", "image"), IMAGES)
def test_one_image_for_all(text, wishes, image):
    made = install(text, **wishes)
    for controller in ("admission", "background", "reports", "cleanup"):
        assert find_pod(made, controller)["containers"][0]["image"] == image


def test_options_win_over_values():
    made = install("admissionController: {replicas: 5}", replicas=2)
    assert made["Deployment", "lictor-admission-controller"]["spec"]["replicas"] == 2


def test_what_values_choose_wins_over_what_is_in_the_cluster():
    values = read_values(
        "admissionController: {replicas: 5}\nconfig: {excludeGroups: [a]}\nfeatures: {}", "v.yaml"
    )
    installation = Installation(version="1", values=values)
    assert list_named_options(installation) == {"replicas", "flags"}
    assert "excludeGroups" in list_chosen_settings(installation)
    assert "defaultRegistry" not in list_chosen_settings(installation)


def test_kinds_are_chosen_one_by_one():
    text = "crds: {groups: {kyverno: {policies: false}}, annotations: {a: b}}"
    made = install(text, skip_crds=False)
    kinds = {name: each for (kind, name), each in made.items() if kind.startswith("CustomRes")}
    assert "policies.kyverno.io" not in kinds
    assert kinds["clusterpolicies.kyverno.io"]["metadata"]["annotations"] == {"a": "b"}


# --- hostile values

_DOCUMENT = "x\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: evil}\n"


@pytest.mark.parametrize(
    "values",
    [
        {"admissionController": {"podLabels": {"a": _DOCUMENT}}},
        {"admissionController": {"podAnnotations": {"a": _DOCUMENT}}},
        {"admissionController": {"priorityClassName": _DOCUMENT}},
        {"config": {"excludeGroups": [_DOCUMENT]}},
        {"global": {"image": {"registry": _DOCUMENT}}},
    ],
    ids=json.dumps,
)
def test_a_value_adds_no_objects(values):
    """Manifests are built as objects: no text of a value becomes a document of its own."""
    printed = yaml.safe_dump_all(install(json.dumps(values)).values())
    names = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(printed)}
    assert names == install().keys()


@pytest.mark.parametrize("namespace", ["kube-system", "default", "*", "a/b", _DOCUMENT])
def test_values_choose_no_namespace_of_others(tmp_path, namespace):
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps({"namespaceOverride": namespace}))
    ended = CliRunner().invoke(install_command, ["--values", str(file)])
    assert isinstance(ended.exception, UsageError)
    assert ended.stdout == ""
