"""`minidecode generate`: a text, shown while it is written."""

import json
import math
import sys

from ..decoding.context import Context
from ..decoding.stream import text_of
from ..errors import InputError
from ..generation import generate, generate_many
from .options import (
    add_decoding,
    check_dependants,
    drawing_options,
    limit_options,
    model_options,
    prompt_of,
    stop_strings,
)
from .shared import (
    given,
    load,
    print_table,
    read_prompt,
    read_prompts,
    refuse_without_effect,
    visible,
)

SEPARATOR = "-" * 20  # between several texts
AT_ONCE = 8  # prompts of a file that are written together


def add(subparsers):
    parser = subparsers.add_parser(
        "generate",
        help="write a text",
        description="Write a text: sampled, at temperature 0.8 and top-p 0.95 unless set.",
    )
    parser.set_defaults(run=run)
    add_decoding(parser, max_new_tokens=200)
    parser.add_argument(
        "--prompts", metavar="FILE", help="write for each line of a file, several at once, as JSON"
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="then read lines from standard input, and go on after each",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--echo", action="store_true", help="show the prompt before the text")
    output.add_argument("--json", action="store_true", help="one object with ids, text, statistics")
    output.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="in JSON, the log-probability of each token and the N likeliest alternatives",
    )
    output.add_argument("--stats", action="store_true", help="statistics on standard error")


def run(args):
    check(args)
    options = drawing_options(args) | given(args, ["logprobs", "num_return_sequences"])
    prompts = read_prompts(args.prompts) if args.prompts is not None else [read_prompt(args)]
    model, tokenizer = load(args.model, args.dtype, args.ids)
    options |= model_options(args) | limit_options(args, tokenizer)
    if args.prompts is not None:
        write_lines(args, model, tokenizer, prompts, options)
    elif args.interactive:
        interact(args, model, tokenizer, prompts[0], options)
    else:
        write_text(args, model, tokenizer, prompts[0], options)


def check(args):
    """Refuse options without effect; needs nothing loaded."""
    check_dependants(args)
    if args.logprobs is not None and not (args.json or args.prompts):
        raise InputError("--logprobs has no effect without --json")
    if args.prompts is not None:
        names = ("prompt_file", "interactive", "echo", "stats", "num_return_sequences")
        refuse_without_effect(args, names, "with --prompts")
        if args.prompt is not None:
            raise InputError("prompt: got one beside --prompts, one of them was wanted")
    if args.interactive:
        names = ("json", "stats", "num_beams", "num_return_sequences", "penalty_alpha")
        refuse_without_effect(args, names, "with --interactive")
        if args.prompt == "-":
            raise InputError("prompt: standard input gives the lines of --interactive")


def write_text(args, model, tokenizer, prompt, options):
    """One prompt; shown while it is written, or as JSON at the end."""
    chance = options.get("chance")
    given_prompt = prompt_of(args, prompt, tokenizer)
    if args.json:
        result = generate(model, given_prompt, **options)
        print(json.dumps(as_json(args, prompt, tokenizer, result, chance)))
    else:
        shown = Shown(args, options, prompt if args.echo else "")
        result = generate(model, given_prompt, on_text=shown.show, **options)
        shown.begin()
        texts = [hypothesis_text(h, tokenizer, stop_strings(args)) for h in result.hypotheses]
        for text in texts[1:] or [one.text for one in result.sequences[1:]]:
            show(f"\n{SEPARATOR}\n{text}")
        if sys.stdout.isatty():
            print()
    tell_end_of_context(result)
    if args.stats:
        print_stats(result)


def write_lines(args, model, tokenizer, prompts, options):
    """Many prompts, AT_ONCE together: one JSON object a line. Seeds count on from the first."""
    first = options.pop("chance", None)
    for start in range(0, len(prompts), AT_ONCE):
        batch = prompts[start : start + AT_ONCE]
        chances = [first and type(first)(first.seed + start + i) for i in range(len(batch))]
        given_prompts = [prompt_of(args, prompt, tokenizer) for prompt in batch]
        results = generate_many(model, given_prompts, chances=chances, **options)
        for prompt, result, chance in zip(batch, results, chances):
            print(json.dumps(as_json(args, prompt, tokenizer, result, chance)), flush=True)


