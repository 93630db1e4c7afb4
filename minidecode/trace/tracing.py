"""One call for a whole trace, as `generate` is for a text: it runs the decoder and keeps all."""

import html
from typing import Any

from .. import generation
from ..decoding.chance import is_coupled
from ..decoding.contracts import Chance, EndIds, Model, Prompt, StopStrings, Tokenizer
from ..decoding.run import FROM_MODEL
from ..decoding.warp import SETTINGS, Warp
from ..generation import Choice, check_names, choose
from ..models.labels import Spelling
from .beam import Tree, trace_beam, trace_diverse_beam
from .contrastive import trace_contrastive, trace_speculative_contrastive
from .contrastive_search import trace_contrastive_search
from .page import Recording, page, summary
from .sampling import trace_sample
from .speculative import trace_speculative
from .terminal import head_lines, step_lines, tree_lines

TRACERS: dict[Any, Any] = {
    generation.sample: trace_sample,
    generation.beam_search: trace_beam,
    generation.diverse_beam_search: trace_diverse_beam,
    generation.contrastive: trace_contrastive,
    generation.contrastive_search: trace_contrastive_search,
    generation.speculative: trace_speculative,
    generation.speculative_contrastive: trace_speculative_contrastive,
}
ABOUT = {  # two sentences for someone who has never heard of it
    generation.SAMPLING: "At each position the model gives every token a probability, and the "
    "settings cut some of them off. One of those that are left is drawn by chance.",
    generation.GREEDY: "At each position the model gives every token a probability. The likeliest "
    "one is taken, so nothing is left to chance.",
    generation.BEAMS: "Several texts grow side by side, and at each step only those with the "
    "highest sums of log-probabilities go on. Of those that are finished, the one with the best "
    "score, sum / length ** penalty, is the answer.",
    generation.DIVERSE_BEAMS: "Groups of texts grow side by side, each as in a beam search of its "
    "own, but a token that earlier groups took in the same step costs a penalty. Of all that are "
    "finished, the one with the best score, sum / length ** penalty, is the answer.",
    generation.CONTRASTIVE_BEAMS: "Several texts grow side by side, each token scored by how much "
    "more an expert model likes it than a weak amateur. At each step only those with the highest "
    "sums go on, and the finished one with the best score is the answer.",
    generation.SPECULATIVE: "A small, fast model, the draft, guesses several tokens ahead; the "
    "large model, the target, then checks all of them in a single pass and keeps the first ones "
    "as far as chance lets them stand. The first that falls is replaced, in such a way that the "
    "text is distributed exactly as if the target had written it alone.",
    generation.CONTRASTIVE: "Tokens that a strong model, the expert, finds far less likely than "
    "its favourite are left out. Among the rest, those score best that the expert likes much more "
    "than a weak model, the amateur.",
    generation.CONTRASTIVE_SEARCH: "At each position a few of the likeliest tokens are looked at. "
    "The one with the best score is taken: its probability counts for it, and against it how much "
    "the model's picture of it is like that of a token the text already holds.",
    generation.SPECULATIVE_CONTRASTIVE: "The amateur guesses several tokens ahead, and one pass "
    "of the expert checks them against the scores of expert over amateur. The text is distributed "
    "exactly as if those scores had chosen each token one by one.",
}


def steps_of(choice: Choice, prompt: Prompt) -> Any:
    """The `Traced` steps of the decoder chosen, or the `Tree` of a beam search."""
    return TRACERS[choice.decoder.function](*choice.models, prompt, **choice.options)


def recording_of(choice: Choice, prompt: str, settings: dict[str, Any]) -> Recording:
    """A `Recording` without steps yet; settings: {name: value} that are shown as they are."""
    decoder = choice.decoder
    return Recording(decoder.title, prompt, settings, decoder.roles, about=ABOUT[decoder])


def warp_and_seed(choice: Choice) -> dict[str, Any]:
    """{name: value} of the settings that are on, and the seed where chance has a part."""
    warp, chance = choice.options.get("warp", Warp()), choice.options.get("chance")
    shown = {name: getattr(warp, name) for name in SETTINGS}
    shown = {name: value for name, value in shown.items() if value != SETTINGS[name].off}
    if chance is not None and hasattr(chance, "seed"):
        shown["seed"] = f"{chance.seed}, coupled" if is_coupled(chance) else chance.seed
    return shown


