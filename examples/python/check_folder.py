"""Evaluate every resource of a folder; exit with 1 if a policy denies one."""

import sys
from pathlib import Path

import yaml

import lictor

policies, folder = sys.argv[1:]
engine = lictor.Engine(lictor.load_policies(policies))
denied = 0
for path in sorted(Path(folder).glob("*.yaml")):
    for resource in yaml.safe_load_all(path.read_text()):
        verdict = engine.evaluate(resource)
        if not verdict.allowed:
            denied += 1
            print(f"{path.name}: {resource['kind']} {resource['metadata']['name']} is denied")
sys.exit(1 if denied else 0)
