//! The functions of the addon. They run on the thread of the event loop, unless their comment says otherwise.
//!
//! `free` or the garbage collector closes an engine, whose thread ends after its last job. An engine that was given up
//! refuses every job, and its thread stays. The environment may end before a thread does.

use crate::limits::Limits;
use crate::policy::Outcome;
use crate::worker::{self, Answer, Job};
use napi_sys::*;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

const OUT_OF_MEMORY: &str = "the policy asks for more memory than it may have";
const CLOSED: &str = "the policy engine is closed";

/// Referenced by JavaScript and by `answers`.
struct Engine {
    /// Brings answers from the thread to the event loop.
    answers: Cell<napi_threadsafe_function>,
    limits: Arc<Limits>,
    /// None when the engine is closed.
    jobs: RefCell<Option<Sender<Job>>>,
    running: Cell<napi_deferred>,
    given_up: RefCell<Option<String>>,
}

/// A failed call of Node-API. `called` throws an exception unless one is pending.
struct Failed;

fn check(status: napi_status) -> Result<(), Failed> {
    if status == Status::napi_ok {
        Ok(())
    } else {
        Err(Failed)
    }
}

/// Runs `body` with the call's arguments. A failure becomes an exception.
unsafe fn called<const N: usize>(
    env: napi_env,
    info: napi_callback_info,
    body: impl FnOnce([napi_value; N]) -> Result<napi_value, Failed>,
) -> napi_value {
    let mut values = [null_mut(); N];
    let mut count = N;
    unsafe {
        let status = napi_get_cb_info(env, info, &mut count, values.as_mut_ptr(), null_mut(), null_mut());
        check(status)
            .and_then(|()| body(values))
            .unwrap_or_else(|Failed| {
                let mut pending = false;
                napi_is_exception_pending(env, &mut pending);
                if !pending {
                    napi_throw_error(env, null(), c"policy.node: bad arguments or no memory".as_ptr());
                }
                null_mut()
            })
    }
}

unsafe extern "C" fn open(env: napi_env, info: napi_callback_info) -> napi_value {
    unsafe {
        called(env, info, |[]| {
            let engine = Rc::into_raw(start(env)?).cast_mut();
            let mut value = null_mut();
            let created = napi_create_external(env, engine.cast(), Some(released), null_mut(), &mut value);
            if created != Status::napi_ok {
                close(&Rc::from_raw(engine));
                return Err(Failed);
            }
            Ok(value)
        })
    }
}

unsafe fn start(env: napi_env) -> Result<Rc<Engine>, Failed> {
    let (jobs, received) = channel();
    let limits = Arc::new(Limits::new(out_of_memory));
    let engine = Rc::new(Engine {
        answers: Cell::new(null_mut()),
        limits: limits.clone(),
        jobs: RefCell::new(Some(jobs)),
        running: Cell::new(null_mut()),
        given_up: RefCell::new(None),
    });
    unsafe {
        let name = text(env, "policy")?;
        let context = Rc::into_raw(engine.clone()).cast_mut().cast();
        let answers = engine.answers.as_ptr();
        let created = napi_create_threadsafe_function(
            env,
            null_mut(),
            null_mut(),
            name,
            0,
            1,
            context,
            Some(released),
            context,
            Some(answered),
            answers,
        );
        if created != Status::napi_ok {
            drop(Rc::from_raw(context.cast::<Engine>()));
            return Err(Failed);
        }
        // Only a running job keeps the process alive.
        napi_unref_threadsafe_function(env, *answers);
        let answers = Answers(*answers);
        let thread = thread::Builder::new()
            .name("policy".to_string())
            .stack_size(worker::STACK_BYTES);
        let started = thread.spawn(move || {
            let answers = answers;
            limits.apply(answers.0.cast());
            worker::run(received, &limits, |answer| answers.send(answer));
            limits.lift();
            answers.release();
        });
        if started.is_err() {
            Answers(engine.answers.get()).release();
            return thrown(env, c"policy.node: no thread for the policy");
        }
    }
    Ok(engine)
}

/// The thread's end of `Engine::answers`.
struct Answers(napi_threadsafe_function);

// Node-API allows these calls on any thread.
unsafe impl Send for Answers {}

