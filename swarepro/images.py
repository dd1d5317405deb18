"""Images in a prompt: positions whose tokens see each other, whatever their order. No torch here.

The pictures themselves are not: such a position has a token id like any other.
"""

from collections.abc import Sequence

from swarepro.errors import CaseError

Image = tuple[int, int]
"""A half-open range of positions."""


def check_images(images: Sequence[Image], *, where: str) -> None:
    """Raise CaseError unless the ranges ascend, hold two tokens at least, and do not overlap."""
    end = 0
    for start, stop in images:
        if stop - start < 2:
            raise CaseError(
                f"{where}: the image [{start}, {stop}] holds {max(0, stop - start)} tokens",
                hint="an image is [FIRST, END] with END behind its last of two or more tokens",
            )
        if start < end:
            raise CaseError(
                f"{where}: the image [{start}, {stop}] begins before {end}, where the one before it"
                " ends",
                hint="list images in the order of the prompt; one after another, they may touch",
            )
        end = stop


def cut_image(edge: int, images: Sequence[Image]) -> Image | None:
    """Return the image inside which a chunk ends that ends before position ``edge``, or None."""
    return next((image for image in images if image[0] < edge < image[1]), None)
