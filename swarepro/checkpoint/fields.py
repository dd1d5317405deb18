"""Typed reading of a parsed config: a wrong value is a `CheckpointError` that names its field."""

import math
from collections.abc import Mapping

from swarepro.errors import CheckpointError

LARGEST_INTEGER = 2**31 - 1


class ConfigFields:
    """The fields of one JSON object.

    Args:
        data: the object.
        source: the file, for errors.
        prefix: where the object is inside the file, e.g. ``"text_config."``.
    """

    def __init__(self, data: Mapping[str, object], *, source: str, prefix: str = "") -> None:
        self.data = data
        self.source = source
        self.prefix = prefix

    def error(self, name: str, wanted: str, *, hint: str | None = None) -> CheckpointError:
        """Return the error that says what ``name`` is and what was wanted."""
        found = f"is {_show(self.data[name])}" if name in self.data else "is missing"
        return CheckpointError(
            f"{self.source}: {self.prefix}{name} {found}; wanted {wanted}", hint=hint
        )

    def is_set(self, name: str) -> bool:
        """Whether ``name`` is there and not null."""
        return self.data.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Return an integer of at least ``minimum``; ``default`` None makes the field required."""
        if name not in self.data and default is not None:
            return default
        value = self.data.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(name, "an integer")
        if not minimum <= value <= LARGEST_INTEGER:
            raise self.error(name, f"an integer from {minimum} to {LARGEST_INTEGER}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number above zero; ``default`` None makes the field required."""
        if name not in self.data and default is not None:
            return default
        value = self.data.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(name, "a number")
        if not 0 < value < 1e30 or not math.isfinite(value):
            raise self.error(name, "a finite number above zero")
        return float(value)

    def optional_number(self, name: str, default: float | None = None) -> float | None:
        """Return a finite number above zero, ``default`` where it is missing, None for null."""
        if name not in self.data:
            return default
        return self.number(name) if self.is_set(name) else None

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false; null is ``default``."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; ``default`` None makes the field required."""
        value = self.data.get(name, default)
        if not isinstance(value, str):
            raise self.error(name, "a string")
        return value

    def table(self, name: str) -> "ConfigFields | None":
        """Return the object called ``name``, or None where it is missing or null."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "an object")
        return ConfigFields(value, source=self.source, prefix=f"{self.prefix}{name}.")

    def unsupported(self, name: str, feature: str) -> CheckpointError:
        """Return the refusal of a feature that the runtime does not have."""
        value = _show(self.data[name]) if name in self.data else "not set, which means on"
        return CheckpointError(
            f"{self.source}: {self.prefix}{name} is {value}: {feature} is not supported",
            hint="swarepro runs dense Gemma 2, 3 and 4 text models",
        )


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
