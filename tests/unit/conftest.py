"""What the unit tests share."""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster
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


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The INVENTORY of the test's module, read once: Ansible needs a second for it."""
    path = tmp_path_factory.mktemp("inventory") / "cluster.ini"
    path.write_text(request.module.INVENTORY)
    return load([path])


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are described from the catalogue alone."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


class _Seconds:
    """Seconds that each test file takes, in pytest's cache, where tools/changed_tests.py reads them.

    Of each file: seconds to import it and collect its tests, as each worker of xdist does, and to run them.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run: defaultdict[str, float] = defaultdict(float)
        self._collect: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        started = time.perf_counter()
        report = yield
        self._collect[collector.nodeid.partition("::")[0]] += time.perf_counter() - started
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._run[report.nodeid.partition("::")[0]] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._collect |= getattr(node, "workeroutput", {}).get("collect", {})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workerinput"):
            self._config.workeroutput["collect"] = dict(self._collect)
            return
        if session.shouldfail or session.shouldstop:  # not all tests have run
            return
        taken = {
            path: (round(self._collect[path], 2), round(seconds, 1)) for path, seconds in self._run.items()
        }
        known = self._config.cache.get("headfirst/seconds", {})
        self._config.cache.set("headfirst/seconds", known | taken)


def pytest_collection() -> None:
    """What is collected lives as long as the run; the garbage collector does not go through it each time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    """A run of whole test files records how long each takes."""
    options = ("keyword", "markexpr", "deselect", "lf")
    part = any(getattr(config.option, name, None) for name in options)
    if (
        not part
        and all(Path(word).exists() for word in config.args)
        and config.pluginmanager.hasplugin("cacheprovider")
    ):
        config.pluginmanager.register(_Seconds(config), "seconds")
