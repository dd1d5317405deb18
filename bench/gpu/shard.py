"""A pytest plugin: ``--shard I/N`` keeps every N-th test from the I-th on.

Nearly all the time of the kernel tests is the compiler's, which several processes share.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--shard``."""
    parser.addoption("--shard", default="0/1", help="I/N: every N-th test from the I-th on")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other shards, when ``-m`` has chosen."""
    index, count = map(int, config.getoption("--shard").split("/"))
    others = [item for at, item in enumerate(items) if at % count != index]
    items[:] = items[index::count]
    config.hook.pytest_deselected(items=others)
