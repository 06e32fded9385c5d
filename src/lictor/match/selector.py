"""Do these labels fit the label selector of a policy?"""

from lictor.lang.label_selector import MapTest, Requirement, compile_label_selector
from lictor.model.metadata import LabelSelector


def compile_selector(selector: LabelSelector) -> MapTest:
    """Turn a selector into a test of labels; the empty selector takes everything."""
    requirements = tuple(
        Requirement(each.key, each.operator, each.values) for each in selector.match_expressions
    )
    return compile_label_selector(selector.match_labels, requirements)
