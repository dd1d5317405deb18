"""Values in words: numbers, counts, index ranges, sizes, and text that comes from a user."""

import math
from collections.abc import Iterable, Sequence

MISSING = "-"
_PREFIXES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def literal(value: object) -> str:
    """Return ``value`` as one printable line: control characters are escaped."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def count(number: int, noun: str) -> str:
    """Return ``"1 row"``, ``"1,152 rows"``, ``"2 boundaries"``."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun}"


def figure(number: float | None) -> str:
    """Return three significant digits; integers in full; ``-`` for None."""
    if number is None:
        return MISSING
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:.3g}"


def percent(rate: float) -> str:
    """Return a rate as ``"39 %"``; two significant digits below 10 %."""
    share = 100 * rate
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"


def size(num_bytes: int) -> str:
    """Return ``"4.1 MiB"``."""
    exponent = min(len(_PREFIXES) - 1, max(0, int(math.log2(num_bytes)) // 10 if num_bytes else 0))
    if exponent == 0:
        return count(num_bytes, "byte")
    return f"{num_bytes / 1024**exponent:.1f} {_PREFIXES[exponent]}"


def ranges(indices: Iterable[int], *, most: int = 6) -> str:
    """Return ascending runs of indices: ``"0-2, 7"``, at most ``most`` of them."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return listed(words, most=most, empty=MISSING)


def listed(words: Sequence[object], *, most: int, empty: str = "none") -> str:
    """Join at most ``most`` words with commas and say how many are left out."""
    if not words:
        return empty
    shown = ", ".join(literal(word) for word in words[:most])
    rest = len(words) - most
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def span(start: int, end: int) -> str:
    """Return positions ``[start, end)`` as ``"0-63"``, one alone as ``"64"``."""
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


def capital(sentence: str) -> str:
    """Return ``sentence`` with its first letter in upper case."""
    return sentence[:1].upper() + sentence[1:]


def is_store(name: str) -> bool:
    """Return whether a state boundary shows what a store wrote, not what lay there before it.

    The rows that a step is about to write hold what was left there: no store of the run is bad
    because of them.
    """
    return name.partition("#")[0].endswith("kv_slice_post_write")
