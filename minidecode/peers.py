"""Other engines on the very same weights, for `minidecode bench --peers` (extra `peers`)."""

import contextlib
import dataclasses
import importlib.util
import json
import time
import warnings
from pathlib import Path

import numpy as np

from .bench import CONTEXT, PREFILL
from .errors import MinidecodeError
from .export import write_checkpoint
from .tokenizer import byte_alphabet


def available():
    """The classes of peers whose packages are installed."""
    return [
        peer
        for peer in (Transformers, CTranslate2)
        if all(map(importlib.util.find_spec, peer.needs))
    ]


class Transformers:
    """GPT2LMHeadModel of transformers on torch, float32."""

    name = "transformers"
    needs = ("torch", "transformers")

    def __init__(self, directory, threads, tokens):
        import torch
        import transformers

        warnings.filterwarnings("ignore", category=FutureWarning)  # renamed arguments
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch, self.transformers = torch, transformers
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32
        ).eval()
        self.tokens = torch.tensor([tokens])
        self.cache = transformers.DynamicCache(config=self.model.config)
        self.model(self.tokens[:, :CONTEXT], past_key_values=self.cache)

    def decode(self, n):
        times = []

        class Clock(self.transformers.generation.streamers.BaseStreamer):
            def put(self, value):
                times.append(time.perf_counter())

            def end(self):
                pass

        self.model.generate(
            self.tokens[:, :16],
            attention_mask=self.torch.ones_like(self.tokens[:, :16]),
            max_new_tokens=n,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            streamer=Clock(),
        )
        return np.diff(times[1:]).tolist()  # the streamer is given the prompt first

    def forward(self, n):
        self.model(self.tokens[:, :n], past_key_values=self.cache)
        self.cache.crop(-n)

    def prefill(self):
        self.model(self.tokens[:, :PREFILL], logits_to_keep=1)

    def softmax(self, logits):
        self.torch.from_numpy(logits).softmax(-1)

    def filter(self, logits, settings):
        scores = self.torch.from_numpy(logits)[None]
        for name, value in settings.items():
            warper = {"top_k": "TopKLogitsWarper", "top_p": "TopPLogitsWarper"}[name]
            scores = getattr(self.transformers, warper)(value)(None, scores)
        scores.softmax(-1)


class CTranslate2:
    """CTranslate2's Generator, float32. It offers no pass over several cached tokens."""

    name = "ctranslate2"
    needs = ("ctranslate2", "torch", "transformers")

    def __init__(self, directory, threads, tokens):
        import ctranslate2

        converted = Path(directory) / "ctranslate2"
        if not converted.exists():
            with contextlib.redirect_stdout(None):
                ctranslate2.converters.TransformersConverter(str(directory)).convert(str(converted))
        self.generator = ctranslate2.Generator(
            str(converted), compute_type="float32", inter_threads=1, intra_threads=threads
        )
        vocabulary = json.loads((converted / "vocabulary.json").read_text())
        self.tokens = [vocabulary[token] for token in tokens]

    def _generate(self, prompt, n, callback=None):
        self.generator.generate_batch(
            [prompt],
            max_length=n,
            min_length=n,
            sampling_topk=1,
            include_prompt_in_result=False,
            callback=callback,
        )

    def decode(self, n):
        times = []
        self._generate(self.tokens[:16], n, lambda step: times.append(time.perf_counter()))
        return np.diff(times).tolist()

    def prefill(self):
        self._generate(self.tokens[:PREFILL], 1)


def write_random(directory, config, tensors):
    """A model directory for engines that insist on end tokens and a tokenizer with every id."""
    write_checkpoint(
        directory, dataclasses.replace(config, bos_token_id=0, eos_token_ids=(0,)), tensors
    )
    directory = Path(directory)
    vocab = {name: i for i, name in enumerate(byte_alphabet())}
    vocab |= {f"<{i}>": i for i in range(len(vocab), config.vocab_size)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level | {"use_regex": True},
        "decoder": byte_level | {"use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    first = next(iter(vocab))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), first)
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def start(directory, threads, tokens):
    """The installed peers on a model directory; an error when there is none."""
    found = available()
    if not found:
        raise MinidecodeError("--peers: transformers and ctranslate2 are missing (extra `peers`)")
    return [peer(directory, threads, tokens) for peer in found]
