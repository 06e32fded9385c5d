"""One image in a registry, those who may sign it and those who may not, and what policies say of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from image_tools.loopback_registry import Repository
from image_tools.signers import Certified, CosignKey, CosignSigner, NotationSigner

from lictor.cli.exit_codes import run

Policy = dict[str, Any]


@dataclass(frozen=True)
class Signers:
    """Someone who is trusted, someone who is not, and the tools of both."""

    cosign: CosignSigner
    notation: NotationSigner
    trusted: CosignKey
    stranger: CosignKey
    authority: Certified
    alice: Certified
    mallory: Certified


@dataclass(frozen=True)
class Scene:
    """One image in a registry, and a policy that is to judge it."""

    signers: Signers
    repository: Repository
    folder: Path
    capture: pytest.CaptureFixture[str]

    @property
    def image(self) -> str:
        return f"{self.repository}@{self.repository.digest('v1')}"

    def signature_tag(self, suffix: str = "sig", tag: str = "v1") -> str:
        return f"{self.repository.digest(tag).replace(':', '-')}.{suffix}"

    def apply(self, policy: Policy, image: str = "", **metadata: Any) -> list[dict[str, Any]]:
        """The results for a Pod with the image; the exit code must say the same."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", "namespace": "default", **metadata},
            "spec": {"containers": [{"name": "main", "image": image or f"{self.repository}:v1"}]},
        }
        paths = self.folder / "policy.json", self.folder / "pod.json"
        for path, document in zip(paths, (policy, pod), strict=True):
            path.write_text(json.dumps(document))
        self.capture.readouterr()
        words = ["apply", str(paths[0]), "-r", str(paths[1]), "--registry", "-p"]
        code = run([*words, "--output-format", "json"])
        printed = self.capture.readouterr().out
        results = json.loads(printed[printed.index("{") :])["results"]
        # Nobody may take it for accepted that nothing was looked at.
        assert results
        assert bool(code) == any(each["result"] in ("fail", "error") for each in results)
        return results

    def refusals(self, policy: Policy, image: str = "", **metadata: Any) -> list[str]:
        """What the policy has against the Pod; empty where it accepts it."""
        results = self.apply(policy, image, **metadata)
        return [each.get("message", "") for each in results if each["result"] != "pass"]

    def verify(self, *words: str) -> tuple[int, str]:
        """Exit code and output of `lictor verify`."""
        self.capture.readouterr()
        code = run(["verify", f"{self.repository}:v1", *words])
        return code, self.capture.readouterr().out

    def write(self, name: str, text: str) -> str:
        """The path of a new file."""
        (self.folder / name).write_text(text)
        return str(self.folder / name)
