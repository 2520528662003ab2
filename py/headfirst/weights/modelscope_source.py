"""A model on ModelScope, or on a mirror of it (MODELSCOPE_ENDPOINT), through the hub's own client.

The client resumes, downloads in parallel, checks each file against the hub's sha256, and reads its settings
and MODELSCOPE_API_TOKEN from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modelscope_hub import AuthenticationError, HubApi, InvalidParameter, NotFoundError, PermissionDeniedError

from headfirst.errors import InputError
from headfirst.weights.source import Listing, RemoteFile, client_failed, wanted


class ModelScopeSource:
    """One model at one revision: a branch or a tag; "" is the default branch, master."""

    def __init__(self, model: str, revision: str) -> None:
        self._model = model
        self._revision = revision or "master"
        self._api = HubApi()

    def list(self) -> Listing:
        """The files of the revision. The hub names no commit, but each file's sha256, which pins as well."""
        with self._errors():
            entries = self._api.list_repo_files(self._model, "model", revision=self._revision)
        files = [
            RemoteFile(entry.path, entry.size, entry.sha256 or None)
            for entry in entries
            if not entry.is_dir and wanted(entry.path)
        ]
        return Listing("", files)

    def get(self, listing: Listing, target: Path) -> None:
        """Download into `target`: exactly the files, sizes and hashes that `listing` has."""
        os.environ["TQDM_DISABLE"] = "1"  # its bar would fill the job's log
        entries = [{"Path": file.name, "Size": file.size, "Sha256": file.sha256} for file in listing.files]
        with self._errors():
            self._api.download_repo(
                self._model, "model", revision=self._revision, local_dir=target, file_list=entries
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        where = f"{self._model} on ModelScope"
        try:
            yield
        except (AuthenticationError, PermissionDeniedError) as error:
            raise InputError(
                "this model is gated or private",
                where=where,
                hint="Ask for access on the model's page, then give a token in MODELSCOPE_API_TOKEN.",
            ) from error
        except (NotFoundError, InvalidParameter) as error:
            raise InputError(
                f"there is no such model, or it has no revision {self._revision}",
                where=where,
                hint="Check the name (owner/model) and model_revision.",
            ) from error
        except Exception as error:  # the client raises the errors of its HTTP library too
            raise client_failed(error, where) from error
