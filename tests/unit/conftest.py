"""What the unit tests share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from inventory_server import quick_inventories


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test stores about clusters and models is not the user's, and neither is what it reads."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("state", "cache", "data", "config"):
            patch.setenv(f"XDG_{kind.upper()}_HOME", str(tmp_path_factory.mktemp(kind)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_inventories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_inventories(tmp_path_factory.mktemp("reader")):
        yield


class _Seconds:
    """Seconds of each test file, which tools/changed_tests.py reads from pytest's cache."""

    def __init__(self) -> None:
        self.taken: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.taken[report.nodeid.partition("::")[0]] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        session.config.cache.set("headfirst/seconds", {path: round(s, 1) for path, s in self.taken.items()})


def pytest_configure(config: pytest.Config) -> None:
    """A run of all unit tests records how long each file takes; a worker of xdist records nothing."""
    whole = config.args == ["tests/unit"] and not config.option.keyword
    if whole and not hasattr(config, "workerinput") and config.pluginmanager.hasplugin("cacheprovider"):
        config.pluginmanager.register(_Seconds(), "seconds")
