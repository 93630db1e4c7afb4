"""`minidecode generate`: a text, shown while it is written."""

import json
import sys

from .shared import (
    SAMPLING_ONLY,
    add_beams,
    add_contrast,
    add_draft,
    add_model,
    add_prompt,
    add_warp,
    beam_options,
    check_dependants,
    contrast_options,
    draft_options,
    given,
    given_warp,
    load,
    print_table,
    read_prompt,
    refuse_without_effect,
)

SEPARATOR = "-" * 20  # between several hypotheses


def add(subparsers):
    parser = subparsers.add_parser(
        "generate",
        help="write a text",
        description="Write a text: sampled, at temperature 0.8 and top-p 0.95 unless set.",
    )
    parser.set_defaults(run=run)
    add_prompt(parser)
    add_model(parser)
    parser.add_argument("--greedy", action="store_true", help="always take the likeliest token")
    add_warp(parser)
    parser.add_argument("--max-new-tokens", type=int, default=200, metavar="N")
    add_draft(parser)
    add_contrast(parser)
    add_beams(parser)
    parser.add_argument("--seed", type=int, help="same seed, same text (default: a fresh one)")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; repeatable"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="write on past an end token")
    parser.add_argument("--echo", action="store_true", help="show the prompt before the text")
    parser.add_argument("--json", action="store_true", help="one object with ids, text, statistics")
    parser.add_argument("--stats", action="store_true", help="statistics on standard error")


def run(args):
    check_dependants(args)
    options = warp_and_chance(args)
    prompt = read_prompt(args)
    model, tokenizer = load(args.model)
    from ..generate import generate

    options |= beam_options(args) | contrast_options(args)
    options |= draft_options(args, options.get("amateur"))
    options.update(tokenizer=tokenizer, stop=args.stop, max_new_tokens=args.max_new_tokens)
    if args.ignore_eos:
        options["eos"] = None
    chance = options.get("chance")
    if args.json:
        result = generate(model, prompt, **options)
        print(json.dumps(as_json(prompt, tokenizer, result, chance)))
    else:
        if chance is not None and args.seed is None:
            print(f"seed: {chance.seed}", file=sys.stderr)
        if args.echo:
            show(prompt)
        result = generate(model, prompt, on_text=show, **options)
        for other in result.hypotheses[1:]:
            show(f"\n{SEPARATOR}\n{hypothesis_text(other, tokenizer)}")
        if sys.stdout.isatty():
            print()
    if args.stats:
        print_stats(result)


def warp_and_chance(args):
    """What is sampled, and how: arguments of `generate` from the command line's."""
    from ..chance import Dice, GumbelDice
    from ..warp import Warp

    settings = given_warp(args)
    if args.num_beams is not None:
        names = (*SAMPLING_ONLY, "seed", "coupled", "greedy", "draft", "stop")
        refuse_without_effect(args, names, "with --num-beams")
        return settings  # repetition_penalty and no_repeat_ngram_size
    sampling = (*SAMPLING_ONLY, "seed", "coupled")
    if args.greedy:
        refuse_without_effect(args, sampling, "with --greedy")
        return {"warp": Warp(temperature=0, **settings)}
    if args.amateur is None:
        settings = {"temperature": 0.8, "top_p": 0.95} | settings
    elif not given(args, sampling):
        return {"warp": Warp(temperature=0, **settings)}  # the best score, as in the paper
    chance = (GumbelDice if args.coupled else Dice)(args.seed)
    return {"warp": Warp(**settings), "chance": chance}


def show(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def as_json(prompt, tokenizer, result, chance):
    facts = {
        "prompt": prompt,
        "prompt_ids": tokenizer.encode(prompt),
        "ids": result.tokens,
        "text": result.text,
        "finish_reason": result.finish_reason,
        "seed": getattr(chance, "seed", None),
        "stats": result.stats,
    }
    if result.hypotheses:
        facts["hypotheses"] = [
            {
                "ids": each.tokens,
                "text": hypothesis_text(each, tokenizer),
                "score": each.score,
                "finish_reason": each.finish_reason,
            }
            for each in result.hypotheses
        ]
    return facts


def hypothesis_text(hypothesis, tokenizer):
    ended = hypothesis.finish_reason == "eos"  # an end token is no text
    return tokenizer.decode(hypothesis.tokens[:-1] if ended else hypothesis.tokens)


def print_stats(result):
    rows = [("finish_reason", result.finish_reason)]
    for name, value in result.stats.items():
        if isinstance(value, list):
            value = " ".join("n/a" if v is None else f"{v:.3f}" for v in value) or None
        rows.append((name, f"{value:.4g}" if isinstance(value, float) else value))
    sys.stdout.flush()
    print_table(rows, file=sys.stderr)
