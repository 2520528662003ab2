"""A model on Hugging Face, or on a mirror of it (HF_ENDPOINT), through the hub's own client.

The client resumes, downloads in parallel, and reads its settings and HF_TOKEN from the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import disable_progress_bars

from headfirst.errors import InputError
from headfirst.weights.source import Listing, RemoteFile, client_failed, wanted


class HuggingFaceSource:
    """One model at one revision: a branch, a tag or a commit; "" is the default branch."""

    def __init__(self, model: str, revision: str) -> None:
        self._model = model
        self._revision = revision

    def list(self) -> Listing:
        """The files of the commit that the revision names now."""
        with self._errors():
            info = HfApi().model_info(self._model, revision=self._revision or None, files_metadata=True)
        files = [
            RemoteFile(item.rfilename, item.size or 0, item.lfs.sha256 if item.lfs else None)
            for item in info.siblings or []
            if wanted(item.rfilename)
        ]
        return Listing(str(info.sha), files)

    def get(self, listing: Listing, target: Path) -> None:
        """Download into `target`; the client keeps its own notes in `target/.cache`."""
        disable_progress_bars()
        names = [file.name for file in listing.files]
        with self._errors():
            snapshot_download(self._model, revision=listing.pinned, local_dir=target, allow_patterns=names)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        where = f"{self._model} on Hugging Face"
        try:
            yield
        except GatedRepoError as error:
            raise InputError(
                "this model is gated: its owner wants to know who takes it",
                where=where,
                hint="Accept the terms on the model's page, then give a token of that account in HF_TOKEN.",
            ) from error
        except (RepositoryNotFoundError, HFValidationError) as error:
            raise InputError(
                "there is no such model, or it is private",
                where=where,
                hint="Check the name (owner/model); for a private model give a token in HF_TOKEN.",
            ) from error
        except RevisionNotFoundError as error:
            raise InputError(
                f"it has no revision {self._revision}",
                where=where,
                hint="Check model_revision: a branch, a tag or a commit.",
            ) from error
        except Exception as error:  # the client raises the errors of whichever HTTP library it uses
            raise client_failed(error, where) from error
