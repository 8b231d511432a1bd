//! The parts that need no QEMU, compiled into this test because the plug-in itself does not link
//! without QEMU.

#![cfg(target_arch = "x86_64")]
#![allow(dead_code, reason = "the tests use a part")]

#[path = "../src/layout.rs"]
mod layout;
#[path = "../src/messages.rs"]
mod messages;
#[path = "../src/objects.rs"]
mod objects;
#[path = "../src/options.rs"]
mod options;
#[path = "../src/returns.rs"]
mod returns;
#[path = "../src/symbols.rs"]
mod symbols;

use layout::{KERNEL, Layout, STACK};
use std::cell::Cell;
use std::collections::BTreeMap;
use symbols::{Function, Symbols};
use unconvoy_trace_collector::decode::Decoded;
use unconvoy_trace_collector::memory::Memory;
use unconvoy_trace_stream::Region;

/// The required symbols, and some that resemble observed functions.
const SYMBOLS: &str = "\
    ffffffff81000000 T _raw_spin_lock\n\
    ffffffff81000040 T _raw_spin_lock_irq_disable\n\
    ffffffff81000080 T _raw_spin_trylock_bh\n\
    ffffffff810000c0 T _raw_write_lock_nested\n\
    ffffffff81000100 T _raw_read_trylock\n\
    ffffffff81000140 T _raw_spin_unlock\n\
    ffffffff81000180 T _raw_read_unlock_irqrestore\n\
    ffffffff810001c0 t _raw_spin_lock.cold\n\
    ffffffff81000200 T native_queued_spin_lock_slowpath\n\
    ffffffff81000300 T kfree\n\
    ffffffff81000400 T __x86_return_thunk\n\
    ffffffff81000500 T __x64_sys_sethostname\n\
    ffffffff81000600 T __pfx__raw_spin_lock\n\
    ffffffff82000000 D __per_cpu_offset\n\
    ffffffff82000100 d pcpu_unit_size\n\
    ffffffff82000108 D page_offset_base\n\
    ffffffff82000110 D vmemmap_base\n\
    ffffffff82000118 D slab_caches\n\
    ffffffff82000128 B node_data\n\
    0000000000001000 D pcpu_hot\n\
    ffffffffc0000000 t _raw_spin_lock\t[module]\n";

fn symbols() -> Symbols {
    Symbols::parse(SYMBOLS).expect("valid input")
}

#[test]
fn symbols_map_addresses_to_functions() {
    let symbols = symbols();
    let function = |offset: u64| symbols.function(0xffff_ffff_8100_0000 + offset);
    assert_eq!(function(0), Some(Function::Acquire { size: 4 }));
    assert_eq!(function(0x40), Some(Function::Acquire { size: 4 }));
    assert_eq!(function(0x80), Some(Function::Try { size: 4 }));
    assert_eq!(function(0xc0), Some(Function::Acquire { size: 8 }));
    assert_eq!(function(0x100), Some(Function::Try { size: 8 }));
    assert_eq!(
        (function(0x140), function(0x180)),
        (Some(Function::Release), Some(Function::Release))
    );
    assert_eq!((function(0x1c0), function(0x600)), (None, None), "a split-off part, and padding");
    assert_eq!((function(0x200), function(0x300)), (Some(Function::Wait), Some(Function::Free)));
    assert_eq!(symbols.function(0xffff_ffff_c000_0000), None, "a module's symbol");
    let code = |offset: u64| symbols.locking_code(0xffff_ffff_8100_0000 + offset);
    let region = Region::between(0xffff_ffff_8100_0040, 0xffff_ffff_8100_0080);
    assert_eq!(code(0x41), Some(&symbols::Code { region, acquires: true }));
    assert!(
        code(0x141).is_some_and(|code| !code.acquires)
            && code(0x2ff).is_some_and(|code| code.acquires)
    );
    assert_eq!(code(0x301), None, "a function that only frees");
    assert_eq!(symbols.variable("pcpu_hot"), Some(0x1000));
    assert_eq!(symbols.counts()[..2], ["5 that lock", "2 that unlock"].map(String::from));
    for offset in (0..0x600).step_by(0x40) {
        if let Some(function) = function(offset) {
            assert_eq!(Function::numbered(function.number()), function);
        }
    }
}

