//! Reads memory that may be unmapped.

/// The memory of a process or a guest.
pub trait Memory {
    /// Copies the bytes at `address` to `to`. Returns whether all of them were readable.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;

    /// The 8-byte word at `address`.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// The 32 bits at `address`.
    fn half_word(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// The string at `address` without its terminator, cut to `most` bytes.
    fn string(&self, address: u64, most: usize) -> Vec<u8> {
        let mut string = Vec::new();
        while string.len() < most {
            let mut byte = [0];
            if !self.read(address.wrapping_add(string.len() as u64), &mut byte) || byte[0] == 0 {
                break;
            }
            string.push(byte[0]);
        }
        string
    }
}

/// This process's memory, read by a system call that fails where a load would fault.
pub struct OwnMemory;

impl OwnMemory {
    /// Whether the system call works. Some containers refuse it.
    pub fn is_readable(&self) -> bool {
        let known = [1_u8];
        let mut read = [0];
        self.read(known.as_ptr().addr() as u64, &mut read) && read == known
    }
}

impl Memory for OwnMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let size = to.len();
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: size };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: size };
        // SAFETY: the call writes at most `size` bytes to `to` and reports unreadable addresses.
        unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) == size as isize }
    }
}
