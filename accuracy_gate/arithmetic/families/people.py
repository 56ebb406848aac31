"""People compared: more and less, times as many, ages, averages."""

from __future__ import annotations

from accuracy_gate.arithmetic.problem import Family

FAMILIES = (
    Family(
        "three_people",
        {"a": (3, 400), "b": (2, 300)},
        (
            "o = a + b: {other} has {} {items}.",
            "t = 2 * o: {third} has {} {items}.",
            "s = a + o: {name} and {other} have {}.",
            "all = s + t: All three have {} {items}.",
        ),
        (
            (
                "{name} has {a} {items}.",
                "{other} has {b} more than {name}, and {third} has twice as many as {other}.",
                "How many {items} do they have in all?",
            ),
            (
                "{third} has twice as many {items} as {other}, who has {b} more than {name}.",
                "{name} has {a} {items}.",
                "How many {items} do the three have together?",
            ),
        ),
    ),
    Family(
        "times_as_many",
        {"a": (3, 800), "k": (3, 12)},
        (
            "o = k * a: {other} has {} {items}.",
            "d = o - a: That is {} more.",
        ),
        (
            ("{name} has {a} {items}, and {other} has {k} times as many.", "How many more {items} does {other} have?"),
            (
                "{other} collected {k} times as many {items} as {name}, who collected {a}.",
                "How many more is that than {name} has?",
            ),
        ),
    ),
    Family(
        "fewer_then_total",
        {"a": (10, 900), "b": (2, 600), "c": (2, 500)},
        (
            "o = a - b: {other} has {} {items}.",
            "s = a + o: Together they have {}.",
            "now = s + c: Then they have {} {items}.",
        ),
        (
            (
                "{name} has {a} {items}, and {other} has {b} fewer.",
                "They get {c} more {items}.",
                "How many {items} do they have together now?",
            ),
            (
                "{other} has {b} fewer {items} than {name}, who has {a}.",
                "An aunt gives the two {c} {items}.",
                "How many {items} is that in all?",
            ),
        ),
    ),
    Family(
        "ages_later",
        {"a": (3, 50), "b": (2, 40), "y": (2, 30)},
        (
            "o = a + b: {other} is {} years old.",
            "n = a + y: Then {name} will be {}.",
            "m = o + y: Then {other} will be {}.",
            "s = n + m: Together that is {} years.",
        ),
        (
            (
                "{name} is {a} years old, and {other} is {b} years older.",
                "What will their ages add up to in {y} years?",
            ),
            ("{other} is {b} years older than {name}, who is {a}.", "In {y} years, how old will they be together?"),
        ),
    ),
    Family(
        "ages_before",
        {"a": (8, 60), "y": (2, 50), "k": (2, 6)},
        (
            "past = a - y: Then {name} was {}.",
            "o = k * past: Then {other} was {}.",
            "now = o + y: Now {other} is {}.",
        ),
        (
            (
                "{name} is {a} years old.",
                "{y} years ago {other} was {k} times as old as {name}.",
                "How old is {other} now?",
            ),
            (
                "{y} years ago, {other} was {k} times the age of {name}.",
                "{name} is {a} now.",
                "What is the age of {other} now?",
            ),
        ),
    ),
    Family(
        "average_of_three",
        {"a": (5, 300), "b": (5, 300), "c": (5, 300)},
        (
            "two = a + b: The first two make {}.",
            "all = two + c: All three make {}.",
            "mean = all / 3: The average is {}.",
        ),
        (
            ("{name} scored {a}, {b} and {c} points in three games.", "What is the average?"),
            ("In three weeks {name} sold {a}, {b} and {c} {items}.", "How many is that per week on average?"),
            ("Three {boxes} hold {a}, {b} and {c} {items}.", "How many {items} is that per {box} on average?"),
        ),
    ),
    Family(
        "missing_score",
        {"m": (10, 300), "a": (5, 300), "b": (5, 300)},
        (
            "all = 3 * m: All three make {}.",
            "two = a + b: The first two make {}.",
            "last = all - two: The third is {}.",
        ),
        (
            (
                "{name} wants an average of {m} points over three games.",
                "The first two gave {a} and {b} points.",
                "How many points must the third give?",
            ),
            ("The average of three numbers is {m}.", "Two of them are {a} and {b}.", "What is the third?"),
        ),
    ),
    Family(
        "votes",
        {"a": (20, 900), "b": (5, 500), "c": (5, 400), "n": (300, 4000)},
        (
            "o = a - b: {other} got {} votes.",
            "two = a + o: Together they got {} votes.",
            "rest = n - two: {} votes are left.",
            "won = rest - c: {third} got {} votes.",
        ),
        (
            (
                "{n} people voted.",
                "{name} got {a} votes, {other} got {b} fewer, {c} votes were not valid, and {third} got all others.",
                "How many votes did {third} get?",
            ),
            (
                "{name}, {other} and {third} stood for mayor, and {n} people voted.",
                "{name} got {a} votes, and {other} got {b} fewer than {name}.",
                "{c} votes did not count.",
                "How many votes did {third} get?",
            ),
        ),
    ),
    Family(
        "percent_girls",
        {"n": (20, 200), "m": (2, 18)},
        (
            "x = n * pct: For the percentage, {}.",
            "g = x / 100: {} are girls.",
            "b = n - g: {} are boys.",
        ),
        (
            ("A club has {n} children, and {pct} percent of them are girls.", "How many boys are there?"),
            (
                "{pct} percent of the {n} children at a camp are girls.",
                "The others are boys.",
                "How many boys is that?",
            ),
        ),
        derived=("pct = m * 5",),
    ),
    Family(
        "game_points",
        {"w": (2, 30), "p": (2, 12), "d": (2, 20), "q": (2, 6), "m": (2, 30)},
        (
            "won = w * p: The wins give {} points.",
            "drawn = d * q: The draws give {} points.",
            "all = won + drawn: Together that is {} points.",
            "now = all - m: After the penalty there are {} points.",
        ),
        (
            (
                "A win gives {p} points and a draw {q}.",
                "A team has {w} wins and {d} draws, and loses {m} points as a penalty.",
                "How many points does it have?",
            ),
            (
                "{name} plays a game with {p} points for a win and {q} for a draw.",
                "{He} wins {w} times, draws {d} times, and has a penalty of {m} points.",
                "What is {his} score?",
            ),
        ),
    ),
    Family(
        "steps_walked",
        {"a": (100, 2000), "b": (50, 900), "g": (2000, 9000)},
        (
            "second = 2 * a: On the second day {name} walks {} steps.",
            "last = second + b: On the third day it is {} steps.",
            "s = a + second: The first two days make {} steps.",
            "all = s + last: All three days make {} steps.",
            "left = g - all: {} steps are left.",
        ),
        (
            (
                "{name} walks {a} steps on the first day and twice as many on the second.",
                "On the third day it is {b} more than on the second.",
                "{He} wants to reach {g} steps.",
                "How many steps are left?",
            ),
            (
                "The goal is {g} steps in four days.",
                "{name} walks {a} steps on day one, twice that on day two, and {b} more than on day two on day three.",
                "How many steps remain for day four?",
            ),
        ),
    ),
)
