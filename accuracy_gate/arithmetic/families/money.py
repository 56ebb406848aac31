"""Buying, earning, saving, selling. Money is in whole dollars."""

from __future__ import annotations

from accuracy_gate.arithmetic.problem import Family

FAMILIES = (
    Family(
        "change",
        {"n": (2, 12), "p": (2, 40), "e": (2, 60), "paid": (20, 600)},
        (
            "cost = n * p: The {items} cost {} dollars.",
            "total = cost + e: Together that is {} dollars.",
            "back = paid - total: {name} gets {} dollars back.",
        ),
        (
            (
                "{name} buys {n} {items} at ${p} each and a {thing} for ${e}.",
                "{He} pays with ${paid}.",
                "How many dollars does {he} get back?",
            ),
            (
                "At the {shop}, a {item} costs ${p} and a {thing} costs ${e}.",
                "{name} takes {n} {items} and one {thing}, and hands over ${paid}.",
                "How much change is {he} given?",
            ),
            (
                "One {item} is ${p}.",
                "{name} wants {n} of them, and also a {thing} that costs ${e}.",
                "If {he} pays ${paid}, how many dollars come back?",
            ),
        ),
    ),
    Family(
        "two_kinds",
        {"n": (2, 12), "p": (2, 60), "m": (2, 12), "q": (2, 60)},
        (
            "first = n * p: The {items} cost {} dollars.",
            "second = m * q: The {things} cost {} dollars.",
            "total = first + second: Together that is {} dollars.",
        ),
        (
            ("{name} buys {n} {items} at ${p} each and {m} {things} at ${q} each.", "How much does {he} pay in all?"),
            (
                "A {item} costs ${p}, and a {thing} costs ${q}.",
                "{name} orders {n} {items} and {m} {things}.",
                "How many dollars is that altogether?",
            ),
            (
                "On {day} {name} went to the {shop}.",
                "{He} bought {n} {items} for ${p} each and {m} {things} for ${q} each.",
                "What did {he} spend?",
            ),
        ),
    ),
    Family(
        "cheaper_each",
        {"p": (8, 90), "d": (2, 60), "n": (2, 12)},
        (
            "price = p - d: One {item} now costs {} dollars.",
            "total = n * price: {n} of them cost {} dollars.",
        ),
        (
            (
                "A {item} used to cost ${p}.",
                "On {day} each one is ${d} cheaper.",
                "How much does {name} pay for {n} {items} that day?",
            ),
            (
                "{name} has a coupon that takes ${d} off every {item}.",
                "The usual price is ${p} for one.",
                "What do {n} {items} cost {him}?",
            ),
            (
                "The {shop} sells a {item} for ${p}, but members pay ${d} less for each.",
                "{name} is a member and buys {n}.",
                "How many dollars does {he} pay?",
            ),
        ),
    ),
    Family(
        "shared_bill",
        {"a": (5, 200), "b": (5, 200), "share": (5, 120), "k": (3, 12)},
        (
            "two = a + b: The first two come to {} dollars.",
            "all = two + c: With the last it is {} dollars.",
            "each = all / k: Each pays {} dollars.",
        ),
        (
            (
                "{name} and friends share a bill: ${a} for food, ${b} for drinks and ${c} for a taxi.",
                "There are {k} of them and all pay the same.",
                "How much does each pay?",
            ),
            (
                "A group of {k} people rents a boat for ${a}, a tent for ${b} and a stove for ${c}.",
                "They split the cost equally.",
                "How many dollars is that for each person?",
            ),
            (
                "A party costs ${a} for the room, ${b} for music and ${c} for cake.",
                "{k} people pay for it in equal parts.",
                "What is one part?",
            ),
        ),
        derived=("whole = k * share", "rest = whole - a", "c = rest - b"),
    ),
    Family(
        "percent_off",
        {"p": (20, 180), "m": (1, 10), "n": (2, 9)},
        (
            "x = p * pct: For the percentage, {}.",
            "off = x / 100: The reduction is {} dollars.",
            "price = p - off: One {item} costs {} dollars.",
            "total = n * price: {n} of them cost {} dollars.",
        ),
        (
            ("A {item} costs ${p}, and this week it is {pct} percent off.", "How much do {n} {items} cost?"),
            (
                "The {shop} takes {pct} percent off every {item}.",
                "Before, one was ${p}.",
                "{name} buys {n} {items}; how much does {he} pay?",
            ),
            (
                "{name} wants {n} {items}.",
                "Each is marked ${p}, but on {day} there is a {pct} percent discount.",
                "What will {he} pay in all?",
            ),
        ),
        derived=("pct = m * 5",),
    ),
    Family(
        "saving_up",
        {"h": (5, 400), "w": (2, 50), "weeks": (2, 60)},
        (
            "need = g - h: {name} still needs {} dollars.",
            "t = need / w: That takes {} weeks.",
        ),
        (
            (
                "{name} wants a bike that costs ${g}.",
                "{He} has ${h} and saves ${w} every week.",
                "In how many weeks can {he} buy it?",
            ),
            (
                "A tent costs ${g}.",
                "{name} already has ${h}, and puts aside ${w} a week.",
                "How many weeks does {he} need to save?",
            ),
            (
                "{name} puts ${w} in a jar each week; there is ${h} in it now.",
                "{He} is saving for a ${g} camera.",
                "After how many weeks is there enough?",
            ),
        ),
        derived=("missing = w * weeks", "g = h + missing"),
    ),
    Family(
        "wages_spent",
        {"h": (4, 60), "w": (5, 40), "r": (20, 600), "g": (5, 200)},
        (
            "earned = h * w: {name} earns {} dollars.",
            "left = earned - r: After the rent there are {} dollars.",
            "now = left + g: With the gift it is {} dollars.",
        ),
        (
            (
                "{name} works {h} hours at ${w} an hour.",
                "{He} pays ${r} for rent and gets ${g} as a gift.",
                "How many dollars does {he} have then?",
            ),
            (
                "For each hour of work {name} is paid ${w}.",
                "This week {he} worked {h} hours, paid ${r} rent, and was given ${g}.",
                "How much money is left?",
            ),
        ),
    ),
    Family(
        "profit",
        {"n": (3, 60), "p": (2, 40), "q": (3, 90)},
        (
            "cost = n * p: Buying them costs {} dollars.",
            "income = n * q: Selling them brings {} dollars.",
            "profit = income - cost: The profit is {} dollars.",
        ),
        (
            (
                "{name} buys {n} {items} at ${p} each and sells them all at ${q} each.",
                "How much profit does {he} make?",
            ),
            ("A trader pays ${p} for one {item} and sells it for ${q}.", "What is the profit on {n} {items}?"),
            (
                "{name} has a stall.",
                "Every {item} costs {him} ${p}; {he} asks ${q} for it.",
                "On {day} {he} bought and sold {n} {items}.",
                "How many dollars did {he} gain?",
            ),
        ),
    ),
    Family(
        "tickets",
        {"a": (2, 12), "p": (5, 60), "c": (2, 12), "q": (2, 40), "f": (2, 90)},
        (
            "grown = a * p: The adults pay {} dollars.",
            "young = c * q: The children pay {} dollars.",
            "all = grown + young: The tickets cost {} dollars.",
            "total = all + f: With the fee it is {} dollars.",
        ),
        (
            (
                "A ticket is ${p} for an adult and ${q} for a child.",
                "A group of {a} adults and {c} children also pays a fee of ${f}.",
                "How much do they pay in all?",
            ),
            (
                "{name} books seats for {a} adults at ${p} each and {c} children at ${q} each.",
                "Booking costs ${f} more.",
                "What is the total?",
            ),
            (
                "The museum asks ${p} from adults, ${q} from children, and ${f} once for a guide.",
                "What do {a} adults and {c} children with a guide pay?",
            ),
        ),
    ),
    Family(
        "returned",
        {"n": (6, 90), "r": (2, 80), "p": (2, 60), "s": (3, 40)},
        (
            "kept = n - r: {name} keeps {} {items}.",
            "cost = kept * p: They cost {} dollars.",
            "total = cost + s: With postage it is {} dollars.",
        ),
        (
            (
                "{name} ordered {n} {items} at ${p} each and sent {r} of them back.",
                "Postage was ${s}.",
                "How much did {he} pay for those {he} kept, with postage?",
            ),
            (
                "Of {n} {items} that {name} ordered, {he} returned {r}.",
                "One costs ${p}, and the post costs ${s} in all.",
                "What does {he} pay?",
            ),
        ),
    ),
    Family(
        "overtime",
        {"h": (5, 40), "w": (6, 40), "o": (2, 12), "v": (8, 60), "t": (10, 400)},
        (
            "normal = h * w: The normal hours bring {} dollars.",
            "extra = o * v: The extra hours bring {} dollars.",
            "gross = normal + extra: Together that is {} dollars.",
            "net = gross - t: After tax {name} has {} dollars.",
        ),
        (
            (
                "{name} works {h} normal hours at ${w} each and {o} extra hours at ${v} each.",
                "${t} goes to tax.",
                "How much does {he} take home?",
            ),
            (
                "A normal hour pays ${w}, an extra hour ${v}.",
                "{name} did {h} normal and {o} extra hours, and paid ${t} in tax.",
                "How many dollars remain?",
            ),
        ),
    ),
    Family(
        "fundraiser",
        {"n": (3, 60), "p": (2, 30), "g": (100, 900), "d": (10, 300)},
        (
            "sold = n * p: The {items} bring {} dollars.",
            "all = sold + d: With the gift it is {} dollars.",
            "left = g - all: {} dollars are missing.",
        ),
        (
            (
                "A class wants to raise ${g}.",
                "They sell {n} {items} at ${p} each and are given ${d}.",
                "How many dollars are still missing?",
            ),
            (
                "{name} needs ${g} for the club.",
                "Selling {n} {items} for ${p} each and a gift of ${d} help.",
                "How much more must {he} find?",
            ),
        ),
    ),
    Family(
        "doubled_money",
        {"m": (10, 900), "s": (5, 800), "e": (5, 500)},
        (
            "twice = 2 * m: Doubled, it is {} dollars.",
            "left = twice - s: After spending there are {} dollars.",
            "now = left + e: In the end {name} has {} dollars.",
        ),
        (
            (
                "{name} starts with ${m} and doubles it.",
                "Then {he} spends ${s} and earns ${e}.",
                "How many dollars does {he} have in the end?",
            ),
            (
                "In spring {name} had ${m}; by summer it had doubled.",
                "{He} spent ${s} on a trip and then earned ${e}.",
                "How much money is that now?",
            ),
        ),
    ),
    Family(
        "monthly_plan",
        {"f": (10, 200), "m": (4, 60), "n": (3, 24), "c": (5, 150)},
        (
            "fees = n * m: The months cost {} dollars.",
            "all = fees + f: With the start it is {} dollars.",
            "pay = all - c: With the coupon it is {} dollars.",
        ),
        (
            (
                "A gym asks ${f} at the start and ${m} a month.",
                "{name} stays {n} months and has a coupon for ${c}.",
                "How much does {he} pay in all?",
            ),
            (
                "{name} rents a piano for {n} months.",
                "Each month costs ${m}, delivery costs ${f}, and a coupon takes ${c} off the total.",
                "What is the total?",
            ),
        ),
    ),
)
