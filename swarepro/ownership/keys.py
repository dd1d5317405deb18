"""Owners as numbers: a session and a position in one int64, so that a tensor can hold them."""

import torch

from swarepro.ownership.violations import Owner

NOBODY = -1
_SESSION_BITS = 32


def owner_keys(session: int, start: int, end: int) -> torch.Tensor:
    """Return the keys ``[end - start]`` int64 of positions ``[start, end)`` of a session."""
    first = session << _SESSION_BITS
    return torch.arange(first + start, first + end)


def sessions_of(keys: torch.Tensor) -> torch.Tensor:
    """Return the sessions of ``keys``, same shape; -1 for `NOBODY`."""
    return keys >> _SESSION_BITS


def positions_of(keys: torch.Tensor) -> torch.Tensor:
    """Return the positions of ``keys``, same shape; meaningless for `NOBODY`."""
    return keys & ((1 << _SESSION_BITS) - 1)


def owner_of(key: int) -> Owner | None:
    """Return the owner that a key stands for; None for `NOBODY`."""
    if key == NOBODY:
        return None
    return Owner(session=key >> _SESSION_BITS, position=key & ((1 << _SESSION_BITS) - 1))