def interact(args, model, tokenizer, prompt, options):
    """Write after the prompt, then after each line of standard input; the context is kept."""
    context, ids, shown = Context(model), [], Shown(args, options)
    while prompt is not None:
        if prompt:
            ids += tokenizer.encode(prompt, special=not args.literal)
            result = generate(model, ids, on_text=shown.show, context=context, **options)
            shown.begin()
            ended = result.finish_reason == "eos"  # an end token would begin another text
            ids += result.tokens[:-1] if ended else result.tokens
            tell_end_of_context(result)
        prompt = next_line()


def next_line():
    """The next line of standard input, None at its end."""
    if sys.stdout.isatty():
        print("\n> ", end="", flush=True)
    line = "" if sys.stdin is None else sys.stdin.readline()
    return line.removesuffix("\n") if line else None


class Shown:
    """A text on standard output. The seed, and what is echoed, go before its first piece: only
    then is all checked, and a setting that is refused has nothing else printed beside it.
    """

    def __init__(self, args, options, echo=""):
        chance = options.get("chance")
        draws = chance is not None and args.temperature != 0
        self.seed = chance.seed if draws and args.seed is None else None
        self.echo, self.begun = echo, False

    def begin(self):
        """To be called at the end too: a text may be without a piece."""
        if self.begun:
            return
        self.begun = True
        if self.seed is not None:
            print(f"seed: {self.seed}", file=sys.stderr)
        if self.echo:
            show(self.echo)

    def show(self, piece):
        self.begin()
        show(piece)


def tell_end_of_context(result):
    if result.finish_reason == "context":
        sys.stdout.flush()
        print("minidecode: the text has filled the model's context", file=sys.stderr)


def show(text):
    """Write a piece of text at once; on a terminal, control characters as escapes."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def as_json(args, prompt, tokenizer, result, chance):
    facts = {
        "prompt": prompt,
        "prompt_ids": tokenizer.encode(prompt, special=not args.literal),
        "ids": result.tokens,
        "text": result.text,
        "finish_reason": result.finish_reason,
        "seed": getattr(chance, "seed", None),
        "stats": result.stats,
    }
    if result.logprobs:
        facts["logprobs"] = [logprobs_as_json(each, tokenizer) for each in result.logprobs]
    if result.sequences:
        seeds = [None if chance is None else chance.seed + i for i in range(len(result.sequences))]
        facts["sequences"] = [
            {"ids": one.tokens, "text": one.text, "finish_reason": one.finish_reason, "seed": seed}
            for one, seed in zip(result.sequences, seeds)
        ]
    if result.hypotheses:
        facts["hypotheses"] = [
            {
                "ids": each.tokens,
                "text": hypothesis_text(each, tokenizer, stop_strings(args)),
                "score": each.score,
                "finish_reason": each.finish_reason,
            }
            for each in result.hypotheses
        ]
    return facts


def logprobs_as_json(found, tokenizer):
    """JSON has no infinity: null stands for what is impossible."""

    def alternatives(top):
        return [{"id": i, "text": tokenizer.decode([i]), "logprob": value} for i, value in top]

    return {
        "id": found.token,
        "text": tokenizer.decode([found.token]),
        "logprob": None if found.logprob == -math.inf else found.logprob,
        "warped": None if found.warped == -math.inf else found.warped,
        "top": alternatives(found.top),
        "warped_top": alternatives(found.warped_top),
    }


def hypothesis_text(hypothesis, tokenizer, stop):
    return text_of(hypothesis.tokens, hypothesis.finish_reason, tokenizer, stop)


def print_stats(result):
    rows = [("finish_reason", result.finish_reason)]
    for name, value in result.stats.items():
        if isinstance(value, list):
            value = " ".join("n/a" if v is None else f"{v:.3f}" for v in value) or None
        rows.append((name, f"{value:.4g}" if isinstance(value, float) else value))
    sys.stdout.flush()
    print_table(rows, file=sys.stderr)
