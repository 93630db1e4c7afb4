"""llama.cpp as a peer, through programs and GGUF files that the user built and made.

`llama-bench` runs passes and prints JSON; `llama-speculative-simple` writes one text and says at
its end how long that took. Both start anew each time, so a visit is one run of a program, and what
it loads is not timed. Two things differ from how our own engine is measured, both in llama.cpp's
favour: llama-bench computes the logits of a pass's last token only, and chooses no token.
"""

import functools
import json
import re
import shutil
import statistics
import subprocess
from pathlib import Path

from ..errors import InputError, MinidecodeError
from .speculation import Sums, Way
from .speed import DECODED, PASSES, PREFILL, Engine

FOLDERS = ("", "bin", "build/bin")  # below the named directory: where a build leaves its programs
TRIES = 5  # llama.cpp's log is written by a thread that now and then does not live to its last line
LIKE = 0.02  # two counts of one model's parameters differ by no more: tied heads, masks


def find_program(directory, name):
    """The path of a program in `directory` or the folders of a build; `InputError` without it."""
    for folder in FOLDERS:
        found = shutil.which(name, path=str(Path(directory).expanduser() / folder))
        if found:
            return found
    raise InputError(f"--llama-cpp: got {directory}, a directory with {name} in it was wanted")


def check_file(path, option="--gguf"):
    """A GGUF file as a Path; `InputError` for anything else, which llama.cpp says at length."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{option}: got {path}, a GGUF file was wanted, and there is no such file")
    with open(file, "rb") as stream:
        if stream.read(4) != b"GGUF":
            raise InputError(f"{option}: got {path}, which is not a GGUF file")
    return file


def check_files(paths):
    """The files' Paths; `InputError` for one that is none, and for two of the same name."""
    files = [check_file(path) for path in paths]
    names = [file.stem for file in files]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--gguf: got two files called {name}, a name for each was wanted")
    return files


def run(command):
    """What a program printed, (standard output, standard error); an error if it failed."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise MinidecodeError(f"{command[0]}: cannot be run ({error.strerror})") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        reason = f" ({said[-1].strip()})" if said else ""
        raise MinidecodeError(f"{name}: ended with code {done.returncode}{reason}")
    return done.stdout, done.stderr


def bench(program, gguf, threads, *, prompts=(0,), generated=0, context=0, repeats=1):
    """Run llama-bench: {(tokens read, tokens generated): entry of its JSON}.

    prompts: sizes of passes over several tokens; generated: tokens one by one; both begin with
    `context` tokens in the cache.
    """
    command = [program, "-m", gguf, "-o", "json", "-t", threads, "-r", repeats, "-d", context]
    output, _ = run([*command, "-p", ",".join(map(str, prompts)), "-n", generated])
    try:
        entries = {(entry["n_prompt"], entry["n_gen"]): entry for entry in json.loads(output)}
        wanted = [(n, 0) for n in prompts if n] + [(0, generated)] * bool(generated)
        for kind in wanted:
            if not all(seconds > 0 for seconds in sample_seconds(entries[kind])):
                raise ValueError("a time of 0")
            if not sample_seconds(entries[kind]):
                raise ValueError("no time")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise MinidecodeError(f"llama-bench: its JSON was not understood ({what})") from None
    return entries


def sample_seconds(entry):
    """The seconds of each repetition of one of llama-bench's tests."""
    return [nanoseconds / 1e9 for nanoseconds in entry["samples_ns"]]


