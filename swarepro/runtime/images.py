"""How far a query sees ahead: to the end of the image that it is in."""

from collections.abc import Callable, Sequence

import torch

from swarepro.images import Image
from swarepro.runtime.parts import Request


def keys_ahead(
    requests: Sequence[Request],
    *,
    device: torch.device,
    end_seen: Callable[[Image, int], int] = lambda image, position: image[1],
) -> torch.Tensor | None:
    """Return how many keys behind its own each query sees, ``[T]`` int64 by row of the call.

    Args:
        requests: of an attention call, in the order of its rows.
        device: of the tensor.
        end_seen: of an image and a position in it, the position behind the last that is seen.

    Returns:
        None where no query sees any.
    """
    if not any(request.span.images for request in requests):
        return None
    ahead = [0] * requests[-1].rows.stop
    for request in requests:
        for image in request.span.images:
            # A request that a wrapper cut holds a part of its image, or none.
            first, end = max(image[0], request.span.start), min(image[1], request.span.end)
            for position in range(first, end):
                row = request.rows.start + position - request.span.start
                ahead[row] = max(0, end_seen(image, position) - 1 - position)
    return torch.tensor(ahead, dtype=torch.int64, device=device) if any(ahead) else None
