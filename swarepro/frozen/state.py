"""The state of an execution, copied and put back.

The state is what the steps so far left behind: the pools' bytes, and all that the parts know: who
owns which slot, counters, what a fault or the ownership shadow remembers. Weights, taps and
digesters are no state.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import torch

from swarepro.bundle.digest import digest_bytes
from swarepro.capture import raw_bytes
from swarepro.frozen.tree import describe
from swarepro.kvcache import KVGroup
from swarepro.ownership import OwnershipShadow, ViolationLog
from swarepro.runtime.chain import Tokens
from swarepro.runtime.parts import Allocator, StageParts
from swarepro.runtime.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """What holds the state of an execution.

    Attributes:
        stages: with their pools and parts.
        shadows: of the stages, or none.
        log: of the violations so far.
    """

    stages: tuple[Stage, ...]
    shadows: tuple[OwnershipShadow, ...]
    log: ViolationLog

    @property
    def graph(self) -> "_Graph":
        """All that knows something, but the pools."""
        return tuple(stage.parts for stage in self.stages), self.shadows, self.log


REMEMBERED = "what the parts remember"
RANDOM_STATE = "random state"
"""Names of the digests of what no pool and no book says."""
_Graph = tuple[tuple[StageParts, ...], tuple[OwnershipShadow, ...], ViolationLog]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenState:
    """A copy of the state that nothing changes any more.

    Attributes:
        graph: the parts of all stages, the shadows and the log, copied as one, so that what they
            share they still share.
        pools: the bytes of each stage's pools, by KV group.
        tokens: generated so far.
        random: state of torch's own generator on the CPU.
    """

    graph: _Graph
    pools: tuple[dict[KVGroup, torch.Tensor], ...]
    tokens: Tokens
    random: torch.Tensor

    @classmethod
    def of(cls, live: LiveState, tokens: Tokens, *, shared: Sequence[object]) -> "FrozenState":
        """Copy the state; ``shared`` is what parts refer to and is not copied."""
        return cls(
            graph=_copied(live.graph, shared),
            pools=tuple(
                {group: pool.kv.clone() for group, pool in stage.pools.items()}
                for stage in live.stages
            ),
            tokens=tokens,
            random=torch.get_rng_state(),
        )

    def restore(self, live: LiveState, *, shared: Sequence[object]) -> tuple[LiveState, int]:
        """Put the state back into ``live.stages``.

        Returns:
            What holds the state now, and how many rows of the pools had to be copied: those alone
            that differ are.
        """
        torch.set_rng_state(self.random)
        parts, shadows, log = _copied(self.graph, shared)
        rows = 0
        for stage, own, pools in zip(live.stages, parts, self.pools, strict=True):
            stage.parts = own
            rows += sum(stage.pools[group].restore(kv) for group, kv in pools.items())
        return LiveState(stages=live.stages, shadows=shadows, log=log), rows


def _copied(graph: _Graph, shared: Sequence[object]) -> _Graph:
    return copy.deepcopy(graph, {id(each): each for each in shared})


def state_digests(live: LiveState, tokens: Tokens, *, shared: Sequence[object]) -> dict[str, str]:
    """Return a digest for each thing that the state is made of, by name.

    Pools are digested by layer; the books of an allocator as what they say, free lists, mapping and
    tables each; and all that the parts, the shadows and the log know, as a whole.
    """
    tree = describe(live.graph, shared=shared)
    tensors = [digest_bytes(raw_bytes(tensor)) for tensor in tree.tensors]
    found = {
        "tokens": digest_bytes(msgspec.json.encode(tokens)),
        REMEMBERED: digest_bytes(msgspec.json.encode([tree.root, tensors])),
        RANDOM_STATE: digest_bytes(raw_bytes(torch.get_rng_state())),
    }
    for rank, stage in enumerate(live.stages):
        for group, pool in stage.pools.items():
            for layer, rows in zip(pool.spec.layer_ids, pool.kv, strict=True):
                found[f"stage {rank} {group} pool L{layer}"] = digest_bytes(raw_bytes(rows))
        for what, data in _books(stage.parts.allocator):
            found[f"stage {rank} {what}"] = digest_bytes(data)
    return found


def prove_restored(wanted: dict[str, str], found: dict[str, str], when: str) -> None:
    """Raise RuntimeError unless the state found is the one wanted: then the tool itself is wrong.

    Args:
        wanted: digests of the frozen state, from `state_digests`.
        found: of the live one.
        when: e.g. ``"before trial 3"``.
    """
    wrong = [name for name, digest in wanted.items() if found.get(name) != digest]
    wrong += [name for name in found if name not in wanted]
    if wrong:
        raise RuntimeError(f"the state {when} is not the frozen one: {', '.join(wrong)}")


def _books(allocator: Allocator) -> Iterator[tuple[str, memoryview | bytes]]:
    yield "mapping", raw_bytes(allocator.mapping)
    yield "full free list", raw_bytes(allocator.full.free_list)
    if allocator.swa is not None:
        yield "SWA free list", raw_bytes(allocator.swa.free_list)
    tables = [
        (session, table.pages.tolist(), table.allocated, table.evicted, table.kept)
        for session, table in allocator.tables.items()
    ]
    yield "block tables", msgspec.json.encode(tables)
