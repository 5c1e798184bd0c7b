"""
Many units at a time: which of 64 bytes are ASCII letters or digits, and the hashes of units of few bytes.

Where a word ends, and how long it is, no processor can foresee, and each wrong guess costs it as much as hashing the
word.  So bytes are classified 64 at once, words are read off the bits, and short words are hashed in a loop without
branches, of which the compiler makes vector code.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_untracked
from numba.cpython.unsafe import numbers
from numba.extending import intrinsic

from datapipe.kernels.jit import kernel
from datapipe.kernels.xxh64 import P1, P2, P3, P5, R11, R23, finish, rotl, tail

BLOCK = 64  # bytes that `flags` reads
AHEAD = np.uint64(BLOCK + 16)  # bytes of text that must follow, so that the last words of a block can be loaded whole
BATCH = 512  # units hashed together: their scratch stays in the first-level cache
BRIEF = 16  # a unit of fewer bytes is hashed in the loop
DONE = np.uint64(255)  # in place of its size: this unit is hashed
ONE, SEVEN, EIGHT = np.uint64(1), np.uint64(7), np.uint64(8)
FOUR_BYTES, BYTE = np.uint64(0xFFFFFFFF), np.uint64(0xFF)
SMALL = np.uint64(0x2020202020202020)


def _flags(typing_context: Any, text: Any, at: Any) -> Any:  # noqa: ARG001  numba's signature
    """
    Of the 64 bytes of text (uint8) from `at` (uint64) on, which must be there: uint64 of those that are ASCII letters
    or digits, and of those that are not ASCII; bit i is byte i.  One vector instruction or few for each comparison, as
    the machine has them; the result is the same on all.
    """
    pair = types.UniTuple(types.uint64, 2)

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, given[0])
        kind = ir.VectorType(ir.IntType(8), BLOCK)
        start = builder.gep(array.data, [given[1]])
        data = builder.load(builder.bitcast(start, kind.as_pointer()), align=1)

        def every(value: int) -> Any:
            return ir.Constant(kind, [value] * BLOCK)

        def below(values: Any, first: str, count: int) -> Any:
            return builder.icmp_unsigned("<", builder.sub(values, every(ord(first))), every(count))

        small = builder.or_(data, every(32))
        words = builder.or_(below(small, "a", 26), below(data, "0", 10))
        beyond = builder.icmp_unsigned(">", data, every(127))
        bits = [builder.bitcast(found, ir.IntType(BLOCK)) for found in (words, beyond)]
        return impl_ret_untracked(context, builder, pair, cgutils.pack_array(builder, bits))

    return pair(text, at), code


def _move(typing_context: Any, array: Any, to: Any, at: Any, count: Any) -> Any:  # noqa: ARG001  numba's signature
    """Moves `count` items of a contiguous array from `at` to `to` (all int64), which may overlap."""

    def code(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        size = context.get_abi_sizeof(context.get_value_type(signature.args[0].dtype))
        cgutils.raw_memmove(builder, builder.gep(data, [given[1]]), builder.gep(data, [given[2]]), given[3], size)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, types.int64), code


flags: Any = intrinsic(_flags)  # flags(text, at)
move: Any = intrinsic(_move)  # move(array, to, at, count)
leading_zeros: Any = numbers.leading_zeros  # of a uint64; of 0 these are 64
trailing_zeros: Any = numbers.trailing_zeros


@kernel
def scratch():
    """Sizes and rests of a batch of units, as hash_brief takes and leaves them."""
    return np.full(BATCH + BLOCK, DONE), np.empty(BATCH + BLOCK, np.uint64)


@kernel
def hash_brief(hashes, sizes, rest, count):
    """
    XXH64 of the units of `count` sizes (uint64) below BRIEF, in place: hashes[i] holds the first 8 bytes of a unit,
    rest[i] the next 8, both little-endian and with anything behind its end.  Of other sizes hashes[i] stays.  All
    sizes are DONE afterwards.
    """
    for i in range(np.uint64(count)):
        size, word = sizes[i], hashes[i]
        start = P5 + size
        acc = tail(start, word) if size >= EIGHT else start
        bits = (size & SEVEN) << np.uint64(3)
        left = (rest[i] if size >= EIGHT else word) & ((ONE << bits) - ONE)
        four = rotl(acc ^ (left & FOUR_BYTES) * P1, R23) * P2 + P3
        acc = four if size & np.uint64(4) else acc
        left = left >> np.uint64(32) if size & np.uint64(4) else left
        odd = size & np.uint64(3)
        step = rotl(acc ^ (left & BYTE) * P5, R11) * P1
        acc = step if odd > np.uint64(0) else acc
        step = rotl(acc ^ (left >> EIGHT & BYTE) * P5, R11) * P1
        acc = step if odd > ONE else acc
        step = rotl(acc ^ (left >> np.uint64(16) & BYTE) * P5, R11) * P1
        acc = step if odd > np.uint64(2) else acc
        hashes[i] = finish(acc) if size < np.uint64(BRIEF) else word
        sizes[i] = DONE
