"""Evaluate every resource of a folder; exit with 1 if a policy denies one."""

import sys

import lictor

policies, folder = sys.argv[1:]
engine = lictor.Engine(lictor.load_policies(policies))
denied = 0
for resource in lictor.load_resources(folder):
    verdict = engine.evaluate(resource)
    if not verdict.allowed:
        denied += 1
        print(f"{resource['kind']} {resource['metadata']['name']} is denied")
sys.exit(1 if denied else 0)
