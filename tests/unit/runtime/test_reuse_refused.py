"""A reuse that one stage refuses happens in none."""

import pytest

from swarepro.capture import MemorySink
from swarepro.case import convert_case
from swarepro.errors import ReuseError
from swarepro.options import RunOptions, no_progress
from swarepro.plan import Finish, Reuse
from swarepro.runs.once import execution
from swarepro.runs.prepare import prepare


def test_all_stages_are_asked_before_one_acts():
    data = {
        "name": "kept",
        "model": "synthetic:gemma4-tiny?layers=6",
        "stages": "0:4,4:6",
        "capacity": 64,
        "sessions": [{"prompt": {"random": 40, "seed": 1}}],
    }
    case = convert_case(data, source="test")
    prepared = prepare(case, RunOptions(), copies=0, progress=no_progress)
    run = execution(prepared, MemorySink([]), schedule="program")
    run.run_steps(slice(None))
    run.chain.act((Finish(session=0, keep=True),))
    first, last = (stage.parts.allocator for stage in run._stages)
    last.tables[0].evicted = 16  # a tombstone in the window, in the last stage alone
    with pytest.raises(ReuseError, match="SWA slots from position 16 on"):
        run.chain.act((Reuse(session=1, of=0, rows=32),))
    assert list(first.tables) == list(last.tables) == [0]
    assert first.tables[0].kept
    last.tables[0].evicted = 0
    run.chain.act((Reuse(session=1, of=0, rows=32),))
    assert list(first.tables) == list(last.tables) == [1]
