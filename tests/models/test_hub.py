"""Models on Hugging Face: what is fetched, what the cache serves, and what is said of failures."""

import os
import subprocess
import sys

import huggingface_hub
import pytest
from builders import random_gpt2, toy_tokenizer, write
from huggingface_hub import utils

from minidecode import CheckpointError
from minidecode.models.loading import find


def offline(home, code, *args):
    """Run `code` where Hugging Face cannot be reached and its cache is in `home`."""
    env = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"):
        env.pop(name, None)
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True)


def test_without_network_and_cache_one_sentence_says_so(tmp_path):
    code = """
import minidecode
try:
    minidecode.load("openai-community/gpt2")
except minidecode.CheckpointError as error:
    print(error)
"""
    out = offline(tmp_path, code)
    assert out.stderr == ""
    assert out.stdout.count("\n") == 1
    assert "openai-community/gpt2" in out.stdout
    assert "not in the local cache, and Hugging Face cannot be reached" in out.stdout


def test_without_network_the_cache_serves(tmp_path):
    repository = tmp_path / "hub" / "models--someone--small"
    config, tensors = random_gpt2(1, V=26, n_layer=1, n_head=2, d=8, n_positions=16)
    write(repository / "snapshots" / ("0" * 40), config, tensors, toy_tokenizer(26))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    code = "import minidecode; print(minidecode.load('someone/small')[0].config.n_embd)"
    out = offline(tmp_path, code)
    assert (out.stdout, out.stderr) == ("8\n", "")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hugging Face that answers; what it was asked for, and an error to raise instead."""
    asked = {"error": None}

    def snapshot_download(name, **settings):
        asked.update(settings, name=name)
        if asked["error"]:
            raise asked["error"]
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, name, timeout: None)
    return asked


def test_only_what_is_read_is_fetched(hub, tmp_path):
    assert find("someone/small") == tmp_path
    assert (hub["name"], hub["local_files_only"]) == ("someone/small", False)
    wanted = ["config.json", "vocab.json", "merges.txt", "model-1.safetensors"]
    others = ["pytorch_model.bin", "tf_model.h5", "README.md", "vocab.txt", "model.py"]
    folders = [f"onnx/{name}" for name in wanted] + ["a/b/model.safetensors"]
    fetched = utils.filter_repo_objects(
        wanted + others + folders,
        allow_patterns=hub["allow_patterns"],
        ignore_patterns=hub["ignore_patterns"],
    )
    assert list(fetched) == wanted


def test_a_name_of_one_word_is_sought_on_hugging_face_too(hub):
    find("gpt2")
    assert hub["name"] == "gpt2"


@pytest.mark.parametrize(
    "kind, reason",
    [
        (utils.RepositoryNotFoundError, "no such model"),
        (utils.GatedRepoError, "only to those"),
        (utils.LocalEntryNotFoundError, "cannot be reached"),
        (utils.HFValidationError, "no Hugging Face id"),
        (OSError, "could not be fetched.*OSError: the disk is full"),
    ],
)
def test_whatever_goes_wrong_is_one_sentence(hub, kind, reason):
    class Raised(kind):
        def __init__(self, message):  # some want a response of their HTTP library
            Exception.__init__(self, message)

    Raised.__name__ = kind.__name__
    hub["error"] = Raised("the disk is full\nand more")
    with pytest.raises(CheckpointError, match=reason) as error:
        find("someone/small")
    assert str(error.value).startswith("someone/small: ")
    assert "\n" not in str(error.value)
