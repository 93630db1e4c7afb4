"""The options that choose a decoder, of the commands that write a text."""

from ..decoding.chance import Dice, GumbelDice
from ..errors import InputError
from ..generation import NEEDS, missing_need
from ..speculation.drafts import PromptLookupDraft
from .shared import (
    SAMPLING_ONLY,
    add_dtype,
    add_model,
    add_prompt,
    add_warp,
    flag,
    given,
    given_warp,
    load,
    refuse_without_effect,
    unescape,
)

PROMPT_LOOKUP = "prompt-lookup"


def add_decoding(parser, max_new_tokens):
    """All options of a decoder; max_new_tokens is the default."""
    add_prompt(parser)
    add_model(parser)
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument("--greedy", action="store_true", help="always take the likeliest token")
    add_warp(sampling)
    sampling.add_argument(
        "--mirostat",
        type=float,
        metavar="BITS",
        help="cut so that the surprise per token stays near this; alone unless more is set",
    )
    parser.add_argument(
        "-n",
        "--max-new-tokens",
        type=int,
        default=max_new_tokens,
        metavar="N",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--min-new-tokens", type=int, metavar="N", help="no end token before so many (default: 0)"
    )
    add_draft(parser.add_argument_group("speculative decoding"))
    add_contrast(parser.add_argument_group("contrastive decoding"))
    add_search(parser.add_argument_group("contrastive search"))
    add_dtype(parser, "draft_dtype", "the draft, and of the amateur,")
    add_beams(parser.add_argument_group("beam search"))
    sampling.add_argument(
        "-s",
        "--seed",
        type=int,
        help="same seed, same text (default: a fresh one); "
        "greedy, beam and contrastive search need none",
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end before TEXT; repeatable (a line break: --escape, or $'\\n' in the shell)",
    )
    parser.add_argument(
        "--escape",
        action="store_true",
        help="in the prompt, --stop and --bad-words \\n \\t \\\\ \\x41 \\u00e9 are what they say",
    )
    parser.add_argument(
        "--eos",
        action="append",
        default=[],
        metavar="ID|TOKEN",
        help="end after this token, and no longer after the model's own; repeatable",
    )
    parser.add_argument("--ignore-eos", action="store_true", help="write on past an end token")
    parser.add_argument(
        "--literal", action="store_true", help="names of special tokens in the prompt are text"
    )
    parser.add_argument(
        "--ids", action="store_true", help="read and write token ids; needs no tokenizer"
    )


def add_draft(parser):
    """The options of speculative decoding."""
    parser.add_argument(
        "--draft",
        metavar="MODEL",
        help="decode speculatively with drafts from this model, or from the text itself: "
        f"{PROMPT_LOOKUP}",
    )
    parser.add_argument(
        "--num-draft-tokens", type=int, metavar="K", help="tokens to draft at first (default: 4)"
    )
    parser.add_argument("--schedule", help="constant (default), heuristic or auto: how K changes")
    parser.add_argument(
        "--verify", metavar="RULE", help="block (default) or token: which drafts are kept"
    )
    parser.add_argument(
        "--coupled",
        action="store_true",
        help="noise tied to positions: the same text with and without a draft",
    )


def add_contrast(parser):
    """The options of contrastive decoding."""
    parser.add_argument(
        "--amateur",
        metavar="MODEL",
        help="decode contrastively against this model; as --draft too: speculatively",
    )
    parser.add_argument(
        "--alpha", type=float, help="how plausible a token must be to the model (default: 0.1)"
    )
    parser.add_argument("--beta", type=float, help="strength of the later form of the score")
    parser.add_argument("--amateur-temperature", type=float, metavar="FLOAT", help="default: 1")


def add_search(parser):
    """The option of contrastive search, besides --top-k."""
    parser.add_argument(
        "--penalty-alpha",
        type=float,
        metavar="FLOAT",
        help="how much likeness to the text counts against a token, 0 to 1; of --top-k candidates "
        "(default: 4)",
    )


def add_beams(parser):
    """The options of beam search."""
    parser.add_argument("--num-beams", type=int, metavar="N", help="beam search with N beams")
    parser.add_argument(
        "--length-penalty", type=float, metavar="FLOAT", help="above 0 favours length (default: 1)"
    )
    parser.add_argument(
        "--early-stopping", choices=("true", "false", "never"), help="default: false"
    )
    parser.add_argument(
        "--num-return-sequences",
        type=int,
        metavar="N",
        help="texts to return (default: 1, with --stochastic all)",
    )
    parser.add_argument(
        "--stochastic",
        action="store_true",
        help="stochastic beam search: different texts, sampled without replacement",
    )
    parser.add_argument(
        "--num-beam-groups",
        type=int,
        metavar="N",
        help="diverse beam search: groups of beams, held off each other's tokens",
    )
    parser.add_argument(
        "--diversity-penalty",
        type=float,
        metavar="FLOAT",
        help="what a token costs for each beam of an earlier group that has it (default: 0.5)",
    )


