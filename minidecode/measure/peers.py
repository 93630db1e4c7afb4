"""Other engines on the very same weights, for `minidecode bench --peers` (extra `peers`)."""

import contextlib
import dataclasses
import functools
import importlib.util
import json
import time
import warnings
from pathlib import Path

import numpy as np

from ..decoding.step import Step
from ..models.saving import write_checkpoint
from ..models.tokenizer import byte_alphabet
from .speculation import Text, Way
from .speed import PREFILL, Engine


def available():
    """The classes of peers whose packages are installed."""
    return [peer for peer in (Transformers, CTranslate2) if is_installed(peer)]


def is_installed(peer):
    return all(map(importlib.util.find_spec, peer.needs))


def start_transformers(threads):
    """The packages (torch, transformers), quiet, without gradients, on so many threads."""
    import torch
    import transformers

    warnings.filterwarnings("ignore", category=FutureWarning)  # renamed arguments
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch, transformers


def read_transformers(directory):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def generate_greedily(model, prompt, n, **options):
    """n tokens by transformers, past end tokens: a `Text` of what it streamed together."""
    import torch
    from transformers.generation.streamers import BaseStreamer

    steps, times = [], []

    class Clock(BaseStreamer):
        def put(self, value):
            steps.append(Step(tuple(value.flatten().tolist())))
            times.append(time.perf_counter())

        def end(self):
            pass

    prompt = torch.tensor([prompt])
    model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=n,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        streamer=Clock(),
        **options,
    )
    return Text(steps[1:], np.diff(times).tolist())  # the streamer is given the prompt first


class Transformers(Engine):
    """GPT2LMHeadModel of transformers on torch, float32."""

    name = "transformers"
    needs = ("torch", "transformers")

    def __init__(self, directory, threads, tokens, context):
        self.torch, self.transformers = start_transformers(threads)
        self.model = read_transformers(directory)
        self.tokens, self.context = self.torch.tensor([tokens]), context
        self.cache = self.transformers.DynamicCache(config=self.model.config)
        self.model(self.tokens[:, :context], past_key_values=self.cache)

    def decode(self, n):
        return generate_greedily(self.model, self.tokens[0, : self.context].tolist(), n).seconds[1:]

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


class Assisted:
    """transformers' assisted generation: target and draft directories whose ids mean the same."""

    needs = Transformers.needs
    lengths = (2, 4, 6)

    def __init__(self, target, draft, threads):
        start_transformers(threads)
        self.target, self.draft = read_transformers(target), read_transformers(draft)
        # It refuses pairs of unlike size, though greedily it compares ids alone.
        self.draft.config.vocab_size = self.target.config.vocab_size
        generate_greedily(self.target, [0], 4, **self._assistance(2))

    def ways(self, n):
        """`Way` -> function (prompt, warp, seed) that writes a text of n tokens, greedily."""

        def way(prompt, warp, seed, k=0):
            time.sleep(0.5)  # threads of one engine spin for a while after their work
            text = generate_greedily(self.target, prompt, n, **self._assistance(k))
            time.sleep(0.5)
            return text

        name = Transformers.name
        assisted = {Way.constant(k, name): functools.partial(way, k=k) for k in self.lengths}
        return {Way("plain", name): way, **assisted}

    def _assistance(self, k):
        if k == 0:
            return {}
        settings = self.draft.generation_config
        settings.num_assistant_tokens = k
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0.0  # else drafts end early; slower here
        return {"assistant_model": self.draft}


class CTranslate2(Engine):
    """CTranslate2's Generator, float32. It offers no pass over several cached tokens."""

    name = "ctranslate2"
    needs = ("ctranslate2", "torch", "transformers")

    def __init__(self, directory, threads, tokens, context):
        import ctranslate2

        converted = Path(directory) / "ctranslate2"
        if not converted.exists():
            with contextlib.redirect_stdout(None):
                ctranslate2.converters.TransformersConverter(str(directory)).convert(str(converted))
        self.generator = ctranslate2.Generator(
            str(converted), compute_type="float32", inter_threads=1, intra_threads=threads
        )
        vocabulary = json.loads((converted / "vocabulary.json").read_text())
        self.tokens, self.context = [vocabulary[token] for token in tokens], context

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
        self._generate(
            self.tokens[: self.context], n, lambda step: times.append(time.perf_counter())
        )
        return np.diff(times).tolist()

    def prefill(self):
        self._generate(self.tokens[:PREFILL], 1)


def write_random(directory, config, tensors):
    """A model directory for engines that insist on end tokens and a tokenizer with every id.

    One of them (llama.cpp, after conversion) insists on a merge, too.
    """
    write_checkpoint(
        directory, dataclasses.replace(config, bos_token_id=0, eos_token_ids=(0,)), tensors
    )
    directory = Path(directory)
    first, second, *_ = alphabet = list(byte_alphabet())
    vocab = {name: i for i, name in enumerate([*alphabet, first + second])}
    vocab |= {f"<{i}>": i for i in range(len(vocab), config.vocab_size)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level | {"use_regex": True},
        "decoder": byte_level | {"use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [[first, second]]},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), first)
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def start(directory, threads, tokens, context):
    """The installed peers on a model directory."""
    return [peer(directory, threads, tokens, context) for peer in available()]