#[test]
fn missing_symbols_are_named() {
    let rejected = |text: &str| Symbols::parse(text).expect_err("invalid symbols");
    let without = |name: &str| {
        let lines: Vec<&str> =
            SYMBOLS.lines().filter(|line| !line.ends_with(&format!(" {name}"))).collect();
        rejected(&lines.join("\n"))
    };
    assert_eq!(without("_raw_spin_unlock"), "the kernel's symbols lack _raw_spin_unlock");
    assert_eq!(without("__x64_sys_sethostname"), "the kernel's symbols lack __x64_sys_sethostname");
    assert!(rejected("").contains("_raw_spin_lock, _raw_spin_unlock"));
    assert!(rejected("0000000000000000 T _raw_spin_lock\n").contains("as root"));
    assert!(rejected("what is this").contains("line 1"));
    assert!(rejected("a T b\nmore\n").contains("line 2"));
}

#[test]
fn return_instructions_and_thunk_jumps_are_recognized() {
    let symbols = symbols();
    let code = Region::between(0xffff_ffff_8100_0000, 0xffff_ffff_8100_0040);
    let returns = |bytes: &[u8]| returns::returns(&symbols, code, 0xffff_ffff_8100_0010, bytes);
    let jump = |target: u64| {
        let offset = target.wrapping_sub(0xffff_ffff_8100_0015) as i32;
        [&[0xe9][..], &offset.to_le_bytes()].concat()
    };
    assert!(returns(&[0xc3]) && returns(&[0xf3, 0xc3]) && returns(&[0xc2, 8, 0]));
    assert!(returns(&jump(0xffff_ffff_8100_0400)), "a jump to a return thunk");
    assert!(
        !returns(&jump(0xffff_ffff_8100_0200)),
        "a tail call of the slow path, which returns instead"
    );
    assert!(
        !returns(&jump(0xffff_ffff_8100_0020))
            && !returns(&[0x90])
            && !returns(&[0xe8, 0, 0, 0, 0])
    );
}

#[test]
fn instructions_are_classified_by_bytes() {
    let decoded = Decoded::new;
    // add %gs:0x10, %rax; lock cmpxchg %edx, (%rdi); xchg %eax, (%rdi); xchg %eax, %ecx
    assert!(decoded(&[0x65, 0x48, 0x03, 0x04, 0x25, 0x10, 0, 0, 0]).is_by_gs);
    let locked = decoded(&[0xf0, 0x0f, 0xb1, 0x17]);
    assert!(locked.is_atomic && locked.may_access() && !locked.is_by_gs);
    assert!(decoded(&[0x87, 0x07]).is_atomic && !decoded(&[0x87, 0xc1]).is_atomic);
    // push %rbx; pop %r12; call; jne; endbr64; lea; nopw
    for stack_or_none in [
        &[0x53][..],
        &[0x41, 0x5c],
        &[0xe8, 0, 0, 0, 0],
        &[0x0f, 0x85, 0, 0, 0, 0],
        &[0xf3, 0x0f, 0x1e, 0xfa],
        &[0x48, 0x8d, 0x07],
        &[0x66, 0x0f, 0x1f, 0x00],
    ] {
        assert!(!decoded(stack_or_none).may_access(), "{stack_or_none:x?}");
    }
    // mov (%rdi), %rax; rep movsb; call *(%rax); push (%rax)
    for accesses in [&[0x48, 0x8b, 0x07][..], &[0xf3, 0xa4], &[0xff, 0x10], &[0xff, 0x30]] {
        assert!(decoded(accesses).may_access(), "{accesses:x?}");
    }
    // out %al, (%dx); insb; wrmsr; rdmsr
    assert_eq!(decoded(&[0xee]).does_io(), Some(false));
    assert_eq!(decoded(&[0xf3, 0x6c]).does_io(), Some(false));
    assert_eq!(decoded(&[0x0f, 0x30]).does_io(), Some(true));
    assert_eq!(decoded(&[0x0f, 0x32]).does_io(), None);
}

/// Words by address; counts the reads.
#[derive(Default)]
struct Words {
    words: BTreeMap<u64, u64>,
    reads: Cell<usize>,
}

impl Words {
    fn with(mut self, address: u64, words: &[u64]) -> Self {
        self.words.extend((address..).step_by(8).zip(words.iter().copied()));
        self
    }
}

impl Memory for Words {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        to.iter_mut().enumerate().all(|(index, byte)| {
            let at = address + index as u64;
            let word = self.words.get(&(at & !7));
            word.is_some_and(|word| {
                *byte = word.to_le_bytes()[at as usize & 7];
                true
            })
        })
    }
}

const UNITS: [u64; 2] = [0xffff_8880_3ec0_0000, 0xffff_8880_3ed0_0000];

