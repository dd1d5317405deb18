"""How easily chance alone gives what was seen; exact, from counts."""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import comb


def alike_by_chance(control: Sequence[Hashable], treatment: Sequence[Hashable]) -> float:
    """Return the probability that treatments this alike are drawn from both arms together.

    If the factor does nothing, each choice of trials as the treatment was as likely as the one that
    was made (a permutation test): the share of choices in which all are equal.

    Args:
        control: what each trial gave.
        treatment: likewise; all equal.
    """
    pooled = Counter([*control, *treatment])
    size = len(treatment)
    ways = sum(comb(number, size) for number in pooled.values())
    return ways / comb(pooled.total(), size)


def rates_differ_by_chance(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test for two rates.

    Args:
        first: deviating repeats, and all repeats.
        second: likewise.
    """
    (hits, trials), (other, others) = first, second
    total, successes = trials + others, hits + other
    least, most = max(0, successes - others), min(successes, trials)
    ways = [comb(trials, k) * comb(others, successes - k) for k in range(least, most + 1)]
    seen = comb(trials, hits) * comb(others, other)
    return sum(way for way in ways if way <= seen) / comb(total, successes)
