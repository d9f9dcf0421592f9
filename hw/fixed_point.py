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


def _beyond(shift: Value, width: int) -> Value:
    """Bit k: whether ``shift`` <= k. One shift of a constant instead of comparisons: it simulates faster."""
    return (Const((1 << width) - 1, width) << shift)[:width]


def _clipped(over: Value, sign: Value, value: Value) -> Value:
    """``value``, or with ``over`` the end of its range on the side of ``sign``."""
    limit = Cat((~sign).replicate(len(value) - 1), sign)
    return Mux(over, limit, value.as_unsigned()).as_signed()


def _shift_right(value: Value, shift: Value, keep: int) -> Value:
    """The low ``keep`` bits of value >> shift: wide steps first, so that the fine ones need no more bits than those.

    Written with each expression used once: Amaranth writes out what is used twice twice.
    """
    fine = min(2, len(shift))
    width = keep + (1 << fine) - 1
    wide_enough = resize(value, max(len(value), width))
    return ((wide_enough >> Cat(Const(0, fine), shift[fine:]))[:width].as_signed() >> shift[:fine])[:keep]


def round_off(value: Value, shift: Value, width: int) -> Value:
    """First half of :func:`leave`: ``width`` + 2 bits for :func:`clip` (zero for zero), to be registered.

    Whether the result fits is asked of the bits before the shift, so that only ``width`` bits are shifted and rounded.
    """
    value, shift = Value.cast(value), Value.cast(shift)
    sign = value[-1]
    # One guard bit below carries the half through the shifter; the bits shifted out beyond it are sticky.
    shifted = _shift_right(Cat(Const(0, 1), value), shift, width + 1)
    kept, half = shifted[1:], shifted[0]
    beyond = _beyond(shift, len(value))
    sticky = (value[:-2] & ~beyond[1:-1]).any()
    over = ((value[width - 1:-1] ^ sign.replicate(len(value) - width)) & beyond[:len(value) - width]).any()
    return Cat((kept + (half & (sticky | kept[0])))[:width], over, sign)


def clip(rounded: Value, width: int) -> Value:
    """Second half of :func:`leave`. Rounding up may carry the largest scalar over the end."""
    value, over, sign = rounded[:width], rounded[width], rounded[width + 1]
    return _clipped(over | (value[-1] & ~sign), sign, value)


def leave(value: Value, shift: Value, width: int) -> Value:
    """Accumulator -> scalar of ``width`` bits: round off ``shift`` bits (a signal or constant), saturate."""
    return clip(round_off(value, shift, width), width)


def enter(value: Value, shift: Value, accumulator_width: int) -> Value:
    """Scalar -> accumulator: shift left by a signal of 0..accumulator_width-1, saturate at ``accumulator_width``.

    It shifts within the accumulator's width and asks apart whether a bit falls off the top that is not the sign.
    """
    value = Value.cast(value)
    sign, top = value[-1], accumulator_width - 1
    fits = Const((1 << top) - 1, top) >> shift  # bit k: whether bit k of the value stays below the sign
    over = ((value[:-1] ^ sign.replicate(len(value) - 1)) & ~fits[:len(value) - 1]).any()
    shifted = (value.as_signed() << shift)[:accumulator_width]
    return _clipped(over, sign, resize(shifted, accumulator_width))
