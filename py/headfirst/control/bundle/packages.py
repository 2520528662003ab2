"""Which packages the roles install and from which repositories, read from their vars/main/packages.yml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from ansible_collections.headfirst.serving.plugins.module_utils import nvidia_packages
from ansible_collections.headfirst.serving.plugins.module_utils.openpgp import armoured, public_keys

from headfirst.collection import role_packages
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.bundle.apt import Apt, Repository
from headfirst.control.bundle.needs import Packages
from headfirst.control.bundle.systems import RELEASES, System
from headfirst.decide.containers.spec import Runtime

ROLE_VALUES = (
    "docker_engine_source",
    "nvidia_driver_branch",
    "nvidia_driver_kind",
    "nvidia_driver_key_fingerprint",
    "nvidia_driver_run_file",
    "nvidia_driver_source",
    "nvidia_container_toolkit_key",
    "nvidia_container_toolkit_source",
    "nvidia_container_toolkit_version",
    "rdma_repository",
    "rdma_repository_key",
    "rdma_source",
)
"""Variables of roles that decide which packages they install and from where."""

KEPT_OUT = {
    "docker_engine_add_repository": False,
    "nvidia_driver_add_repository": False,
    "nvidia_container_toolkit_add_repository": False,
    "rdma_add_repository": False,
}
"""Variables of roles with which they take what apt has."""

# Ansible's module apt installs it where it is missing.
_FOR_ANSIBLE = ("python3-apt",)
_TIMEOUT_S = 30.0
_MAX_KEY = 1 << 20
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """What hosts of one kind need: whether they have GPUs and RDMA, and kernels to build drivers for."""

    gpus: bool
    rdma: bool
    kernels: Sequence[str]
    runtime: Runtime = "docker"


def sources(values: Values, needs: Wanted) -> Packages:
    """Where each kind of packages comes from. InputError for what a bundle cannot carry."""
    _refuse_user_files(values, needs)
    driver = " ".join(str(values[f"nvidia_driver_{name}"]) for name in ("branch", "kind", "source"))
    toolkit = " ".join(str(values[f"nvidia_container_toolkit_{name}"]) for name in ("source", "version"))
    return Packages(
        docker=values["docker_engine_source"] if needs.runtime == "docker" else "",
        podman="distribution" if needs.runtime == "podman" else "",
        driver=driver if _has_driver(values, needs) else "",
        toolkit=toolkit.strip() if needs.gpus else "",
        rdma=values["rdma_source"] if needs.rdma else "",
    )


def repositories(values: Values, needs: Wanted, system: System) -> list[Repository]:
    """The repositories besides the distribution's, with their keys. NotReadyError for one out of reach."""
    release, archives = RELEASES[system], []
    if needs.runtime == "docker" and values["docker_engine_source"] != "distribution":
        variables = role_packages("docker_engine")
        uri = f"{_source_url(variables, 'docker_engine', values)}/{system.id}"
        key = _key(f"{uri}/gpg", variables["__docker_engine_key"])
        archives.append(Repository(uri, release.codename, "stable", key))
    if needs.gpus and values["nvidia_container_toolkit_source"] != "distribution":
        role = "nvidia_container_toolkit"
        uri = _source_url(role_packages(role), role, values)
        key = _key(f"{uri}/gpgkey", values["nvidia_container_toolkit_key"])
        archives.append(Repository(f"{uri}/stable/deb/{system.architecture}", "/", "", key))
    if _has_driver(values, needs) and values["nvidia_driver_source"] != "distribution":
        variables = role_packages("nvidia_driver")
        place = f"{system.id}{system.release.replace('.', '')}/x86_64"
        uri = f"{_source_url(variables, 'nvidia_driver', values)}/{place}"
        key = _key(f"{uri}/{variables['__nvidia_driver_key_name']}", values["nvidia_driver_key_fingerprint"])
        archives.append(Repository(f"{uri}/", "/", "", key))
    if needs.rdma and values["rdma_source"] == "doca":
        uri = values["rdma_repository"].rstrip("/")
        key = _key(f"{uri}/GPG-KEY-Mellanox.pub", values["rdma_repository_key"])
        archives.append(Repository(uri, "./", "", key))
    return archives


def groups(values: Values, needs: Wanted, system: System, apt: Apt) -> list[list[str]]:
    """What each call of apt in the roles installs; `apt` has read its lists."""
    tuning = role_packages("host_tuning")
    sets: list[list[str]] = [
        [*_FOR_ANSIBLE],
        tuning["__host_tuning_firewall_packages"],
        tuning["__host_tuning_clock_packages"],
        _runtime(values, needs),
        role_packages("node_tools")["__node_tools_packages"],
    ]
    if needs.rdma:
        sets.append(role_packages("rdma")["__rdma_packages_of"][values["rdma_source"]])
    if needs.gpus:
        toolkit = role_packages("nvidia_container_toolkit")
        version = values["nvidia_container_toolkit_version"] or (
            ""
            if values["nvidia_container_toolkit_source"] == "distribution"
            else toolkit["__nvidia_container_toolkit_new"]
        )
        exact = f"={version}{'' if '-' in version else '-*'}" if version else ""
        names = toolkit["__nvidia_container_toolkit_names"]
        sets.append([f"{name}{exact}" for name in names])
    if _has_driver(values, needs):
        sets += _driver(values, needs, system, apt)
    return sets


