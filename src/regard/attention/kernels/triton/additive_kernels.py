"""The Triton kernels of additive attention: vector . tanh(a + b) for tiles of pairs, its softmax, and its gradients.

With A = e^2a and B = e^2b, made once for each query and each key, tanh(a + b) = 1 - 2 / (1 + A B), and two units
share one reciprocal, the scarcest operation of a GPU:

    v1 / d1 + v2 / d2 = (v1 d2 + v2 d1) / (d1 d2)        with d = 1 + A B

That holds while A B stays small enough for float32. A tile in which |a| + |b| may pass LIMIT takes the slow path, unit
by unit. Hot loops use no masks: their inputs are padded to whole blocks.

Letters: N leading indices, T queries, S keys, U units; a panel is (U, block), the numbers of a unit side by side.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

LIMIT = tl.constexpr(20.0)  # the largest |a| + |b| of the fast path: d = 1 + e^40, and d1 d2 < 1e35 fits float32
MAX_VECTOR = tl.constexpr(1e18)  # the largest vector component that can be multiplied with those


@triton.jit
def write_powers(
    a, b, powers_a, powers_b, bounds_a, bounds_b, T, S, U, padded, of_a,
    PANEL: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """e^2a and e^2b, and the largest number of every block: the first `of_a` programs do blocks of a, others of b."""
    program = tl.program_id(0)
    if program < of_a:
        _write_powers(a, powers_a, bounds_a, program, T, U, padded, PANEL, ROWS, WIDTH)
    else:
        _write_powers(b, powers_b, bounds_b, program - of_a, S, U, padded, PANEL, COLUMNS, WIDTH)


@triton.jit
def write_scores(
    panels_a, panels_b, bounds_a, bounds_b, a, b, vector, lo, hi, scores, T, S, U,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr, UNITS: tl.constexpr,
    SPANS: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """scores (N, whole row blocks, whole column blocks); tiles that no query sees are left as they were."""
    n, block_i, block_j = _tile_of_program(T, S, ROWS, COLUMNS)
    place = _tile(scores, n, block_i, block_j, T, S, ROWS, COLUMNS)
    if SPANS:
        start, stop = _key_range(lo, hi, n, block_i, T, ROWS)
        if (tl.max(stop) <= block_j * COLUMNS) | (tl.min(start) >= (block_j + 1) * COLUMNS):
            return
    found = _compare(
        panels_a, panels_b, bounds_a, bounds_b, a, b, vector, place, n, block_i, block_j, T, S, U,
        ROWS, COLUMNS, PADDED, UNITS, ASM,
    )  # fmt: skip
    tl.store(place, found)


@triton.jit
def softmax_rows(
    scores, lo, hi, lse, entropy, T, S, stride_n, stride_t,
    SPANS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Scores to weights in place, one row a program; 0 at keys that the query does not see."""
    row = tl.program_id(0).to(tl.int64)
    line = scores + (row // T) * stride_n + (row % T) * stride_t
    start, stop = 0, S
    if SPANS:
        start, stop = tl.load(lo + row), tl.load(hi + row)
    # the largest score s, the sum of e^(s - peak), and of (s - peak) e^(s - peak)
    peak, total, log_sum = -float("inf"), 0.0, 0.0
    for first in range(start // BLOCK * BLOCK, stop, BLOCK):
        key = first + tl.arange(0, BLOCK)
        seen = (key >= start) & (key < stop)
        here = tl.load(line + key, mask=seen, other=-float("inf"))
        new_peak = tl.maximum(peak, tl.max(here, 0))
        lower = tl.where(peak == -float("inf"), 0.0, peak - new_peak)
        rescale = tl.where(peak == -float("inf"), 0.0, tl.exp(lower))
        logs = tl.where(seen, here - new_peak, 0.0)
        powers = tl.where(seen, tl.exp(logs), 0.0)
        log_sum = (log_sum + lower * total) * rescale + tl.sum(powers * logs, 0)
        total = total * rescale + tl.sum(powers, 0)
        peak = new_peak
    safe_total = tl.where(total == 0, 1.0, total)
    tl.store(lse + row, tl.where(total == 0, -float("inf"), peak + tl.log(safe_total)))
    tl.store(entropy + row, tl.log(safe_total) - log_sum / safe_total)
    for first in range(0, S, BLOCK):
        key = first + tl.arange(0, BLOCK)
        seen = (key >= start) & (key < stop)
        here = tl.load(line + key, mask=seen, other=0.0)
        tl.store(line + key, tl.where(seen, tl.exp(here - peak) / safe_total, 0.0), mask=key < S)


@triton.jit
def write_score_gradients(
    panels_a, panels_b, bounds_a, bounds_b, a, b, vector, lo, hi,
    lse, output, grad_output, grad_lse, score_grads, weights, T, S, U, D,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr, UNITS: tl.constexpr,
    SPANS: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """weights p = e^(score - lse), and score_grads = p (do . v - do . output + dlse), the gradient of the scores.

    On entry score_grads = do . v. Both are 0 in the padding; grad_lse None: zero.
    """
    n, block_i, block_j = _tile_of_program(T, S, ROWS, COLUMNS)
    grad_place = _tile(score_grads, n, block_i, block_j, T, S, ROWS, COLUMNS)
    weight_place = _tile(weights, n, block_i, block_j, T, S, ROWS, COLUMNS)
    i, j = block_i * ROWS + tl.arange(0, ROWS), block_j * COLUMNS + tl.arange(0, COLUMNS)
    seen = (i < T)[:, None] & (j < S)[None, :]
    if SPANS:
        start, stop = _key_range(lo, hi, n, block_i, T, ROWS)
        seen = seen & (j[None, :] >= start[:, None]) & (j[None, :] < stop[:, None])
        if (tl.max(stop) <= block_j * COLUMNS) | (tl.min(start) >= (block_j + 1) * COLUMNS):
            nothing = tl.zeros([ROWS, COLUMNS], tl.float32)
            tl.store(grad_place, nothing)
            tl.store(weight_place, nothing)
            return
    found = _compare(
        panels_a, panels_b, bounds_a, bounds_b, a, b, vector, grad_place, n, block_i, block_j, T, S, U,
        ROWS, COLUMNS, PADDED, UNITS, ASM,
    )  # fmt: skip
    row_lse = tl.load(lse + n * T + i, mask=i < T, other=0.0)
    row_delta = -_products(grad_output, output, n * T + i, i < T, D, ROWS)
    if grad_lse is not None:
        row_delta += tl.load(grad_lse + n * T + i, mask=i < T, other=0.0)
    weight = tl.where(seen, tl.exp(found - row_lse[:, None]), 0.0)
    tl.store(weight_place, weight)
    grad_products = tl.load(grad_place)
    tl.store(grad_place, tl.where(seen, weight * (grad_products + row_delta[:, None]), 0.0))


@triton.jit
def gather_gradients(
    x, y, powers_y, bounds, score_grads, vector, out, parts, L, C, U, accumulate,
    BLOCK: tl.constexpr, OTHER: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr, PAIRS: tl.constexpr,
    VECTOR: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """The gradient of x (N, L, U): sum over c of grad_xc v (1 - tanh^2(x + y_c)), with y (N, C, U) on the other side.

    powers_y = e^2y (N, whole blocks of OTHER, PADDED), bounds (N, blocks of OTHER), score_grads (N, c, x) in whole
    blocks. VECTOR: that of the vector too, a part for each block of L, (N, blocks of L, PADDED). accumulate: add to
    out.

    With h = 1 / d - 1/2, tanh is -2h and 1 - tanh^2 is 4 (1/4 - h^2), term by term: sums of 1 / d and of its square
    are far larger than their difference. And a sum over all of C would lose digits with its length, so every block of
    it is summed by itself.
    """
    row_blocks, column_blocks, others = tl.cdiv(L, BLOCK), PADDED // WIDTH, tl.cdiv(C, OTHER)
    program = tl.program_id(0)
    n, block = (program // (row_blocks * column_blocks)).to(tl.int64), program // column_blocks % row_blocks
    first = program % column_blocks * WIDTH
    place, unit = block * BLOCK + tl.arange(0, BLOCK), first + tl.arange(0, WIDTH)
    real = (place < L)[:, None] & (unit < U)[None, :]
    own = (n * L + place)[:, None] * U + unit[None, :]
    here = tl.load(x + own, mask=real, other=0.0)
    powers, largest = _exp(2 * here), tl.max(tl.max(tl.abs(here), 1), 0)
    through_vector = tl.zeros([BLOCK, WIDTH], tl.float32)  # sum of grad h: for the vector alone
    through_tanh = tl.zeros([BLOCK, WIDTH], tl.float32)  # sum of grad (1/4 - h^2)
    stride = row_blocks * BLOCK
    for other in range(others):
        at = score_grads + (n * others + other) * OTHER * stride + block * BLOCK + tl.arange(0, BLOCK)
        tile = tl.load(at[None, :] + (tl.arange(0, OTHER) * stride)[:, None])
        if tl.max(tl.max((tile != 0).to(tl.int32), 1), 0) != 0:
            through_vector_here = tl.zeros([BLOCK, WIDTH], tl.float32)
            through_tanh_here = tl.zeros([BLOCK, WIDTH], tl.float32)
            from_y = powers_y + (n * others + other) * (OTHER * PADDED) + unit
            if largest + tl.load(bounds + n * others + other) <= LIMIT:
                for _ in range(0, OTHER, 2 * PAIRS):
                    for pair in tl.static_range(PAIRS):
                        d1 = powers * tl.load(from_y + 2 * pair * PADDED)[None, :] + 1.0
                        d2 = powers * tl.load(from_y + (2 * pair + 1) * PADDED)[None, :] + 1.0
                        both = _inverse(d1 * d2, ASM)
                        grad1 = tl.load(at)
                        grad2 = tl.load(at + stride)
                        h1, h2 = d2 * both - 0.5, d1 * both - 0.5
                        through_tanh_here += grad1[:, None] * (0.25 - h1 * h1)
                        through_tanh_here += grad2[:, None] * (0.25 - h2 * h2)
                        if VECTOR:
                            through_vector_here += grad1[:, None] * h1
                            through_vector_here += grad2[:, None] * h2
                        at += 2 * stride
                    from_y += 2 * PAIRS * PADDED
            else:
                here = tl.load(x + own, mask=real, other=0.0)  # loaded again, to free registers until here
                for c in range(other * OTHER, tl.minimum((other + 1) * OTHER, C)):
                    y_row = tl.load(y + (n * C + c) * U + unit, mask=unit < U, other=0.0)
                    h = _inverse(1.0 + _clamped_exp2x(here + y_row[None, :]), ASM) - 0.5
                    grad = tl.load(at)
                    through_tanh_here += grad[:, None] * (0.25 - h * h)
                    if VECTOR:
                        through_vector_here += grad[:, None] * h
                    at += stride
            through_tanh += through_tanh_here
            if VECTOR:
                through_vector += through_vector_here
    weight = tl.load(vector + unit)
    if VECTOR:
        from_rows = tl.sum(tl.where((place < L)[:, None], -2 * through_vector, 0.0), 0)
        part = parts + (n * row_blocks + block) * PADDED + unit
        tl.store(part, from_rows)
    result = 4 * through_tanh * weight[None, :]
    if accumulate:
        result += tl.load(out + own, mask=real, other=0.0)
    tl.store(out + own, result, mask=real)


@triton.jit
def _compare(
    panels_a, panels_b, bounds_a, bounds_b, a, b, vector, place, n, block_i, block_j, T, S, U,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr, UNITS: tl.constexpr,
    ASM: tl.constexpr,
):  # fmt: skip
    """The scores of one tile (ROWS, COLUMNS)."""
    row_blocks, column_blocks = tl.cdiv(T, ROWS), tl.cdiv(S, COLUMNS)
    # This reads nothing: it gives the tile the layout of its place in memory, four neighbouring keys to a thread, in
    # which each number of a panel serves four to eight pairs.
    found = tl.load(place, mask=tl.zeros([ROWS, COLUMNS], tl.int32) + T < 0, other=0.0)
    unit = tl.arange(0, triton.next_power_of_2(PADDED))
    vector_values = tl.load(vector + unit, mask=unit < PADDED, other=0.0)
    largest = tl.load(bounds_a + n * row_blocks + block_i) + tl.load(bounds_b + n * column_blocks + block_j)
    if (largest <= LIMIT) & (tl.max(tl.abs(vector_values), 0) <= MAX_VECTOR):
        from_a = panels_a + (n * row_blocks + block_i) * (PADDED * ROWS) + tl.arange(0, ROWS)
        from_b = panels_b + (n * column_blocks + block_j) * (PADDED * COLUMNS) + tl.arange(0, COLUMNS)
        from_v = vector
        for _ in range(0, PADDED, UNITS):
            # v / d - v / 2 = - v tanh / 2. Each iteration has its own sum: a long sum would lose digits.
            some = tl.zeros([ROWS, COLUMNS], tl.float32)
            for u in tl.static_range(UNITS):
                some -= 0.5 * tl.load(from_v + u)
            for u in tl.static_range(0, UNITS, 2):
                d1 = tl.load(from_a + u * ROWS)[:, None] * tl.load(from_b + u * COLUMNS)[None, :] + 1.0
                d2 = tl.load(from_a + (u + 1) * ROWS)[:, None] * tl.load(from_b + (u + 1) * COLUMNS)[None, :] + 1.0
                top = tl.load(from_v + u) * d2 + tl.load(from_v + u + 1) * d1
                some += top * _inverse(d1 * d2, ASM)
            from_a += UNITS * ROWS
            from_b += UNITS * COLUMNS
            from_v += UNITS
            found += some
    else:
        i, j = block_i * ROWS + tl.arange(0, ROWS), block_j * COLUMNS + tl.arange(0, COLUMNS)
        for u in range(U):
            query = tl.load(a + (n * T + i) * U + u, mask=i < T, other=0.0)
            key = tl.load(b + (n * S + j) * U + u, mask=j < S, other=0.0)
            found += tl.load(vector + u) * (_inverse(1.0 + _clamped_exp2x(query[:, None] + key[None, :]), ASM) - 0.5)
    return -2 * found


@triton.jit
def _write_powers(
    x, powers_y, bounds, program, L, U, padded, PANEL: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """e^2x of one block of x (N, L, U), 0 where the padding is, and the largest |x|, into bounds (N, blocks).

    PANEL: laid out as (N, blocks, padded, BLOCK); else as it was, (N, blocks * BLOCK, padded).
    """
    blocks = tl.cdiv(L, BLOCK)
    n, block = (program // blocks).to(tl.int64), program % blocks
    place = block * BLOCK + tl.arange(0, BLOCK)
    largest = tl.zeros([BLOCK], tl.float32)
    for first in range(0, padded, WIDTH):
        unit = first + tl.arange(0, WIDTH)
        real = (place < L)[:, None] & (unit < U)[None, :]
        here = tl.load(x + (n * L + place)[:, None] * U + unit[None, :], mask=real, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(here), 1))
        powers = tl.where(real, _exp(2 * here), 0.0)
        start = (n * blocks + block) * BLOCK * padded
        inside = (place >= 0)[:, None] & (unit < padded)[None, :]
        if PANEL:
            tl.store(powers_y + start + unit[None, :] * BLOCK + tl.arange(0, BLOCK)[:, None], powers, mask=inside)
        else:
            tl.store(powers_y + start + tl.arange(0, BLOCK)[:, None] * padded + unit[None, :], powers, mask=inside)
    tl.store(bounds + n * blocks + block, tl.max(largest, 0))


@triton.jit
def _products(x, y, row, real, D, ROWS: tl.constexpr):
    """x . y of some rows of two tables (rows, D), (ROWS,)."""
    total = tl.zeros([ROWS, 32], tl.float32)
    for first in range(0, D, 32):
        column = first + tl.arange(0, 32)
        place, inside = row[:, None] * D + column[None, :], real[:, None] & (column < D)[None, :]
        total += tl.load(x + place, mask=inside, other=0.0) * tl.load(y + place, mask=inside, other=0.0)
    return tl.sum(total, 1)


@triton.jit
def _exp(x):
    """e^x to the last bits for any x: the GPU's own instruction is only so good near 0, hence 2^n e^(x - n ln 2)."""
    n = tl.floor(x * 1.4426950408889634 + 0.5)
    rest = (x - n * 0.693359375) + n * 2.12194440e-4  # ln 2 in two pieces, n times the first is exact
    return tl.exp(rest) * tl.exp2(n)


@triton.jit
def _clamped_exp2x(x):
    """e^2x, no larger than e^40; NaN stays NaN."""
    return tl.exp(2 * tl.where(x > LIMIT, LIMIT, x))


@triton.jit
def _inverse(x, ASM: tl.constexpr):
    """1 / x in one instruction, exact to the last bit or two."""
    if ASM:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:  # noqa: RET505 (the other branch is not compiled)
        return 1.0 / x


@triton.jit
def _tile_of_program(T, S, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row_blocks, column_blocks = tl.cdiv(T, ROWS), tl.cdiv(S, COLUMNS)
    program = tl.program_id(0)
    n = (program // (row_blocks * column_blocks)).to(tl.int64)
    return n, program // column_blocks % row_blocks, program % column_blocks


@triton.jit
def _tile(table, n, block_i, block_j, T, S, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where a tile lies in a table (N, whole row blocks, whole column blocks)."""
    row_blocks, column_blocks = tl.cdiv(T, ROWS), tl.cdiv(S, COLUMNS)
    row = (n * row_blocks + block_i) * ROWS + tl.arange(0, ROWS)
    return table + row[:, None] * (column_blocks * COLUMNS) + (block_j * COLUMNS + tl.arange(0, COLUMNS))[None, :]


@triton.jit
def _key_range(lo, hi, n, block_i, T, ROWS: tl.constexpr):
    """The first key, and one past the last, of each query of a block; padding rows see none."""
    i = block_i * ROWS + tl.arange(0, ROWS)
    start = tl.load(lo + n * T + i, mask=i < T, other=2147483647)
    return start, tl.load(hi + n * T + i, mask=i < T, other=0)
