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


def round_half_even_variable(value: Value, shift: Value) -> Value:
    """The same for a shift that is a signal, 0..len(value)-1."""
    value = Value.cast(value)
    width = len(value)
    # One guard bit below carries the half through the shifter; the bits shifted out beyond it are sticky.
    shifted = Cat(Const(0, 1), value).as_signed() >> shift
    kept, half = resize(shifted[1:], width), shifted[0]
    below = Cat(Const(0, 1), value) & ((Const(1, width + 1) << shift)[:width + 1] - 1)[:width + 1]
    return resize(kept + (half & (below.any() | kept[0])), width + 1)


def leave(value: Value, shift: Value, width: int) -> Value:
    """Accumulator -> scalar of ``width`` bits: round off ``shift`` bits (a signal), saturate."""
    return saturate(round_half_even_variable(value, shift), width)


def enter(value: Value, shift: Value, accumulator_width: int) -> Value:
    """Scalar -> accumulator: shift left by a signal of 0..accumulator_width-1, saturate at ``accumulator_width``.

    It shifts within the accumulator's width and looks apart at the bits that fall off the top: half the shifter.
    """
    value = Value.cast(value)
    wide = resize(value, accumulator_width)
    shifted = (wide << shift)[:accumulator_width].as_signed()
    back = shifted >> shift
    sign = value[-1]
    limit = Cat(sign.replicate(accumulator_width - 1) ^ Const(-1, signed(accumulator_width - 1)).as_unsigned(), sign)
    return Mux(back == wide, shifted, limit.as_signed())
