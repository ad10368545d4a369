"""Generated conversations of a customer and a clerk: greetings, hours, prices, yes and no.

The right reply follows from the facts below and from what was said before. The last turn alone is
often not enough: "and on sunday ?", "how much are two ?" or "yes please" mean what was spoken of.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from everynet.data.kinds.pairs import Pairs
from everynet.data.sets import parse_count
from everynet.data.texts.turns import Turn
from everynet.system.seeds import generator

COUNT = 2_000
CUSTOMER, CLERK = "customer", "clerk"
NAMES = (
    "ada", "alan", "anna", "ben", "clara", "david", "ella", "emil", "eva", "felix", "grace",
    "hugo", "ida", "ivan", "jane", "karl", "lena", "leo", "lucy", "marie", "max", "mia", "nils",
    "noah", "nora", "olga", "oskar", "paul", "rosa", "ruth", "sara", "simon", "sofia", "tom",
    "vera", "will",
)  # fmt: skip
GREETINGS = ("hello", "hi", "good morning", "good evening")
INTRODUCTIONS = ("i am", "this is", "my name is", "it is")
HOURS = {
    "bakery": (6, 5, 7), "library": (10, 8, 0), "museum": (9, 6, 11), "pool": (7, 9, 8),
    "market": (5, 1, 0), "theatre": (4, 11, 3), "bank": (8, 4, 0), "garden": (9, 7, 10),
}  # fmt: skip
"""When a place opens and closes, and when it opens on sunday; 0 where it is closed then."""
PRICES = {
    "roll": 3, "cake": 12, "map": 4, "lamp": 20, "book": 9, "ticket": 7, "chair": 30, "cup": 5,
    "pen": 2, "clock": 25,
}  # fmt: skip
"""Euros for one of a thing."""


def conversations(count: str = "") -> Pairs:
    """So many conversations; those that begin with the same words are in one part."""
    size = parse_count("shop-talk", count, COUNT, 100, 50_000)
    random = generator(0, *b"shop-talk")
    talks = [write_conversation(random) for _ in range(size)]
    return Pairs.divide_talk(talks, "shop-talk", speaker=CLERK)


def write_conversation(random: torch.Generator) -> tuple[Turn, ...]:
    """A greeting, two matters of up to three questions each, and a goodbye."""

    def choose(*words: str) -> str:
        return words[int(torch.randint(len(words), (), generator=random))]

    name, greeting = choose(*NAMES), choose(*GREETINGS)
    said = [
        f"{greeting} , {choose(*INTRODUCTIONS)} {name}",
        f"{greeting} , what can i do for you ?",
    ]
    for _ in range(2):
        ask = ask_hours if choose("hours", "price") == "hours" else ask_price
        said += ask(choose)
    said += ["thank you , goodbye", "goodbye , come again !"]
    return tuple([((CUSTOMER, CLERK)[n % 2], text) for n, text in enumerate(said)])


def ask_hours(choose: Callable[..., str]) -> list[str]:
    """When a place opens or closes, then the other, or sunday."""
    place = choose(*HOURS)
    opens, closes, sunday = HOURS[place]
    answers = {
        "open": f"the {place} opens at {opens} .",
        "close": f"the {place} closes at {closes} .",
    }
    first = choose(*answers)
    said = [f"when does the {place} {first} ?", answers[first]]
    other = "close" if first == "open" else "open"
    if choose("yes", "no") == "yes":
        said += [f"and when does it {other} ?", answers[other]]
    if choose("yes", "no") == "yes":
        closed = f"no , on sunday the {place} is closed ."
        opened = f"yes , on sunday the {place} opens at {sunday} ."
        said += ["is it open on sunday ?", opened if sunday else closed]
    return said


def ask_price(choose: Callable[..., str]) -> list[str]:
    """What a thing costs, what two cost, and whether it is bought."""
    thing = choose(*PRICES)
    price = PRICES[thing]
    said = [f"how much is a {thing} ?", f"a {thing} is {price} euros , would you like it ?"]
    two = choose("yes", "no") == "yes"
    if two:
        both = f"two {thing}s are {2 * price} euros , would you like them ?"
        said += ["how much are two ?", both]
    bought = f"here are two {thing}s ." if two else f"here is the {thing} ."
    answers = {"yes please": bought, "no thank you": f"no {thing} then , anything else ?"}
    answer = choose(*answers)
    return [*said, answer, answers[answer]]
