import importlib
import subprocess
import sys

import lictor


def test_all_lists_exactly_what_is_public():
    assert sorted(lictor.__all__) == sorted(lictor._HOME_OF)
    assert lictor.__all__ == sorted(lictor.__all__)


def test_every_public_name_is_there():
    for name in lictor.__all__:
        home = importlib.import_module(lictor._HOME_OF[name])
        assert getattr(lictor, name) is getattr(home, name)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(lictor, "no_such_name")


def test_importing_costs_nothing_heavy():
    heavy = "click, msgspec, yaml, orjson, re2, jmespath, rich, cryptography"
    script = f"import sys, lictor; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
