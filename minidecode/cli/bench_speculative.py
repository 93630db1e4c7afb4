"""`minidecode bench speculative`: plain against speculative decoding, theory and other engines."""

import contextlib
import json

from .measuring import add_output, check_gguf, llama_cpp_engines, start_engines, words
from .shared import (
    DEFAULT_DRAFT,
    add_dtype,
    add_model,
    load,
    numbers,
    print_table,
    progress_bar,
    refuse_without_effect,
)

COLUMNS = {  # figure: heading
    "tokens/s": "tokens/s",
    "speed-up": "speed-up",
    "predicted speed-up": "predicted",
    "acceptance": "acceptance",
    "drafted/pass": "drafted/pass",
    "tokens/pass": "tokens/pass",
    "time drafting": "drafting",
    "time outside both models": "neither",
}


def add(kinds):
    parser = kinds.add_parser(
        "speculative",
        help="what speculation gains over plain decoding",
        description="Measure plain against speculative decoding, and against theory.",
    )
    parser.set_defaults(run=run)
    add_model(parser)
    parser.add_argument("--draft", default=DEFAULT_DRAFT, help="default: %(default)s")
    parser.add_argument(
        "--like", metavar="SHAPE", help="grow the model to gpt2, gpt2-medium or gpt2-large first"
    )
    parser.add_argument("--k", default="1,2,4,6,8", metavar="K,K..", help="tokens drafted a round")
    parser.add_argument("--temperatures", default="0,1", metavar="T,T..", help="default: 0,1")
    parser.add_argument(
        "--verify",
        default="token,block",
        metavar="RULE,RULE",
        help="rules of verification, of token and block; default: both, where chance has a part",
    )
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N")
    parser.add_argument("--prompts", type=int, default=4, metavar="N", help="texts of each kind")
    add_dtype(parser, "draft_dtype", "the draft")
    add_output(parser, "transformers' assisted generation too")
    parser.add_argument("--draft-gguf", metavar="FILE", help="the file of the draft for llama.cpp")


def run(args):
    from ..errors import InputError
    from ..measure import speculation
    from ..measure.shapes import find_shape

    lengths = numbers("--k", args.k, int)
    temperatures = numbers("--temperatures", args.temperatures, float)
    most = len(speculation.PROMPTS)
    if not 1 <= args.prompts <= most:
        raise InputError(f"--prompts: got {args.prompts}, 1 to {most} was wanted")
    if args.max_new_tokens < 2:
        raise InputError(f"--max-new-tokens: got {args.max_new_tokens}, at least 2 was wanted")
    if args.like is not None:
        find_shape(args.like)
    if 0 not in temperatures:
        refuse_without_effect(args, ("peers",), "without temperature 0: other engines are greedy")
    gguf = check_gguf(args)
    with contextlib.ExitStack() as stack:
        (target, tokenizer), peers = start_engines(
            stack, args.model, args.draft, like=args.like, dtype=args.dtype, wanted=args.peers
        )
        draft, _ = load(args.draft, args.draft_dtype)
        peers += llama_cpp_engines(args, gguf, tokenizer, lengths)
        measured = speculation.measure_speculation(
            target,
            draft,
            [tokenizer.encode(prompt) for prompt in speculation.PROMPTS[: args.prompts]],
            lengths=lengths,
            temperatures=temperatures,
            rules=words(args.verify),
            max_new_tokens=args.max_new_tokens,
            peers=peers,
            progress=progress_bar(),
        )
    names = {"model": args.model, "draft": args.draft, "like": args.like}
    names |= {"dtype": target.dtype, "draft_dtype": draft.dtype}
    if args.json:
        print(json.dumps(names | measured))
    else:
        print_results(names | measured)


def print_results(measured):
    shape = f" at the cost of {measured['like']}" if measured["like"] else ""
    print(
        f"{measured['model']}{shape} in {measured['dtype']}, "
        f"draft {measured['draft']} in {measured['draft_dtype']}, {measured['backend']}, "
        f"{measured['threads']} threads, {measured['prompts']} texts of "
        f"{measured['max_new_tokens']} tokens, medians"
    )
    for result in measured["results"]:
        print(f"\ntemperature {result['temperature']:g}")
        rows = [("", *COLUMNS.values())]
        for way, found in result["ways"].items():
            values = (found.get(name) for name in COLUMNS)
            rows.append((way, *("-" if v is None else f"{v:.3g}" for v in values)))
        print_table(rows)
        passes = ", ".join(f"{ms:.3g} over {n}" for n, ms in result["pass over n, ms"].items())
        step = result["draft step, ms"]
        if step:
            print(f"draft step {step:.3g} ms; pass of the target, ms: {passes} tokens")
    print("\ndrafting, neither: shares of the time spent in the draft, and in neither model")
