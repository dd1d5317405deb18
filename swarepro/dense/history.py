"""Keys and values of every session, one contiguous tensor each: what a cache stands for."""

from collections.abc import Sequence

import torch

from swarepro.errors import PositionGapError, ReuseError
from swarepro.plan import Action, Finish

_Rows = tuple[torch.Tensor, torch.Tensor]


class History:
    """Keys and values ``[P, K, D]`` by session and global layer; nothing is ever evicted."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, _Rows]] = {}

    def extend(
        self, session: int, layer: int, start: int, k: torch.Tensor, v: torch.Tensor
    ) -> _Rows:
        """Put rows from position ``start`` on behind those of the session; return all of them.

        Raises:
            PositionGapError: the session has more or fewer rows than ``start``.
        """
        own = self._rows.setdefault(session, {})
        if layer in own:
            before_k, before_v = own[layer]
            have = before_k.shape[0]
            k, v = torch.cat([before_k, k]), torch.cat([before_v, v])
        else:
            have = 0
        if have != start:
            raise PositionGapError(
                f"session {session}, layer {layer}: rows from position {start} on were given, and"
                f" it has {have} rows"
            )
        own[layer] = k, v
        return k, v

    def act(self, actions: Sequence[Action]) -> None:
        """Forget sessions that finish, and let others begin with a part of a kept one.

        Raises:
            ReuseError: the session that is taken over has not that many rows.
        """
        for action in actions:
            if isinstance(action, Finish):
                if not action.keep:
                    self._rows.pop(action.session, None)
                continue
            kept = self._rows.pop(action.of, {})
            have = min((k.shape[0] for k, _ in kept.values()), default=0)
            if have < action.rows:
                raise ReuseError(
                    f"session {action.session} is to begin with {action.rows} rows of session"
                    f" {action.of}, which has {have}"
                )
            self._rows[action.session] = {
                layer: (k[: action.rows], v[: action.rows]) for layer, (k, v) in kept.items()
            }

    def reset(self) -> None:
        """Forget every session."""
        self._rows.clear()
