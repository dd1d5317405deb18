"""What crosses from one stage to the next, and what a stage refuses of it."""

from dataclasses import replace

import pytest
import torch

from swarepro.capture import MemorySink
from swarepro.errors import StageEdgeError
from swarepro.faults import FAULTS
from swarepro.runtime.edge import StreamEdge
from swarepro.runtime.wrappers import EdgeWrapper, on_edge
from tests.unit.runtime.scripted import (
    STAGES,
    Pools,
    batch,
    decode,
    prefill,
    prompt,
    run_plan,
    script_plan,
    set_up,
)

PLAN = script_plan((batch(prefill(0, 5)),), (prompt(5, 1),), Pools(), STAGES[1])
MIXED = script_plan(
    (batch(prefill(0, 5)), batch(decode(0), prefill(1, 4))),
    (prompt(5, 1), prompt(4, 2)),
    Pools(),
    STAGES[2],
)
HIDDEN, ENTERED = torch.randn(3, 96), torch.randn(3, 96)


def edge(name: str):
    parts = set_up(PLAN, STAGES[1], MemorySink([]))._stages[0].parts
    assert isinstance(parts.edge, StreamEdge)
    return FAULTS.get(name).wrap(parts).edge


def test_the_stream_crosses_as_it_is():
    assert StreamEdge().send(HIDDEN, ENTERED) is HIDDEN
    assert StreamEdge().receive(HIDDEN) is HIDDEN


def test_what_each_fault_makes_of_the_stream():
    assert torch.equal(edge("edge-sends-delta").send(HIDDEN, ENTERED), HIDDEN - ENTERED)
    planes = edge("edge-sends-two-planes").send(HIDDEN, ENTERED)
    assert torch.equal(planes, torch.cat([HIDDEN - ENTERED, ENTERED], dim=1))
    scaled = edge("edge-scales-again").receive(HIDDEN)
    torch.testing.assert_close(scaled.double(), HIDDEN.double() * 96**0.5, rtol=1e-6, atol=0)
    cast = edge("edge-casts-to-bf16").receive(HIDDEN)
    assert cast.dtype is torch.float32
    assert torch.equal(cast, HIDDEN.bfloat16().float())
    assert not torch.equal(cast, HIDDEN)


@pytest.mark.parametrize(
    ("receive", "found"),
    [
        (lambda sent: torch.cat([sent, sent], dim=1), r"\(5, 192\) torch.float32"),
        (lambda sent: sent[1:], r"\(4, 96\) torch.float32"),
        (lambda sent: sent.bfloat16(), r"\(5, 96\) torch.bfloat16"),
    ],
    ids=["planes", "rows", "dtype"],
)
def test_what_is_no_stream_is_refused_before_a_layer_runs(receive, found):
    class Other(EdgeWrapper):
        def receive(self, sent):
            return receive(super().receive(sent))

    sink = MemorySink([])
    execution = set_up(PLAN, STAGES[1], sink)
    execution.wrap(on_edge(Other))
    with pytest.raises(StageEdgeError, match=f"begins at layer 1 received {found}") as caught:
        execution.run()
    assert r"wanted (5, 96) torch.float32" in caught.value.message
    assert not any(record.stage == 1 and record.layer is not None for record in sink.records)


def test_the_stream_that_came_into_the_last_layer_is_the_layer_before():
    """Of every span of a batch, and of every stage."""
    seen = []

    class Looks(EdgeWrapper):
        def send(self, hidden, entered):
            seen.append((hidden, entered))
            return super().send(hidden, entered)

    execution = set_up(MIXED, STAGES[2], sink := MemorySink([]))
    for stage in execution._stages:
        stage.parts = replace(stage.parts, edge=Looks(stage.parts.edge))
    execution.run()
    healthy = run_plan(MIXED, STAGES[2]).records
    assert [r.digest for r in sink.records] == [r.digest for r in healthy]
    # Stages of one layer each: what stage 1's layer was given is what stage 0 sent.
    blocks = [1, 2]  # by step: a block for each span
    for count in blocks:
        first, second = seen[:count], seen[count : 2 * count]
        del seen[: 2 * count]
        for (sent, _), (_, entered) in zip(first, second, strict=True):
            assert torch.equal(sent, entered)
    assert seen == []
