"""What `minidecode verify --library transformers` runs: settings that should be exact, and are,
and deviations that are known, each on the smallest tables that show it.

A setting is compared with the library's own plain sampling under the same options. Its arithmetic
is float32, so laws that agree do so to about 1e-7; 1e-6 counts as exact.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...models.table import TableModel
from .. import exact
from ..mistakes import ROWS, target_row
from .choices import choices
from .transformers import TableLM, library

TOLERANCE = 1e-6
FOUND_IN = "5.24.0"  # the version that the deviations below were found in
PROMPT = (0, 1, 0)


def draft_row(history):
    """q of a draft that looks at all that came before, too."""
    return ROWS[(1 + sum((i + 2) * token for i, token in enumerate(history))) % len(ROWS)][::-1]


# ------------------------------------------------------------------------------ one program


@dataclass(frozen=True)
class Generating:
    """`chance -> new ids` of transformers' `generate`, sampled.

    options go to `generate`, draft_options to the draft's generation config; eos: the end token of
    both. Every path begins with new configs, as `generate` writes into the draft's.
    """

    target: object
    draft: object = None
    prompt: tuple = PROMPT
    eos: int | None = None
    options: dict = field(default_factory=dict)
    draft_options: dict = field(default_factory=dict)

    def __call__(self, chance):
        import torch

        self._configure(self.target)
        if self.draft is not None:
            self._configure(self.draft, **self.draft_options)
        with choices(chance), torch.no_grad():
            ids = self.target.generate(
                torch.tensor([self.prompt]),
                attention_mask=torch.ones(1, len(self.prompt), dtype=torch.long),
                assistant_model=self.draft,
                do_sample=True,
                **{"top_k": 0, **self.options},
            )
        return ids[0, len(self.prompt) :].tolist()

    def _configure(self, model, **options):
        model.generation_config = library().GenerationConfig(
            eos_token_id=self.eos, pad_token_id=0, bos_token_id=None, **options
        )


# ----------------------------------------------------------------------- ordinary settings


def ordinary(
    options=None, *, k=2, threshold=0.0, schedule="constant", eos=None, lookup=None, window=None
):
    """`Report` of assisted sampling (or prompt lookup, of `lookup` tokens) of three tokens."""
    target = TableLM(target_row, window=window)
    draft = None if lookup else TableLM(draft_row, window=window)
    options = {"max_new_tokens": 3, **(options or {})}
    draft_options = {
        "num_assistant_tokens": k,
        "assistant_confidence_threshold": threshold,
        "num_assistant_tokens_schedule": schedule,
    }
    plain = Generating(target, eos=eos, options=options)
    if lookup:
        options = {**options, "prompt_lookup_num_tokens": lookup}
    assisted = Generating(target, draft, PROMPT, eos, options, draft_options)
    return exact.compare(assisted, plain, tolerance=TOLERANCE)


def speculative_sampling_alone():
    """The library's rule of verification, without its loop: two rows of p, one of q."""
    import torch

    rule = library().generation.utils._speculative_sampling
    p, q = ROWS[:2], ROWS[2:3]
    p_logits, q_logits = (torch.tensor(np.log(rows))[None].float() for rows in (p, q))

    def program(chance):
        with choices(chance):
            drafted = torch.tensor([[chance.choose(q[0], 0)]])
            tokens = rule(drafted, q_logits, 1, p_logits)[0][0].tolist()
        return tokens if len(tokens) == 2 else [*tokens, chance.choose(p[1], 1)]

    def plain(chance):
        return [chance.choose(row, 0) for row in p]

    return exact.compare(program, plain, tolerance=TOLERANCE)


ORDINARY = {
    "k = 1": lambda: ordinary(k=1),
    "k = 2": lambda: ordinary(),
    "k = 3": lambda: ordinary({"max_new_tokens": 4}, k=3, eos=2),
    "k = 1, heuristic schedule": lambda: ordinary(
        {"max_new_tokens": 4}, k=1, schedule="heuristic", eos=2
    ),
    "confidence threshold 0.4": lambda: ordinary(threshold=0.4),
    "temperature 0.5": lambda: ordinary({"temperature": 0.5}),
    "temperature 1.5, top-k 2": lambda: ordinary({"temperature": 1.5, "top_k": 2}),
    "top-p 0.8": lambda: ordinary({"top_p": 0.8}),
    "min-p 0.4": lambda: ordinary({"min_p": 0.4}),
    "typical-p 0.8": lambda: ordinary({"typical_p": 0.8}),
    "epsilon 0.25": lambda: ordinary({"epsilon_cutoff": 0.25}),
    "repetition penalty 2": lambda: ordinary({"repetition_penalty": 2.0}),
    "no repeated 2-gram": lambda: ordinary({"no_repeat_ngram_size": 2}),
    "a bad word of two tokens": lambda: ordinary({"bad_words_ids": [[1, 2]]}),
    "end token": lambda: ordinary(eos=2),
    "end token, at least two tokens": lambda: ordinary({"min_new_tokens": 2}, eos=2),
    "end token forced at the end": lambda: ordinary({"forced_eos_token_id": 2}, eos=2),
    "prompt lookup": lambda: ordinary(lookup=1),
    "prompt lookup, end token": lambda: ordinary(lookup=1, eos=2),
    "cache with a sliding window of 2": lambda: ordinary(window=2),
    "_speculative_sampling alone": speculative_sampling_alone,
}