fn kernel() -> Words {
    let stacks = [0xffff_c900_0000_4ff8, 0xffff_c900_0010_8ff8];
    let words = Words::default()
        .with(0xffff_ffff_8200_0000, &UNITS)
        .with(0xffff_ffff_8200_0100, &[0x10_0000, 0xffff_8880_0000_0000, 0xffff_ea00_0000_0000]);
    // One structure: the current task, a count, the task's stack, the interrupt stack, others.
    let hot = |stack| [KERNEL, 1, 0xffff_c900_0040_4000, stack, 0, 7, 0, 0];
    words.with(UNITS[0] + 0x1000, &hot(stacks[0])).with(UNITS[1] + 0x1000, &hot(stacks[1]))
}

#[test]
fn layout_finds_per_processor_memory_and_stacks() {
    let mut notes = Vec::new();
    let layout = Layout::read(&kernel(), &symbols(), 2, &mut |note| notes.push(note));
    assert!(notes.is_empty(), "{notes:?}");
    assert!(layout.is_own(0, UNITS[0]) && layout.is_own(1, UNITS[1] + 0xf_ffff));
    assert!(
        !layout.is_own(0, UNITS[1]) && !layout.is_own(2, UNITS[0]),
        "another processor's memory"
    );
    assert!(layout.is_per_cpu(UNITS[1]) && !layout.is_per_cpu(UNITS[1] + 0x10_0000));
    // An interrupt stack has another alignment than a task's.
    assert_eq!(
        layout.stack(0, 0xffff_c900_0000_4f00),
        Region::between(0xffff_c900_0000_1000, 0xffff_c900_0000_5000)
    );
    assert_eq!(
        layout.stack(1, 0xffff_c900_0000_4f00).address,
        0xffff_c900_0000_4000,
        "another processor's interrupt stack"
    );
    let task = layout.stack(0, 0xffff_c900_0040_3f00);
    assert_eq!((task.address, task.size), (0xffff_c900_0040_0000, STACK));
    assert_eq!(layout::unfit(0, &layout), None);
    assert!(layout::unfit(1 << 21, &layout).is_some_and(|why| why.contains("-smap")));
    let five = Layout { direct_map: 0xff11_0000_0000_0000, ..layout };
    assert!(layout::unfit(0, &five).is_some_and(|why| why.contains("-la57")));
    assert!(
        layout::may_be_device(0xffff_c900_0000_0000)
            && layout::may_be_device(0xffff_ffff_ff5f_b000)
    );
    assert!(
        !layout::may_be_device(0xffff_8880_0000_0000)
            && !layout::may_be_device(0xffff_ffff_8100_0000)
    );
}

#[test]
fn missing_layout_is_noted() {
    let mut notes = Vec::new();
    let layout = Layout::read(&Words::default(), &symbols(), 2, &mut |note| notes.push(note));
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!(
        layout.stack(0, 0xffff_c900_0040_3f00).address,
        0xffff_c900_0040_0000,
        "task stacks need no symbols"
    );
    assert!(!layout.is_own(0, UNITS[0]));
}

const OFFSETS: &str = "# of some kernel\nsizeof_page=64\ncompound_head=0x8\nslab_cache=8\n\
    kmem_cache_name=16\nkmem_cache_size=0\nkmem_cache_object_size=4\nkmem_cache_list=24\n\
    sizeof_pglist_data=0x2000\n";

#[test]
fn incomplete_or_malformed_offsets_are_rejected() {
    assert!(objects::Offsets::parse(OFFSETS).is_ok());
    let without = OFFSETS.replace("slab_cache=8\n", "");
    assert_eq!(objects::Offsets::parse(&without), Err("no slab_cache".to_string()));
    for wrong in ["slab_cache", "slab_cache=eight", "slab_cache=0xg"] {
        assert!(objects::Offsets::parse(wrong).is_err_and(|what| what.contains(wrong)), "{wrong}");
    }
}

