"""YAML in the order in which it was put together, as people write manifests."""

from functools import cache
from typing import TYPE_CHECKING

from lictor.core.raw import Json

if TYPE_CHECKING:
    import yaml


def render_manifest(value: Json) -> str:
    """One document; keys stay in their order, texts of several lines are blocks."""
    import yaml

    text: str = yaml.dump(
        value,
        Dumper=_make_dumper(),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=2**20,
    )
    return text


@cache
def _make_dumper() -> "type[yaml.SafeDumper]":
    # Loaded late: most commands print no manifests.
    import yaml

    class ManifestDumper(yaml.SafeDumper):
        """PyYAML's, with blocks for texts of several lines and without aliases."""

        def ignore_aliases(self, data: Json) -> bool:  # noqa: ARG002
            return True

    def write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # Kubernetes takes a bare y and n for booleans, which PyYAML does not know.
        style = "|" if "\n" in text else "'" if text.lower() in ("y", "n") else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    ManifestDumper.add_representer(str, write_text)
    return ManifestDumper
