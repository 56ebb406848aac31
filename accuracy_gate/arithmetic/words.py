"""Names, things and facts beside the point. They carry no quantity that matters."""

from __future__ import annotations

SHE = ("Ada", "Ana", "Bea", "Carla", "Dina", "Ella", "Fay", "Grace", "Hana", "Ida", "June", "Kira", "Lena", "Maya",
       "Nora", "Olga", "Petra", "Rosa", "Sara", "Tess", "Una", "Vera", "Yara", "Zoe")  # fmt: skip
HE = ("Adam", "Ben", "Carl", "Dan", "Eli", "Finn", "Gus", "Hugo", "Ivan", "Jack", "Karl", "Leo", "Max", "Nils",
      "Omar", "Paul", "Ravi", "Sam", "Tom", "Umar", "Victor", "Will", "Yusuf", "Zack")  # fmt: skip
PRONOUNS = {
    "she": {"he": "she", "He": "She", "his": "her", "His": "Her", "him": "her"},
    "he": {"he": "he", "He": "He", "his": "his", "His": "His", "him": "him"},
}
# (one, many)
THINGS = (
    ("apple", "apples"), ("badge", "badges"), ("ball", "balls"), ("balloon", "balloons"), ("bead", "beads"),
    ("bolt", "bolts"), ("book", "books"), ("bottle", "bottles"), ("button", "buttons"), ("candle", "candles"),
    ("card", "cards"), ("coin", "coins"), ("cookie", "cookies"), ("cup", "cups"), ("doll", "dolls"),
    ("egg", "eggs"), ("flower", "flowers"), ("hat", "hats"), ("key", "keys"), ("kite", "kites"), ("lamp", "lamps"),
    ("lemon", "lemons"), ("map", "maps"), ("marble", "marbles"), ("muffin", "muffins"), ("notebook", "notebooks"),
    ("orange", "oranges"), ("peach", "peaches"), ("pear", "pears"), ("pen", "pens"), ("pencil", "pencils"),
    ("plate", "plates"), ("postcard", "postcards"), ("ribbon", "ribbons"), ("rose", "roses"), ("shell", "shells"),
    ("stamp", "stamps"), ("sticker", "stickers"), ("toy", "toys"), ("tulip", "tulips"),
)  # fmt: skip
HOLDERS = (
    ("bag", "bags"), ("basket", "baskets"), ("box", "boxes"), ("carton", "cartons"), ("case", "cases"),
    ("chest", "chests"), ("crate", "crates"), ("jar", "jars"), ("packet", "packets"), ("sack", "sacks"),
)  # fmt: skip
SHOPS = ("bakery", "bookshop", "corner shop", "fair", "garden centre", "market", "museum shop", "station shop")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# What _filling in generate.py fills in besides quantities; no quantity may have one of these names.
SLOTS = frozenset(PRONOUNS["she"]) | {
    "name", "other", "third", "item", "items", "thing", "things", "box", "boxes", "shop", "day",
}  # fmt: skip

# {d} is a number that no step uses. The first kind speaks of {name}, so it stands only where a wording does.
PERSONAL_FACTS = (
    "{name} is {d} years old.",
    "{name} lives at number {d} on a long street.",
    "{name} has {d} cousins.",
    "{name} got up {d} minutes early that day.",
    "{name} has a cat that weighs {d} pounds.",
    "{name} walked {d} steps to get there.",
    "Last year {name} read {d} comics.",
    "{name} knows {d} songs by heart.",
)
OTHER_FACTS = (
    "It is {d} degrees outside.",
    "The bus to town takes {d} minutes.",
    "The clock on the wall is {d} years old.",
    "There are {d} trees on the street.",
    "The radio plays {d} songs that morning.",
    "{d} birds sit on the roof.",
    "A sign says that the town has {d} streets.",
)
FACT_NUMBERS = (2, 120)
