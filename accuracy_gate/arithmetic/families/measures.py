"""Lengths, areas, weights, recipes, and the longest problems."""

from __future__ import annotations

from accuracy_gate.arithmetic.problem import Family

FAMILIES = (
    Family(
        "fence",
        {"a": (3, 150), "b": (3, 150), "p": (2, 12)},
        (
            "side = a + b: Two sides make {} m.",
            "round = 2 * side: All around it is {} m.",
            "cost = round * p: The fence costs {} dollars.",
        ),
        (
            (
                "A garden is {a} m long and {b} m wide.",
                "A fence costs ${p} a metre.",
                "What does a fence all around cost?",
            ),
            (
                "{name} puts a fence around a field of {a} m by {b} m.",
                "Each metre is ${p}.",
                "How many dollars does {he} pay?",
            ),
        ),
    ),
    Family(
        "lawn_with_pond",
        {"a": (10, 90), "b": (6, 30), "s": (2, 12), "g": (2, 9)},
        (
            "area = a * b: The garden has {} square metres.",
            "pond = s * s: The pond has {} square metres.",
            "lawn = area - pond: The lawn has {} square metres.",
            "cost = lawn * g: The seed costs {} dollars.",
        ),
        (
            (
                "A garden of {a} m by {b} m has a square pond with sides of {s} m in it.",
                "All else is lawn, and seed costs ${g} a square metre.",
                "What does the seed cost?",
            ),
            (
                "{name} sows a lawn of {a} m by {b} m around a square pond whose side is {s} m.",
                "Seed is ${g} for a square metre.",
                "How many dollars does {he} pay?",
            ),
        ),
    ),
    Family(
        "rope",
        {"k": (2, 30), "m": (2, 60), "each": (2, 90), "j": (2, 9)},
        (
            "cut = k * m: {} cm are cut off.",
            "left = c - cut: {} cm are left.",
            "piece = left / j: Each piece is {} cm.",
        ),
        (
            (
                "A rope is {c} cm long.",
                "{name} cuts off {k} pieces of {m} cm and cuts the rest into {j} equal pieces.",
                "How long is each of those?",
            ),
            (
                "From a ribbon of {c} cm, {k} bows of {m} cm each are made.",
                "What is left is cut into {j} equal parts.",
                "How many cm is one part?",
            ),
        ),
        derived=("used = k * m", "rest = each * j", "c = used + rest"),
    ),
    Family(
        "recipe",
        {"k": (2, 12), "x": (5, 120), "n": (2, 60), "h": (5, 600)},
        (
            "one = g / k: One person needs {} grams.",
            "need = one * n: They need {} grams.",
            "buy = need - h: {name} must buy {} grams.",
        ),
        (
            (
                "A recipe for {k} people takes {g} grams of flour.",
                "{name} cooks for {n} people and has {h} grams.",
                "How many grams must {he} buy?",
            ),
            (
                "{name} has {h} grams of rice and cooks for {n} people.",
                "For {k} people the recipe says {g} grams.",
                "How many grams are missing?",
            ),
        ),
        derived=("g = k * x",),
    ),
    Family(
        "parcel",
        {"e": (20, 900), "n": (2, 12), "w": (10, 400), "k": (2, 9)},
        (
            "load = n * w: The {items} weigh {} grams.",
            "one = e + load: One full {box} weighs {} grams.",
            "all = k * one: {k} full {boxes} weigh {} grams.",
        ),
        (
            (
                "An empty {box} weighs {e} grams, and a {item} weighs {w} grams.",
                "What do {k} {boxes} with {n} {items} in each weigh?",
            ),
            (
                "{name} sends {k} {boxes}.",
                "In each there are {n} {items} of {w} grams, and the {box} itself weighs {e} grams.",
                "How many grams is that in all?",
            ),
        ),
    ),
    Family(
        "jugs",
        {"j": (2, 12), "c": (4, 60), "each": (2, 40), "k": (2, 9)},
        (
            "all = j * c: There are {} cups of juice.",
            "left = all - d: {} cups are left.",
            "share = left / k: Each gets {} cups.",
        ),
        (
            (
                "{name} has {j} jugs with {c} cups of juice each.",
                "{d} cups are drunk, and {k} guests share the rest equally.",
                "How many cups does each guest get?",
            ),
            (
                "A jug holds {c} cups, and {j} jugs are full.",
                "After {d} cups are gone, {k} people share what is left.",
                "How many cups are there for each?",
            ),
        ),
        derived=("whole = j * c", "rest = each * k", "d = whole - rest"),
    ),
    Family(
        "bricks",
        {"a": (4, 90), "b": (3, 30), "h": (5, 400), "k": (2, 12)},
        (
            "need = a * b: The wall needs {} bricks.",
            "more = need - h: {} bricks are missing.",
            "loads = more / k: That takes {} loads.",
        ),
        (
            (
                "A wall has {b} rows of {a} bricks.",
                "{name} has {h} bricks and carries {k} at a time.",
                "How many loads of new bricks does {he} carry?",
            ),
            (
                "{name} builds a wall of {a} bricks in each of {b} rows.",
                "{h} bricks are there, and a load is {k} bricks.",
                "How many more loads are needed?",
            ),
        ),
    ),
    Family(
        "road_days",
        {"d": (3, 90), "n": (2, 12), "m": (2, 90), "each": (2, 60)},
        (
            "done = d * n: So far {} m are done.",
            "left = all - done: {} m are left.",
            "time = left / m: They take {} days.",
            "total = n + time: In all it takes {} days.",
        ),
        (
            (
                "A road of {all} m is built.",
                "For {n} days {d} m are built each day, and then {m} m a day.",
                "How many days does it take in all?",
            ),
            (
                "{name} paints a fence of {all} m: {d} m a day for {n} days, then {m} m a day.",
                "After how many days is it done?",
            ),
        ),
        derived=("was = d * n", "will = m * each", "all = was + will"),
    ),
    Family(
        "school_trip",
        {"c": (2, 12), "p": (10, 30), "t": (2, 30), "f": (3, 12), "b": (50, 900), "g": (20, 400)},
        (
            "kids = c * p: There are {} children.",
            "all = kids + t: With the teachers it is {} people.",
            "entry = all * f: The tickets cost {} dollars.",
            "cost = entry + b: With the bus it is {} dollars.",
            "pay = cost - g: After the gift {} dollars are to be paid.",
        ),
        (
            (
                "{c} classes of {p} children and {t} teachers go to the zoo.",
                "A ticket costs ${f}, the bus costs ${b} in all, and the town gives ${g}.",
                "How many dollars are left to pay?",
            ),
            (
                "A zoo ticket is ${f}.",
                "{t} teachers go there with {c} classes of {p} children each.",
                "The bus costs ${b}, and parents give ${g}.",
                "How much must the school pay?",
            ),
        ),
    ),
    Family(
        "orchard",
        {"r": (3, 30), "t": (4, 24), "k": (2, 9), "e": (5, 300), "n": (2, 12), "p": (2, 9)},
        (
            "trees = r * t: There are {} trees.",
            "all = trees * k: They give {} kg.",
            "sold = all - e: {} kg are sold.",
            "bags = sold / n: That is {} bags.",
            "income = bags * p: They bring {} dollars.",
        ),
        (
            (
                "An orchard has {r} rows of {t} trees, and each tree gives {k} kg of fruit.",
                "{e} kg are kept; the rest goes into bags of {n} kg at ${p} a bag.",
                "How many dollars does it bring?",
            ),
            (
                "{name} picks {k} kg from each tree in {r} rows of {t} trees and keeps {e} kg.",
                "The rest is sold in bags of {n} kg for ${p} each.",
                "How much money is that?",
            ),
        ),
    ),
    Family(
        "club_year",
        {"a": (10, 60), "b": (2, 50), "f": (5, 30), "r": (2, 12), "m": (5, 60), "s": (5, 200)},
        (
            "people = a + b: The club has {} members.",
            "fees = people * f: They pay {} dollars.",
            "rent = r * m: The rent is {} dollars.",
            "left = fees - rent: After the rent {} dollars are left.",
            "twice = 2 * s: The two teams get {} dollars.",
            "end = left - twice: In the end {} dollars are left.",
        ),
        (
            (
                "A club has {a} members, and {b} join.",
                "Each pays ${f}.",
                "The club pays rent of ${m} for {r} months and ${s} to each of two teams.",
                "How many dollars are left?",
            ),
            (
                "{name} keeps the club's money.",
                "{a} old and {b} new members pay ${f} each.",
                "Rent is ${m} a month for {r} months, and two teams get ${s} each.",
                "How much is left?",
            ),
        ),
    ),
    Family(
        "fish_tanks",
        {"t": (2, 12), "n": (4, 60), "s": (2, 200), "b": (2, 100), "k": (2, 9), "p": (2, 12)},
        (
            "all = t * n: There are {} fish.",
            "left = all - s: After the sale there are {} fish.",
            "now = left + b: Then there are {} fish.",
            "tanks = now / k: They need {} tanks.",
            "cost = tanks * p: The tanks cost {} dollars.",
            "pay = cost + 25: With 25 dollars for delivery it is {} dollars.",
        ),
        (
            (
                "A shop has {t} tanks with {n} fish in each.",
                "It sells {s} fish, gets {b} new ones, and puts {k} in each new tank.",
                "New tanks cost ${p} each, and delivery is $25.",
                "How much does the shop pay?",
            ),
            (
                "{name} has {t} ponds of {n} fish.",
                "{He} sells {s} and buys {b}, then wants new tanks for {k} fish each.",
                "One tank is ${p}, and delivery costs $25.",
                "How many dollars does {he} pay?",
            ),
        ),
    ),
    Family(
        "print_shop",
        {"n": (20, 300), "g": (2, 12), "tens": (2, 10), "c": (3, 60), "p": (2, 12), "f": (5, 90)},
        (
            "sheets = n * g: The books need {} sheets.",
            "all = sheets + e: With the spare ones it is {} sheets.",
            "packs = all / k: That is {} packs.",
            "cost = packs * p: The packs cost {} dollars.",
            "twice = 2 * f: Two trips cost {} dollars.",
            "pay = cost + twice: In all it costs {} dollars.",
        ),
        (
            (
                "{name} prints {n} books of {g} sheets each and {e} spare sheets.",
                "Paper comes in packs of {k} sheets for ${p} a pack, and each of two trips costs ${f}.",
                "How many dollars does {he} spend?",
            ),
            (
                "A pack of {k} sheets costs ${p}.",
                "A print shop needs {g} sheets for each of {n} books and {e} sheets more.",
                "The van makes two trips at ${f} each.",
                "What does it pay in all?",
            ),
        ),
        derived=("k = tens * 10", "whole = c * k", "books = n * g", "e = whole - books"),
    ),
)
