//! Builds the C half: what must be unwound by a thread cancellation, and weak references.

fn main() {
    println!("cargo::rerun-if-changed=src/boundary.c");
    cc::Build::new()
        .file("src/boundary.c")
        .flag("-std=gnu11")
        // A cancelled thread unwinds through the wait, running its clean-up handlers.
        .flag("-fexceptions")
        .flag("-fasynchronous-unwind-tables")
        // Not every linker describes how to unwind from the stubs that a call of libc would go through.
        .flag("-fno-plt")
        .flag("-Wall")
        .flag("-Wextra")
        .opt_level(2)
        .compile("unconvoy_boundary");
}
