"""GPT-2 (Radford et al. 2019): tokens in, logits of the next token out, keys and values cached.

Names are those of the checkpoint. Shapes: n new tokens, t tokens in the cache, d width, h heads,
V vocabulary. With the compiled kernels a token's logits are the same bit for bit however the tokens
are split into calls and whatever other sequences run beside them; with NumPy to rounding.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from ..checks import check_batch
from ..kernels import ACTIVATIONS, Packed, attention, layer_norm, linear
from .kv_cache import KVCache
from .weights import EMBEDDING, HEAD, Weights

LONG = 256  # tokens in one pass that are worth a progress bar


@dataclass(frozen=True)
class Block:
    """One layer's weights; every matrix is packed [in, out]."""

    ln_1: tuple[np.ndarray, np.ndarray, float]  # weight [d], bias [d], epsilon
    attn_c_attn: tuple[Packed, np.ndarray]  # d -> 3d
    attn_c_proj: tuple[Packed, np.ndarray]  # d -> d
    ln_2: tuple[np.ndarray, np.ndarray, float]
    mlp_c_fc: tuple[Packed, np.ndarray]  # d -> n_inner
    mlp_c_proj: tuple[Packed, np.ndarray]  # n_inner -> d


class GPT2:
    """`weights` maps names (without `transformer.`) to float32 arrays; each is read once.

    Its matrices are stored as `dtype`, one of `kernels.DTYPES`; or they come packed in `weights`, a
    `Weights` or `PackedFile`. `unknown_ids` are ids that no tokenizer entry stands for: their
    logits are -inf, always. `watch`, when set, is given the layers of each long pass to iterate
    over: a progress bar.
    """

    def __init__(self, config, weights, unknown_ids=(), dtype="float32"):
        weights = weights if hasattr(weights, "matrix") else Weights(weights, dtype)
        self.config = config
        self.dtype = weights.dtype
        self.vocab_size = config.vocab_size
        self.n_positions = config.n_positions
        self.eos = tuple(config.eos_token_ids)
        self.bos = config.bos_token_id
        self.hidden_size = config.n_embd  # of the hidden states that `forward` can return
        self.watch = None
        self.tokenizer = None  # the one it was loaded with, if any
        self._unknown_ids = _as_slice(np.asarray(unknown_ids, dtype=np.int64))
        # The embedding comes first: it is the largest, and while it is packed it exists twice.
        tied = config.tie_word_embeddings or HEAD not in weights
        self.head = weights.rows(EMBEDDING if tied else HEAD)  # [d, V]
        self.embedding = self.head if tied else weights.rows(EMBEDDING)
        self.wpe = weights.vector("wpe.weight")  # [n_positions, d]
        epsilon = float(config.layer_norm_epsilon)  # 1 is a number too
        self.blocks = [_read_block(weights, f"h.{i}.", epsilon) for i in range(config.n_layer)]
        self.ln_f = _read_norm(weights, "ln_f", epsilon)
        self._activation = ACTIVATIONS[config.activation_function]
        self._heads = 3, config.n_head, config.head_dim
        self._scales = [_attention_scale(config, layer) for layer in range(config.n_layer)]

    def __repr__(self):
        layers, width = self.config.n_layer, self.config.n_embd
        return (
            f"GPT2({layers} layers, width {width}, {self.vocab_size} ids, "
            f"{self.n_positions} positions, {self.dtype})"
        )

    def named_weights(self):
        """(name, vector or packed matrix) of all, under the names of the checkpoint."""
        yield EMBEDDING, self.embedding
        if self.head is not self.embedding:
            yield HEAD, self.head
        yield "wpe.weight", self.wpe
        for i, block in enumerate(self.blocks):
            for field in ("ln_1", "attn_c_attn", "attn_c_proj", "ln_2", "mlp_c_fc", "mlp_c_proj"):
                name = field.replace("attn_", "attn.", 1).replace("mlp_", "mlp.")
                weight, bias, *_ = getattr(block, field)
                yield f"h.{i}.{name}.weight", weight
                yield f"h.{i}.{name}.bias", bias
        yield "ln_f.weight", self.ln_f[0]
        yield "ln_f.bias", self.ln_f[1]

    def new_cache(self):
        c = self.config
        return KVCache(c.n_layer, c.n_head, c.head_dim, c.n_positions)

    def forward(self, tokens, cache, n_logits=1, hidden=False):
        """Append `tokens` to `cache`; the logits [n_logits, V] after the last n_logits of them.

        With `hidden` the pair (logits, hidden states [n, d] of all `tokens`): what the last layer
        hands to the head, after ln_f.
        Errors: `InputError` for an id outside [0, V) or an n_logits outside 0 .. len(tokens);
        `ContextError` when cache and tokens do not fit n_positions. An error leaves the cache as
        it was.
        """
        return self.forward_many([(tokens, cache)], n_logits, hidden)[0]

    def forward_many(self, batch, n_logits=1, hidden=False):
        """`forward` for several (tokens, cache) at once; n_logits is one number, or one each.

        All rows go through the matrix products together, so the weights are read once for all.
        """
        tokens, counts = check_batch(batch, n_logits, self.vocab_size)
        for ids, (_, cache) in zip(tokens, batch, strict=True):
            cache.reserve(len(ids))
        spans, end = [], 0  # (slice of the rows, cache) for each sequence
        for ids, (_, cache) in zip(tokens, batch, strict=True):
            spans.append((slice(end, end + len(ids)), cache))
            end += len(ids)
        if not spans:
            return []

        positions = [np.arange(c.length, c.length + len(t)) for t, (_, c) in zip(tokens, spans)]
        x = self.embedding.columns(_joined(tokens)) + self.wpe[_joined(positions)]  # [n, d]
        blocks = self.blocks if self.watch is None or end < LONG else self.watch(self.blocks)
        for layer, block in enumerate(blocks):
            x = self._attend(x, block, layer, spans)
            x = self._mlp(x, block)
        # A row's norm needs no other row, so it comes last where the rest is not asked for.
        states = layer_norm(x, *self.ln_f) if hidden else x
        last = _joined([states[s.stop - count : s.stop] for (s, _), count in zip(spans, counts)])
        last = last if hidden else layer_norm(last, *self.ln_f)
        logits = linear(last, self.head)  # [rows, V]
        if self._unknown_ids is not None:
            logits[:, self._unknown_ids] = -np.inf
        for rows, cache in spans:  # last, so that an interrupted pass leaves them as they were
            cache.advance(rows.stop - rows.start)
        ends = itertools.accumulate(counts)
        split = [logits[end - count : end] for end, count in zip(ends, counts)]
        return [(row, states[s]) for row, (s, _) in zip(split, spans)] if hidden else split

    def _attend(self, x, block, layer, spans):
        """x + attention: each token's query meets the keys of the tokens up to it."""
        qkv = linear(x, *block.attn_c_attn, norm=block.ln_1)  # [n, d] -> [n, 3d]
        qkv = qkv.reshape(len(x), *self._heads).transpose(1, 2, 0, 3)  # [3, h, n, d/h]
        scale, heads = self._scales[layer], []
        for rows, cache in spans:
            cache.write(layer, qkv[1:, :, rows])
            q = qkv[0, :, rows].swapaxes(0, 1)  # [n, h, d/h]
            heads.append(attention(q, cache.pages, layer, cache.length, scale))
        merged = _joined(heads).reshape(x.shape)  # [n, h, d/h] -> [n, d]
        return linear(merged, *block.attn_c_proj, added=x)

    def _mlp(self, x, block):
        """x + MLP: each token by itself."""
        hidden = linear(x, *block.mlp_c_fc, norm=block.ln_2, activation=self._activation)
        return linear(hidden, *block.mlp_c_proj, added=x)  # [n, n_inner] -> [n, d]


