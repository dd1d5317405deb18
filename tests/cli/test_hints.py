"""A message advises only options that its command has, or names the command that has them."""

import re

import pytest

from .conftest import Invoke

_OPTION = re.compile(r"--[a-z][a-z-]*")


def foreign_options(invoke: Invoke, command: str, said: str) -> set[str]:
    """Return the options that ``said`` names and ``command`` has not; other commands' are fine."""
    own = set(_OPTION.findall(invoke(command, "--help").out))
    return set(_OPTION.findall(re.sub(r"`swarepro[^`]*`", "", said))) - own


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("calibrate", "anchor-a", "--max-bundle-bytes", "1KiB"), "--max-bundle-bytes"),
        (("run", "anchor-a", "--max-bundle-bytes", "1KiB"), "--store digest"),
        (("determinism", "anchor-a", "--max-bundle-bytes", "1KiB", "--keep", "k"), "--store"),
        (("calibrate", "anchor-a", "--layers", "4:8"), "--recv BUNDLE"),
        (("intervene", "anchor-a", "--layers", "4:8"), "choose layers that start at layer 0"),
        (("replay", "anchor-a", "--step", 1, "--layers", "4:8"), "choose layers that start"),
    ],
)
def test_a_hint_names_options_that_the_command_has(
    invoke: Invoke, args: tuple[object, ...], named: str
) -> None:
    done = invoke(*args)
    assert done.code == 2
    assert named in done.err
    assert foreign_options(invoke, str(args[0]), done.err) == set()


def test_digests_are_not_advised_where_they_are_stored(invoke: Invoke) -> None:
    done = invoke("run", "anchor-a", "--store", "digest", "--max-bundle-bytes", "1KiB")
    assert done.code == 2
    assert "hint: choose --points, or raise --max-bundle-bytes" in done.err


def test_an_option_of_another_command_would_be_seen(invoke: Invoke) -> None:
    """The negative control."""
    assert foreign_options(invoke, "calibrate", "hint: --store digest") == {"--store"}
    assert foreign_options(invoke, "run", "hint: --store digest, `swarepro x --y`") == set()
