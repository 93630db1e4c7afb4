"""`minidecode plot`: pictures of how decoders behave, each from a measured run."""

import contextlib
import json
import sys

from ..decoding import warp
from ..errors import InputError, MinidecodeError
from ..measure.prompts import PROMPTS
from ..measure.shapes import find_shape
from ..models.config import read_json
from .comparing import as_json, measure
from .measuring import (
    check_plain_and_draft,
    dtypes,
    llama_cpp_engines,
    start_engines,
    words,
)
from .shared import (
    DEFAULT_DRAFT,
    DEFAULT_MODEL,
    add_warp,
    check_place,
    given_warp,
    load,
    numbers,
    progress_bar,
    read_text,
    refuse_without_effect,
)

STORIES = 4  # held-out ones, on which the overlap of target and draft is measured
PLOTS = {
    "runtime": "time per text against the number of drafts, with plain decoding and theory",
    "probability": "token probabilities of beam search's text and of a human one",
    "repetition": "probability of a phrase against how often it has been repeated",
    "filters": "what each setting, such as top-p, leaves of a distribution",
    "acceptance": "acceptance by place of the draft, and tokens a pass",
    "metrics": "the table of `minidecode compare` as a chart",
    "speed": "tokens/s of each storage type, plain and speculative, beside other engines",
}
MODEL = {"model": (str, f"default: {DEFAULT_MODEL}")}
SPECULATION = {
    **MODEL,
    "draft": (str, f"default: {DEFAULT_DRAFT}"),
    "k": (str, "tokens drafted a round, as in 1,2,4"),
    "temperatures": (str, "as in 0,1 (the default)"),
    "max_new_tokens": (int, "length of a text (default: 64)"),
}
COST = {
    "prompts": (int, "how many texts, 1 to 8 (default: 4)"),
    "like": (str, "the cost of gpt2 (the default), gpt2-medium, gpt2-large, or none: as it is"),
    "dtype": (str, "how the target is stored, as in float32,int8"),
}
OPTIONS = {  # of each plot: name -> (type, help); unset ones are left to what measures
    "runtime": {
        **SPECULATION,
        **COST,
        "verify": (str, "rules of verification (default: token,block)"),
    },
    "probability": {
        **MODEL,
        "text_file": (str, "the human text (default: a fable of the Brothers Grimm)"),
        "prompt_words": (int, "how much of it is the prompt of both (default: 63)"),
        "max_new_tokens": (int, "how much is looked at after that (default: 60)"),
        "num_beams": (int, "default: 4"),
    },
    "repetition": {
        **MODEL,
        "phrase": (list, "repeatable (default: four that differ)"),
        "prompt": (str, "what stands before (default: nothing)"),
        "times": (int, "default: 20"),
    },
    "filters": {
        **MODEL,
        "context": (list, "text to go on from; repeatable (default: a flat and a peaked one)"),
    },
    "acceptance": {
        **SPECULATION,
        "prompts": (int, "how many, 1 to 8 (default: 8)"),
        "verify": (str, "the rule of verification (default: token)"),
    },
    "metrics": {
        **MODEL,
        "draft": (str, f"of speculative methods ({DEFAULT_DRAFT} for the default model)"),
        "amateur": (str, f"of contrastive methods ({DEFAULT_DRAFT} for the default model)"),
        "method": (list, "as for `minidecode compare`; repeatable (default: its methods)"),
        "seeds": (int, "default: 3"),
        "max_new_tokens": (int, "default: 100"),
    },
    "speed": {
        **SPECULATION,
        **COST,
        "peers": (bool, "transformers' assisted generation too (extra `peers`)"),
        "llama_cpp": (str, "the directory of llama.cpp's programs, to stand beside ours"),
        "gguf": (list, "a file that llama.cpp reads the same target from; repeatable"),
        "draft_gguf": (str, "the file of the draft for llama.cpp"),
    },
}


