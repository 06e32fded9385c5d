"""Prints what `apply` found: text, table, report, exceptions, Markdown, JUnit, SARIF or HTML."""

import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final, TextIO, TypeVar, assert_never

import click
import msgspec
from msgspec.structs import replace

from lictor.cli.apply_outputs import ApplyOutput, ChangedObject, OutputOptions, ResourceOutput
from lictor.cli.apply_plan import OutputFile
from lictor.cli.apply_run import ApplyRun, DocumentResult
from lictor.cli.inputs.inputs import choose_folder
from lictor.cli.inputs.policies import LoadedPolicies
from lictor.cli.inputs.sources import SourceText
from lictor.cli.output_files import ObjectFiles, ParquetFile, PendingFile
from lictor.cli.terminal import show_plainly
from lictor.core.families.built_in import load_part
from lictor.core.model.finding import Location
from lictor.core.model.result import Result, Verdict
from lictor.core.release import VERSION
from lictor.core.report.json_text import render_json
from lictor.core.report.outcomes import TestOutcome
from lictor.core.report.policy_report import ReportFormat, stream_report
from lictor.core.report.summary import Counts, render_counts
from lictor.core.report.yaml_text import render_yaml

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")

PATIENCE_SECONDS = 1.0
# The clock is asked once for so many items: they may take microseconds each.
_STRIDE = 16


def track(
    items: Iterable[Item],
    total: int | None = None,
    label: str = "Working",
    *,
    measure: Callable[[Item], int] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """Give the items on; after a second, show on stderr how far we are, and how long it may take.

    The total is a number of items, or of bytes if there is a measure for them.
    """
    # Where results go to a terminal too, they show how far we are, and a bar would cut into them.
    if not _is_terminal(sys.stderr) or _is_terminal(sys.stdout):
        yield from items
        return
    waiting = iter(items)
    deadline = clock() + PATIENCE_SECONDS
    done = 0
    for count, item in enumerate(waiting, 1):
        yield item
        done += measure(item) if measure else 1
        if count % _STRIDE == 0 and clock() > deadline:
            break
    else:
        return
    with _show_progress(in_bytes=measure is not None) as progress:
        task = progress.add_task(label, total=total, completed=done)
        for item in waiting:
            yield item
            progress.advance(task, measure(item) if measure else 1)


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _show_progress(*, in_bytes: bool) -> "Progress":
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Rich would take stdout for its own, and print to its stream what belongs into a file.
        redirect_stdout=False,
    )


_DIVIDER = "-" * 70


# Formats that are written as results come; the others hold all of them anyway.
_STREAMED: Final = frozenset(
    {
        ApplyOutput.TEXT,
        ApplyOutput.REPORT,
        ApplyOutput.EXCEPTIONS,
        ApplyOutput.GITHUB,
        ApplyOutput.JSON_LINES,
        ApplyOutput.PARQUET,
    }
)
_HELD_OUTPUTS: Final = 1000


class OutputSpool:
    """Outputs that wait for their file: in memory while they are few, else in a temporary file."""

    def __init__(self, output: ApplyOutput) -> None:
        self._is_streamed = output in _STREAMED
        self._held: list[ResourceOutput] = []
        self._file: IO[bytes] | None = None

    def add(self, outputs: Sequence[ResourceOutput]) -> None:
        """Take some more."""
        self._held += outputs
        if self._is_streamed and len(self._held) >= _HELD_OUTPUTS:
            if self._file is None:
                import tempfile

                self._file = tempfile.TemporaryFile(dir=choose_folder())  # noqa: SIM115
            pickle.dump(self._held, self._file, pickle.HIGHEST_PROTOCOL)
            self._held = []

    def take_all(self) -> Iterator[ResourceOutput]:
        """All of them; nothing is kept."""
        if self._file is not None:
            with self._file as file:
                end = file.tell()
                file.seek(0)
                while file.tell() < end:
                    yield from pickle.load(file)  # noqa: S301  (we wrote it)
        held, self._held = self._held, []
        yield from held


class PrinterFlags(msgspec.Struct, frozen=True):
    """How outputs are shown, whatever their form."""

    color: bool = False
    detailed: bool = False
    # Only objects go to stdout then: the next program in the pipe reads them.
    piped: bool = False
    # Nothing is printed but what is wrong.
    quiet: bool = False


