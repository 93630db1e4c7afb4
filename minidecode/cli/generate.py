"""`minidecode generate`: a text, shown while it is written."""

import json
import math
import sys

from ..decoding.stream import text_of
from ..errors import InputError
from ..generation import generate
from .options import (
    add_decoding,
    check_dependants,
    drawing_options,
    limit_options,
    model_options,
    prompt_of,
    stop_strings,
)
from .shared import given, load, print_table, read_prompt, visible

SEPARATOR = "-" * 20  # between several hypotheses


def add(subparsers):
    parser = subparsers.add_parser(
        "generate",
        help="write a text",
        description="Write a text: sampled, at temperature 0.8 and top-p 0.95 unless set.",
    )
    parser.set_defaults(run=run)
    add_decoding(parser, max_new_tokens=200)
    parser.add_argument("--echo", action="store_true", help="show the prompt before the text")
    parser.add_argument("--json", action="store_true", help="one object with ids, text, statistics")
    parser.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="with --json: the log-probability of each token, and the N likeliest alternatives",
    )
    parser.add_argument("--stats", action="store_true", help="statistics on standard error")


def run(args):
    check_dependants(args)
    if args.logprobs is not None and not args.json:
        raise InputError("--logprobs has no effect without --json")
    options = drawing_options(args) | given(args, ["logprobs"])
    prompt = read_prompt(args)
    model, tokenizer = load(args.model, args.dtype, args.ids)
    options |= model_options(args) | limit_options(args, tokenizer)
    chance = options.get("chance")
    given_prompt = prompt_of(args, prompt, tokenizer)
    if args.json:
        result = generate(model, given_prompt, **options)
        print(json.dumps(as_json(args, prompt, tokenizer, result, chance)))
    else:
        if chance is not None and args.seed is None:
            print(f"seed: {chance.seed}", file=sys.stderr)
        if args.echo:
            show(prompt)
        result = generate(model, given_prompt, on_text=show, **options)
        for other in result.hypotheses[1:]:
            show(f"\n{SEPARATOR}\n{hypothesis_text(other, tokenizer, stop_strings(args))}")
        if sys.stdout.isatty():
            print()
    if args.stats:
        print_stats(result)


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
