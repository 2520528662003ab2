"""docs/new-engine.md is right: the files on the page, and nothing else, make an engine that plans."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest
from clusters import catalogued, read
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import Engine
from headfirst.decide.plan.types import Plan

PAGE = Path(__file__).resolve().parents[2] / "docs" / "new-engine.md"
_BLOCK = re.compile(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = dict(_BLOCK.findall(PAGE.read_text(encoding="utf-8")))
FOLDER = "py/headfirst/decide/engines/"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The page's folder, on the package path of the engines."""
    for name, text in FILES.items():
        if name.startswith(FOLDER):
            file = tmp_path / name.removeprefix(FOLDER)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    (tmp_path / "stub" / "__init__.py").touch()
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(tmp_path)])
    engines.names.cache_clear()
    yield engines.get("stub")
    for name in [name for name in sys.modules if name.startswith("headfirst.decide.engines.stub")]:
        del sys.modules[name]
    vars(engines).pop("stub", None)
    monkeypatch.undo()
    engines.names.cache_clear()


def planned(tmp_path: Path, **changes: str) -> Plan:
    text = FILES["stub.ini"] + "".join(f"{name}={value}\n" for name, value in changes.items())
    return catalogued(read(tmp_path, text))


def test_the_page_has_all_files() -> None:
    names = ("snapshot.json", "support.py", "removed.json", "log.yml", "engine.py")
    assert {f"{FOLDER}stub/{name}" for name in names} <= FILES.keys()


def test_the_plan_of_the_page(stub: Engine, tmp_path: Path) -> None:
    (service,) = planned(tmp_path).services
    assert (service.engine, service.engine_version) == ("stub", "1.0")
    assert service.replicas[0].nodes[0].docker_run == shlex.split(FILES["docker run"].replace("\\\n", ""))


@pytest.mark.parametrize("name", [*engines.names(), "stub"])
def test_the_functions_of_an_engine_take_what_the_contract_states(stub: Engine, name: str) -> None:
    engine = engines.get(name)
    parameters = {
        "support_problems": 4,
        "fp8_capability": 1,
        "layout": 3,
        "layout_problems": 5,
        "memory_use": 4,
    }
    parameters |= {
        "launch": 1,
        "rendezvous_ports": 1,
        "request_dialect": 1,
        "pipeline_layers": 4,
        "length_problems": 3,
        "computing": 3,
        "adapter_needs": 2,
        "publishes": 1,
    }
    for field, count in parameters.items():
        assert len(inspect.signature(getattr(engine, field)).parameters) == count, field


def test_the_test_of_the_page(stub: Engine) -> None:
    found: dict[str, object] = {}
    exec(compile(FILES["tests/unit/test_engines_stub.py"], "test_engines_stub.py", "exec"), found)
    tests = [item for name, item in found.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        assert isinstance(test, FunctionType)
        test()


def test_an_engine_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Unknown engine 'stub'") as error:
        planned(tmp_path)
    assert error.value.where == f"{tmp_path}/cluster.ini:7"
    assert error.value.hint == (
        "Known engines: lmdeploy, sglang, vllm. For your own variable: start its name with my_, or list it "
        "in own_variables. Or write every setting of Headfirst as headfirst_NAME: then no other name is one."
    )
