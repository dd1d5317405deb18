"""How far a query sees ahead: to the end of the image that it is in."""

from collections.abc import Callable, Sequence

import torch

from swarepro.images import Image
from swarepro.runtime.parts import Request

EndSeen = Callable[[Image, torch.Tensor], torch.Tensor | int]
"""Of an image and positions ``[N]`` int64 in it: the position behind the last that each sees."""


def _its_end(image: Image, positions: torch.Tensor) -> int:
    return image[1]


def keys_ahead(
    requests: Sequence[Request], *, device: torch.device, end_seen: EndSeen = _its_end
) -> torch.Tensor | None:
    """Return how many keys behind its own each query sees, ``[T]`` int64 by row of the call.

    Args:
        requests: of an attention call, in the order of its rows.
        device: of the tensor.
        end_seen: how far a query of an image sees, itself at least.

    Returns:
        None where no query sees any.
    """
    if not any(request.span.images for request in requests):
        return None
    ahead = torch.zeros(requests[-1].rows.stop, dtype=torch.int64)
    for request in requests:
        row = request.rows.start - request.span.start
        for image in request.span.images:
            # A request that a wrapper cut holds a part of its image, or none.
            first, end = max(image[0], request.span.start), min(image[1], request.span.end)
            if first < end:
                positions = torch.arange(first, end)
                ahead[row + first : row + end] = end_seen(image, positions) - 1 - positions
    return ahead.to(device) if bool(ahead.any()) else None
