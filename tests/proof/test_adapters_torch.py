"""torch's random calls as choices, and transformers' own loops under the proof."""

import itertools
import json
import random

import numpy as np
import pytest

from minidecode import MinidecodeError, TableModel, exact, sample
from minidecode.cli import main
from minidecode.proof.adapters import TableLM, choices
from minidecode.proof.adapters import transformers_settings as peer

torch = pytest.importorskip("torch", reason="torch is not installed (extra `peers`)")

P = [0.5, 0.3, 0.2]


def law(program):
    def run(chance):
        with choices(chance):
            return program()

    return exact.law(run)


# Draws


@pytest.mark.parametrize(
    "draw",
    [
        lambda p: torch.multinomial(p, 1).item(),
        lambda p: torch.multinomial(p[None], num_samples=1)[0, 0].item(),
        lambda p: p.multinomial(1).item(),
        lambda p: torch.multinomial(p, 1, generator=torch.Generator().manual_seed(1)).item(),
        lambda p: torch.distributions.Categorical(p).sample().item(),
        lambda p: int((torch.rand(1) >= p.cumsum(0)).sum()),
        lambda p: int((p.cumsum(0) <= torch.rand(1)).sum()),
        lambda p: int((p.cumsum(0) <= random.random()).sum()),
    ],
)
def test_draws_of_torch(draw):
    p = torch.tensor(P)
    assert law(lambda: draw(p)) == pytest.approx({0: 0.5, 1: 0.3, 2: 0.2}, abs=1e-6)


def test_several_draws_with_and_without_replacement():
    p = torch.tensor(P, dtype=torch.float64)
    pairs = law(lambda: torch.multinomial(p, 2))
    wanted = {(a, b): P[a] * P[b] / (1 - P[a]) for a, b in itertools.permutations(range(3), 2)}
    assert pairs == pytest.approx(wanted)
    assert law(lambda: torch.multinomial(p, 2, replacement=True))[0, 0] == 0.25
    rows = law(lambda: torch.multinomial(torch.stack([p, p]), 1))
    assert rows[((0,), (1,))] == pytest.approx(0.15)
    assert law(lambda: torch.bernoulli(torch.tensor([0.25, 0.5])))[1.0, 1.0] == 0.125


UNIFORM = {
    "rand": lambda x: torch.rand(2) < x,
    "a size": lambda x: torch.rand((2,)) <= x,
    "rand_like": lambda x: torch.rand_like(x) < x,
    "mirrored": lambda x: x > torch.rand(2),
    "torch.lt": lambda x: torch.lt(torch.rand(2), x),
    "moved": lambda x: torch.rand(1, 2, device="cpu").to(x)[0].float().clone() < x,
    "shaped": lambda x: torch.rand(2).reshape(1, 2).squeeze(0).unsqueeze(1).flatten() < x,
    "one by one": lambda x: torch.stack([u < y for u, y in zip(torch.rand(2), x)]),
    "items": lambda x: torch.tensor([u < float(y) for u, y in zip(torch.rand(2).tolist(), x)]),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_tensors_are_compared(name):
    x = torch.tensor([0.25, 0.5])
    assert law(lambda: UNIFORM[name](x))[True, True] == 0.125


@pytest.mark.parametrize(
    "use, name",
    [
        (lambda u: u * 2, "mul"),
        (lambda u: torch.ones(2) - u, "sub|torch"),
        (lambda u: -u, "neg"),
        (lambda u: u.log(), "log"),
        (lambda u: torch.log(u), "log"),
        (lambda u: torch.cat([u, u]), "cat"),
        (lambda u: u.argmax(), "argmax"),
        (lambda u: u.numpy(), "numpy"),
        (lambda u: u < torch.rand(2), "between two"),
        (lambda u: float(u[0]), "float"),
        (lambda u: bool(u[0]), "bool"),
        (lambda u: torch.searchsorted(torch.tensor([0.5, 1.0]), u), "searchsorted"),
    ],
)
def test_arithmetic_is_refused_by_name(use, name):
    with pytest.raises(MinidecodeError, match=name):
        law(lambda: use(torch.rand(2)))


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: torch.manual_seed(0), "torch.manual_seed"),
        (lambda: torch.random.manual_seed(0), "torch.random.manual_seed"),
        (lambda: torch.randn(2), "torch.randn"),
        (lambda: torch.randint(0, 2, (2,)), "torch.randint"),
        (lambda: torch.randperm(3), "torch.randperm"),
        (lambda: torch.empty(2).exponential_(), "torch.Tensor.exponential_"),
        (lambda: torch.empty(2).uniform_(), "torch.Tensor.uniform_"),
        (lambda: torch.empty(2).normal_(), "torch.Tensor.normal_"),
        (lambda: torch.rand(2, out=torch.empty(2)), "torch.rand.out"),
        (lambda: torch.Generator().manual_seed(0).manual_seed(0), "manual_seed, a second time"),
        (lambda: torch.nn.functional.dropout(torch.ones(9)), "torch: its generator moved"),
    ],
)
def test_reseeds_and_unknown_calls_are_refused_by_name(call, name):
    with pytest.raises(MinidecodeError, match=name):
        law(call)


