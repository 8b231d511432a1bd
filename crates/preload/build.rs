//! Builds `boundary.c`: the wait that a cancellation may unwind, weak references, and variadic
//! functions.

fn main() {
    println!("cargo::rerun-if-changed=src/boundary.c");
    cc::Build::new()
        .file("src/boundary.c")
        .flag("-std=gnu11")
        // A cancelled thread unwinds through the wait and runs its clean-up handlers.
        .flag("-fexceptions")
        .flag("-fasynchronous-unwind-tables")
        // Not every linker emits unwind information for the PLT stubs of libc calls.
        .flag("-fno-plt")
        .flag("-Wall")
        .flag("-Wextra")
        .opt_level(2)
        .compile("unconvoy_boundary");
}