def add(subparsers):
    parser = subparsers.add_parser(
        "plot",
        help="draw pictures from measured runs",
        description="Measure, and draw what was measured. Needs matplotlib (extra `plot`).",
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="NAME")
    for kind, about in PLOTS.items():
        one = kinds.add_parser(kind, help=about, description=f"Draw {about}.")
        one.set_defaults(run=run)
        one.add_argument(
            "--out",
            required=True,
            metavar="FILE",
            help="a .png, .svg or .pdf; what was measured is put beside it as .json",
        )
        one.add_argument("--data", metavar="FILE", help="draw from this .json, measure nothing")
        if kind == "filters":
            add_warp(one, lambda row: f"default: {row.example if row.shapes else 'off'}")
        for name, (value, text) in OPTIONS[kind].items():
            flag, metavar = "--" + name.replace("_", "-"), name.rpartition("_")[2].upper()
            how = {"type": value, "metavar": metavar}
            if value is bool:
                how = {"action": "store_true", "default": None}
            elif value is list:
                how = {"action": "append", "metavar": metavar}
            one.add_argument(flag, help=text, **how)


def run(args):
    from ..plots.draw import PLOTS
    from ..plots.figure import check_out, require_matplotlib, write_picture

    out = check_out(args.out)
    require_matplotlib()  # before a long measurement
    check_place("--out", out)
    if args.data is not None:
        names = (*OPTIONS[args.kind], *(warp.OPTIONS if args.kind == "filters" else ()))
        refuse_without_effect(args, names, "with --data")
        redraw(args, out, PLOTS[args.kind])
        return
    beside = out.with_suffix(".json")
    check_beside(beside)
    names, data = MEASURE[args.kind](args)
    data = {"plot": args.kind} | names | data
    beside.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    write_picture(out, PLOTS[args.kind], data)
    print(f"{out}: drawn, the numbers are in {beside}", file=sys.stderr)


def check_beside(path):
    """Nobody named the file of the numbers, so it may replace none but older numbers."""
    if path.exists():
        try:
            ours = "plot" in read_json(path, InputError)
        except (InputError, TypeError):
            ours = False
        if not ours:
            raise InputError(
                f"--out: {path} is there already and holds no numbers of `plot`; the numbers go "
                "there, another name was wanted"
            )
    check_place("--out", path)


def redraw(args, out, draw):
    from ..plots.figure import write_picture

    data = read_json(args.data, InputError)
    try:
        write_picture(out, draw, data)
    except MinidecodeError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{args.data}: got other numbers ({type(error).__name__}: {error}), "
            f"those of `plot {args.kind}` were wanted"
        ) from None


def given(args, **names):
    """Those options that stand on the command line, as keyword=value; names: keyword=option."""
    found = {keyword: getattr(args, name) for keyword, name in names.items()}
    return {keyword: value for keyword, value in found.items() if value is not None}


def one_model(args):
    """(model, tokenizer), and what to call it."""
    name = args.model or DEFAULT_MODEL
    return load(name), {"model": name}


def probability(args):
    from ..plots.data import probability

    options = given(
        args, prompt_words="prompt_words", max_new_tokens="max_new_tokens", num_beams="num_beams"
    )
    if args.text_file is not None:
        options["text"] = read_text(args.text_file, "--text-file")
    engine, names = one_model(args)
    return names, probability(*engine, **options)


def repetition(args):
    from ..plots.data import repetition

    engine, names = one_model(args)
    return names, repetition(
        *engine, **given(args, phrases="phrase", prompt="prompt", times="times")
    )


def filters(args):
    from ..plots.data import EXAMPLES, filters

    settings = EXAMPLES | given_warp(args)
    engine, names = one_model(args)
    return names, filters(*engine, settings=settings, **given(args, contexts="context"))


def runtime(args):
    return cost(args, k="1,2,4,6,8", types="float32,int8", rules=args.verify or "token,block")


def speed(args):
    return cost(args, k="4,6", types="float32,float16,int8,int4", rules="block")


