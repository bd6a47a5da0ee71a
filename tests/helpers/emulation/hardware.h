// What src/eirehn/ops/cuda/hardware.cu asks of the chip, done by threads of the CPU.

#include <pthread.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

typedef unsigned short bf16;
typedef long long int64;

struct alignas(16) Words {
    unsigned x, y, z, w;
};

struct Warp {
    pthread_barrier_t barrier;
    unsigned a[32][4], b[32][2];
    int values[32];
};

struct Block {
    pthread_barrier_t barrier;
    Warp warps[THREADS / 32];
    unsigned char* memory;
};

static thread_local int own_thread, own_block;
static thread_local Block* block;
static thread_local unsigned char* memory;
static std::mutex lock;

constexpr int SPEAKER = THREADS - 32;

static int thread_index() { return own_thread; }
static int block_index() { return own_block; }
static void sync() { pthread_barrier_wait(&block->barrier); }
static void sync_warp() {}
static float exponential(float x) { return expf(x); }
static float quotient(float x, float y) { return x / y; }

static float widened(bf16 x) {
    const unsigned bits = unsigned(x) << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}

static bf16 narrowed(float x) {
    if (x != x) return 0x7fff;
    unsigned bits;
    memcpy(&bits, &x, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

template <class T>
static void store_four(T* to, const T (&x)[4]) {
    if (reinterpret_cast<size_t>(to) % sizeof x != 0) abort();
    memcpy(to, x, sizeof x);
}

static Words load_shared_state(const bf16* from) {
    if (reinterpret_cast<size_t>(from) % 16 != 0) abort();
    Words y;
    memcpy(&y, from, 16);
    return y;
}

static int load_flag(const int* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

// As late as the chip may be: what is sent for comes when it is waited for.
static thread_local std::vector<std::pair<unsigned char*, const unsigned char*>> sent;

static void send_for(unsigned char* to, const unsigned char* from) {
    if (reinterpret_cast<size_t>(to) % 16 != 0 || reinterpret_cast<size_t>(from) % 16 != 0) abort();
    sent.push_back({to, from});
}
static void wait_for_sent() {
    for (auto [to, from] : sent) memcpy(to, from, 16);
    sent.clear();
    pthread_barrier_wait(&block->warps[own_thread / 32].barrier);
}

static float half_of(unsigned word, int which) { return widened(which ? word >> 16 : word & 0xffff); }

// The layout of mma.m16n8k16 by the PTX manual: a 16 × 16 by rows, b 16 × 8 by columns, c 16 × 8.
static void multiply_add(
    float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1
) {
    Warp& warp = block->warps[own_thread / 32];
    const int lane = own_thread % 32;
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    memcpy(warp.a[lane], a, sizeof a);
    memcpy(warp.b[lane], b, sizeof b);
    pthread_barrier_wait(&warp.barrier);
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        for (int k = 0; k < 16; k++) {
            const unsigned x = warp.a[row % 8 * 4 + k % 8 / 2][(k >= 8 ? 2 : 0) + (row >= 8)];
            const unsigned y = warp.b[column * 4 + k % 8 / 2][k >= 8];
            c[e] += half_of(x, k % 2) * half_of(y, k % 2);
        }
    }
    pthread_barrier_wait(&warp.barrier);
}

static int most_of_warp(int x) {
    Warp& warp = block->warps[own_thread / 32];
    warp.values[own_thread % 32] = x;
    pthread_barrier_wait(&warp.barrier);
    int most = x;
    for (int value : warp.values) most = value > most ? value : most;
    pthread_barrier_wait(&warp.barrier);
    return most;
}

static void raise_global(int* to, int x) {
    const std::lock_guard<std::mutex> held(lock);
    if (x > *to) *to = x;
}
static void raise_shared(int* to, int x) { raise_global(to, x); }
static void announce(unsigned* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELEASE); }

static void arrive(unsigned* counter) {
    sync();
    if (own_thread == SPEAKER) announce(counter);
}

static void wait(const unsigned* counter, unsigned target) {
    if (own_thread == SPEAKER) {
        const time_t begin = time(nullptr);
        while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < target) {
            if (time(nullptr) - begin > 60) {
                fprintf(stderr, "block %d waits for what does not come\n", own_block);
                abort();
            }
            sched_yield();
        }
    }
    sync();
}
