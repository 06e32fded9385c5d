"""Controllers of workloads, on a whole server: what they make, count, refuse to make, and clear away."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from embedded_site import open_site

from lictor.addons.apiserver.controllers.batch_jobs import find_due
from lictor.addons.apiserver.controllers.workloads import WorkloadControllers
from lictor.core.lang.schedule import compile_schedule

APPS = "/apis/apps/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"
CORE = "/api/v1/namespaces/default"
TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "one"}]},
}
SELECTOR = {"matchLabels": {"app": "x"}}


@asynccontextmanager
async def open_factory():
    async with open_site() as site:
        server = site.server
        work = asyncio.create_task(
            WorkloadControllers(server.api, server.store, server.catalogue).run()
        )
        await until(lambda: exists(site, f"{CORE}/serviceaccounts/default"))
        try:
            yield site
        finally:
            work.cancel()


def run(test):
    asyncio.run(test())


async def until(holds, seconds=60.0):
    """Wait until a question is answered with something, and give it."""
    async with asyncio.timeout(seconds):
        while True:
            if found := await holds():
                return found
            await asyncio.sleep(0.01)


async def exists(site, path):
    return (await site.get(path)).status == 200


async def items(site, path):
    return (await site.get(path)).json["items"]


async def of_count(site, path, count):
    found = await items(site, path)
    return found if len(found) == count else None


def workload(kind, api="apps/v1", **spec):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def deployment(replicas=2, **more):
    spec = {"replicas": replicas, "selector": SELECTOR, "template": TEMPLATE, **more}
    return workload("Deployment", **spec)


def owner_of(document):
    (reference,) = document["metadata"]["ownerReferences"]
    assert reference["controller"]
    assert reference["blockOwnerDeletion"]
    return reference["kind"], reference["name"]


def test_deployment_becomes_pods():
    async def test():
        async with open_factory() as site:
            await site.create(f"{APPS}/deployments", deployment())
            pods = await until(lambda: of_count(site, f"{CORE}/pods", 2))
            (replica_set,) = await items(site, f"{APPS}/replicasets")
            digest = replica_set["metadata"]["labels"]["pod-template-hash"]
            assert replica_set["metadata"]["name"] == f"x-{digest}"
            assert owner_of(replica_set) == ("Deployment", "x")
            assert replica_set["spec"]["selector"]["matchLabels"]["pod-template-hash"] == digest
            for pod in pods:
                assert owner_of(pod) == ("ReplicaSet", f"x-{digest}")
                assert pod["metadata"]["name"].startswith(f"x-{digest}-")
                assert pod["status"]["phase"] == "Pending"

            async def is_told():
                status = (await site.get(f"{APPS}/deployments/x")).json["status"]
                return status if status.get("updatedReplicas") == 2 else None

            status = await until(is_told)
            assert (status["replicas"], status["unavailableReplicas"]) == (2, 2)
            told = {each["type"]: each["reason"] for each in status["conditions"]}
            assert told == {
                "Available": "MinimumReplicasUnavailable",
                "Progressing": "ReplicaSetUpdated",
            }
            found = (await site.get(f"{APPS}/deployments/x")).json["metadata"]["annotations"]
            assert found["deployment.kubernetes.io/revision"] == "1"
            events = {each["reason"] for each in await items(site, f"{CORE}/events")}
            assert {"ScalingReplicaSet", "SuccessfulCreate"} <= events

    run(test)


def test_deployment_is_scaled_changed_and_deleted():
    async def test():
        async with open_factory() as site:
            await site.create(f"{APPS}/deployments", deployment(strategy={"type": "Recreate"}))
            await until(lambda: of_count(site, f"{CORE}/pods", 2))
            await site.patch(f"{APPS}/deployments/x/scale", {"spec": {"replicas": 4}})
            await until(lambda: of_count(site, f"{CORE}/pods", 4))
            await site.patch(f"{APPS}/deployments/x/scale", {"spec": {"replicas": 1}})
            await until(lambda: of_count(site, f"{CORE}/pods", 1))
            container = {"name": "c", "image": "two"}
            change = {"spec": {"template": {"spec": {"containers": [container]}}}}
            await site.patch(f"{APPS}/deployments/x", change, "strategic-merge-patch+json")

            async def is_new():
                found = await items(site, f"{CORE}/pods")
                return [each["spec"]["containers"][0]["image"] for each in found] == ["two"]

            await until(is_new)
            assert len(await items(site, f"{APPS}/replicasets")) == 2
            await site.delete(f"{APPS}/deployments/x")
            await until(lambda: is_empty(site, f"{APPS}/replicasets", f"{CORE}/pods"))

    run(test)


async def is_empty(site, *paths):
    return not any([await items(site, path) for path in paths])


DENIAL = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-pods"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": ["CREATE"],
                }
            ]
        },
        "validations": [{"expression": "false", "message": "no Pods today"}],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "no-pods"},
    "spec": {"policyName": "no-pods", "validationActions": ["Deny"]},
}


def test_refused_pods_are_told_of():
    async def test():
        async with open_factory() as site:
            native = "/apis/admissionregistration.k8s.io/v1"
            await site.create(f"{native}/validatingadmissionpolicies", DENIAL)
            await site.create(f"{native}/validatingadmissionpolicybindings", BINDING)
            await site.create(f"{APPS}/deployments", deployment(1))

            async def is_told():
                found = (await site.get(f"{APPS}/deployments/x")).json.get("status") or {}
                conditions = {each["type"]: each for each in found.get("conditions") or ()}
                return conditions.get("ReplicaFailure")

            failure = await until(is_told)
            assert failure["reason"] == "FailedCreate"
            assert "no Pods today" in failure["message"]
            (event,) = [
                each for each in await items(site, f"{CORE}/events") if each["type"] == "Warning"
            ]
            assert event["reason"] == "FailedCreate"
            assert event["source"]["component"] == "replicaset-controller"
            await site.delete(f"{native}/validatingadmissionpolicybindings/no-pods")
            await until(lambda: of_count(site, f"{CORE}/pods", 1), 30)

    run(test)


def test_stateful_sets_wait_for_each_pod():
    async def test():
        async with open_factory() as site:
            claim = {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
            mount = {"name": "data", "mountPath": "/data"}
            container = {"name": "c", "image": "one", "volumeMounts": [mount]}
            body = workload(
                "StatefulSet",
                replicas=2,
                selector=SELECTOR,
                template={**TEMPLATE, "spec": {"containers": [container]}},
                serviceName="x",
                volumeClaimTemplates=[claim],
            )
            await site.create(f"{APPS}/statefulsets", body)
            (pod,) = await until(lambda: of_count(site, f"{CORE}/pods", 1))
            assert pod["metadata"]["name"] == "x-0"
            assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
            claims = {"name": "data", "persistentVolumeClaim": {"claimName": "data-x-0"}}
            assert claims in pod["spec"]["volumes"]
            assert await exists(site, f"{CORE}/persistentvolumeclaims/data-x-0")
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            answer = await site.patch(f"{CORE}/pods/x-0/status", {"status": ready})
            assert answer.status == 200, answer.text
            await until(lambda: exists(site, f"{CORE}/pods/x-1"))

            async def is_counted():
                return (await site.get(f"{APPS}/statefulsets/x")).json["status"]["replicas"] == 2

            await until(is_counted)
            status = (await site.get(f"{APPS}/statefulsets/x")).json["status"]
            assert status["readyReplicas"] == 1
            assert status["currentRevision"] == status["updateRevision"]

    run(test)


def test_daemon_sets_have_no_nodes():
    async def test():
        async with open_factory() as site:
            body = workload("DaemonSet", selector=SELECTOR, template=TEMPLATE)
            await site.create(f"{APPS}/daemonsets", body)

            async def read():
                return (await site.get(f"{APPS}/daemonsets/x")).json.get("status")

            status = await until(read)
            assert status["desiredNumberScheduled"] == 0
            assert status["observedGeneration"] == 1
            assert await is_empty(site, f"{CORE}/pods")

    run(test)


def job_template(**spec):
    pod = {**TEMPLATE["spec"], "restartPolicy": "Never"}
    return {"template": {"spec": pod}, **spec}


def test_jobs_end_when_their_pods_do():
    async def test():
        async with open_factory() as site:
            body = workload("Job", "batch/v1", **job_template(completions=2, parallelism=1))
            await site.create(f"{BATCH}/jobs", body)
            for count in (1, 2):
                pods = await until(lambda count=count: of_count(site, f"{CORE}/pods", count))
                for pod in pods:
                    path = f"{CORE}/pods/{pod['metadata']['name']}/status"
                    await site.patch(path, {"status": {"phase": "Succeeded"}})

            async def is_done():
                status = (await site.get(f"{BATCH}/jobs/x")).json["status"]
                return status if status.get("completionTime") else None

            status = await until(is_done)
            assert status["succeeded"] == 2
            assert status["conditions"][-1]["type"] == "Complete"

    run(test)


def test_cron_jobs_start_jobs():
    async def test():
        async with open_factory() as site:
            body = workload(
                "CronJob", "batch/v1", schedule="@every 1s", jobTemplate={"spec": job_template()}
            )
            await site.create(f"{BATCH}/cronjobs", body)

            async def find():
                found = await items(site, f"{BATCH}/jobs")
                return found[0] if found else None

            job = await until(find)
            assert owner_of(job) == ("CronJob", "x")
            assert job["metadata"]["name"].startswith("x-")
            scheduled = "batch.kubernetes.io/cronjob-scheduled-timestamp"
            assert scheduled in job["metadata"]["annotations"]

    run(test)


def test_only_the_last_of_missed_runs_counts():
    body = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    now = datetime(2026, 1, 1, 0, 14, 30, tzinfo=UTC)
    due = find_due(body, compile_schedule("*/5 * * * *"), now)
    assert due == datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
    late = {**body, "spec": {"startingDeadlineSeconds": 60}}
    assert find_due(late, compile_schedule("*/5 * * * *"), now) is None
