"""The runner of chainsaw tests on a real API server: what it does, retries and takes away."""

from textwrap import dedent, indent

import pytest
from chainsaw.api import Api, Key, NotFoundError
from chainsaw.case import find_cases
from chainsaw.janitor import Janitor
from chainsaw.runner import FAILED, PASSED, SKIPPED, Runner

HEAD = "apiVersion: chainsaw.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: a}\n"
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
NAMED = "apiVersion: v1, kind: ConfigMap, metadata: {name: a}"

GOOD = {
    "apply creates, then merges": """
      - apply: {file: map.yaml}
      - apply: {resource: {%(named)s, data: {more: w}}}
      - assert: {resource: {%(named)s, data: {k: v, more: w}}}
    """,
    "create expects a refusal": """
      - create:
          resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: NOT_GOOD}}
          expect: [{check: {"(contains($error, 'NOT_GOOD'))": true}}]
    """,
    "update replaces": """
      - create: {file: map.yaml}
      - update: {resource: {%(named)s, data: {other: x}}}
      - error: {resource: {%(named)s, data: {k: v}}}
    """,
    "patch merges": """
      - create: {file: map.yaml}
      - patch: {resource: {%(named)s, data: {k: w}}}
      - assert: {resource: {%(named)s, data: {(length(k)): 1, k: w}}}
    """,
    "delete waits until it is gone": """
      - create: {file: map.yaml}
      - delete: {ref: {apiVersion: v1, kind: ConfigMap, name: a}}
      - error: {resource: {%(named)s}}
      - create: {file: map.yaml}
    """,
    "assert finds one by its labels": """
      - create: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: b, labels: {l: x}}}}
      - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {labels: {l: x}}}}
    """,
    "assert waits": """
      - script: {content: "(sleep 1; kubectl create cm late -n $NAMESPACE) >/dev/null 2>&1 &"}
      - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: late}}}
    """,
    "script gives its output to those after it": """
      - create: {file: map.yaml}
      - script:
          content: kubectl get configmap a -n $NAMESPACE -o jsonpath={.data.k}
          outputs: [{name: found, value: (trim_space($stdout))}]
      - apply: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {x: ($found)}}}
      - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {x: v}}}
    """,
    "command knows the namespace": """
      - command: {entrypoint: kubectl, args: [get, namespace, $NAMESPACE]}
      - command:
          entrypoint: kubectl
          args: [get, namespace, no-such]
          check: {($error != null): true, "(contains($stderr, 'NotFound'))": true}
    """,
    "wait asks kubectl": """
      - create: {file: map.yaml}
      - wait:
          apiVersion: v1
          kind: ConfigMap
          name: a
          timeout: 5s
          for: {jsonPath: {path: "{.data.k}", value: v}}
    """,
}
BAD = {
    "assert tells the nearest mismatch": (
        """
      - create: {file: map.yaml}
      - assert: {timeout: 300ms, resource: {%(named)s, data: {k: other}}}
    """,
        'data.k: Invalid value: "v": Expected value: "other"',
    ),
    "assert tells what is not there": (
        "\n      - assert: {timeout: 300ms, resource: {%(named)s}}\n",
        "not found",
    ),
    "error tells what is there": (
        "\n      - create: {file: map.yaml}\n      - error: {timeout: 300ms, resource: {%(named)s}}\n",
        "there is an object as there should be none",
    ),
    "create fails where something is": (
        "\n      - create: {file: map.yaml}\n      - create: {timeout: 300ms, file: map.yaml}\n",
        "already exists in the cluster",
    ),
    "a refusal that was expected does not come": (
        "\n      - create: {timeout: 300ms, file: map.yaml, expect: [{check: {($error != null): true}}]}\n",
        "($error != null)",
    ),
    "script fails": ("\n      - script: {content: echo why >&2; exit 2}\n", "it said: why"),
    "no such kind": (
        "\n      - apply: {resource: {apiVersion: no.such/v1, kind: Thing, metadata: {name: a}}}\n",
        'no matches for kind "Thing"',
    ),
}


def write_case(folder, steps, more=""):
    (folder / "map.yaml").write_text(MAP)
    lines = indent(dedent(steps % {"named": NAMED}), "    ")
    text = f"{HEAD}spec:\n{more}  steps:\n  - name: only\n    try:\n{lines}\n"
    (folder / "chainsaw-test.yaml").write_text(text)
    [case] = find_cases(folder)
    return case


@pytest.fixture
def api(cluster):
    with cluster.connect() as client:
        yield Api(client)


@pytest.fixture
def runner(cluster, api):
    return Runner(api, cluster.command, {"KUBECONFIG": str(cluster.kubeconfig)})


@pytest.mark.parametrize("steps", GOOD.values(), ids=GOOD)
def test_good(tmp_path, runner, steps):
    result = runner.run(write_case(tmp_path, steps))
    assert (result.status, result.reason) == (PASSED, "")


@pytest.mark.parametrize(("steps", "reason"), BAD.values(), ids=BAD)
def test_bad(tmp_path, runner, steps, reason):
    result = runner.run(write_case(tmp_path, steps))
    assert result.status == FAILED
    assert reason in result.reason


def test_skipped(tmp_path, runner):
    assert (
        runner.run(write_case(tmp_path, "- sleep: {duration: 1h}", "  skip: true\n")).status
        == SKIPPED
    )


def test_what_a_test_made_is_gone_after_it(tmp_path, runner, api):
    steps = """
      - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: made-by-test}}}
      - apply: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}}
      - script: {content: exit 1}
    """
    case = write_case(tmp_path, steps)
    for _ in range(2):  # the second time the namespace of the first may still be going
        assert "exit status 1" in runner.run(case).reason
        with pytest.raises(NotFoundError):
            api.get(Key("v1", "ConfigMap", "default", "a"))
        assert is_leaving(api, Key("v1", "Namespace", "", "made-by-test"))


def is_leaving(api, key):
    """Is it gone, or on its way?"""
    try:
        return bool(api.get(key)["metadata"].get("deletionTimestamp"))
    except NotFoundError:
        return True


def test_janitor_takes_what_scripts_leave(cluster, runner, api):
    cluster.kubectl("create", "namespace", "janitor")
    cluster.kubectl("create", "configmap", "settings", "-n", "janitor", "--from-literal=a=1")
    janitor = Janitor(api, "janitor", "settings", runner.leave)
    janitor.remember()
    cluster.kubectl("create", "clusterrole", "left", "--verb=get", "--resource=pods")
    cluster.kubectl("create", "deployment", "left", "--image=registry.test/a:1")
    cluster.kubectl("create", "configmap", "stuck")
    words = ("-p", '{"metadata": {"finalizers": ["tests.test/never"]}}')
    cluster.kubectl("patch", "configmap", "stuck", *words)
    change = ("-n", "janitor", "-p", '{"data": {"a": "2"}}')
    cluster.kubectl("patch", "configmap", "settings", *change)
    assert janitor.sweep() == []
    for key in (
        Key("rbac.authorization.k8s.io/v1", "ClusterRole", "", "left"),
        Key("apps/v1", "Deployment", "default", "left"),
        Key("v1", "ConfigMap", "default", "stuck"),
    ):
        with pytest.raises(NotFoundError):
            api.get(key)
    assert api.get(Key("v1", "ConfigMap", "janitor", "settings"))["data"] == {"a": "1"}
    assert janitor.sweep() == []
