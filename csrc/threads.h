// A pool of threads that share the chunks of one job. Who takes which chunk changes no result.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>

int num_threads();
void set_num_threads(int n);

constexpr int64_t max_chunks = 0xffff;

// Calls work(context, begin, end) for runs that make up the chunks 0 .. chunks (max_chunks at
// most); returns when all are done.
typedef void (*Work)(void* context, int64_t begin, int64_t end);
void run_chunks(int64_t chunks, Work work, void* context);

// Whether other threads are awake and look for work. They sleep when there was none for a while.
bool threads_awake();

// Work below this many bytes or operations is done sooner than a second thread has taken a part,
constexpr int64_t worth_sharing = 1 << 16;
// or than it wakes up.
constexpr int64_t worth_waking = 1 << 18;

// Many small chunks: at the end of a kernel a thread waits for the others' last one.
inline int64_t chunks_for(int64_t cost) {
    const bool alone = cost < worth_sharing || (cost < worth_waking && !threads_awake());
    return alone ? 1 : 48 * num_threads();
}

// work(begin, end) over 0 .. items, in `chunks` runs of about one size. The first exception is kept
// until all threads are through, and thrown again: the job lives on this stack.
template <class F>
void parallel_for(int64_t items, int64_t chunks, F work) {
    if (chunks > items) chunks = items;
    if (chunks > max_chunks) chunks = max_chunks;
    if (chunks <= 1 || num_threads() == 1) {
        if (items > 0) work(int64_t(0), items);
        return;
    }
    struct Job {
        F* work;
        int64_t items, chunks;
        std::atomic_flag failed = ATOMIC_FLAG_INIT;
        std::exception_ptr error = nullptr;
    } job = {&work, items, chunks};
    run_chunks(chunks, [](void* context, int64_t begin, int64_t end) {
        Job& j = *static_cast<Job*>(context);
        try {
            (*j.work)(begin * j.items / j.chunks, end * j.items / j.chunks);
        } catch (...) {
            if (!j.failed.test_and_set()) j.error = std::current_exception();
        }
    }, &job);
    if (job.error) std::rethrow_exception(job.error);
}
