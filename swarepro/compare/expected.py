"""What a baseline shows at each boundary, asked for one boundary after the other as a run goes.

It matches and judges as a comparison by step of two finished bundles does.
"""

from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.align import require_tolerance, unalignable
from swarepro.compare.names import Marks, told_apart
from swarepro.compare.steps import first_differing_step
from swarepro.errors import IncomparableError

_COMPARE_BUNDLES = (
    "run without --against, and compare the bundles with swarepro diff-boundaries BASELINE TARGET"
)


class Expected:
    """The records of a baseline, by what they are matched by.

    Args:
        baseline: one run.
        planned: the manifest of the other one, as far as it is known before it runs.

    Raises:
        IncomparableError: the digests of the two runs say nothing about each other.
    """

    def __init__(self, baseline: Bundle, planned: Manifest) -> None:
        check_comparable(baseline, planned)
        skip = unalignable(baseline.manifest, planned, None)
        self._records = {
            (record.step, record.name, record.session, mark): record
            for record, mark in told_apart(baseline.manifest.stages, baseline.records)
            if record.point not in skip
        }
        self._marks = Marks(planned.stages)
        self._shared = frozenset(key[:3] for key in self._records)
        self.names = frozenset(name for _, name, _ in self._shared)
        """Of all boundaries that can be compared."""

    def has(self, step: int, name: str, session: int) -> bool:
        """Return whether a boundary of this name can be compared in the step of the session."""
        return (step, name, session) in self._shared

    def next(
        self, *, step: int, name: str, session: int, point: str, stage: int
    ) -> TensorRecord | None:
        """Return the baseline's record of the next boundary; None where it has none.

        Boundaries of one session come in execution order; the order of sessions does not matter.
        """
        mark = self._marks.mark(step=step, name=name, session=session, point=point, stage=stage)
        return self._records.get((step, name, session, mark))


def same_bytes(record: TensorRecord, *, dtype: str, shape: tuple[int, ...], digest: str) -> bool:
    """Return whether a tensor is that of ``record``; `check_algorithm` has passed."""
    return (dtype, shape, digest) == (record.dtype, record.shape, record.digest)


def check_comparable(baseline: Bundle, planned: Manifest) -> None:
    """Raise IncomparableError unless two runs can be compared digest by digest.

    They compute the same steps, as far as both go, of the same prompts, in the same dtype and on
    the same kind of device and route. What captures and stage splits do not share is left out.
    """
    manifest, path = baseline.manifest, baseline.path
    if not baseline.records:
        raise IncomparableError(
            f"{path} is empty: nothing was captured", hint="run the baseline with --capture op"
        )
    if manifest.num_layers != planned.num_layers:
        raise IncomparableError(
            f"{path} is of a model of {manifest.num_layers} layers, this run of one of"
            f" {planned.num_layers}",
            hint="run the baseline's model",
        )
    if manifest.prompts != planned.prompts:
        raise IncomparableError(
            f"{path} has other prompts than this run: {_prompts(manifest, planned)}",
            hint="run the baseline's case",
        )
    differing = first_differing_step(manifest, planned, common=True)
    if differing is not None:
        raise IncomparableError(
            f"{path} has other steps than this run, first at {differing}",
            hint=f"run the baseline's chunks and batches; or {_COMPARE_BUNDLES} --align position",
        )
    try:
        require_tolerance(manifest, planned, "step", None)
    except IncomparableError as error:
        raise IncomparableError(
            f"{path} and this run cannot be compared by digest: {error.message}",
            hint=f"{_COMPARE_BUNDLES} and a tolerance",
        ) from None


def check_algorithm(baseline: Bundle, algorithm: str) -> None:
    """Raise IncomparableError unless the digests of ``baseline`` are of the kind of a run's."""
    found = {record.algorithm for record in baseline.records}
    if found != {algorithm}:
        raise IncomparableError(
            f"{baseline.path} has {', '.join(sorted(found))} digests, and this run computes"
            f" {algorithm}: digests of two kinds say nothing about each other",
            hint=f"{_COMPARE_BUNDLES}, with --store tensor on both sides",
        )


def _prompts(baseline: Manifest, planned: Manifest) -> str:
    left, right = baseline.prompts, planned.prompts
    if len(left) != len(right):
        return f"of {len(left)} sessions against {len(right)}"
    session = next(s for s, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])
    lengths = len(left[session]), len(right[session])
    said = f"{lengths[0]} tokens against {lengths[1]}"
    return f"session {session} has {said if lengths[0] != lengths[1] else 'other token ids'}"
