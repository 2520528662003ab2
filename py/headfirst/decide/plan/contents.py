"""What the image and the mounted folders have, and what the plan needs of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.types import Service
from headfirst.decide.engines.base import Engine, Values
from headfirst.decide.model.checkpoint import Checkpoint

_OTHER_FILES = ("gguf", "npcache", "pt")
_EXTERNAL = (
    "{where}: {engine.described_by} has no model class {checkpoint.architecture}. The plan does not check "
    "whether the {holder} has it, or what its class refuses. It computes memory and layout from config.json."
)
_UNKNOWN = "{flags} of engine_args: not in {known}, and passed as written, since the image may have it."
_NOT_MOUNTED = (
    "engine_args names {files}, but no mounted folder contains it: the engine reads it only if its image "
    "contains it. To mount a folder of each host, set engine_volumes=/folder:/folder:ro."
)


def with_packages(service: Service, checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint, marked where the image, or a mounted folder, may have its model class."""
    engine, _ = engines.of_service(service)
    may_be_there = engine.answers.guessed or bool(_packages(service))
    return checkpoint.model_copy(update={"external_class": may_be_there})


def _packages(service: Service) -> str:
    """The variable of the environment, with its value, that names the user's model classes; else ""."""
    settings = service.settings
    variables = engines.get(settings.engine, where=service.given.get("engine")).package_variables
    named = (f"{name}={value}" for name, value in settings.engine_env.items() if name in variables and value)
    installed = settings.engine_image is not None or "PYTHONPATH" in settings.engine_env
    return next(named, "") if installed else ""


def packages_note(service: Service, engine: Engine, checkpoint: Checkpoint) -> str:
    """That the image or a package of the user has the model class, and what is not checked then."""
    packages, settings = _packages(service), service.settings
    image = settings.engine_image or engine.default_image(settings.engine_device)
    where, holder = (f"engine_env={packages}", "package") if packages else (image, "image")
    return _EXTERNAL.format(where=where, holder=holder, engine=engine, checkpoint=checkpoint)


def unknown_flags(engine: Engine, arguments: Sequence[str]) -> str:
    """Which flags the snapshot does not have; the image may have them."""
    flags = engine.check_arguments(arguments).unknown
    return _UNKNOWN.format(flags=", ".join(flags), known=engine.described_by) if flags else ""


def unmounted_note(arguments: Sequence[str], volumes: Sequence[str]) -> str:
    """Which files of the user's arguments are in no folder that is mounted."""
    words = [word.partition("=")[2] if word.startswith("--") else word for word in arguments]
    targets = [volume.split(":")[1] for volume in volumes]
    lacking = [
        word
        for word in words
        if word.startswith("/") and not any(PurePosixPath(word).is_relative_to(target) for target in targets)
    ]
    return _NOT_MOUNTED.format(files=", ".join(lacking)) if lacking else ""


def other_files(values: Values) -> list[str]:
    """Why weights are not loaded: files that are no safetensors are neither fetched nor checked."""
    load_format = values.get("load_format")
    other = load_format in _OTHER_FILES
    return [f"--load-format {load_format} reads other files than safetensors"] if other else []


def refuse_image(service: Service, engine: Engine, image: str, programs: Sequence[str]) -> None:
    """Raise for an image of a registry that is known to lack one of `programs`."""
    lack = engine.missing(programs, image)
    if lack is None or service.settings.engine_image_source != "registry":
        return
    raise InputError(
        f"{image} has no {lack.program}, which this service starts",
        where=service.given.get("engine_runtime"),
        hint=lack.hint,
    )


def own_image_note(engine: Engine, image: str, programs: Sequence[str]) -> str:
    """What is required of an image that is not the engine's own."""
    if not programs or (image in engine.images.values() and not engine.missing(programs, image)):
        return ""
    return (
        f"{image} must have {', '.join(programs)}. `deploy up` checks the image on each host "
        "before it transfers the weights."
    )
