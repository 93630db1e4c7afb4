"""The tree of a diverse beam search: each group's branches, and what diversity cost them."""

import numpy as np
import pytest

from minidecode import TableModel
from minidecode.decoding.diverse_beam import diverse_beam_search
from minidecode.trace.beam import trace_diverse_beam

RNG = np.random.default_rng(4)
MODEL = TableModel(RNG.dirichlet(np.ones(6), 6))


@pytest.mark.parametrize(("groups", "beams"), [(1, 3), (2, 4), (3, 3), (4, 4)])
@pytest.mark.parametrize("eos", [None, 5])
def test_the_tree_is_of_the_search_as_it_took_place(groups, beams, eos):
    options = {"num_beams": beams, "num_beam_groups": groups, "max_new_tokens": 6, "eos": eos}
    options |= {"num_return_sequences": beams}
    if groups > 1:
        options["diversity_penalty"] = 0.7
    plain = diverse_beam_search(MODEL, [0], **options)
    tree = trace_diverse_beam(MODEL, [0], **options)
    assert [(h.tokens, h.score) for h in tree.hypotheses] == [(h.tokens, h.score) for h in plain]
    above = []
    for nodes in tree.levels:
        assert [n.group for n in nodes] == sorted(n.group for n in nodes)
        texts, taken = [], dict.fromkeys(range(6), 0)
        for group in range(1, groups + 1):
            mine = [n for n in nodes if n.group == group]
            for node in mine:
                text, total = ([], 0.0) if node.parent is None else above[node.parent]
                token = node.candidate.token
                log_p = np.log(MODEL.row([0, *text])[token])
                cost = 0.7 * taken[token] if groups > 1 else 0
                if eos is None and nodes is not tree.levels[-1]:  # where all go on, it is plain
                    assert node.total == pytest.approx(total + log_p - cost)
                texts.append(([*text, token], node.total))
            for node in mine:
                taken[node.candidate.token] += node.fate == "running"
        above = texts
    ends = [n for nodes in tree.levels for n in nodes if n.rank is not None]
    assert sorted(n.rank for n in ends) == list(range(len(plain)))
    assert any(n.best for n in tree.levels[0])
