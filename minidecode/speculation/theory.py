"""What speculation should gain (Leviathan et al. 2023, section 3), from measured numbers.

With a_i the acceptance of the i-th draft once those before it were accepted, a round of k drafts
brings on average

    E(k) = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_k

tokens, for k steps of the draft and one pass of the target over k + 1 tokens. Plain decoding pays a
pass over one token for each. So speculation is faster by the factor

    E(k) * pass(1) / (k * draft + pass(k + 1)).

`verify_block` keeps i or more drafts with the mean of P_i (verify.py), for every k >= i. So a_i is
the mean of P_i over that of P_{i-1} and E(k) is as above: to count how often a draft was kept once
the one before it was, as `Auto` does, is right for both rules. Under the ratio test a_i hardly
changes with i; in blocks it rises, because P recovers after a bad ratio. So more drafts pay.

With one acceptance alpha at all places, E(k) is the paper's equation 1; where a pass costs the same
over any few tokens, and a draft step c of it, the factor is that of its theorem 3.8. What is really
gained lies below by what is spent outside the two models.
"""

import itertools
import operator


def tokens_by_length(acceptance):
    """E(0), E(1), ..., E(len(acceptance)), from the acceptance of drafts at place 1, 2, ..."""
    reached = itertools.accumulate(acceptance, operator.mul, initial=1.0)
    return list(itertools.accumulate(reached))


def expected_tokens(acceptance, k):
    """E(k), from the acceptance of drafts at place 1, 2, ... (at least k of them)."""
    return tokens_by_length(acceptance[:k])[-1]


def chances_to_stand(ratios, rule="token"):
    """With which probability draft 1, 2, ... of one block is kept, from p(x)/q(x) of each.

    rule: token or block. The mean over many blocks is a_1, a_1 a_2, ...; of the block rule a single
    block's are those given the drafts up to there.
    """
    chances, reach = [], 1.0
    for ratio in ratios:
        reach = min(1.0, reach * ratio) if rule == "block" else reach * min(1.0, ratio)
        chances.append(reach)
    return chances


def predicted_speedup(acceptance, k, draft_seconds, pass_seconds):
    """The factor by which k drafts a round beat plain decoding; None where a number is missing.

    draft_seconds: of one draft step; pass_seconds: tokens in a pass of the target -> its seconds.
    Behind a place with acceptance 0 no draft was ever tested, and none would be kept.
    """
    known = list(acceptance[:k])
    if 0 in known:
        known = known[: known.index(0) + 1]
        known += [0.0] * (k - len(known))
    numbers = [*known, draft_seconds, pass_seconds.get(1), pass_seconds.get(k + 1)]
    if len(known) < k or None in numbers:
        return None
    round_seconds = k * draft_seconds + pass_seconds[k + 1]
    return expected_tokens(known, k) * pass_seconds[1] / round_seconds
