//! What the library has to say, on standard error.

/// One line on standard error, without allocation or a lock.
pub(crate) fn say(parts: &[&str]) {
    let mut line = [0u8; 512];
    let mut len = 0;
    for part in ["unconvoy: "].iter().chain(parts).chain(&["\n"]) {
        let room = &mut line[len..];
        let fits = part.len().min(room.len());
        room[..fits].copy_from_slice(&part.as_bytes()[..fits]);
        len += fits;
    }
    // One line is one line, whatever a variable's value holds.
    line[..len.saturating_sub(1)].iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b'?');
    // SAFETY: the buffer holds `len` bytes. Nothing can be done about a standard error that takes none.
    let _ = unsafe { syscalls::syscall!(syscalls::Sysno::write, 2, line.as_ptr(), len) };
}
