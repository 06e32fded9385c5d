"""Print the fields that mutate rules add to a Pod."""

import lictor

engine = lictor.Engine(lictor.load_policies("examples/policies/safe-defaults.yaml"))
pod = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"containers": [{"name": "web", "image": "ghcr.io/acme/web:2.4.1"}]},
}
patched = engine.evaluate(pod).patched
print(patched["spec"]["securityContext"])
print(patched["spec"]["containers"][0]["resources"])
