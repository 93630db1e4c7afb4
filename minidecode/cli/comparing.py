"""What `minidecode compare` and `minidecode plot metrics` share: the methods are run."""

import contextlib
from dataclasses import dataclass

from ..errors import InputError
from ..measure import compare
from .shared import DEFAULT_DRAFT, DEFAULT_MODEL, flag, load, processes, progress_bar

METHODS = ("greedy", "beam:4", "sample", "sample:top_p=0.9", "contrastive:alpha=0.1")
SECOND_MODELS = {"draft": "speculative", "amateur": "contrastive"}  # option: kind of method


@dataclass(frozen=True)
class Measured:
    """What `measure` was given and what it found.

    names     {"model": name, and "draft" or "amateur" where there was one}
    compared  as `compare.compare` returns it
    human     the same columns of what people wrote; None where the model cannot spell it
    """

    names: dict[str, str]
    prompts: tuple[str, ...]
    seeds: int
    max_new_tokens: int
    compared: list
    human: dict | None


def measure(
    labels,
    prompts,
    *,
    model=None,
    dtype=None,
    draft=None,
    amateur=None,
    draft_dtype=None,
    seeds=None,
    max_new_tokens=None,
    ignore_eos=False,
    jobs=None,
):
    """Run the methods over the prompts, with a progress bar: `Measured`. None is the default."""
    model = model or DEFAULT_MODEL
    seeds = 3 if seeds is None else seeds
    max_new_tokens = 100 if max_new_tokens is None else max_new_tokens
    methods = [compare.parse_method(label) for label in labels or METHODS]
    names = {"model": model, **second_models(methods, model, draft=draft, amateur=amateur)}
    kinds = {role: (name, draft_dtype) for role, name in names.items()} | {"model": (model, dtype)}
    models = {kind: load(*kind) for kind in dict.fromkeys(kinds.values())}
    target, tokenizer = models[kinds["model"]]
    options = {role: models[kind][0] for role, kind in kinds.items() if role != "model"}
    if ignore_eos:
        options["eos"] = None
    with contextlib.ExitStack() as stack:
        bar = progress_bar()
        if bar is not None:
            total = compare.n_texts(methods, prompts, seeds)
            bar = stack.enter_context(bar(total=total, unit=" texts"))
        executor = stack.enter_context(processes(jobs))
        compared = compare.compare(
            methods,
            prompts,
            target=target,
            tokenizer=tokenizer,
            seeds=seeds,
            max_new_tokens=max_new_tokens,
            on_text=bar and bar.update,
            executor=executor,
            **options,
        )
    human = human_text(target, tokenizer, len(prompts), max_new_tokens)
    return Measured(names, tuple(prompts), seeds, max_new_tokens, compared, human)


def human_text(target, tokenizer, texts, max_new_tokens):
    """`compare.human`, or None for a vocabulary that is not of letters."""
    try:
        return compare.human(target, tokenizer, texts=texts, max_new_tokens=max_new_tokens)
    except InputError:
        return None


def second_models(methods, model, **given):
    """{"draft" or "amateur": name} of the second models that the methods need."""
    names = {}
    for option, kind in SECOND_MODELS.items():
        if not any(method.kind == kind for method in methods):
            if given[option] is not None:
                raise InputError(f"{flag(option)} has no effect without a {kind} method")
        elif given[option] is not None:
            names[option] = given[option]
        elif model == DEFAULT_MODEL:
            names[option] = DEFAULT_DRAFT
        else:
            raise InputError(f"{flag(option)}: {kind} methods need one with --model {model}")
    return names


def as_json(measured):
    rows = []
    for method, estimates in measured.compared:
        row = {"method": method.label, "seeds": measured.seeds if method.draws else None}
        for name, estimate in estimates.items():
            row[name] = estimate.mean
            row[f"{name}_error"] = estimate.standard_error
        rows.append(row)
    return {
        **measured.names,
        "prompts": list(measured.prompts),
        "seeds": measured.seeds,
        "max_new_tokens": measured.max_new_tokens,
        "methods": rows,
        "human": measured.human and {name: each.mean for name, each in measured.human.items()},
    }
