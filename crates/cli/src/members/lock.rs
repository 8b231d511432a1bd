//! The types of pthread objects.

/// A pthread object's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockType {
    Mutex,
    RwLock,
    Spin,
    Cond,
}

impl LockType {
    const ALL: [Self; 4] = [LockType::Mutex, LockType::RwLock, LockType::Spin, LockType::Cond];

    /// The type of the locks that records call `kind`.
    pub fn of(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lock| lock.name() == kind)
    }

    /// The type of the locks of this size in bytes.
    pub fn of_size(size: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|lock| lock.size() == size)
    }

    /// The name in records and reports.
    pub fn name(self) -> &'static str {
        match self {
            LockType::Mutex => "mutex",
            LockType::RwLock => "rwlock",
            LockType::Spin => "spin",
            LockType::Cond => "cond",
        }
    }

    /// The name of the type in C.
    pub fn type_name(self) -> &'static str {
        match self {
            LockType::Mutex => "pthread_mutex_t",
            LockType::RwLock => "pthread_rwlock_t",
            LockType::Spin => "pthread_spinlock_t",
            LockType::Cond => "pthread_cond_t",
        }
    }

    /// Size in bytes.
    pub fn size(self) -> u64 {
        let size = match self {
            LockType::Mutex => size_of::<libc::pthread_mutex_t>(),
            LockType::RwLock => size_of::<libc::pthread_rwlock_t>(),
            LockType::Spin => size_of::<libc::pthread_spinlock_t>(),
            LockType::Cond => size_of::<libc::pthread_cond_t>(),
        };
        size as u64
    }

    /// Whether a type of the lock's size can be the lock's: a spin lock is a number, the others are
    /// classes.
    pub fn may_be(self, is_class: bool) -> bool {
        is_class != (self == LockType::Spin)
    }
}
