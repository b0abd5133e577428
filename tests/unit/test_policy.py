"""Which rung is worth moving to, and why the others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdrift.core.economics import Estimate, StepTimes
from specdrift.core.policy import (
    LOWER_K,
    OFF,
    Choice,
    Facts,
    Rules,
    Rung,
    WhenUnknown,
    choose,
    predicted_at_baseline,
)
from tests.support.facts import AS_FOUND_CONFIG, LOAD, NGRAM, RULES, facts, losing

NGRAM_RUNG = Rung("ngram", NGRAM)
UNCHECKED = "outputs are equal by construction"


def chosen(
    found: Facts, rungs: tuple[Rung, ...], *, barred: tuple[str, ...] = (), **rules: object
) -> Choice:
    policy: Rules = replace(RULES, rungs=rungs, **rules)  # type: ignore[arg-type]
    return choose(found, policy, "as-found", AS_FOUND_CONFIG, barred)


def why(choice: Choice, rung: str) -> str:
    return next(a.why for a in choice.alternatives if a.rung == rung)


def test_off_is_worth_what_speculation_loses() -> None:
    found = losing(100.0)
    assert found.benefit is not None
    choice = chosen(found, (Rung(OFF),))
    assert choice.rung is not None
    assert choice.rung.rung == OFF
    assert choice.rung.settings is None
    assert choice.rung.gain == pytest.approx(1 / found.benefit.value - 1)
    assert "expected gain" in why(choice, OFF)
    assert [a.taken for a in choice.alternatives] == [True]


def test_nothing_is_better_than_speculation_that_pays() -> None:
    choice = chosen(facts(100.0), (Rung(LOWER_K), Rung(OFF)))
    assert all(not a.taken for a in choice.alternatives if a.rung == OFF)
    assert "below minGain" in why(choice, OFF)


def test_the_rung_with_the_most_speed_wins() -> None:
    # One token a draft: 1 + 0.36 tokens for a third of the overhead.
    choice = chosen(losing(100.0), (Rung(OFF), Rung(LOWER_K)))
    gains = {a.rung: a.gain for a in choice.alternatives}
    assert choice.rung is not None
    assert choice.rung.gain == max(g for g in gains.values() if g is not None)
    other = next(a for a in choice.alternatives if not a.taken)
    assert "less than" in other.why


def test_lower_k_states_its_config() -> None:
    found = facts(100.0, length=1.7, step=0.020)
    choice = chosen(found, (Rung(LOWER_K),))
    assert choice.rung is not None
    assert choice.rung.settings == {**AS_FOUND_CONFIG, "num_speculative_tokens": 1}


def test_a_small_gain_is_not_worth_a_restart() -> None:
    found = facts(100.0, length=2.15)  # 0.977 of plain decoding
    assert chosen(found, (Rung(OFF),)).rung is None
    assert chosen(found, (Rung(OFF),), min_gain=0.01).rung is not None


def test_what_is_in_force_or_did_not_help_is_not_chosen() -> None:
    barred = chosen(losing(100.0), (Rung(OFF),), barred=(OFF,))
    assert barred.rung is None
    assert why(barred, OFF) == "did not help when it was tried"
    present = choose(losing(100.0), RULES, OFF, AS_FOUND_CONFIG, ())
    assert present.rung is None
    assert why(present, OFF) == "is in force"


def test_an_unknown_gain_is_never_acted_on_unless_trials_are_allowed() -> None:
    rungs = (NGRAM_RUNG, Rung(OFF))
    allowed = {"output_check_disabled_because": UNCHECKED}
    careful = chosen(losing(100.0), rungs, **allowed)
    assert careful.rung is not None
    assert careful.rung.rung == OFF
    assert "allows no trial" in why(careful, "ngram")
    bold = chosen(losing(100.0), rungs, when_unknown=WhenUnknown.TRIAL, **allowed)
    assert bold.rung is not None
    assert bold.rung.rung == "ngram"
    assert bold.rung.gain is None
    assert "trial" in why(bold, "ngram")
    assert "lists ngram first" in why(bold, OFF)


def test_a_trial_comes_only_before_the_best_known_rung() -> None:
    choice = chosen(
        losing(100.0),
        (Rung(OFF), NGRAM_RUNG),
        when_unknown=WhenUnknown.TRIAL,
        output_check_disabled_because=UNCHECKED,
    )
    assert choice.rung is not None
    assert choice.rung.rung == OFF
    assert "off comes first" in why(choice, "ngram")


def test_speculation_that_pays_is_no_reason_for_a_trial() -> None:
    choice = chosen(
        facts(100.0),
        (NGRAM_RUNG, Rung(OFF)),
        when_unknown=WhenUnknown.TRIAL,
        output_check_disabled_because=UNCHECKED,
    )
    assert choice.rung is None
    assert "not measured to lose" in why(choice, "ngram")


def test_another_method_wants_its_outputs_checked() -> None:
    rungs = (NGRAM_RUNG,)
    refused = chosen(losing(100.0), rungs, when_unknown=WhenUnknown.TRIAL)
    assert refused.rung is None
    assert "outputs were not checked" in why(refused, "ngram")
    same = (Rung("short", {**AS_FOUND_CONFIG, "num_speculative_tokens": 2}),)
    assert chosen(losing(100.0), same, when_unknown=WhenUnknown.TRIAL).rung is not None


def test_without_traffic_or_a_reference_lower_k_is_not_known() -> None:
    nothing = replace(losing(100.0), point=None, benefit=None)
    assert "no traffic" in why(chosen(nothing, (Rung(LOWER_K),)), LOWER_K)
    blind = facts(100.0, known=False)
    assert "not known at this load" in why(chosen(blind, (Rung(LOWER_K),)), LOWER_K)
    assert chosen(blind, (Rung(LOWER_K), Rung(OFF))).rung is None


def test_the_same_facts_give_the_same_choice() -> None:
    found = losing(100.0)
    assert chosen(found, (Rung(LOWER_K), Rung(OFF))) == chosen(found, (Rung(LOWER_K), Rung(OFF)))


def test_what_the_original_would_do_at_its_baseline() -> None:
    found = facts(100.0)
    assert predicted_at_baseline(found, LOAD) == pytest.approx(2.6 / 2.2)
    assert predicted_at_baseline(found, 100 * LOAD) is None
    assert predicted_at_baseline(replace(found, reference=StepTimes()), LOAD) is None
    assert predicted_at_baseline(replace(found, baseline_length=None), LOAD) is None


def test_an_interval_that_reaches_one_is_not_measured_to_lose() -> None:
    unsure = replace(facts(100.0), benefit=Estimate(0.98, 0.94, 1.02, 12))
    choice = chosen(
        unsure,
        (NGRAM_RUNG, Rung(OFF)),
        when_unknown=WhenUnknown.TRIAL,
        output_check_disabled_because=UNCHECKED,
    )
    assert choice.rung is None
