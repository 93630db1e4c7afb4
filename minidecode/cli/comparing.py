"""What `minidecode compare` and `minidecode plot metrics` share: the methods, run and gathered."""

import contextlib

from ..errors import InputError
from .shared import DEFAULT_MODEL, load, progress_bar, refuse_without_effect

METHODS = ("greedy", "beam:4", "sample", "sample:top_p=0.9", "contrastive:alpha=0.1")
SECOND_MODEL = "storyteller-1m"  # the smaller one of the embedded pair


def measure(args, labels, prompts):
    """({"draft" or "amateur": name}, what `compare.compare` found), with a progress bar."""
    from ..measure import compare

    methods = [compare.parse_method(label) for label in labels or METHODS]
    names = second_models(args, methods)
    models = {}
    for name in (args.model, *names.values()):
        if name not in models:
            models[name] = load(name)
    target, tokenizer = models[args.model]
    options = {kind: models[name][0] for kind, name in names.items()}
    if getattr(args, "ignore_eos", False):
        options["eos"] = None
    with contextlib.ExitStack() as stack:
        bar = progress_bar()
        if bar is not None:
            total = compare.n_texts(methods, prompts, args.seeds)
            bar = stack.enter_context(bar(total=total, unit=" texts"))
        compared = compare.compare(
            methods,
            prompts,
            target=target,
            tokenizer=tokenizer,
            seeds=args.seeds,
            max_new_tokens=args.max_new_tokens,
            on_text=bar and bar.update,
            **options,
        )
    return names, compared


def second_models(args, methods):
    """{"draft" or "amateur": name} of the second models that the methods need."""
    names = {}
    for option, kind in (("draft", "speculative"), ("amateur", "contrastive")):
        needed = any(method.kind == kind for method in methods)
        if not needed:
            refuse_without_effect(args, (option,), f"without a {kind} method")
        elif getattr(args, option) is not None:
            names[option] = getattr(args, option)
        elif args.model == DEFAULT_MODEL:
            names[option] = SECOND_MODEL
        else:
            raise InputError(f"--{option}: {kind} methods need one with --model {args.model}")
    return names


def as_json(args, prompts, names, compared):
    rows = []
    for method, estimates in compared:
        row = {"method": method.label, "seeds": args.seeds if method.draws else None}
        for name, estimate in estimates.items():
            row[name] = estimate.mean
            row[f"{name}_error"] = estimate.standard_error
        rows.append(row)
    return {
        "model": args.model,
        **names,
        "prompts": list(prompts),
        "seeds": args.seeds,
        "max_new_tokens": args.max_new_tokens,
        "methods": rows,
    }