class LlamaCpp(Engine):
    """llama-bench on one GGUF file."""

    def __init__(self, program, gguf, threads, context, n_parameters=None):
        self.program, self.gguf = program, Path(gguf)
        self.threads, self.context, self.n_parameters = threads, context, n_parameters
        self.name = f"llama.cpp {self.gguf.stem}"

    def visit(self, repeats, logits):
        """Every figure that llama-bench can tell: {figure: values}."""
        run_bench = functools.partial(bench, self.program, self.gguf, self.threads, repeats=repeats)
        short = run_bench(prompts=PASSES, generated=DECODED, context=self.context)
        long = run_bench(prompts=(PREFILL,))
        self._check_size(short[1, 0])
        passes = {n: sample_seconds(short[n, 0]) for n in PASSES}
        one = statistics.median(passes[1])
        seen = {"tokens/s": [DECODED / seconds for seconds in sample_seconds(short[0, DECODED])]}
        for n, times in passes.items():
            seen[f"pass over {n}, ms"] = [1e3 * seconds for seconds in times]
            if n > 1:
                seen[f"pass over {n} / 1"] = [seconds / one for seconds in times]
        seen[f"prefill {PREFILL}, ms"] = [1e3 * t for t in sample_seconds(long[PREFILL, 0])]
        if "model_size" in short[1, 0]:
            seen["weights, GB"] = [short[1, 0]["model_size"] / 1e9]
        return seen

    def _check_size(self, entry):
        """A file of another shape would stand beside ours as if it were the same model."""
        found = entry.get("model_n_params")
        if self.n_parameters and found and abs(found / self.n_parameters - 1) > LIKE:
            raise InputError(
                f"--gguf: got {self.gguf} with {found / 1e6:.0f} million parameters, "
                f"{self.n_parameters / 1e6:.0f} million as in the shape measured were wanted"
            )


class LlamaSpeculative:
    """llama-speculative-simple with a draft, and llama-bench for plain decoding; greedy.

    tokenizer: turns a prompt's ids into the text that llama.cpp is given.
    """

    def __init__(self, directory, target, draft, threads, tokenizer, lengths):
        self.speculative = find_program(directory, "llama-speculative-simple")
        self.plain = find_program(directory, "llama-bench")
        self.target, self.draft = Path(target), draft
        self.threads, self.tokenizer, self.lengths = threads, tokenizer, lengths
        self.engine = f"llama.cpp {self.target.stem}"

    def ways(self, n):
        """`Way` -> function (prompt, warp, seed) that tells the `Sums` of a text of n tokens."""

        def assisted(prompt, warp, seed, k):
            return self._speculate(prompt, n, k)

        def plain(prompt, warp, seed):
            return self._decode(prompt, n)

        return {
            Way("plain", self.engine): plain,
            **{
                Way.constant(k, self.engine): functools.partial(assisted, k=k) for k in self.lengths
            },
        }

    def _decode(self, prompt, n):
        entry = bench(self.plain, self.target, self.threads, generated=n, context=len(prompt))[0, n]
        (seconds,) = sample_seconds(entry)
        return Sums(tokens=n, passes=n, seconds=seconds, rate=n / seconds)

    def _speculate(self, prompt, n, k):
        files = ["-m", self.target, "-md", self.draft, "-t", self.threads, "-td", self.threads]
        drafts = ["--spec-type", "draft-simple", "--spec-draft-n-max", k]
        greedily = ["-n", n, "--temp", 0, "--samplers", "temperature", "--ignore-eos"]
        text = self.tokenizer.decode(prompt)
        told = _read_end([self.speculative, *files, *drafts, *greedily, "-p", text])
        if told["encoded"] != len(prompt):
            raise MinidecodeError(
                f"{self.target}: got {told['encoded']} tokens for the prompt {text!r}, "
                f"{len(prompt)} as here were wanted"
            )
        return Sums(
            tokens=told["n_predict"],
            passes=told["n_predict"] - told["n_accept"],  # one token a pass that was not drafted
            seconds=told["seconds"],
            rate=told["n_predict"] / told["decoding"],
            drafted=told["n_drafted"],
            accepted=told["n_accept"],
        )


_TIMES = re.compile(r"(encoded|decoded) +(\d+) tokens in +([\d.]+) seconds")
_COUNTS = re.compile(r"(n_predict|n_drafted|n_accept) += +(\d+)")


def _read_end(command):
    """The counts and seconds that llama-speculative-simple prints when its text is written."""
    for _ in range(TRIES):
        output = "".join(run(command))
        times = {name: (int(n), float(seconds)) for name, n, seconds in _TIMES.findall(output)}
        told = {name: int(n) for name, n in _COUNTS.findall(output)}
        if len(times) == 2 and len(told) == 3 and times["decoded"][1] > 0:
            (encoded, reading), (_, decoding) = times["encoded"], times["decoded"]
            seconds = reading + decoding
            return told | {"encoded": encoded, "decoding": decoding, "seconds": seconds}
    raise MinidecodeError(f"{Path(command[0]).name}: what it said of its text was not understood")
