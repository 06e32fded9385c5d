"""The outcome of a run, for people: a table per folder, and why each failed test failed."""

from collections.abc import Mapping, Sequence

from chainsaw.runner import PASSED, Result

_COLUMNS = "{:44} {:>6} {:>6} {:>8} {:>6} {:>7}"


def show_line(result: Result, *, expected: bool) -> str:
    """One test as it ends."""
    mark = "" if expected or result.status == PASSED else " (not expected)"
    return f"{result.status.upper():7} {result.seconds:6.1f} s  {result.path}{mark}"


def show_table(results: Sequence[Result], expected: Mapping[str, bool]) -> str:
    """A row for each folder: all tests, those that passed, those that count and of them passed."""
    folders = sorted({result.path.partition("/")[0] for result in results})
    lines = [_COLUMNS.format("folder", "tests", "passed", "expected", "of it", "%")]
    for folder in folders:
        mine = [result for result in results if result.path.partition("/")[0] == folder]
        lines.append(_show_row(folder, mine, expected))
    lines.append(_show_row("all", results, expected))
    return "\n".join(lines)


def _show_row(name: str, results: Sequence[Result], expected: Mapping[str, bool]) -> str:
    passed = [result for result in results if result.status == PASSED]
    counted = [result for result in results if expected.get(result.path)]
    good = [result for result in counted if result.status == PASSED]
    share = f"{100 * len(good) / len(counted):.1f}" if counted else "-"
    return _COLUMNS.format(name, len(results), len(passed), len(counted), len(good), share)


def show_failures(results: Sequence[Result], expected: Mapping[str, bool]) -> str:
    """Why each test failed, those that count first."""
    failed = [result for result in results if result.status != PASSED]
    lines = []
    for counted in (True, False):
        mine = [result for result in failed if bool(expected.get(result.path)) is counted]
        if mine:
            lines.append("failed, and should not:" if counted else "failed, as may be:")
        lines += [f"  {result.path}: {result.reason}" for result in mine]
    return "\n".join(lines)
