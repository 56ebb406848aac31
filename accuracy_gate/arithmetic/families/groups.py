"""Things in boxes, rows and shares."""

from __future__ import annotations

from accuracy_gate.arithmetic.problem import Family

FAMILIES = (
    Family(
        "boxes_minus",
        {"b": (2, 60), "n": (2, 90), "g": (2, 900)},
        (
            "all = b * n: The {boxes} hold {} {items}.",
            "left = all - g: {} {items} are left.",
        ),
        (
            (
                "{name} has {b} {boxes} with {n} {items} in each.",
                "{He} gives away {g} {items}.",
                "How many {items} are left?",
            ),
            (
                "There are {n} {items} in every {box}, and there are {b} {boxes}.",
                "Then {g} {items} are sold.",
                "How many {items} remain?",
            ),
            (
                "{b} {boxes} stand in the shop, each with {n} {items}.",
                "On {day} people buy {g} {items}.",
                "How many {items} does the shop still have?",
            ),
        ),
    ),
    Family(
        "pooled_shares",
        {"a": (5, 600), "share": (3, 150), "k": (2, 12)},
        (
            "all = a + b: Together there are {} {items}.",
            "each = all / k: Each child gets {} {items}.",
        ),
        (
            (
                "{name} has {a} {items} and {other} has {b}.",
                "They share them equally among {k} children.",
                "How many {items} does each child get?",
            ),
            (
                "One {box} holds {a} {items}, another holds {b}.",
                "All are shared fairly by {k} children.",
                "What does each child get?",
            ),
        ),
        derived=("whole = share * k", "b = whole - a"),
    ),
    Family(
        "shelves",
        {"s": (2, 12), "b": (2, 12), "n": (2, 60), "g": (5, 2000)},
        (
            "count = s * b: There are {} {boxes}.",
            "all = count * n: They hold {} {items}.",
            "left = all - g: {} {items} are left.",
        ),
        (
            (
                "There are {s} shelves with {b} {boxes} on each, and every {box} holds {n} {items}.",
                "{name} takes {g} {items}.",
                "How many {items} are left?",
            ),
            (
                "A shop keeps {n} {items} in each {box} and {b} {boxes} on each of its {s} shelves.",
                "It sells {g} {items}.",
                "How many {items} does it have now?",
            ),
        ),
    ),
    Family(
        "repacked",
        {"n": (2, 60), "m": (2, 90), "k": (2, 12)},
        (
            "all = n * m: There are {} {items}.",
            "new = all / k: They fill {} new {boxes}.",
        ),
        (
            (
                "{name} empties {n} {boxes} of {m} {items} each and packs the {items} into new {boxes} of {k}.",
                "How many new {boxes} are filled?",
            ),
            (
                "{n} bags hold {m} {items} each.",
                "They are packed again, {k} to a {box}.",
                "How many {boxes} does that take?",
            ),
        ),
    ),
    Family(
        "broken_ones",
        {"c": (2, 12), "n": (6, 120), "d": (2, 60), "e": (5, 500)},
        (
            "good = n - d: Each {box} has {} good {items}.",
            "all = c * good: Together that is {} {items}.",
            "now = all + e: With the others there are {} {items}.",
        ),
        (
            (
                "Each of {c} {boxes} holds {n} {items}, but {d} in each are broken.",
                "{name} has {e} more good {items} at home.",
                "How many good {items} are there in all?",
            ),
            (
                "{name} opens {c} {boxes} of {n} {items} and finds {d} bad ones in every {box}.",
                "{other} brings {e} good ones.",
                "How many good {items} do they have?",
            ),
        ),
    ),
    Family(
        "half_away",
        {"n": (10, 990), "e": (2, 300), "f": (2, 300)},
        (
            "half = n / 2: Half of them is {}.",
            "left = half - e: After that, {} {items} are left.",
            "now = left + f: In the end there are {} {items}.",
        ),
        (
            (
                "{name} has {n} {items} and gives half of them to {other}.",
                "Then {he} loses {e} and finds {f}.",
                "How many {items} does {he} have in the end?",
            ),
            (
                "Of {n} {items}, half are sold on {day}.",
                "The next day {e} more are sold, and {f} new ones come in.",
                "How many {items} are there then?",
            ),
        ),
    ),
    Family(
        "school",
        {"c": (2, 30), "p": (10, 30), "a": (2, 90), "t": (2, 60)},
        (
            "pupils = c * p: The school has {} pupils.",
            "here = pupils - a: On that day {} are there.",
            "all = here + t: With the teachers it is {} people.",
        ),
        (
            (
                "A school has {c} classes of {p} pupils.",
                "On {day} {a} pupils are ill, and {t} teachers are there.",
                "How many pupils and teachers are at school that day?",
            ),
            (
                "There are {p} pupils in each of the {c} classes.",
                "{a} pupils stay at home; {t} teachers come.",
                "How many people are in the school?",
            ),
        ),
    ),
    Family(
        "seats",
        {"r": (4, 60), "s": (6, 40), "left": (2, 60), "k": (2, 9)},
        (
            "all = r * s: There are {} seats.",
            "free = all - o: {} seats are free.",
            "groups = free / k: {} more groups can sit.",
        ),
        (
            (
                "A hall has {r} rows of {s} seats.",
                "{o} seats are taken.",
                "How many groups of {k} people can still sit down?",
            ),
            (
                "In the cinema there are {s} seats in each of {r} rows, and {o} people are sitting.",
                "People now come in groups of {k}.",
                "For how many groups is there room?",
            ),
        ),
        derived=("space = left * k", "whole = r * s", "o = whole - space"),
    ),
    Family(
        "teams",
        {"g": (5, 150), "b": (5, 150), "s": (2, 40), "k": (2, 12)},
        (
            "all = g + b: There are {} children.",
            "fit = all - s: {} of them play.",
            "teams = fit / k: They make {} teams.",
        ),
        (
            (
                "{g} girls and {b} boys want to play, but {s} of them are ill.",
                "The others make teams of {k}.",
                "How many teams are there?",
            ),
            (
                "A camp has {g} girls and {b} boys.",
                "{s} children stay in bed, and the rest form teams of {k}.",
                "How many teams is that?",
            ),
        ),
    ),
    Family(
        "eggs_by_the_dozen",
        {"h": (2, 90), "e": (2, 6), "p": (2, 9)},
        (
            "daily = h * e: The hens lay {} eggs a day.",
            "weekly = daily * 7: In a week that is {} eggs.",
            "dozens = weekly / 12: That is {} dozen.",
            "income = dozens * p: They bring {} dollars.",
        ),
        (
            (
                "{name} has {h} hens that lay {e} eggs each per day.",
                "A dozen eggs sells for ${p}.",
                "How many dollars does {he} earn in a week?",
            ),
            (
                "Each hen lays {e} eggs a day, and there are {h} hens on the farm.",
                "The farm sells all eggs at ${p} a dozen.",
                "What does one week bring?",
            ),
        ),
    ),
    Family(
        "reading_plan",
        {"r": (5, 60), "d": (2, 12), "each": (3, 60), "k": (2, 12)},
        (
            "done = r * d: {name} has read {} pages.",
            "left = pages - done: {} pages are left.",
            "daily = left / k: That is {} pages a day.",
        ),
        (
            (
                "A book has {pages} pages.",
                "{name} reads {r} pages a day for {d} days.",
                "To finish in {k} more days, how many pages must {he} read each day?",
            ),
            (
                "{name} read {r} pages on each of {d} days.",
                "The book has {pages} pages and is due in {k} days.",
                "How many pages a day are left to read?",
            ),
        ),
        derived=("was = r * d", "will = each * k", "pages = was + will"),
    ),
    Family(
        "gifts_to_friends",
        {"a": (10, 600), "b": (5, 400), "c": (2, 40), "d": (2, 12)},
        (
            "all = a + b: {name} has {} {items}.",
            "given = c * d: {He} gives away {} {items}.",
            "left = all - given: {} {items} are left.",
        ),
        (
            (
                "{name} has {a} {items} and gets {b} more.",
                "{He} gives {c} {items} to each of {d} friends.",
                "How many {items} does {he} have left?",
            ),
            (
                "{name} found {a} {items} on {day} and {b} the day after.",
                "Each of {his} {d} friends gets {c} {items}.",
                "How many remain?",
            ),
        ),
    ),
    Family(
        "quarter_and_third",
        {"n": (16, 990)},
        (
            "q = n / 4: A quarter is {} {items}.",
            "rest = n - q: Then there are {} {items}.",
            "t = rest / 3: A third of those is {}.",
            "left = rest - t: {} {items} are left.",
        ),
        (
            (
                "{name} has {n} {items}.",
                "{He} gives a quarter of them to {other} and then a third of the rest to {third}.",
                "How many {items} are left?",
            ),
            (
                "There are {n} {items} in a {box}.",
                "A quarter are red, and a third of the others are blue.",
                "How many are neither red nor blue?",
            ),
        ),
    ),
    Family(
        "bakery_day",
        {"t": (3, 24), "p": (6, 40), "s": (5, 500), "q": (2, 9)},
        (
            "all = t * p: The bakery makes {} rolls.",
            "left = all - s: After the morning there are {} rolls.",
            "noon = left / 2: At noon {} rolls are sold.",
            "sold = s + noon: Altogether {} rolls are sold.",
            "income = sold * q: They bring {} dollars.",
        ),
        (
            (
                "A bakery makes {t} trays of {p} rolls.",
                "In the morning it sells {s} rolls, at noon half of the rest.",
                "A roll costs ${q}.",
                "How many dollars does it take in?",
            ),
            (
                "Rolls cost ${q} each.",
                "{name} bakes {t} trays with {p} rolls on each, sells {s} in the morning and half of the rest at noon.",
                "How much money is that?",
            ),
        ),
    ),
    Family(
        "three_colours",
        {"r": (5, 400), "m": (2, 200), "k": (2, 9), "g": (5, 600)},
        (
            "blue = r + m: There are {} blue {items}.",
            "green = k * r: There are {} green {items}.",
            "some = r + blue: Red and blue make {}.",
            "all = some + green: All together make {}.",
            "left = all - g: {} {items} are left.",
        ),
        (
            (
                "{name} has {r} red {items}, {m} more blue than red ones, and {k} times as many green as red ones.",
                "{He} sells {g} {items}.",
                "How many {items} are left?",
            ),
            (
                "In a {box} there are {r} red {items}.",
                "There are {m} more blue ones than red ones, and {k} times as many green as red.",
                "{g} {items} are taken out.",
                "How many stay in the {box}?",
            ),
        ),
    ),
)