# ------------------------------------------------------------------------ known deviations


def other_tokenizer(order=("z", "b", " ", "a")):
    """A. The draft has a tokenizer of its own: the same letters at other ids, and one more.

    order: in which the draft tokenizer's `get_vocab()` lists its tokens. By itself it is another
    one in each process. Tokens are mapped by that order, logits by ascending id: in the default
    order the letter that the draft likes, b, has the q of the space, which the target likes.
    """
    import torch

    tokenizer, other = _letters("ab "), _letters("z ab")
    ids = other.get_vocab()
    other.get_vocab = lambda: {letter: ids[letter] for letter in order}
    cache = library().generation.candidate_generator.AssistantVocabTranslatorCache
    target = TableLM([[0.1, 0.1, 0.8]] * 3)  # a, b, space
    options = {"max_new_tokens": 2}
    plain = Generating(target, prompt=(0,), options=options)
    options = {**options, "tokenizer": tokenizer, "assistant_tokenizer": other}

    def assisted(chance):
        cache._cache.clear()  # it keeps what it changed in a draft, and its order
        with torch.random.fork_rng(devices=[]):  # its new layers draw their first weights
            draft = _with_head(TableLM([[0.1, 0.1, 0.1, 0.7]] * 4))  # z, space, a, b
        draft_options = {"num_assistant_tokens": 1, "assistant_confidence_threshold": 0.0}
        return Generating(target, draft, (0,), None, options, draft_options)(chance)

    return exact.compare(assisted, plain, tolerance=TOLERANCE)


def single_position_drafts(k=1):
    """B. Drafts of Gemma 4's assistants are argmax, and are tested against a soft q."""
    target, draft = _gemma_like([[0.51, 0.49]] * 2)
    options = {"max_new_tokens": 3}
    plain = Generating(target, prompt=(0,), options=options)
    assisted = Generating(target, draft, (0,), None, options, {"num_assistant_tokens": k})
    return exact.compare(assisted, plain, tolerance=TOLERANCE)


def guidance(k=1, lookup=None):
    """C. The guidance processor's own cache is fed once per tested token and never cut back."""

    def row(history):  # by the number of tokens seen: a cache that is too long shows
        return [[0.8, 0.2], [0.4, 0.6]][len(history) % 2]

    target = TableLM(row)
    draft = None if lookup else TableLM([[0.5, 0.5]] * 2)
    options = {"max_new_tokens": 3, "guidance_scale": 1.5}
    plain = Generating(target, options=options)
    options = options | ({"prompt_lookup_num_tokens": lookup} if lookup else {})
    draft_options = {"num_assistant_tokens": k, "assistant_confidence_threshold": 0.0}
    assisted = Generating(target, draft, PROMPT, None, options, draft_options)
    return exact.compare(assisted, plain, tolerance=TOLERANCE)


def stopping_criterion(k=2, lookup=None):
    """D. A stopping criterion of one's own is asked once per round, about its last token."""
    target = TableLM([[0.5, 0.5]] * 2)
    draft = None if lookup else TableLM([[0.5, 0.5]] * 2)
    options = {"max_new_tokens": 3, "stopping_criteria": [_at_token_1]}
    plain = Generating(target, options=options)
    options = options | ({"prompt_lookup_num_tokens": lookup} if lookup else {})
    draft_options = {"num_assistant_tokens": k, "assistant_confidence_threshold": 0.0}
    assisted = Generating(target, draft, PROMPT, None, options, draft_options)
    return exact.compare(assisted, plain, tolerance=TOLERANCE)


def _at_token_1(ids, scores, **_):
    import torch

    return torch.tensor([bool(ids[0, -1] == 1)])


@dataclass(frozen=True)
class Deviation:
    """A deviation that is known: what it is, where it was reported, and its smallest tables."""

    what: str
    tables: str
    reported: str
    reports: dict[str, Callable]