def check_dependants(args):
    """Refuse options of a decoder that was not chosen; needs nothing loaded."""
    no_second_model = args.amateur is None and args.draft in (None, PROMPT_LOOKUP)
    if args.draft_dtype is not None and no_second_model:
        raise InputError("--draft-dtype has no effect without a draft model or an amateur")
    if args.eos and args.ignore_eos:
        raise InputError("--eos: cannot be combined with --ignore-eos")
    if args.literal and args.ids:
        raise InputError("--literal has no effect with --ids")
    without = missing_need(given(args, vars(args)))
    if without is not None:
        raise InputError("{} has no effect without {}".format(*map(flag, without)))


def drawing_options(args):
    """What is sampled, and how: arguments of `generate` from the command line's."""
    settings = given_warp(args)
    if args.stochastic:
        names = ("mirostat", "coupled", "greedy", "draft", "amateur", "penalty_alpha")
        refuse_without_effect(args, names, "with --stochastic")
        return {"chance": Dice(args.seed), "temperature": 0.8, "top_p": 0.95, **settings}
    if args.num_beams is not None:
        names = (*SAMPLING_ONLY, "mirostat", "coupled", "greedy", "draft", "penalty_alpha")
        refuse_without_effect(args, names, "with --num-beams")
        return settings
    if args.penalty_alpha is not None:
        shaping = [name for name in SAMPLING_ONLY if name != "top_k"]
        names = (*shaping, "mirostat", "coupled", "greedy", "draft", "amateur")
        refuse_without_effect(args, names, "with --penalty-alpha")
        return settings
    if args.greedy:
        refuse_without_effect(args, (*SAMPLING_ONLY, "mirostat", "coupled"), "with --greedy")
        return {"temperature": 0, **settings}
    if args.mirostat is not None:
        for name in given(args, ("draft", "amateur")):
            raise InputError(f"--mirostat: cannot be combined with {flag(name)}")
        settings = {"mirostat": args.mirostat} | settings
    elif args.amateur is None:
        settings = {"temperature": 0.8, "top_p": 0.95} | settings
    elif not given(args, (*SAMPLING_ONLY, "seed", "coupled")):
        return settings
    else:
        settings = {"temperature": 1.0} | settings
    return {"chance": (GumbelDice if args.coupled else Dice)(args.seed), **settings}


def model_options(args):
    """Further arguments of `generate`: those of beams, amateur and draft; loads their models."""
    options = beam_options(args) | contrast_options(args) | given(args, ["penalty_alpha"])
    return options | draft_options(args, options.get("amateur"))


def limit_options(args, tokenizer):
    """The arguments of `generate` that say when to stop."""
    limits = {"tokenizer": tokenizer, "max_new_tokens": args.max_new_tokens}
    return (
        limits
        | given(args, ["min_new_tokens"])
        | ({"stop": stop_strings(args)} if args.stop else {})
        | ({"eos": None} if args.ignore_eos else {})
        | ({"eos": [eos_id(name, tokenizer) for name in args.eos]} if args.eos else {})
    )


def eos_id(name, tokenizer):
    """The id that --eos means: a number, or the one token of that name."""
    if name.isascii() and name.isdecimal() and len(name) <= 18:
        return int(name)
    found = tokenizer.token_id(name)
    if found is None:
        raise InputError(f"--eos: got {name!r:.50}, an id or the name of one token was wanted")
    return found


def prompt_of(args, text, tokenizer):
    """The prompt as `generate` takes it: text, or with --literal and --ids the ids."""
    if not (args.literal or args.ids):
        return text
    return tokenizer.encode(text, special=not args.literal)


def stop_strings(args):
    return [unescape(text) for text in args.stop] if args.escape else args.stop


def draft_options(args, amateur=None):
    """The arguments of `generate` for speculative decoding; loads the draft."""
    if args.draft is None:
        return {}
    if args.draft == PROMPT_LOOKUP:
        draft = PromptLookupDraft()
    else:
        draft = (
            amateur
            if args.draft == args.amateur
            else load(args.draft, args.draft_dtype, args.ids)[0]
        )
    return {"draft": draft, **given(args, NEEDS["draft"])}


def contrast_options(args):
    """The arguments of `generate` for contrastive decoding; loads the amateur."""
    if args.amateur is None:
        return {}
    return {
        "amateur": load(args.amateur, args.draft_dtype, args.ids)[0],
        **given(args, NEEDS["amateur"]),
    }


def beam_options(args):
    """The arguments of `generate` for beam search."""
    if args.num_beams is None:
        return {}
    names = (*NEEDS["num_beams"], *NEEDS["num_beam_groups"], "num_return_sequences")
    options = {"num_beams": args.num_beams, **given(args, names)}
    if args.early_stopping in ("true", "false"):
        options["early_stopping"] = args.early_stopping == "true"
    return options
