"""`minidecode verify`: the proof that speculation is exact, and a test of it on real models."""

import json

from ..decoding.warp import OPTIONS
from ..errors import InputError
from .shared import add_warp, given_warp, load, print_table, progress_bar, refuse_without_effect


def add(subparsers):
    parser = subparsers.add_parser(
        "verify",
        help="prove that speculation keeps the target's distribution",
        description="Without models: enumerate every path of the decoder on small tables, and of "
        "decoders that are wrong. With --target and --draft: a chi-square test of samples.",
    )
    parser.set_defaults(run=run)
    parser.add_argument("--target", metavar="MODEL")
    parser.add_argument("--draft", metavar="MODEL")
    parser.add_argument("--samples", type=int, metavar="N", help="texts to sample (default: 6000)")
    parser.add_argument("--prompt", help="what the texts go on from (default: She)")
    parser.add_argument("--num-draft-tokens", type=int, metavar="K", help="default: 4")
    parser.add_argument("--seed", type=int, help="default: 0")
    add_warp(parser)
    parser.add_argument("--json", action="store_true")


def run(args):
    if (args.target is None) != (args.draft is None):
        raise InputError("--target and --draft: got one of them, both or neither were wanted")
    if args.target is None:
        names = ("samples", "prompt", "num_draft_tokens", "seed", *OPTIONS)
        refuse_without_effect(args, names, "without --target and --draft")
        return run_proof(args.json)
    return run_test(args)


def run_proof(as_json):
    from ..proof import mistakes, suite

    right = dict(suite.proof())
    mistakes = {mistake: mistakes.report(mistake) for mistake in mistakes.WRONG}
    good = all(r.passed for r in right.values()) and not any(r.passed for r in mistakes.values())
    if as_json:
        tables = {"decoder": right, "wrong decoders": mistakes}
        facts = {
            title: {
                name: {"paths": r.paths, "total_variation": r.distance} for name, r in t.items()
            }
            for title, t in tables.items()
        }
        print(json.dumps({**facts, "passed": good}))
        return 0 if good else 1
    rows = [("the real decoder, against plain sampling", "paths", "total variation", "")]
    rows += [
        (n, r.paths, f"{r.distance:.1e}", "ok" if r.passed else "WRONG") for n, r in right.items()
    ]
    rows += [("", "", "", ""), ("decoders with one mistake each", "paths", "total variation", "")]
    rows += [
        (n, r.paths, f"{r.distance:.4f}", "MISSED" if r.passed else "rejected")
        for n, r in mistakes.items()
    ]
    print_table(rows)
    return 0 if good else 1


def run_test(args):
    from ..decoding.run import prompt_ids
    from ..decoding.settings import encode_texts
    from ..decoding.warp import Warp
    from ..proof.statistical import SIGNIFICANCE, TOKENS, statistical_test

    target, tokenizer = load(args.target)
    draft, _ = load(args.draft)
    prompt = "She" if args.prompt is None else args.prompt
    test = statistical_test(
        target,
        draft,
        prompt_ids(target, prompt, tokenizer),
        6000 if args.samples is None else args.samples,
        warp=Warp(**encode_texts(OPTIONS, given_warp(args), tokenizer)),
        num_draft_tokens=4 if args.num_draft_tokens is None else args.num_draft_tokens,
        seed=args.seed or 0,
        progress=progress_bar(),
    )
    if args.json:
        print(json.dumps({**vars(test), "significance": SIGNIFICANCE}))
    else:
        rows = [
            ("samples", test.samples),
            (f"cells (first {TOKENS} tokens jointly)", test.cells),
            ("chi-square", f"{test.statistic:.1f}"),
            ("degrees of freedom", test.cells - 1),
            ("p-value", f"{test.p_value:.4f}"),
            ("significance, fixed in advance", SIGNIFICANCE),
            ("power against redrawing from p", f"{test.power:.3f}"),
            ("passed", "yes" if test.passed else "NO"),
        ]
        print_table(rows)
    return 0 if test.passed else 1
