// The thread pool.
#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Tells the processor that this thread only waits.
inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// One wait for another thread: at first it keeps the processor, then it leaves it to whoever has
// work, which may be the thread that is waited for.
class Wait {
    const Clock::time_point began = Clock::now();
    int looks = 0;
    bool patient = false;

public:
    // Between two looks
    void a_moment() {
        if (!patient) {
            pause();
            if (++looks % 64 == 0) patient = lasted() > microseconds(30);
        } else {
            std::this_thread::yield();
        }
    }
    bool is_long() const { return patient && lasted() > microseconds(200); }
    Clock::duration lasted() const { return Clock::now() - began; }
};

// A job is published as one number: a serial (high 32 bits), its chunks and the next one to take
// (16 bits each). Whoever advances that number owns the chunks it passed, and the job cannot end
// before they are done.
//
// A thread takes a share of what is left, at first many chunks, at last single ones: neighbours are
// one stream of memory, and nobody waits long for the last of them.
struct Pool {
    std::mutex busy;  // one job at a time; a second caller works alone
    std::atomic<uint64_t> ticket{0};
    std::atomic<uint32_t> done{0};
    std::atomic<Work> work{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<int> sleeping{0};
    std::atomic<int> workers{0};     // started so far
    Clock::time_point alone_until;  // guarded by busy
    std::mutex sleep_lock;
    std::condition_variable wake;

    // Take chunks of the job `serial` until none is left.
    void help(uint32_t serial) {
        for (;;) {
            uint64_t t = ticket.load(std::memory_order_acquire);
            const uint32_t chunks = (t >> 16) & 0xffff, next = t & 0xffff;
            if (uint32_t(t >> 32) != serial || next >= chunks) return;
            const uint32_t taken = std::max<uint32_t>((chunks - next) / num_threads(), 1);
            if (!ticket.compare_exchange_weak(t, t + taken, std::memory_order_acq_rel)) continue;
            work.load(std::memory_order_relaxed)(context.load(std::memory_order_relaxed), next,
                                                 next + taken);
            done.fetch_add(taken, std::memory_order_release);
        }
    }

    void live(int index) {
        uint32_t seen = 0;
        for (;;) {
            // Between two kernels of a pass there is little time: look that long, then sleep.
            uint32_t serial;
            Wait wait;
            while ((serial = ticket.load(std::memory_order_acquire) >> 32) == seen) {
                wait.a_moment();
                if (wait.is_long()) {
                    std::unique_lock<std::mutex> lock(sleep_lock);
                    sleeping.fetch_add(1);
                    wake.wait(lock, [&] { return uint32_t(ticket.load() >> 32) != seen; });
                    sleeping.fetch_sub(1);
                }
            }
            seen = serial;
            if (index < num_threads() - 1) help(serial);
        }
    }

    void start(int wanted) {
        while (workers.load() < wanted) {
            try {
                std::thread([this, index = workers.load()] { live(index); }).detach();
            } catch (...) {
                break;  // no more threads to be had: fewer share the work
            }
            workers.fetch_add(1);
        }
    }

    void run(int64_t chunks, Work f, void* c, int threads) {
        start(threads - 1);
        const uint32_t serial = uint32_t(ticket.load() >> 32) + 1;
        done.store(0, std::memory_order_relaxed);
        work.store(f, std::memory_order_relaxed);
        context.store(c, std::memory_order_relaxed);
        ticket.store(uint64_t(serial) << 32 | uint64_t(chunks) << 16, std::memory_order_seq_cst);
        if (sleeping.load() > 0) {
            std::lock_guard<std::mutex> lock(sleep_lock);
            wake.notify_all();
        }
        const auto began = Clock::now();
        help(serial);
        Wait wait;
        while (done.load(std::memory_order_acquire) < chunks) wait.a_moment();
        consider(wait.lasted(), Clock::now() - began);
    }

    // Where other processes want the processors too, a thread may lose its own amid a chunk, and
    // then all wait for it. If that took longer than the rest of the job, there are too few
    // processors for now: the next jobs are not shared, for thirty times as long.
    void consider(Clock::duration waited, Clock::duration whole) {
        if (waited < whole / 2 + microseconds(50)) return;
        alone_until = Clock::now() + std::min<Clock::duration>(30 * waited, milliseconds(250));
    }
};

alignas(Pool) char pool_memory[sizeof(Pool)];
Pool& pool() { return *reinterpret_cast<Pool*>(pool_memory); }

// A forked child has none of the threads, and maybe a locked mutex: it starts with a new pool.
void renew() { new (pool_memory) Pool(); }

const bool started = [] {
    renew();
    pthread_atfork(nullptr, nullptr, renew);
    return true;
}();

std::atomic<int> threads{1};

}  // namespace

int num_threads() { return threads.load(); }
void set_num_threads(int n) { threads.store(n < 1 ? 1 : n); }

bool threads_awake() { return pool().workers.load() > pool().sleeping.load(); }

void run_chunks(int64_t chunks, Work work, void* context) {
    std::unique_lock<std::mutex> lock(pool().busy, std::try_to_lock);
    if (lock.owns_lock() && Clock::now() >= pool().alone_until) {
        pool().run(chunks, work, context, num_threads());
    } else {
        work(context, 0, chunks);
    }
}