def _runtime(values: Values, needs: Wanted) -> list[str]:
    if needs.runtime == "podman":
        return [*role_packages("podman_engine")["__podman_engine_packages"]]
    variables = role_packages("docker_engine")
    kind = "distribution" if values["docker_engine_source"] == "distribution" else "docker"
    return [*variables["__docker_engine_sdk_packages"], *variables[f"__docker_engine_{kind}_packages"]]


def _driver(values: Values, needs: Wanted, system: System, apt: Apt) -> list[list[str]]:
    """The driver's packages, of both kinds where the GPUs decide, each with the fabric manager."""
    data = role_packages("nvidia_driver")
    headers = [[data["__nvidia_driver_headers_of"].replace("{kernel}", kernel)] for kernel in needs.kernels]
    kind = values["nvidia_driver_kind"]
    sets: list[list[str]] = []
    for dash in {"auto": ("-open", ""), "open": ("-open",), "proprietary": ("",)}[kind]:
        if chosen := _chosen(values, system, apt, dash):
            sets.append(chosen["packages"])
            pinned = f"Package: {data['__nvidia_driver_pinned']}\nPin: version {chosen['version']}-*\n"
            apt.prefer(f"{pinned}Pin-Priority: 1001\n\n")
    if not sets:
        raise InputError(
            f"{values['nvidia_driver_source']} has no driver {values['nvidia_driver_branch']} for {system}",
            where="nvidia_driver_branch",
            hint="Choose another nvidia_driver_branch or nvidia_driver_source.",
        )
    subnet = data["__nvidia_driver_subnet_manager_packages"]  # of NVLink 5
    return [*sets, *headers, *([subnet] if apt.madison(subnet[:1]) else [])]


def _chosen(values: Values, system: System, apt: Apt, dash: str) -> dict[str, Any] | None:
    """Version and packages of the newest driver, with the fabric manager where one fits."""
    branch = str(values["nvidia_driver_branch"])
    major = branch.partition(".")[0]
    maker = system.id if values["nvidia_driver_source"] == "distribution" else "nvidia"
    names = role_packages("nvidia_driver")["__nvidia_driver_sets_of"][maker]
    sets = [[name.replace("{major}", major).replace("{-open}", dash) for name in row] for row in names]
    managers = [f"nvidia-fabricmanager-{major}", "nvidia-fabricmanager"]
    offered = nvidia_packages.offered(apt.madison([*(name for names in sets for name in names), *managers]))
    with_manager = nvidia_packages.choose(offered, sets, managers, branch)
    return with_manager or nvidia_packages.choose(offered, sets, [], branch)


def _has_driver(values: Values, needs: Wanted) -> bool:
    return needs.gpus and bool(values["nvidia_driver_branch"])


def _refuse_user_files(values: Values, needs: Wanted) -> None:
    """Folders and installers of the user's own are brought by the user; MLNX_OFED is such an archive."""
    files = {
        "nvidia_container_toolkit_source": needs.gpus,
        "nvidia_driver_source": needs.gpus,
        "rdma_repository": needs.rdma,
    }
    settings = [name for name, counts in files.items() if counts and str(values[name]).startswith("/")]
    if needs.gpus and values["nvidia_driver_run_file"]:
        settings.append("nvidia_driver_run_file")
    if settings:
        raise InputError(
            f"{settings[0]} is your own file or folder, which a bundle does not include",
            where=settings[0],
            hint=f"Take {settings[0]} out of the inventory: the bundle then has the packages.",
        )
    if needs.rdma and values["rdma_source"] == "mlnx_ofed":
        raise InputError(
            "a bundle does not include MLNX_OFED",
            where="rdma_source",
            hint="Set rdma_source to inbox or doca.",
        )


def _source_url(variables: Values, role: str, values: Values) -> str:
    """The URL of a source that may be a name of the role's table."""
    source = str(values[f"{role}_source"])
    return str(variables[f"__{role}_repositories"].get(source, source))


def _key(url: str, fingerprint: str) -> bytes:
    """The key with this fingerprint, as apt reads it. NotReadyError where it cannot be had."""
    fingerprint = fingerprint.replace(" ", "").upper()
    try:
        answer = httpx.get(url, timeout=_TIMEOUT_S, follow_redirects=True).raise_for_status()
        key = public_keys(answer.content[:_MAX_KEY]).get(fingerprint)
    except (httpx.HTTPError, ValueError) as error:
        raise NotReadyError(f"the signing key {url} cannot be fetched: {error}") from None
    if key is None:
        raise NotReadyError(
            f"{url} has no key {fingerprint}",
            hint="If the repository's owner announced a new key, give its fingerprint in the inventory.",
        )
    return armoured(key)
