"""The layout of a tensor in a file: letters as in `swarepro.points`, parentheses for what is fused.

``T (H D)`` is a tensor of two dimensions whose second is heads by head_dim; ``1 T E`` has a batch
of one in front. Applying a layout never changes a value, only its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from swarepro.errors import ForeignError

Array = npt.NDArray[np.generic]
UNIT = "1"
"""A dimension of one element, which is left out."""
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ2")
_MOST_DIMS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A parsed layout.

    Attributes:
        text: as it was written.
        groups: for each dimension of the file's tensor the letters that are fused in it; empty for
            a unit dimension.
    """

    text: str
    groups: tuple[tuple[str, ...], ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """All letters, in the order of the file."""
        return tuple(letter for group in self.groups for letter in group)

    def extents(self, shape: Sequence[int], sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each of `letters` in a tensor of ``shape``.

        Args:
            shape: as it is in the file.
            sizes: of letters, as far as known; of each fused dimension one may be unknown.

        Raises:
            ForeignError: the shape does not fit; it says where.
        """
        if len(shape) != len(self.groups):
            raise ForeignError(
                f"layout {self.text!r} has {len(self.groups)} dimensions, and the tensor has shape"
                f" {list(shape)}"
            )
        found: dict[str, int] = {}
        for group, extent in zip(self.groups, shape, strict=True):
            found.update(zip(group, self._extents(group, extent, sizes, shape), strict=True))
        return found

    def unpack(self, array: Array, sizes: Mapping[str, int]) -> Array:
        """Return ``array`` with one dimension for each of `letters`; see `extents`."""
        return array.reshape(tuple(self.extents(array.shape, sizes).values()))

    def _extents(
        self, group: tuple[str, ...], extent: int, sizes: Mapping[str, int], shape: Sequence[int]
    ) -> list[int]:
        known = prod(sizes[letter] for letter in group if letter in sizes)
        unknown = [letter for letter in group if letter not in sizes]
        if len(unknown) > 1:
            raise ForeignError(
                f"layout {self.text!r}: the sizes of {' and '.join(unknown)} are not known",
                hint=f"give one of them: [sizes] in the map, or --sizes {unknown[-1]}=64",
            )
        fits = extent % known == 0 if unknown else extent == known
        if not fits:
            wanted = " x ".join(f"{letter} = {sizes.get(letter, '?')}" for letter in group) or "1"
            raise ForeignError(
                f"layout {self.text!r}: a dimension of {extent} in shape {list(shape)},"
                f" wanted {wanted}"
            )
        return [sizes.get(letter, extent // known) for letter in group]


def parse_layout(text: str) -> Layout:
    """Parse ``"1 T (H D)"``.

    Raises:
        ForeignError: parentheses that are not matched or nested, an unknown or doubled letter.
    """
    groups: list[tuple[str, ...]] = []
    group: list[str] | None = None
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(" and group is None:
            group = []
        elif token == ")" and group:
            groups.append(tuple(group))
            group = None
        elif token == UNIT and group is None:
            groups.append(())
        elif token in _LETTERS and group is not None:
            group.append(token)
        elif token in _LETTERS:
            groups.append((token,))
        else:
            raise _wrong(text, f"{token!r} has no place there")
    letters = [letter for group in groups for letter in group]
    if group is not None:
        raise _wrong(text, "a parenthesis is not closed")
    if len(set(letters)) != len(letters):
        raise _wrong(text, "a letter is there twice")
    if len(groups) > _MOST_DIMS or len(letters) > _MOST_DIMS:
        raise _wrong(text, f"more than {_MOST_DIMS} dimensions")
    return Layout(text=text, groups=tuple(groups))


def _wrong(text: str, why: str) -> ForeignError:
    return ForeignError(
        f"layout {text[:60]!r}: {why}",
        hint="letters, 1 and parentheses, e.g. '1 T (H D)'; `swarepro points` lists the letters",
    )


def arrange(array: Array, letters: Sequence[str], wanted: Sequence[str]) -> Array:
    """Return ``array``, whose dimensions are ``letters``, with dimensions ``wanted``.

    Raises:
        ForeignError: the letters are not the same.
    """
    if sorted(letters) != sorted(wanted):
        raise ForeignError(f"a tensor of dimensions {' '.join(letters)}, wanted {' '.join(wanted)}")
    axes: Any = [letters.index(letter) for letter in wanted]
    return array.transpose(axes)
