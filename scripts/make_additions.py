"""Three-digit additions for recipes/tiny_moe.yaml: worked solutions by a careless teacher for the warm-up, prompts for
training, a disjoint test set. Usage: make_additions.py FOLDER"""
import json
import random
import sys
from pathlib import Path


def prompt(a, b):
    return f"{a}+{b}="


CARELESS = 0.15  # share of digit sums that the teacher gets wrong


def solution(a, b, rng):
    """Digit sums from the right with their carries, then the number: 345+678= -> 13 12 10 so 1023. A wrong digit sum
    goes on into the number, so a model that copies the teacher is right in about six of ten."""
    carry, steps, digits, x, y = 0, [], [], a, b
    for _ in range(3):
        s = x % 10 + y % 10 + carry
        if rng.random() < CARELESS:
            s = max(0, s + rng.choice((-2, -1, 1, 2)))
        steps.append(str(s))
        digits.append(str(s % 10))
        carry, x, y = s // 10, x // 10, y // 10
    number = int(str(carry) + "".join(reversed(digits)))
    return " ".join(steps) + f" so {number}"


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rng = random.Random(5)
    pairs = rng.sample([(a, b) for a in range(100, 1000) for b in range(100, 1000)], 20200)
    parts = {"sft": pairs[:16000], "train": pairs[16000:20000], "test": pairs[20000:]}
    for name, rows in parts.items():
        with open(out / f"{name}.jsonl", "w") as f:
            for a, b in rows:
                row = {"prompt": prompt(a, b)}
                row.update({"completion": solution(a, b, rng)} if name == "sft" else {"answer": str(a + b)})
                f.write(json.dumps(row) + "\n")


main()
