"""What is said about an object that someone wants to store: errors refuse it, warnings do not."""

from collections.abc import Iterable

import msgspec

from lictor.model.finding import Finding, Severity
from lictor.serve.wording import tell_fault

# The API server cuts what is longer, and people read the first lines.
_MOST_WARNINGS = 20
_LONGEST_WARNING = 250
_MOST_ERRORS = 20


class Opinion(msgspec.Struct, frozen=True):
    """What is wrong, and what someone should look at. Without errors, the object may be stored."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.errors

    @property
    def message(self) -> str:
        """The errors, one line each."""
        shown = list(self.errors[:_MOST_ERRORS])
        if len(self.errors) > _MOST_ERRORS:
            shown.append(f"and {len(self.errors) - _MOST_ERRORS} more")
        return "\n".join(shown)

    def __add__(self, other: "Opinion") -> "Opinion":
        return Opinion(
            tuple(dict.fromkeys((*self.errors, *other.errors))),
            tuple(dict.fromkeys((*self.warnings, *other.warnings))),
        )

    def soften(self) -> "Opinion":
        """The same where nothing may be refused."""
        return Opinion((), (*self.errors, *self.warnings))

    def shorten(self) -> "Opinion":
        """With no more warnings than an API server hands on."""
        cut = tuple(each[:_LONGEST_WARNING] for each in self.warnings[:_MOST_WARNINGS])
        return Opinion(self.errors, cut)


ACCEPTED = Opinion()


def build_opinion(faults: Iterable[Finding]) -> Opinion:
    """Faults as path and reason: errors and warnings as `lint` knows them."""
    errors: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for fault in faults:
        is_error = fault.severity is Severity.ERROR
        (errors if is_error else warnings)[tell_fault(fault)] = None
    return Opinion(tuple(errors), tuple(warnings))
