"""Tiny GPT-2 checkpoints with known answers, toy tokenizers, and an independent forward pass.

For the proof, the tables of its README with the decoder on them, and a program of four paths.

The builders return (config, tensors): the dict of a config.json, and float32 arrays under their
names in a checkpoint. `write` makes of them a directory that the ordinary loader reads.
"""

import json
import math

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from minidecode import TableModel, speculative

TARGET = TableModel([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
DRAFT = TableModel([[0.3, 0.1, 0.6], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]])
END_OF_TEXT = "<|endoftext|>"


def config_dict(vocab_size, n_layer, n_head, n_embd, n_positions, **fields):
    """The config.json of a GPT-2; `fields` are put in besides or instead."""
    sizes = {
        "vocab_size": vocab_size,
        "n_layer": n_layer,
        "n_head": n_head,
        "n_embd": n_embd,
        "n_positions": n_positions,
    }
    return {"model_type": "gpt2", "activation_function": "gelu_new", **sizes, **fields}


def tensor_shapes(config):
    """Name -> shape of a GPT-2's tensors with tied head, written down from the paper's layout."""
    d, n_inner = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
    block = {
        "ln_1.weight": (d,),
        "ln_1.bias": (d,),
        "attn.c_attn.weight": (d, 3 * d),
        "attn.c_attn.bias": (3 * d,),
        "attn.c_proj.weight": (d, d),
        "attn.c_proj.bias": (d,),
        "ln_2.weight": (d,),
        "ln_2.bias": (d,),
        "mlp.c_fc.weight": (d, n_inner),
        "mlp.c_fc.bias": (n_inner,),
        "mlp.c_proj.weight": (n_inner, d),
        "mlp.c_proj.bias": (d,),
    }
    shapes = {"wte.weight": (config["vocab_size"], d), "wpe.weight": (config["n_positions"], d)}
    for layer in range(config["n_layer"]):
        shapes |= {f"h.{layer}.{name}": shape for name, shape in block.items()}
    return shapes | {"ln_f.weight": (d,), "ln_f.bias": (d,)}


def random_gpt2(seed, V, n_layer, n_head, d, n_positions, **fields):
    """Every parameter drawn, wide enough that attention, biases and norms all matter."""
    config = config_dict(V, n_layer, n_head, d, n_positions, **fields)
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        center = 1.0 if ".ln_" in name or name.startswith("ln_f") else 0.0
        center *= name.endswith("weight")
        tensors[name] = (center + 0.5 * rng.standard_normal(shape)).astype(np.float32)
    return config, tensors


def bigram(P, n_positions=64, **fields):
    """A GPT-2 whose next-token probabilities after token j are the row P[j], all above 0.

    Attention contributes nothing. The embedding of token j is one-hot, hidden unit j of the MLP
    answers to it alone (tanh-GELU gives exactly 32 there and 0 elsewhere), and the second matrix
    of the MLP turns it into the row wanted.
    """
    log_p = np.log(np.asarray(P, dtype=np.float64))
    V = len(log_p)
    d = V + 2
    config = config_dict(V, 1, 1, d, n_positions, layer_norm_epsilon=1e-5, **fields)
    tensors = {name: np.zeros(shape) for name, shape in tensor_shapes(config).items()}
    wte = tensors["wte.weight"]
    wte[:, :V] = np.eye(V)
    tensors["h.0.ln_1.weight"] += 1
    tensors["h.0.ln_2.weight"] += 1

    hot = math.sqrt(d - 1)  # a normalised one-hot row: this at the hot place, -1/hot elsewhere
    slope = 64 / (hot + 1 / hot)
    tensors["h.0.mlp.c_fc.weight"][:V, :V] = slope * np.eye(V)
    tensors["h.0.mlp.c_fc.bias"][:] = -32
    tensors["h.0.mlp.c_fc.bias"][:V] = 32 - slope * hot
    rows, gain = _normalised_rows(log_p, d)
    tensors["h.0.mlp.c_proj.weight"][:V] = (rows - wte) / 32
    tensors["ln_f.weight"][:V] = gain * math.sqrt(1 + 1e-5)
    return config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def _normalised_rows(log_p, d):
    """Rows t [V, d] of mean 0 and variance 1, and G, so that G * t[:, :V] is log_p, row-centred."""
    L = log_p - log_p.mean(axis=1, keepdims=True)
    gain = max(1.0, 1.2 * math.sqrt((L**2).sum(axis=1).max() / d))
    t = L / gain
    total, rest = t.sum(axis=1), d - (t**2).sum(axis=1)  # u + v = -total, u^2 + v^2 = rest
    root = np.sqrt(2 * rest - total**2)
    return np.column_stack([t, (-total + root) / 2, (-total - root) / 2]), gain


def cycle(**fields):
    """V = 6, nearly certainly 0 -> 1 -> 2 -> 5 -> 3 -> 4 -> 0."""
    P = np.full((6, 6), 1e-9)
    for token, following in {0: 1, 1: 2, 2: 5, 5: 3, 3: 4, 4: 0}.items():
        P[token, following] = 1 - 5e-9
    return bigram(P, **fields)


PENALTY_LOGITS = np.array(
    [[-1.5, 1.5, 0.5, -0.5], [-0.5, -1.5, 1.5, 0.5], [1.5, -0.5, -1.5, 0.5], [0.5, 1.5, -0.5, -1.5]]
)


def penalty(**fields):
    """V = 4 with the centred logits `PENALTY_LOGITS`."""
    return bigram(np.exp(PENALTY_LOGITS), **fields)


def gelu_tanh(u):
    return 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))