def test_a_layer_may_be_made_on_the_way():
    assert law(lambda: list(torch.nn.Linear(2, 3).weight.shape)) == {(3, 2): 1.0}


def test_afterwards_torch_is_as_it_was():
    names = ("rand", "multinomial", "randn", "manual_seed", "Generator")
    before = [getattr(torch, name) for name in names]
    own = set(vars(torch.Tensor))
    law(lambda: torch.rand(1) < 0.5)
    assert [getattr(torch, name) for name in names] == before
    assert set(vars(torch.Tensor)) == own
    assert torch.rand(2).shape == (2,)


# transformers


def needs_transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


def test_the_library_s_plain_sampling_has_the_law_of_ours():
    needs_transformers()
    table = TableModel(peer.target_row)
    plain = peer.Generating(TableLM(table), options={"max_new_tokens": 3})
    report = exact.compare(
        plain,
        lambda chance: sample(table, list(peer.PROMPT), chance=chance, max_new_tokens=3),
        tolerance=peer.TOLERANCE,
    )
    assert report.passed and report.distance > 0  # float32 against float64


def test_a_table_of_transformers_knows_its_history_from_the_cache():
    transformers = needs_transformers()
    table = TableModel(peer.target_row)
    model, cache = TableLM(table), transformers.DynamicCache()
    for tokens in ([0, 1, 0], [2], [1, 1]):
        with torch.no_grad():
            logits = model(torch.tensor([tokens]), past_key_values=cache).logits
        assert logits.shape == (1, len(tokens), 3)
    wanted = np.log(table.row([0, 1, 0, 2, 1, 1]))
    assert logits[0, -1].numpy() == pytest.approx(wanted, abs=1e-6)
    cache.crop(-4)
    with torch.no_grad():
        logits = model(torch.tensor([[2]]), past_key_values=cache).logits
    assert logits[0, -1].numpy() == pytest.approx(np.log(table.row([0, 1, 2])), abs=1e-6)


@pytest.mark.parametrize(
    "name", ["k = 1", "top-p 0.8", "no repeated 2-gram", "end token forced at the end",
             "prompt lookup", "_speculative_sampling alone"]
)  # fmt: skip
def test_ordinary_settings_of_transformers_are_exact(name):
    needs_transformers()
    report = peer.report(name)
    assert peer.is_exact(report), report
    assert report.paths > 10


FOUND = {"A: k = 1, get_vocab() in the order z, b, space, a": 0.6, "B: k = 1": 0.49}
FOUND |= {"C: k = 1": 0.237, "D: k = 2": 0.75}


@pytest.mark.parametrize("name", FOUND)
def test_known_deviations_of_the_version_they_were_found_in(name):
    if needs_transformers().__version__ != peer.FOUND_IN:
        pytest.skip(f"the deviations are those of transformers {peer.FOUND_IN}")
    assert peer.report(name).distance == pytest.approx(FOUND[name], abs=1e-3)


def test_what_the_library_raises_is_a_sentence_and_not_exact(monkeypatch):
    needs_transformers()
    monkeypatch.setitem(peer.ORDINARY, "k = 1", lambda: 1 / 0)
    report = peer.report("k = 1")
    assert report == "could not be run: ZeroDivisionError: division by zero"
    assert not peer.is_exact(report)


@pytest.mark.parametrize("broken", [False, True])
def test_verify_library_prints_a_table_and_tells_by_its_exit_code(broken, monkeypatch, capsys):
    needs_transformers()
    few = {name: peer.ORDINARY[name] for name in ("top-p 0.8", "_speculative_sampling alone")}
    monkeypatch.setattr(
        peer, "ORDINARY", few | ({"broken": peer.stopping_criterion} if broken else {})
    )
    code = main(["verify", "--library", "transformers"])
    assert code == broken
    out = capsys.readouterr().out
    assert "known to deviate" in out and "#48039" in out
    for key in "ABCD":
        assert f"\n{key}. " in out
    assert f"{'FAILED' if broken else 'passed'}: 2 of {2 + broken} ordinary settings" in out
    assert main(["verify", "--library", "transformers", "--json"]) == broken
    facts = json.loads(capsys.readouterr().out)
    assert facts["passed"] is not broken
    assert facts["ordinary"]["top-p 0.8"]["exact"]
    assert set(facts["known to deviate"]) == set("ABCD")