class ApplyPrinter:
    """Prints outputs as they come, and adds up what they count."""

    def __init__(self, options: OutputOptions, flags: PrinterFlags) -> None:
        self._options = options
        self._flags = flags
        self._piped = flags.piped
        self.is_quiet = flags.quiet
        self._notes: set[str] = set()
        self._out: TextIO | None = None
        self._pending: PendingFile | None = None
        self._files: ObjectFiles | None = None
        self._rows: ParquetFile | None = None
        # Of the last result that was shown.
        self._cluster = ""
        # Each with the outputs that are for it.
        self._more: list[tuple[ApplyPrinter, OutputSpool]] = []
        self.counts = Counts()
        # Of all policies, for formats that show them.
        self.policy_texts: tuple[SourceText, ...] = ()

    def write_to(self, path: str) -> None:
        """Write reports to a file, or the objects that are made to a file or folder."""
        if self._options.output in _FOR_PEOPLE:
            self._files = ObjectFiles(path)
        elif self._options.output is ApplyOutput.PARQUET:
            self._rows = ParquetFile(path)
        else:
            self._pending = PendingFile(path)
            self._out = self._pending.open()

    def add_files(self, files: Iterable[OutputFile]) -> None:
        """Write to these files as well; they are created at once, so that no run is in vain."""
        for file in files:
            printer = ApplyPrinter(file.options, replace(self._flags, color=False))
            printer.write_to(file.path)
            self._more.append((printer, OutputSpool(file.options.output)))

    def _print(self, text: str) -> None:
        """Results: what a program reads."""
        click.echo(text, nl=False, file=self._out)

    def say(self, text: str) -> None:
        """Print a line for people."""
        click.echo(text, err=self._piped or self._options.output not in _FOR_PEOPLE)

    def print_all(self, application: ApplyRun, ttl: int) -> None:
        """Run, and print everything."""
        results = application.run()
        if not self.is_quiet:
            results = track(results, application.count, "Judging")
        judged = self._count(results)
        self.print_outputs((each for found in judged for each in found.outputs), ttl)
        for printer, spool in self._more:
            printer.policy_texts = self.policy_texts
            printer.print_outputs(spool.take_all(), ttl)

    def print_outputs(self, outputs: Iterable[ResourceOutput], ttl: int) -> None:
        """Print outputs in the form that was chosen, and close the file that they go to."""
        options = self._options
        match options.output:
            case ApplyOutput.TEXT:
                self._print_text(outputs)
            case ApplyOutput.REPORT:
                self._print_report(outputs)
            case ApplyOutput.EXCEPTIONS:
                self._print_exceptions(outputs, ttl)
            case ApplyOutput.SARIF | ApplyOutput.GITHUB:
                self._print_located(outputs)
            case ApplyOutput.HTML:
                self._print_html(outputs)
            case ApplyOutput.JSON_LINES | ApplyOutput.PARQUET:
                self._write_rows(outputs)
            case ApplyOutput.TABLE | ApplyOutput.MARKDOWN | ApplyOutput.JUNIT:
                self._print_rows(outputs)
            case _:
                assert_never(options.output)
        if self._pending is not None:
            self._pending.finish()

    def _count(self, judged: Iterable[DocumentResult]) -> Iterator[DocumentResult]:
        for found in judged:
            if found.problem:
                problem = show_plainly(found.problem)
                click.echo(f"failed to apply policies on resource ({problem})", err=True)
                # What could not be read was not judged: that is no success.
                self.counts += Counts(errors=1)
            for note in found.notes:
                if note not in self._notes and not self.is_quiet:
                    self._notes.add(note)
                    click.echo(f"note: {note}", err=True)
            for output in found.outputs:
                self.counts += output.counts
            for (_, kept), outputs in zip(self._more, found.more, strict=False):
                kept.add(outputs)
            yield found

    def _print_report(self, outputs: Iterable[ResourceOutput]) -> None:
        chunks = (output.report for output in outputs)
        for text in stream_report(chunks, self._options.format, self._options.report_api):
            (self._out or sys.stdout).write(text)

    def _write_rows(self, outputs: Iterable[ResourceOutput]) -> None:
        stream = self._rows or self._out or sys.stdout
        for output in outputs:
            stream.write(output.text)
        if self._rows is not None:
            self._rows.close()

    def _print_cluster(self, output: ResourceOutput) -> None:
        if output.cluster != self._cluster and (output.text or output.made):
            self._cluster = output.cluster
            click.echo(f"\ncluster {output.cluster}:", err=self._piped)

    def _print_text(self, outputs: Iterable[ResourceOutput]) -> None:
        for output in outputs:
            self._print_cluster(output)
            self._print_made(output)
            if output.text:
                click.echo(show_plainly(output.text), nl=False, err=self._piped)

    def _print_made(self, output: ResourceOutput) -> None:
        for made in output.made:
            if self._files is not None:
                self._files.write(made)
            else:
                self._print_object(made)
            done = (
                "Generate:\nGeneration completed successfully."
                if made.is_generated
                else "Mutation:\nMutation has been applied successfully."
            )
            click.echo(f"\n\n{done}", err=self._piped)

    def _print_object(self, made: ChangedObject) -> None:
        if not self._piped:
            click.echo(f"\npolicy {made.policy} applied to {made.resource}:")
        click.echo(f"{made.text}\n---")
        if made.targets:
            click.echo("patched targets: ", err=self._piped)
            for target in made.targets:
                click.echo(f"\n{target}\n---\n")

    def _print_rows(self, outputs: Iterable[ResourceOutput]) -> None:
        rows: list[TestOutcome] = []
        for output in outputs:
            self._print_made(output)
            first = len(rows) + 1
            rows += [replace(row, id=n) for n, row in enumerate(output.outcomes, first)]
        self._print(self._render_rows(rows))

    def _render_rows(self, rows: list[TestOutcome]) -> str:
        # Loaded when asked for: most runs print text, and start-up counts.
        if self._options.output is ApplyOutput.TABLE:
            from lictor.core.report.table import render_table

            return render_table(rows, detailed=self._flags.detailed, color=self._flags.color)
        if self._options.output is ApplyOutput.JUNIT:
            from lictor.core.report.outcome_formats import render_junit

            return render_junit(rows, detailed=self._flags.detailed)
        from lictor.core.report.outcome_formats import render_markdown

        return render_markdown(rows, detailed=self._flags.detailed)

    def _print_exceptions(self, outputs: Iterable[ResourceOutput], ttl: int) -> None:
        verdicts = (output.failures for output in outputs if output.failures is not None)
        is_json = self._options.format is ReportFormat.JSON
        # Loaded on first use, as it loads OpenSSL too.
        from lictor.core.report.exceptions import build_exceptions

        for exception in build_exceptions(verdicts, ttl, audit_warn=self._options.audit_warn):
            text = render_json(exception) if is_json else render_yaml(exception)
            self._print(f"{text}\n" if is_json else f"---\n{text}\n")

    def _print_located(self, outputs: Iterable[ResourceOutput]) -> None:
        if self._options.output is ApplyOutput.SARIF:
            self._print(_render_located(outputs, self._options))
            return
        for output in outputs:
            if output.failures is not None:
                self._print(_render_located((output,), self._options))

    def _print_html(self, outputs: Iterable[ResourceOutput]) -> None:
        report = load_part("html report")(self._options.timestamp)
        report.add_policies(self.policy_texts)
        for output in outputs:
            if output.page_report:
                report.add(output.page_report, output.failures, output.place)
        self._print(report.render())


