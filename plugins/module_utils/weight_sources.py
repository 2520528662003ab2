"""Where weights come from, an entry a source (Python 3.8 or newer, standard library only).

A new source is an entry here and the class that `client` names. tests/unit/test_weight_sources.py asks every
place that handles sources for every entry.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

HubName = t.Literal["huggingface", "modelscope"]
Name = t.Literal[HubName, "path", "demo"]

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_HUB_IDS = "owner/name, such as Qwen/Qwen3-32B"
DEMO_MODELS = ("headfirst-demo", "headfirst-demo-embedding")  # for chat, the default; for embeddings
ACCEPTANCE_MODEL = "headfirst-acceptance"  # of `deploy rehearse --acceptance` alone: it has no weights


@dataclass(frozen=True)
class WeightSource:
    """A value of model_source, weights_source and --from; a hub has an address, and all that follows it."""

    name: Name
    id: t.Pattern[str]
    ids: str  # in words
    client: str = ""  # MODULE:CLASS in headfirst.node.weights.fetch; "" where nodes get it as a folder
    title: str = ""
    address: str = ""
    listing: str = ""  # path of the list of files, with fields {id} and {revision}
    file: str = ""  # path of a file, with fields {id}, {revision} and {file}
    branch: str = ""  # the revision of who names none
    endpoint_variable: str = ""
    token_variable: str = ""
    settings: t.Tuple[str, ...] = ()  # other variables of the client that nodes take over
    caches: t.Tuple[str, ...] = ()  # variables with the folder of the client's cache
    package: str = ""  # the requirement of the client, which is then an extra of the node tools

    @property
    def is_hub(self) -> bool:
        return bool(self.address)

    def has(self, id: str) -> bool:
        """Whether `id` has the form of an id of this source."""
        return bool(self.id.fullmatch(id))


FOLDER = WeightSource(
    "path", re.compile("/.*", re.DOTALL), "an absolute folder on the head, such as /data/DeepSeek-R1",
    client="path_source:PathSource",
)  # fmt: skip
_ENTRIES = (
    WeightSource(
        "huggingface", HUB_ID, _HUB_IDS, client="huggingface_source:HuggingFaceSource",
        title="Hugging Face", address="https://huggingface.co", branch="main",
        listing="/api/models/{id}/revision/{revision}?blobs=true", file="/{id}/resolve/{revision}/{file}",
        endpoint_variable="HF_ENDPOINT", token_variable="HF_TOKEN",  # noqa: S106 - a name
        settings=("HF_HUB_DISABLE_XET",), caches=("HF_HOME",), package="huggingface_hub>=1.0,<3",
    ),
    WeightSource(
        "modelscope", HUB_ID, _HUB_IDS, client="modelscope_source:ModelScopeSource",
        title="ModelScope", address="https://www.modelscope.cn", branch="master",
        listing="/api/v1/models/{id}/repo/files?Revision={revision}&Recursive=false",
        file="/api/v1/models/{id}/repo?Revision={revision}&FilePath={file}",
        endpoint_variable="MODELSCOPE_ENDPOINT", token_variable="MODELSCOPE_API_TOKEN",  # noqa: S106 - a name
        caches=("MODELSCOPE_HOME", "MODELSCOPE_CACHE"), package="modelscope_hub>=0.4.6,<1",
    ),
    FOLDER,
    WeightSource("demo", re.compile("|".join(DEMO_MODELS)), " or ".join(DEMO_MODELS)),
)  # fmt: skip
SOURCES: t.Dict[str, WeightSource] = {source.name: source for source in _ENTRIES}
HUBS = {name: source for name, source in SOURCES.items() if source.is_hub}
ON_NODES = {name: source for name, source in SOURCES.items() if source.client}
EXTRAS = {name: source.package for name, source in SOURCES.items() if source.package}
DEFAULT_HUB: HubName = "modelscope"


def companion(id: str, name: str) -> WeightSource:
    """The source of `id`, which comes beside a model from the source `name`: its hub, where that is one."""
    return FOLDER if FOLDER.has(id) else HUBS.get(name, HUBS[DEFAULT_HUB])
