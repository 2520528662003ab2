"""Every command of the guides that the product comes from, beside the plan of the inventory that replaces it.

data/guide-commands.yml has the commands as the guides print them, one for each rank, with the inventory of a
user. Both commands are read by one parser: what differs has a reason in the table, and a reason without a
difference is a failure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from headfirst.decide import engines
from headfirst.decide.engines import access, arguments
from headfirst.decide.engines.base import Engine
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.config import WeightFiles, from_config
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import Plan, PlannedService

TABLE: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "data" / "guide-commands.yml").read_text(encoding="utf-8")
)
CASES: dict[str, dict[str, Any]] = TABLE["cases"]
OPTIONS = [
    ({**CASES, **TABLE["option_cases"]}[entry["case"]], row)
    for entry in TABLE["options"]
    for row in entry["rows"]
]

# Options of docker run, of the guides and of the plans, that take no value; short names and their long ones.
_SWITCHES = {"detach", "init", "privileged", "rm", "d", "t", "i", "ti", "it", "itd"}
_LONG = {"net": "network", "v": "volume", "e": "env", "p": "publish"}


@dataclass(frozen=True)
class Command:
    """A command that starts an engine: options of its container, environment, and the engine's values."""

    container: Mapping[str, Any]
    environment: Mapping[str, str]
    values: Mapping[str, Any]

    def facts(self) -> Iterator[tuple[str, Any]]:
        yield from ((f"docker {name}", value) for name, value in self.container.items())
        yield from ((f"env {name}", value) for name, value in self.environment.items())
        yield from self.values.items()


def read(words: Sequence[str], engine: Engine) -> Command:
    """The command of words: variables, `docker run` with its image, the program and its arguments."""
    rest = [word for word in words if word not in ("sudo", "srun")]
    environment, container = {}, {}
    while "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        environment[name] = value
    if rest[:2] == ["docker", "run"]:
        del rest[:2]
        container, variables, rest = _container(rest)
        environment |= variables
    return Command(container, environment, _values(_arguments(rest), engine))


