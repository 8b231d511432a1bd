//! Between QEMU and a front end: how a plug-in is installed, and the callbacks that are the same in
//! all modes.

use crate::api;
use crate::collection::Collection;
use crate::recorder::Recorder;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use unconvoy_trace_stream::{Access, Region};

/// One mode of QEMU: what the threads or processors of this mode share.
pub trait FrontEnd: Sized + 'static {
    /// A thread of the program, or a virtual processor of the guest.
    type Vcpu: Vcpu;

    /// Begins to listen to what is emulated; what hinders it otherwise.
    fn install(id: api::Id, target: &Target, arguments: &[String]) -> Result<(), String>;

    /// The one that was installed, as long as it listens.
    fn get() -> Option<&'static Self>;

    /// What the core does for it.
    fn collection(&self) -> &Collection;

    /// The thread or processor that makes the callback at hand.
    fn vcpu(number: c_uint) -> Option<&'static mut Self::Vcpu>;

    /// A block is translated: registers callbacks.
    fn translate(&self, block: &Block);

    /// Collecting makes no sense any more: it ends as soon as possible.
    fn abort(&self);

    /// QEMU ends; nothing runs any more.
    fn exit(&self);
}

/// A thread or processor of a front end.
pub trait Vcpu {
    /// Its part that all modes have.
    fn recorder(&mut self) -> &mut Recorder;

    /// Whether its accesses from this address on are recorded; in a block with memory callbacks.
    fn is_recorded(&self, address: u64) -> bool;

    /// It has accessed a word, in a block with memory callbacks. `information` is QEMU's of the
    /// access.
    fn record_access(&mut self, access: &Access, information: u32);
}

/// What is emulated.
pub struct Target {
    /// The architecture.
    pub name: String,
    /// A whole machine, not a program.
    pub is_system: bool,
    /// Its virtual processors, if it is a machine.
    pub processors: c_int,
}

/// Defines what QEMU looks for in a plug-in: the version of the interface, and the function that
/// installs it.
#[macro_export]
macro_rules! plugin {
    ($front:ty, version = $version:literal) => {
        /// The interface's version: QEMU refuses what it does not support.
        #[unsafe(no_mangle)]
        pub static qemu_plugin_version: std::ffi::c_int = $version;

        /// Called by QEMU when it loads the plug-in, before anything is emulated.
        ///
        /// # Safety
        ///
        /// As the interface has it: `info` is valid for the call, `argv` has `argc` strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn qemu_plugin_install(
            id: $crate::api::Id,
            info: *const $crate::api::Info,
            argc: std::ffi::c_int,
            argv: *const *const std::ffi::c_char,
        ) -> std::ffi::c_int {
            // SAFETY: the interface's contract is this function's.
            unsafe { $crate::front::install::<$front>(id, info, argc, argv) }
        }
    };
}

/// What [`plugin!`](crate::plugin) makes QEMU's function of.
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
    let text = |string: *const c_char| unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned();
    // SAFETY: likewise.
    let info = unsafe { &*info };
    let target = Target { name: text(info.target_name), is_system: info.system_emulation, processors: info.smp_vcpus };
    // SAFETY: likewise.
    let arguments: Vec<String> = (0..argc as usize).map(|index| text(unsafe { *argv.add(index) })).collect();
    match F::install(id, &target, &arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("unconvoy: the plug-in is not loaded: {error}");
            1
        }
    }
}

/// Has QEMU call back when it translates and when it ends: in [`FrontEnd::install`], and after each
/// reset.
pub fn listen<F: FrontEnd>(id: api::Id) {
    // SAFETY: the functions live as long as the process, and so does what they use.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated::<F>);
        api::qemu_plugin_register_atexit_cb(id, exited::<F>, null_mut());
    }
}

/// A defect of the plug-in must not be the program's: collecting ends, and the program goes on.
pub fn guarded<F: FrontEnd>(body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err()
        && let Some(front) = F::get()
    {
        front.collection().notes.add("the plug-in failed, see standard error: collecting ended there".to_string());
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

/// Set in a callback's data beside the place's number: the instruction reads what it writes, in
/// one.
const ATOMIC: u64 = 1 << 32;

extern "C" fn accessed<F: FrontEnd>(vcpu: c_uint, information: u32, address: u64, data: *mut c_void) {
    let (data, place) = (data as u64, data as u32);
    let Some(vcpu) = F::vcpu(vcpu).filter(|vcpu| place != 0 && vcpu.is_recorded(address)) else {
        return;
    };
    let (size, writes) = vcpu.recorder().shape(information);
    let reads = !writes || data & ATOMIC != 0;
    let region = Region::new(address, size);
    let mut record = |word| vcpu.record_access(&Access::new(word, reads, writes, place), information);
    match region.word() {
        Some(word) => record(word),
        None => region.words().for_each(record),
    }
}

/// A block of code, while it is being translated.
pub struct Block<'a> {
    block: *mut api::Block,
    of_callback: PhantomData<&'a ()>,
}

impl<'a> Block<'a> {
    /// Where it begins.
    #[inline]
    pub fn address(&self) -> u64 {
        // SAFETY: the block is QEMU's, for the time of the callback; likewise below.
        unsafe { api::qemu_plugin_tb_vaddr(self.block) }
    }

    /// For functions that only one version of the interface has.
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
    /// Where it is.
    #[inline]
    pub fn address(self) -> u64 {
        // SAFETY: an instruction of the block that is being translated; likewise below.
        unsafe { api::qemu_plugin_insn_vaddr(self.instruction) }
    }

    /// For functions that differ between versions of the interface.
    #[inline]
    pub fn as_ptr(self) -> *mut api::Instruction {
        self.instruction
    }

    /// Has QEMU call back before it is executed. The callback is one for such data.
    #[inline]
    pub fn on_execution(self, callback: api::Executed, data: u64) {
        let data = data as *mut c_void;
        // SAFETY: as above; the callback lives as long as the process.
        unsafe {
            api::qemu_plugin_register_vcpu_insn_exec_cb(self.instruction, callback, api::READS_REGISTERS, data);
        }
    }

    /// Has QEMU call back after each of its accesses.
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

    /// Has each of its accesses recorded, as one of this place; 0 if it is not to be.
    pub fn record<F: FrontEnd>(self, place: u32, is_atomic: bool) {
        self.on_access(accessed::<F>, u64::from(place) | if is_atomic { ATOMIC } else { 0 });
    }
}