def oracle_logits(config, tensors, tokens, activation=gelu_tanh):
    """The logits [n, V] after each of `tokens`, in float64, straight from the paper: no cache."""
    w = {name: np.asarray(tensor, dtype=np.float64) for name, tensor in tensors.items()}
    n, d, n_head = len(tokens), config["n_embd"], config["n_head"]
    d_head = d // n_head
    epsilon = config.get("layer_norm_epsilon", 1e-5)

    def norm(x, name):
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon)
        return x * w[name + ".weight"] + w[name + ".bias"]

    def affine(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["wte.weight"][list(tokens)] + w["wpe.weight"][:n]
    for layer in range(config["n_layer"]):
        h = f"h.{layer}."
        qkv = affine(norm(x, h + "ln_1"), h + "attn.c_attn")
        scale = 1 / math.sqrt(d_head) if config.get("scale_attn_weights", True) else 1.0
        if config.get("scale_attn_by_inverse_layer_idx", False):
            scale /= layer + 1
        heads = []
        for first in range(0, d, d_head):
            q, k, v = (qkv[:, part + first : part + first + d_head] for part in (0, d, 2 * d))
            scores = np.where(np.tri(n, dtype=bool), q @ k.T * scale, -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(weights / weights.sum(axis=1, keepdims=True) @ v)
        x = x + affine(np.concatenate(heads, axis=1), h + "attn.c_proj")
        u = activation(affine(norm(x, h + "ln_2"), h + "mlp.c_fc"))
        x = x + affine(u, h + "mlp.c_proj")
    untied = not config.get("tie_word_embeddings", True) and "lm_head.weight" in w
    return norm(x, "ln_f") @ w["lm_head.weight" if untied else "wte.weight"].T


def toy_tokenizer(vocab_size=None, merges=(), specials=(END_OF_TEXT,)):
    """A byte-level `tokenizers.Tokenizer`: an id for each byte, then each merge, then each special.

    a b c ... come first, so that 26 are letters. With `vocab_size` below 256 it holds the first so
    many alone, and its tokens are literal text: a byte-level vocabulary must have all bytes.
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    others = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(letters))
    names = [*letters, *others, *(left + right for left, right in merges)]
    if vocab_size is not None:
        names, merges, specials = names[:vocab_size], (), ()
    vocab = {name: i for i, name in enumerate(names)}
    backend = Tokenizer(models.BPE(vocab, list(merges)))
    if len(names) >= 256:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    return backend


def write(directory, config, tensors, tokenizer=None, dtype="F32", prefix="", shards=1):
    """Write a model directory, and return it; `tokenizer` is a `tokenizers.Tokenizer` or None.

    `dtype` is F32, F16, BF16 or F64; `prefix` is put before every name but the head's; more than
    one shard comes with an index.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if tokenizer is not None:
        tokenizer.save(str(directory / "tokenizer.json"))
    named = {n if n.startswith("lm_head") else prefix + n: t for n, t in tensors.items()}
    entries = {name: (dtype, t.shape, encode(t, dtype)) for name, t in named.items()}
    if shards == 1:
        write_safetensors(directory / "model.safetensors", entries)
        return directory
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: entries[name] for name in list(entries)[shard::shards]}
        write_safetensors(directory / file, part)
        weight_map |= dict.fromkeys(part, file)
    write_index(directory, weight_map)
    return directory


def write_index(directory, weight_map):
    index = {"metadata": {}, "weight_map": weight_map}
    path = directory / "model.safetensors.index.json"
    path.write_text(json.dumps(index), encoding="utf-8")


def write_safetensors(path, entries):
    """`entries`: name -> (dtype, shape, bytes); written by hand, so that it may also be wrong."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in entries.items():
        offsets = [end, end + len(data)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(data for _, _, data in entries.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def encode(tensor, dtype):
    """The bytes of `tensor` as safetensors stores them; BF16 drops the lower half of a float32."""
    if dtype == "BF16":
        return (np.asarray(tensor, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return tensor.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[dtype]).tobytes()


def assert_same_tensors(checkpoint, tensors):
    assert set(checkpoint) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(checkpoint[name], tensor)


class Fixed:
    """A schedule with these lengths, the last for ever."""

    def __init__(self, *lengths):
        self.lengths = list(lengths)

    def next(self):
        return self.lengths.pop(0) if len(self.lengths) > 1 else self.lengths[0]

    def observe(self, *_):
        pass


def decoder(target, prompt, **options):
    """The decoder under proof; at the top of a module, as other processes want it."""
    return speculative(target, DRAFT, prompt, num_draft_tokens=4, **options)


def four_paths(chance):
    return [chance.accept(0.5), chance.accept(0.25)]
