"""Every name of the built-in table leads somewhere, and add-ons are named nowhere else."""

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

import lictor
from lictor.core.families.built_in import COMMANDS, FAMILIES, PARTS, load_part

SOURCE = Path(lictor.__file__).parent


@pytest.mark.parametrize(("group", "module"), FAMILIES.items())
def test_a_family_declares_the_kinds_of_its_group(group: str, module: str) -> None:
    assert {kind.group for kind in import_module(module).FAMILY.list_kinds()} == {group}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_there(name: str) -> None:
    module, attribute, summary = COMMANDS[name]
    assert isinstance(getattr(import_module(module), attribute), click.Command)
    assert summary.endswith(".")


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_there(name: str) -> None:
    assert callable(load_part(name))


def test_a_part_is_used() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    assert set(re.findall(r'load_part\("([^"]+)"\)', text)) == set(PARTS)
