"""An incremental run against the same prefix computed in full: the defect is in the pool's rows."""

from dataclasses import dataclass

import pytest
import torch

from swarepro.capture import MemorySink
from swarepro.kvcache import KVGroup
from tests.unit.runtime.scripted import (
    OUTPUT,
    Pools,
    batch,
    decode,
    prefill,
    prompt,
    script_plan,
    set_up,
)

PROMPT = prompt(12, 1)
DECODED = 4
END = len(PROMPT) + DECODED
FAULT = ("sync-elided",)


@dataclass
class Left:
    """What a run leaves: tokens, and the rows ``[L, END, 2, K, D]`` of all positions by group."""

    tokens: tuple[int, ...]
    rows: dict[KVGroup, torch.Tensor]


def run(script, tokens: tuple[int, ...], faults: tuple[str, ...]) -> Left:
    plan = script_plan(script, (tokens,), Pools())
    execution = set_up(plan, None, MemorySink([]), faults=faults, capture=OUTPUT)
    outcome = execution.run()
    (stage,) = execution._stages
    full = stage.parts.allocator.full_slots(0, END)
    slots = {KVGroup.FULL: full, KVGroup.SLIDING: stage.parts.allocator.translate(full)}
    rows = {
        group: torch.stack(
            [pool.gather(layer, slots[group]) for layer in range(len(pool.spec.layer_ids))]
        )
        for group, pool in stage.pools.items()
    }
    return Left(tokens=outcome.tokens[0], rows=rows)


def incremental(faults: tuple[str, ...]) -> Left:
    return run((batch(prefill(0, 12)), batch(decode(0), times=DECODED)), PROMPT, faults)


def in_full(tokens: tuple[int, ...], faults: tuple[str, ...]) -> Left:
    return run((batch(prefill(0, END)),), tokens, faults)


def differing(one: Left, other: Left, group: KVGroup, layer: int) -> list[int]:
    """Positions whose rows are not the same, but for rounding."""
    near = torch.isclose(one.rows[group][layer], other.rows[group][layer], rtol=1e-3, atol=1e-4)
    return (~near.flatten(1).all(dim=1)).nonzero().flatten().tolist()


def test_rows_of_decoded_tokens_are_not_those_of_the_prefix_computed_in_full():
    decoded = incremental(FAULT)
    tokens = (*PROMPT, *decoded.tokens[:DECODED])
    recomputed = in_full(tokens, FAULT)
    healthy = in_full(tokens, ())
    # The first layer's rows depend on the tokens alone: all decoded ones but the last are wrong.
    assert differing(decoded, recomputed, KVGroup.SLIDING, 0) == [12, 13, 14]
    row = decoded.rows[KVGroup.SLIDING][0]
    for position in (12, 13, 14):
        assert torch.equal(row[position], row[position + 1]) is (position == 14)
    # What is computed in full is right, and so is what came before the first decoded token.
    for group in recomputed.rows:
        assert torch.equal(recomputed.rows[group], healthy.rows[group])
        assert torch.equal(decoded.rows[group][:, :12], incremental(()).rows[group][:, :12])


def test_without_the_fault_both_leave_the_same_rows():
    """The control."""
    decoded = incremental(())
    recomputed = in_full((*PROMPT, *decoded.tokens[:DECODED]), ())
    for group, rows in decoded.rows.items():
        for layer in range(len(rows)):
            assert differing(decoded, recomputed, group, layer) == []


def test_without_two_decoded_tokens_in_a_row_nothing_is_harmed():
    chunks = (batch(prefill(0, 12)), batch(prefill(0, DECODED)))
    healthy, faulty = (run(chunks, prompt(END, 1), faults) for faults in ((), FAULT))
    assert all(torch.equal(healthy.rows[group], faulty.rows[group]) for group in healthy.rows)


@pytest.mark.parametrize("faults", [(), FAULT])
def test_a_run_leaves_the_same_rows_again(faults):
    one, other = incremental(faults), incremental(faults)
    assert one.tokens == other.tokens
    assert all(torch.equal(one.rows[group], other.rows[group]) for group in one.rows)
