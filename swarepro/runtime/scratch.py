"""Memory that an operation has to fill before it is read."""

import torch

from swarepro.runtime.parts import Schedule, ScratchUse

_SALT = 0x5C7A


class FilledScratch:
    """Fresh memory that holds the fill; where none is chosen, what the schedule left there.

    What lies in memory that nobody wrote is up to what ran before, as the order of concurrent
    writes is: a seeded schedule draws it, for the memory of partial results, which is small.

    Args:
        fill: what all memory holds, whatever the schedule is; None = zeros, or what is drawn.
        schedule: draws.
        dtype: of what is taken without one.
        device: of all that is taken.
    """

    def __init__(
        self, fill: float | None, schedule: Schedule, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._fill = fill
        self._schedule = schedule
        self._dtype = dtype
        self._device = device
        self._taken = 0

    def take(
        self, shape: tuple[int, ...], use: ScratchUse, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return a new tensor."""
        fill = 0.0 if self._fill is None else self._fill
        found = torch.full(shape, fill, dtype=dtype or self._dtype, device=self._device)
        if use is not ScratchUse.PARTIAL or self._fill is not None:
            return found
        self._taken += 1
        drawn = self._schedule.order(found.numel(), _SALT, self._taken)
        if drawn is None:
            return found
        values = (drawn.view(shape).double() / found.numel() - 0.5).to(found.dtype)
        return values.to(self._device)
