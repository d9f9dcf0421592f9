# SPDX-License-Identifier: Apache-2.0
"""The hardware twin of ``numerics.py``: the same functions as Amaranth expressions, combinational.

Every function takes and gives signed values and spells its widths out, since Amaranth cuts what is too wide
silently."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Value, signed


def saturate(value: Value, width: int) -> Value:
    """Return a signed value of any width in ``width`` bits, clipped to their range."""
    value = Value.cast(value)
    if len(value) <= width:
        return resize(value, width)
    sign, above = value[-1], value[width - 1:]
    fits = (above == Mux(sign, Const(-1, signed(len(above))), 0).as_unsigned()[:len(above)])
    limit = Cat(sign.replicate(width - 1) ^ Const(-1, signed(width - 1)).as_unsigned(), sign)
    return Mux(fits, value[:width], limit).as_signed()


def resize(value: Value, width: int) -> Value:
    """Return a value sign-extended to ``width`` bits, or its lowest ``width`` bits."""
    value = Value.cast(value)
    if len(value) >= width:
        return value[:width].as_signed()
    return Cat(value, value[-1].replicate(width - len(value))).as_signed()


def round_half_even(value: Value, shift: int) -> Value:
    """Return a signed value / 2**shift for a constant shift, rounded HALF_EVEN.

    It is one bit wider than what remains, so nothing is lost."""
    value = Value.cast(value)
    if shift == 0:
        return value.as_signed()
    kept = resize(value, max(len(value), shift + 1))[shift:].as_signed()
    half, sticky = value[shift - 1], value[:shift - 1].any() if shift > 1 else Const(0, 1)
    return resize(kept + (half & (sticky | kept[0])), len(kept) + 1)


def add_with_carry(left: Value, right: Value, carry: Value) -> Value:
    """Return left + right + carry in one carry chain: a sum of three would first become a sum of two."""
    return (Cat(Const(1, 1), left).as_signed() + Cat(carry, right).as_signed())[1:].as_signed()


def reached(shift: Value, width: int) -> Value:
    """Return ``width`` bits; bit k says whether ``shift`` <= k.

    The functions below take it as an argument: one is enough for all lanes, and it can be made a cycle earlier. It
    is one shift of a constant instead of comparisons, which simulates faster."""
    return (Const((1 << width) - 1, width) << shift)[:width]


def _end(sign: Value, width: int) -> Value:
    """Return the end of the range of ``width`` bits on the side of ``sign``."""
    return Cat((~sign).replicate(width - 1), sign)


# -- leaving the accumulators, in two steps ----------------------------------------------------------------------------
FINE_BITS = 3
"""The bits of an output shift that the second step takes; the first step takes those above."""


def cut(value: Value, shift: Value, from_shift: Value, width: int) -> Value:
    """Return the first step of :func:`requantize`, the coarse shift, for :func:`round_off`.

    It is to be registered, like the result of the second step. ``from_shift``: ``reached(shift, len(value))``. The
    bits shifted out at both ends are tested on the value before the shift, so that few bits have to be shifted."""
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
    """Return the second step of :func:`requantize`, the fine shift, for :func:`add_up`.

    Bit 0 is the bit that has to be added (HALF_EVEN) to the saturated value above it. Zero gives zero."""
    window, sticky, over, sign = cut_value[:-3], cut_value[-3], cut_value[-2], cut_value[-1]
    shifted = (window >> shift[:FINE_BITS])[:width + 1]
    kept, half = shifted[1:], shifted[0]
    return Cat(half & (sticky | kept[0]) & ~over, Mux(over, _end(sign, width), kept))


def add_up(kept: Value) -> Value:
    """Return the last step of :func:`requantize`, in the cycle of the second one: the value above bit 0 plus that bit.

    The sum is saturated. It goes to a register, which is set if the largest scalar would rise: that costs no look-up
    table, as a choice for each bit would."""
    value = kept[1:]
    total = (value + kept[0])[:len(value)]
    rises = total[-1] & ~value[-1]
    return Cat(Mux(rises, Const((1 << len(value) - 1) - 1, len(value) - 1), total[:-1]),
               total[-1] & value[-1]).as_signed()


def requantize(value: Value, shift: Value, width: int) -> Value:
    """Return the scalar of ``width`` bits of an accumulator value: ``shift`` bits rounded off, saturated.

    ``shift`` is a signal or a constant."""
    value, shift = Value.cast(value), Value.cast(shift)
    return add_up(round_off(cut(value, shift, reached(shift, len(value)), width), shift, width))


# -- entering the accumulators, in two steps ---------------------------------------------------------------------------
def _rotate_left(value: Value, shift: Value) -> Value:
    """Return ``value``, whose number of bits is a power of two, rotated to the left by ``shift``."""
    return (Cat(value, value) << shift)[len(value):2 * len(value)]


def fitting(shift: Value, width: int, accumulator_width: int) -> Value:
    """Return a bit for each bit below the sign of a scalar of ``width`` bits.

    Bit k says whether bit k of the scalar, shifted by ``shift``, stays below the accumulator's sign."""
    top = accumulator_width - 1
    return (Const((1 << top) - 1, top) >> shift)[:width - 1]


def turn(value: Value, shift: Value, fits: Value) -> Value:
    """Return the first step of :func:`rescale_input`: the scalar rotated by the lowest two bits of ``shift``.

    It also has a bit that says whether a bit other than copies of the sign falls off the top. ``fits``:
    :func:`fitting`. The result is to be registered, for :func:`place`. The scalar is rotated, not shifted, within as
    few bits as hold it, a power of two."""
    value, shift = Value.cast(value), Value.cast(shift)
    sign = value[-1]
    over = ((value[:-1] ^ sign.replicate(len(value) - 1)) & ~fits).any()
    ring = resize(value, 1 << (len(value) - 1).bit_length())
    return Cat(_rotate_left(ring, shift[:2]), over, sign)


def place(turned: Value, shift: Value, from_shift: Value) -> Value:
    """Return the second step of :func:`rescale_input`: the accumulator value of ``turned``, which :func:`turn` returns.

    The scalar's bits are rotated to where ``shift`` puts them, zeros are below and copies of the sign above; the value
    is saturated if bits fell off the top. ``from_shift``: a bit for each of the accumulator, set from bit ``shift``
    on, as ``reached(shift, accumulator_width)`` returns it."""
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
    """Return the accumulator value of a scalar: shifted left by 0..accumulator_width-1, a signal, and saturated."""
    value, shift = Value.cast(value), Value.cast(shift)
    turned = turn(value, shift, fitting(shift, len(value), accumulator_width))
    return place(turned, shift, reached(shift, accumulator_width))
