//! Probes for tracers: SDT notes, as glibc has them (`sys/sdt.h`).
//!
//! A probe is one no-op of five bytes, which a tracer replaces by a call or a trap, and a note in
//! the section `.note.stapsdt` that says where the no-op is and which registers hold the arguments.
//! The macro writes both in assembly. An argument is an input operand, so a pointer that is in a
//! register already costs no instruction.
//!
//! A tracer's call writes below the stack pointer. A function with a probe must therefore not keep
//! anything in the red zone: the probes of slow paths are functions of their own, and a test reads
//! the machine code of the other ones.
//!
//! Other architectures than x86-64 have no probes.

/// Defines a probe: one or several providers, the name and up to three arguments, each of which is
/// a word.
#[doc(hidden)]
#[macro_export]
#[cfg(target_arch = "x86_64")]
macro_rules! sdt_probe {
    ($provider:literal $(, $more:literal)*; $name:literal) => {
        $crate::sdt_probe!(@ ($provider $(, $more)*) $name ""; )
    };
    ($provider:literal $(, $more:literal)*; $name:literal; $first:expr) => {
        $crate::sdt_probe!(@ ($provider $(, $more)*) $name "8@{0}"; $first)
    };
    ($provider:literal $(, $more:literal)*; $name:literal; $first:expr, $second:expr) => {
        $crate::sdt_probe!(@ ($provider $(, $more)*) $name "8@{0} 8@{1}"; $first, $second)
    };
    ($provider:literal $(, $more:literal)*; $name:literal; $a:expr, $b:expr, $c:expr) => {
        $crate::sdt_probe!(@ ($provider $(, $more)*) $name "8@{0} 8@{1} 8@{2}"; $a, $b, $c)
    };
    (@ ($($provider:literal),*) $name:literal $places:literal; $($argument:expr),*) => {
        // SAFETY: the code does nothing. What a tracer puts in its place keeps all registers.
        unsafe {
            ::core::arch::asm!(
                "990: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                $(
                    ".pushsection .note.stapsdt, \"?\", \"note\"",
                    ".balign 4",
                    ".4byte 992f - 991f, 994f - 993f, 3",
                    "991: .asciz \"stapsdt\"",
                    "992: .balign 4",
                    "993: .8byte 990b, _.stapsdt.base, 0",
                    concat!(".asciz \"", $provider, "\""),
                    concat!(".asciz \"", $name, "\""),
                    concat!(".asciz \"", $places, "\""),
                    "994: .balign 4",
                    ".popsection",
                )*
                // The address by which tracers recognise that a linker has moved the code. R:
                // debuggers need the section, which no code refers to.
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aGR\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                $(in(reg) $argument,)*
                options(att_syntax, nomem, nostack, preserves_flags)
            )
        }
    };
}

/// As above, on an architecture without probes.
#[doc(hidden)]
#[macro_export]
#[cfg(not(target_arch = "x86_64"))]
macro_rules! sdt_probe {
    ($($provider:literal),*; $name:literal $(; $($argument:expr),*)?) => {
        $($(let _ = $argument;)*)?
    };
}

/// `unconvoy:sleep`: the thread is about to sleep at the futex `word`, until the deadline in
/// nanoseconds on the monotonic clock, or 0 for none.
#[inline(never)]
pub extern "C" fn sleep(word: usize, deadline: u64) {
    sdt_probe!("unconvoy"; "sleep"; word, deadline);
}

/// `unconvoy:wake`: the thread is about to wake up to `count` sleepers at the futex `word`.
#[inline(never)]
pub extern "C" fn wake(word: usize, count: usize) {
    sdt_probe!("unconvoy"; "wake"; word, count);
}
