"""What tells records of one name apart: the session, and a rank among those of the session.

`TensorRecord.occurrence` also counts the spans of a batch, whose order is no part of what a
boundary is; a rank does not.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from swarepro import points
from swarepro.bundle.schema import StageEntry, TensorRecord, tensor_key


def ranks(records: Sequence[TensorRecord]) -> tuple[int, ...]:
    """Return for each record how many of its step, name and session come before it.

    Args:
        records: of one run, in execution order.
    """
    seen: Counter[tuple[int, str, int]] = Counter()
    found = []
    for record in records:
        place = record.step, record.name, record.session
        found.append(seen[place])
        seen[place] += 1
    return tuple(found)


def shown_name(record: TensorRecord, rank: int) -> str:
    """Return how users see a boundary of a session: with ``#N`` for a later one in the step."""
    return tensor_key(record.name, rank)


def shown_names(records: Sequence[TensorRecord]) -> tuple[str, ...]:
    """Return how users see each of ``records``: all of a run, in execution order."""
    pairs = zip(records, ranks(records), strict=True)
    return tuple(shown_name(record, rank) for record, rank in pairs)


class Marks:
    """Tells boundaries of one step, name and session apart, as they come in execution order.

    What crosses a stage edge is told by the layer at the edge, so that stage splits may differ;
    anything else by its rank.

    Args:
        stages: of the run.
    """

    def __init__(self, stages: Sequence[StageEntry]) -> None:
        send, receive = points.BOUNDARY_SEND_HIDDEN.name, points.BOUNDARY_RECV_HIDDEN.name
        self._edges = {(send, rank): stage.layer_end for rank, stage in enumerate(stages)}
        self._edges |= {(receive, rank): stage.layer_start for rank, stage in enumerate(stages)}
        self._seen: Counter[tuple[int, str, int]] = Counter()

    def mark(self, *, step: int, name: str, session: int, point: str, stage: int) -> int:
        """Return what tells the next boundary from others of its step, name and session."""
        place = step, name, session
        rank = self._seen[place]
        self._seen[place] += 1
        return self._edges.get((point, stage), rank)


def told_apart(
    stages: Sequence[StageEntry], records: Sequence[TensorRecord]
) -> Iterator[tuple[TensorRecord, int]]:
    """Yield every record with what tells it from others of its step, name and session.

    Args:
        stages: of the run.
        records: all of them, in execution order.
    """
    marks = Marks(stages)
    for record in records:
        mark = marks.mark(
            step=record.step,
            name=record.name,
            session=record.session,
            point=record.point,
            stage=record.stage,
        )
        yield record, mark
