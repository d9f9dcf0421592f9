"""The hardware twin of ``numerics.py``: the same functions as Amaranth expressions, combinational.

Every function takes and gives signed values and spells its widths out, since Amaranth cuts what is too wide silently.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Value, signed


def saturate(value: Value, width: int) -> Value:
    """Signed value of any width -> signed ``width`` bits, clipped to their range."""
    value = Value.cast(value)
    if len(value) <= width:
        return resize(value, width)
    sign, above = value[-1], value[width - 1:]
    fits = (above == Mux(sign, Const(-1, signed(len(above))), 0).as_unsigned()[:len(above)])
    limit = Cat(sign.replicate(width - 1) ^ Const(-1, signed(width - 1)).as_unsigned(), sign)
    return Mux(fits, value[:width], limit).as_signed()


def resize(value: Value, width: int) -> Value:
    """Sign-extend to, or keep the low, ``width`` bits."""
    value = Value.cast(value)
    if len(value) >= width:
        return value[:width].as_signed()
    return Cat(value, value[-1].replicate(width - len(value))).as_signed()


def round_half_even(value: Value, shift: int) -> Value:
    """Signed value / 2**shift for a constant shift, HALF_EVEN; one bit wider than what remains, so nothing is lost."""
    value = Value.cast(value)
    if shift == 0:
        return value.as_signed()
    kept = resize(value, max(len(value), shift + 1))[shift:].as_signed()
    half, sticky = value[shift - 1], value[:shift - 1].any() if shift > 1 else Const(0, 1)
    return resize(kept + (half & (sticky | kept[0])), len(kept) + 1)


def add_with_carry(left: Value, right: Value, carry: Value) -> Value:
    """left + right + carry in one carry chain: a sum of three would first become one of two."""
    return (Cat(Const(1, 1), left).as_signed() + Cat(carry, right).as_signed())[1:].as_signed()


def reached(shift: Value, width: int) -> Value:
    """Bit k of ``width``: whether ``shift`` <= k. The steps below take it from outside: one is enough for all lanes,
    and it can be made a cycle ahead. One shift of a constant instead of comparisons: it simulates faster."""
    return (Const((1 << width) - 1, width) << shift)[:width]


def _end(sign: Value, width: int) -> Value:
    """The end of the range of ``width`` bits on the side of ``sign``."""
    return Cat((~sign).replicate(width - 1), sign)


# -- leaving the accumulators, in two steps ----------------------------------------------------------------------------
FINE_BITS = 3
"""Bits of an output shift that its second step takes; the first takes those above."""


def cut(value: Value, shift: Value, from_shift: Value, width: int) -> Value:
    """First step of :func:`requantize`: the coarse shift, for :func:`round_off`. To be registered, as the step after
    it.
    ``from_shift``: ``reached(shift, len(value))``.

    Bits shifted out, at both ends, are asked of the value before the shift, so that few bits have to be shifted.
    """
    value, shift = Value.cast(value), Value.cast(shift)
    sign, fine = value[-1], min(FINE_BITS, len(shift))
    # One guard bit below carries the half through the shifter; the bits shifted out beyond it are sticky.
    kept = width + (1 << fine)
    wide_enough = resize(Cat(Const(0, 1), value), max(len(value) + 1, kept))
    window = (wide_enough >> Cat(Const(0, fine), shift[fine:]))[:kept]
    sticky = (value[:-2] & ~from_shift[1:-1]).any()
    over = ((value[width - 1:-1] ^ sign.replicate(len(value) - width)) & from_shift[:len(value) - width]).any()
    return Cat(window, sticky, over, sign)


def round_off(cut_value: Value, shift: Value, width: int) -> Value:
    """Second step of :func:`requantize`: the fine shift, for :func:`add_up`: what remains, saturated, above the bit
    that has to be added to it, HALF_EVEN. Zero for zero."""
    window, sticky, over, sign = cut_value[:-3], cut_value[-3], cut_value[-2], cut_value[-1]
    shifted = (window >> shift[:FINE_BITS])[:width + 1]
    kept, half = shifted[1:], shifted[0]
    return Cat(half & (sticky | kept[0]) & ~over, Mux(over, _end(sign, width), kept))


def add_up(kept: Value) -> Value:
    """Last step of :func:`requantize`, in the cycle of the second one: the value above bit 0 plus that bit, saturated.
    For a register, which is set where the largest scalar would rise: that costs no table, as a choice for each bit
    would."""
    value = kept[1:]
    total = (value + kept[0])[:len(value)]
    rises = total[-1] & ~value[-1]
    return Cat(Mux(rises, Const((1 << len(value) - 1) - 1, len(value) - 1), total[:-1]),
               total[-1] & value[-1]).as_signed()


def requantize(value: Value, shift: Value, width: int) -> Value:
    """Accumulator -> scalar of ``width`` bits: round off ``shift`` bits (a signal or constant), saturate."""
    value, shift = Value.cast(value), Value.cast(shift)
    return add_up(round_off(cut(value, shift, reached(shift, len(value)), width), shift, width))


# -- entering the accumulators, in two steps ---------------------------------------------------------------------------
def _rotate_left(value: Value, shift: Value) -> Value:
    """``value`` has a power of two of bits."""
    return (Cat(value, value) << shift)[len(value):2 * len(value)]


def fitting(shift: Value, width: int, accumulator_width: int) -> Value:
    """Bit k: whether bit k of a scalar of ``width`` bits, its sign apart, stays below the accumulator's sign."""
    top = accumulator_width - 1
    return (Const((1 << top) - 1, top) >> shift)[:width - 1]


def turn(value: Value, shift: Value, fits: Value) -> Value:
    """First step of :func:`rescale_input`: asks whether a bit falls off the top that is not the sign, and rotates by
    the lowest two bits of ``shift``. ``fits``: :func:`fitting`. To be registered, for :func:`place`.

    The scalar is rotated, not shifted: within a power of two of bits, as many as it needs.
    """
    value, shift = Value.cast(value), Value.cast(shift)
    sign = value[-1]
    over = ((value[:-1] ^ sign.replicate(len(value) - 1)) & ~fits).any()
    ring = resize(value, 1 << (len(value) - 1).bit_length())
    return Cat(_rotate_left(ring, shift[:2]), over, sign)


def place(turned: Value, shift: Value, from_shift: Value) -> Value:
    """Second step of :func:`rescale_input`: rotates to the end, puts zeros below and the sign above, saturates.
    ``from_shift``: ``reached(shift, accumulator_width)``."""
    accumulator_width = len(from_shift)
    ring, over, sign = turned[:-2], turned[-2], turned[-1]
    size = len(ring)
    size_log2 = size.bit_length() - 1
    ring = _rotate_left(ring, Cat(Const(0, 2), shift[2:size_log2]))
    inside = from_shift & ~Cat(Const(0, size), from_shift)[:accumulator_width]  # where the ring's bits go
    rings = ring.replicate(-(-accumulator_width // size))[:accumulator_width]
    value = (rings & inside) | (sign.replicate(accumulator_width) & from_shift & ~inside)
    return Mux(over, _end(sign, accumulator_width), value).as_signed()


def rescale_input(value: Value, shift: Value, accumulator_width: int) -> Value:
    """Scalar -> accumulator: shift left by a signal of 0..accumulator_width-1, saturate at ``accumulator_width``."""
    value, shift = Value.cast(value), Value.cast(shift)
    turned = turn(value, shift, fitting(shift, len(value), accumulator_width))
    return place(turned, shift, reached(shift, accumulator_width))
