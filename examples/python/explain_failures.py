"""Show where a resource differs from what each failed rule expects."""

import lictor

engine = lictor.Engine(lictor.load_policies("examples/policies"))
container = {"name": "shell", "image": "busybox", "securityContext": {"privileged": True}}
pod = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "debug", "namespace": "shop"},
    "spec": {"containers": [container]},
}
for result in engine.evaluate(pod).results:
    print(result.policy.name, result.rule, result.status, result.action)
    if result.failure is not None:
        print("   ", result.failure.path, result.failure.expected, result.failure.found)