def cost(args, *, k, types, rules):
    """What texts cost with the target stored in each type, by itself and with drafts."""
    from ..measure.speculation import measure_speculation

    like = None if args.like == "none" else args.like or "gpt2"
    if like is not None:
        find_shape(like)
    args.dtype = args.dtype or types
    found = dtypes(args)
    names, n_prompts, options = speculation(args, k, n_prompts=4)
    gguf = check_engines(args, options["temperatures"]) if args.kind == "speed" else []
    options["rules"] = words(rules)
    draft, _ = load(names["draft"])
    runs = []
    with contextlib.ExitStack() as stack:
        for dtype in found:
            # Other engines are measured once, beside the first type.
            wanted = args.kind == "speed" and args.peers and not runs
            (target, tokenizer), peers = start_engines(
                stack, names["model"], names["draft"], like=like, dtype=dtype, wanted=wanted
            )
            prompts = [tokenizer.encode(prompt) for prompt in PROMPTS[:n_prompts]]
            if not runs:
                peers += llama_cpp_engines(args, gguf, tokenizer, options["lengths"])
            measured = measure_speculation(
                target, draft, prompts, peers=peers, progress=progress_bar(), **options
            )
            runs.append({"dtype": dtype} | measured)
    return names | {"like": like}, {"runs": runs}


def check_engines(args, temperatures):
    """The GGUF files of the target, checked; an error for a part of what an engine needs."""
    from ..measure import llama_cpp, peers

    if args.peers and 0 not in temperatures:
        raise InputError("--peers: has no effect without temperature 0: other engines are greedy")
    if args.peers and not peers.is_installed(peers.Assisted):
        raise MinidecodeError("--peers: transformers is missing (extra `peers`)")
    if args.llama_cpp is None:
        refuse_without_effect(args, ("gguf", "draft_gguf"), "without --llama-cpp")
        return []
    if not args.gguf or args.draft_gguf is None or 0 not in temperatures:
        raise InputError(
            "--llama-cpp: wants --gguf and --draft-gguf, files of target and draft, and "
            "temperature 0 among --temperatures"
        )
    llama_cpp.find_program(args.llama_cpp, "llama-speculative-simple")
    check_plain_and_draft(args)
    return llama_cpp.check_files(args.gguf)


def acceptance(args):
    from ..measure.quality import TEXTS, split_documents
    from ..plots.data import acceptance

    names, n_prompts, options = speculation(args, "1,2,3,4,5,6,7,8,9,10", n_prompts=8)
    options |= given(args, verify="verify")
    (target, tokenizer), (draft, _) = load(names["model"]), load(names["draft"])
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS[:n_prompts]]
    stories = split_documents(TEXTS["stories"].read_text(encoding="utf-8"))[:STORIES]
    most = min(target.n_positions, draft.n_positions, 256)
    others = [tokenizer.encode(story)[:most] for story in stories]
    return names, acceptance(
        target, draft, prompts, others=others, progress=progress_bar(), **options
    )


def speculation(args, k, n_prompts):
    """What the pictures of speculation share: (names, number of prompts, options)."""
    names = {"model": args.model or DEFAULT_MODEL, "draft": args.draft or DEFAULT_DRAFT}
    n_prompts = n_prompts if args.prompts is None else args.prompts
    if not 1 <= n_prompts <= len(PROMPTS):
        raise InputError(f"--prompts: got {n_prompts}, 1 to {len(PROMPTS)} was wanted")
    options = given(args, max_new_tokens="max_new_tokens")
    if options.get("max_new_tokens", 2) < 2:
        raise InputError(f"--max-new-tokens: got {args.max_new_tokens}, at least 2 was wanted")
    options["lengths"] = numbers("--k", args.k or k, int)
    options["temperatures"] = numbers("--temperatures", args.temperatures or "0,1", float)
    return names, n_prompts, options


def metrics(args):
    measured = measure(
        args.method,
        PROMPTS,
        model=args.model,
        draft=args.draft,
        amateur=args.amateur,
        seeds=args.seeds,
        max_new_tokens=args.max_new_tokens,
    )
    return {}, as_json(measured)


MEASURE = {
    "runtime": runtime,
    "probability": probability,
    "repetition": repetition,
    "filters": filters,
    "acceptance": acceptance,
    "metrics": metrics,
    "speed": speed,
}
