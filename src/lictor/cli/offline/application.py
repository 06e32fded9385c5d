"""`apply`, all but the printing: policies compiled once, documents judged one by one."""

import gc
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lictor.assembly import compile_documents
from lictor.cli.offline.lookups import GivenObjects, OfflineLookups
from lictor.cli.offline.pieces import Piece, PieceOptions, compile_pieces
from lictor.cli.offline.policies import LoadedPolicies
from lictor.cli.offline.requests import World
from lictor.cli.offline.resources import Span, find_documents, parse_resources
from lictor.cli.parallel import choose_processes, map_chunks, split_evenly
from lictor.cli.sources import Text
from lictor.engine import Engine
from lictor.errors import LictorError
from lictor.model.exception import PolicyException
from lictor.report.summary import Counts

_CHUNK_SIZE = 25
# Resources are trees without cycles: looking for garbage more often finds nothing.
_COLLECT_AFTER = 100_000


class Place(msgspec.Struct, frozen=True):
    """Where a document is: which text, and where in it."""

    text: int
    span: Span


class Judged(msgspec.Struct, frozen=True):
    """One document's pieces, where it is, and why it could not be judged if so."""

    place: Place
    pieces: tuple[Piece, ...] = ()
    problem: str = ""


class ApplyPlan(msgspec.Struct, frozen=True):
    """What to judge, by what, and how."""

    policies: LoadedPolicies
    texts: tuple[Text, ...]
    world: World
    given: GivenObjects = msgspec.field(default_factory=GivenObjects)
    exceptions: tuple[PolicyException, ...] = ()
    continue_on_fail: bool = False
    # Zero: as many processes as pay off.
    processes: int = 0


class Application:
    """Judges documents; made once for each run."""

    def __init__(self, plan: ApplyPlan, options: PieceOptions) -> None:
        self._plan = plan
        self._make_piece = compile_pieces(options)
        lookups = OfflineLookups(plan.world.values, plan.given)
        programs = compile_documents(
            plan.policies.usable, exceptions=plan.exceptions, lookups=lookups
        )
        self._engine = Engine(programs)
        self.rule_count = sum(len(program.rules) for program in programs)
        self.places = [
            Place(index, span)
            for index, text in enumerate(plan.texts)
            for span in find_documents(text.content)
        ]

    @property
    def unusable_count(self) -> Counts:
        """What policies that cannot be used add to the counts: an error each."""
        return Counts(errors=len(self._plan.policies.unusable))

    def run(self) -> Iterator[Judged]:
        """Judge every document, in order; memory does not grow with their number."""
        chunks = split_evenly(self.places, _CHUNK_SIZE)
        processes = choose_processes(len(self.places), self._plan.processes)
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        for answers in map_chunks(self._judge_chunk, chunks, processes):
            yield from answers

    def _judge_chunk(self, places: Sequence[Place]) -> list[Judged]:
        return [self._judge(place) for place in places]

    def _judge(self, place: Place) -> Judged:
        text = self._plan.texts[place.text]
        try:
            pieces = tuple(self._judge_text(text, place.span))
        except LictorError as error:
            if not self._plan.continue_on_fail:
                raise
            return Judged(place, problem=str(error))
        return Judged(place, pieces)

    def _judge_text(self, text: Text, span: Span) -> Iterator[Piece]:
        world = self._plan.world
        adapt = world.adapt
        for resource in parse_resources(text.content, span, text.path):
            verdict = self._engine.evaluate(world.make_request(resource), adapt=adapt)
            yield self._make_piece(verdict)


def select_documents(texts: Iterable[Text], word: bytes) -> Iterator[Text]:
    """The documents that hold a word, each as a text of its own; nothing is parsed."""
    for text in texts:
        for span in find_documents(text.content):
            part = text.content[span.start : span.end]
            if word in part:
                yield Text(text.path, part)
