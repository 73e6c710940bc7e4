"""Order in which C++'s std::sort leaves elements with equal keys (libstdc++'s introsort).

OpenFst sorts arcs with std::sort, and the order of arcs with equal labels affects the numbers of
states. Up to 16 elements are sorted by insertion, which is stable.
"""

from __future__ import annotations

from collections.abc import Sequence

_SMALL = 16


def std_sort_order(keys: Sequence[int]) -> list[int]:
    """The indexes of `keys` in the order in which std::sort leaves the keys."""
    if len(keys) <= _SMALL:
        return sorted(range(len(keys)), key=keys.__getitem__)
    items = [(key, place) for place, key in enumerate(keys)]
    _partition_all(items, 0, len(items), 2 * (len(items).bit_length() - 1))
    # The rest is an insertion sort, which is stable.
    items.sort(key=lambda item: item[0])
    return [place for _, place in items]


Item = tuple[int, int]


def _partition_all(items: list[Item], first: int, last: int, depth: int) -> None:
    """Partition items[first:last] recursively until no part has more than 16 items.

    Parts that are larger after `depth` levels of recursion are sorted by heap sort.
    """
    while last - first > _SMALL:
        if depth == 0:
            _heap_sort(items, first, last)
            return
        depth -= 1
        cut = _partition(items, first, last)
        _partition_all(items, cut, last, depth)
        last = cut


def _partition(items: list[Item], first: int, last: int) -> int:
    """Partition [first, last) around the median of three items; returns the upper part's start."""
    places = (first + 1, first + (last - first) // 2, last - 1)
    a, b, c = (items[place][0] for place in places)
    if a < b:
        median = places[1] if b < c else places[2] if a < c else places[0]
    else:
        median = places[0] if a < c else places[2] if b < c else places[1]
    items[first], items[median] = items[median], items[first]
    pivot = items[first][0]
    low, high = first + 1, last
    while True:
        while items[low][0] < pivot:
            low += 1
        high -= 1
        while pivot < items[high][0]:
            high -= 1
        if low >= high:
            return low
        items[low], items[high] = items[high], items[low]
        low += 1


def _heap_sort(items: list[Item], first: int, last: int) -> None:
    """Sort items[first:last] by heap sort, as std::partial_sort does."""
    heap = items[first:last]
    for hole in reversed(range(len(heap) // 2)):
        _sift(heap, hole, len(heap), heap[hole])
    for size in range(len(heap) - 1, 0, -1):
        value, heap[size] = heap[size], heap[0]
        _sift(heap, 0, size, value)
    items[first:last] = heap


def _sift(heap: list[Item], top: int, size: int, value: Item) -> None:
    """Sift in a heap of `size` items: the hole at `top` goes down to a leaf, then `value` up."""
    hole = top
    while (child := 2 * hole + 2) < size:
        if heap[child][0] < heap[child - 1][0]:
            child -= 1
        heap[hole], hole = heap[child], child
    if child == size:
        heap[hole], hole = heap[child - 1], child - 1
    while hole > top and heap[(hole - 1) // 2][0] < value[0]:
        heap[hole], hole = heap[(hole - 1) // 2], (hole - 1) // 2
    heap[hole] = value
