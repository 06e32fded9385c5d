"""Objects that policies make: kept in step with policy, source and trigger, whatever happens."""

import asyncio
import json
import time
from collections import Counter

import pytest
from background_site import BACKGROUND, HOME, RESYNC, build_site, make_role, say, stays, until

from lictor.core.errors import ApiError, ConflictError
from lictor.kubernetes.resource import CONFIG_MAP, NAMESPACE, SECRET, UPDATE_REQUEST

LEASE = f"lictor-{BACKGROUND}"
# For the work itself, on a busy machine.
SLACK = 12.0


@pytest.fixture(scope="module")
def site(open_cluster):
    with open_cluster() as plane:
        yield build_site(plane, ["configmaps", "secrets", "serviceaccounts"])


def make_policy(title, *, kinds=("Namespace",), prefix="", operations=(), spec=None, **generate):
    """A rule for what has names that begin with the prefix."""
    resources = {"kinds": list(kinds), "names": [f"{prefix or title}-*"]}
    if operations:
        resources["operations"] = list(operations)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "made",
        "namespace": "{{request.object.metadata.name}}",
        **generate,
    }
    rule = {"name": "make", "match": {"any": [{"resources": resources}]}, "generate": body}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": title},
        "spec": {**(spec or {}), "rules": [rule]},
    }


def make_cel_policy(name, text, **evaluation):
    expression = (
        "generator.Apply(object.metadata.name, [dyn({'apiVersion': dyn('v1'), "
        "'kind': dyn('ConfigMap'), 'metadata': dyn({'name': 'made'}), "
        f"'data': dyn({{'text': '{text}'}})}})])"
    )
    return {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": "GeneratingPolicy",
        "metadata": {"name": name},
        "spec": {
            "evaluation": {"synchronize": {"enabled": True}, **evaluation},
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["namespaces"],
                    }
                ]
            },
            "matchConditions": [
                {"name": "name", "expression": f"object.metadata.name.startsWith('{name}-')"}
            ],
            "generate": [{"expression": expression}],
        },
    }


def make_secret(name, namespace, text):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {"text": text},
    }


DATA = {"data": {"data": {"text": "right"}}, "synchronize": True}


def test_success_is_told_as_soon_as_the_settings_ask_for_it(site):
    site.install(make_policy("told", **DATA))

    def ask(wish):
        patch = json.dumps({"data": {"generateSuccessEvents": wish}})
        words = ("patch", "configmap", "lictor", "-n", HOME, "--type=merge", "-p", patch)
        site.kubectl(*words)

    def is_told(name):
        fields = "--field-selector=reason=PolicyApplied"
        return f"told-{name}" in site.kubectl("get", "events", "-A", fields).stdout

    site.make_namespace("told-a")
    until(lambda: site.data("made", "told-a"), "generation")
    assert not is_told("a")
    ask("true")
    try:
        until(lambda: site.make_namespace(f"told-b{time.time_ns()}") or is_told("b"), "an event")
    finally:
        ask("false")


def test_a_target_edited_by_hand_comes_back(site):
    site.install(make_policy("edited", **DATA))
    site.make_namespace("edited-a")
    until(lambda: site.data("made", "edited-a") == {"text": "right"}, "made")
    patch = '{"data":{"text":"wrong","more":"x"},"metadata":{"labels":{"theirs":"x"}}}'
    site.kubectl("patch", "configmap", "made", "-n", "edited-a", "--type=merge", "-p", patch)
    until(lambda: site.data("made", "edited-a") == {"text": "right"}, "put right")
    # What others note on it is theirs.
    assert site.find("configmap", "made", "edited-a")["metadata"]["labels"]["theirs"] == "x"
    site.kubectl("delete", "configmap", "made", "-n", "edited-a")
    until(lambda: site.data("made", "edited-a") == {"text": "right"}, "made again")
    label = "app.kubernetes.io/managed-by-"
    site.kubectl("label", "configmap", "made", "-n", "edited-a", label)
    until(
        lambda: (
            "app.kubernetes.io/managed-by"
            in site.find("configmap", "made", "edited-a")["metadata"]["labels"]
        ),
        "label put back",
    )


