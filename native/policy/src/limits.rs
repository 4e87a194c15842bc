//! Limits of a job. Rust cannot end a thread, and a failed allocation ends the process: a thread that exceeds its
//! limits stops for good inside its next allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct Limits {
    given_up: AtomicBool,
    /// Bytes that the running job may still allocate.
    left: Cell<isize>,
    /// Called once, on the limited thread, when its memory is used up. Must not allocate.
    exceeded: fn(*const ()),
    argument: Cell<*const ()>,
}

// Only the limited thread uses the cells.
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

    pub fn lift(&self) {
        CURRENT.set(null());
    }

    /// Begins a job that may allocate `bytes` more than it frees.
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
        // The size of an allocation fits an isize.
        self.left.set(self.left.get().saturating_add(bytes as isize));
    }
}

fn stop() -> ! {
    loop {
        unsafe { libc::pause() };
    }
}

thread_local! {
    static CURRENT: Cell<*const Limits> = const { Cell::new(null()) };
}

/// The system's allocator with the calling thread's limits.
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
