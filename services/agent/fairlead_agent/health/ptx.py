"""The kernels of the GPU test, as text that the driver itself compiles: nothing of CUDA's toolkit is needed, nor shipped.

Each thread takes words of a buffer, a grid apart. A word's value follows from its index and a seed by `ROUNDS` steps of a linear
congruence, x = x * 1664525 + 1013904223 modulo 2**32 (Knuth's and Lewis'; exact, so one wrong bit anywhere is seen), then spread by
an exclusive or with itself. `fill` writes what it has computed; `check` computes it again, compares with what memory has kept, and counts.
"""

ROUNDS = 32
MULTIPLIER, INCREMENT = 1664525, 1013904223


def word_at(index: int, seed: int) -> int:
    """What both kernels compute for one word: the model that tests compare with."""
    value = (index ^ seed) & 0xFFFFFFFF
    for _ in range(ROUNDS):
        value = (value * MULTIPLIER + INCREMENT) & 0xFFFFFFFF
    return value ^ (value >> 16)


_HEAD = """.version 6.0
.target sm_50
.address_size 64
"""

_COMPUTE = f"""
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mov.u32 %r5, %nctaid.x;
    mul.lo.u32 %r6, %r5, %r2;
    cvt.u64.u32 %rd3, %r4;
    cvt.u64.u32 %rd4, %r6;
NEXT:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra DONE;
    cvt.u32.u64 %r7, %rd3;
    xor.b32 %r8, %r7, %r20;
    mov.u32 %r9, 0;
ROUND:
    mad.lo.u32 %r8, %r8, {MULTIPLIER}, {INCREMENT};
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %p2, %r9, {ROUNDS};
    @%p2 bra ROUND;
    shr.u32 %r10, %r8, 16;
    xor.b32 %r8, %r8, %r10;
    shl.b64 %rd5, %rd3, 2;
    add.u64 %rd6, %rd1, %rd5;
"""

_DECLARE = """
    .reg .pred %p<4>;
    .reg .b32 %r<24>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [buffer];
    ld.param.u64 %rd2, [words];
    ld.param.u32 %r20, [seed];
"""

_AGAIN = """
    add.u64 %rd3, %rd3, %rd4;
    bra NEXT;
DONE:
    ret;
}
"""

SOURCE = (
    _HEAD
    + "\n.visible .entry fill(.param .u64 buffer, .param .u64 words, .param .u32 seed)\n{"
    + _DECLARE + _COMPUTE
    + "    st.global.u32 [%rd6], %r8;\n"
    + _AGAIN
    + "\n.visible .entry check(.param .u64 buffer, .param .u64 words, .param .u32 seed, .param .u64 wrong)\n{"
    + _DECLARE + "    ld.param.u64 %rd7, [wrong];\n" + _COMPUTE
    + "    ld.global.u32 %r11, [%rd6];\n    setp.eq.u32 %p3, %r11, %r8;\n    @%p3 bra SAME;\n"
    + "    atom.global.add.u32 %r12, [%rd7], 1;\nSAME:\n"
    + _AGAIN
)  # fmt: skip
