#!/usr/bin/env python3
"""Grows a static tree for Medusa heads from how often each head is right, and writes its choice list as JSON.

Each head is described by two numbers, how often its best guess is right and how often one of its ten best is; the rank
in between is taken as geometric. Nodes are added best first, the value of a node being the product along its path
(independence is assumed), and the list keeps that order: cut anywhere, it is the best tree of that size.

    data/trees/grow.py 32 data/trees/pangu_32.json
    data/trees/grow.py 64 data/trees/pangu_64.json
"""

import argparse
import heapq
import json

RANKS = 10

# Heads for openPangu-Embedded-7B as published with OpenPangu-7B-with-Medusa (arXiv 2603.03383): best guess, ten best.
PANGU_HEADS = [(0.4191, 0.6494), (0.2764, 0.5190), (0.2095, 0.4396), (0.1742, 0.3855), (0.1552, 0.3521)]


def rank_probabilities(best, ten_best):
    ratio = min(max((ten_best - best) / ten_best, 0.01), 0.95)
    return [best * ratio**rank for rank in range(RANKS)]


def grow(heads, choices):
    """The `choices` most valuable paths, best first; among equals the shorter, then the lower ranks."""
    levels = [rank_probabilities(*head) for head in heads]
    grown = []
    heap = [(-value, 1, [rank]) for rank, value in enumerate(levels[0])]
    heapq.heapify(heap)
    while heap and len(grown) < choices:
        value, length, path = heapq.heappop(heap)
        grown.append(path)
        if length < len(levels):
            for rank, probability in enumerate(levels[length]):
                heapq.heappush(heap, (value * probability, length + 1, path + [rank]))
    return grown


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("choices", type=int, help="nodes below the root")
    parser.add_argument("output", help="the JSON file to write")
    arguments = parser.parse_args()
    with open(arguments.output, "w", encoding="utf-8") as file:
        paths = ",\n ".join(json.dumps(path) for path in grow(PANGU_HEADS, arguments.choices))
        file.write(f"[{paths}]\n")


if __name__ == "__main__":
    main()