def _render_located(outputs: Iterable[ResourceOutput], options: OutputOptions) -> str:
    """The formats that point at fields in files."""
    verdicts: list[Verdict] = []
    places: dict[int, Location | None] = {}
    for output in outputs:
        if output.failures is not None:
            verdicts.append(output.failures)
            named = zip(output.failures.results, output.locations, strict=True)
            places.update((id(result), place) for result, place in named)

    def locate(result: Result) -> Location | None:
        return places.get(id(result))

    if options.output is ApplyOutput.GITHUB:
        from lictor.core.report.github import render_github

        return render_github(verdicts, locate=locate, audit_warn=options.audit_warn)
    from lictor.core.report.sarif import render_sarif

    return render_sarif(verdicts, locate=locate, version=VERSION, audit_warn=options.audit_warn)


_FOR_PEOPLE = frozenset({ApplyOutput.TEXT, ApplyOutput.TABLE})


def print_unusable(policies: LoadedPolicies, printer: ApplyPrinter) -> None:
    """Say which policies could not be used; each of them is an error."""
    broken = [policy for policy in policies.unusable if not policy.is_later]
    later = [policy for policy in policies.unusable if policy.is_later]
    for title, group in (("Invalid Policies:", broken), ("Policies not supported yet:", later)):
        if group:
            printer.say(f"{_DIVIDER}\n{title}")
            for number, policy in enumerate(group, 1):
                printer.say(f"{number}. {policy.name} ({policy.reason})")
            printer.say(_DIVIDER)


def print_summary(printer: ApplyPrinter) -> None:
    """The line with the counts."""
    printer.say(f"\n{render_counts(printer.counts)}")
