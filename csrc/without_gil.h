// The lock of the interpreter (GIL), and threads that outlive the interpreter.
//
// Python ends while daemon threads still run. One that then asks for the lock is ended by Python
// with pthread_exit, which unwinds its stack: through destructors, where that aborts the process,
// and past references, which are given back without the lock. Such a thread sleeps here instead,
// until the process ends, as Python itself does it from 3.14 on.
#pragma once
#include <pybind11/pybind11.h>

#include <chrono>
#include <exception>
#include <thread>

[[noreturn]] inline void sleep_for_ever() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// f() where it may let other threads of Python run, as the copying of an array does
template <class F>
auto or_sleep(F f) {
    try {
        return f();
    } catch (const std::exception&) {  // an error, ours or Python's
        throw;
    } catch (...) {
        sleep_for_ever();
    }
}

// While it lives, other threads of Python run.
class WithoutGil {
    PyThreadState* state = PyEval_SaveThread();

public:
    WithoutGil() = default;
    WithoutGil(const WithoutGil&) = delete;
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(state);
        } catch (...) {
            sleep_for_ever();
        }
    }
};
