"""One change, one scope."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from agents.tuning.apply import ScopeError, apply, difference, exactly
from agents.tuning.levers import LEVERS
from contracts import Change, EngineSpec, Lever
from tests.agents.examples import spec

settings.register_profile("scope", deadline=None, max_examples=60)  # no time limits: a busy machine is no fault
settings.load_profile("scope")

SEQS = Change(lever=Lever.ENGINE_FLAG, key="max-num-seqs", before=4, after=16)

# Keys of one spelling, some of them close to each other; values that JSON tells apart and Python does not.
names = st.sampled_from(["max-num-seqs", "max-num", "seqs", "enforce-eager", "a"])
keys = st.sampled_from(["mode", "level", "a_b", "x"])
scalars = st.sampled_from([0, 1, 1.0, True, False, "1", "", "a b", -3, 2.5])
values = st.one_of(scalars, st.lists(scalars, max_size=2))
texts = st.text(max_size=5).filter(lambda t: "\0" not in t)
specs = st.builds(
    EngineSpec,
    python=st.just("p"),
    model=st.just("m"),
    flags=st.dictionaries(names, values, max_size=4),
    env=st.dictionaries(st.sampled_from(["A", "a", "B_C"]), texts, max_size=3),
    compilation=st.dictionaries(keys, st.one_of(values, st.dictionaries(keys, scalars, max_size=2)), max_size=3),
    overlay=st.dictionaries(
        st.just(Lever.SOURCE_PATCH),
        st.dictionaries(
            st.sampled_from(["vllm/x", "vllm/x.y", "vllm/x.y.z", "aiter/x"]), texts, min_size=1, max_size=3
        ),
        max_size=1,
    ),
)


@given(specs)
def test_nothing_differs_from_itself(a: EngineSpec) -> None:
    assert difference(a, a) == ()


@given(specs, specs)
def test_the_difference_leads_from_one_to_the_other(a: EngineSpec, b: EngineSpec) -> None:
    c = a
    for change in difference(a, b):
        c = apply(c, change)
    assert difference(c, b) == ()


@given(specs, specs)
def test_the_difference_back_is_the_difference_turned_round(a: EngineSpec, b: EngineSpec) -> None:
    turned = {(d.lever, d.key, repr(d.after), repr(d.before)) for d in difference(b, a)}
    assert {(d.lever, d.key, repr(d.before), repr(d.after)) for d in difference(a, b)} == turned


@given(specs, names, values)
def test_a_change_and_its_opposite(a: EngineSpec, key: str, after: Any) -> None:
    before = LEVERS[Lever.ENGINE_FLAG].read(a, key)
    change = Change(lever=Lever.ENGINE_FLAG, key=key, before=before, after=after)
    if repr(before) == repr(after):
        with pytest.raises(ScopeError):
            apply(a, change)
        return
    b = apply(a, change)
    exactly(a, b, change)
    assert difference(apply(b, Change(lever=change.lever, key=key, before=after, after=before)), a) == ()


@given(specs, specs)
def test_exactly_takes_one_change_only(a: EngineSpec, b: EngineSpec) -> None:
    found = difference(a, b)
    for change in found:
        if len(found) == 1:
            exactly(a, b, change)
        else:
            with pytest.raises(ScopeError):
                exactly(a, b, change)


def test_apply_refuses_another_before() -> None:
    with pytest.raises(ScopeError, match="the engine has 8, not 4"):
        apply(spec(flags={"max-num-seqs": 8}), SEQS)
    with pytest.raises(ScopeError, match="the engine has nothing set, not 4"):
        apply(spec(), SEQS)


def test_true_is_not_one() -> None:
    with pytest.raises(ScopeError, match="the engine has true, not 1"):
        apply(spec(flags={"a": True}), Change(lever=Lever.ENGINE_FLAG, key="a", before=1, after=2))


def test_a_second_difference_is_named() -> None:
    a, b = spec(flags={"max-num-seqs": 4}), spec(flags={"max-num-seqs": 16, "dtype": "float32"})
    with pytest.raises(ScopeError, match="they also differ in engine_flag: dtype: default -> float32"):
        exactly(a, b, SEQS)


def test_the_same_engine_twice_is_no_experiment() -> None:
    with pytest.raises(ScopeError, match="nothing to compare"):
        exactly(spec(), spec(), SEQS)


@pytest.mark.parametrize("field", [{"python": "/other"}, {"model": "/other"}, {"plugin_paths": ("/plugin",)}])
def test_what_no_lever_touches_may_not_differ(field: dict[str, Any]) -> None:
    a = spec(flags={"max-num-seqs": 4})
    b = spec(flags={"max-num-seqs": 16}, **field)
    with pytest.raises(ScopeError, match="which no lever may touch"):
        exactly(a, b, SEQS)


def test_spelling_is_not_a_difference() -> None:
    assert difference(spec(flags={"max_num_seqs": 4}), spec(flags={"max-num-seqs": 4})) == ()


def test_the_environment_takes_text() -> None:
    with pytest.raises(ScopeError, match="in quotes"):
        apply(spec(), Change(lever=Lever.ENVIRONMENT, key="A", after=1))


def test_a_nested_key_below_a_value_is_no_single_change() -> None:
    a = spec(compilation={"mode": 3})
    with pytest.raises(ScopeError):
        apply(a, Change(lever=Lever.COMPILATION, key="mode.deep", after=1))


def test_a_dot_in_a_files_name_is_no_nesting() -> None:
    """vllm/skip and vllm/skip.copy are two patches, and so are two rows of tables whose names begin alike."""
    held: dict[str, JsonValue] = {"vllm/skip": "a", "vllm/skip.copy": "b"}
    a, b = spec(), spec(overlay={Lever.SOURCE_PATCH: held})
    assert [c.key for c in difference(a, b)] == ["vllm/skip", "vllm/skip.copy"]
    one = spec(overlay={Lever.SOURCE_PATCH: {"vllm/skip": "a"}})
    exactly(one, b, Change(lever=Lever.SOURCE_PATCH, key="vllm/skip.copy", after="b"))
    with pytest.raises(ScopeError, match="they also differ in source_patch: vllm/skip:"):
        exactly(a, b, Change(lever=Lever.SOURCE_PATCH, key="vllm/skip.copy", after="b"))


def test_a_patch_and_a_flag_are_two_changes() -> None:
    patch = Change(lever=Lever.SOURCE_PATCH, key="vllm/x", after="a")
    b = apply(apply(spec(), patch), Change(lever=Lever.ENGINE_FLAG, key="dtype", after="half"))
    with pytest.raises(ScopeError, match="they also differ in engine_flag: dtype"):
        exactly(spec(), b, patch)
