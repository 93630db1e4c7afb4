"""A table as a model of transformers, for its `generate` and all that hangs on it.

The library's own cache holds the history: the "keys" that this model gives it *are* the token ids.
So a cache that the library cuts one token too short or too long is another history, another row,
and another law.
"""

import functools

import numpy as np

from ...errors import MinidecodeError
from ...models.table import TableModel

HINT = "pip install 'minidecode[peers]'"


def library():
    """transformers, or what to install."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        missing = error.name or "transformers"
        raise MinidecodeError(f"{missing} is not installed: {HINT}") from None
    return transformers


def TableLM(rows, *, window=None):
    """A model of transformers whose next-token probabilities are given.

    rows: a `TableModel`, or what one is made of: [V, V] probabilities, or a function of the history
    (a list of ids) to a row [V]. window: how many tokens back the model sees, for the library's
    cache with a sliding window; None is all. Logits are the logarithms in float32. End tokens and
    the like are given to `generate`, as for every model there.
    """
    return _class()(rows if isinstance(rows, TableModel) else TableModel(rows), window)


def _again(table, window):
    return TableLM(table, window=window)


@functools.cache
def _class():
    transformers = library()
    import torch

    class TableConfig(transformers.PretrainedConfig):
        model_type = "minidecode_table"

        def __init__(self, vocab_size=2, window=None, **kwargs):
            self.vocab_size = vocab_size
            if window is not None:
                self.sliding_window, self.layer_types = window, ["sliding_attention"]
            self.num_hidden_layers = self.num_attention_heads = self.hidden_size = 1
            self.max_position_embeddings = 1024
            super().__init__(**kwargs)

    class TableLM(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = TableConfig
        base_model_prefix = "model"

        def __init__(self, table, window):
            super().__init__(TableConfig(table.vocab_size, window))
            self.weight = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
            self.table, self.window, self.known = table, window, {}

        def forward(
            self,
            input_ids=None,
            cache=None,
            past_key_values=None,
            attention_mask=None,
            position_ids=None,
            use_cache=None,
            logits_to_keep=0,
            **kwargs,
        ):
            """logits [1, n, V] after each of input_ids [1, n], all that the cache holds before."""
            cache = past_key_values if cache is None else cache
            cache = transformers.DynamicCache() if cache is None else cache
            keys = input_ids[:, None, :, None].float()  # [1, 1, n, 1]
            held, _ = cache.update(keys, keys, 0)
            history = held[0, 0, :, 0].long().tolist()
            ends = range(len(history) - input_ids.shape[1] + 1, len(history) + 1)
            first = [max(0, end - (self.window or end)) for end in ends]
            seen = [tuple(history[start:end]) for start, end in zip(first, ends)]
            logits = torch.stack([self.logits_after(each) for each in seen])[None]
            if isinstance(logits_to_keep, int) and logits_to_keep:
                logits = logits[:, -logits_to_keep:]
            return _output(logits, cache)

        def logits_after(self, history):
            """The logits [V] after a tuple of ids."""
            if history not in self.known:
                with np.errstate(divide="ignore"):
                    row = np.log(self.table.row(history))
                self.known[history] = torch.tensor(row, dtype=torch.float32)
            return self.known[history]

        def __reduce__(self):  # for other processes; the class itself has no name there
            return _again, (self.table, self.window)

    def _output(logits, cache):
        """The cache stands under the name that this version of the library reads."""
        kind = transformers.modeling_outputs.CausalLMOutputWithPast
        name = "cache" if "cache" in kind.__dataclass_fields__ else "past_key_values"
        return kind(logits=logits, **{name: cache})

    return TableLM
