"""Speed, work, flow and time."""

from __future__ import annotations

from accuracy_gate.arithmetic.problem import Family

FAMILIES = (
    Family(
        "two_legs",
        {"v": (5, 120), "t": (2, 12), "u": (5, 120), "s": (2, 12)},
        (
            "first = v * t: The first part is {} km.",
            "second = u * s: The second part is {} km.",
            "all = first + second: Together that is {} km.",
        ),
        (
            (
                "{name} drives {t} hours at {v} km per hour and then {s} hours at {u} km per hour.",
                "How far does {he} drive?",
            ),
            (
                "A train goes {v} km an hour for {t} hours.",
                "Then it goes {u} km an hour for {s} hours.",
                "How many km does it go?",
            ),
        ),
    ),
    Family(
        "commute_fuel",
        {"d": (3, 60), "n": (2, 12), "k": (2, 12), "p": (2, 9)},
        (
            "trip = 2 * d: There and back is {} km.",
            "all = trip * n: In all {name} drives {} km.",
            "litres = all / k: That takes {} litres.",
            "cost = litres * p: They cost {} dollars.",
        ),
        (
            (
                "{name} drives {d} km to work and {d} km back, on {n} days.",
                "The car goes {k} km on a litre, and a litre costs ${p}.",
                "How many dollars does the fuel cost?",
            ),
            (
                "It is {d} km to the office, and {name} drives there and back on {n} days.",
                "One litre lasts {k} km and costs ${p}.",
                "What does {he} pay for fuel?",
            ),
        ),
    ),
    Family(
        "machine_minutes",
        {"r": (2, 12), "h": (2, 12), "f": (5, 900)},
        (
            "minutes = h * 60: That is {} minutes.",
            "made = minutes * r: The machine makes {} {items}.",
            "good = made - f: {} {items} are good.",
        ),
        (
            (
                "A machine makes {r} {items} a minute and runs for {h} hours.",
                "{f} of the {items} are faulty.",
                "How many good {items} does it make?",
            ),
            (
                "For {h} hours a machine turns out {r} {items} every minute.",
                "{name} throws away {f} bad ones.",
                "How many {items} are left?",
            ),
        ),
    ),
    Family(
        "two_workers",
        {"a": (3, 150), "b": (3, 150), "h": (2, 12), "d": (2, 200)},
        (
            "hourly = a + b: Together they make {} {items} an hour.",
            "made = hourly * h: They make {} {items}.",
            "left = made - d: {} {items} are left.",
        ),
        (
            (
                "{name} packs {a} {items} an hour, and {other} packs {b} an hour.",
                "They work for {h} hours, and {d} {items} break.",
                "How many {items} are left?",
            ),
            (
                "One machine makes {a} {items} an hour, the other {b}.",
                "Both run for {h} hours, and {d} {items} are used at once.",
                "How many {items} remain?",
            ),
        ),
    ),
    Family(
        "leaking_tank",
        {"f": (10, 90), "k": (2, 80), "m": (3, 60), "s": (20, 900)},
        (
            "net = f - k: The tank gains {} litres a minute.",
            "gain = net * m: In all it gains {} litres.",
            "now = s + gain: Then it holds {} litres.",
        ),
        (
            (
                "A tank holds {s} litres.",
                "Each minute {f} litres flow in and {k} litres leak out.",
                "How many litres does it hold after {m} minutes?",
            ),
            (
                "Every minute a pump brings {f} litres into a pool and {k} litres run out.",
                "At first there are {s} litres in it.",
                "How much water is there after {m} minutes?",
            ),
        ),
    ),
    Family(
        "fill_time",
        {"s": (10, 900), "f": (2, 60), "t": (3, 90), "b": (2, 60)},
        (
            "need = c - s: {} litres are missing.",
            "t2 = need / f: Filling takes {} minutes.",
            "all = t2 + b: With the break it is {} minutes.",
        ),
        (
            (
                "A pool for {c} litres has {s} litres in it.",
                "The pump brings {f} litres a minute and has one break of {b} minutes.",
                "After how many minutes is the pool full?",
            ),
            (
                "{name} fills a tank at {f} litres a minute.",
                "It holds {c} litres, {s} are in it already, and {he} rests for {b} minutes.",
                "How many minutes does it take?",
            ),
        ),
        derived=("add = f * t", "c = s + add"),
    ),
    Family(
        "practice_and_rest",
        {"n": (4, 12), "m": (3, 60), "b": (2, 30)},
        (
            "work = n * m: The exercises take {} minutes.",
            "gaps = n - 1: There are {} breaks.",
            "rest = gaps * b: The breaks take {} minutes.",
            "all = work + rest: Together that is {} minutes.",
        ),
        (
            (
                "{name} does {n} exercises of {m} minutes each, with a break of {b} minutes between any two.",
                "How many minutes does it take?",
            ),
            (
                "A class has {n} exercises.",
                "Each lasts {m} minutes, and between two exercises there are {b} minutes of rest.",
                "How long is the class?",
            ),
        ),
    ),
    Family(
        "reading_minutes",
        {"p": (10, 400), "m": (2, 12), "t0": (2, 80)},
        (
            "t = p * m: Reading takes {} minutes.",
            "all = t + h: With the pause it is {} minutes.",
            "hours = all / 60: That is {} hours.",
        ),
        (
            (
                "{name} reads {p} pages at {m} minutes a page and makes a pause of {h} minutes.",
                "How many hours is that?",
            ),
            (
                "A page takes {name} {m} minutes.",
                "{He} reads {p} pages and rests {h} minutes.",
                "After how many hours is {he} done?",
            ),
        ),
        derived=("whole = t0 * 60", "busy = p * m", "h = whole - busy"),
    ),
    Family(
        "plant_growth",
        {"h": (5, 200), "g": (2, 30), "w": (2, 30), "c": (2, 150)},
        (
            "grown = g * w: It grows {} cm.",
            "high = h + grown: Then it is {} cm high.",
            "now = high - c: After the cut it is {} cm high.",
        ),
        (
            (
                "A plant is {h} cm high and grows {g} cm a week.",
                "After {w} weeks {name} cuts off {c} cm.",
                "How high is it then?",
            ),
            (
                "{name} has a hedge of {h} cm.",
                "It grows {g} cm each week for {w} weeks, and then {c} cm are cut off.",
                "How many cm high is it?",
            ),
        ),
    ),
    Family(
        "catching_up",
        {"a": (10, 90), "b": (5, 80), "t": (2, 60)},
        (
            "faster = a - b: {name} gains {} m each minute.",
            "t2 = gap / faster: It takes {} minutes.",
            "way = t2 * a: {name} runs {} m.",
        ),
        (
            (
                "{other} is {gap} m ahead of {name}.",
                "{name} runs {a} m a minute and {other} walks {b} m a minute.",
                "How many m does {name} run until they meet?",
            ),
            (
                "{name} runs {a} m a minute after {other}, who walks {b} m a minute and is {gap} m ahead.",
                "How far does {name} run to catch up?",
            ),
        ),
        derived=("diff = a - b", "gap = diff * t"),
    ),
    Family(
        "letters_typed",
        {"w": (20, 90), "m": (5, 60), "c": (5, 200), "d": (2, 12)},
        (
            "daily = w * m: {name} types {} words a day.",
            "kept = daily - c: {} of them stay.",
            "all = kept * d: In all that is {} words.",
        ),
        (
            (
                "{name} types {w} words a minute for {m} minutes a day, then strikes out {c} words.",
                "How many words does {he} have after {d} days?",
            ),
            (
                "Each day {name} types for {m} minutes at {w} words a minute and deletes {c} words.",
                "How many words are there after {d} days?",
            ),
        ),
    ),
    Family(
        "dairy",
        {"c": (2, 60), "m": (3, 24), "g": (2, 60), "n": (2, 9), "u": (5, 400), "p": (2, 6)},
        (
            "cow = c * m: The cows give {} litres.",
            "goat = g * n: The goats give {} litres.",
            "all = cow + goat: Together that is {} litres.",
            "left = all - u: {} litres are left to sell.",
            "income = left * p: They bring {} dollars.",
        ),
        (
            (
                "On a farm {c} cows give {m} litres each and {g} goats give {n} litres each.",
                "The farm uses {u} litres and sells the rest at ${p} a litre.",
                "How many dollars does it earn?",
            ),
            (
                "{name} milks {c} cows, {m} litres from each, and {g} goats, {n} litres from each.",
                "{He} keeps {u} litres, and the others are sold for ${p} a litre.",
                "How much money is that?",
            ),
        ),
    ),
)
