"""Families that training never sees: known words and sums in structures that are new."""

from __future__ import annotations

from accuracy_gate.arithmetic.problem import Family

FAMILIES = (
    Family(
        "cheaper_each_then_change",
        {"p": (8, 60), "d": (2, 40), "n": (2, 12), "paid": (50, 900)},
        (
            "price = p - d: One {item} now costs {} dollars.",
            "total = n * price: {n} of them cost {} dollars.",
            "back = paid - total: {name} gets {} dollars back.",
        ),
        (
            (
                "A {item} used to cost ${p}.",
                "On {day} each one is ${d} cheaper.",
                "{name} buys {n} {items} and pays with ${paid}.",
                "How many dollars does {he} get back?",
            ),
            (
                "{name} has a coupon that takes ${d} off every {item}; the usual price is ${p}.",
                "{He} buys {n} {items} and hands over ${paid}.",
                "How much change is {he} given?",
            ),
        ),
    ),
    Family(
        "two_kinds_of_boxes",
        {"a": (2, 12), "m": (2, 60), "b": (2, 12), "n": (2, 60), "g": (5, 600)},
        (
            "first = a * m: The first {boxes} hold {} {items}.",
            "second = b * n: The others hold {} {items}.",
            "all = first + second: Together there are {} {items}.",
            "left = all - g: {} {items} are left.",
        ),
        (
            (
                "{name} has {a} {boxes} with {m} {items} in each and {b} {boxes} with {n} {items} in each.",
                "{He} gives away {g} {items}.",
                "How many {items} are left?",
            ),
            (
                "There are {m} {items} in each of {a} {boxes}, and {n} {items} in each of {b} others.",
                "Then {g} {items} are sold.",
                "How many {items} remain?",
            ),
        ),
    ),
    Family(
        "two_workers_and_stock",
        {"a": (3, 150), "b": (3, 150), "h": (2, 12), "s": (5, 900)},
        (
            "hourly = a + b: Together they make {} {items} an hour.",
            "made = hourly * h: They make {} {items}.",
            "all = made + s: With the others there are {} {items}.",
        ),
        (
            (
                "{name} packs {a} {items} an hour, and {other} packs {b} an hour.",
                "They work for {h} hours, and {s} {items} were packed before.",
                "How many {items} are there in all?",
            ),
            (
                "One machine makes {a} {items} an hour, the other {b}.",
                "Both run for {h} hours, and the shop had {s} {items} at first.",
                "How many {items} does it have now?",
            ),
        ),
    ),
    Family(
        "boxes_shared",
        {"b": (2, 12), "n": (2, 60), "each": (3, 150), "k": (2, 12)},
        (
            "some = b * n: The {boxes} hold {} {items}.",
            "all = some + e: Together there are {} {items}.",
            "share = all / k: Each child gets {} {items}.",
        ),
        (
            (
                "{name} has {b} {boxes} with {n} {items} in each, and {other} has {e} {items}.",
                "They share them equally among {k} children.",
                "How many {items} does each child get?",
            ),
            (
                "There are {n} {items} in every {box}, and there are {b} {boxes}; {e} more {items} lie on a shelf.",
                "All are shared fairly by {k} children.",
                "What does each child get?",
            ),
        ),
        derived=("whole = each * k", "held = b * n", "e = whole - held"),
    ),
    Family(
        "fence_with_gate",
        {"a": (3, 150), "b": (3, 150), "g": (2, 12), "p": (2, 12)},
        (
            "side = a + b: Two sides make {} m.",
            "round = 2 * side: All around it is {} m.",
            "left = round - g: {} m are left.",
            "cost = left * p: The fence costs {} dollars.",
        ),
        (
            (
                "A garden is {a} m long and {b} m wide, and a gate takes up {g} m.",
                "A fence costs ${p} a metre.",
                "What does a fence around the rest cost?",
            ),
            (
                "{name} puts a fence around a field of {a} m by {b} m, but leaves {g} m open for a gate.",
                "Each metre is ${p}.",
                "How many dollars does {he} pay?",
            ),
        ),
    ),
    Family(
        "wages_and_saving",
        {"h": (4, 60), "w": (5, 40), "each": (5, 200), "k": (2, 12)},
        (
            "earned = h * w: {name} earns {} dollars.",
            "left = earned - r: After the rent there are {} dollars.",
            "each = left / k: That is {} dollars for each.",
        ),
        (
            (
                "{name} works {h} hours at ${w} an hour and pays ${r} for rent.",
                "{He} shares the rest equally among {k} children.",
                "How many dollars does each child get?",
            ),
            (
                "For each hour of work {name} is paid ${w}.",
                "This week {he} worked {h} hours and paid ${r} rent; the rest goes to {k} people in equal parts.",
                "What is one part?",
            ),
        ),
        derived=("rest = each * k", "whole = h * w", "r = whole - rest"),
    ),
    Family(
        "fewer_and_times",
        {"a": (10, 600), "b": (2, 400), "k": (3, 9)},
        (
            "o = a - b: {other} has {} {items}.",
            "t = k * o: {third} has {} {items}.",
            "s = a + o: {name} and {other} have {}.",
            "all = s + t: All three have {} {items}.",
        ),
        (
            (
                "{name} has {a} {items}, and {other} has {b} fewer.",
                "{third} has {k} times as many as {other}.",
                "How many {items} do they have in all?",
            ),
            (
                "{third} has {k} times as many {items} as {other}, who has {b} fewer than {name}.",
                "{name} has {a} {items}.",
                "How many {items} do the three have together?",
            ),
        ),
    ),
    Family(
        "half_then_friends",
        {"n": (10, 990), "c": (2, 30), "d": (2, 12)},
        (
            "half = n / 2: Half of them is {}.",
            "given = c * d: {He} gives away {} {items}.",
            "left = half - given: {} {items} are left.",
        ),
        (
            (
                "{name} has {n} {items} and gives half of them to {other}.",
                "Then {he} gives {c} {items} to each of {d} friends.",
                "How many {items} does {he} have left?",
            ),
            (
                "Of {n} {items}, {name} sells half on {day}.",
                "Each of {his} {d} friends gets {c} {items}.",
                "How many remain?",
            ),
        ),
    ),
)
