//! What a job may use. Rust has no way to end a thread, and an allocation that fails ends the process; so a thread that
//! goes beyond its limits is stopped for good inside its next allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

/// The limits of one thread.
pub struct Limits {
    given_up: AtomicBool,
    /// Bytes that the running job may still ask for.
    left: Cell<isize>,
    /// Called once, on the thread, when the memory is used up. It must not allocate.
    exceeded: fn(*const ()),
    argument: Cell<*const ()>,
}

// The cells are used by the thread of the limits alone.
unsafe impl Sync for Limits {}
unsafe impl Send for Limits {}

impl Limits {
    pub fn new(exceeded: fn(*const ())) -> Self {
        Self {
            given_up: AtomicBool::new(false),
            left: Cell::new(isize::MAX),
            exceeded,
            argument: Cell::new(null()),
        }
    }

    /// Puts the calling thread under these limits, until `lift`. `argument` is for `exceeded`.
    pub fn apply(&self, argument: *const ()) {
        self.argument.set(argument);
        CURRENT.set(std::ptr::from_ref(self));
    }

    /// Ends what `apply` began.
    pub fn lift(&self) {
        CURRENT.set(null());
    }

    /// Begins a job of the calling thread that may ask for so many bytes more than it gives back.
    pub fn begin(&self, bytes: isize) {
        self.left.set(bytes);
    }

    /// Stops the thread at its next allocation.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) {
        if self.given_up.load(Ordering::Relaxed) {
            stop();
        }
        let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
        if bytes > self.left.get() {
            (self.exceeded)(self.argument.get());
            stop();
        }
        self.left.set(self.left.get() - bytes);
    }

    fn give_back(&self, bytes: usize) {
        // The size of something that was allocated fits.
        self.left.set(self.left.get().saturating_add(bytes as isize));
    }
}

/// Stops the calling thread for ever.
fn stop() -> ! {
    loop {
        unsafe { libc::pause() };
    }
}

thread_local! {
    static CURRENT: Cell<*const Limits> = const { Cell::new(null()) };
}

/// The system's allocator, under the limits of the calling thread.
pub struct LimitedAllocator;

fn current() -> Option<&'static Limits> {
    unsafe { CURRENT.get().as_ref() }
}

unsafe impl GlobalAlloc for LimitedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(limits) = current() {
            limits.take(layout.size());
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some(limits) = current() {
            limits.take(layout.size());
        }
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if let Some(limits) = current() {
            limits.take(size);
            limits.give_back(layout.size());
        }
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if let Some(limits) = current() {
            limits.give_back(layout.size());
        }
        unsafe { System.dealloc(memory, layout) }
    }
}