impl Answers {
    fn send(&self, answer: Answer) {
        let data = Box::into_raw(Box::new(answer));
        unsafe {
            let mode = ThreadsafeFunctionCallMode::nonblocking;
            if napi_call_threadsafe_function(self.0, data.cast(), mode) != Status::napi_ok {
                drop(Box::from_raw(data));
            }
        }
    }

    fn release(&self) {
        unsafe { napi_release_threadsafe_function(self.0, ThreadsafeFunctionReleaseMode::release) };
    }
}

/// Runs on the engine's thread, inside an allocation.
fn out_of_memory(answers: *const ()) {
    let mode = ThreadsafeFunctionCallMode::nonblocking;
    unsafe { napi_call_threadsafe_function(answers.cast_mut().cast(), null_mut(), mode) };
}

/// Handles an answer. Null `data` means that the thread has used up its memory.
unsafe extern "C" fn answered(env: napi_env, _: napi_value, engine: *mut c_void, data: *mut c_void) {
    unsafe {
        let engine = &*engine.cast::<Engine>();
        let answer = if data.is_null() {
            engine.given_up.replace(Some(OUT_OF_MEMORY.to_string()));
            Err(OUT_OF_MEMORY.to_string())
        } else {
            *Box::from_raw(data.cast::<Answer>())
        };
        // Null when the environment is ending.
        if !env.is_null() {
            settle(env, engine, answer);
        }
    }
}

/// Settles the promise of the running job, unless it is settled.
unsafe fn settle(env: napi_env, engine: &Engine, answer: Answer) {
    let deferred = engine.running.replace(null_mut());
    if deferred.is_null() {
        return;
    }
    unsafe {
        napi_unref_threadsafe_function(env, engine.answers.get());
        let failure = match answer.map(|outcome| outcome_value(env, outcome)) {
            Ok(Ok(value)) => {
                napi_resolve_deferred(env, deferred, value);
                return;
            }
            Ok(Err(Failed)) => "no memory for the outcome".to_string(),
            Err(message) => message,
        };
        let mut error = null_mut();
        if let Ok(message) = text(env, &failure) {
            napi_create_error(env, null_mut(), message, &mut error);
        }
        napi_reject_deferred(env, deferred, error);
    }
}

unsafe fn outcome_value(env: napi_env, outcome: Option<Outcome>) -> Result<napi_value, Failed> {
    let mut value = null_mut();
    unsafe {
        check(napi_get_undefined(env, &mut value))?;
        let Some(outcome) = outcome else { return Ok(value) };
        if let Some(json) = &outcome.value {
            value = text(env, json)?;
        }
        let mut prints = null_mut();
        check(napi_create_array_with_length(
            env,
            outcome.prints.len(),
            &mut prints,
        ))?;
        for (index, print) in (0..).zip(&outcome.prints) {
            check(napi_set_element(env, prints, index, text(env, print)?))?;
        }
        let mut object = null_mut();
        check(napi_create_object(env, &mut object))?;
        check(napi_set_named_property(env, object, c"value".as_ptr(), value))?;
        check(napi_set_named_property(env, object, c"prints".as_ptr(), prints))?;
        Ok(object)
    }
}

unsafe extern "C" fn compile(env: napi_env, info: napi_callback_info) -> napi_value {
    unsafe {
        called(env, info, |[handle, policy]| {
            let text = string(env, policy)?;
            submit(env, handle, Job::Compile { text })
        })
    }
}

unsafe extern "C" fn set_data(env: napi_env, info: napi_callback_info) -> napi_value {
    unsafe {
        called(env, info, |[handle, json]| {
            let json = string(env, json)?;
            submit(env, handle, Job::SetData { json })
        })
    }
}

unsafe extern "C" fn evaluate(env: napi_env, info: napi_callback_info) -> napi_value {
    unsafe {
        called(env, info, |[handle, rule, input]| {
            let (rule, input) = (string(env, rule)?, string(env, input)?);
            submit(env, handle, Job::Evaluate { rule, input })
        })
    }
}

