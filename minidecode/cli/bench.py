"""`minidecode bench model`: how fast it is here, against memory and against other engines."""

import json
import sys
import tempfile

from .measuring import add_dtypes, add_output, check_peers, dtypes
from .shared import print_table


def add(subparsers):
    parser = subparsers.add_parser(
        "bench", help="measure speed and quality", description="Measure on this machine."
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="WHAT")
    model = kinds.add_parser(
        "model",
        help="forward pass and kernels on a GPT-2 shape",
        description="Measure the forward pass and the kernels on a GPT-2 shape, random weights.",
    )
    model.set_defaults(run=run_model)
    model.add_argument("--shape", default="gpt2", help="gpt2 (default), gpt2-medium, gpt2-large")
    model.add_argument("--repeats", type=int, default=9, help="times each thing is measured")
    model.add_argument(
        "--context", type=int, default=64, metavar="N", help="tokens in the cache (default: 64)"
    )
    add_dtypes(model, "float32")
    add_output(model, "transformers and ctranslate2 too")
    return kinds


def run_model(args):
    from ..errors import InputError
    from ..measure import peers, speed

    if args.repeats < 1:
        raise InputError(f"--repeats: got {args.repeats}, at least 1 was wanted")
    config = speed.shape_config(args.shape)
    most = config.n_positions - max(speed.DECODED, *speed.PASSES)
    if not 1 <= args.context <= most:
        raise InputError(f"--context: got {args.context}, 1 to {most} was wanted")
    types = dtypes(args)
    missing = "transformers and ctranslate2 are missing"
    gguf = check_peers(args, peers.available(), missing, "llama-bench")
    print(f"building {args.shape} with random weights ...", file=sys.stderr)
    ours = [
        speed.Ours(speed.random_model(args.shape, dtype), speed.engine_name(dtype), args.context)
        for dtype in types
    ]
    with tempfile.TemporaryDirectory() as directory:
        others = start_peers(args, config, ours[0].tokens, gguf, directory) if args.peers else []
        measured = speed.measure_model(ours, others, args.repeats)
    measured = {"shape": args.shape, "context": args.context, **measured}
    if args.json:
        print(json.dumps(measured))
    else:
        print_results(measured)


def start_peers(args, config, tokens, gguf, directory):
    """Every other engine there is: those installed, and llama.cpp on each of its files."""
    from ..measure import llama_cpp, peers, speed

    threads = speed.kernels.num_threads() or 1
    others = []
    if peers.available():
        peers.write_random(directory, config, speed.RandomTensors(config))
        others = peers.start(directory, threads, tokens, args.context)
    if not gguf:
        return others
    program = llama_cpp.find_program(args.llama_cpp, "llama-bench")
    size = speed.n_parameters(config)
    return others + [
        llama_cpp.LlamaCpp(program, file, threads, args.context, size) for file in gguf
    ]


def print_results(measured):
    results = measured["results"]
    print(
        f"{measured['shape']}, {measured['backend']}, {measured['threads']} threads, "
        f"{measured['context']} tokens in the cache, medians"
    )
    names = sorted({name for figures in results.values() for name in figures}, key=_order(results))
    rows = [("", *results)]
    for name in names:
        values = (figures.get(name) for figures in results.values())
        rows.append((name, *("-" if v is None else f"{v:.3g}" for v in values)))
    print_table(rows)


def _order(results):
    ours = list(next(iter(results.values())))
    return lambda name: ours.index(name)