def _container(rest: list[str]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    options: dict[str, list[str]] = {}
    while rest[0].startswith("-"):
        name, has_value, value = rest.pop(0).lstrip("-").partition("=")
        if name not in _SWITCHES and not has_value:
            value = rest.pop(0)
        if name not in ("d", "detach", "i", "t", "ti", "it", "itd"):
            options.setdefault(_LONG.get(name, name), []).append(value)
    variables = dict(pair.split("=", 1) for pair in options.pop("env", []))
    single = {name: values[0] if len(values) == 1 else sorted(values) for name, values in options.items()}
    return single | {"image": rest[0]}, variables, rest[1:]


def _arguments(rest: list[str]) -> list[str]:
    """The words after the program; the model that vLLM and LMDeploy take without a flag gets one."""
    rest = list(access.unchecked(rest))
    if rest[:2] in (["python3", "-m"], ["python", "-m"]):
        return rest[3:]
    if "api_server" in rest:  # of lmdeploy, or of the program that hands the key to it
        return ["--model-path", *rest[rest.index("api_server") + 1 :]]
    if "serve" in rest[:2]:  # `vllm serve`; vllm is the entrypoint in a plan
        return ["--model", *rest[rest.index("serve") + 1 :]]
    return rest


def _values(words: Sequence[str], engine: Engine) -> dict[str, Any]:
    """The values of the arguments by their destination; a flag that the version lacks keeps its text."""
    spec = replace(engine.specification, owned={})
    values: dict[str, Any] = {}
    for flag, *given in arguments.each(words):
        name, has_value, attached = flag.partition("=")
        given = [attached, *given] if has_value else given
        full = _full(spec.options, name)
        read = arguments.check(spec, [full, *given]) if full else None
        values |= read.values if read and not read.problems else {name.lstrip("-"): " ".join(given)}
    return values


def _full(options: Mapping[str, Any], flag: str) -> str | None:
    """The flag that argparse takes an abbreviation for."""
    if flag in options:
        return flag
    if f"{flag}-size" in options:  # --tp, which begins other options, too
        return f"{flag}-size"
    begins = [known for known in options if known.startswith(flag)]
    return begins[0] if len({options[known]["dest"] for known in begins}) == 1 else None


def checkpoint(case: Mapping[str, Any], model: str) -> Checkpoint:
    """The model of the catalogue, or one like it with other keys of config.json."""
    like = case.get("like", {})
    if "config" not in like:
        listed = catalogue.lookup(like.get("model", model))
        assert listed is not None, model
        return listed
    entry = catalogue.resolved(like["model"])["config"] | like["config"]
    return from_config(
        entry,
        id=model,
        revision=None,
        weights=WeightFiles(like["weights"], ()),
        source="hub",
        where=model,
    )


@cache
def plan(name: str, folder: Path) -> Plan:
    return _plan(CASES[name], folder / f"{name.replace(' ', '-')}.ini")


def _plan(case: Mapping[str, Any], path: Path, variables: str = "") -> Plan:
    path.write_text(f"{case['inventory']}\n{variables}\n", encoding="utf-8")
    cluster = load([path])
    return build(cluster, {its.name: checkpoint(case, its.settings.model) for its in cluster.services})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guides")


def differences(document: Command, planned: Command) -> dict[str, tuple[Any, Any]]:
    """What of a command is otherwise in the plan: the document's value and the plan's; None where absent."""
    ours, theirs = dict(planned.facts()), dict(document.facts())
    if not document.container:
        ours = {name: value for name, value in ours.items() if not name.startswith(("docker ", "env "))}
    return {
        name: (theirs.get(name), ours.get(name))
        for name in sorted({*ours, *theirs})
        if theirs.get(name) != ours.get(name)
    }


def ranks(case: Mapping[str, Any], service: PlannedService) -> list[tuple[str, Sequence[str]]]:
    """Each command of the guide with the plan's `docker run` that replaces it.

    Copies behind a router have one command in the guides: it is that of each copy.
    """
    nodes = [node for replica in service.replicas for node in replica.nodes]
    commands = case["commands"] * len(nodes) if len(case["commands"]) == 1 else case["commands"]
    assert len(commands) == len(nodes), f"{len(nodes)} ranks"
    return [(command, node.docker_run) for command, node in zip(commands, nodes, strict=True)]


def title(name: str) -> str:
    return name.replace(" ", "-")


@pytest.mark.parametrize("name", list(CASES), ids=title)
def test_the_plan_has_the_commands_of_the_guide(name: str, folder: Path) -> None:
    case = CASES[name]
    service = plan(name, folder).services[0]
    engine = engines.get(service.engine, service.engine_version)
    reasons = TABLE["everywhere"] | TABLE["of_engine"][engine.name] | case.get("differs", {})
    seen: set[str] = set()
    for command, docker_run in ranks(case, service):
        document = read([*shlex.split(command), *_configured(case)], engine)
        unexplained = differences(document, read(docker_run, engine))
        seen |= unexplained.keys()
        assert {name: pair for name, pair in unexplained.items() if name not in reasons} == {}
    assert sorted(case.get("differs", {}).keys() - seen) == [], "reasons without a difference"
    assert service.fit.fits is not False


def _configured(case: Mapping[str, Any]) -> list[str]:
    """The arguments of the file that the guide's command reads with --config."""
    file = case.get("file", {})
    return [
        word for key, value in file.items() for word in (f"--{key}", str(value))[: 1 + (value is not True)]
    ]


@pytest.mark.parametrize("name", [name for name in CASES if "expect" in CASES[name]], ids=title)
def test_the_plan_decides_what_the_guide_does_beside_the_command(name: str, folder: Path) -> None:
    made = plan(name, folder)
    service = made.services[0]
    facts = {
        "layout": service.layout,
        "replicas": len(service.replicas),
        "routers": len(service.routers),
        "task": service.task,
        "convert_to_bf16": service.convert_to_bf16,
        "engine_version": service.engine_version,
        "gpu_devices": service.replicas[0].nodes[0].gpu_devices,
        "precision": service.precision,
        "notes": " ".join(service.notes),
        "page": made.webui is not None,
    }
    expected = CASES[name]["expect"]
    for key, value in expected.items():
        fact = facts[key]
        assert value in fact if key == "notes" else fact == value, (key, fact)


def option_id(option: Mapping[str, Any]) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", option["setting"]).strip("-")


@pytest.mark.parametrize(
    ("case", "option"), OPTIONS, ids=lambda value: "setting" in value and option_id(value)
)
def test_an_option_that_the_guides_recommend_is_planned_or_refused_with_what_to_write(
    case: dict[str, Any], option: dict[str, Any], folder: Path
) -> None:
    path = folder / "option.ini"
    if "refused" in option:
        with pytest.raises(InputError) as refused:
            _plan(case, path, option["setting"])
        assert option["refused"] in f"{refused.value.what} {refused.value.hint}"
        return
    service, before = (_plan(case, path, line).services[0] for line in (option["setting"], ""))
    engine = engines.get(service.engine, service.engine_version)
    command = read(service.replicas[0].nodes[0].docker_run, engine)
    assert dict(command.facts()).items() >= option["has"].items()
    assert service.fit.fits
    assert service.fit.weight_bytes_per_rank <= option.get("weights", 1) * before.fit.weight_bytes_per_rank
    assert (service.fit.kv_tokens or 0) >= option.get("tokens", 0) * (before.fit.kv_tokens or 0)


def test_every_command_of_the_guides_is_in_the_table() -> None:
    """Counted by hand in the guides; each row names the guides that print its commands."""
    counted = dict.fromkeys(TABLE["guides"], 0)
    for case in CASES.values():
        for guide in case["guides"]:
            counted[guide] += len(case["commands"])
    assert counted == {guide: entry["commands"] for guide, entry in TABLE["guides"].items()}
