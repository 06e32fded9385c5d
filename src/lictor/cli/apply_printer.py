"""Prints the results of `apply` in every format, as they arrive."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import click
import msgspec
from msgspec.structs import replace

from lictor.cli.apply_outputs import ApplyOutput, ChangedObject, OutputOptions, ResourceOutput
from lictor.cli.apply_plan import OutputFile
from lictor.cli.apply_run import DocumentResult
from lictor.cli.inputs.policies import LoadedPolicies
from lictor.cli.inputs.sources import SourceText
from lictor.cli.output_files import ObjectFiles, ParquetFile, PendingFile
from lictor.cli.terminal import show_plainly
from lictor.core.families.built_in import load_part
from lictor.core.model.finding import Location
from lictor.core.model.result import Result
from lictor.core.release import VERSION
from lictor.core.report.json_text import render_json
from lictor.core.report.outcomes import TestOutcome
from lictor.core.report.policy_report import ReportFormat, ReportStream
from lictor.core.report.summary import Counts
from lictor.core.report.yaml_text import render_yaml

_DIVIDER = "-" * 70
# Formats that are read by people: messages go to standard output too.
_FOR_PEOPLE: Final = frozenset({ApplyOutput.TEXT, ApplyOutput.TABLE})


class PrinterFlags(msgspec.Struct, frozen=True):
    """How results are shown in any format."""

    color: bool = False
    detailed: bool = False
    # Only objects go to stdout, for the next program in a pipe.
    piped: bool = False
    # Only failures are printed.
    quiet: bool = False


class ResultWriter(ABC):
    """Writes results in one format, to standard output or to a file."""

    # Whether `path` is for changed and generated objects, and results go to standard output.
    writes_objects = False

    def __init__(self, options: OutputOptions, flags: PrinterFlags, path: str = "") -> None:
        self._options = options
        self._flags = flags
        self._objects = ObjectFiles(path) if path and self.writes_objects else None
        self._file = PendingFile(path) if path and not self.writes_objects else None
        self._out = self._file.open() if self._file is not None else None

    @abstractmethod
    def add(self, output: ResourceOutput) -> None:
        """Write the result of one resource, or keep it until `finish`."""

    def finish(self, policies: Sequence[SourceText]) -> None:  # noqa: ARG002  (for HTML)
        """Write what was kept, and give the file its name. `policies` are shown in HTML."""
        if self._file is not None:
            self._file.finish()

    def _print(self, text: str) -> None:
        click.echo(text, nl=False, file=self._out)

    def _print_objects(self, made: Iterable[ChangedObject]) -> None:
        piped = self._flags.piped
        for each in made:
            if self._objects is not None:
                self._objects.write(each)
            else:
                _print_object(each, piped=piped)
            done = (
                "Generate:\nGeneration completed successfully."
                if each.is_generated
                else "Mutation:\nMutation has been applied successfully."
            )
            click.echo(f"\n\n{done}", err=piped)


def _print_object(made: ChangedObject, *, piped: bool) -> None:
    if not piped:
        click.echo(f"\npolicy {made.policy} applied to {made.resource}:")
    click.echo(f"{made.text}\n---")
    if made.targets:
        click.echo("patched targets: ", err=piped)
        for target in made.targets:
            click.echo(f"\n{target}\n---\n")


class _TextWriter(ResultWriter):
    """Failures and errors as text."""

    writes_objects = True
    # The cluster of the last result that was printed.
    _cluster = ""

    def add(self, output: ResourceOutput) -> None:
        piped = self._flags.piped
        if output.cluster != self._cluster and (output.text or output.made):
            self._cluster = output.cluster
            click.echo(f"\ncluster {output.cluster}:", err=piped)
        if output.made:
            self._print_objects(output.made)
        if output.text:
            click.echo(show_plainly(output.text), nl=False, err=piped)


class _RowWriter(ResultWriter):
    """Markdown and JUnit: all rows at the end."""

    def __init__(self, options: OutputOptions, flags: PrinterFlags, path: str = "") -> None:
        super().__init__(options, flags, path)
        self._rows: list[TestOutcome] = []

    def add(self, output: ResourceOutput) -> None:
        self._print_objects(output.made)
        first = len(self._rows) + 1
        self._rows += [replace(row, id=n) for n, row in enumerate(output.outcomes, first)]

    def finish(self, policies: Sequence[SourceText]) -> None:
        self._print(self._render())
        super().finish(policies)

    def _render(self) -> str:
        # Imported here: most runs print text, and start-up time matters.
        from lictor.core.report.outcome_formats import render_junit, render_markdown

        is_junit = self._options.output is ApplyOutput.JUNIT
        render = render_junit if is_junit else render_markdown
        return render(self._rows, detailed=self._flags.detailed)


class _TableWriter(_RowWriter):
    """A table of all results at the end."""

    writes_objects = True

    def _render(self) -> str:
        from lictor.core.report.table import render_table

        return render_table(self._rows, detailed=self._flags.detailed, color=self._flags.color)


class _ReportWriter(ResultWriter):
    """A policy report, written while results arrive."""

    def __init__(self, options: OutputOptions, flags: PrinterFlags, path: str = "") -> None:
        super().__init__(options, flags, path)
        self._stream = ReportStream(options.format, options.report_api)

    def add(self, output: ResourceOutput) -> None:
        (self._out or sys.stdout).write(self._stream.add(output.report))

    def finish(self, policies: Sequence[SourceText]) -> None:
        for text in self._stream.finish():
            (self._out or sys.stdout).write(text)
        super().finish(policies)


class _LineWriter(ResultWriter):
    """JSON lines."""

    def add(self, output: ResourceOutput) -> None:
        (self._out or sys.stdout).write(output.text)


class _ParquetWriter(ResultWriter):
    """Rows of a Parquet file."""

    def __init__(self, options: OutputOptions, flags: PrinterFlags, path: str = "") -> None:
        super().__init__(options, flags)
        self._rows = ParquetFile(path)

    def add(self, output: ResourceOutput) -> None:
        self._rows.write(output.text)

    def finish(self, policies: Sequence[SourceText]) -> None:
        self._rows.close()
        super().finish(policies)


class _ExceptionWriter(ResultWriter):
    """A PolicyException for each violation."""

    def add(self, output: ResourceOutput) -> None:
        if output.failures is None:
            return
        # Imported here because it imports OpenSSL.
        from lictor.core.report.exceptions import build_exceptions

        options = self._options
        is_json = options.format is ReportFormat.JSON
        verdicts = (output.failures,)
        for found in build_exceptions(
            verdicts, options.exception_ttl, audit_warn=options.audit_warn
        ):
            self._print(f"{render_json(found)}\n" if is_json else f"---\n{render_yaml(found)}\n")


class _GitHubWriter(ResultWriter):
    """Annotations for pull requests on GitHub."""

    def add(self, output: ResourceOutput) -> None:
        if output.failures is None:
            return
        from lictor.core.report.github import render_github

        warn = self._options.audit_warn
        locate = _compile_locate((output,))
        self._print(render_github((output.failures,), locate=locate, audit_warn=warn))


class _SarifWriter(ResultWriter):
    """One SARIF document at the end."""

    def __init__(self, options: OutputOptions, flags: PrinterFlags, path: str = "") -> None:
        super().__init__(options, flags, path)
        self._outputs: list[ResourceOutput] = []

    def add(self, output: ResourceOutput) -> None:
        if output.failures is not None:
            self._outputs.append(output)

    def finish(self, policies: Sequence[SourceText]) -> None:
        from lictor.core.report.sarif import render_sarif

        verdicts = [each.failures for each in self._outputs if each.failures is not None]
        warn, locate = self._options.audit_warn, _compile_locate(self._outputs)
        self._print(render_sarif(verdicts, locate=locate, version=VERSION, audit_warn=warn))
        super().finish(policies)


class _HtmlWriter(ResultWriter):
    """One HTML page at the end."""

    def __init__(self, options: OutputOptions, flags: PrinterFlags, path: str = "") -> None:
        super().__init__(options, flags, path)
        self._page = load_part("html report")(options.timestamp)

    def add(self, output: ResourceOutput) -> None:
        if output.page_report:
            self._page.add(output.page_report, output.failures, output.place)

    def finish(self, policies: Sequence[SourceText]) -> None:
        self._page.add_policies(policies)
        self._print(self._page.render())
        super().finish(policies)


def _compile_locate(outputs: Iterable[ResourceOutput]) -> Callable[[Result], Location | None]:
    """Return the function that finds the location of a result in its file."""
    places: dict[int, Location | None] = {}
    for output in outputs:
        results = () if output.failures is None else output.failures.results
        named = zip(results, output.locations, strict=True)
        places.update((id(result), place) for result, place in named)
    return lambda result: places.get(id(result))


_WRITERS: Final[dict[ApplyOutput, type[ResultWriter]]] = {
    ApplyOutput.TEXT: _TextWriter,
    ApplyOutput.TABLE: _TableWriter,
    ApplyOutput.REPORT: _ReportWriter,
    ApplyOutput.EXCEPTIONS: _ExceptionWriter,
    ApplyOutput.MARKDOWN: _RowWriter,
    ApplyOutput.JUNIT: _RowWriter,
    ApplyOutput.SARIF: _SarifWriter,
    ApplyOutput.GITHUB: _GitHubWriter,
    ApplyOutput.HTML: _HtmlWriter,
    ApplyOutput.JSON_LINES: _LineWriter,
    ApplyOutput.PARQUET: _ParquetWriter,
}


class ApplyPrinter:
    """Counts results, and writes them in every requested format as they arrive."""

    def __init__(
        self, shown: OutputFile, flags: PrinterFlags, files: Sequence[OutputFile] = ()
    ) -> None:
        self.flags = flags
        self.options = (shown.options, *(file.options for file in files))
        # Files are created at once, so that a run does not fail at its end.
        plain = replace(flags, color=False)
        first = _WRITERS[shown.options.output](shown.options, flags, shown.path)
        more = (_WRITERS[file.options.output](file.options, plain, file.path) for file in files)
        self._writers = (first, *more)
        self._to_stderr = flags.piped or shown.options.output not in _FOR_PEOPLE
        self._notes: set[str] = set()
        self.counts = Counts()
        # The policies of the run, for formats that show them.
        self.policy_texts: tuple[SourceText, ...] = ()

    def print_message(self, text: str) -> None:
        """Print a line that is no result."""
        click.echo(text, err=self._to_stderr)

    def add(self, result: DocumentResult) -> None:
        """Print the results of one document."""
        if result.problem:
            problem = show_plainly(result.problem)
            click.echo(f"failed to apply policies on resource ({problem})", err=True)
            # A document that cannot be read was not evaluated: the run must not succeed.
            self.counts += Counts(errors=1)
        for note in result.notes:
            if note not in self._notes and not self.flags.quiet:
                self._notes.add(note)
                click.echo(f"note: {note}", err=True)
        for number, outputs in enumerate(result.outputs):
            for output in outputs:
                self._writers[number].add(output)
                if number == 0:
                    self.counts += output.counts

    def finish(self) -> None:
        """Write everything that waits for the last result, and close all files."""
        for writer in self._writers:
            writer.finish(self.policy_texts)

    def print_unusable(self, policies: LoadedPolicies) -> None:
        """Print the policies that cannot be used; each counts as an error."""
        broken = [policy for policy in policies.unusable if not policy.is_later]
        later = [policy for policy in policies.unusable if policy.is_later]
        for title, group in (("Invalid Policies:", broken), ("Policies not supported yet:", later)):
            if group:
                self.print_message(f"{_DIVIDER}\n{title}")
                for number, policy in enumerate(group, 1):
                    self.print_message(f"{number}. {policy.name} ({policy.reason})")
                self.print_message(_DIVIDER)