def _attention_scale(config, layer):
    scale = config.head_dim**-0.5 if config.scale_attn_weights else 1.0
    return scale / (layer + 1) if config.scale_attn_by_inverse_layer_idx else scale


def _joined(parts):
    """The parts behind each other; without a copy where there is one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _as_slice(ids):
    """Ascending ids as a slice where they are one run, as in a padded vocabulary: far faster.

    None where there are none.
    """
    if not len(ids):
        return None
    if ids[-1] - ids[0] == len(ids) - 1:
        return slice(int(ids[0]), int(ids[-1]) + 1)
    return ids


def _read_norm(weights, name, epsilon):
    return weights.vector(name + ".weight"), weights.vector(name + ".bias"), epsilon


def _read_matrix(weights, name):
    return weights.matrix(name + ".weight"), weights.vector(name + ".bias")


def _read_block(weights, prefix, epsilon):
    return Block(
        ln_1=_read_norm(weights, prefix + "ln_1", epsilon),
        attn_c_attn=_read_matrix(weights, prefix + "attn.c_attn"),
        attn_c_proj=_read_matrix(weights, prefix + "attn.c_proj"),
        ln_2=_read_norm(weights, prefix + "ln_2", epsilon),
        mlp_c_fc=_read_matrix(weights, prefix + "mlp.c_fc"),
        mlp_c_proj=_read_matrix(weights, prefix + "mlp.c_proj"),
    )
