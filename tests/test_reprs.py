"""Where an editor and a notebook meet the library: what objects say of themselves."""

import numpy as np
from builders import random_gpt2, toy_tokenizer

import minidecode
from minidecode import Context, Dice, GumbelDice, TableModel, Warp, generate
from minidecode.models.config import Config
from minidecode.models.gpt2 import GPT2
from minidecode.models.tokenizer import Tokenizer


class Letters:
    def encode(self, text):
        return [ord(c) - ord("a") for c in text]

    def token_bytes(self, token):
        return bytes([ord("a") + token]) if token else b"<"


def test_objects_say_what_one_wants_to_know():
    config, tensors = random_gpt2(1, 31, 2, 2, 16, 64)
    model = GPT2(Config.from_dict(config), tensors)
    assert repr(model) == "GPT2(2 layers, width 16, 31 ids, 64 positions, float32)"
    cache = model.new_cache()
    model.forward([1, 2, 3], cache)
    assert repr(cache) == "KVCache(3 of 64 tokens)"
    assert repr(TableModel(np.eye(3))) == "TableModel(3 ids, 1024 positions)"
    assert (repr(Dice(5)), repr(GumbelDice(6))) == ("Dice(5)", "GumbelDice(6)")
    assert repr(Warp(top_p=0.9)) == "Warp(top_p=0.9)"
    assert repr(Tokenizer(toy_tokenizer())) == "Tokenizer(257 ids of bytes, 1 special)"
    assert repr(Context(model)) == "Context(0 tokens)"
    assert minidecode.__version__


def test_a_result_shows_its_text_its_reason_and_its_speed():
    model = TableModel([[0.1, 0.9], [0.9, 0.1]])
    result = generate(model, "a", tokenizer=Letters(), temperature=0, max_new_tokens=4, logprobs=0)
    assert str(result) == "b<b<"
    assert repr(result).startswith("Result('b<b<', 4 tokens, length, ")
    assert repr(result).endswith(" tokens/s)")
    assert repr(generate(model, [0], max_new_tokens=1, temperature=0)) == (
        "Result([1], 1 tokens, length)"
    )
    page = result._repr_html_()
    assert page.count("<span") == 4 and "&lt;" in page and "probability 0.9" in page
    assert "4 tokens, length" in page and "<b<" not in page
    plain = generate(model, "a", tokenizer=Letters(), temperature=0, max_new_tokens=4)
    assert "b&lt;b&lt;" in plain._repr_html_()
