"""
XXH64, seed 0, of bytes and of 64-bit words: github.com/Cyan4973/xxHash, doc/xxhash_spec.md, section "XXH64".
"""

import numpy as np

from datapipe.kernels.jit import kernel

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
START_1 = np.uint64(0x60EA27EEADC0B5D6)  # P1 + P2
START_4 = np.uint64(0x61C8864E7A143579)  # -P1
ZERO = np.uint64(0)
R1, R7, R11, R12 = np.uint64(1), np.uint64(7), np.uint64(11), np.uint64(12)
R18, R23, R27, R31 = np.uint64(18), np.uint64(23), np.uint64(27), np.uint64(31)


@kernel
def rotl(x, bits):
    return x << bits | x >> (np.uint64(64) - bits)


@kernel
def stripe(acc, word):
    """A word of 64 bits goes into one of the four accumulators ("round" in the specification)."""
    return rotl(acc + word * P2, R31) * P1


@kernel
def merge(v1, v2, v3, v4):
    """The four accumulators become one."""
    acc = rotl(v1, R1) + rotl(v2, R7) + rotl(v3, R12) + rotl(v4, R18)
    acc = (acc ^ stripe(ZERO, v1)) * P1 + P4
    acc = (acc ^ stripe(ZERO, v2)) * P1 + P4
    acc = (acc ^ stripe(ZERO, v3)) * P1 + P4
    return (acc ^ stripe(ZERO, v4)) * P1 + P4


@kernel
def tail(acc, word):
    """A word of 64 bits after the last whole stripe of 32 bytes."""
    return rotl(acc ^ stripe(ZERO, word), R27) * P1 + P4


@kernel
def finish(acc):
    """The avalanche."""
    acc = (acc ^ acc >> np.uint64(33)) * P2
    acc = (acc ^ acc >> np.uint64(29)) * P3
    return acc ^ acc >> np.uint64(32)


@kernel
def load4(data, at):
    """Four bytes, little-endian; the compiler makes one load of them."""
    word = np.uint64(data[at]) | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
    return (
        word | np.uint64(data[at + np.uint64(2)]) << np.uint64(16) | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
    )


@kernel
def load8(data, at):
    return load4(data, at) | load4(data, at + np.uint64(4)) << np.uint64(32)


@kernel
def xxh64(data, start, end, ones):
    """
    Of data[start:end] (uint8), with the bits of `ones` set in every byte: 0x20 makes ASCII letters small and leaves
    digits alone, so that a run of both is hashed where it lies.  start, end: uint64.
    """
    ones = np.uint64(ones) * np.uint64(0x0101010101010101)
    size, at, eight = end - start, start, np.uint64(8)
    acc = P5
    if size >= np.uint64(32):
        v1, v2, v3, v4 = START_1, P2, ZERO, START_4
        while at + np.uint64(32) <= end:
            v1 = stripe(v1, load8(data, at) | ones)
            v2 = stripe(v2, load8(data, at + eight) | ones)
            v3 = stripe(v3, load8(data, at + np.uint64(16)) | ones)
            v4 = stripe(v4, load8(data, at + np.uint64(24)) | ones)
            at += np.uint64(32)
        acc = merge(v1, v2, v3, v4)
    acc += size
    while at + eight <= end:
        acc = tail(acc, load8(data, at) | ones)
        at += eight
    if at + np.uint64(4) <= end:
        acc = rotl(acc ^ (load4(data, at) | ones & np.uint64(0xFFFFFFFF)) * P1, R23) * P2 + P3
        at += np.uint64(4)
    while at < end:
        acc = rotl(acc ^ (np.uint64(data[at]) | ones & np.uint64(0xFF)) * P5, R11) * P1
        at += np.uint64(1)
    return finish(acc)


@kernel
def xxh64_words(words, start, count):
    """Of `count` uint64 as little-endian bytes, from words[start]."""
    at, four = start, np.uint64(4)
    end = start + count
    acc = P5
    if count >= four:
        v1, v2, v3, v4 = START_1, P2, ZERO, START_4
        while at + four <= end:
            v1 = stripe(v1, words[at])
            v2 = stripe(v2, words[at + np.uint64(1)])
            v3 = stripe(v3, words[at + np.uint64(2)])
            v4 = stripe(v4, words[at + np.uint64(3)])
            at += four
        acc = merge(v1, v2, v3, v4)
    acc += count * np.uint64(8)
    while at < end:
        acc = tail(acc, words[at])
        at += np.uint64(1)
    return finish(acc)
