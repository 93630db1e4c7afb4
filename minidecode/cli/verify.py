"""`minidecode verify`: the proof that speculation is exact, and a test of it on real models."""

import json

from ..decoding.warp import OPTIONS
from ..errors import InputError
from .shared import (
    add_dtype,
    add_jobs,
    add_warp,
    given_warp,
    load,
    print_table,
    processes,
    progress_bar,
    refuse_without_effect,
)

MODELS_ONLY = ("dtype", "draft_dtype", "samples", "prompt", "num_draft_tokens", "seed")


def add(subparsers):
    parser = subparsers.add_parser(
        "verify",
        help="prove that speculation keeps the target's distribution",
        description="Without models: enumerate every path of the decoder on small tables, and of "
        "decoders that are wrong. With --library: the same for another library's decoder. With "
        "--target and --draft: a chi-square test of samples.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--library", choices=["transformers"], help="whose decoder to enumerate (default: ours)"
    )
    add_jobs(parser)
    parser.add_argument("--target", metavar="MODEL")
    parser.add_argument("--draft", metavar="MODEL")
    add_dtype(parser, of="the target")
    add_dtype(parser, "draft_dtype", "the draft")
    parser.add_argument("--samples", type=int, metavar="N", help="texts to sample (default: 6000)")
    parser.add_argument("--prompt", help="what the texts go on from (default: She)")
    parser.add_argument("--num-draft-tokens", type=int, metavar="K", help="default: 4")
    parser.add_argument("--seed", type=int, help="default: 0")
    add_warp(parser)
    parser.add_argument("--json", action="store_true")


def run(args):
    if (args.target is None) != (args.draft is None):
        raise InputError("--target and --draft: got one of them, both or neither were wanted")
    if args.target is not None:
        refuse_without_effect(args, ("library", "jobs"), "with --target and --draft")
        return run_test(args)
    refuse_without_effect(args, (*MODELS_ONLY, *OPTIONS), "without --target and --draft")
    with processes(args.jobs) as executor:
        return (run_library if args.library else run_proof)(args.json, executor)


def run_proof(as_json, executor):
    from ..proof import mistakes, suite

    how = {"executor": executor, "progress": progress_bar()}
    right = dict(suite.proof(**how))
    wrong = dict(suite.reports(mistakes.report, list(mistakes.WRONG), **how))
    lossy = dict(suite.reports(mistakes.report, list(mistakes.LOSSY), **how))
    exact = [r.passed for r in right.values()]
    missed = [r.passed for r in (*wrong.values(), *lossy.values())]
    good = all(exact) and not any(missed)
    if as_json:
        tables = {"decoder": right, "wrong decoders": wrong, "lossy rules": lossy}
        facts = {title: _facts(reports) for title, reports in tables.items()}
        print(json.dumps({**facts, "passed": good}))
        return 0 if good else 1
    between = [("", "", "", "")]
    rows = _rows("the real decoder, against plain sampling", right, "ok", "WRONG", ".1e") + between
    rows += _rows("decoders with one mistake each", wrong, "MISSED", "rejected", ".4f") + between
    rows += _rows("rules that are lossy on purpose", lossy, "MISSED", "rejected", ".4f")
    print_table(rows)
    print(
        f"\n{'passed' if good else 'FAILED'}: {sum(exact)} of {len(exact)} settings are exact (at "
        f"most {_largest(right):.1e} off), {len(missed) - sum(missed)} of {len(missed)} wrong and "
        "lossy decoders are rejected"
    )
    return 0 if good else 1


def _facts(reports):
    return {
        name: {"paths": report.paths, "total_variation": report.distance}
        for name, report in reports.items()
    }


def _rows(title, reports, passed, failed, spec):
    """A table of reports, with its head."""
    rows = [(title, "paths", "total variation", "")]
    rows += [
        (name, report.paths, format(report.distance, spec), passed if report.passed else failed)
        for name, report in reports.items()
    ]
    return rows


def _largest(reports):
    return max(report.distance for report in reports.values())


def run_library(as_json, executor):
    from ..proof.adapters import transformers_settings as settings
    from ..proof.suite import reports

    version = settings.library().__version__
    found = dict(
        reports(
            settings.report, list(settings.settings()), executor=executor, progress=progress_bar()
        )
    )
    ordinary = {name: found[name] for name in settings.ORDINARY}
    known = {
        key: {name: found[f"{key}: {name}"] for name in each.reports}
        for key, each in settings.KNOWN.items()
    }
    exact = [settings.is_exact(each) for each in ordinary.values()]
    if as_json:
        print(json.dumps(_library_facts(version, settings, ordinary, known, all(exact))))
        return 0 if all(exact) else 1
    _print_library(version, settings, ordinary, known)
    shown = [not all(map(settings.is_exact, table.values())) for table in known.values()]
    print(
        f"\n{'passed' if all(exact) else 'FAILED'}: {sum(exact)} of {len(exact)} ordinary settings "
        f"of transformers {version} are exact (within {settings.TOLERANCE:g}); {sum(shown)} of "
        f"{len(shown)} known deviations show"
    )
    return 0 if all(exact) else 1


def _print_library(version, settings, ordinary, known):
    head = f"transformers {version}, ordinary settings against its plain sampling"
    rows = [(head, "paths", "total variation", "")]
    rows += [_library_row(settings, name, each, "NOT EXACT") for name, each in ordinary.items()]
    print_table(rows)
    print(f"\nknown to deviate (found in transformers {settings.FOUND_IN})")
    for key, each in settings.KNOWN.items():
        print(f"\n{key}. {each.what}\n   tables: {each.tables}\n   reported: {each.reported}")
        table = known[key].items()
        print_table([_library_row(settings, f"   {name}", r, "deviates") for name, r in table])


def _library_row(settings, name, report, deviates):
    if isinstance(report, str):
        return name, None, None, report
    mark = "exact" if settings.is_exact(report) else deviates
    return name, report.paths, f"{report.distance:.2g}", mark


def _library_facts(version, settings, ordinary, known, passed):
    def facts(reports):
        return {
            name: {"error": each}
            if isinstance(each, str)
            else {"paths": each.paths, "total_variation": each.distance, "exact": each.passed}
            for name, each in reports.items()
        }

    deviations = {
        key: {"what": each.what, "reported": each.reported, "settings": facts(known[key])}
        for key, each in settings.KNOWN.items()
    }
    return {
        "library": "transformers",
        "version": version,
        "tolerance": settings.TOLERANCE,
        "ordinary": facts(ordinary),
        "known to deviate": deviations,
        "passed": passed,
    }


def run_test(args):
    from ..decoding.run import prompt_ids
    from ..decoding.settings import encode_texts
    from ..decoding.warp import Warp
    from ..proof.statistical import SIGNIFICANCE, TOKENS, statistical_test

    target, tokenizer = load(args.target, args.dtype)
    draft, _ = load(args.draft, args.draft_dtype)
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
        return 0 if test.passed else 1
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
    print(
        f"\n{'passed' if test.passed else 'FAILED'}: {test.samples} texts begin "
        f"{'as the target says' if test.passed else 'otherwise than the target says'} "
        f"(p-value {test.p_value:.4f}, at least {SIGNIFICANCE} was wanted)"
    )
    return 0 if test.passed else 1