def test_without_synchronize_it_is_left_alone(site):
    site.install(make_policy("left", data=DATA["data"]))
    site.make_namespace("left-a")
    until(lambda: site.data("made", "left-a") == {"text": "right"}, "made")
    words = ("patch", "configmap", "made", "-n", "left-a", "--type=merge")
    site.kubectl(*words, "-p", '{"data":{"text":"mine"}}')
    stays(lambda: site.data("made", "left-a") == {"text": "mine"}, "left as edited")
    site.kubectl("delete", "clusterpolicy", "left")
    site.kubectl("delete", "configmap", "made", "-n", "left-a")
    stays(lambda: site.data("made", "left-a") is None, "not made again")


def test_policy_and_trigger_decide_what_is_there(site):
    site.install(make_policy("decide", **DATA))
    site.make_namespace("decide-a")
    site.make_namespace("decide-b")
    for name in ("decide-a", "decide-b"):
        until(lambda name=name: site.data("made", name) == {"text": "right"}, "made")
    changed = make_policy("decide", **{**DATA, "data": {"data": {"text": "new"}}})
    site.apply(changed)
    until(lambda: site.data("made", "decide-a") == {"text": "new"}, "follows the policy")
    site.kubectl("delete", "clusterpolicy", "decide")
    for name in ("decide-a", "decide-b"):
        until(lambda name=name: site.data("made", name) is None, "gone with the policy")