KNOWN = {
    "A": Deviation(
        "a draft with another tokenizer, sampled: q stands at the wrong ids",
        "p (a, b, space) = (0.1, 0.1, 0.8); q (z, space, a, b) = (0.1, 0.1, 0.1, 0.7); 2 tokens",
        "no public report was found",
        {
            "k = 1, get_vocab() by ascending id": lambda: other_tokenizer(tuple("z ab")),
            "k = 1, get_vocab() in the order z, b, space, a": other_tokenizer,
        },
    ),
    "B": Deviation(
        "drafts of Gemma 4's assistants, sampled: argmax drafts, tested against a soft q",
        "p = q = (0.51, 0.49); 3 tokens",
        "huggingface/transformers #47932, August 2026; the other drafts it names were mended",
        {"k = 1": single_position_drafts},
    ),
    "C": Deviation(
        "guidance_scale with drafts: the guidance's own cache is never rolled back",
        "p = (0.8, 0.2) after an even number of tokens, else (0.4, 0.6); q = (0.5, 0.5); 3 tokens, "
        "scale 1.5",
        "no public report was found",
        {
            "k = 1": guidance,
            "k = 2": lambda: guidance(2),
            "prompt lookup": lambda: guidance(lookup=2),
        },
    ),
    "D": Deviation(
        "a stopping criterion of one's own: asked once per round, the text goes on past it",
        "p = q = (0.5, 0.5); 3 tokens, stop at token 1",
        "for stop strings: huggingface/transformers #48039, August 2026; the loop's own comment "
        "names it",
        {
            "k = 2": stopping_criterion,
            "prompt lookup": lambda: stopping_criterion(lookup=2),
        },
    ),
}


def report(name):
    """The `exact.Report` of one setting, by name ("k = 2", "A: ..."): for other processes too.

    A sentence where the library raises, as another version may that has changed its insides.
    """
    with _quiet():
        try:
            return settings()[name]()
        except Exception as error:
            return f"could not be run: {type(error).__name__}: {error}".splitlines()[0]


def is_exact(report):
    """Whether a report, or a sentence in its place, says that the laws agree."""
    return not isinstance(report, str) and report.passed


def settings():
    """{name: function} of all, the ordinary ones first."""
    known = {f"{key}: {name}": f for key, each in KNOWN.items() for name, f in each.reports.items()}
    return {**ORDINARY, **known}


@contextlib.contextmanager
def _quiet():
    """The library's warnings about tiny models are off, and its threads are not needed."""
    import torch

    log, threads = library().logging, torch.get_num_threads()
    level = log.get_verbosity()
    log.set_verbosity_error()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        log.set_verbosity(level)
        torch.set_num_threads(threads)


# ------------------------------------------------------------------- models of other shapes


def _letters(text):
    """A tokenizer of transformers whose tokens are these letters, with ids in order."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {letter: i for i, letter in enumerate(text)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=text[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return library().PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=None)


def _with_head(table):
    """A table behind an embedding and a head, which the library cuts to the tokens in common."""
    import torch

    class WithHead(type(table)):
        def __init__(self, inner):
            super().__init__(inner, None)
            size = inner.vocab_size
            self.embedding = torch.nn.Embedding(size, 1)
            self.embedding.weight.data[:] = torch.arange(size)[:, None].float()
            self.head = torch.nn.Linear(size, size, bias=False)
            self.head.weight.data[:] = torch.eye(size)

        def get_input_embeddings(self):
            return self.embedding

        def set_input_embeddings(self, value):
            self.embedding = value

        def get_output_embeddings(self):
            return self.head

        def set_output_embeddings(self, value):
            self.head = value

        def forward(self, input_ids=None, **kwargs):
            output = super().forward(self.embedding(input_ids)[..., 0].round().long(), **kwargs)
            output.logits = self.head(output.logits.clamp(min=-1e4))  # 0 * inf would be NaN
            return output

    return WithHead(table.table)


def _gemma_like(rows):
    """(target, draft) of the shapes that the library's drafts for Gemma 4 work with."""
    import torch

    base = type(TableLM(rows))

    class Gemma4Table(base):
        def __init__(self, inner):
            super().__init__(inner, None)
            self.embedding = torch.nn.Embedding(inner.vocab_size, 1)
            self.embedding.weight.data[:] = torch.arange(inner.vocab_size)[:, None].float()

        def get_input_embeddings(self):
            return self.embedding

        def forward(self, input_ids=None, **kwargs):
            output = super().forward(input_ids, **kwargs)
            output.hidden_states = (torch.zeros(*input_ids.shape, 1),)
            output.shared_kv_states = {}
            return output

    class Gemma4AssistantTable(base):
        def __init__(self, inner):
            super().__init__(inner, None)

        def forward(self, inputs_embeds=None, **kwargs):
            token = int(inputs_embeds[0, -1, 0].round())
            output = library().modeling_outputs.CausalLMOutputWithPast(
                logits=self.logits_after((token,))[None, None]
            )
            output.last_hidden_state = torch.zeros(1, 1, 1)
            return output

    return tuple(kind(TableModel(rows)) for kind in (Gemma4Table, Gemma4AssistantTable))
