"""From a name to the model: one that comes with minidecode, a directory, or Hugging Face's."""

import contextlib
import difflib
import logging
import os
import re
import warnings
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .checkpoint import Checkpoint
from .config import Config
from .gpt2 import GPT2
from .packed_file import PACKED, PackedFile, write_packed
from .saving import new_directory
from .tokenizer import Tokenizer
from .weights import check_dtype

EMBEDDED = ("storyteller-6m", "storyteller-1m")  # target and draft
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_HUB_TIMEOUT = 3  # seconds to wait for Hugging Face before the cache has to serve


OWN = "own"  # the default of `tokenizer`: the one in the model's directory


def load(
    name: str | Path,
    *,
    dtype: str | None = None,
    tokenizer: Tokenizer | str | None = OWN,
    progress: Any = None,
) -> tuple[GPT2, Tokenizer | None]:
    """The model and the tokenizer that `name` stands for.

    name       an embedded name, a directory in the Hugging Face layout, or a Hugging Face id; of
               these the first that fits
    dtype      how the matrices are stored: float32, float16, bfloat16, int8 or int4. None is
               float32, or what `convert` wrote
    tokenizer  another one than the directory's; None or an `IdTokenizer` for ids in and ids out
    progress   tqdm or a class like it, shows what is fetched and read; None shows nothing

    Errors: `CheckpointError` and `TokenizerError` say what is wrong and where, `InputError` for a
    dtype that is none.
    """
    if dtype is not None:
        check_dtype(dtype)
    directory = find(name, progress=progress)
    config = Config.read(directory)
    chosen = Tokenizer.read(directory) if isinstance(tokenizer, str) else tokenizer
    own = chosen if isinstance(chosen, Tokenizer) else None
    if (directory / PACKED).exists():
        weights = PackedFile(directory, config)
        if dtype not in (None, weights.dtype):
            raise CheckpointError(
                f"{directory}: got weights in {weights.dtype}, {dtype} was wanted"
            )
        model = GPT2(config, weights, _unknown_ids(own, config))
    else:
        model = _read(directory, config, own, dtype or "float32", progress)
    model.tokenizer = own  # so that two models can be told apart that speak differently
    return model, chosen


def convert(name: str | Path, out: str | Path, *, dtype: str, progress: Any = None) -> GPT2:
    """Write the model `name` stands for to the new directory `out`, its matrices packed as `dtype`.

    `load(out)` maps it into memory, so that it is ready at once. Returns the model. Errors: as
    `load`, and `InputError` where `out` is not new or empty.
    """
    source = find(name, progress=progress)
    new = not os.path.exists(os.path.expanduser(out))
    directory = new_directory(
        out
    )  # a large model need not be read to say that there is no place for it
    try:
        model, _ = load(source, dtype=dtype, tokenizer=None, progress=progress)
    except BaseException:
        if new:
            directory.rmdir()
        raise
    write_packed(out, model, source)
    return model


def _unknown_ids(tokenizer, config):
    """For after the weights are checked: a vocab_size that is not theirs may be of any size."""
    return tokenizer.unknown_ids(config.vocab_size) if tokenizer else ()


def _read(directory, config, tokenizer, dtype, progress):
    checkpoint = Checkpoint(directory)
    checkpoint.check(config)
    with contextlib.ExitStack() as stack:
        if progress:
            total = checkpoint.n_parameters
            bar = progress(total=total, desc="reading", unit=" parameters", unit_scale=True)
            checkpoint.on_read = stack.enter_context(bar).update
        try:
            return GPT2(config, checkpoint, _unknown_ids(tokenizer, config), dtype)
        except CheckpointError as error:  # a number that the type cannot hold
            raise CheckpointError(f"{directory}: {error}") from None


def find(name, *, progress=None):
    """The directory that `name` stands for, as a Path; what is on Hugging Face is fetched.

    Errors: `CheckpointError` if there is none, or if it can be neither fetched nor found in the
    local cache.
    """
    if not isinstance(name, str | os.PathLike):
        raise CheckpointError(f"model: got {name!r:.50}, a name or a directory was wanted")
    if name == "":  # which Path would read as the current directory
        raise CheckpointError("model: got an empty name, a name or a directory was wanted")
    if name in EMBEDDED:
        return _find_embedded(name)
    directory = Path(os.path.expanduser(name))
    try:
        if directory.is_dir():
            return directory
        if directory.exists():
            raise CheckpointError(f"{name}: got a file, the directory of a model was wanted")
    except OSError as error:  # a name too long, a folder that may not be entered
        reason = error.strerror
        raise CheckpointError(f"{name!s:.50}: {reason}, a model was wanted") from None
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
    near = difflib.get_close_matches(str(name), EMBEDDED, n=1, cutoff=0.8)
    meant = f"; {near[0]} was perhaps meant" if near else ""
    raise CheckpointError(f"{name}: is no directory and not {embedded}, and {reason}{meant}")


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