def test_a_trigger_that_goes_takes_along_what_it_made(site):
    policy = make_policy(
        "taken", kinds=["ConfigMap"], namespace="default",
        name="made-for-{{request.object.metadata.name}}", **DATA,
    )  # fmt: skip
    policy["spec"]["rules"][0]["preconditions"] = {
        "all": [{"key": "{{request.object.data.on || ''}}", "operator": "Equals", "value": "yes"}]
    }
    site.install(policy)
    for name in ("taken-a", "taken-b"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        site.apply({**body, "data": {"on": "yes"}})
        until(lambda name=name: site.data(f"made-for-{name}", "default"), "made")
    site.kubectl("delete", "configmap", "taken-a")
    until(lambda: site.data("made-for-taken-a", "default") is None, "gone with its trigger")
    site.kubectl("patch", "configmap", "taken-b", "--type=merge", "-p", '{"data":{"on":"no"}}')
    until(lambda: site.data("made-for-taken-b", "default") is None, "its trigger is none any more")
    site.kubectl("delete", "clusterpolicy", "taken")


def test_a_deletion_can_be_the_trigger(site):
    site.install(
        make_policy(
            "ended",
            kinds=["ConfigMap"],
            operations=["DELETE"],
            namespace="default",
            name="after-{{request.object.metadata.name}}",
            **DATA,
        )
    )
    site.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ended-a"}})
    site.kubectl("delete", "configmap", "ended-a")
    until(lambda: site.data("after-ended-a", "default") == {"text": "right"}, "made at the end")
    stays(lambda: site.data("after-ended-a", "default"), "stays without its trigger")


def test_copies_follow_their_source(site):
    site.make_namespace("vault")
    site.apply(make_secret("copied", "vault", "one"))
    clone = {"kind": "Secret", "clone": {"namespace": "vault", "name": "copied"}}
    site.install(make_policy("copies", synchronize=True, **clone))
    site.make_namespace("copies-a")
    until(lambda: site.data("made", "copies-a", "secret") == {"text": "b25l"}, "copied")
    site.apply(make_secret("copied", "vault", "two"))
    until(lambda: site.data("made", "copies-a", "secret") == {"text": "dHdv"}, "followed")
    # Without its mark the source is still the source.
    mark = "generate.kyverno.io/clone-source-"
    site.kubectl("label", "secret", "copied", "-n", "vault", mark)
    until(
        lambda: mark[:-1] in site.find("secret", "copied", "vault")["metadata"]["labels"], "marked"
    )
    assert site.data("made", "copies-a", "secret") == {"text": "dHdv"}
    site.kubectl("delete", "secret", "copied", "-n", "vault")
    until(lambda: site.data("made", "copies-a", "secret") is None, "gone with the source")


def test_failures_are_visible_and_tried_again(site):
    role = make_role("services", ["services"])
    site.apply(role)
    account = f"system:serviceaccount:{HOME}:lictor-{BACKGROUND}"
    words = ("auth", "can-i", "create", "services", "--as", account)
    until(lambda: site.kubectl(*words, check=False).returncode == 0, "rights")
    data = {"spec": {"ports": [{"port": 80}]}}
    site.install(make_policy("denied", kind="Service", data=data, synchronize=True))
    site.kubectl("delete", "clusterrole", role["metadata"]["name"])
    until(lambda: site.kubectl(*words, check=False).returncode != 0, "no rights")
    site.make_namespace("denied-a")

    def failed():
        found = json.loads(site.kubectl("get", "updaterequests", "-n", HOME, "-o", "json").stdout)
        return [
            item["status"]["message"]
            for item in found["items"]
            if item["spec"]["policy"] == "denied"
            and (item.get("status") or {}).get("state") == "Failed"
        ]

    until(failed, "the update says that it failed")
    assert "services" in failed()[0]
    site.apply(role)
    until(lambda: site.find("service", "made", "denied-a"), "made once it may be", 60)
    until(lambda: not failed(), "nothing is left", 60)
    site.kubectl("delete", "clusterpolicy", "denied")
    until(lambda: site.find("service", "made", "denied-a") is None, "gone with the policy")
    site.kubectl("delete", "clusterrole", role["metadata"]["name"])


def test_what_nobody_heard_of_heals(site):
    for name in ("deaf", "mute"):
        site.install(make_policy(name, **DATA))
    site.install(make_cel_policy("blind", "right"))
    names = ("deaf-edited", "deaf-deleted", "mute-a", "blind-edited", "blind-deleted")
    for name in names:
        site.make_namespace(name)
    for name in names:
        until(lambda name=name: site.data("made", name) == {"text": "right"}, f"made in {name}")
    (background,) = site.installation.controllers
    background.process.kill()
    for name in ("deaf-edited", "blind-edited"):
        patch = '{"data":{"text":"wrong"}}'
        site.kubectl("patch", "configmap", "made", "-n", name, "--type=merge", "-p", patch)
    for name in ("deaf-deleted", "blind-deleted"):
        site.kubectl("delete", "configmap", "made", "-n", name)
    site.kubectl("delete", "clusterpolicy", "mute")
    site.installation.controllers.clear()
    site.start_background()
    seconds = until(lambda: site.data("made", "mute-a") is None, "its policy is gone", 60)
    for name in names:
        if name != "mute-a":
            seconds += until(
                lambda name=name: site.data("made", name) == {"text": "right"},
                f"healed: {name}",
                60,
            )
    say(f"healed {seconds:.1f} s after the start")
    site.kubectl("delete", "generatingpolicy", "blind")
    for name in ("blind-edited", "blind-deleted"):
        until(lambda name=name: site.data("made", name) is None, "gone with the policy")


def test_a_trigger_that_no_webhook_told_of_heals(site):
    # Policies that fail closed would refuse the namespace while nobody answers.
    site.kubectl("delete", "clusterpolicy", "--all")
    site.install(make_cel_policy("unheard", "right"))
    (replica,) = site.installation.replicas
    replica.process.kill()
    site.installation.replicas.clear()
    try:
        site.make_namespace("unheard-a")
        seconds = until(
            lambda: site.data("made", "unheard-a") == {"text": "right"}, "healed", RESYNC + SLACK
        )
        say(f"a trigger that nobody told of: healed after {seconds:.1f} s")
    finally:
        site.installation.start_replica()
    site.kubectl("delete", "generatingpolicy", "unheard")


# --- many at once, and faults in the middle


async def create_all(client, resource, bodies, *, at_once=16):
    """Create many; how long that took."""
    gate = asyncio.Semaphore(at_once)

    async def create(body):
        async with gate:
            for _ in range(20):
                try:
                    await client.create(resource, body)
                except ConflictError:
                    return
                except ApiError:
                    await asyncio.sleep(1)
                    continue
                return

    began = time.monotonic()
    await asyncio.gather(*(create(body) for body in bodies))
    return time.monotonic() - began


async def wait_for(check, what, seconds):
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        try:
            if await check():
                return time.monotonic() - began
        except ApiError:
            pass
        await asyncio.sleep(0.3)
    pytest.fail(f"not after {seconds:.0f} s: {what}")


async def count_made(client, resource, policy):
    """How many objects of a policy there are, by what is in them."""
    selector = f"generate.kyverno.io/policy-name={policy}"
    counted = Counter()
    async for page in client.list_pages(resource, labels=selector):
        counted.update(str((item.get("data") or {}).get("text")) for item in page["items"])
    return counted


async def take_down_changes(client, policy, changes):
    """Count each creation and deletion of an object of a policy, until cancelled."""
    selector = f"generate.kyverno.io/policy-name={policy}"
    async for page in client.list_pages(CONFIG_MAP, "default", labels=selector):
        since = page["metadata"]["resourceVersion"]
    watch = client.watch(CONFIG_MAP, since=since, namespace="default", labels=selector)
    async for event in watch:
        if event.type in ("ADDED", "DELETED"):
            changes[event.type, event.object["metadata"]["name"]] += 1


def namespaces(prefix, count):
    return [{"metadata": {"name": f"{prefix}-{number}"}} for number in range(count)]


def config_maps(prefix, count):
    return [
        {"metadata": {"name": f"{prefix}-{number}", "namespace": "default"}}
        for number in range(count)
    ]


def trigger_policy(title, **generate):
    return make_policy(
        title, kinds=["ConfigMap"], namespace="default",
        name="made-{{request.object.metadata.name}}", **generate,
    )  # fmt: skip


@pytest.fixture
def two_replicas(site):
    site.start_background()
    yield site
    live = [each for each in site.installation.controllers if each.process.is_running()]
    for each in live[1:]:
        each.process.stop()
    site.installation.controllers[:] = live[:1]


def find_leader(site):
    found = site.find("lease", LEASE, HOME)
    return (found or {}).get("spec", {}).get("holderIdentity", "")


@pytest.mark.slow
def test_the_leader_is_killed_in_the_middle(two_replicas):
    site, count = two_replicas, 300
    site.install(make_policy("orphaned", kinds=["ConfigMap"], namespace="default",
        **{**DATA, "name": "made-{{request.object.metadata.name}}"}))  # fmt: skip
    until(lambda: find_leader(site), "a leader")

    changes = Counter()

    async def work(client):
        watching = asyncio.create_task(take_down_changes(client, "orphaned", changes))
        creating = asyncio.create_task(
            create_all(client, CONFIG_MAP, config_maps("orphaned", count))
        )
        await wait_for(lambda: has(client, count // 5), "a part is made", 60)
        identity = find_leader(site)
        leader = next(
            each
            for each in site.installation.controllers
            if f"started leading lease={LEASE} identity={identity}" in each.process.read_log(10**7)
        )
        leader.process.kill()
        await creating
        seconds = await wait_for(lambda: has(client, count), "all are made", 90)
        say(f"leader killed: all {count} made {seconds:.1f} s later")
        await wait_for(lambda: no_updates(client), "no update is left", 60)
        watching.cancel()
        return await count_made(client, CONFIG_MAP, "orphaned")

    async def has(client, least):
        return sum((await count_made(client, CONFIG_MAP, "orphaned")).values()) >= least

    assert site.run(work) == {"right": count}
    # Each was made once, and nobody had to take one away again.
    assert changes == {("ADDED", f"made-orphaned-{number}"): 1 for number in range(count)}
    site.kubectl("delete", "clusterpolicy", "orphaned")


async def no_updates(client):
    return not await client.list(UPDATE_REQUEST, HOME)


@pytest.mark.slow
def test_the_api_server_is_away(site):
    count = 300
    site.install(trigger_policy("absent", **DATA))

    async def begin(client):
        await create_all(client, CONFIG_MAP, config_maps("absent", count))
        return sum((await count_made(client, CONFIG_MAP, "absent")).values())

    before = site.run(begin)
    site.plane.restart_api_server(away=30, kill=True)

    async def work(client):
        async def all_there():
            return await count_made(client, CONFIG_MAP, "absent") == {"right": count}

        seconds = await wait_for(all_there, "all are made", 60)
        say(
            f"API server away for 30 s, when {before} of {count} were made: "
            f"all are {seconds:.1f} s after its return"
        )
        late = config_maps("absent-late", 5)
        await create_all(client, CONFIG_MAP, late)

        async def late_ones_too():
            return await count_made(client, CONFIG_MAP, "absent") == {"right": count + 5}

        await wait_for(late_ones_too, "work goes on", 60)

    site.run(work)
    site.kubectl("delete", "clusterpolicy", "absent")


@pytest.mark.slow
def test_five_thousand_triggers_at_once(site):
    count = 5000
    # Not kept in step: what is lost here, nothing brings back.
    site.install(trigger_policy("flood", data=DATA["data"]))

    async def work(client):
        began, highest = time.monotonic(), 0
        creating = asyncio.create_task(
            create_all(client, CONFIG_MAP, config_maps("flood", count), at_once=32)
        )

        async def all_there():
            nonlocal highest
            path = UPDATE_REQUEST.path(HOME)
            answer = await client.request("GET", path, params={"limit": 1})
            waiting = len(answer["items"]) + (answer["metadata"].get("remainingItemCount") or 0)
            highest = max(highest, waiting)
            made = await count_made(client, CONFIG_MAP, "flood")
            await asyncio.sleep(2)
            return made == {"right": count}

        await wait_for(all_there, "all are made", 400)
        seconds = time.monotonic() - began
        say(f"{count} triggers: created in {await creating:.0f} s, all done after {seconds:.0f} s,"
              f" never more than {highest} updates in the queue")  # fmt: skip
        assert highest <= 1100
        await wait_for(lambda: no_updates(client), "no update is left", 60)

    site.run(work)
    site.kubectl("delete", "clusterpolicy", "flood")


@pytest.mark.slow
def test_a_thousand_namespaces_at_once(site):
    count = 1000
    site.make_namespace("vault")
    site.apply(make_secret("many", "vault", "one"))
    clone = {"kind": "Secret", "clone": {"namespace": "vault", "name": "many"}}
    site.install(make_policy("many", synchronize=True, **clone))

    async def work(client):
        async def all_have(text):
            return await count_made(client, SECRET, "many") == {text: count}

        creating = asyncio.create_task(
            create_all(client, NAMESPACE, namespaces("many", count), at_once=32)
        )
        seconds = await wait_for(lambda: all_have("b25l"), "all have a copy", 300)
        created = await creating
        patch = {"stringData": {"text": "two"}}
        await client.patch(SECRET, "many", patch, namespace="vault")
        followed = await wait_for(lambda: all_have("dHdv"), "all follow", 300)
        say(f"{count} namespaces: created in {created:.0f} s, all copies after {seconds:.0f} s;"
              f" all follow a change of the source after {followed:.0f} s")  # fmt: skip
        return seconds, followed

    seconds, followed = site.run(work)
    assert seconds < 60
    assert followed < 60
