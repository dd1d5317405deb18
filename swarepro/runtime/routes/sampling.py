"""The token that logits choose, on every route: greedy, and the same on every device."""

import torch


def first_largest(logits: torch.Tensor) -> torch.Tensor:
    """Return the index ``[T]`` int64 of the largest of ``logits [T, V]``, of ties the first.

    ``argmax`` may return any of several equal ones, and devices differ in which.
    """
    ids = torch.arange(logits.shape[-1], device=logits.device)
    is_largest = logits == logits.amax(dim=-1, keepdim=True)
    none = torch.full_like(ids, logits.shape[-1])
    chosen = torch.where(is_largest, ids, none).amin(dim=-1)
    # Where every value is NaN nothing equals the largest: argmax says which one counts.
    return torch.where(chosen < logits.shape[-1], chosen, logits.argmax(dim=-1))
