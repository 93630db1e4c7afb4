"""From a name to the model: one that comes with minidecode, a directory, or Hugging Face's."""

import contextlib
import logging
import os
import re
import warnings
from pathlib import Path

from ..errors import CheckpointError
from .checkpoint import Checkpoint
from .config import Config
from .gpt2 import GPT2
from .tokenizer import Tokenizer

EMBEDDED = ("storyteller-6m", "storyteller-1m")  # target and draft
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_HUB_TIMEOUT = 3  # seconds to wait for Hugging Face before the cache has to serve


def load(name, *, progress=None):
    """The model and the tokenizer that `name` stands for: (GPT2, Tokenizer).

    `name` is an embedded name, a directory in the Hugging Face layout, or a Hugging Face id; of
    these the first that fits. `progress` is tqdm or a class like it, and shows what is fetched and
    read; None shows nothing. Errors: `CheckpointError` and `TokenizerError` say what is wrong and
    where.
    """
    directory = find(name, progress=progress)
    config = Config.read(directory)
    tokenizer = Tokenizer.read(directory)
    checkpoint = Checkpoint(directory)
    checkpoint.check(config)
    with contextlib.ExitStack() as stack:
        if progress:
            total = checkpoint.n_parameters
            bar = progress(total=total, desc="reading", unit=" parameters", unit_scale=True)
            checkpoint.on_read = stack.enter_context(bar).update
        model = GPT2(config, checkpoint, unknown_ids=tokenizer.unknown_ids(config.vocab_size))
    model.tokenizer = tokenizer  # so that two models can be told apart that speak differently
    return model, tokenizer


def find(name, *, progress=None):
    """The directory that `name` stands for, as a Path; what is on Hugging Face is fetched.

    Errors: `CheckpointError` if there is none, or if it can be neither fetched nor found in the
    local cache.
    """
    if name == "":  # which Path would read as the current directory
        raise CheckpointError("model: got an empty name, a name or a directory was wanted")
    if name in EMBEDDED:
        return _find_embedded(name)
    directory = Path(os.path.expanduser(name))
    if directory.is_dir():
        return directory
    if directory.exists():
        raise CheckpointError(f"{name}: got a file, the directory of a model was wanted")
    if not isinstance(name, str) or not _HUB_ID.fullmatch(name):
        raise CheckpointError(f"{name}: there is no such directory")
    return _fetch(name, progress)


def _find_embedded(name):
    package = Path(__file__).parents[1]
    for weights in (package / "weights", package.parent / "weights"):  # installed; a checkout
        if (weights / name / "config.json").exists():
            return weights / name
    raise CheckpointError(f"{name}: this embedded model is missing from {package / 'weights'}")


def _fetch(name, progress):
    """The local copy of a model on Hugging Face; without a network, the one in the cache."""
    from huggingface_hub import snapshot_download, utils  # slow to import, and rarely wanted

    try:
        with _quiet(utils, bars=progress is not None):
            path = snapshot_download(
                name,
                allow_patterns=["*.safetensors", "*.json", "merges.txt"],
                ignore_patterns=["*/*"],  # nothing in folders; the * above matches / as well
                tqdm_class=progress,
                local_files_only=not _hub_answers(name),
            )
    except utils.GatedRepoError:
        reason = "Hugging Face gives it only to those who have asked for it there"
    except utils.RepositoryNotFoundError:
        reason = "Hugging Face has no such model, or it is private"
    except utils.HFValidationError:
        reason = "no Hugging Face id has this form"
    except (utils.LocalEntryNotFoundError, ConnectionError):
        reason = "it is not in the local cache, and Hugging Face cannot be reached"
    except Exception as error:  # from the disk, or the HTTP library, which differs by version
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        reason = f"it could not be fetched from Hugging Face ({what})"
    else:
        return Path(path)
    embedded = " or ".join(EMBEDDED)
    raise CheckpointError(f"{name}: is no directory and not {embedded}, and {reason}")


def _hub_answers(name):
    """Whether Hugging Face can be reached; `snapshot_download` would wait for it without limit."""
    from huggingface_hub import HfApi, utils

    try:
        HfApi().model_info(name, timeout=_HUB_TIMEOUT)
    except utils.HfHubHTTPError:  # an answer, if only that there is no such model
        return True
    except Exception:  # of the HTTP library, which differs by version
        return False
    return True


@contextlib.contextmanager
def _quiet(utils, bars):
    """Keeps huggingface_hub from printing advice (on tokens, links, ...) among a user's text."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    hide_bars = not bars and not utils.are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        if hide_bars:
            utils.disable_progress_bars()
        try:
            yield
        finally:
            if hide_bars:
                utils.enable_progress_bars()
            logger.setLevel(level)
