//! The interface between QEMU and a front end: installation, and the callbacks that all modes
//! share.

use crate::api;
use crate::collection::Collection;
use crate::messages;
use crate::recorder::Recorder;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use unconvoy_trace_stream::{Access, Region};

/// A front end for one mode of QEMU, with the state shared by its threads or processors.
pub trait FrontEnd: Sized + 'static {
    /// A thread of the program, or a virtual processor of the guest.
    type Vcpu: Vcpu;

    /// Installs the front end.
    ///
    /// # Errors
    ///
    /// Why the plug-in cannot be used.
    fn install(id: api::Id, target: &Target, arguments: &[String]) -> Result<(), String>;

    /// The installed front end, while it collects.
    fn get() -> Option<&'static Self>;

    /// The shared part of the collector.
    fn collection(&self) -> &Collection;

    /// The thread or processor of the current callback.
    fn vcpu(number: c_uint) -> Option<&'static mut Self::Vcpu>;

    /// Registers callbacks for a block that is translated.
    fn translate(&self, block: &Block);

    /// Stops collecting as soon as possible.
    fn abort(&self);

    /// Ends the collection because QEMU exits. No emulated code runs during the call.
    fn exit(&self);
}

/// A thread or processor of a front end.
pub trait Vcpu {
    /// The part that all modes share.
    fn recorder(&mut self) -> &mut Recorder;

    /// Whether to record accesses to this address and above. Called from blocks with memory
    /// callbacks.
    fn is_recorded(&self, address: u64) -> bool;

    /// Records an access to a word, from a block with memory callbacks. `information` is QEMU's
    /// description of the access.
    fn record_access(&mut self, access: &Access, information: u32);
}

/// The emulated target.
pub struct Target {
    /// The architecture.
    pub name: String,
    /// A whole machine rather than a program.
    pub is_system: bool,
    /// Virtual processors of a machine.
    pub processors: c_int,
}

/// Defines the symbols that QEMU looks for in a plug-in: the interface version and the install
/// function.
#[macro_export]
macro_rules! plugin {
    ($front:ty, version = $version:literal) => {
        /// The interface version. QEMU rejects a version that it does not support.
        #[unsafe(no_mangle)]
        pub static qemu_plugin_version: std::ffi::c_int = $version;

        /// Called by QEMU when it loads the plug-in, before emulation starts.
        ///
        /// # Safety
        ///
        /// By QEMU's interface: `info` is valid for the call, `argv` has `argc` strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn qemu_plugin_install(
            id: $crate::api::Id,
            info: *const $crate::api::Info,
            argc: std::ffi::c_int,
            argv: *const *const std::ffi::c_char,
        ) -> std::ffi::c_int {
            // SAFETY: this function has the same contract as the one that it calls.
            unsafe { $crate::front::install::<$front>(id, info, argc, argv) }
        }
    };
}

/// The body of [`plugin!`](crate::plugin)'s install function.
///
/// # Safety
///
/// `info` is valid for the call, `argv` has `argc` strings.
pub unsafe fn install<F: FrontEnd>(
    id: api::Id,
    info: *const api::Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: by this function's contract.
    let text =
        |string: *const c_char| unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned();
    // SAFETY: as above.
    let info = unsafe { &*info };
    let target = Target {
        name: text(info.target_name),
        is_system: info.system_emulation,
        processors: info.smp_vcpus,
    };
    // SAFETY: as above.
    let arguments: Vec<String> =
        (0..argc as usize).map(|index| text(unsafe { *argv.add(index) })).collect();
    match F::install(id, &target, &arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}", messages::not_loaded(&error));
            1
        }
    }
}

/// Registers the callbacks for translation and exit. Called from [`FrontEnd::install`] and after
/// each reset.
pub fn listen<F: FrontEnd>(id: api::Id) {
    // SAFETY: the functions and their data live as long as the process.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated::<F>);
        api::qemu_plugin_register_atexit_cb(id, exited::<F>, null_mut());
    }
}

/// Runs a callback and catches a panic: a defect of the plug-in ends the collection, not the
/// program.
pub fn guarded<F: FrontEnd>(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err()
        && let Some(front) = F::get()
    {
        front.collection().notes.add(messages::panicked());
        front.abort();
    }
}

