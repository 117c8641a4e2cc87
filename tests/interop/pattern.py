"""The bytes that ranks of the demo send and its target looks for (tools/demo/batches.h)."""

import array

MASK = 2**64 - 1


def words(seed, length):
    mix = seed * 0xD6E8FEB86659FD93 & MASK
    count = length // 8 + 1
    return array.array("Q", ((i * 0x9E3779B97F4A7C15 & MASK) ^ mix
                             for i in range(1, count + 1))).tobytes()[:length]
