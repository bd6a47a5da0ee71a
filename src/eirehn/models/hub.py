"""Saving models to a folder, and sharing them on the Hugging Face hub."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from .._internal.extras import need
from .._internal.files import RunError

FILES = ["model.json", "best.safetensors", "vocabulary.json"]
"""What is fetched from the hub: never a pickled file."""


class Pretrained:
    """The methods by which users of Hugging Face's libraries save, load and share models."""

    results: Mapping[str, Any] | None = None
    """What is known of the training, from `eirehn.load`: seed, recipe, metric, its value on test data, depth,
    and the SHA-256 of the weights that they are of. Weights that have changed since are saved without them."""

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> None:
        """Saves the model in a folder, which `eirehn.load` and `from_pretrained` read.

        Written are `model.json`, `best.safetensors`, for a language model `vocabulary.json`, and a model card,
        `README.md`, unless you have edited or written the one that is there. Nothing is pickled.

        Args:
            save_directory: the folder, which is created. It must not be a run folder.

        Raises:
            RunError: if the folder is a run folder or cannot be written.
            ValueError: if it is a language model without `tokens`.

        Examples:
            >>> model = eirehn.load("runs/synthetic")
            >>> model.save_pretrained("my-model")
            >>> x = torch.randn(1, 20, 2)
            >>> torch.equal(eirehn.load("my-model")(x), model(x))
            True
        """
        self._save(Path(save_directory))

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        local_files_only: bool = False,
        token: str | bool | None = None,
    ) -> Self:
        """Loads a model from a folder or from the Hugging Face hub, in evaluation mode on the CPU.

        The hub needs `pip install 'eirehn[hub]'`. Of a repository there only the files of `save_pretrained` are
        fetched, and nothing is unpickled.

        Args:
            pretrained_model_name_or_path: a folder, or `"user/name"` on the hub.
            revision: branch, tag or commit of the repository. Default: its main branch.
            cache_dir: folder of fetched files. Default: that of huggingface_hub.
            local_files_only: whether to use fetched files only. Default: `False`.
            token: token of the hub, for private models. Default: that of `hf auth login`.

        Raises:
            RunError: if there is no such model, it cannot be fetched, a file is damaged, or it is of another class.

        Examples:
            >>> from eirehn.models import SequenceModel
            >>> eirehn.load("runs/synthetic").save_pretrained("my-model")
            >>> SequenceModel.from_pretrained("my-model").output_size
            2
        """
        from .io import load

        options = {"revision": revision, "cache_dir": cache_dir, "token": token}
        model = load(_fetched(pretrained_model_name_or_path, local_files_only=local_files_only, **options))
        if not isinstance(model, cls):
            own = type(model).__name__
            raise RunError(
                f"{pretrained_model_name_or_path} holds a {own}, not a {cls.__name__}: use {own}.from_pretrained"
            )
        return model

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Upload model with eirehn",
        private: bool | None = None,
        token: str | bool | None = None,
    ) -> str:
        """Uploads the model with its model card to the Hugging Face hub (`pip install 'eirehn[hub]'`).

        A `README.md` that you have edited or written there stays.

        Args:
            repo_id: `"user/name"`; the repository is created if there is none.
            commit_message: message of the commit there.
            private: whether a new repository is private. Default: the setting of the account.
            token: token of the hub. Default: that of `hf auth login`.

        Returns:
            The address of the commit.

        Raises:
            RunError: if the hub cannot be reached or refuses the upload.
            ValueError: if it is a language model without `tokens`.

        Examples:
            >>> eirehn.load("runs/synthetic").push_to_hub("user/name")  # doctest: +SKIP
            'https://huggingface.co/user/name/commit/…'
        """
        need("huggingface_hub")
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        failed = f"cannot upload to {repo_id}"
        with TemporaryDirectory() as folder:
            with _one_line(failed):
                repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
                # What tells whether the card there has been edited.
                api.snapshot_download(repo_id, allow_patterns=["README.md", "model.json"], local_dir=folder)
            self._save(Path(folder), repo_id)
            with _one_line(failed):
                done = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=commit_message)
        return str(done.commit_url)

    def _save(self, folder: Path, repo_id: str | None = None) -> None:
        from .io import save

        save(self, folder, repo_id)  # type: ignore[arg-type]  # the classes that have this one as a base


def _fetched(name: str | os.PathLike[str], **options: Any) -> Path:
    """The folder of this name, or that of the files fetched from the hub."""
    if (folder := Path(name)).is_dir():
        return folder
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(name)):
        raise RunError(f"{name} is neither a folder nor the name of a model on the hub, such as user/name")
    need("huggingface_hub")
    from huggingface_hub import snapshot_download

    with _one_line(f"there is no folder {name}, and it cannot be fetched from the hub"):
        return Path(snapshot_download(str(name), allow_patterns=FILES, **options))


@contextmanager
def _one_line(what: str) -> Iterator[None]:
    """Errors of the hub, or of the way to it, in one line."""
    try:
        yield
    except Exception as error:  # also of its HTTP library, and ValueError for a name
        raise RunError(f"{what}: {' '.join(str(error).split()) or type(error).__name__}") from error
