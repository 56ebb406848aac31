from accuracy_gate.prompts import prompts, prompts_hash


def test_the_same_seed_gives_the_same_prompts_and_another_seed_gives_none_of_them() -> None:
    mine = prompts(24, seed=7)
    assert mine == prompts(24, seed=7)
    assert not {p.text for p in mine if len(p.text.split()) > 10} & {p.text for p in prompts(24, seed=8)}
    assert prompts_hash(mine) != prompts_hash(prompts(24, seed=8))


def test_a_short_list_is_the_beginning_of_a_long_one_so_the_quick_form_asks_the_same() -> None:
    assert prompts(8) == prompts(100)[:8]


def test_lengths_and_registers_vary_already_among_the_first_eight() -> None:
    lengths = [len(p.text.split()) for p in prompts(8)]
    assert min(lengths) <= 6 and sorted(lengths)[-2] >= 90 and max(lengths) <= 240
    assert len({p.kind for p in prompts(8)}) == 5


def test_prompts_are_all_different_also_when_there_are_many() -> None:
    many = prompts(400, seed=1)
    assert len({p.text for p in many}) == len({p.id for p in many}) == 400
