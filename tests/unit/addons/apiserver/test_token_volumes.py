"""The token of its account in every Pod."""

import pytest

from lictor.addons.apiserver.admission.plugins import add_pull_secrets, add_token_volume

PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"


def test_every_container_gets_the_same_volume():
    spec = {"initContainers": [{"name": "a"}], "containers": [{"name": "b"}]}
    made = add_token_volume(spec, {})
    [volume] = made["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [*volume["projected"]["sources"][0]] == ["serviceAccountToken"]
    mounts = [each["volumeMounts"] for field in spec for each in made[field]]
    assert mounts == [[{"name": volume["name"], "readOnly": True, "mountPath": PLACE}]] * 2
    # Asked again, as after a webhook's change, nothing more is added.
    assert add_token_volume(made, {}) == made
    more = {**made, "containers": [*made["containers"], {"name": "c"}]}
    again = add_token_volume(more, {})
    assert len(again["volumes"]) == 1
    assert again["containers"][1]["volumeMounts"][0]["name"] == volume["name"]


@pytest.mark.parametrize(
    ("pod", "account", "mounts"),
    [
        pytest.param(None, None, True, id="nobody says anything"),
        pytest.param(False, None, False, id="the Pod says no"),
        pytest.param(None, False, False, id="the account says no"),
        pytest.param(True, False, True, id="the Pod has the last word"),
    ],
)
def test_who_decides(pod, account, mounts):
    spec = {"containers": [{"name": "a"}], "automountServiceAccountToken": pod}
    made = add_token_volume(spec, {"automountServiceAccountToken": account})
    assert ("volumes" in made) is mounts


def test_a_container_that_has_something_there_keeps_it():
    mount = {"name": "own", "mountPath": PLACE}
    spec = {"containers": [{"name": "a", "volumeMounts": [mount]}], "volumes": [{"name": "own"}]}
    assert add_token_volume(spec, {}) == spec


def test_pull_secrets_of_the_account():
    account = {"imagePullSecrets": [{"name": "a"}]}
    assert add_pull_secrets({}, account) == account
    own = {"imagePullSecrets": [{"name": "b"}]}
    assert add_pull_secrets(own, account) == own