#[test]
fn view_finds_object_of_address() {
    const DIRECT: u64 = 0xffff_8880_0000_0000;
    const PAGES: u64 = 0xffff_ea00_0000_0000;
    const CACHE: u64 = 0xffff_8880_0010_0000;
    let name = u64::from_le_bytes(*b"dentry\0\0");
    // One cache with objects of 192 bytes, 200 bytes apart, and one slab of four pages from page
    // 16. The structure of the last page has the address of the first one; the two between have a
    // mask.
    let tail = PAGES + 16 * 64 + 1;
    let mask = !(4 * 64 - 1) | 1;
    let head = 0xffff_ffff_8200_0118;
    let mut memory = kernel()
        .with(head, &[CACHE + 24, CACHE + 24, DIRECT + 0x5000, 0])
        .with(CACHE, &[192 << 32 | 200, 0, CACHE + 64, head])
        .with(CACHE + 64, &[name])
        .with(PAGES + 16 * 64, &[0, CACHE])
        .with(PAGES + 17 * 64, &[0, mask])
        .with(PAGES + 18 * 64, &[0, mask])
        .with(PAGES + 19 * 64, &[0, tail])
        .with(PAGES + 20 * 64, &[0, DIRECT]);
    let (symbols, offsets) = (symbols(), objects::Offsets::parse(OFFSETS).expect("complete"));
    let layout = Layout::read(&memory, &symbols, 2, &mut |note| panic!("{note}"));
    let caches = objects::Caches::read(&memory, &symbols, &layout, offsets).expect("a cache");
    assert_eq!(caches.nodes(&memory, &symbols), [Region::new(DIRECT + 0x5000, 0x2000)]);
    let mut view = objects::View::new();
    let slab = DIRECT + 0x10_000;
    for (address, object) in
        [(0, 0), (191, 0), (200, 200), (0x1000, 4000), (0x2fff, 12_200), (0x3010, 12_200)]
    {
        let found = view.object(&memory, &caches, slab + address).expect("in the slab");
        assert_eq!((found.address - slab, found.cache.object_size), (object, 192), "{address:#x}");
        assert_eq!(found.cache.name, b"dentry");
    }
    assert_eq!(view.object(&memory, &caches, DIRECT + 0x14_000), None, "a page of no cache");
    assert_eq!(
        view.object(&memory, &caches, 0xffff_ffff_8100_0000),
        None,
        "outside the direct map"
    );
    let reads = memory.reads.get();
    assert!(
        view.take_new(&memory, &caches, slab + 300).is_some()
            && view.take_new(&memory, &caches, slab + 301).is_none()
    );
    assert_eq!(memory.reads.get(), reads, "answered from the view");
    // The page goes to another cache, which the view notices after a while.
    memory.words.insert(PAGES + 16 * 64 + 8, 0);
    (0..1001).for_each(|_| view.next_section());
    assert_eq!(view.object(&memory, &caches, slab + 300), None);
    // The view notices at once if the free was observed. `object_now` always notices.
    for page in [16, 17] {
        memory.words.insert(PAGES + 16 * 64 + 8, CACHE);
        (0..1001).for_each(|_| view.next_section());
        assert!(view.object(&memory, &caches, slab + 300).is_some());
        memory.words.insert(PAGES + 16 * 64 + 8, 0);
        caches.free_pages(PAGES + page * 64, 1);
        assert_eq!(view.object(&memory, &caches, slab + 300).is_some(), page == 17);
        assert_eq!(view.object_now(&memory, &caches, slab + 300), None);
    }
}

#[test]
fn options_out_of_range_are_rejected() {
    let parse = |text: &str| options::parse(text.split(',').filter(|option| !option.is_empty()));
    let defaults = parse("out=x,symbols=y").expect("valid input");
    assert_eq!(
        (defaults.common.rate, defaults.common.seed, defaults.common.words, defaults.offsets),
        (10, 1, 1 << 14, None)
    );
    assert!(parse("out=x,symbols=y,offsets=z,rate=1,seed=0,words=1").is_ok());
    assert!(parse("out=x,symbols=y,sampling=independent").is_ok());
    for wrong in [
        "",
        "out=x",
        "symbols=y",
        "out=x,symbols=y,rate=0",
        "out=x,symbols=y,sampling=all",
        "out=x,symbols=y,words=40001",
        "out=x,symbols=y,heap=on",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_message() {
    let messages = [
        messages::wrong_target(1024, 2000, "x86_64"),
        messages::no_symbols_option().to_string(),
        messages::malformed_symbol(3),
        messages::malformed_address(3, "what"),
        messages::hidden_symbols(),
        messages::missing_symbols(&["_raw_spin_lock", "_raw_spin_unlock"]),
        messages::malformed_offset("slab_cache=eight"),
        messages::missing_offset("slab_cache"),
        messages::bad_offsets("kernel.offsets".as_ref(), "no slab_cache"),
        messages::no_offsets(),
        messages::no_slab_caches(),
        messages::no_per_cpu_memory(),
        messages::no_interrupt_stacks(),
        messages::has_smap(),
        messages::five_level_page_tables(),
        messages::never_began(),
        messages::unknown_state(),
        messages::one_thread_for_all(),
    ];
    for message in &messages {
        println!("{message}");
        assert!(message.len() <= 120 && !message.ends_with('.'), "{message}");
    }
    let functions = include_str!("../src/messages.rs").matches("\npub fn ").count();
    assert_eq!(functions, messages.len(), "list each message function above");
}
