"""Where code may import from: storeys, their packages, and no circle of modules; see CONTRIBUTING.md."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "py" / "headfirst"
# What a storey imports besides itself. `collection` is the one module beside the storeys.
STOREYS = {
    "common": set(),
    "node": {"common"},
    "decide": {"common"},
    "control": {"common", "node", "decide", "collection"},
}
# Folders of the collection that a storey imports. On nodes there are only module_utils.
COLLECTION = {
    "common": set(),
    "node": {"module_utils"},
    "decide": {"module_utils", "plugin_utils"},
    "control": {"module_utils", "plugin_utils"},
}
# The packages of a storey from the top to the ground floor. Packages in one row may import from each other.
FLOORS = {
    "node": (("supervisor",), ("weights",), ("peers",)),
    "decide": (
        ("render",),
        ("plan",),
        ("engines", "diagnose"),
        ("cluster",),
        ("model", "containers", "hardware"),
    ),
    "control": (
        ("cli",),
        ("deployment",),
        ("report",),
        ("accuracy",),
        ("bundle", "smoke", "bench", "evidence", "rehearsal", "image_probe"),
        ("evalscope",),
        ("ownership",),
        ("inventory", "credentials", "checkpoints"),
        ("run",),
        ("live",),
        ("images", "lab", "demo"),
        ("machine",),
    ),
}
# What reads a plan and the live API, and what of it the rest of the product imports: nothing but these doors.
EXTRAS: dict[str, tuple[tuple[str, ...], dict[str, set[str]]]] = {
    "measure": (
        (
            *("control.evalscope", "control.bench", "control.accuracy", "control.deployment.measuring"),
            *("control.cli.bench", "control.cli.accuracy", "control.cli.shown.accuracy"),
            *("control.cli.shown.bench", "control.cli.shown.tune"),
        ),
        {
            "control.cli.smoke": {"control.cli.accuracy"},  # deploy test --accuracy
            # The page has recorded runs and their picture.
            "control.deployment.verbs.report": {"control.bench.result"},
            "control.report": {"control.bench.result", "control.bench.picture"},
        },
    ),
    "bundle": (
        (
            *("control.bundle", "control.cli.bundle", "control.deployment.verbs.bundle"),
            *("control.deployment.bundled", "control.deployment.bundle_needs"),
            "control.deployment.hosts.host_systems",
        ),
        {
            # A plan takes its sources from a bundle (looked_at), and `up` its files (proven, Closed).
            "control.deployment.prepare": {"control.deployment.bundled"},
            "control.deployment.verbs.up": {"control.deployment.bundled"},
            "control.cli.plan": {"control.cli.bundle"},  # deploy plan --bundle
        },
    ),
    "render": (
        ("decide.render", "control.deployment.verbs.render", "control.cli.render"),
        {
            # deploy plan --commands: option_lines
            "control.cli.shown.commands": {"decide.render.docker_run"},
        },
    ),
    "report": (
        ("control.report", "control.deployment.verbs.report"),
        {
            # deploy report
            "control.cli.diagnose": {"control.deployment.verbs.report", "control.report.page"},
            "control.cli.plan": {"control.report.drawing"},  # deploy plan --svg
        },
    ),
    "lab": (
        ("control.lab", "control.demo", "control.images", "control.deployment.lab_nodes", "control.cli.lab"),
        {
            # A run enters through lab_nodes: which hosts are nodes, their logins, their share, `started`.
            "control.deployment.hosts": {"control.deployment.lab_nodes"},
            "control.deployment.running": {
                "control.deployment.lab_nodes",
                # Images that are built here: build.build, of recipes.
                *("control.images.archive", "control.images.build", "control.images.recipes"),
            },
            "control.deployment.verbs.up": {"control.deployment.lab_nodes"},
            # The model of a demo is described by its own files: demo.checkpoint.
            "control.deployment.checkpoints": {"control.deployment.lab_nodes", "control.demo"},
            "control.deployment.model_files": {"control.demo"},
            "control.deployment.prepare": {"control.deployment.lab_nodes"},
        },
    ),
}


@cache
def modules() -> dict[str, set[str]]:
    """The modules of ours that each module imports, also inside functions: dotted names below `headfirst`."""
    files = {_name(path): path for path in PACKAGE.rglob("*.py") if "shims" not in path.parts}
    return {name: set(_imports(path, set(files))) - {name} for name, path in files.items()}


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imports(path: Path, names: set[str]) -> Iterator[str]:
    for imported in _imported(path):
        package, _, name = imported.partition(".")
        # What is no module is a name of the module that has it.
        module = name if name in names else name.rpartition(".")[0]
        if package == "headfirst" and module and module in names:
            yield module


def _floors(storey: str) -> dict[str, int]:
    return {name: number for number, row in enumerate(FLOORS[storey]) for name in row}


@pytest.mark.parametrize("storey", STOREYS)
def test_a_storey_imports_from_itself_and_those_below(storey: str) -> None:
    wrong = {
        f"{name} imports {imported}"
        for name, importing in modules().items()
        for imported in importing
        if name.split(".")[0] == storey and imported.split(".")[0] not in {storey, *STOREYS[storey]}
    }
    assert not wrong


@pytest.mark.parametrize("storey", STOREYS)
def test_a_storey_imports_of_the_collection_what_is_there(storey: str) -> None:
    used = {
        imported.split(".")[4]
        for path in (PACKAGE / storey).rglob("*.py")
        if "shims" not in path.parts
        for imported in _imported(path)
        if imported.startswith("ansible_collections.headfirst.serving.plugins.")
    }
    assert used == COLLECTION[storey]


@pytest.mark.parametrize("storey", FLOORS)
def test_every_package_has_a_floor(storey: str) -> None:
    assert {path.parent.name for path in (PACKAGE / storey).glob("*/__init__.py")} == set(_floors(storey))


@pytest.mark.parametrize("storey", FLOORS)
def test_a_package_imports_from_its_own_floor_or_below(storey: str) -> None:
    floors = _floors(storey)
    arrows = (
        (name.split("."), imported.split("."))
        for name, importing in modules().items()
        for imported in importing
    )
    inside = [
        (source, target)
        for source, target in arrows
        if source[0] == target[0] == storey and source[1] in floors and target[1] in floors
    ]
    assert not [pair for pair in inside if floors[pair[1][1]] < floors[pair[0][1]]]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_entered_through_its_doors_alone(extra: str) -> None:
    parts, doors = EXTRAS[extra]
    found: dict[str, set[str]] = {}
    for name, importing in modules().items():
        entered = {imported for imported in importing if _within(imported, parts)}
        # cli.app registers the verbs.
        if entered and name != "control.cli.app" and not _within(name, parts):
            reader = next((door for door in doors if _within(name, [door])), name)
            found[reader] = found.get(reader, set()) | entered
    assert found == doors


def _within(name: str, parts: Iterable[str]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        graphlib.TopologicalSorter(modules()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_what_is_beside_the_package_imports_names_that_exist() -> None:
    """Benchmarks, tools and tests of the other suites: nothing else reads their imports before they run."""
    root = PACKAGE.parents[1]
    missing = [
        f"{path.relative_to(root)}:{node.lineno} {node.module}.{alias.name}"
        for folder in ("benchmarks", "molecule", "tests", "tools")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headfirst"
        for alias in node.names
        if alias.name != "__file__" and not _exists(root / "py", str(node.module), alias.name)
    ]
    assert not missing


def _exists(source: Path, module: str, name: str) -> bool:
    place = source.joinpath(*module.split("."))
    if (place / name).is_dir() or (place / f"{name}.py").is_file():
        return True
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return (
        file.is_file()
        and re.search(rf"^[^#\n]*\b{name}\b", file.read_text("utf-8"), re.MULTILINE) is not None
    )