unsafe fn submit(env: napi_env, handle: napi_value, job: Job) -> Result<napi_value, Failed> {
    unsafe {
        let engine = held(env, handle)?;
        if !engine.running.get().is_null() {
            return thrown(env, c"policy.node: a job of this engine runs already");
        }
        let mut promise = null_mut();
        check(napi_create_promise(env, engine.running.as_ptr(), &mut promise))?;
        napi_ref_threadsafe_function(env, engine.answers.get());
        let reason = engine.given_up.borrow().clone();
        if let Some(reason) = reason {
            settle(env, engine, Err(reason));
        } else if engine
            .jobs
            .borrow()
            .as_ref()
            .is_none_or(|jobs| jobs.send(job).is_err())
        {
            settle(env, engine, Err(CLOSED.to_string()));
        }
        Ok(promise)
    }
}

/// giveUp(engine, reason): the running job and every later one fail with `reason`.
unsafe extern "C" fn give_up(env: napi_env, info: napi_callback_info) -> napi_value {
    unsafe {
        called(env, info, |[handle, reason]| {
            let engine = held(env, handle)?;
            // The answer may have arrived in the same turn of the loop.
            if !engine.running.get().is_null() {
                let reason = string(env, reason)?;
                engine.limits.give_up();
                engine.given_up.replace(Some(reason.clone()));
                settle(env, engine, Err(reason));
            }
            Ok(null_mut())
        })
    }
}

unsafe extern "C" fn free(env: napi_env, info: napi_callback_info) -> napi_value {
    unsafe {
        called(env, info, |[handle]| {
            close(held(env, handle)?);
            Ok(null_mut())
        })
    }
}

/// Closes the queue of jobs, which ends the thread.
fn close(engine: &Engine) {
    engine.jobs.replace(None);
}

/// Drops one of the two references: JavaScript's, or that of `answers`, which the thread or the environment's end
/// releases.
unsafe extern "C" fn released(_: napi_env, engine: *mut c_void, _: *mut c_void) {
    let engine = unsafe { Rc::from_raw(engine.cast::<Engine>().cast_const()) };
    close(&engine);
}

unsafe fn held(env: napi_env, value: napi_value) -> Result<&'static Engine, Failed> {
    let mut data = null_mut();
    unsafe {
        check(napi_get_value_external(env, value, &mut data))?;
        data.cast::<Engine>().as_ref().ok_or(Failed)
    }
}

unsafe fn thrown<T>(env: napi_env, message: &CStr) -> Result<T, Failed> {
    unsafe { napi_throw_error(env, null(), message.as_ptr()) };
    Err(Failed)
}

unsafe fn string(env: napi_env, value: napi_value) -> Result<String, Failed> {
    unsafe {
        let mut length = 0;
        check(napi_get_value_string_utf8(env, value, null_mut(), 0, &mut length))?;
        // Node-API writes a NUL at the end.
        let mut bytes = vec![0; length + 1];
        check(napi_get_value_string_utf8(
            env,
            value,
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            &mut length,
        ))?;
        bytes.truncate(length);
        String::from_utf8(bytes).map_err(|_| Failed)
    }
}

unsafe fn text(env: napi_env, text: &str) -> Result<napi_value, Failed> {
    let mut value = null_mut();
    let length = isize::try_from(text.len()).map_err(|_| Failed)?;
    unsafe {
        check(napi_create_string_utf8(
            env,
            text.as_ptr().cast::<c_char>(),
            length,
            &mut value,
        ))?
    };
    Ok(value)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn napi_register_module_v1(env: napi_env, exports: napi_value) -> napi_value {
    // Prints no panic, because its text becomes the error of the call.
    std::panic::set_hook(Box::new(|_| {}));
    let functions: [(&CStr, napi_callback); 6] = [
        (c"open", Some(open)),
        (c"compile", Some(compile)),
        (c"setData", Some(set_data)),
        (c"evaluate", Some(evaluate)),
        (c"giveUp", Some(give_up)),
        (c"free", Some(free)),
    ];
    for (name, function) in functions {
        let mut value = null_mut();
        unsafe {
            let created = napi_create_function(env, name.as_ptr(), -1, function, null_mut(), &mut value);
            if created != Status::napi_ok
                || napi_set_named_property(env, exports, name.as_ptr(), value) != Status::napi_ok
            {
                napi_throw_error(env, null(), c"policy.node: no functions".as_ptr());
                break;
            }
        }
    }
    exports
}

#[unsafe(no_mangle)]
extern "C" fn node_api_module_get_api_version_v1() -> i32 {
    8
}
