"""A typed registry: names to values, duplicate-proof, with a suggestion for an unknown name."""

import difflib
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from swarepro.errors import SwareproError

T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return "did you mean ...?" for the nearest known name, or None when none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None


class Registry(Generic[T]):
    """Names of one kind of thing.

    Args:
        kind: the noun for error messages, e.g. ``"fault"``.
        error: the `SwareproError` subclass that a failed lookup raises.
    """

    def __init__(self, kind: str, *, error: type[SwareproError] = SwareproError) -> None:
        self._kind = kind
        self._error = error
        self._items: dict[str, T] = {}

    def register(self, name: str, value: T) -> T:
        """Add ``value`` under ``name`` and return it. Raises ValueError when the name is taken."""
        if name in self._items:
            raise ValueError(f"{self._kind} {name!r} is registered twice")
        self._items[name] = value
        return value

    def get(self, name: str) -> T:
        """Return the value of ``name``, or raise the registry's error with a suggestion."""
        try:
            return self._items[name]
        except KeyError:
            known = ", ".join(self._items) or "none"
            raise self._error(
                f"no such {self._kind}: {name!r}",
                hint=did_you_mean(name, self._items) or f"known: {known}",
            ) from None

    def names(self) -> tuple[str, ...]:
        """Return all names, in order of registration."""
        return tuple(self._items)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return iter(self._items.items())

    def __contains__(self, name: object) -> bool:
        return name in self._items