extern "C" fn translated<F: FrontEnd>(_: api::Id, block: *mut api::Block) {
    guarded::<F>(|| {
        if let Some(front) = F::get() {
            front.translate(&Block { block, of_callback: PhantomData });
        }
    });
}

extern "C" fn exited<F: FrontEnd>(_: api::Id, _: *mut c_void) {
    guarded::<F>(|| {
        if let Some(front) = F::get() {
            front.exit();
        }
    });
}

/// A bit of a callback's data, above the place's number: the instruction reads and writes memory in
/// one access.
const ATOMIC: u64 = 1 << 32;

extern "C" fn accessed<F: FrontEnd>(
    vcpu: c_uint,
    information: u32,
    address: u64,
    data: *mut c_void,
) {
    let (data, place) = (data as u64, data as u32);
    let Some(vcpu) = F::vcpu(vcpu).filter(|vcpu| place != 0 && vcpu.is_recorded(address)) else {
        return;
    };
    let (size, writes) = vcpu.recorder().shape(information);
    let reads = !writes || data & ATOMIC != 0;
    let region = Region::new(address, size);
    let mut record =
        |word| vcpu.record_access(&Access::new(word, reads, writes, place), information);
    match region.word() {
        Some(word) => record(word),
        None => region.words().for_each(record),
    }
}

/// A block of code during its translation.
pub struct Block<'a> {
    block: *mut api::Block,
    of_callback: PhantomData<&'a ()>,
}

impl<'a> Block<'a> {
    /// Address of its first instruction.
    #[inline]
    pub fn address(&self) -> u64 {
        // SAFETY: QEMU keeps the block for the duration of the callback.
        unsafe { api::qemu_plugin_tb_vaddr(self.block) }
    }

    /// The raw pointer, for functions of a single interface version.
    #[inline]
    pub fn as_ptr(&self) -> *mut api::Block {
        self.block
    }

    /// Its instructions.
    #[inline]
    pub fn instructions(&self) -> impl ExactSizeIterator<Item = Instruction<'a>> + Clone + use<'a> {
        let block = self.block;
        // SAFETY: as above.
        let count = unsafe { api::qemu_plugin_tb_n_insns(block) };
        (0..count).map(move |index| Instruction {
            // SAFETY: as above; index < count.
            instruction: unsafe { api::qemu_plugin_tb_get_insn(block, index) },
            of_callback: PhantomData,
        })
    }
}

/// An instruction of a [`Block`].
#[derive(Clone, Copy)]
pub struct Instruction<'a> {
    instruction: *mut api::Instruction,
    of_callback: PhantomData<&'a ()>,
}

impl Instruction<'_> {
    /// Its address.
    #[inline]
    pub fn address(self) -> u64 {
        // SAFETY: an instruction of the block in translation.
        unsafe { api::qemu_plugin_insn_vaddr(self.instruction) }
    }

    /// The raw pointer, for functions that differ between interface versions.
    #[inline]
    pub fn as_ptr(self) -> *mut api::Instruction {
        self.instruction
    }

    /// Registers a callback before the instruction executes, with its data.
    #[inline]
    pub fn on_execution(self, callback: api::Executed, data: u64) {
        let data = data as *mut c_void;
        // SAFETY: as above; the callback lives as long as the process.
        unsafe {
            api::qemu_plugin_register_vcpu_insn_exec_cb(
                self.instruction,
                callback,
                api::READS_REGISTERS,
                data,
            );
        }
    }

    /// Registers a callback after each memory access of the instruction.
    #[inline]
    pub fn on_access(self, callback: api::Accessed, data: u64) {
        let data = data as *mut c_void;
        // SAFETY: as in `on_execution`.
        unsafe {
            api::qemu_plugin_register_vcpu_mem_cb(
                self.instruction,
                callback,
                api::READS_REGISTERS,
                api::READ_WRITE,
                data,
            );
        }
    }

    /// Records the instruction's accesses under `place`; place 0 records none.
    pub fn record<F: FrontEnd>(self, place: u32, is_atomic: bool) {
        self.on_access(accessed::<F>, u64::from(place) | if is_atomic { ATOMIC } else { 0 });
    }
}
