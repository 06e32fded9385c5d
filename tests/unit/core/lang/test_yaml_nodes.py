"""Nodes of a document, found by the path that a finding names."""

import time

from lictor.core.lang.yaml.nodes import compose, find_node


def test_every_field_of_a_large_mapping_is_found_quickly() -> None:
    (root,) = compose("spec:\n" + "".join(f"  field{number}: 1\n" for number in range(20_000)))
    began = time.process_time()
    lines = [
        find_node(root, ("spec", f"field{number}")).start_mark.line for number in range(20_000)
    ]
    assert lines == list(range(1, 20_001))
    # Looked for one after the other, they take tens of seconds.
    assert time.process_time() - began < 3


def test_of_equal_keys_the_first_is_found_and_of_a_list_none() -> None:
    (root,) = compose("a: 1\n? [x, y]\n: 2\na: 3\n")
    assert find_node(root, ("a",)).start_mark.line == 0
    assert find_node(root, ("missing", "field")) is root