class TracedText:
    """A text with all that happened at each token.

    In a notebook it shows itself as the page; `print` writes it as lines. recording: the facts;
    text, tokens: what was written.
    """

    def __init__(self, recording: Recording, tokenizer: Tokenizer, end_ids: Any = ()) -> None:
        self.recording, self.tokenizer, self.end_ids = recording, tokenizer, end_ids

    @property
    def tokens(self) -> list[int]:
        """The new ids; of a beam search those of the best hypothesis."""
        if self.recording.tree is not None:
            best = self.recording.tree.hypotheses[:1]
            return [token for hypothesis in best for token in hypothesis.tokens]
        return [token for traced in self.recording.steps for token in traced.step.tokens]

    @property
    def text(self) -> str:
        """The new tokens as text."""
        return self.tokenizer.decode(self.tokens)

    def page(self) -> str:
        """The trace as one HTML page that needs no other file."""
        return page(self.recording, self.tokenizer, self.end_ids)

    def lines(self, *, explain: bool = False, colour: bool = False, width: int | None = None):
        """The trace as lines for a terminal of `width` columns, as `minidecode trace` prints it."""
        spelling = Spelling(self.tokenizer, self.end_ids)
        style = {"colour": colour, "explain": explain, "width": width}
        if self.recording.tree is not None:
            return tree_lines(self.recording.tree, spelling, **style)
        lines = []
        for number, traced in enumerate(self.recording.steps, 1):
            if explain and number == 1:
                lines += head_lines(traced, width)
            lines += step_lines(number, traced, spelling, **style)
        return lines

    def __str__(self) -> str:
        return "\n".join([*self.lines(), summary(self.recording)])

    def __repr__(self) -> str:
        return f"<{self.recording.title}, traced: {summary(self.recording)}>"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that a notebook's names and styles stay apart."""
        return (
            f'<iframe title="{html.escape(self.recording.title)}" sandbox="allow-scripts" '
            'style="width: 100%; height: 46rem; border: 0" '
            f'srcdoc="{html.escape(self.page())}"></iframe>'
        )


def traced(
    model: Model,
    prompt: Prompt,
    *,
    tokenizer: Tokenizer,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    eos: EndIds = FROM_MODEL,
    stop: StopStrings = (),
    warp: Warp | None = None,
    chance: Chance | None = None,
    mirostat: Any = None,
    draft: Any = None,
    num_draft_tokens: int | None = None,
    schedule: Any = None,
    verify: Any = None,
    amateur: Model | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    amateur_temperature: float | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    early_stopping: bool | str | None = None,
    num_return_sequences: int | None = None,
    num_beam_groups: int | None = None,
    diversity_penalty: float | None = None,
    penalty_alpha: float | None = None,
    **settings: Any,
) -> TracedText:
    """`generate` with a trace: the decoder, its options and its text are those of `generate`.

    prompt: text, or ids. settings: the fields of `Warp` (temperature, top_k, ...), instead of
    `warp`. Errors: as there.
    """
    given = {
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": min_new_tokens,
        "mirostat": mirostat,
        "num_draft_tokens": num_draft_tokens,
        "schedule": schedule,
        "verify": verify,
        "alpha": alpha,
        "beta": beta,
        "amateur_temperature": amateur_temperature,
        "num_beams": num_beams,
        "length_penalty": length_penalty,
        "early_stopping": early_stopping,
        "num_return_sequences": num_return_sequences,
        "num_beam_groups": num_beam_groups,
        "diversity_penalty": diversity_penalty,
        "penalty_alpha": penalty_alpha,
    }
    objects = {
        "tokenizer": tokenizer,
        "eos": eos,
        "stop": stop,
        "warp": warp,
        "chance": chance,
        "draft": draft,
        "amateur": amateur,
    }
    check_names("traced", settings, [*given, *objects])
    choice = choose(model, given | objects | settings)
    shown = {name: value for name, value in given.items() if value is not None}
    text = prompt if isinstance(prompt, str) else tokenizer.decode(list(prompt))
    recording = recording_of(choice, text, shown | warp_and_seed(choice))
    steps = steps_of(choice, prompt)
    if isinstance(steps, Tree):
        recording.tree = steps
    else:
        recording.steps += steps
    return TracedText(recording, tokenizer, model.eos)
